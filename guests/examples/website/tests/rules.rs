//! The example in a small cluster with a clock of its own.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

use std::time::Duration;

use davit_guest::Step;
use davit_guest::testing::Harness;
use serde_json::{Value, json};
use website::{QUEUE, Websites};

const MINUTE: Duration = Duration::from_secs(60);
const FINALIZER: &str = "example.com/servers-first";
const OF_SOMEBODY_ELSE: &str = "example.com/of-somebody-else";

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

fn put_available(harness: &mut Harness<Websites>, available: i32) {
    let mut server = object(harness, "Deployment");
    server["status"] = json!({"availableReplicas": available});
    harness.put(server);
}

fn serve(harness: &mut Harness<Websites>, available: i32) {
    put_available(harness, available);
    harness.run();
}

/// Marks the site as deleted. It has this finalizer too.
fn delete_site(harness: &mut Harness<Websites>, finalizer: &str) {
    let mut deleted = object(harness, "Website");
    let finalizers = deleted["metadata"]["finalizers"].as_array_mut().unwrap();
    assert_eq!(finalizers, &[json!(FINALIZER)]);
    finalizers.insert(0, json!(finalizer));
    deleted["metadata"]["deletionTimestamp"] = json!("2023-11-14T22:13:20Z");
    harness.put(deleted);
}

fn finalizers(harness: &Harness<Websites>) -> Value {
    object(harness, "Website")["metadata"]["finalizers"].clone()
}

fn is_deleted(harness: &Harness<Websites>, kind: &str) -> bool {
    object(harness, kind)["metadata"]["deletionTimestamp"].is_string()
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
    delete_site(&mut harness, OF_SOMEBODY_ELSE);
    harness.run();
    // It waits for its pods, and the site for it.
    assert!(is_deleted(&harness, "Deployment"));
    assert_eq!(finalizers(&harness), json!([OF_SOMEBODY_ELSE, FINALIZER]));
    harness.remove("Deployment", "ns/shop");
    harness.run();
    assert_eq!(finalizers(&harness), json!([OF_SOMEBODY_ELSE]));
    let reasons = harness.executions().iter().rev().take(2);
    let targets: Vec<&str> = reasons.map(|it| it.plan.target.kind.as_str()).collect();
    assert_eq!(targets, ["Website", "Deployment"], "the last first");
}

#[test]
fn a_deleted_site_waits_for_a_deployment_that_the_cache_does_not_have() {
    let mut harness = harness();
    harness.hide("Deployment", "ns/shop");
    delete_site(&mut harness, OF_SOMEBODY_ELSE);
    harness.advance(MINUTE);
    assert_eq!(finalizers(&harness), json!([OF_SOMEBODY_ELSE, FINALIZER]));
    harness.show("Deployment", "ns/shop");
    harness.run();
    assert!(is_deleted(&harness, "Deployment"));
    harness.remove("Deployment", "ns/shop");
    harness.run();
    assert_eq!(finalizers(&harness), json!([OF_SOMEBODY_ELSE]));
}

/// `kubectl delete --cascade=orphan`: the garbage collector removes the site from the owners of
/// the Deployment, then its own finalizer from the site.
#[test]
fn the_deployment_of_a_site_that_is_deleted_alone_stays() {
    let mut harness = harness();
    delete_site(&mut harness, "orphan");
    harness.advance(MINUTE);
    assert!(!is_deleted(&harness, "Deployment"));
    assert_eq!(finalizers(&harness), json!(["orphan", FINALIZER]));
    // The cache gets the second change first.
    let mut server = object(&harness, "Deployment");
    server["metadata"]["ownerReferences"] = json!([]);
    harness.put_on_server(server);
    let mut site = object(&harness, "Website");
    site["metadata"]["finalizers"] = json!([FINALIZER]);
    harness.put(site);
    harness.run();
    assert!(!is_deleted(&harness, "Deployment"));
    assert_eq!(finalizers(&harness), json!([FINALIZER]));
    harness.show("Deployment", "ns/shop");
    harness.advance(MINUTE);
    assert!(!is_deleted(&harness, "Deployment"));
    assert_eq!(harness.keys("Deployment"), ["ns/shop"]);
    assert_eq!(harness.keys("Website"), [""; 0]);
}

#[test]
fn a_site_is_not_ready_for_a_generation_that_is_not_written_yet() {
    let mut harness = harness();
    serve(&mut harness, 2);
    harness.fail_writes("ConfigMap", "ns/shop", "invalid");
    let mut changed = object(&harness, "Website");
    changed["spec"]["html"] = json!("new");
    changed["metadata"]["generation"] = json!(2);
    harness.put(changed);
    let decision = harness.decide(QUEUE, "u-1");
    let Step::Patch(first) = &decision.plans[0].steps[0] else {
        panic!("{decision:?}");
    };
    let status = String::from_utf8_lossy(&first.body);
    assert!(
        status.contains("Updating") && !status.contains("Served"),
        "{status}"
    );
    harness.run();
    let status = object(&harness, "Website")["status"].clone();
    assert_eq!(status["observedGeneration"], 2);
    let (all, _) = conditions(&harness);
    assert_eq!(all, ["Ready=False", "Reconciling=True"]);
    harness.advance(10 * MINUTE);
    let (all, reason) = conditions(&harness);
    assert_eq!(all, ["Ready=False", "Reconciling=True"]);
    assert_eq!(reason, "WriteFailed");
    harness.heal();
    harness.advance(10 * MINUTE);
    assert_eq!(object(&harness, "ConfigMap")["data"]["index.html"], "new");
    let (all, reason) = conditions(&harness);
    assert_eq!(all, ["Ready=True"]);
    assert_eq!(reason, "Served");
}

/// The status has the version that was read, so it is not written. Nothing else has failed.
#[test]
fn a_change_of_the_site_by_somebody_else_is_no_failed_write() {
    let mut harness = harness();
    put_available(&mut harness, 2);
    harness.clear_executions();
    harness.call_during(QUEUE, "u-1", |harness| {
        let mut site = object(harness, "Website");
        site["metadata"]["labels"] = json!({"tier": "web"});
        harness.put(site);
    });
    harness.advance(MINUTE);
    let executions = harness.executions().iter();
    let results: Vec<bool> = executions.map(|it| it.result.is_ok()).collect();
    assert_eq!(results, [false, true], "the status, and the status again");
    let (all, reason) = conditions(&harness);
    assert_eq!(all, ["Ready=True"]);
    assert_eq!(reason, "Served");
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
