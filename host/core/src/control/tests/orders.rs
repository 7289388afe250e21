//! Orders of inputs and effects that matter.

use super::bench::{Bench, name_of, spec};
use crate::control::ControllerRecord;

#[test]
fn a_first_revision_runs_once_it_is_recorded() {
    let first = spec(1, &[]);
    let mut bench = Bench::start(first.clone(), ControllerRecord::default());
    assert_eq!(bench.runs(), None);
    bench.settle();
    assert_eq!(bench.runs(), Some((name_of(&first), None)));
    assert_eq!(bench.record.status.stable, bench.status().stable);
    assert!(bench.record.spec(&name_of(&first)).is_some());
}
