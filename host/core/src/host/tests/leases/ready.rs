//! Which controllers keep a replica from being ready.

use super::*;

impl Pair {
    /// What a replica waits for.
    fn waiting(&mut self, replica: usize) -> Option<String> {
        let bench = self.replica(replica);
        bench.host.waiting(bench.now)
    }
}

/// An upgrade replaces the replicas one after the other, each once the next one is ready.
#[test]
fn a_controller_that_no_replica_can_run_keeps_no_replica_from_being_ready() {
    let mut strange = spec(1, &[]);
    strange.config["watches"] = "widgets".into();
    let mut pair = Pair::start(strange);
    for replica in 0..2 {
        let waiting = pair.waiting(replica);
        assert!(
            waiting.is_some_and(|one| one.starts_with(NAME)),
            "it starts"
        );
    }
    pair.pass(60 * SECOND);
    assert_eq!([pair.waiting(0), pair.waiting(1)], [None, None]);
    pair.kill(0);
    pair.start_replica(0);
    pair.pass(50 * SECOND);
    assert!(pair.waiting(0).is_some(), "it starts");
    pair.pass(15 * SECOND);
    assert_eq!(pair.waiting(0), None);
}

#[test]
fn a_replica_that_cannot_run_what_another_one_can_is_not_ready() {
    let mut pair = Pair::start(spec(1, &[]));
    pair.pass(60 * SECOND);
    assert_eq!([pair.waiting(0), pair.waiting(1)], [None, None]);
    let (leader, other) = (pair.holder(), 1 - pair.holder());
    // It gets no list.
    pair.kill(other);
    pair.start_replica(other);
    pair.replica(other).listed = usize::MAX;
    pair.pass(120 * SECOND);
    assert_eq!(pair.waiting(leader), None);
    assert!(pair.waiting(other).is_some());
    pair.replica(other).listed = 0;
    pair.pass(10 * SECOND);
    assert_eq!(pair.waiting(other), None);
    // It gets no module.
    pair.kill(other);
    pair.loads = false;
    pair.start_replica(other);
    pair.pass(120 * SECOND);
    assert_eq!(pair.waiting(leader), None);
    let waiting = pair.waiting(other).unwrap_or_default();
    assert!(waiting.contains("another replica can run it"), "{waiting}");
    // Nobody can run it any more.
    pair.kill(leader);
    pair.pass(60 * SECOND);
    assert_eq!(pair.waiting(other), None);
}
