//! Records, in each place.

use std::sync::atomic::Ordering;

use davit::records::Records;
use davit_cluster::term::Term;
use davit_core::api::ControllerSpec;
use davit_core::api::{CandidateStatus, ConditionStatus, ControllerStatus, RevisionStatus};
use davit_core::record::{
    Activation, Owner, Record, RecordFailure, RecordReceipt, StatusConflict, StatusVersion,
    StatusWrite,
};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::cluster::{Cluster, NAMESPACE, spec};

fn podgc() -> Owner {
    Owner::named("podgc")
}

/// Records a spec that becomes active.
async fn activate(
    records: &Records,
    owner: &Owner,
    revision: &str,
    spec: &ControllerSpec,
    stable_since: Option<&str>,
) {
    let written = write_spec(records, owner, revision, spec, stable_since).await;
    written.unwrap();
}

async fn write_spec(
    records: &Records,
    owner: &Owner,
    revision: &str,
    spec: &ControllerSpec,
    stable_since: Option<&str>,
) -> Result<(), RecordFailure> {
    let activation = Activation {
        revision: revision.into(),
        spec: spec.clone(),
        at: "2026-11-20T10:00:00Z".into(),
        stable_since: stable_since.map(str::to_owned),
    };
    let record = Record::Revision(Box::new(activation));
    write(records, owner, record).await.map(|_| ())
}

async fn write(
    records: &Records,
    owner: &Owner,
    record: Record,
) -> Result<RecordReceipt, RecordFailure> {
    records.write(owner, record, Term::unlimited()).await
}

async fn save(
    records: &Records,
    owner: &Owner,
    status: &ControllerStatus,
) -> Result<(), RecordFailure> {
    let record = Record::Status(StatusWrite::any(status.clone()));
    write(records, owner, record).await.map(|_| ())
}

fn read(threshold: u32) -> ControllerSpec {
    ControllerSpec::read(&spec(threshold)).unwrap()
}

fn stable(revision: &str) -> ControllerStatus {
    ControllerStatus {
        stable: Some(RevisionStatus {
            revision: revision.into(),
            ..RevisionStatus::default()
        }),
        ..ControllerStatus::default()
    }
}

/// The same sequence of records in every place.
async fn remembers(records: &Records, again: impl Fn() -> Option<Records>) {
    assert_eq!(
        records.status(&podgc()).await.unwrap(),
        ControllerStatus::default()
    );
    let mut status = stable("a");
    status.observed_generation = Some(3);
    status.candidate = Some(CandidateStatus {
        revision: "b".into(),
        step: 2,
        ..CandidateStatus::default()
    });
    status.conditions = vec![ConditionStatus {
        type_: "Progressing".into(),
        status: "True".into(),
        last_transition_time: "2026-11-20T10:00:00Z".into(),
        ..ConditionStatus::default()
    }];
    activate(records, &podgc(), "a", &read(1), None).await;
    save(records, &podgc(), &status).await.unwrap();
    activate(records, &podgc(), "b", &read(2), None).await;
    assert_eq!(records.status(&podgc()).await.unwrap(), status);
    if let Some(again) = again() {
        assert_eq!(again.status(&podgc()).await.unwrap(), status);
    }

    // A field that is removed from a status is removed from the record.
    save(records, &podgc(), &stable("b")).await.unwrap();
    assert_eq!(records.status(&podgc()).await.unwrap(), stable("b"));
    assert_eq!(records.spec(&podgc(), "b").await.unwrap(), Some(read(2)));

    // It is promoted; an old one becomes active again.
    let since = Some("2026-11-20T10:00:00.000Z");
    activate(records, &podgc(), "b", &read(2), since).await;
    activate(records, &podgc(), "a", &read(1), None).await;
    let history = records.history(&podgc()).await.unwrap();
    let numbers: Vec<_> = history
        .iter()
        .map(|kept| (kept.number, kept.revision.as_str()))
        .collect();
    assert_eq!(numbers, [(3, "a"), (2, "b")]);
    assert_eq!(history[1].spec, read(2));
    assert_eq!(history[1].stable_since.as_deref(), since);
    assert_eq!(history[0].stable_since, None);
    assert!(
        history[0].at.parse::<jiff::Timestamp>().is_ok(),
        "{}",
        history[0].at
    );
    assert_eq!(records.spec(&podgc(), "a").await.unwrap(), Some(read(1)));
    assert_eq!(records.spec(&podgc(), "z").await.unwrap(), None);

    // The stable one is "b", however many follow.
    for number in 10..30 {
        let revision = format!("r{number}");
        activate(records, &podgc(), &revision, &read(number), None).await;
    }
    let history = records.history(&podgc()).await.unwrap();
    assert_eq!(history.len(), 10);
    assert_eq!(history[0].revision, "r29");
    assert_eq!(history[9].revision, "b");
}

#[tokio::test]
async fn records_in_memory_hold_what_was_written() {
    remembers(&Records::memory(), || None).await;
}

#[tokio::test]
async fn records_in_a_directory_hold_what_was_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("records");
    let open = || Records::directory(path.clone()).unwrap();
    remembers(&open(), || Some(open())).await;
    let files = std::fs::read_dir(&path).unwrap();
    let names: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
    assert_eq!(names, ["podgc.json"], "nothing else is left behind");

    std::fs::write(path.join("podgc.json"), "{").unwrap();
    let error = open().status(&podgc()).await.unwrap_err().to_string();
    assert!(
        error.contains("podgc.json is not a record that Davit wrote"),
        "{error}"
    );
}

#[tokio::test]
async fn records_in_a_cluster_hold_what_was_written() {
    let cluster = Cluster::new();
    cluster.create("podgc", spec(1)).await.unwrap();
    cluster.create("other", spec(1)).await.unwrap();
    let open = || Records::cluster(cluster.davit.clone(), NAMESPACE);
    let records = open();
    activate(&records, &Owner::named("other"), "a", &read(7), None).await;
    remembers(&records, || Some(open())).await;
    assert_eq!(
        records.history(&Owner::named("other")).await.unwrap().len(),
        1
    );

    let uid = cluster.get("podgc")["metadata"]["uid"].clone();
    let revisions = cluster.revisions();
    let latest = revisions
        .iter()
        .find(|one| one["metadata"]["name"] == "podgc-r29")
        .unwrap();
    assert_eq!(
        latest["metadata"]["labels"]["davit.dev/controller"],
        "podgc"
    );
    let owner = &latest["metadata"]["ownerReferences"][0];
    assert_eq!(
        *owner,
        json!({
            "apiVersion": "davit.dev/v1alpha1", "kind": "Controller", "name": "podgc",
            "uid": uid, "controller": true,
        })
    );
    assert_eq!(
        latest["data"]["spec"],
        serde_json::to_value(read(29)).unwrap()
    );
}

/// The next status of a leader.
fn over(version: Option<StatusVersion>, stable_one: &str) -> Record {
    Record::Status(StatusWrite {
        status: Box::new(stable(stable_one)),
        replaces: version,
        conflict: StatusConflict::Fail,
    })
}

#[tokio::test]
async fn a_status_replaces_the_version_that_it_continues_from_with_one_request() {
    let cluster = Cluster::new();
    cluster.create("podgc", spec(1)).await.unwrap();
    let requests = || cluster.requests.load(Ordering::Relaxed);
    let records = Records::cluster(cluster.davit.clone(), NAMESPACE);
    let read = records.read(&podgc()).await.unwrap();
    let before = requests();
    let first = write(&records, &podgc(), over(read.version, "a")).await;
    let second = over(first.unwrap().version, "b");
    let second = write(&records, &podgc(), second).await.unwrap();
    assert_eq!(requests(), before + 2);
    assert_eq!(cluster.get("podgc")["status"]["stable"]["revision"], "b");
    assert_eq!(cluster.get("podgc")["metadata"]["generation"], 1);

    // A change of the spec costs another attempt, and nobody's status.
    cluster.change("podgc", json!({"spec": {"mode": "Disabled"}}));
    let before = requests();
    let third = over(second.version, "c");
    write(&records, &podgc(), third).await.unwrap();
    assert_eq!(requests(), before + 3);
    assert_eq!(cluster.get("podgc")["status"]["stable"]["revision"], "c");
    assert_eq!(cluster.get("podgc")["spec"]["mode"], "Disabled");
}

#[tokio::test]
async fn a_status_that_another_replica_has_replaced_is_not_written() {
    let cluster = Cluster::new();
    cluster.create("podgc", spec(1)).await.unwrap();
    let records = Records::cluster(cluster.davit.clone(), NAMESPACE);
    let read = records.read(&podgc()).await.unwrap();
    let other = json!({
        "stable": stable("theirs").stable,
        "host": {"id": "b", "name": "davit-b", "renewedAt": "2026-11-20T10:00:00.000Z"},
    });
    cluster.change("podgc", json!({"status": other}));
    let error = write(&records, &podgc(), over(read.version, "a")).await;
    assert_eq!(
        error.unwrap_err().to_string(),
        "cannot write the status of the Controller podgc: another replica, davit-b, has written \
         it since"
    );
    assert_eq!(
        cluster.get("podgc")["status"]["stable"]["revision"],
        "theirs"
    );
}

fn refused<T: std::fmt::Debug, E: std::error::Error>(answer: Result<T, E>) {
    let Err(error) = answer else {
        panic!("the Controller is gone: {answer:?}");
    };
    let error = error.to_string();
    assert!(error.contains("the Controller podgc is gone"), "{error}");
}

#[tokio::test]
async fn a_controller_that_is_gone_has_no_record() {
    let cluster = Cluster::new();
    cluster.create("podgc", spec(1)).await.unwrap();
    let records = Records::cluster(cluster.davit.clone(), NAMESPACE);
    activate(&records, &podgc(), "a", &read(1), None).await;
    activate(&records, &podgc(), "b", &read(2), None).await;
    save(&records, &podgc(), &stable("a")).await.unwrap();
    let delete = cluster.controllers();
    delete
        .delete("podgc", &DeleteParams::default())
        .await
        .unwrap();
    // A host that knows of no deletion yet runs nothing that it cannot record.
    refused(records.status(&podgc()).await);
    refused(save(&records, &podgc(), &stable("b")).await);
    refused(write_spec(&records, &podgc(), "c", &read(3), None).await);

    // Another Controller of the same name has its own history, even before the garbage
    // collector deletes the former one.
    cluster.create("podgc", spec(1)).await.unwrap();
    assert_eq!(
        records.status(&podgc()).await.unwrap(),
        ControllerStatus::default()
    );
    activate(&records, &podgc(), "a", &read(1), None).await;
    let uid = cluster.get("podgc")["metadata"]["uid"].clone();
    let revisions = cluster.revisions();
    let kept = revisions
        .iter()
        .find(|one| one["metadata"]["name"] == "podgc-a")
        .unwrap();
    assert_eq!(kept["metadata"]["ownerReferences"][0]["uid"], uid);
    assert_eq!(kept["revision"], 1);
}

/// A late write about the former Controller: its resource is gone, and another one has
/// its name.
#[tokio::test]
async fn another_controller_of_the_same_name_has_nothing_of_the_former_one() {
    let cluster = Cluster::new();
    let uid = || {
        let uid = &cluster.get("podgc")["metadata"]["uid"];
        uid.as_str().unwrap().to_owned()
    };
    let records = Records::cluster(cluster.davit.clone(), NAMESPACE);
    cluster.create("podgc", spec(1)).await.unwrap();
    let former = uid();
    let former = Owner {
        name: "podgc".into(),
        uid: Some(former),
    };
    activate(&records, &former, "a", &read(1), None).await;
    save(&records, &former, &stable("a")).await.unwrap();
    let delete = DeleteParams::default();
    cluster
        .controllers()
        .delete("podgc", &delete)
        .await
        .unwrap();
    cluster.create("podgc", spec(2)).await.unwrap();
    let present = uid();
    let present = Owner {
        name: "podgc".into(),
        uid: Some(present),
    };

    refused(save(&records, &former, &stable("b")).await);
    refused(write_spec(&records, &former, "b", &read(3), None).await);
    assert!(cluster.get("podgc").get("status").is_none());
    refused(records.status(&former).await);
    let nothing = ControllerStatus::default();
    assert_eq!(records.status(&present).await.unwrap(), nothing);
    assert_eq!(records.spec(&present, "a").await.unwrap(), None);
    assert_eq!(records.history(&present).await.unwrap(), []);
    assert_eq!(records.spec(&former, "a").await.unwrap(), Some(read(1)));
    let names: Vec<Value> = cluster
        .revisions()
        .iter()
        .map(|one| one["metadata"]["name"].clone())
        .collect();
    assert_eq!(names, ["podgc-a"], "nothing more is kept of it");
    save(&records, &present, &stable("c")).await.unwrap();
    assert_eq!(cluster.get("podgc")["status"]["stable"]["revision"], "c");

    // A status that the definition refuses is an error, not a missing resource.
    let bad = ControllerStatus {
        conditions: vec![ConditionStatus {
            status: "Perhaps".into(),
            ..ConditionStatus::default()
        }],
        ..ControllerStatus::default()
    };
    let error = save(&records, &present, &bad)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("cannot write the status of the Controller podgc"),
        "{error}"
    );
}
