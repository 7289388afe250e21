//! What the tests have in common.

use std::time::Duration;

use davit_guest::testing::Harness;
use policy::Policy;
use serde_json::{Value, json};

pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// A controller with these rules.
pub(crate) fn rules(rules: Value) -> Harness<Policy> {
    Harness::new(&json!({ "rules": rules })).unwrap_or_else(|error| panic!("{error:?}"))
}

/// Why rules are refused: the field, and the message.
pub(crate) fn refusal(rules: Value) -> (String, String) {
    refusal_of(&json!({ "rules": rules }))
}

/// The same of a configuration.
pub(crate) fn refusal_of(config: &Value) -> (String, String) {
    match Harness::<Policy>::new(config) {
        Ok(_) => panic!("it is accepted: {config}"),
        Err(error) => (error.field, error.message),
    }
}

/// A pod that failed at the start of the tests' time.
pub(crate) fn failed(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "labels": {"app": "build"}},
        "status": {"phase": "Failed", "containerStatuses": [
            {"name": "main", "state": {"terminated": {"exitCode": 1, "finishedAt": START}}}
        ]},
    })
}

/// The harness' time starts here.
pub(crate) const START: &str = "2023-11-14T22:13:20Z";
