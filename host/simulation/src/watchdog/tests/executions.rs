//! Which plans may be executed, and when.

use super::*;

#[test]
fn a_deleted_target_gets_no_other_plan() {
    let mut trace = Trace::new();
    passes(&trace.start(STABLE, delete("a")));
    trace.end(Some(WriteResult::Gone));
    reports(&trace.start(STABLE, delete("a")), "has deleted");
    trace.end(Some(WriteResult::Gone));
    passes(&trace.execute(STABLE, delete("b")));
    trace.pass(SECOND * 30);
    passes(&trace.execute(STABLE, delete("a")));
}

#[test]
fn a_written_target_gets_another_plan_once_the_write_was_observed() {
    let mut trace = Trace::new();
    trace.deliver("a", 4);
    passes(&trace.start(STABLE, patch("a")));
    trace.end(Some(WriteResult::Version(5)));
    reports(&trace.start(STABLE, patch("a")), "has not observed");
    trace.end(Some(WriteResult::Version(5)));
    trace.deliver("a", 5);
    passes(&trace.execute(STABLE, patch("a")));
    // A plan that wrote nothing may be repeated.
    passes(&trace.start(STABLE, patch("a")));
    // The next host knows nothing of it.
    trace.end(Some(WriteResult::Gone));
    trace.restart();
    passes(&trace.execute(STABLE, patch("a")));
}

#[test]
fn a_target_has_one_plan_at_a_time() {
    let mut trace = Trace::new();
    passes(&trace.start(STABLE, patch("a")));
    reports(&trace.start(STABLE, patch("a")), "executes two plans on");
    trace.end(None);
    // The first plan is still in execution.
    trace.plan.number -= 1;
    trace.end(None);
    passes(&trace.start(STABLE, patch("a")));
    passes(&trace.start(STABLE, patch("b")));
    // The plans of a host that crashed never end.
    trace.restart();
    passes(&trace.start(STABLE, patch("a")));
}

#[test]
fn nothing_starts_without_leadership() {
    let mut trace = Trace::new();
    trace.restart_with_election();
    let problems = trace.execute(STABLE, delete("a"));
    reports(&problems, "a follower executes");
    trace.lead();
    passes(&trace.execute(STABLE, delete("b")));
    trace.watchdog.follows(CONTROLLER);
    let problems = trace.execute(STABLE, delete("c"));
    reports(&problems, "a follower executes");
    // The next host does not lead either.
    trace.restart_with_election();
    let problems = trace.execute(STABLE, delete("c"));
    reports(&problems, "a follower executes");
    trace.lead();
    passes(&trace.execute(STABLE, delete("c")));
}
