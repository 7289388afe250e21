//! What unsigned modules may do.

use super::*;
use crate::api::{KeyReference, ModuleConfig};
use crate::trust::UnsignedPolicy;

/// The spec of a module of a `ConfigMap`.
fn unsigned(threshold: u64, steps: &[&str]) -> ControllerSpec {
    let key = KeyReference {
        namespace: "davit".into(),
        name: "guests".into(),
        key: "a.wasm".into(),
    };
    ControllerSpec {
        module: ModuleSource::ConfigMap(key).into(),
        ..spec(threshold, steps)
    }
}

/// The same with its module pinned.
fn pinned(threshold: u64, steps: &[&str]) -> ControllerSpec {
    let unsigned = unsigned(threshold, steps);
    ControllerSpec {
        module: ModuleConfig {
            digest: Some(ModuleDigest([1; 32])),
            ..unsigned.module.clone()
        },
        ..unsigned
    }
}

fn trusting(unsigned: UnsignedPolicy) -> Bench {
    Bench::trusting(TrustPolicy {
        unsigned,
        files: true,
    })
}

impl Bench {
    /// Ends this host. A minute later it starts another one, with this configuration.
    fn restart(self, unsigned: UnsignedPolicy) -> Self {
        let wall = Wall(self.now.wall.0 + 60_000);
        let trust = TrustPolicy {
            unsigned,
            files: true,
        };
        Self::start_at(wall, self.records, trust, None)
    }
}

/// Status and reason of a condition.
fn condition(bench: &Bench, type_: &str) -> String {
    let mut conditions = bench.status().conditions.iter();
    let found = conditions.find(|one| one.type_ == type_).unwrap();
    format!("{} {}", found.status, found.reason)
}

const MINUTE: Duration = Duration::from_mins(1);

#[test]
fn an_unsigned_module_writes_nothing_until_it_is_pinned() {
    let mut bench = trusting(UnsignedPolicy::DryRunOnly);
    bench.declare(unsigned(1, &[]), Requests::default());
    bench.list(&["a"]);
    bench.pass(MINUTE);
    assert!(!bench.answer().is_empty());
    bench.pass(MINUTE);
    assert!(bench.executes.is_empty());
    assert_eq!(condition(&bench, "Ready"), "False Unsigned");
    assert_eq!(condition(&bench, "Verified"), "False Unsigned");
    assert_eq!(bench.status().summary, "Unsigned: dry run only");

    // The same revision, pinned: the plans of the dry run are decided again.
    bench.declare(pinned(1, &[]), Requests::default());
    bench.work(MINUTE);
    assert!(bench.pods.is_empty(), "{:?}", bench.pods);
    assert_eq!(condition(&bench, "Ready"), "True Running");
    assert_eq!(condition(&bench, "Verified"), "True Verified");

    bench.declare(unsigned(1, &[]), Requests::default());
    bench.list(&["b"]);
    bench.work(MINUTE);
    assert!(bench.pods.contains("b"));
    assert_eq!(condition(&bench, "Ready"), "False Unsigned");
}

#[test]
fn an_unsigned_candidate_stays_a_shadow_and_the_stable_revision_continues() {
    let mut bench = Bench::running(spec(1, &[]));
    bench.work(MINUTE);
    let steps = ["weight 100 for 1m"];
    bench.declare(unsigned(2, &steps), Requests::default());
    bench.list(&["b", "c"]);
    bench.pass(Duration::from_mins(10));
    let called = bench.answer();
    assert!(called.contains(&1) && called.contains(&2), "{called:?}");
    let stable = name(&spec(1, &[]));
    assert_eq!(bench.executes.len(), 2);
    assert!(bench.executes.iter().all(|one| *one.revision == *stable));
    bench.work(Duration::from_mins(10));
    let candidate = bench.status().candidate.clone().unwrap();
    assert!(candidate.unsigned && candidate.waits_for.contains("module.digest"));
    assert_eq!(bench.status().summary, "Unsigned, shadow only: step 1 of 1");

    // Pinned, it owns the targets of its step.
    bench.declare(pinned(2, &steps), Requests::default());
    bench.work(MINUTE);
    bench.list(&["d"]);
    bench.pass(MINUTE);
    bench.answer();
    let candidate = name(&pinned(2, &steps));
    assert_eq!(bench.executes.len(), 1);
    assert!(bench.executes.iter().all(|one| *one.revision == *candidate));
    assert!(!bench.status().candidate.as_ref().unwrap().unsigned);
}

/// The record says which revisions are unsigned: the spec may describe another one.
#[test]
fn after_a_restart_each_revision_is_trusted_as_before() {
    for (first, writes) in [(pinned(1, &[]), true), (unsigned(1, &[]), false)] {
        let mut bench = trusting(UnsignedPolicy::DryRunOnly);
        bench.declare(first, Requests::default());
        bench.list(&["a"]);
        bench.work(MINUTE);
        let mut bench = bench.crash(declaration(NAME, unsigned(2, &["shadow for 1h"])));
        bench.list(&["b"]);
        bench.work(MINUTE);
        assert_eq!(!bench.pods.contains("b"), writes);
        assert_eq!(bench.status().stable.as_ref().unwrap().unsigned, !writes);
    }
}

#[test]
fn a_denied_module_does_not_run() {
    let mut bench = trusting(UnsignedPolicy::Deny);
    bench.declare(unsigned(1, &[]), Requests::default());
    bench.pass(MINUTE);
    assert!(bench.streams.is_empty() && bench.calls.is_empty());
    assert_eq!(condition(&bench, "Verified"), "False Unsigned");

    // What runs continues.
    bench.declare(pinned(1, &[]), Requests::default());
    bench.list(&["a"]);
    bench.work(MINUTE);
    assert!(bench.pods.is_empty());
    bench.declare(unsigned(2, &[]), Requests::default());
    bench.list(&["b"]);
    bench.work(MINUTE);
    assert!(bench.pods.is_empty());
    assert_eq!(condition(&bench, "Verified"), "False Unsigned");
    let stable = bench.status().stable.clone().unwrap();
    assert_eq!(stable.revision, name(&pinned(1, &[])));
}

/// The host's configuration was changed.
#[test]
fn an_unsigned_candidate_does_not_run_after_a_start_that_denies_it() {
    let steps = ["shadow for 1h"];
    let mut bench = trusting(UnsignedPolicy::DryRunOnly);
    bench.declare(pinned(1, &[]), Requests::default());
    bench.list(&["a"]);
    bench.work(MINUTE);
    bench.declare(unsigned(2, &steps), Requests::default());
    bench.work(MINUTE);
    assert!(bench.status().candidate.is_some());
    let mut bench = bench.restart(UnsignedPolicy::Deny);
    bench.declare_all(vec![declaration(NAME, unsigned(2, &steps))]);
    bench.list(&["b"]);
    bench.pass(MINUTE);
    assert_eq!(bench.answer(), [1]);
    bench.pass(MINUTE);
    let candidate = bench.status().candidate.clone().unwrap();
    assert!(
        candidate.waits_for.contains("the module is unsigned"),
        "{}",
        candidate.waits_for
    );
    assert_eq!(condition(&bench, "Verified"), "False Unsigned");
    for one in &bench.status().conditions {
        assert!(!one.message.contains("loading"), "{one:?}");
    }

    // Pinned, it is the same revision, and continues.
    bench.declare(pinned(2, &steps), Requests::default());
    bench.list(&["c"]);
    bench.pass(MINUTE);
    assert!(bench.answer().contains(&2));
    assert_eq!(condition(&bench, "Verified"), "True Verified");
}

/// The host's configuration was changed.
#[test]
fn an_unsigned_stable_revision_is_lost_after_a_start_that_denies_it() {
    let mut bench = trusting(UnsignedPolicy::Allow);
    bench.declare(unsigned(1, &[]), Requests::default());
    bench.list(&["a"]);
    bench.work(MINUTE);
    assert!(bench.pods.is_empty());
    assert_eq!(condition(&bench, "Ready"), "True Running");
    let mut bench = bench.restart(UnsignedPolicy::Deny);
    bench.declare_all(vec![declaration(NAME, unsigned(1, &[]))]);
    bench.pass(MINUTE);
    assert!(bench.streams.is_empty() && bench.calls.is_empty());
    assert_eq!(condition(&bench, "Ready"), "False StableLost");
    let reason = bench.status().lost.clone().unwrap().reason;
    assert!(reason.contains("trust.unsigned: Deny"), "{reason}");
}
