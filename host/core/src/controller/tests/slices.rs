//! A large answer is executed in slices, and what happens between them.

use super::*;

/// The most that a slice executes, with the effects of a call and of an item.
const MOST_EFFECTS: usize = 256 + 2;

fn note(number: usize) -> Command {
    Command::SetNote {
        key: format!("note-{number}"),
        value: Some(vec![1]),
    }
}

fn enqueue(number: usize) -> Command {
    Command::Enqueue(Enqueue {
        item: QueueKey {
            queue: "pods".into(),
            key: format!("ns/later-{number}"),
        },
        after: 60 * SECOND,
        created_at: None,
        group: String::new(),
    })
}

fn with_commands(commands: Vec<Command>, plans: Vec<Plan>) -> Decision {
    Decision {
        commands,
        ..decide(plans, Verdict::Done)
    }
}

fn deletions(count: usize) -> Vec<Plan> {
    (0..count).map(|one| delete(&format!("p{one}"))).collect()
}

/// A call about two nodes.
fn call_about_two(settings: Settings) -> (Bench, CallId) {
    let mut manifest = manifest();
    manifest.triggers.remove(0);
    let mut bench = Bench::new(manifest, settings);
    bench.see("a", 1, "n1");
    bench.see("b", 1, "n2");
    let (call, _, keys) = bench.keys().unwrap();
    assert_eq!(keys, ["n1", "n2"]);
    (bench, call)
}

impl Bench {
    fn take_in(&mut self, call: CallId, decisions: Vec<Decision>) {
        self.controller
            .handle_decisions(call, decisions, Duration::ZERO);
    }

    /// Executes slices until the notes of the answer are in part written.
    fn write_some_notes(&mut self) {
        while self.controller.stable().ledger().notes == 0 {
            assert!(self.continue_work());
        }
    }

    fn notes(&self) -> usize {
        self.controller.stable().ledger().notes
    }
}

#[test]
fn a_large_answer_is_executed_in_small_slices() {
    let (mut bench, call) = call_about_two(Settings::default());
    let commands = (0..1000).map(enqueue).collect();
    let decision = with_commands(commands, deletions(2000));
    bench.take_in(call, vec![decision, decide(deletions(1), Verdict::Done)]);
    assert_eq!(bench.rulings(), [], "it waits for its turn");
    let (mut slices, mut ruled) = (0, 0);
    loop {
        let is_left = bench.continue_work();
        slices += 1;
        let effects = bench.effects();
        assert!(effects.len() <= MOST_EFFECTS, "{}", effects.len());
        let is_ruled = |effect: &&Effect| matches!(effect, Effect::Ruled { .. });
        ruled += effects.iter().filter(is_ruled).count();
        if !is_left {
            break;
        }
        assert_eq!(bench.timeout(), Some(bench.now));
    }
    assert_eq!(ruled, 2001);
    // Each part is counted, executed and, if it is a plan, ruled on.
    assert!(slices >= 8000 / 256, "{slices}");
    assert_eq!(bench.controller.stable().ledger().queue_items, 1000);
}

#[test]
fn no_call_sees_half_of_a_decision() {
    let (mut bench, call) = call_about_two(enforce());
    bench.see("c", 1, "n3");
    let many = || with_commands((0..1000).map(note).collect(), vec![]);
    bench.take_in(call, vec![many(), many()]);
    bench.write_some_notes();
    assert!(bench.call().is_none());
    while bench.continue_work() {}
    let call = bench.call().expect("n3 is due");
    assert_eq!(call.notes.len(), 1000);
}

#[test]
fn an_answer_is_refused_as_a_whole_although_it_is_counted_in_slices() {
    let bounds = Bounds {
        notes: 999,
        ..Bounds::default()
    };
    let (mut bench, call) = call_about_two(Settings {
        bounds,
        ..enforce()
    });
    let many = |from: usize| (from..from + 500).map(note).collect();
    let decisions = vec![
        with_commands(many(0), deletions(1)),
        with_commands(many(500), vec![]),
    ];
    let failure = bench.answer_in(Duration::ZERO, call, decisions);
    assert_eq!(failure.unwrap().kind, CallFailureKind::Flood);
    assert_eq!(bench.notes(), 0);
    assert_eq!(bench.carried(), []);
}

#[test]
fn a_swap_between_two_slices_keeps_every_note_of_the_decision_and_decides_again() {
    let (mut bench, call) = call_about_two(enforce());
    let decision = with_commands((0..1000).map(note).collect(), deletions(1));
    bench.take_in(call, vec![decision, decide(deletions(1), Verdict::Done)]);
    bench.write_some_notes();
    assert!(bench.notes() < 1000);
    let mut manifest = manifest();
    manifest.triggers.remove(0);
    bench
        .controller
        .reconfigure(bench.now, loaded(manifest), views(bench.view));
    assert_eq!(bench.notes(), 1000);
    assert!(!bench.continue_work());
    assert_eq!(bench.carried(), [], "a void answer writes nothing");
    let (_, _, keys) = bench.keys().unwrap();
    assert_eq!(keys, ["n1", "n2"]);
}

#[test]
fn a_reset_between_two_slices_leaves_nothing_of_the_answer() {
    let (mut bench, call) = call_about_two(enforce());
    let decision = with_commands((0..1000).map(note).collect(), deletions(1));
    bench.take_in(call, vec![decision, decide(deletions(1), Verdict::Done)]);
    bench.write_some_notes();
    bench.controller.reset(bench.now);
    assert!(!bench.continue_work());
    assert_eq!(bench.notes(), 0);
    assert_eq!(bench.carried(), []);
    let (call, _, keys) = bench.keys().unwrap();
    assert_eq!(keys, ["n1", "n2"]);
    let done = || decide(vec![], Verdict::Done);
    bench.answer(call, vec![done(), done()]);
}

#[test]
fn a_candidate_that_starts_between_two_slices_has_every_note_of_the_decision() {
    let (mut bench, call) = call_about_two(enforce());
    let decision = with_commands((0..1000).map(note).collect(), vec![]);
    bench.take_in(call, vec![decision, decide(vec![], Verdict::Done)]);
    bench.write_some_notes();
    let step = CandidateStep {
        share: Share::default(),
        number: 0,
        window: None,
    };
    let candidate = loaded(manifest());
    bench
        .controller
        .start_candidate(bench.now, candidate, views(bench.view), step);
    assert_eq!(bench.controller.candidate().unwrap().ledger().notes, 1000);
    while bench.continue_work() {}
    assert_eq!(bench.notes(), 1000);
}

/// A swap drops plans that the gate has not ruled on, also if none is in flight.
#[test]
fn a_swap_between_two_rulings_ends_the_item() {
    let (mut bench, call) = call_about_two(Settings::default());
    let decision = decide(deletions(1000), Verdict::Done);
    bench.take_in(call, vec![decision, decide(vec![], Verdict::Done)]);
    while bench.rulings().is_empty() {
        assert!(bench.continue_work());
    }
    bench
        .controller
        .reconfigure(bench.now, loaded(manifest()), views(bench.view));
    while bench.continue_work() {}
    assert_eq!(bench.rulings(), []);
    let mut keys = BTreeSet::new();
    while let Some((id, _, of_call)) = bench.keys() {
        let done = of_call.iter().map(|_| decide(vec![], Verdict::Done));
        bench.answer(id, done.collect());
        keys.extend(of_call);
    }
    assert!(keys.contains("n1"), "{keys:?}");
}

/// Each outcome lets a few plans follow, so that many outcomes at once do not keep the
/// host either.
#[test]
fn an_outcome_is_followed_by_few_rulings() {
    let (mut bench, call) = call_about_two(enforce());
    let mut decision = decide(deletions(1000), Verdict::Done);
    decision.parallel = 1;
    bench.take_in(call, vec![decision, decide(vec![], Verdict::Done)]);
    while bench.continue_work() {}
    let carried = bench.carried();
    assert_eq!(carried.len(), 1);
    bench.controller.set(bench.now, Settings::default());
    let (id, _) = carried[0];
    bench.with_world(|controller, world| {
        controller.handle_outcome(id, succeeded(WriteResult::Gone), world);
    });
    assert!(bench.rulings().len() < 10);
    while bench.continue_work() {}
    assert!(bench.rulings().len() > 900);
}
