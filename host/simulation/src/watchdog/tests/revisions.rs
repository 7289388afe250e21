//! Which revisions run, and which targets they own.

use davit_core::rollout::cohort::Unit;

use super::*;

#[test]
fn a_revision_runs_once_the_record_has_it() {
    let mut trace = Trace::new();
    reports(&trace.call(CANDIDATE), "which no record names");
    // The write has reached the record, and its answer not the host.
    trace.write(rollout(0));
    passes(&trace.call(CANDIDATE));
    trace.acknowledge();
    trace.watchdog.settle();
    passes(&trace.call(CANDIDATE));
    trace.record(stable());
    reports(&trace.call(CANDIDATE), "which no record names");
}

#[test]
fn a_stable_revision_runs_until_the_next_one_does() {
    let mut trace = Trace::new();
    passes(&trace.call(STABLE));
    let next = ControllerStatus {
        stable: Some(RevisionStatus {
            revision: "next".to_owned(),
            ..RevisionStatus::default()
        }),
        ..ControllerStatus::default()
    };
    trace.record(next);
    passes(&trace.call(STABLE));
    passes(&trace.call("next"));
    reports(&trace.call(STABLE), "which no record names");
}

#[test]
fn a_revision_that_was_rolled_back_does_not_run() {
    let mut trace = Trace::new();
    trace.record(rollout(50));
    trace.record(rolled_back());
    reports(&trace.call(CANDIDATE), "which was rolled back");
    // Also under another host.
    trace.restart();
    reports(&trace.call(CANDIDATE), "which was rolled back");
    // An operator retries it.
    trace.request(|requests| requests.retry = Some(format!("{CANDIDATE}@")));
    trace.record(rollout(50));
    passes(&trace.call(CANDIDATE));
    // Another spec is another rollout.
    trace.record(rolled_back());
    trace.change(|spec| spec.limits.instances += 1);
    trace.record(rollout(50));
    passes(&trace.call(CANDIDATE));
}

#[test]
fn a_candidate_writes_what_the_record_gives_it() {
    let mut trace = Trace::new();
    trace.record(rollout(0));
    let problems = trace.execute(CANDIDATE, delete("a"));
    reports(&problems, "which no record assigns");
    trace.record(rollout(100));
    passes(&trace.execute(CANDIDATE, delete("b")));
}

#[test]
fn half_of_the_targets_belong_to_a_candidate_of_weight_50() {
    let mut trace = Trace::new();
    trace.record(rollout(50));
    let problems = |trace: &mut Trace| {
        let uids = (0..64).map(|uid| uid.to_string());
        let foreign = uids.filter(|uid| !trace.execute(CANDIDATE, delete(uid)).is_empty());
        foreign.count()
    };
    let foreign = problems(&mut trace);
    assert!((16..48).contains(&foreign), "{foreign} of 64");
    // The watchdog has no cache, and does not know the node of a pod.
    trace.change(|spec| spec.rollout.cohort.unit = Unit::Node);
    trace.record(rollout(51));
    assert_eq!(problems(&mut trace), 0);
}

#[test]
fn a_target_has_one_owner_until_the_shares_change() {
    let mut trace = Trace::new();
    trace.record(rollout(100));
    passes(&trace.execute(CANDIDATE, delete("a")));
    reports(&trace.execute(STABLE, delete("a")), "which candidate owns");
    trace.record(rollout(50));
    passes(&trace.execute(STABLE, delete("a")));
    trace.watchdog.notified(
        CONTROLLER,
        &Notice {
            warning: true,
            reason: "RolledBack",
            message: String::new(),
        },
    );
    let problems = trace.execute(CANDIDATE, delete("a"));
    assert!(!problems.iter().any(|problem| problem.contains("owns")));
}
