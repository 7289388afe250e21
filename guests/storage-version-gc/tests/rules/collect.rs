//! What happens to storage versions when API servers go away.

use std::time::Duration;

use davit_guest::testing::Harness;
use davit_guest::{DeleteOptions, FailureClass, Step};
use serde_json::{Value, json};
use storage_version_gc::{LEASES, StorageVersionGc, VERSIONS};

const IDENTITY: &str = "apiserver.kubernetes.io/identity";
const EARLIER: &str = "2023-11-14T20:00:00Z";
const NOW: &str = "2023-11-14T22:13:20Z";

fn harness() -> Harness<StorageVersionGc> {
    Harness::new(&Value::Null).expect("a valid configuration")
}

fn lease(server: &str) -> Value {
    labelled(server, "kube-apiserver")
}

fn labelled(server: &str, identity: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": server, "namespace": "kube-system", "labels": {IDENTITY: identity}},
        "spec": {"renewTime": "2023-11-14T22:13:20.000000Z"},
    })
}

fn entry(server: &str, version: &str) -> Value {
    json!({
        "apiServerID": server, "encodingVersion": version,
        "decodableVersions": ["v1", "v2"], "servedVersions": ["v1"],
    })
}

fn condition(status: &str, since: &str) -> Value {
    let word = if status == "True" { "Set" } else { "Unset" };
    json!({
        "type": "AllEncodingVersionsEqual", "status": status, "observedGeneration": 2,
        "lastTransitionTime": since, "reason": format!("CommonEncodingVersion{word}"),
        "message": format!("Common encoding version {}", word.to_lowercase()),
    })
}

/// A storage version with these entries (server and version).
fn version(name: &str, entries: &[(&str, &str)], common: Option<&str>) -> Value {
    let status = if common.is_some() { "True" } else { "False" };
    let entries: Vec<Value> = entries.iter().map(|(id, it)| entry(id, it)).collect();
    let mut version = json!({
        "apiVersion": "internal.apiserver.k8s.io/v1alpha1", "kind": "StorageVersion",
        "metadata": {"name": name, "generation": 2}, "spec": {},
        "status": {"storageVersions": entries, "conditions": [condition(status, EARLIER)]},
    });
    if let Some(common) = common {
        version["status"]["commonEncodingVersion"] = json!(common);
    }
    version
}

fn status(harness: &Harness<StorageVersionGc>, name: &str) -> Value {
    let version = harness.object("StorageVersion", name);
    version.expect("the storage version is there")["status"].clone()
}

/// The ids of a storage version's entries, in order.
fn servers(harness: &Harness<StorageVersionGc>, name: &str) -> Vec<String> {
    let status = status(harness, name);
    let entries = &status["storageVersions"];
    let entries = entries.as_array().expect("entries").iter();
    entries
        .map(|it| it["apiServerID"].as_str().expect("an id").to_owned())
        .collect()
}

fn reads(harness: &Harness<StorageVersionGc>) -> Vec<String> {
    let reads = harness.live_reads().into_iter();
    reads.map(|(_, target)| target.name).collect()
}

/// `Test_StorageVersionUpdatedWithAllEncodingVersionsEqualOnLeaseDeletion`
#[test]
fn sv_01_updated_with_all_encoding_versions_equal_on_lease_deletion() {
    let mut harness = harness();
    for server in ["s1", "s2", "s3"] {
        harness.put(lease(server));
    }
    harness.put(version(
        "k8s.test.resources",
        &[("s1", "v1"), ("s2", "v2"), ("s3", "v2")],
        None,
    ));
    harness.run();
    assert!(harness.executions().is_empty() && harness.live_reads().is_empty());
    harness.remove("Lease", "kube-system/s1");
    harness.run();
    assert_eq!(
        status(&harness, "k8s.test.resources"),
        json!({
            "storageVersions": [entry("s2", "v2"), entry("s3", "v2")],
            "commonEncodingVersion": "v2",
            "conditions": [condition("True", NOW)],
        })
    );
    assert_eq!(harness.executions().len(), 1);
}

/// `Test_StorageVersionUpdatedWithDifferentEncodingVersionsOnLeaseDeletion`: no
/// entry names the API server whose lease is deleted.
#[test]
fn sv_02_updated_with_different_encoding_versions_on_lease_deletion() {
    let mut harness = harness();
    for server in ["s1", "s2", "s3"] {
        harness.put(lease(server));
    }
    let before = version(
        "k8s.test.resources",
        &[("s1", "v1"), ("s3", "v2")],
        Some("v1"),
    );
    harness.put(before.clone());
    harness.remove("Lease", "kube-system/s2");
    harness.run();
    assert_eq!(status(&harness, "k8s.test.resources"), before["status"]);
    assert!(harness.executions().is_empty());
}

/// `Test_StorageVersionContainsInvalidLeaseID`
#[test]
fn sv_03_an_entry_with_an_invalid_lease_id_is_removed() {
    let mut harness = harness();
    for server in ["s1", "s2", "s3"] {
        harness.put(lease(server));
    }
    let entries = [("s1", "v1"), ("s2", "v2"), ("s3", "v2"), ("nobody", "v2")];
    harness.put(version("k8s.test.resources", &entries, None));
    harness.run();
    assert_eq!(servers(&harness, "k8s.test.resources"), ["s1", "s2", "s3"]);
    let status = status(&harness, "k8s.test.resources");
    assert_eq!(status.get("commonEncodingVersion"), None);
    assert_eq!(status["conditions"], json!([condition("False", EARLIER)]));
    // The version may be decided about once more before its own write is observed.
    let reads = reads(&harness);
    assert!((1..=2).contains(&reads.len()), "{reads:?}");
    assert!(reads.iter().all(|read| read == "nobody"), "{reads:?}");
}

/// `Test_StorageVersionDeletedOnLeaseDeletion`
#[test]
fn sv_04_deleted_on_lease_deletion() {
    let mut harness = harness();
    harness.put(lease("s1"));
    harness.put(version("k8s.test.resources", &[("s1", "v1")], Some("v1")));
    harness.run();
    harness.remove("Lease", "kube-system/s1");
    let read = harness
        .object("StorageVersion", "k8s.test.resources")
        .expect("it is there");
    let uid = read["metadata"]["uid"].clone();
    let seen = read["metadata"]["resourceVersion"]
        .as_str()
        .expect("a version")
        .to_owned();
    harness.run();
    assert_eq!(harness.keys("StorageVersion"), [""; 0]);
    let [deletion] = harness.executions() else {
        panic!("one plan, not {:?}", harness.executions());
    };
    assert_eq!(deletion.plan.target.uid, uid);
    let options = DeleteOptions::new().only_version(&seen);
    assert_eq!(deletion.plan.steps, [Step::Delete(options)]);
}

/// `TestLocalUpdateStorageVersion` is about an API server that adds its own
/// entry, which the collector never does. The outcome that it protects here:
/// what one more entry added is removed with that entry.
#[test]
fn sv_12_local_update_storage_version() {
    for (case, entries, common, left, then) in [
        ("the only one", &[("1", "v1")][..], Some("v1"), 0, None),
        (
            "the one that differs",
            &[("1", "v1"), ("2", "v1"), ("3", "v2")],
            None,
            2,
            Some("v1"),
        ),
        (
            "one of the same",
            &[("1", "v1"), ("2", "v1"), ("4", "v1")],
            Some("v1"),
            2,
            Some("v1"),
        ),
        (
            "one of several that differ",
            &[("1", "v1"), ("2", "v1"), ("3", "v2"), ("4", "v1")],
            None,
            3,
            None,
        ),
    ] {
        let mut harness = harness();
        let (_, kept) = entries
            .split_last()
            .map(|(last, kept)| (last, kept.to_vec()))
            .expect("one");
        for (server, _) in &kept {
            harness.put(lease(server));
        }
        harness.put(version("a.b", entries, common));
        harness.run();
        if left == 0 {
            assert_eq!(harness.keys("StorageVersion"), [""; 0], "{case}");
            continue;
        }
        assert_eq!(servers(&harness, "a.b").len(), left, "{case}");
        let status = status(&harness, "a.b");
        let found = status.get("commonEncodingVersion").and_then(Value::as_str);
        assert_eq!(found, then, "{case}");
        let (holds, since) = match (common, then) {
            (before, Some(_)) if before == then => ("True", EARLIER),
            (_, Some(_)) => ("True", NOW),
            (_, None) => ("False", EARLIER),
        };
        assert_eq!(
            status["conditions"],
            json!([condition(holds, since)]),
            "{case}"
        );
    }
}

/// Anything but a proven absence keeps the entry, and is retried.
#[test]
fn sv_30_a_lease_that_cannot_be_read_keeps_its_entries() {
    for class in ["server", "forbidden", "timeout", "throttled", "unmappable"] {
        let mut harness = harness();
        harness.put(version("a.b", &[("s1", "v1")], Some("v1")));
        harness.fail_reads("Lease", "kube-system/s1", class);
        harness.advance(Duration::from_mins(1));
        assert_eq!(servers(&harness, "a.b"), ["s1"], "{class}");
        assert!(harness.executions().is_empty(), "{class}");
        let tries = reads(&harness).len();
        assert!(
            (3..30).contains(&tries),
            "{class}: {tries} reads in a minute"
        );
        harness.heal();
        harness.advance(Duration::from_mins(10));
        assert_eq!(harness.keys("StorageVersion"), [""; 0], "{class}");
    }
}

/// The collector acts on a proven absence even if another lease cannot be read.
#[test]
fn a_lease_that_cannot_be_read_does_not_delay_the_others() {
    let mut harness = harness();
    harness.put(version("a.b", &[("s1", "v1"), ("s2", "v2")], None));
    harness.fail_reads("Lease", "kube-system/s1", "server");
    harness.run();
    assert_eq!(servers(&harness, "a.b"), ["s1"]);
    assert_eq!(status(&harness, "a.b")["commonEncodingVersion"], "v1");
    harness.heal();
    harness.advance(Duration::from_secs(10));
    assert_eq!(harness.keys("StorageVersion"), [""; 0]);
}

#[test]
fn sv_31_an_entry_added_between_the_decision_and_the_deletion_survives() {
    let mut harness = harness();
    harness.put(version("a.b", &[("s1", "v1")], Some("v1")));
    harness.put(lease("s2"));
    // The API server has it, the cache does not show it yet.
    harness.put_on_server(version("a.b", &[("s1", "v1"), ("s2", "v1")], Some("v1")));
    harness.run();
    assert_eq!(servers(&harness, "a.b"), ["s1", "s2"]);
    let (_, failure) = harness.executions()[0]
        .result
        .clone()
        .expect_err("a conflict");
    assert_eq!(failure.class, FailureClass::Conflict);
    harness.show("StorageVersion", "a.b");
    harness.advance(Duration::from_secs(2));
    assert_eq!(servers(&harness, "a.b"), ["s2"]);
}

#[test]
fn an_entry_added_between_the_decision_and_the_update_survives() {
    let mut harness = harness();
    harness.put(lease("s1"));
    harness.put(lease("s2"));
    harness.put(version("a.b", &[("s1", "v1"), ("gone", "v1")], Some("v1")));
    let more = [("s1", "v1"), ("gone", "v1"), ("s2", "v2")];
    harness.put_on_server(version("a.b", &more, None));
    harness.run();
    assert_eq!(servers(&harness, "a.b"), ["s1", "gone", "s2"]);
    harness.show("StorageVersion", "a.b");
    harness.advance(Duration::from_secs(2));
    assert_eq!(servers(&harness, "a.b"), ["s1", "s2"]);
    assert_eq!(status(&harness, "a.b").get("commonEncodingVersion"), None);
}

#[test]
fn a_lease_without_the_identity_label_is_not_an_api_servers() {
    for mut other in [labelled("s1", "kubelet"), labelled("s1", "")] {
        if other["metadata"]["labels"][IDENTITY] == "" {
            other["metadata"]["labels"] = json!({});
        }
        let mut harness = harness();
        harness.put(lease("s1"));
        harness.put(version("a.b", &[("s1", "v1")], Some("v1")));
        harness.run();
        assert_eq!(servers(&harness, "a.b"), ["s1"]);
        harness.put(other);
        harness.run();
        assert_eq!(harness.keys("StorageVersion"), [""; 0]);
    }
}

/// Leases with that name elsewhere prove nothing.
#[test]
fn a_lease_in_another_namespace_is_not_an_api_servers() {
    let mut harness = harness();
    let mut elsewhere = lease("s1");
    elsewhere["metadata"]["namespace"] = json!("default");
    harness.put(elsewhere);
    harness.put(version("a.b", &[("s1", "v1")], Some("v1")));
    harness.run();
    assert_eq!(harness.keys("StorageVersion"), [""; 0]);
}

/// The lease exists again before the reconcile: nothing happens, and its end is
/// found although the cache never showed it.
#[test]
fn a_lease_that_the_cache_does_not_show_yet_keeps_its_entries() {
    let mut harness = harness();
    harness.put_on_server(lease("s1"));
    harness.put(version("a.b", &[("s1", "v1")], Some("v1")));
    harness.advance(Duration::from_mins(1));
    assert_eq!(servers(&harness, "a.b"), ["s1"]);
    harness.remove_from_server("Lease", "kube-system/s1");
    harness.advance(Duration::from_secs(10));
    assert_eq!(harness.keys("StorageVersion"), [""; 0]);
}

#[test]
fn a_storage_version_without_entries_is_kept() {
    let mut harness = harness();
    harness.put(version("a.b", &[], None));
    let mut bare = version("c.d", &[], None);
    bare["status"] = json!({});
    harness.put(bare);
    harness.advance(Duration::from_mins(1));
    assert_eq!(harness.keys("StorageVersion"), ["a.b", "c.d"]);
    assert!(harness.executions().is_empty());
}

/// Every storage version names an API server that is gone: one live read.
#[test]
fn a_lease_is_read_once_for_many_storage_versions() {
    let mut harness = harness();
    harness.put(lease("s1"));
    harness.put(lease("s2"));
    for number in 0..40 {
        let name = format!("group.resource{number}");
        harness.put(version(&name, &[("s1", "v1"), ("s2", "v2")], None));
    }
    harness.run();
    harness.remove("Lease", "kube-system/s1");
    harness.run();
    assert_eq!(reads(&harness), ["s1"]);
    assert_eq!(harness.executions().len(), 40);
    for number in 0..40 {
        assert_eq!(
            servers(&harness, &format!("group.resource{number}")),
            ["s2"]
        );
    }
}

#[test]
fn a_renewed_lease_triggers_no_reconcile() {
    let mut harness = harness();
    harness.put(lease("s1"));
    harness.put(version("a.b", &[("s1", "v1")], Some("v1")));
    harness.run();
    let mut renewed = lease("s1");
    renewed["spec"]["renewTime"] = json!("2023-11-14T22:13:30.000000Z");
    harness.put(renewed);
    assert_eq!(harness.pending(LEASES, "kube-system/s1"), None);
    assert_eq!(harness.pending(VERSIONS, "a.b"), None);
}

#[test]
fn a_failed_update_is_retried() {
    for class in ["server", "timeout", "conflict", "throttled"] {
        let mut harness = harness();
        harness.put(lease("s1"));
        harness.put(version("a.b", &[("s1", "v1"), ("gone", "v2")], None));
        harness.fail_writes("StorageVersion", "a.b", class);
        harness.advance(Duration::from_secs(5));
        assert_eq!(servers(&harness, "a.b"), ["s1", "gone"], "{class}");
        harness.heal();
        harness.advance(Duration::from_secs(10));
        assert_eq!(servers(&harness, "a.b"), ["s1"], "{class}");
    }
}
