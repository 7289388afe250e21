//! Kubernetes' own integration tests, on any API server that serves storage
//! versions.

use std::future::Future;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{API, config, entries};
use crate::bench::{Bench, PATIENCE, on_any_server, text};
use crate::objects::path;

/// Runs a test with the collector if the server serves storage versions: the API is
/// alpha, and off by default.
fn test<F: Future<Output = Bench>>(test: impl FnOnce(Bench) -> F) {
    on_any_server(|bench| async move {
        let (status, _) = bench
            .send("GET", &format!("/apis/{API}"), &Value::Null)
            .await;
        if status == 404 {
            println!("the API server does not serve {API}");
            return bench;
        }
        let host = bench.host(&config("Enforce")).await;
        let bench = test(bench).await;
        host.host.stop().await;
        bench
    });
}

/// The id of an API server of the test.
fn id(bench: &Bench, server: &str) -> String {
    format!("{}-{server}", bench.namespace)
}

/// The lease of an API server. A lease that is never renewed counts as expired, and a
/// real server removes it.
async fn hold(bench: &Bench, server: &str) -> Value {
    let now = jiff::Timestamp::now();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "name": id(bench, server), "namespace": "kube-system",
            "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"},
        },
        "spec": {
            "holderIdentity": server, "leaseDurationSeconds": 3600,
            "renewTime": format!("{now:.6}"),
        },
    });
    bench.create(lease).await
}

/// A storage version with entries of these servers.
async fn store(bench: &Bench, of: &[(&str, &str)]) -> Value {
    let version = json!({
        "apiVersion": API, "kind": "StorageVersion", "spec": {},
        "metadata": {"name": format!("{}.resource", bench.namespace)},
    });
    let version = bench.create(version).await;
    let ids: Vec<(String, &str)> = of
        .iter()
        .map(|(server, version)| (id(bench, server), *version))
        .collect();
    let ids: Vec<(&str, &str)> = ids.iter().map(|(id, version)| (&**id, *version)).collect();
    let mut status = json!({"status": {"storageVersions": entries(&ids)}});
    // API servers keep this right, and refuse other values.
    if let [(_, first), rest @ ..] = &ids[..]
        && rest.iter().all(|(_, version)| version == first)
    {
        status["status"]["commonEncodingVersion"] = json!(first);
    }
    let path = format!("{}/status", path(&version));
    bench.must("PATCH", &path, &status).await
}

/// Waits until a storage version has entries of these servers only.
async fn until(bench: &Bench, version: &Value, expected: &[&str]) -> Value {
    let expected: Vec<String> = expected.iter().map(|server| id(bench, server)).collect();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = bench.now(version).await.expect("it has to stay");
        let entries = found["status"]["storageVersions"].as_array().unwrap();
        let servers = entries.iter().map(|it| text(it, "/apiServerID"));
        if servers.collect::<Vec<_>>() == expected {
            return found;
        }
        assert!(
            Instant::now() < deadline,
            "{found} is not to have {expected:?}"
        );
        sleep(Duration::from_millis(100)).await;
    }
}

/// `TestStorageVersionGarbageCollection`: "entry with non-existing id should be
/// GC'ed"
#[test]
fn sv_20_an_entry_of_nobody_is_collected() {
    test(|bench| async move {
        hold(&bench, "valid").await;
        let version = store(&bench, &[("valid", "v1"), ("nobody", "v2")]).await;
        until(&bench, &version, &["valid"]).await;
        bench.delete(&version, "").await;
        let version = store(&bench, &[("nobody", "v1")]).await;
        bench.until_gone(&[&version]).await;
        bench
    });
}

/// … "entry with valid id should not be GC'ed"
#[test]
fn sv_21_an_entry_with_a_valid_id_is_kept() {
    test(|bench| async move {
        hold(&bench, "valid").await;
        let version = store(&bench, &[("valid", "v1")]).await;
        sleep(Duration::from_secs(10)).await;
        assert_eq!(bench.now(&version).await, Some(version));
        bench
    });
}

/// … "deleting an id should delete a storage version entry", and the remaining entries
/// have a common version.
#[test]
fn sv_22_deleting_an_id_deletes_its_entry() {
    test(|bench| async move {
        let one = hold(&bench, "one").await;
        hold(&bench, "two").await;
        let version = store(&bench, &[("one", "v1"), ("two", "v2")]).await;
        sleep(Duration::from_secs(5)).await;
        assert_eq!(bench.now(&version).await, Some(version.clone()));
        bench.delete(&one, "").await;
        let found = until(&bench, &version, &["two"]).await;
        let status = &found["status"];
        assert_eq!(status["commonEncodingVersion"], "v2");
        let condition = &status["conditions"][0];
        assert_eq!(condition["type"], "AllEncodingVersionsEqual");
        assert_eq!(condition["status"], "True");
        let two = id(&bench, "two");
        assert_eq!(status["storageVersions"], entries(&[(&two, "v2")]));
        bench
    });
}

/// … "deleting the last id should delete the storage version"
#[test]
fn sv_23_deleting_the_last_id_deletes_the_object() {
    test(|bench| async move {
        let one = hold(&bench, "one").await;
        let version = store(&bench, &[("one", "v1")]).await;
        sleep(Duration::from_secs(5)).await;
        assert_eq!(bench.now(&version).await, Some(version.clone()));
        bench.delete(&one, "").await;
        bench.until_gone(&[&version]).await;
        bench
    });
}
