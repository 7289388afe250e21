//! The example in a small cluster with a clock of its own.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::time::Duration;

use davit_guest::testing::Harness;
use serde_json::{Value, json};
use website::{QUEUE, Websites};

const MINUTE: Duration = Duration::from_secs(60);

/// A cluster with the site `ns/shop`.
fn harness() -> Harness<Websites> {
    let mut harness = Harness::new(&json!({})).unwrap();
    harness.put(serde_saphyr::from_str(include_str!("../crd.yaml")).unwrap());
    harness.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}}));
    harness.put(site("u-1"));
    harness.advance(MINUTE);
    harness
}

fn site(uid: &str) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Website",
        "metadata": {"namespace": "ns", "name": "shop", "uid": uid, "generation": 1},
        "spec": {"html": "<h1>Shop</h1>", "replicas": 2},
    })
}

fn object(harness: &Harness<Websites>, kind: &str) -> Value {
    harness.object(kind, "ns/shop").unwrap_or_default()
}

/// The status of the site's conditions, and the reason of `Ready`.
fn conditions(harness: &Harness<Websites>) -> (Vec<String>, String) {
    let status = object(harness, "Website")["status"].clone();
    let conditions = status["conditions"].as_array().unwrap();
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap().to_owned();
    let all = conditions.iter();
    let all = all.map(|it| format!("{}={}", text(it, "type"), text(it, "status")));
    (all.collect(), text(&conditions[0], "reason"))
}

fn serve(harness: &mut Harness<Websites>, available: i32) {
    let mut server = object(harness, "Deployment");
    server["status"] = json!({"availableReplicas": available});
    harness.put(server);
    harness.run();
}

#[test]
fn a_site_has_a_page_a_deployment_and_conditions() {
    let mut harness = harness();
    let page = object(&harness, "ConfigMap");
    assert_eq!(page["data"]["index.html"], "<h1>Shop</h1>");
    let server = object(&harness, "Deployment");
    assert_eq!(server["spec"]["replicas"], 2);
    for owned in [page, server] {
        let owners = &owned["metadata"]["ownerReferences"];
        assert_eq!(owners[0]["uid"], "u-1");
        assert_eq!(owners[0]["controller"], true);
    }
    let (all, reason) = conditions(&harness);
    assert_eq!(all, ["Ready=False", "Reconciling=True"]);
    assert_eq!(reason, "ServersStart");
    serve(&mut harness, 2);
    let (all, reason) = conditions(&harness);
    assert_eq!(
        (all, reason.as_str()),
        (vec!["Ready=True".to_owned()], "Served")
    );
    assert_eq!(
        object(&harness, "Website")["status"]["observedGeneration"],
        1
    );
}

#[test]
fn a_site_that_is_as_it_should_be_is_not_written() {
    let mut harness = harness();
    serve(&mut harness, 2);
    harness.clear_executions();
    harness.enqueue(QUEUE, "u-1");
    harness.advance(10 * MINUTE);
    assert_eq!(harness.executions(), []);
}

#[test]
fn a_change_of_the_spec_changes_what_the_site_owns() {
    let mut harness = harness();
    let mut changed = object(&harness, "Website");
    changed["spec"] = json!({"html": "new", "replicas": 3});
    changed["metadata"]["generation"] = json!(2);
    harness.put(changed);
    harness.run();
    assert_eq!(object(&harness, "ConfigMap")["data"]["index.html"], "new");
    assert_eq!(object(&harness, "Deployment")["spec"]["replicas"], 3);
    assert_eq!(
        object(&harness, "Website")["status"]["observedGeneration"],
        2
    );
}

#[test]
fn what_somebody_changes_or_deletes_comes_back() {
    let mut harness = harness();
    let mut page = object(&harness, "ConfigMap");
    page["data"] = json!({"index.html": "hacked", "robots.txt": "kept"});
    harness.put(page);
    harness.remove("Deployment", "ns/shop");
    harness.run();
    let data = &object(&harness, "ConfigMap")["data"];
    assert_eq!(
        data,
        &json!({"index.html": "<h1>Shop</h1>", "robots.txt": "kept"})
    );
    assert_eq!(object(&harness, "Deployment")["spec"]["replicas"], 2);
}

/// Whatever fields it has: the garbage collector would delete it with the site.
#[test]
fn an_object_of_somebody_else_stays_as_it_is() {
    for data in [
        json!({"index.html": "of somebody else"}),
        json!({"nginx.conf": "events {}"}),
    ] {
        let mut harness = harness();
        let foreign = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "ns", "name": "shop", "uid": "u-9"},
            "data": data,
        });
        harness.put(foreign);
        harness.advance(MINUTE);
        let page = object(&harness, "ConfigMap");
        assert_eq!(page["data"], data);
        assert_eq!(page["metadata"]["ownerReferences"], Value::Null);
        let (all, reason) = conditions(&harness);
        assert_eq!(all, ["Ready=False", "Reconciling=True"]);
        assert_eq!(reason, "WriteFailed");
        harness.clear_executions();
        harness.advance(10 * MINUTE);
        let writes = harness.executions().len();
        assert!(writes < 10, "{writes} plans: the back-off applies");
        harness.remove("ConfigMap", "ns/shop");
        harness.advance(20 * MINUTE);
        assert_eq!(
            object(&harness, "ConfigMap")["data"]["index.html"],
            "<h1>Shop</h1>"
        );
    }
}

/// Such as that of another controller, which also writes the status.
#[test]
fn a_condition_of_somebody_else_stays_theirs() {
    let mut harness = harness();
    let mut site = object(&harness, "Website");
    let secure = json!({"type": "Secure", "status": "True", "reason": "Tls", "message": "",
        "lastTransitionTime": "2023-11-14T22:13:20Z"});
    site["status"]["conditions"]
        .as_array_mut()
        .unwrap()
        .push(secure.clone());
    harness.put(site);
    serve(&mut harness, 2);
    let site = object(&harness, "Website");
    let all = site["status"]["conditions"].as_array().unwrap();
    assert!(all.contains(&secure), "{all:?}");
    let fields = site["metadata"]["managedFields"].as_array().unwrap();
    let own: Vec<_> = fields
        .iter()
        .filter(|it| it["operation"] == "Apply")
        .collect();
    assert!(!own.is_empty());
    for entry in own {
        let text = entry["fieldsV1"].to_string();
        assert!(!text.contains("Secure"), "{text}");
    }
}

#[test]
fn the_deployment_of_a_deleted_site_ends_before_the_site() {
    let mut harness = harness();
    let mut deleted = object(&harness, "Website");
    let finalizers = deleted["metadata"]["finalizers"].as_array_mut().unwrap();
    assert_eq!(finalizers, &[json!("example.com/servers-first")]);
    finalizers.insert(0, json!("example.com/of-somebody-else"));
    deleted["metadata"]["deletionTimestamp"] = json!("2023-11-14T22:13:20Z");
    harness.put(deleted);
    harness.run();
    // It waits for its pods, and the site for it.
    let server = object(&harness, "Deployment");
    assert!(server["metadata"]["deletionTimestamp"].is_string());
    let finalizers = object(&harness, "Website")["metadata"]["finalizers"].clone();
    assert_eq!(finalizers[1], "example.com/servers-first");
    harness.remove("Deployment", "ns/shop");
    harness.run();
    let metadata = &object(&harness, "Website")["metadata"];
    assert_eq!(
        metadata["finalizers"],
        json!(["example.com/of-somebody-else"])
    );
    let reasons = harness.executions().iter().rev().take(2);
    let targets: Vec<&str> = reasons.map(|it| it.plan.target.kind.as_str()).collect();
    assert_eq!(targets, ["Website", "Deployment"], "the last first");
}

/// The garbage collector will delete the page of the former site, whose owner is gone.
#[test]
fn a_site_of_the_same_name_waits_until_the_page_of_the_former_one_is_gone() {
    let mut harness = harness();
    harness.remove("Website", "ns/shop");
    harness.put(site("u-2"));
    harness.advance(MINUTE);
    let owner = |harness: &Harness<Websites>, kind: &str| {
        let owners = object(harness, kind)["metadata"]["ownerReferences"].clone();
        owners[0]["uid"].clone()
    };
    for kind in ["ConfigMap", "Deployment"] {
        assert_eq!(owner(&harness, kind), "u-1", "{kind}");
        harness.remove(kind, "ns/shop");
    }
    harness.advance(20 * MINUTE);
    for kind in ["ConfigMap", "Deployment"] {
        assert_eq!(owner(&harness, kind), "u-2", "{kind}");
    }
}
