use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::testing::Harness;
use crate::{
    ConfigError, Context, Controller, Decision, Identity, Patch, Plan, QueueSpec, Reason, Resource,
    Retry, WatchName, WorkItem, resources, value,
};

const SITES: WatchName<Identity> = WatchName::new("sites");
const PAGES: WatchName<Page> = WatchName::new("pages");
const QUEUE: QueueName = QueueName::new("sites");
const SITE: Resource = Resource::new("example.com", "v1", "sites");
const WRONG: Reason = Reason::new("wrong");

#[derive(Default, View)]
struct Page {
    #[view(path = "data.text")]
    text: String,
}

/// A site has one page.
struct Sites;

impl Controller for Sites {
    type Config = Identity;

    fn new(_: Identity) -> Result<Self, ConfigError> {
        Ok(Self)
    }

    fn manifest(&self) -> Manifest {
        Manifest::new("sites", "1", "Sites.")
            .queue(QueueSpec::new(QUEUE))
            .reconciles(Watch::of(SITES, SITE), QUEUE)
            .owns(Watch::of(PAGES, resources::CONFIG_MAPS), QUEUE)
            .applies(resources::CONFIG_MAPS)
            .reads_live(resources::CONFIG_MAPS)
    }

    fn reconcile(&self, cx: &Context<'_>, item: &WorkItem) -> Result<Decision, Retry> {
        let Some(site) = cx.watch(SITES).get_by_uid(&item.key) else {
            return Ok(Decision::done());
        };
        let page = cx.watch(PAGES).owned_by(&site.reference).next();
        if page.as_ref().is_some_and(|page| page.view.text == "hello") {
            return Ok(Decision::done());
        }
        let data = value!({"text": "hello"});
        let wanted = value!({"apiVersion": "v1", "kind": "ConfigMap", "data": data});
        let wanted = Patch::apply_owned(&site.reference, page.as_ref(), wanted);
        let plan = Plan::new(site.reference, WRONG, "the page is not as it should be");
        Ok(Decision::done().plans([plan.patch(wanted)]))
    }
}

fn harness() -> Harness<Sites> {
    let mut harness = Harness::new(&json!({})).unwrap();
    harness.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}}));
    harness.put(site("u-1"));
    harness.run();
    harness
}

fn site(uid: &str) -> Value {
    let metadata = json!({"namespace": "ns", "name": "a", "uid": uid});
    json!({"apiVersion": "example.com/v1", "kind": "Site", "metadata": metadata})
}

fn page(harness: &Harness<Sites>) -> Value {
    harness.object("ConfigMap", "ns/a").unwrap_or_default()
}

/// Its labels stay, and the reference to the owner is added.
#[test]
fn a_configuration_may_have_metadata_of_its_own() {
    let body = |owner: &ObjectRef, metadata: crate::dynamic::Value| {
        let wanted = value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        let patch = Patch::apply_owned::<Page>(owner, None, wanted);
        let mut body: Value = msgpack::decode(&patch.body).unwrap_or_default();
        let owners = body["metadata"]["ownerReferences"].take();
        assert_eq!(owners[0]["uid"], owner.uid);
        body["metadata"].clone()
    };
    let namespaced = ObjectRef::named("example.com/v1", "Site", "ns", "a");
    assert_eq!(
        body(
            &namespaced,
            value!({"name": "b", "namespace": "elsewhere", "labels": {"tier": "web"}})
        ),
        json!({"namespace": "ns", "name": "b", "labels": {"tier": "web"}, "ownerReferences": null})
    );
    let cluster_scoped = ObjectRef::named("example.com/v1", "Site", "", "a");
    assert_eq!(
        body(&cluster_scoped, value!({"namespace": "sites"})),
        json!({"namespace": "sites", "name": "a", "ownerReferences": null})
    );
}

#[test]
fn an_owned_object_is_created_with_the_reference_of_its_controller() {
    let harness = harness();
    let page = page(&harness);
    assert_eq!(page["data"], json!({"text": "hello"}));
    assert_eq!(
        page["metadata"]["ownerReferences"],
        json!([{
            "apiVersion": "example.com/v1", "kind": "Site", "name": "a", "uid": "u-1",
            "controller": true, "blockOwnerDeletion": true,
        }])
    );
    assert_eq!(
        harness.executions().len(),
        1,
        "the own write is no reason to write"
    );
}

#[test]
fn only_the_api_server_proves_that_an_owned_object_is_gone() {
    let mut harness = harness();
    let is_gone = |harness: &Harness<Sites>| {
        harness.observe(|_, cx| {
            let site = cx.watch(SITES).get_by_uid("u-1").unwrap().reference;
            cx.prove_gone(&site, "v1", "ConfigMap", "a").is_ok()
        })
    };
    assert!(!is_gone(&harness));
    let owned = page(&harness);
    harness.hide("ConfigMap", "ns/a");
    assert!(!is_gone(&harness), "the cache alone lacks it");
    let mut of_nobody = owned.clone();
    of_nobody["metadata"]["ownerReferences"] = json!([]);
    harness.put(of_nobody);
    assert!(is_gone(&harness), "it is not the site's");
    harness.put(owned);
    harness.remove("ConfigMap", "ns/a");
    assert!(is_gone(&harness));
    harness.fail_reads("ConfigMap", "ns/a", "server");
    assert!(!is_gone(&harness), "no answer is no proof");
}

#[test]
fn a_change_of_an_owned_object_is_undone() {
    let mut harness = harness();
    let mut changed = page(&harness);
    changed["data"]["text"] = json!("bye");
    harness.put(changed);
    harness.run();
    assert_eq!(page(&harness)["data"]["text"], "hello");
    harness.remove("ConfigMap", "ns/a");
    harness.run();
    assert_eq!(page(&harness)["data"]["text"], "hello");
}

/// A site of the same uid, a site of the group, and the controller: each may be another.
#[test]
fn only_the_reference_of_the_controller_counts() {
    let mut harness = harness();
    for (field, other) in [
        ("kind", json!("Page")),
        ("apiVersion", json!("other.example.com/v1")),
        ("controller", json!(false)),
    ] {
        harness.clear_executions();
        let mut of_other = page(&harness);
        of_other["metadata"]["ownerReferences"][0][field] = other;
        harness.put(of_other);
        harness.run();
        let [execution] = harness.executions() else {
            panic!("{field}: {:?}", harness.executions());
        };
        let crate::Step::Patch(patch) = &execution.plan.steps[0] else {
            panic!("{execution:?}");
        };
        assert_eq!(patch.kind, "apply", "{field}: it counts as missing");
        // The next case starts with a page of its own.
        harness.remove("ConfigMap", "ns/a");
        harness.run();
    }
}

/// The plan was decided when the cache had the former object.
#[test]
fn an_object_that_was_created_again_is_not_written_as_the_former_one() {
    let mut harness = harness();
    let mut former = page(&harness);
    former["data"]["text"] = json!("bye");
    let mut new = former.clone();
    new["metadata"]["uid"] = json!("u-9");
    new["metadata"]["ownerReferences"] = json!([]);
    new["data"]["text"] = json!("of somebody else");
    harness.put_on_server(new);
    harness.clear_executions();
    harness.enqueue(QUEUE, "u-1");
    harness.run();
    assert!(
        harness.executions().is_empty(),
        "the cache has the page as it should be"
    );
    harness.remove("ConfigMap", "ns/a");
    harness.put(former.clone());
    former["metadata"]["uid"] = json!("u-9");
    former["data"]["text"] = json!("of somebody else");
    harness.put_on_server(former);
    harness.run();
    let refused = harness.executions().last().map(|it| it.result.clone());
    let Some(Err((0, failure))) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(failure.class, crate::FailureClass::Conflict);
    assert_eq!(page(&harness)["data"]["text"], "of somebody else");
    // The guest decides again, when it sees the new object.
    harness.show("ConfigMap", "ns/a");
    harness.advance(Duration::from_secs(5));
    assert_eq!(page(&harness)["data"]["text"], "hello");
}
