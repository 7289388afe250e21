//! Updates as in kube-apiserver 1.36: the defaults that it adds, and the order of its
//! errors.

use davit_sim::Sim;
use serde_json::{Value, json};

use crate::support::{call, sim};

const CORE: &str = "/api/v1/namespaces/default";

async fn must(sim: &Sim, method: &str, path: &str, body: Value) -> Value {
    let (status, answer) = call(sim, method, path, Some(body)).await;
    assert!((200..300).contains(&status), "{method} {path}: {answer}");
    answer
}

/// An old kubelet sends a status without new fields.
#[tokio::test(start_paused = true)]
async fn a_pod_status_keeps_fields_that_a_client_omits() {
    let sim = sim();
    must(
        &sim,
        "POST",
        &format!("{CORE}/pods"),
        crate::support::pod("p"),
    )
    .await;
    let path = format!("{CORE}/pods/p/status");
    let condition = |kind: &str, generation: Option<u64>| {
        let mut condition = json!({"type": kind, "status": "True"});
        if let Some(generation) = generation {
            condition["observedGeneration"] = json!(generation);
        }
        condition
    };
    let mut pod = must(
        &sim,
        "PATCH",
        &path,
        json!({"status": {"observedGeneration": 1, "conditions": [condition("Ready", Some(1))]}}),
    )
    .await;
    let class = pod["status"]["qosClass"].clone();
    assert_eq!(class, "BestEffort");
    pod["status"] = json!({
        "phase": "Running", "conditions": [condition("Ready", None), condition("Initialized", None)],
    });
    let stored = must(&sim, "PUT", &path, pod.clone()).await;
    let status = &stored["status"];
    assert_eq!(status["phase"], "Running");
    assert_eq!(status["qosClass"], class);
    assert_eq!(status["observedGeneration"], 1);
    assert_eq!(status["conditions"][0]["observedGeneration"], 1);
    assert_eq!(status["conditions"][1]["observedGeneration"], Value::Null);

    // The same body again: its version is stale now.
    let (code, answer) = call(&sim, "PUT", &path, Some(pod)).await;
    assert_eq!((code, &answer["reason"]), (409, &json!("Conflict")));
    // A class of another name is still refused.
    let class = json!({"status": {"qosClass": "Guaranteed"}});
    let (code, _) = call(&sim, "PATCH", &path, Some(class)).await;
    assert_eq!(code, 422);
}

/// A client with a stale object retries on 409 and not on 422, so a stale version must
/// be found before any other error.
#[tokio::test(start_paused = true)]
async fn a_stale_version_is_a_conflict_before_it_is_invalid() {
    let sim = sim();
    must(&sim, "POST", DEFINITIONS, definition("widgets", "Widget")).await;
    let resources = sim.with_model(|model, _| model.resources().to_vec());
    let writable = resources.iter().filter(|one| one.verbs.contains(&"update"));
    for resource in writable {
        let mut collection = match resource.group.as_str() {
            "" => "/api/v1".to_owned(),
            _ => format!("/apis/{}", resource.api_version()),
        };
        if resource.namespaced {
            collection += "/namespaces/default";
        }
        collection = format!("{collection}/{}", resource.plural);
        let mut object = example(&resource.plural);
        object["apiVersion"] = resource.api_version().into();
        object["kind"] = json!(resource.kind);
        let created = must(&sim, "POST", &collection, object).await;
        let name = created["metadata"]["name"].as_str().unwrap();
        conflicts_first(&sim, &format!("{collection}/{name}"), created.clone()).await;
        if resource.has_status() {
            let path = format!("{collection}/{name}/status");
            conflicts_first(&sim, &path, created).await;
        }
    }
}

/// Writes `stale` when another version is stored.
async fn conflicts_first(sim: &Sim, path: &str, mut stale: Value) {
    let before = call(sim, "GET", path, None).await.1;
    stale["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
    let parent = path.trim_end_matches("/status");
    let touched = json!({"metadata": {"labels": {"after": before["metadata"]["resourceVersion"]}}});
    let fresh = must(sim, "PATCH", parent, touched).await;
    assert_ne!(
        fresh["metadata"]["resourceVersion"],
        stale["metadata"]["resourceVersion"]
    );
    stale["metadata"]["uid"] = json!("00000000-0000-4000-8000-000000000000");
    for method in ["PUT", "PATCH"] {
        let (code, answer) = call(sim, method, path, Some(stale.clone())).await;
        assert_eq!(
            (code, &answer["reason"]),
            (409, &json!("Conflict")),
            "{method} {path}: {answer}"
        );
    }
    // The object is invalid as well: it has another uid. The status of a custom object
    // is written regardless of the metadata in the body.
    let version = fresh["metadata"]["resourceVersion"].clone();
    stale["metadata"]["resourceVersion"] = version;
    let expected = if path.ends_with("widgets/x/status") {
        200
    } else {
        422
    };
    let (code, answer) = call(sim, "PATCH", path, Some(stale)).await;
    assert_eq!(code, expected, "PATCH {path}: {answer}");
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn definition(plural: &str, kind: &str) -> Value {
    json!({
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }},
            }],
        },
    })
}

/// An object of a resource that can be created.
fn example(plural: &str) -> Value {
    let container = json!([{"name": "c", "image": "i"}]);
    let template = json!({
        "metadata": {"labels": {"app": "x"}}, "spec": {"containers": container},
    });
    let selector = json!({"matchLabels": {"app": "x"}});
    let job = json!({"template": {"spec": {"restartPolicy": "Never", "containers": container}}});
    let mut object = match plural {
        "pods" => json!({"spec": template["spec"]}),
        "podtemplates" => json!({"template": template}),
        "replicationcontrollers" => json!({"spec": {"template": template}}),
        "services" => json!({"spec": {"ports": [{"port": 1}]}}),
        "controllerrevisions" => json!({"revision": 1}),
        "daemonsets" | "deployments" | "replicasets" | "statefulsets" => {
            json!({"spec": {"selector": selector, "template": template}})
        }
        "cronjobs" => json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job}}}),
        "jobs" => json!({"spec": job}),
        "endpointslices" => json!({"addressType": "IPv4", "endpoints": []}),
        "rolebindings" | "clusterrolebindings" => {
            json!({"roleRef": {"kind": "ClusterRole", "name": "r"}})
        }
        "priorityclasses" => json!({"value": 1}),
        "events" => json!({
            "involvedObject": {"namespace": "default"}, "regarding": {"namespace": "default"},
            "eventTime": "2026-01-01T00:00:00.000000Z", "action": "a", "reason": "r", "type": "Normal",
            "reportingController": "e.com/c", "reportingComponent": "e.com/c", "reportingInstance": "i",
        }),
        "customresourcedefinitions" => return definition("gadgets", "Gadget"),
        _ => json!({}),
    };
    // Both groups of events share their objects.
    let name = match plural {
        "storageversions" => json!({"name": "apps.deployments"}),
        "events" => json!({"generateName": "x"}),
        _ => json!({"name": "x"}),
    };
    object["metadata"] = name;
    object
}

/// The annotation is the wire form of a field that only the server writes.
#[tokio::test(start_paused = true)]
async fn a_daemon_set_counts_the_changes_of_its_template() {
    const KEY: &str = "deprecated.daemonset.template.generation";
    let sim = sim();
    let collection = "/apis/apps/v1/namespaces/default/daemonsets";
    let path = format!("{collection}/x");
    let mut set = example("daemonsets");
    let shown = |set: &Value| {
        (
            set["metadata"]["annotations"][KEY].clone(),
            set["metadata"]["generation"].clone(),
        )
    };
    let created = must(&sim, "POST", collection, set.clone()).await;
    assert_eq!(shown(&created), (json!("1"), json!(1)));

    let image = json!([{"name": "c", "image": "j"}]);
    let change = json!({"spec": {"template": {"spec": {"containers": image}}}});
    let changed = must(&sim, "PATCH", &path, change.clone()).await;
    assert_eq!(shown(&changed), (json!("2"), json!(2)));
    let same = must(&sim, "PATCH", &path, change).await;
    assert_eq!(
        same["metadata"]["resourceVersion"],
        changed["metadata"]["resourceVersion"]
    );

    // The rest of the spec has a generation too, but an annotation of a client does not
    // count.
    let wait = json!({
        "spec": {"minReadySeconds": 5}, "metadata": {"annotations": {KEY: "9", "own": "a"}},
    });
    let changed = must(&sim, "PATCH", &path, wait).await;
    assert_eq!(shown(&changed), (json!("2"), json!(3)));
    assert_eq!(changed["metadata"]["annotations"]["own"], "a");
    let cleared = json!({"metadata": {"annotations": null}});
    let cleared = must(&sim, "PATCH", &path, cleared).await;
    assert_eq!(cleared["metadata"]["annotations"], json!({KEY: "2"}));
    let mut status = cleared.clone();
    status["metadata"]["annotations"] = json!({});
    status["status"]["desiredNumberScheduled"] = json!(1);
    let status = must(&sim, "PUT", &format!("{path}/status"), status).await;
    assert_eq!(shown(&status), (json!("2"), json!(3)));

    // An imported set has its own annotation; one that is not a number is refused.
    set["metadata"] = json!({"name": "y", "annotations": {KEY: "7"}});
    assert_eq!(
        shown(&must(&sim, "POST", collection, set.clone()).await).0,
        "7"
    );
    set["metadata"] = json!({"name": "z", "annotations": {KEY: "seven"}});
    let (code, answer) = call(&sim, "POST", collection, Some(set)).await;
    assert_eq!(code, 400);
    assert_eq!(
        answer["message"],
        "DaemonSet in version \"v1\" cannot be handled as a DaemonSet: strconv.ParseInt: parsing \"seven\": invalid syntax"
    );
}
