//! Revisions that are replaced and still run: the next ones wait for their watches.

use serde_json::json;

use super::*;

/// A revision that watches the resource, and what it is granted.
fn watching(threshold: u64, plural: &str, granted: &[&str]) -> ControllerSpec {
    let mut spec = spec(threshold, &[]);
    spec.config["watches"] = json!(plural);
    let reads = granted.iter().map(|one| json!({"resource": one}));
    let reads: Vec<Value> = reads.collect();
    let writes = json!([{"verb": "delete", "resource": "pods"}]);
    let rules = json!({"reads": reads, "writes": writes});
    spec.permissions = Some(serde_json::from_value(rules).unwrap());
    spec
}

/// Nodes are not served.
#[test]
fn a_replaced_revision_is_not_called_after_its_grant_is_withdrawn() {
    let mut bench = Bench::running(watching(1, "pods", &["pods", "nodes"]));
    assert_eq!(bench.answer(), [1]);
    bench.declare(
        watching(2, "nodes", &["pods", "nodes"]),
        Requests::default(),
    );
    bench.pass(Duration::from_mins(1));
    bench.list(&["a", "b"]);
    assert_eq!(bench.answer(), [1], "the next one waits for its watch");

    bench.executes.clear();
    bench.declare(watching(2, "nodes", &["nodes"]), Requests::default());
    bench.list(&["a", "b", "c"]);
    bench.pass(Duration::from_mins(1));
    assert!(bench.answer().is_empty());
    assert!(bench.executes.is_empty());
}
