//! The common encoding version and its condition: Kubernetes'
//! `TestSetCommonEncodingVersion`.

use davit_guest::Time;
use serde_json::{Value, json};
use storage_version_gc::status::Status;

const EARLIER: &str = "2023-11-14T20:00:00Z";
const NOW: &str = "2023-11-14T22:13:20Z";

/// A status with entries of these versions, of which the given one was common.
fn status(encodings: &[&str], common: Option<&str>, condition: Option<&str>) -> Status {
    let entries: Vec<Value> = (1..)
        .zip(encodings)
        .map(|(id, version)| json!({"apiServerID": id.to_string(), "encodingVersion": version}))
        .collect();
    let conditions: Vec<Value> = condition
        .map(|status| self::condition(status, EARLIER))
        .into_iter()
        .collect();
    let status = json!({
        "storageVersions": entries, "commonEncodingVersion": common, "conditions": conditions,
    });
    serde_json::from_value(status).expect("a status")
}

fn condition(status: &str, since: &str) -> Value {
    let word = if status == "True" { "Set" } else { "Unset" };
    json!({
        "type": "AllEncodingVersionsEqual", "status": status, "observedGeneration": 3,
        "lastTransitionTime": since, "reason": format!("CommonEncodingVersion{word}"),
        "message": format!("Common encoding version {}", word.to_lowercase()),
    })
}

/// Asserts the common version, and the condition's status and transition time.
#[track_caller]
fn assert_set(mut status: Status, common: Option<&str>, holds: &str, since: &str) {
    let now = Time::parse(NOW).expect("a time");
    let entries = status.storage_versions.clone();
    status.set_common_encoding_version(3, now);
    assert_eq!(status.common_encoding_version.as_deref(), common);
    let conditions = serde_json::to_value(&status.conditions).expect("conditions");
    assert_eq!(conditions, json!([condition(holds, since)]));
    assert_eq!(status.storage_versions, entries);
}

#[test]
fn sv_05_no_common_init() {
    assert_set(status(&["v1", "v2"], None, None), None, "False", NOW);
}

#[test]
fn sv_06_no_common_transition() {
    let before = status(&["v1", "v2"], Some("v1"), Some("True"));
    assert_set(before, None, "False", NOW);
}

#[test]
fn sv_07_no_common_no_transition() {
    let before = status(&["v1", "v2"], None, Some("False"));
    assert_set(before, None, "False", EARLIER);
}

#[test]
fn sv_08_common_init() {
    assert_set(status(&["v1", "v1"], None, None), Some("v1"), "True", NOW);
}

#[test]
fn sv_09_common_no_transition() {
    let before = status(&["v1", "v1"], Some("v1"), Some("True"));
    assert_set(before, Some("v1"), "True", EARLIER);
}

#[test]
fn sv_10_common_transition() {
    let before = status(&["v1", "v1"], None, Some("False"));
    assert_set(before, Some("v1"), "True", NOW);
}

#[test]
fn sv_11_common_version_changed() {
    let before = status(&["v2", "v2"], Some("v1"), Some("True"));
    assert_set(before, Some("v2"), "True", NOW);
}

#[test]
fn without_entries_there_is_no_common_version() {
    assert_set(status(&[], Some("v1"), Some("True")), None, "False", NOW);
}

/// Only the encoding version matters.
#[test]
fn decodable_and_served_versions_do_not_matter() {
    let mut before = status(&["v1", "v1"], None, None);
    for (entry, version) in before.storage_versions.iter_mut().zip(["v1", "v3"]) {
        entry.decodable_versions.push(version.to_owned());
        entry.served_versions.push(version.to_owned());
    }
    assert_set(before, Some("v1"), "True", NOW);
}

#[test]
fn other_conditions_keep_their_place() {
    let mut before = status(&["v1"], None, Some("False"));
    let other = json!({"type": "Other", "status": "True", "reason": "r"});
    let other = serde_json::from_value(other).expect("a condition");
    before.conditions.insert(0, other);
    before.set_common_encoding_version(3, Time::parse(NOW).expect("a time"));
    let types: Vec<&str> = before.conditions.iter().map(|it| &*it.r#type).collect();
    assert_eq!(types, ["Other", "AllEncodingVersionsEqual"]);
}
