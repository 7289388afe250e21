//! Guardrails in the whole host: which one trips, for how long, and what resets it.

use serde_json::json;

use super::*;
use crate::api::{CooldownConfig, GuardrailConfig, RequestResult, RequestStatus, TrippedStatus};
use crate::budget::Cooldown;

const MINUTE: Duration = Duration::from_mins(1);
const COOLDOWN: Cooldown = Cooldown::After(Duration::from_mins(10));

/// A controller that deletes every pod, with this limit a minute.
pub(super) fn guarded(deletes: u32, cooldown: Cooldown) -> ControllerSpec {
    ControllerSpec {
        guardrails: GuardrailConfig {
            deletes_per_minute: Some(deletes),
            cooldown: Some(CooldownConfig(cooldown)),
            ..GuardrailConfig::default()
        },
        ..spec(1, &[])
    }
}

/// Runs the controller with this many pods until its guardrail trips.
fn tripped(pods: usize, spec: &ControllerSpec) -> Bench {
    let mut bench = Bench::new();
    bench.declare(spec.clone(), Requests::default());
    let names: Vec<String> = (0..pods).map(|number| format!("p-{number:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    bench.list(&names);
    bench.work(Duration::from_secs(3));
    assert!(bench.is_tripped());
    bench
}

impl Bench {
    fn is_tripped(&self) -> bool {
        !self.status().tripped.is_empty()
    }

    /// The only tripped guardrail.
    fn trip(&self) -> TrippedStatus {
        let [tripped] = self.status().tripped.as_slice() else {
            panic!("{:?}", self.status().tripped);
        };
        tripped.clone()
    }

    fn degraded(&self) -> (String, String, String) {
        let mut conditions = self.status().conditions.iter();
        let found = conditions.find(|one| one.type_ == "Degraded").unwrap();
        let found = found.clone();
        (found.status, found.reason, found.message)
    }

    /// Requests a reset of the guardrails that had tripped by this time.
    fn reset(&mut self, spec: &ControllerSpec, since: &str) {
        self.declare(spec.clone(), resetting(since));
        self.work(Duration::from_secs(3));
    }
}

fn resetting(since: &str) -> Requests {
    Requests {
        reset: Some(since.to_owned()),
        ..Requests::default()
    }
}

#[test]
fn plans_wait_for_the_whole_cooldown_of_a_tripped_guardrail() {
    let mut bench = tripped(5, &guarded(3, COOLDOWN));
    let tripped = bench.trip();
    assert_eq!(
        (tripped.guardrail.as_str(), tripped.limit),
        ("deletesPerMinute", 3)
    );
    let [since, until] = [&tripped.since, tripped.until.as_ref().unwrap()]
        .map(|time| time.parse::<jiff::Timestamp>().unwrap());
    let seconds = until.as_second() - since.as_second();
    assert!((599..=601).contains(&seconds), "{tripped:?}");
    let (is, reason, message) = bench.degraded();
    assert_eq!((is.as_str(), reason.as_str()), ("True", "GuardrailTripped"));
    for part in [
        "deletesPerMinute of 3 deletions in 60 seconds",
        "davit reset",
    ] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(bench.status().summary, "Guardrail: deletesPerMinute");

    // After a minute there is room, but the trip still holds.
    bench.work(Duration::from_secs(590));
    assert_eq!(bench.pods.len(), 2);
    assert_eq!(bench.trip(), tripped);
    bench.work(Duration::from_secs(20));
    assert_eq!(bench.pods.len(), 0);
    assert!(!bench.is_tripped());
    let (is, reason, _) = bench.degraded();
    assert_eq!((is.as_str(), reason.as_str()), ("False", "Healthy"));
    assert_eq!(bench.status().summary, "Running");
}

#[test]
fn a_reset_is_of_one_trip() {
    let spec = guarded(3, Cooldown::UntilReset);
    let mut bench = tripped(8, &spec);
    let first = bench.trip();
    assert_eq!(first.until, None);
    bench.reset(&spec, "2026-11-20T09:00:00.000Z");
    bench.work(3 * MINUTE);
    assert_eq!(bench.pods.len(), 5);
    assert_eq!(bench.trip(), first);
    let (_, _, message) = bench.degraded();
    assert!(message.contains("wait until it is reset"), "{message}");

    bench.reset(&spec, &first.since);
    let second = bench.trip();
    assert_ne!(second.since, first.since);
    // The request that reset the first trip is still there.
    bench.work(3 * MINUTE);
    assert_eq!(bench.pods.len(), 2);
    assert_eq!(bench.trip(), second);
    bench.reset(&spec, &second.since);
    assert_eq!(bench.pods.len(), 0);
    assert!(!bench.is_tripped());
}

/// A restart does not reset a guardrail.
#[test]
fn a_trip_outlives_the_host_until_it_is_reset() {
    let spec = guarded(3, Cooldown::UntilReset);
    let mut bench = tripped(8, &spec);
    let first = bench.trip();
    for _ in 0..3 {
        bench = bench.crash(declaration(NAME, spec.clone()));
        bench.work(3 * MINUTE);
        assert_eq!(bench.pods.len(), 5);
        assert_eq!(bench.trip(), first);
        assert_eq!(bench.degraded().1, "GuardrailTripped");
    }
    bench.reset(&spec, &first.since);
    assert_eq!(bench.pods.len(), 2);
    assert_ne!(bench.trip().since, first.since);
}

#[test]
fn a_cooldown_continues_after_a_restart() {
    let spec = guarded(3, COOLDOWN);
    let bench = tripped(5, &spec);
    let tripped = bench.trip();
    // A minute without a host follows.
    let mut next = bench.crash(declaration(NAME, spec));
    next.work(Duration::from_secs(530));
    assert_eq!(next.pods.len(), 2);
    assert_eq!(next.trip(), tripped);
    next.work(Duration::from_secs(20));
    assert_eq!(next.pods.len(), 0);
}

/// With another limit, the operator has decided again.
#[test]
fn a_recorded_trip_of_another_limit_holds_nothing_back() {
    let bench = tripped(5, &guarded(3, Cooldown::UntilReset));
    let another = guarded(30, Cooldown::UntilReset);
    let mut next = bench.crash(declaration(NAME, another));
    next.work(Duration::from_secs(10));
    assert_eq!(next.pods.len(), 0);
    assert!(!next.is_tripped());
}

#[test]
fn a_limit_in_percent_is_of_the_objects_that_the_controller_watches() {
    let spec = ControllerSpec {
        guardrails: GuardrailConfig {
            deletes_percent_per_minute: Some(50),
            ..GuardrailConfig::default()
        },
        ..spec(1, &[])
    };
    let mut bench = tripped(20, &spec);
    let tripped = bench.trip();
    assert_eq!(
        (tripped.guardrail.as_str(), tripped.limit),
        ("deletesPercentPerMinute", 10)
    );
    bench.work(3 * MINUTE);
    assert_eq!(bench.pods.len(), 10);
    // After the default cooldown, it deletes a share of the remaining pods.
    bench.work(3 * MINUTE);
    assert_eq!(bench.pods.len(), 5);
}

/// The record does not have the reset itself: a host that ends right after its answer
/// leaves the reset to the next one.
#[test]
fn a_reset_that_was_answered_is_repeated_by_the_next_host() {
    let spec = guarded(3, Cooldown::UntilReset);
    let mut bench = tripped(5, &spec);
    let value = bench.trip().since;
    let record = bench.records.get_mut(NAME).unwrap();
    assert_eq!(record.status.last_trip(), Some(value.as_str()));
    record.status.requests = vec![RequestStatus {
        request: "reset".into(),
        value: value.clone(),
        result: RequestResult::Done,
        message: "the tripped guardrails were reset: deletesPerMinute".into(),
        at: "2026-11-20T10:00:00Z".into(),
    }];
    let mut next = bench.crash(Declaration {
        requests: resetting(&value),
        ..declaration(NAME, spec)
    });
    next.work(Duration::from_secs(10));
    assert_eq!(next.pods.len(), 0);
}

/// What was admitted before a crash counts for the next host.
#[test]
fn a_crash_does_not_double_a_guardrail() {
    let spec = guarded(3, COOLDOWN);
    let mut bench = Bench::new();
    bench.declare(spec.clone(), Requests::default());
    bench.list(&["a", "b", "c"]);
    // The counts are recorded every ten seconds.
    bench.work(Duration::from_secs(12));
    assert!(bench.pods.is_empty());
    assert!(!bench.is_tripped());
    let recorded = bench
        .status()
        .recent_writes
        .clone()
        .expect("three deletions");
    assert_eq!(recorded.deletes.iter().sum::<u32>(), 3);
    let mut next = bench.crash(declaration(NAME, spec));
    next.list(&["d"]);
    next.work(Duration::from_secs(3));
    assert_eq!(next.pods.len(), 1, "a fourth deletion within a minute");
    assert!(next.is_tripped());
}

/// It counts whatever the clocks say. If it is certainly recent unless a clock is wrong by many
/// minutes, it trips the guardrail as any other plans do; else the guardrail resets itself.
#[test]
fn what_was_admitted_an_hour_before_a_start_counts_for_a_minute() {
    let spec = guarded(3, Cooldown::UntilReset);
    for (pause, left) in [(5 * MINUTE, 1), (60 * MINUTE, 0)] {
        let mut bench = Bench::new();
        bench.declare(spec.clone(), Requests::default());
        bench.list(&["a", "b", "c"]);
        bench.work(Duration::from_secs(12));
        assert!(bench.status().recent_writes.is_some());
        let mut next = bench.restart_after(pause, declaration(NAME, spec.clone()));
        next.list(&["d"]);
        next.work(Duration::from_secs(3));
        assert_eq!(next.pods.len(), 1, "after {pause:?}: a fourth deletion");
        assert!(next.is_tripped());
        next.work(MINUTE);
        assert_eq!(next.pods.len(), left, "after {pause:?}");
        assert_eq!(next.is_tripped(), left > 0);
    }
}

/// A controller that may read these resources. It does not run unless they are pods.
fn granting(reads: &[&str], cooldown: Cooldown) -> ControllerSpec {
    let reads: Vec<Value> = reads.iter().map(|one| json!({"resource": one})).collect();
    let writes = json!([{"verb": "delete", "resource": "pods"}]);
    let rules = json!({"reads": reads, "writes": writes});
    ControllerSpec {
        permissions: Some(serde_json::from_value(rules).unwrap()),
        ..guarded(3, cooldown)
    }
}

#[test]
fn what_was_admitted_counts_after_the_grant_was_withdrawn_for_some_seconds() {
    let granting = |reads: &[&str]| granting(reads, COOLDOWN);
    let mut bench = Bench::new();
    bench.declare(granting(&["pods"]), Requests::default());
    bench.list(&["a", "b", "c"]);
    bench.work(Duration::from_secs(3));
    assert!(bench.pods.is_empty());
    bench.declare(granting(&[]), Requests::default());
    bench.work(Duration::from_secs(15));
    let recent = bench.status().recent_writes.clone();
    assert_eq!(recent.unwrap().deletes.iter().sum::<u32>(), 3);
    bench.declare(granting(&["pods"]), Requests::default());
    bench.list(&["d"]);
    bench.work(Duration::from_secs(3));
    assert_eq!(bench.pods.len(), 1, "a fourth deletion within a minute");
    assert!(bench.is_tripped());
    // Not for longer than a minute since it stopped.
    bench.declare(granting(&[]), Requests::default());
    bench.work(2 * MINUTE);
    assert_eq!(bench.status().recent_writes, None);
}

/// Only an operator resets it: not that the controller may not run for some time.
#[test]
fn a_trip_holds_after_the_grant_was_withdrawn_and_one_that_was_reset_does_not_return() {
    let granting = |reads: &[&str]| granting(reads, Cooldown::UntilReset);
    for is_recorded in [false, true] {
        let mut bench = tripped(5, &granting(&["pods"]));
        let trip = bench.trip();
        if is_recorded {
            bench = bench.crash(declaration(NAME, granting(&["pods"])));
            bench.work(MINUTE);
        }
        let withdraw = |bench: &mut Bench, pods: &[&str]| {
            bench.declare(granting(&[]), Requests::default());
            bench.work(2 * MINUTE);
            bench.declare(granting(&["pods"]), Requests::default());
            bench.list(pods);
            bench.work(2 * MINUTE);
        };
        withdraw(&mut bench, &["a", "b"]);
        assert_eq!(bench.pods.len(), 2, "recorded: {is_recorded}");
        assert_eq!(bench.trip(), trip);
        bench.reset(&granting(&["pods"]), &trip.since);
        assert_eq!(bench.pods.len(), 0);
        withdraw(&mut bench, &["later"]);
        assert_eq!(bench.pods.len(), 0, "recorded: {is_recorded}");
        assert!(!bench.is_tripped());
    }
}

/// As while it runs: the operator has decided again.
#[test]
fn a_change_of_the_guardrails_ends_a_trip_of_a_controller_that_may_not_run() {
    let mut bench = tripped(5, &granting(&["pods"], Cooldown::UntilReset));
    bench.declare(granting(&[], Cooldown::UntilReset), Requests::default());
    bench.work(2 * MINUTE);
    assert!(bench.is_tripped());
    bench.declare(granting(&[], COOLDOWN), Requests::default());
    bench.work(MINUTE);
    assert!(!bench.is_tripped());
    bench.declare(granting(&["pods"], COOLDOWN), Requests::default());
    bench.list(&["a", "b"]);
    bench.work(Duration::from_secs(3));
    assert_eq!(bench.pods.len(), 0);

    // It may run, and its first list is not complete yet.
    let spec = guarded(3, Cooldown::UntilReset);
    let Bench {
        now,
        records,
        trust,
        ..
    } = tripped(5, &spec);
    let mut next = Bench::start_at(Wall(now.wall.0 + 60_000), records, trust, None);
    next.declare_all(vec![declaration(NAME, spec)]);
    // The writes of the former host count for a minute.
    next.work(2 * MINUTE);
    assert!(next.is_tripped());
    next.declare(guarded(3, COOLDOWN), Requests::default());
    next.list(&["a", "b"]);
    next.work(2 * MINUTE);
    assert_eq!(next.pods.len(), 0);
}

#[test]
fn recorded_writes_are_gone_from_the_status_after_a_minute() {
    let mut bench = Bench::new();
    bench.declare(guarded(3, COOLDOWN), Requests::default());
    bench.list(&["a", "b"]);
    bench.work(Duration::from_secs(12));
    assert!(bench.status().recent_writes.is_some());
    bench.work(Duration::from_secs(75));
    assert_eq!(bench.status().recent_writes, None);
}
