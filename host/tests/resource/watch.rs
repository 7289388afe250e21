//! The watch of Controllers.

use std::sync::Arc;
use std::time::Duration;

use davit::health::Health;
use davit::metrics::HostMetrics;
use davit::resource::watch::follow;
use davit_cluster::api::Api;
use davit_cluster::clock::Clock;
use davit_core::control::Declaration;
use kube::api::DeleteParams;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::cluster::{Cluster, spec};

type Receiver = watch::Receiver<Option<Vec<Declaration>>>;

fn api(cluster: &Cluster) -> Api {
    Api::new(cluster.davit.clone(), Clock::start(), None)
}

fn watched(cluster: &Cluster) -> Receiver {
    let (sender, receiver) = watch::channel(None);
    tokio::spawn(follow(
        api(cluster),
        1,
        sender,
        Arc::default(),
        metrics().watches,
        false,
    ));
    receiver
}

fn metrics() -> HostMetrics {
    HostMetrics::new().unwrap()
}

/// The declarations after the next change.
async fn next(receiver: &mut Receiver) -> Vec<Declaration> {
    let changed = timeout(Duration::from_secs(60), receiver.changed()).await;
    changed.expect("nothing is delivered").unwrap();
    receiver.borrow_and_update().clone().unwrap()
}

fn names(declared: &[Declaration]) -> Vec<&str> {
    declared.iter().map(|one| one.name.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn every_change_delivers_all_controllers() {
    let cluster = Cluster::new();
    cluster.create("b", spec(1)).await.unwrap();
    let mut receiver = watched(&cluster);
    let first = next(&mut receiver).await;
    assert_eq!(names(&first), ["b"]);
    assert_eq!(first[0].generation, Some(1));
    let object = first[0].object.as_ref().unwrap();
    assert_eq!(object.api_version, "davit.dev/v1alpha1");
    assert_eq!(object.kind, "Controller");
    assert_eq!(json!(object.uid), cluster.get("b")["metadata"]["uid"]);

    cluster.create("a", spec(1)).await.unwrap();
    assert_eq!(names(&next(&mut receiver).await), ["a", "b"]);

    cluster.change("a", json!({"spec": spec(2)}));
    let changed = next(&mut receiver).await;
    assert_eq!(changed[0].generation, Some(2));
    let config = &changed[0].spec.as_ref().unwrap().config;
    assert_eq!(config["terminatedPodThreshold"], 2);

    let annotations = json!({"davit.dev/promote": "abc@2", "davit.dev/abort": "def"});
    cluster.change("b", json!({"metadata": {"annotations": annotations}}));
    let requests = next(&mut receiver).await[1].requests.clone();
    assert_eq!(requests.promote.as_deref(), Some("abc@2"));
    assert_eq!(requests.abort.as_deref(), Some("def"));
    assert_eq!((requests.retry, requests.reset), (None, None));

    let controllers = cluster.controllers();
    controllers
        .delete("a", &DeleteParams::default())
        .await
        .unwrap();
    assert_eq!(names(&next(&mut receiver).await), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_status_alone_delivers_nothing() {
    let cluster = Cluster::new();
    cluster.create("a", spec(1)).await.unwrap();
    let mut receiver = watched(&cluster);
    next(&mut receiver).await;
    cluster.change("a", json!({"status": {"summary": "fine"}}));
    let woken = timeout(Duration::from_secs(30), receiver.changed()).await;
    assert!(woken.is_err(), "it wakes");
    let status = |receiver: &Receiver| {
        let declared = receiver.borrow().clone().unwrap();
        declared[0].status.clone().map(|status| status.summary)
    };
    assert_eq!(
        status(&receiver).as_deref(),
        Some("fine"),
        "but is there to be read"
    );
}

#[tokio::test(start_paused = true)]
async fn an_invalid_spec_is_delivered_as_an_error() {
    let cluster = Cluster::new();
    let two = json!({"module": {"builtin": "podgc", "file": "/a.wasm"}});
    cluster.create("a", two).await.unwrap();
    cluster.create("b.example.com", spec(1)).await.unwrap();
    let declared = next(&mut watched(&cluster)).await;
    let error = |index: usize| declared[index].spec.as_ref().unwrap_err().to_string();
    assert!(
        error(0).starts_with("spec.module: expected one of builtin, file, configMap, oci"),
        "{}",
        error(0)
    );
    assert!(
        error(1).starts_with("metadata.name: it is not a DNS label"),
        "{}",
        error(1)
    );
}

/// A guest that has no default for a null refuses it, as `davit check` does.
#[tokio::test(start_paused = true)]
async fn a_null_in_the_configuration_is_delivered() {
    let cluster = Cluster::new();
    let mut nothing = spec(1);
    nothing["config"] = json!({"terminatedPodThreshold": null});
    cluster.create("a", nothing.clone()).await.unwrap();
    let declared = next(&mut watched(&cluster)).await;
    let config = &declared[0].spec.as_ref().unwrap().config;
    assert_eq!(json!(config), nothing["config"]);
}

#[tokio::test(start_paused = true)]
async fn a_missing_definition_is_waited_for() {
    let cluster = Cluster::empty();
    let (sender, mut receiver) = watch::channel(None);
    let (health, metrics) = (Arc::new(Health::default()), metrics());
    tokio::spawn(follow(
        api(&cluster),
        1,
        sender,
        Arc::clone(&health),
        metrics.watches.clone(),
        false,
    ));
    let early = timeout(Duration::from_secs(60), receiver.changed()).await;
    assert!(early.is_err(), "nothing is known yet");
    assert!(receiver.borrow().is_none());
    // The host's task, which does not run here, would do this.
    health.heartbeat(None);
    let why = health.not_ready();
    assert!(why[0].contains("apply deploy/crds"), "{why:?}");
    let is_synced = |yes: u8| {
        metrics
            .render()
            .contains(&format!("\ndavit_controllers_synced {yes}\n"))
    };
    assert!(is_synced(0), "{}", metrics.render());
    cluster.define();
    assert!(next(&mut receiver).await.is_empty());
    assert!(is_synced(1), "{}", metrics.render());
    cluster.create("a", spec(1)).await.unwrap();
    assert_eq!(names(&next(&mut receiver).await), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn the_task_ends_with_its_receiver() {
    for cluster in [Cluster::new(), Cluster::empty()] {
        let (sender, receiver) = watch::channel(None);
        let task = tokio::spawn(follow(
            api(&cluster),
            1,
            sender,
            Arc::default(),
            metrics().watches,
            false,
        ));
        tokio::time::sleep(Duration::from_secs(7)).await;
        drop(receiver);
        timeout(Duration::from_secs(1), task)
            .await
            .unwrap()
            .unwrap();
    }
}
