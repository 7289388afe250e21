//! A status that cannot be written because of its size does not exist.

use std::iter::once;

use serde_json::{Value, json};

use super::bench::Bench;
use super::revisions::spec;
use crate::grant::Permissions;
use crate::rollout::progress::StepObservation;

/// The largest object of the API server, in bytes.
const MOST_OBJECT: usize = 3 << 19;

/// A text of a guest or a server.
fn hostile() -> String {
    "\"all is well\"\n\u{1b}[2J\u{202e}".repeat(1 << 16)
}

/// The texts of a value, with their fields.
fn texts(field: &str, value: &Value) -> Vec<(String, String)> {
    match value {
        Value::String(text) => once((field.to_owned(), text.clone())).collect(),
        Value::Array(all) => all.iter().flat_map(|one| texts(field, one)).collect(),
        Value::Object(all) => all
            .iter()
            .flat_map(|(field, it)| texts(field, it))
            .collect(),
        _ => Vec::new(),
    }
}

/// Every field has the largest text that others can choose: a rejected revision, a refused
/// spec, missing permissions, refused requests.
#[test]
fn the_largest_status_can_be_written() {
    let steps = &["shadow 10s"];
    let mut bench = Bench::running(spec(1, steps));
    let mut failing = spec(2, steps);
    bench.change(failing.clone());
    bench.settle();
    bench.observed = StepObservation {
        failed_calls: 9,
        last_failure: hostile(),
        refused_writes: 9,
        last_refusal: hostile(),
        trip: Some(hostile()),
        ..StepObservation::default()
    };
    bench.pass(2);
    assert!(bench.status().rejected.is_some());
    // A revision that declares as much as a manifest may.
    let watches: Vec<String> = (0..64).map(|number| format!("{number:x>1000}")).collect();
    failing.config["watches"] = json!(watches);
    failing.permissions = Some(Permissions::default());
    bench.change(failing);
    bench.settle();
    // The annotations of an object have 256 KiB at most.
    let value = || Some("x".repeat(40 << 10));
    bench.ask(|requests| {
        requests.promote = value();
        requests.abort = value();
        requests.abandon = value();
        requests.retry = value();
        requests.reset = value();
        requests.swap = value();
    });
    bench.settle();
    let status = bench.status();
    assert_eq!(status.requests.len(), 6);
    assert!(status.rejected.is_some());
    assert!(!status.missing_permissions.is_empty());
    bench.is_source_away = true;
    bench.pass(2);
    let status = serde_json::to_value(bench.status()).unwrap();
    for (field, text) in texts("", &status) {
        assert!(!text.contains(char::is_control), "{field}: {text}");
        assert!(
            text.len() <= 4200 || field == "value",
            "{field}: {} bytes",
            text.len()
        );
    }
    let size = serde_json::to_vec(&status).unwrap().len();
    assert!(size < MOST_OBJECT / 2, "{size} bytes");
    assert!(size > 200 << 10, "{size} bytes: the requests are in it");
}
