//! What a declaration allows.

use super::*;

#[test]
fn only_a_declared_controller_is_called_and_executes() {
    let mut trace = Trace::new();
    passes(&trace.call(STABLE));
    passes(&trace.execute(STABLE, delete("a")));
    trace.watchdog = Watchdog::default();
    reports(&trace.call(STABLE), "is called and not declared");
    let problems = trace.execute(STABLE, delete("b"));
    reports(&problems, "executes a plan and is not declared");
}

#[test]
fn a_mode_forbids_once_its_effects_are_polled() {
    let mut trace = Trace::new();
    trace.spec.mode = Mode::Disabled;
    trace.declare();
    passes(&trace.call(STABLE));
    passes(&trace.execute(STABLE, delete("a")));
    trace.watchdog.settle();
    reports(&trace.call(STABLE), "is disabled");
    reports(&trace.execute(STABLE, delete("b")), "does not enforce");
    trace.change(|spec| spec.mode = Mode::DryRun);
    passes(&trace.call(STABLE));
    reports(&trace.execute(STABLE, delete("c")), "does not enforce");
    // A mode that allows does so immediately.
    trace.spec.mode = Mode::Enforce;
    trace.declare();
    passes(&trace.execute(STABLE, delete("d")));
}
