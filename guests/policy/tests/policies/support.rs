//! What the tests have in common: the files, and objects.

use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

use davit_guest::ConfigError;
use davit_guest::testing::Harness;
use policy::Policy;
use serde_json::{Value, json};

use crate::explained;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// The harness' time starts here.
pub(crate) const START: &str = "2023-11-14T22:13:20Z";

/// The story of a policy.
pub(crate) struct Case {
    /// The file's name.
    pub(crate) name: &'static str,
    /// What happens, and what there is at each moment that counts.
    pub(crate) story: fn(&mut Harness<Policy>) -> Vec<String>,
    pub(crate) expected: Vec<&'static str>,
}

impl Case {
    /// What the story leads to; an error if the guest refuses the configuration. With `explains`,
    /// what the rules are explained to do is compared with what the guest decides, before each
    /// time that passes.
    pub(crate) fn outcome(
        &self,
        config: &Value,
        explains: bool,
    ) -> Result<Vec<String>, ConfigError> {
        EXPLAINS.set(explains);
        let mut harness = Harness::new(config)?;
        Ok((self.story)(&mut harness))
    }
}

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/policies")
}

/// The names of the policies, in order.
pub(crate) fn names() -> Vec<String> {
    let entries = std::fs::read_dir(directory()).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|it| it == "yaml"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

/// A policy's resource.
pub(crate) fn resource_of(name: &str) -> Value {
    let text = std::fs::read_to_string(directory().join(format!("{name}.yaml"))).unwrap();
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

pub(crate) fn config_of(name: &str) -> Value {
    resource_of(name)["spec"]["config"].clone()
}

/// The objects of a kind that nobody has deleted.
pub(crate) fn left(harness: &Harness<Policy>, kind: &str) -> String {
    let keys = harness.keys(kind).into_iter().filter(|key| {
        harness.object(kind, key).unwrap()["metadata"]["deletionTimestamp"].is_null()
    });
    keys.collect::<Vec<_>>().join(" ")
}

thread_local! {
    static EXPLAINS: Cell<bool> = const { Cell::new(false) };
}

/// Lets time pass.
pub(crate) fn advance(harness: &mut Harness<Policy>, duration: Duration) {
    if EXPLAINS.get() {
        explained::agree(harness);
    }
    harness.advance(duration);
}

/// Runs until each of these times from the start, and says what is left.
pub(crate) fn left_at(
    harness: &mut Harness<Policy>,
    kind: &str,
    times: &[Duration],
) -> Vec<String> {
    let mut now = Duration::ZERO;
    let mut outcome = Vec::new();
    for time in times {
        advance(harness, time.saturating_sub(now));
        now = *time;
        outcome.push(left(harness, kind));
    }
    outcome
}

pub(crate) fn with(mut object: Value, fields: &[(&str, Value)]) -> Value {
    for (pointer, value) in fields {
        let mut at = &mut object;
        for key in pointer.split('/').skip(1) {
            at = &mut at[key.replace("~1", "/")];
        }
        *at = value.clone();
    }
    object
}

/// An object without a status, created at the start.
pub(crate) fn object(api_version: &str, kind: &str, namespace: &str, name: &str) -> Value {
    let mut object = json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"name": name, "creationTimestamp": START},
    });
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

/// A pod that ended at the start.
pub(crate) fn ended(phase: &str, name: &str) -> Value {
    ended_at(START, phase, name)
}

pub(crate) fn ended_at(time: &str, phase: &str, name: &str) -> Value {
    let status = json!({"phase": phase, "containerStatuses": [
        {"name": "main", "state": {"terminated": {"exitCode": 1, "finishedAt": time}}}
    ]});
    with(object("v1", "Pod", "ci", name), &[("/status", status)])
}

/// A pod that runs on a node.
pub(crate) fn running(name: &str, node: &str) -> Value {
    let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    with(
        object("v1", "Pod", "ci", name),
        &[("/spec/nodeName", json!(node)), ("/status", status)],
    )
}

/// The owner that controls an object.
pub(crate) fn owned_by(object: Value, api_version: &str, kind: &str, name: &str) -> Value {
    let owner = json!([{
        "apiVersion": api_version, "kind": kind, "name": name, "uid": name, "controller": true,
    }]);
    with(object, &[("/metadata/ownerReferences", owner)])
}
