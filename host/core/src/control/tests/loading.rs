//! Loads that take their time.

use super::bench::{Bench, name_of, spec};
use crate::control::LoadTarget;

impl Bench {
    /// The configurations that are being loaded, in the order of their attempts.
    fn loading(&self) -> Vec<u64> {
        let loads = self.loads.iter().map(|load| match &load.target {
            LoadTarget::Desired { spec, .. } => spec.config["threshold"].as_u64().unwrap(),
            other => panic!("{other:?} is not of a spec"),
        });
        loads.collect()
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
