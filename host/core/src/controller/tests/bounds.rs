//! What a guest makes the host keep is bounded.

use super::*;
use crate::bounds::{Ledger, text};
use crate::manifest::{MetricKind, MetricSpec, Rate};
use crate::plan::{Event, Measure};

fn bounded(bounds: Bounds) -> Bench {
    let settings = Settings {
        bounds,
        ..enforce()
    };
    let mut manifest = manifest();
    manifest.metrics = vec![MetricSpec {
        name: "m".into(),
        kind: MetricKind::Counter,
        help: String::new(),
        labels: vec!["l".into()],
        buckets: vec![],
    }];
    let mut bench = Bench::new(manifest, settings);
    bench.see("a", 1, "n1");
    bench
}

fn commands(commands: impl IntoIterator<Item = Command>) -> Decision {
    Decision {
        commands: commands.into_iter().collect(),
        ..decide(vec![], Verdict::Done)
    }
}

fn enqueue(key: &str, group: &str) -> Command {
    Command::Enqueue(Enqueue {
        item: QueueKey {
            queue: "pods".into(),
            key: key.into(),
        },
        after: 10 * SECOND,
        created_at: None,
        group: group.into(),
    })
}

fn note(key: &str, value: Option<&str>) -> Command {
    Command::SetNote {
        key: key.into(),
        value: value.map(|value| value.as_bytes().to_vec()),
    }
}

fn rate(group: &str) -> Command {
    Command::SetRate {
        queue: "pods".into(),
        group: group.into(),
        rate: Rate {
            per_second: 1.0,
            burst: 1,
        },
    }
}

fn measure(label: &str) -> Measure {
    Measure {
        metric: "m".into(),
        labels: vec![label.into()],
        amount: Amount::Add(1.0),
    }
}

impl Bench {
    /// Answers the next call about one item with this decision. Returns the failure.
    fn reply(&mut self, decision: Decision) -> Option<CallFailure> {
        let (id, _, keys) = self.keys().expect("an item is due");
        assert_eq!(keys.len(), 1);
        self.answer_in(Duration::ZERO, id, vec![decision])
    }

    fn ledger(&self) -> Ledger {
        self.controller.stable().ledger()
    }
}

/// The name of a limit, the bounds, an answer that keeps things of these names, and names
/// that fit.
type Case<'a> = (
    &'a str,
    Bounds,
    &'a dyn Fn(&[&str]) -> Decision,
    &'a [&'a str],
);

/// One answer at each limit, and one beyond it.
#[test]
fn an_answer_beyond_a_bound_is_a_flood_and_nothing_of_it_is_kept() {
    let few = Bounds {
        notes: 2,
        queue_items: 4,
        rate_groups: 4,
        metric_series: 2,
        ..Bounds::default()
    };
    let notes = |keys: &[&str]| commands(keys.iter().map(|key| note(key, Some("1"))));
    let items = |keys: &[&str]| commands(keys.iter().map(|key| enqueue(key, "")));
    let rates = |keys: &[&str]| commands(keys.iter().map(|key| rate(key)));
    let series = |keys: &[&str]| {
        let measures = keys.iter().map(|key| Command::Measure(measure(key)));
        commands(measures)
    };
    // The queues hold the item of the call, and the pod's node.
    let cases: [Case<'_>; 4] = [
        ("notes", few, &notes, &["x", "y"]),
        ("queueItems", few, &items, &["x", "y"]),
        ("rateGroups", few, &rates, &["x", "y", "z"]),
        ("metricSeries", few, &series, &["x", "y"]),
    ];
    for (limit, bounds, answer, most) in cases {
        let mut bench = bounded(bounds);
        assert_eq!(bench.reply(answer(most)), None, "{limit}");
        // The same again adds nothing.
        bench.pass(SECOND);
        assert_eq!(bench.reply(answer(most)), None, "{limit}");
        bench.effects();
        bench.see("a", 2, "n2");
        bench.pass(20 * SECOND);
        let before = bench.ledger();
        let (id, ..) = bench.keys().unwrap();
        // A deletion beside it is not executed either.
        let mut beyond = answer(&["one", "more", "and", "another", "still"]);
        beyond.plans = vec![delete("a")];
        let failure = bench.answer_in(Duration::ZERO, id, vec![beyond]);
        let failure = failure.expect(limit);
        assert_eq!(failure.kind, CallFailureKind::Flood);
        assert!(
            failure.message.starts_with(&format!("{limit}: ")),
            "{failure}"
        );
        assert!(
            failure.message.ends_with(&format!("raise limits.{limit}")),
            "{failure}"
        );
        assert_eq!(bench.carried(), [], "{limit}");
        let after = bench.ledger();
        assert_eq!(after.notes, before.notes, "{limit}");
        assert_eq!(after.metric_series, before.metric_series, "{limit}");
        assert!(after.queue_items <= before.queue_items, "{limit}");
        assert_eq!(bench.controller.stable().circuit().failures_in_a_row(), 1);
        assert_eq!(bench.controller.stable().tally().failed_calls, 1);
    }
}

#[test]
fn bytes_of_notes_and_keys_are_bounded_too() {
    let bounds = Bounds {
        note_bytes: 10,
        queue_bytes: 100,
        ..Bounds::default()
    };
    let mut bench = bounded(bounds);
    let long = "x".repeat(100);
    let failure = bench.reply(commands([enqueue(&long, "")])).unwrap();
    assert!(failure.message.starts_with("queueMib: "), "{failure}");
    bench.pass(20 * SECOND);
    let failure = bench.reply(commands([note("key", Some("12345678"))]));
    let failure = failure.unwrap();
    assert!(failure.message.starts_with("noteMib: "), "{failure}");
    bench.pass(20 * SECOND);
    let fits = commands([note("key", Some("1234567"))]);
    assert_eq!(bench.reply(fits), None);
    assert_eq!(bench.ledger().note_bytes, 10);
}

#[test]
fn an_answer_is_judged_by_what_is_left_of_it() {
    let bounds = Bounds {
        notes: 2,
        ..Bounds::default()
    };
    let mut bench = bounded(bounds);
    // Three notes, of which two are left.
    let three = commands([
        note("x", Some("1")),
        note("y", Some("1")),
        note("x", None),
        note("z", Some("123")),
        note("z", Some("1")),
    ]);
    assert_eq!(bench.reply(three), None);
    let ledger = bench.ledger();
    assert_eq!((ledger.notes, ledger.note_bytes), (2, 4));
    // Beyond a bound that was lowered, a guest may still clear up.
    let mut settings = bench.controller.settings().clone();
    settings.bounds.notes = 0;
    bench.controller.set(bench.now, settings);
    assert_eq!(bench.reply(commands([note("y", None)])), None);
    assert_eq!(bench.ledger().notes, 1);
}

/// What the cluster demands is not lost because of a guest.
#[test]
fn a_trigger_enqueues_beyond_the_bound() {
    let bounds = Bounds {
        queue_items: 3,
        ..Bounds::default()
    };
    let mut bench = bounded(bounds);
    for name in ["b", "c", "d"] {
        bench.see(name, 1, "");
    }
    assert_eq!(bench.ledger().queue_items, 5);
    assert_eq!(bench.reply(commands([note("x", Some("1"))])), None);
    let failure = bench.reply(commands([enqueue("x", "")])).unwrap();
    assert!(failure.message.starts_with("queueItems: "), "{failure}");
    // A key that is pending already adds nothing.
    assert_eq!(bench.reply(commands([enqueue("ns/d", "")])), None);
}

#[test]
fn a_guest_is_not_called_while_its_plans_under_way_fill_the_bound() {
    let bounds = Bounds {
        plan_bytes: 1,
        ..Bounds::default()
    };
    let mut bench = bounded(bounds);
    bench.see("b", 1, "n1");
    let (call, _, keys) = bench.keys().unwrap();
    let plans = vec![delete("a"), delete("b")];
    let mut decision = decide(plans, Verdict::Done);
    decision.parallel = 1;
    let decisions = keys.iter().enumerate();
    let decisions = decisions.map(|(number, _)| match number {
        0 => decision.clone(),
        _ => decide(vec![], Verdict::Done),
    });
    bench.answer(call, decisions.collect());
    let first = bench.carried();
    assert_eq!(first.len(), 1);
    assert!(bench.call().is_none());
    assert_eq!(bench.timeout(), None, "the end of a plan wakes it");
    bench.outcome(first[0].0, succeeded(WriteResult::Gone));
    let second = bench.carried();
    assert!(bench.call().is_none(), "the second plan is under way");
    bench.outcome(second[0].0, succeeded(WriteResult::Gone));
    assert!(bench.timeout().is_some());
    assert!(bench.call().is_some());
}

#[test]
fn a_plan_that_is_not_executed_is_not_under_way() {
    let bounds = Bounds {
        plan_bytes: 1,
        ..Bounds::default()
    };
    let settings = Settings {
        bounds,
        ..Settings::default()
    };
    let mut bench = Bench::new(manifest(), settings);
    bench.see("a", 1, "n1");
    bench.see("b", 1, "n2");
    let mut calls = 0;
    while let Some((call, _, keys)) = bench.keys() {
        let decisions = keys
            .iter()
            .map(|_| decide(vec![delete("a")], Verdict::Done));
        bench.answer(call, decisions.collect());
        calls += 1;
    }
    assert_eq!(calls, 3);
}

#[test]
fn text_is_cut_where_it_enters() {
    let mut bench = bounded(Bounds::default());
    let long = format!("one\ntwo\u{202e}{}", "x".repeat(1 << 20));
    let mut plan = delete("a");
    plan.reason.clone_from(&long);
    plan.message.clone_from(&long);
    plan.steps.push(Step::Event(Event {
        event_type: "Normal".into(),
        reason: long.clone(),
        message: long.clone(),
        component: long.clone(),
    }));
    plan.measures = vec![PlanMeasure {
        when: MeasureWhen::Attempted,
        measure: measure(&long),
    }];
    let mut decision = commands([Command::Measure(measure(&long))]);
    decision.plans = vec![plan];
    decision.verdict = Verdict::Retry { reason: long };
    assert_eq!(bench.reply(decision), None);
    let (mut texts, mut labels) = (vec![], vec![]);
    for effect in bench.effects() {
        match effect {
            Effect::Ruled { plan, .. } => {
                texts.push((plan.reason.clone(), text::REASON));
                texts.push((plan.message.clone(), text::MESSAGE));
                labels.push(plan.measures[0].measure.labels[0].clone());
                let Some(Step::Event(event)) = plan.steps.last() else {
                    panic!("{plan:?}");
                };
                texts.push((event.reason.clone(), text::REASON));
                texts.push((event.message.clone(), text::MESSAGE));
                texts.push((event.component.clone(), 63));
            }
            Effect::Retried { reason, .. } => texts.push((reason, text::MESSAGE)),
            Effect::Measure(measure) => labels.push(measure.labels[0].clone()),
            _ => {}
        }
    }
    assert_eq!((texts.len(), labels.len()), (6, 2));
    // A label is a name, and has the characters of the guest.
    for label in labels {
        assert!(label.len() <= text::LABEL, "{} bytes", label.len());
        assert!(label.starts_with("one\ntwo\u{202e}xxx"), "{label}");
    }
    for (text, most) in texts {
        assert!(text.len() <= most, "{} bytes of {most}", text.len());
        assert!(text.starts_with("one\\ntwo\\u{202e}xxx"), "{text}");
    }
    let failure = CallFailure::new(CallFailureKind::Trap, "a\n".repeat(1 << 20));
    assert!(failure.message.len() <= CallFailure::LONGEST_MESSAGE);
    assert!(!failure.message.contains('\n'));
}

/// 150,000 items and notes, of the size that guests use, need less than half of it.
#[test]
fn the_defaults_have_room_for_a_large_cluster() {
    let most = Bounds::default();
    assert!(most.queue_items >= 3 * 150_000);
    assert!(most.queue_bytes >= 2 * 150_000 * 64);
    assert!(most.notes >= 150_000 && most.note_bytes >= 2 * 150_000 * 100);
    assert!(most.log_bytes >= 2 * 150_000 * 200);
}

/// Failed plans are kept for the next attempt; they are as long as the guest makes them.
#[test]
fn failures_are_dropped_rather_than_kept_beyond_the_bound_of_queues() {
    let few = Bounds {
        queue_bytes: 1000,
        ..Bounds::default()
    };
    let mut bench = bounded(few);
    let unserved = |number: usize| Plan {
        target: ObjectRef {
            kind: "Unknown".into(),
            uid: format!("{number:0100}"),
            ..delete("a").target
        },
        ..delete("a")
    };
    let plans = (0..100).map(unserved).collect();
    let (id, _, item) = bench.keys().unwrap();
    bench.answer(id, vec![decide(plans, Verdict::Done)]);
    assert!(bench.ledger().queue_bytes <= 1000, "{:?}", bench.ledger());
    bench.settle();
    // The item is retried all the same.
    bench.pass(60 * SECOND);
    let call = bench.call().unwrap();
    assert_eq!([call.items[0].key.clone()], *item);
    assert_eq!(
        (call.items[0].attempt, call.items[0].failures.len()),
        (1, 0)
    );
}

/// Pods come and go for weeks while nobody reconciles them.
#[test]
fn the_queues_of_a_controller_that_is_not_called_do_not_grow() {
    let disabled = Settings {
        mode: Mode::Disabled,
        ..Settings::default()
    };
    let churn = |bench: &mut Bench| {
        for number in 0..1000 {
            let name = format!("p{number}");
            bench.see(&name, 1, "n1");
            bench.lose(&name);
        }
        bench.see("left", 1, "n1");
        assert!(bench.call().is_none());
        let kept = bench.ledger().queue_items;
        assert!(kept < 10, "{kept}");
    };
    let called_for = |bench: &mut Bench| {
        let mut called_for = BTreeSet::new();
        while let Some(call) = bench.call() {
            called_for.extend(call.items.iter().map(|item| item.key.clone()));
            let done = call.items.iter().map(|_| decide(vec![], Verdict::Done));
            bench.answer(call.id, done.collect());
        }
        called_for
    };
    let all: BTreeSet<String> = ["ns/left".into(), "n1".into()].into();

    let mut bench = Bench::new(manifest(), disabled);
    churn(&mut bench);
    bench.controller.set(bench.now, Settings::default());
    assert_eq!(called_for(&mut bench), all);

    // A resource of a watch is not served for a while.
    let mut bench = Bench::enforcing();
    let stable = |bench: &mut Bench, complete| {
        let revision = bench.controller.revision_mut(Role::Stable).unwrap();
        revision.set_complete(complete);
    };
    stable(&mut bench, false);
    churn(&mut bench);
    stable(&mut bench, true);
    assert_eq!(called_for(&mut bench), all);
}

#[test]
fn a_full_queue_takes_no_more_keys_and_a_resync_makes_up_for_them() {
    let few = Bounds {
        queue_items: 5,
        ..Bounds::default()
    };
    let mut bench = bounded(few);
    for number in 0..100 {
        bench.see(&format!("p{number}"), 1, "n1");
    }
    assert!(bench.ledger().queue_items <= 10 + 1, "{:?}", bench.ledger());
    let mut called_for = BTreeSet::new();
    while let Some(call) = bench.call() {
        called_for.extend(call.items.iter().map(|item| item.key.clone()));
        let done = call.items.iter().map(|_| decide(vec![], Verdict::Done));
        bench.answer(call.id, done.collect());
    }
    assert_eq!(called_for.len(), 102, "{called_for:?}");
}
