//! Budgets, and guardrails that have tripped.

use davit_core::api::{CooldownConfig, GuardrailConfig};
use davit_core::budget::Cooldown;

use super::*;

#[test]
fn a_budget_counts_the_plans_of_a_minute() {
    let limits = [
        (
            GuardrailConfig {
                writes_per_minute: Some(2),
                ..GuardrailConfig::default()
            },
            patch as fn(&str) -> Plan,
            "writes in a minute",
        ),
        (
            GuardrailConfig {
                deletes_per_minute: Some(2),
                ..GuardrailConfig::default()
            },
            delete,
            "deletes in a minute",
        ),
        (
            // 14 percent of 14 objects.
            GuardrailConfig {
                deletes_percent_per_minute: Some(14),
                ..GuardrailConfig::default()
            },
            delete,
            "deletes of a kind in a minute",
        ),
    ];
    for (guardrails, plan, what) in limits {
        let mut trace = Trace::new();
        passes(&trace.execute(STABLE, plan("before")));
        trace.pass(SECOND);
        trace.change(|spec| spec.guardrails = guardrails);
        trace.pass(SECOND);
        passes(&trace.execute(STABLE, plan("a")));
        passes(&trace.execute(STABLE, plan("b")));
        reports(&trace.execute(STABLE, plan("c")), what);
        trace.pass(SECOND * 60);
        passes(&trace.execute(STABLE, plan("d")));
    }
}

#[test]
fn a_patch_spends_no_deletion() {
    let mut trace = Trace::new();
    trace.change(|spec| spec.guardrails.deletes_per_minute = Some(1));
    for uid in ["a", "b", "c"] {
        passes(&trace.execute(STABLE, patch(uid)));
    }
}

#[test]
fn a_tripped_guardrail_holds_until_its_time() {
    let mut trace = Trace::new();
    let (since, until) = (trace.at(Duration::ZERO), trace.at(SECOND * 30));
    trace.record(tripped("deletesPerMinute", &since, Some(until)));
    reports(&trace.execute(STABLE, delete("a")), "has tripped");
    // It limits deletions alone.
    passes(&trace.execute(STABLE, patch("b")));
    trace.pass(SECOND * 31);
    passes(&trace.execute(STABLE, delete("c")));
}

#[test]
fn a_tripped_guardrail_holds_under_the_next_host() {
    let mut trace = Trace::new();
    trace.change(|spec| spec.guardrails.deletes_per_minute = Some(5));
    trace.pass(SECOND);
    let since = trace.at(Duration::ZERO);
    trace.record(tripped("deletesPerMinute", &since, None));
    trace.restart();
    reports(&trace.execute(STABLE, delete("a")), "has tripped");
    // Other limits are judged from the beginning.
    trace.pass(SECOND);
    trace.change(|spec| spec.guardrails.deletes_per_minute = Some(6));
    passes(&trace.execute(STABLE, delete("b")));
}

#[test]
fn other_limits_release_what_tripped_before() {
    let mut trace = Trace::new();
    trace.change(|spec| spec.guardrails.writes_per_minute = Some(5));
    let since = trace.at(Duration::ZERO);
    let trip = tripped("writesPerMinute", &since, None);
    trace.record(trip.clone());
    trace.pass(SECOND);
    let unnoticed = trace.at(Duration::ZERO);
    trace.pass(SECOND);
    trace.change(|spec| spec.guardrails.writes_per_minute = Some(6));
    // A write that was under way still names the trip.
    trace.record(trip.clone());
    passes(&trace.execute(STABLE, patch("a")));
    // A trip from before the change that the host notices after it.
    trace.record(tripped("writesPerMinute", &unnoticed, None));
    passes(&trace.execute(STABLE, patch("d")));
    trace.record(trip.clone());
    // The next host repeats the record until its revision runs.
    trace.restart();
    trace.record(trip);
    passes(&trace.execute(STABLE, patch("b")));
    // A later trip holds, even if the wall clock was set back meanwhile.
    trace.pass(SECOND);
    trace.now.wall.0 -= 600_000;
    let since = trace.at(Duration::ZERO);
    trace.record(tripped("writesPerMinute", &since, None));
    reports(&trace.execute(STABLE, patch("c")), "has tripped");
}

#[test]
fn a_guardrail_holds_until_its_reset() {
    let mut trace = Trace::new();
    trace.change(|spec| {
        spec.guardrails.writes_per_minute = Some(5);
        spec.guardrails.cooldown = Some(CooldownConfig(Cooldown::UntilReset));
    });
    trace.pass(SECOND);
    let since = trace.at(Duration::ZERO);
    trace.record(tripped("writesPerMinute", &since, None));
    trace.pass(SECOND * 600);
    reports(&trace.execute(STABLE, patch("a")), "has tripped");
    trace.request(|requests| requests.reset = Some("another trip".to_owned()));
    reports(&trace.execute(STABLE, patch("b")), "has tripped");
    trace.request(|requests| requests.reset = Some(since));
    passes(&trace.execute(STABLE, patch("c")));
}

#[test]
fn a_wall_clock_that_jumped_ends_no_reset() {
    let mut trace = Trace::new();
    let (since, until) = (trace.at(Duration::ZERO), trace.at(SECOND * 30));
    trace.record(tripped("deletesPerMinute", &since, Some(until)));
    trace.watchdog.clock_jumped();
    passes(&trace.execute(STABLE, delete("a")));
    trace.record(tripped("deletesPerMinute", &since, None));
    trace.watchdog.clock_jumped();
    reports(&trace.execute(STABLE, delete("b")), "has tripped");
}
