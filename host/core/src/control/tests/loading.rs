//! Loads that take their time.

use super::bench::Bench;
use super::revisions::{name_of, spec};
use crate::api::{ControllerSpec, ModuleSource};
use crate::control::LoadTarget;
use crate::record::ControllerRecord;

impl Bench {
    /// The configurations that are being loaded, in the order of their attempts.
    fn loading(&self) -> Vec<u64> {
        let loads = self.loads.iter().map(|load| match &load.target {
            LoadTarget::Desired { spec, .. } => spec.config["threshold"].as_u64().unwrap(),
            other => panic!("{other:?} is not of a spec"),
        });
        loads.collect()
    }

    /// Whether the configuration that is loaded next is known to have run.
    fn next_has_run(&mut self) -> bool {
        self.look();
        loop {
            let of_spec = self.loads.iter().find_map(|load| match load.target {
                LoadTarget::Desired { has_run, .. } => Some(has_run),
                _ => None,
            });
            if let Some(has_run) = of_spec {
                return has_run;
            }
            assert!(self.execute_one(), "nothing is loaded for the spec");
            self.look();
        }
    }
}

/// The same guest may have other bytes: Davit was updated.
fn builtin(name: &str, config: u32) -> ControllerSpec {
    let module = ModuleSource::Builtin(name.into()).into();
    ControllerSpec {
        module,
        ..spec(config, &["shadow for 2m"])
    }
}

/// A registry that hangs delays the spec that names it, and no other.
#[test]
fn a_changed_spec_is_loaded_while_the_load_of_the_former_one_hangs() {
    let mut bench = Bench::running(spec(1, &[]));
    bench.change(spec(2, &[]));
    bench.look();
    bench.change(spec(3, &[]));
    bench.look();
    assert_eq!(bench.loading(), [2, 3]);
    // However often the spec changes, two attempts are under way at most.
    bench.change(spec(4, &[]));
    bench.look();
    assert_eq!(bench.loading(), [2, 3]);
    let hanging = bench.loads.remove(0);
    bench.answer(hanging.id, &spec(2, &[]));
    bench.look();
    assert_eq!(bench.loading(), [3, 4]);
    let load = bench.loads.remove(1);
    bench.answer(load.id, &spec(4, &[]));
    bench.look();
    assert_eq!(bench.loading(), [3]);
    bench.settle();
    assert_eq!(bench.stable(), name_of(&spec(4, &[])));
}

/// Somebody undoes a change at once.
#[test]
fn a_load_counts_if_its_spec_is_declared_again() {
    let mut bench = Bench::running(spec(1, &[]));
    bench.change(spec(2, &[]));
    bench.look();
    bench.change(spec(3, &[]));
    bench.look();
    bench.change(spec(2, &[]));
    bench.look();
    assert_eq!(bench.loading(), [2, 3]);
    let load = bench.loads.remove(0);
    bench.answer(load.id, &spec(2, &[]));
    bench.look();
    while bench.write_one() {
        bench.look();
    }
    assert_eq!(bench.stable(), name_of(&spec(2, &[])));
    assert_eq!(bench.loading(), [3]);
}

#[test]
fn a_spec_that_is_declared_again_is_loaded_once() {
    let mut bench = Bench::running(spec(1, &[]));
    bench.change(spec(2, &[]));
    bench.look();
    bench.declare();
    bench.look();
    assert_eq!(bench.loading(), [2]);
    bench.settle();
    assert_eq!(bench.stable(), name_of(&spec(2, &[])));
}

#[test]
fn a_configuration_has_run_if_a_recorded_revision_has_it() {
    let policy = |config| builtin("policy", config);
    let mut first = Bench::start(policy(1), ControllerRecord::default());
    assert!(!first.next_has_run());

    let mut bench = Bench::running(policy(1));
    assert!(bench.crash().next_has_run());
    let mut updated = bench.crash();
    let other = format!("sha256:{}", "7".repeat(64));
    updated.record.status.stable.as_mut().unwrap().digest = other;
    updated.is_cache_lost = true;
    assert!(updated.next_has_run());

    bench.change(policy(2));
    assert!(!bench.next_has_run());
    bench.settle();
    assert_eq!(bench.candidate().step, 1);
    assert!(bench.crash().next_has_run(), "it is the candidate's");
    let mut changed = bench.crash();
    changed.change(policy(3));
    assert!(!changed.next_has_run());
}

#[test]
fn a_configuration_of_another_guest_has_not_run() {
    let mut bench = Bench::running(builtin("podgc", 1));
    bench.change(builtin("policy", 1));
    assert!(!bench.next_has_run());
}
