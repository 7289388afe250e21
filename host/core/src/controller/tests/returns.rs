//! A rollback leaves nothing of the bad revision behind, and a reset leaves nothing at
//! all.

use super::candidate::step;
use super::*;
use crate::bounds::{Bounds, Ledger};
use crate::manifest::Rate;
use crate::plan::Measure;

fn named(number: u8) -> LoadedRevision<()> {
    let limits = CallLimits {
        memory_mib: 64,
        call_millis: 1000,
        instances: 4,
    };
    LoadedRevision {
        identity: RevisionIdentity::new(ModuleDigest([number; 32]), [0x80].into(), limits),
        ..loaded(manifest())
    }
}

fn timer(key: &str, after: u32) -> Command {
    Command::Enqueue(Enqueue {
        item: QueueKey {
            queue: "pods".into(),
            key: key.into(),
        },
        after: after * SECOND,
        created_at: None,
        group: "zone".into(),
    })
}

fn note(key: &str, value: u8) -> Command {
    Command::SetNote {
        key: key.into(),
        value: Some(vec![value]),
    }
}

fn rate(per_second: f64) -> Command {
    Command::SetRate {
        queue: "pods".into(),
        group: "zone".into(),
        rate: Rate {
            per_second,
            burst: 1,
        },
    }
}

fn measure(label: &str) -> Command {
    Command::Measure(Measure {
        metric: "m".into(),
        labels: vec![label.into()],
        amount: Amount::Add(1.0),
    })
}

/// What a revision has: the due time of a key, in seconds, and a note.
#[derive(Debug, PartialEq)]
struct RevisionContents {
    timer: Option<u64>,
    note: Option<u8>,
    bad_note: Option<u8>,
    bad_timer: Option<u64>,
}

impl Bench {
    fn has(&mut self, role: Role) -> RevisionContents {
        let (controller, snapshot) = (&mut self.controller, self.store.snapshot());
        let revision = controller.revision(role).unwrap();
        let pending = revision.pending();
        let item = WorkItem::new("pods", "none", self.now);
        let notes = controller.preview(&snapshot, &self.mapping, item).notes;
        let due = |key| {
            let item = pending.get("pods", key);
            item.map(|item| item.due_at.as_nanos() / 1_000_000_000)
        };
        let note = |key: &str| notes.get(key).and_then(|value| value.first().copied());
        RevisionContents {
            timer: due("timer"),
            note: note("note"),
            bad_note: note("bad"),
            bad_timer: due("bad"),
        }
    }

    /// A call of this revision is answered with these commands.
    fn command(&mut self, role: Role, commands: Vec<Command>) {
        let (id, ..) = self.keys_of(role).expect("an item is due");
        let decision = Decision {
            commands,
            ..decide(vec![], Verdict::Done)
        };
        self.answer(id, vec![decision]);
    }

    fn settle_all(&mut self) {
        for role in Role::ALL {
            while let Some(call) = self.call_of(role) {
                let done = call.items.iter().map(|_| decide(vec![], Verdict::Done));
                self.answer(call.id, done.collect());
            }
        }
        self.effects();
    }

    /// A stable revision with a timer at 100 s, a note and a rate.
    fn with_state() -> Self {
        let mut bench = Self::enforcing();
        bench.controller = Controller::new(
            bench.now,
            ControllerId(1),
            named(1),
            views(bench.view),
            enforce(),
        );
        bench.see("a", 1, "");
        bench.command(
            Role::Stable,
            vec![
                timer("timer", 100),
                note("note", 1),
                rate(1.0),
                measure("a"),
            ],
        );
        bench.settle_all();
        assert_eq!(bench.has(Role::Stable), GOOD);
        bench
    }

    /// The bad revision moves the timer, sets timers, notes, rates and series.
    fn spoil(&mut self, role: Role) {
        self.pass(SECOND);
        self.see("a", self.now.as_nanos(), "elsewhere");
        self.command(
            role,
            vec![
                timer("timer", 1),
                timer("bad", 50),
                note("note", 9),
                note("bad", 9),
                rate(0.0),
                measure("bad"),
            ],
        );
        self.settle_all();
    }

    fn rates(&mut self, role: Role) -> bool {
        // With a rate of 0, no item of the group is ever due.
        let revision = self.controller.revision(role).unwrap();
        revision
            .poll_timeout(self.now, &Bounds::default())
            .is_some()
    }

    /// The series that are dropped, in order.
    fn dropped_series(&mut self) -> Vec<String> {
        let labels = |effect| match effect {
            Effect::SeriesDropped(series) => series,
            _ => vec![],
        };
        let series = self.effects().into_iter().flat_map(labels);
        series.flat_map(|(_, labels)| labels).collect()
    }
}

const GOOD: RevisionContents = RevisionContents {
    timer: Some(100),
    note: Some(1),
    bad_note: None,
    bad_timer: None,
};

#[test]
fn a_rollback_of_a_candidate_leaves_nothing_of_it() {
    let mut bench = Bench::with_state();
    let (now, views) = (bench.now, views(bench.view));
    bench
        .controller
        .start_candidate(now, named(2), views, step(0));
    bench.settle_all();
    bench.spoil(Role::Candidate);
    let ledger = bench.controller.stable().ledger();
    bench.controller.drop_candidate(bench.now);
    assert_eq!(bench.dropped_series(), ["bad"]);
    assert_eq!(bench.controller.stable().ledger().metric_series, 1);
    assert_eq!(bench.controller.stable().ledger().notes, ledger.notes);
    assert_eq!(bench.has(Role::Stable), GOOD);
    assert!(bench.rates(Role::Stable));
}

#[test]
fn a_swap_back_leaves_nothing_of_the_revision_between() {
    let mut bench = Bench::with_state();
    let (there, back) = (views(bench.view), views(bench.view));
    bench.controller.reconfigure(bench.now, named(2), there);
    assert_eq!(bench.has(Role::Stable).timer, GOOD.timer, "a swap keeps it");
    bench.settle_all();
    bench.spoil(Role::Stable);
    assert_eq!(bench.has(Role::Stable).bad_note, Some(9));
    assert!(
        !bench.rates(Role::Stable),
        "the bad revision stops the zone"
    );
    bench.controller.reconfigure(bench.now, named(1), back);
    assert_eq!(bench.dropped_series(), ["bad"]);
    bench.settle_all();
    assert_eq!(bench.has(Role::Stable), GOOD);
    assert!(bench.rates(Role::Stable));
    let Ledger {
        notes, note_bytes, ..
    } = bench.controller.stable().ledger();
    assert_eq!((notes, note_bytes), (1, 5));
}

#[test]
fn after_a_promotion_the_former_revision_returns_with_its_items_and_notes() {
    let mut bench = Bench::with_state();
    let (first, second) = (views(bench.view), views(bench.view));
    let now = bench.now;
    bench
        .controller
        .start_candidate(now, named(2), first, step(0));
    bench.settle_all();
    bench.controller.promote(now);
    bench.settle_all();
    bench.spoil(Role::Stable);
    // The former one comes back with steps.
    let now = bench.now;
    bench
        .controller
        .start_candidate(now, named(1), second, step(0));
    bench.settle_all();
    let has = bench.has(Role::Candidate);
    assert_eq!((has.timer, has.bad_timer), (GOOD.timer, None));
    bench.controller.promote(now);
    bench.settle_all();
    assert_eq!(bench.has(Role::Stable), GOOD);
}

/// A timer that the bad revision ended, and started again, is not the former one.
#[test]
fn a_timer_that_ended_in_between_does_not_return() {
    let mut bench = Bench::with_state();
    let (there, back) = (views(bench.view), views(bench.view));
    bench.controller.reconfigure(bench.now, named(2), there);
    bench.settle_all();
    bench.pass(SECOND);
    bench.see("a", 7, "elsewhere");
    let cancel = Command::Cancel(QueueKey {
        queue: "pods".into(),
        key: "timer".into(),
    });
    bench.command(Role::Stable, vec![cancel, timer("timer", 200)]);
    bench.controller.reconfigure(bench.now, named(1), back);
    bench.settle_all();
    assert_eq!(bench.has(Role::Stable).timer, None);
}

#[test]
fn a_reset_clears_queues_and_notes_and_starts_a_resync() {
    let mut bench = Bench::with_state();
    bench.spoil(Role::Stable);
    // One item is in a call, and one is being executed.
    bench.see("b", 1, "");
    let (call, _, keys) = bench.keys().unwrap();
    bench.answer(call, vec![decide(vec![delete("b")], Verdict::Done)]);
    assert_eq!(keys, ["ns/b"]);
    let executed = bench.carried();
    bench.see("c", 1, "");
    let (void, ..) = bench.keys().unwrap();
    bench.controller.reset(bench.now);
    let nothing = RevisionContents {
        timer: None,
        note: None,
        bad_note: None,
        bad_timer: None,
    };
    assert_eq!(bench.has(Role::Stable), nothing);
    assert_eq!(bench.controller.caller(void), None, "its answer is void");
    // The resync enqueues every key, but not what is being executed.
    let mut resynced = vec![];
    while let Some((id, queue, keys)) = bench.keys() {
        let done = keys.iter().map(|_| decide(vec![], Verdict::Done));
        bench.answer(id, done.collect());
        resynced.extend(keys.into_iter().filter(|_| queue == "pods"));
    }
    resynced.sort();
    assert_eq!(resynced, ["ns/a", "ns/c"]);
    bench.outcome(executed[0].0, succeeded(WriteResult::Gone));
    let (_, _, keys) = bench.keys().unwrap();
    assert_eq!(
        keys,
        ["ns/b"],
        "it is decided again once its plan has ended"
    );
}
