//! Behaviour that the recorded exchanges do not cover: pages during changes, history,
//! bookmarks, namespaces, both forms of events, tables, loading, helpers.

use std::time::Duration;

use davit_sim::fault::Match;
use davit_sim::helpers::{Kubelet, KubeletOptions, NamespaceController};
use davit_sim::model::{DeleteOptions, DeletionKind};
use davit_sim::{Config, Sim};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::{call, config_map, pod, send, sim, watch};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn names(list: &Value) -> Vec<&str> {
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn pages_show_one_version_until_it_expires() {
    let sim = sim();
    for name in ["a", "b", "c", "d"] {
        sim.create(config_map(name)).unwrap();
    }
    let (_, first) = call(&sim, "GET", &format!("{MAPS}?limit=2"), None).await;
    assert_eq!(names(&first), ["a", "b"]);
    let more = first["metadata"]["continue"].as_str().unwrap().to_owned();
    sim.delete("v1", "ConfigMap", "default", "c", &DeleteOptions::default())
        .unwrap();
    sim.create(config_map("bb")).unwrap();
    let next = format!("{MAPS}?limit=2&continue={more}");
    let (_, second) = call(&sim, "GET", &next, None).await;
    assert_eq!(names(&second), ["c", "d"]);
    assert_eq!(
        second["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );

    let exact = format!(
        "{MAPS}?resourceVersion={}&resourceVersionMatch=Exact",
        first["metadata"]["resourceVersion"].as_str().unwrap()
    );
    assert_eq!(
        names(&call(&sim, "GET", &exact, None).await.1),
        ["a", "b", "c", "d"]
    );

    sim.with_model(|model, _| model.compact());
    assert_eq!(call(&sim, "GET", &exact, None).await.0, 410);
    let (status, expired) = call(&sim, "GET", &next, None).await;
    assert_eq!((status, expired["reason"].as_str()), (410, Some("Expired")));
    // The answer has a token to continue with the present state.
    let inconsistent = expired["metadata"]["continue"].as_str().unwrap();
    let rest = format!("{MAPS}?limit=2&continue={inconsistent}");
    assert_eq!(names(&call(&sim, "GET", &rest, None).await.1), ["bb", "d"]);
}

#[tokio::test(start_paused = true)]
async fn versions_to_come_are_refused() {
    let sim = sim();
    let (status, body) = call(&sim, "GET", &format!("{MAPS}?resourceVersion=999999"), None).await;
    assert_eq!(status, 504);
    assert_eq!(
        body["details"]["causes"][0]["reason"],
        "ResourceVersionTooLarge"
    );
}

#[tokio::test(start_paused = true)]
async fn history_is_kept_for_its_window() {
    let sim = sim();
    let created = sim.create(config_map("a")).unwrap();
    let from = created["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{MAPS}?watch=true&resourceVersion={from}");
    sim.create(config_map("b")).unwrap();
    sleep(Duration::from_secs(299)).await;
    sim.create(config_map("c")).unwrap();
    assert_eq!(watch(&sim, &path).await.event().await.1, "b");
    sleep(Duration::from_secs(2)).await;
    sim.create(config_map("d")).unwrap();
    assert_eq!(watch(&sim, &path).await.event().await.0, "ERROR");
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_by_the_minute_and_watches_end_in_time() {
    let sim = sim();
    let path = format!("{MAPS}?watch=true&allowWatchBookmarks=true&timeoutSeconds=150");
    let mut lines = watch(&sim, &path).await;
    for _ in 0..2 {
        let bookmark = lines.next().await.unwrap().unwrap();
        assert_eq!(bookmark["type"], "BOOKMARK");
        assert_eq!(bookmark["object"]["kind"], "ConfigMap");
    }
    assert!(lines.next().await.is_none());
    assert_eq!(sim.now().unix(), 150);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_removed_after_its_content() {
    let sim = sim();
    let _controller = NamespaceController::start(&sim);
    let mut map = config_map("a");
    map["metadata"]["namespace"] = json!("team");
    sim.create(map).unwrap();
    call(&sim, "DELETE", "/api/v1/namespaces/team", None).await;
    sleep(Duration::from_secs(2)).await;
    assert_eq!(
        call(&sim, "GET", "/api/v1/namespaces/team", None).await.0,
        404
    );
    assert!(sim.list("v1", "ConfigMap", "team").unwrap().is_empty());
    let (status, _) = call(&sim, "DELETE", "/api/v1/namespaces/default", None).await;
    assert_eq!(status, 403);
}

#[tokio::test(start_paused = true)]
async fn kubelets_run_pods_and_end_them() {
    let sim = sim();
    let kubelet = Kubelet::start(&sim, KubeletOptions::default());
    for node in ["n1", "n2"] {
        sim.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}))
            .unwrap();
    }
    kubelet.silence("n2");
    sim.create(pod("p")).unwrap();
    let mut other = pod("q");
    other["spec"]["nodeName"] = json!("n2");
    sim.create(other).unwrap();
    sleep(Duration::from_secs(15)).await;
    let phase = |name| sim.get("v1", "Pod", "default", name).unwrap()["status"]["phase"].clone();
    assert_eq!(phase("p"), "Running");
    assert_eq!(phase("q"), "Pending");
    let lease = |name| sim.get("coordination.k8s.io/v1", "Lease", "kube-node-lease", name);
    assert!(lease("n1").is_ok());
    assert!(lease("n2").is_err());

    for name in ["p", "q"] {
        sim.delete("v1", "Pod", "default", name, &DeleteOptions::default())
            .unwrap();
    }
    sleep(Duration::from_secs(29)).await;
    assert!(
        sim.get("v1", "Pod", "default", "p").is_ok(),
        "the grace period is not over"
    );
    sleep(Duration::from_secs(2)).await;
    assert!(sim.get("v1", "Pod", "default", "p").is_err());
    assert!(
        sim.get("v1", "Pod", "default", "q").is_ok(),
        "nobody ends it"
    );
    kubelet.resume("n2");
    sleep(Duration::from_secs(1)).await;
    assert!(sim.get("v1", "Pod", "default", "q").is_err());
    assert!(sim.log().is_empty(), "helpers are not in the log");
}

#[tokio::test(start_paused = true)]
async fn deletions_are_on_record_by_uid() {
    let sim = sim();
    let created = sim.create(pod("p")).unwrap();
    let uid = created["metadata"]["uid"].as_str().unwrap();
    let path = "/api/v1/namespaces/default/pods/p";
    call(&sim, "DELETE", path, None).await;
    call(
        &sim,
        "DELETE",
        &format!("{path}?gracePeriodSeconds=0"),
        None,
    )
    .await;
    let steps: Vec<DeletionKind> = sim.deletions_of(uid).iter().map(|step| step.kind).collect();
    assert!(
        matches!(
            steps.as_slice(),
            [
                DeletionKind::Requested,
                DeletionKind::Marked,
                DeletionKind::Requested,
                DeletionKind::Removed(_)
            ]
        ),
        "{steps:?}"
    );
    assert_eq!(sim.count(&Match::new("delete", "pods")), 2);
}

#[tokio::test(start_paused = true)]
async fn output_of_kubectl_is_loaded_unchanged() {
    let sim = sim();
    let text = json!({
        "apiVersion": "v1", "kind": "PodList", "items": [{
            "metadata": {
                "name": "p", "namespace": "shop", "uid": "11111111-1111-4111-8111-111111111111",
                "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "777",
                "deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30,
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u"}],
            },
            "spec": {"nodeName": "n1", "containers": [{"name": "c"}]},
            "status": {"phase": "Running"},
        }],
    });
    assert_eq!(sim.load(&text.to_string()).unwrap(), 1);
    let pod = sim.get("v1", "Pod", "shop", "p").unwrap();
    assert_eq!(
        pod["metadata"]["uid"],
        "11111111-1111-4111-8111-111111111111"
    );
    assert_eq!(pod["metadata"]["deletionTimestamp"], "2026-01-01T00:00:30Z");
    assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], "u");
    assert_eq!(pod["status"]["phase"], "Running");
    assert_ne!(pod["metadata"]["resourceVersion"], "777");

    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\napiVersion: example.com/v1\nkind: Gear\nmetadata: {name: g}\n---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: gears.example.com}\nspec:\n  group: example.com\n  scope: Cluster\n  names: {kind: Gear, plural: gears}\n  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]\n";
    assert_eq!(sim.load(yaml).unwrap(), 3);
    assert!(sim.get("example.com/v1", "Gear", "", "g").is_ok());
    let error = sim
        .load("{\"apiVersion\": \"none/v1\", \"kind\": \"None\"}")
        .unwrap_err();
    assert!(error.to_string().contains("None"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn events_have_two_forms() {
    let sim = sim();
    let path = "/apis/events.k8s.io/v1/namespaces/default/events";
    let event = json!({
        "metadata": {"name": "e"}, "regarding": {"kind": "Pod", "namespace": "default", "name": "p"},
        "note": "n", "reason": "r", "type": "Normal", "reportingController": "c",
        "reportingInstance": "i", "action": "a", "eventTime": "2026-01-01T00:00:00.000000Z",
    });
    let (status, refused) =
        call(&sim, "POST", path, Some(json!({"metadata": {"name": "e"}}))).await;
    assert_eq!((status, refused["reason"].as_str()), (422, Some("Invalid")));
    let (status, created) = call(&sim, "POST", path, Some(event)).await;
    assert_eq!((status, created["note"].as_str()), (201, Some("n")));
    let core = sim.get("v1", "Event", "default", "e").unwrap();
    assert_eq!(core["message"], "n");
    assert_eq!(core["involvedObject"]["name"], "p");
    let one = format!("{path}/e");
    let (_, refused) = call(&sim, "PATCH", &one, Some(json!({"note": "m"}))).await;
    assert_eq!(refused["details"]["causes"][0]["field"], "message");
    let series = json!({"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"});
    let (_, patched) = call(&sim, "PATCH", &one, Some(json!({"series": series}))).await;
    assert_eq!(patched["series"]["count"], 2);
    let found = async |api: &str, field: &str| {
        let path = format!("/{api}/events?fieldSelector={field}");
        let (code, list) = call(&sim, "GET", &path, None).await;
        (code, list["items"].as_array().map_or(0, Vec::len))
    };
    let (core, newer) = ("api/v1", "apis/events.k8s.io/v1");
    for (api, field, expected) in [
        (newer, "regarding.name%3Dp", (200, 1)),
        (newer, "reportingController%3Dx", (200, 0)),
        (newer, "involvedObject.name%3Dp", (400, 0)),
        (core, "involvedObject.name%3Dp", (200, 1)),
        (core, "source%3Dc", (200, 1)),
        (core, "regarding.name%3Dp", (400, 0)),
    ] {
        assert_eq!(found(api, field).await, expected, "{api} {field}");
    }
}

/// The controller of Deployments writes the revision there with the status.
#[tokio::test(start_paused = true)]
async fn a_status_raises_no_generation() {
    let sim = sim();
    let template = json!({
        "metadata": {"labels": {"app": "d"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    sim.create(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": template},
    }))
    .unwrap();
    let path = "/apis/apps/v1/namespaces/default/deployments/d";
    let change = json!({"metadata": {"annotations": {"deployment.kubernetes.io/revision": "2"}}});
    let (_, written) = call(&sim, "PATCH", &format!("{path}/status"), Some(change)).await;
    assert_eq!(written["metadata"]["generation"], 1);
    assert_eq!(
        written["metadata"]["annotations"]["deployment.kubernetes.io/revision"],
        "2"
    );
    let change = json!({"metadata": {"annotations": {"a": "b"}}});
    let (_, written) = call(&sim, "PATCH", path, Some(change)).await;
    assert_eq!(written["metadata"]["generation"], 2);
}

#[tokio::test(start_paused = true)]
async fn schemas_prune_default_and_refuse() {
    let sim = sim();
    sim.create(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gears.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"kind": "Gear", "plural": "gears"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "required": ["spec"], "properties": {"spec": {
                    "type": "object", "required": ["teeth"], "properties": {
                        "teeth": {"type": "integer", "minimum": 1}, "colour": {"type": "string", "default": "red"},
                    },
                }},
            }}}],
        },
    }))
    .unwrap();
    let path = "/apis/example.com/v1/namespaces/default/gears";
    let gear = |spec: Value| json!({"apiVersion": "example.com/v1", "kind": "Gear", "metadata": {"name": "g"}, "spec": spec});
    for (spec, field) in [
        (json!({"teeth": "x"}), "spec.teeth"),
        (json!({}), "spec.teeth"),
        (json!({"teeth": 0}), "spec.teeth"),
    ] {
        let (status, body) = call(&sim, "POST", path, Some(gear(spec))).await;
        assert_eq!(
            (status, body["details"]["causes"][0]["field"].as_str()),
            (422, Some(field))
        );
    }
    let strict = format!("{path}?fieldValidation=Strict");
    let (status, body) = call(
        &sim,
        "POST",
        &strict,
        Some(gear(json!({"teeth": 1, "x": 1}))),
    )
    .await;
    assert_eq!(status, 400);
    assert!(
        body["message"]
            .as_str()
            .unwrap()
            .contains("unknown field \"spec.x\"")
    );
    let (_, created) = call(&sim, "POST", path, Some(gear(json!({"teeth": 1, "x": 1})))).await;
    assert_eq!(created["spec"], json!({"teeth": 1, "colour": "red"}));
    assert_eq!(created["metadata"]["generation"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_definition_serves_its_objects_until_it_is_deleted() {
    let sim = sim();
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = |kind: &str| {
        json!({
            "metadata": {"name": "gears.example.com"},
            "spec": {
                "group": "example.com", "scope": "Cluster", "names": {"kind": kind, "plural": "gears"},
                "versions": [
                    {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}},
                    {"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}},
                ],
            },
        })
    };
    let (status, refused) = call(&sim, "POST", path, Some(definition("Ge\"ar"))).await;
    assert_eq!((status, refused["reason"].as_str()), (422, Some("Invalid")));
    let (status, _) = call(&sim, "POST", path, Some(definition("Gear"))).await;
    assert_eq!(status, 201);
    let gear = json!({"apiVersion": "example.com/v1", "kind": "Gear", "metadata": {"name": "g"}});
    let (status, _) = call(&sim, "POST", "/apis/example.com/v1/gears", Some(gear)).await;
    assert_eq!(status, 201);
    // Both versions serve the same object.
    let (_, other) = call(&sim, "GET", "/apis/example.com/v2/gears/g", None).await;
    assert_eq!(other["apiVersion"], "example.com/v2");
    let (_, group) = call(&sim, "GET", "/apis/example.com", None).await;
    assert_eq!(group["preferredVersion"]["version"], "v2");

    let mut lines = watch(&sim, "/apis/example.com/v1/gears?watch=true").await;
    assert_eq!(lines.event().await.1, "g");
    call(&sim, "DELETE", &format!("{path}/gears.example.com"), None).await;
    assert_eq!(lines.event().await.0, "ERROR");
    assert_eq!(
        call(&sim, "GET", "/apis/example.com/v1/gears", None)
            .await
            .0,
        404
    );
}

#[tokio::test(start_paused = true)]
async fn scale_binding_and_budgets() {
    let sim = sim();
    sim.create(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": {
            "metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "i"}]},
        }},
    }))
    .unwrap();
    let scale = "/apis/apps/v1/namespaces/default/deployments/d/scale";
    let (_, scaled) = call(&sim, "PATCH", scale, Some(json!({"spec": {"replicas": 5}}))).await;
    assert_eq!(scaled["status"]["selector"], "app=d");
    let deployment = sim.get("apps/v1", "Deployment", "default", "d").unwrap();
    assert_eq!(deployment["spec"]["replicas"], 5);
    assert_eq!(deployment["metadata"]["generation"], 2);

    let mut unbound = pod("p");
    unbound["spec"]["nodeName"] = Value::Null;
    unbound["status"] =
        json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    sim.create(unbound).unwrap();
    let pod_path = "/api/v1/namespaces/default/pods/p";
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}});
    assert_eq!(
        call(
            &sim,
            "POST",
            &format!("{pod_path}/binding"),
            Some(binding.clone())
        )
        .await
        .0,
        201
    );
    assert_eq!(
        call(&sim, "POST", &format!("{pod_path}/binding"), Some(binding))
            .await
            .0,
        409
    );

    sim.create(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b", "namespace": "default"},
        "spec": {"minAvailable": 0, "selector": {"matchLabels": {"app": "p"}}},
        "status": {"observedGeneration": 1, "disruptionsAllowed": 0, "desiredHealthy": 1, "currentHealthy": 1},
    }))
    .unwrap();
    let evict_path = format!("{pod_path}/eviction");
    let evict = || {
        call(
            &sim,
            "POST",
            &evict_path,
            Some(json!({"metadata": {"name": "p"}})),
        )
    };
    let (status, refused) = evict().await;
    assert_eq!(status, 429);
    assert_eq!(
        refused["details"]["causes"][0]["message"],
        "The disruption budget b needs 1 healthy pods and has 1 currently"
    );
    sim.apply(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b", "namespace": "default"},
        "status": {"disruptionsAllowed": 1},
    }))
    .unwrap();
    assert_eq!(evict().await.0, 201);
    let budget = sim
        .get("policy/v1", "PodDisruptionBudget", "default", "b")
        .unwrap();
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    assert!(budget["status"]["disruptedPods"].get("p").is_some());
}

#[tokio::test(start_paused = true)]
async fn tables_have_the_usual_columns() {
    let sim = sim();
    sim.create(pod("p")).unwrap();
    sleep(Duration::from_secs(125)).await;
    let request = http::Request::get("/api/v1/pods")
        .header(
            "Accept",
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
        )
        .body(http_body_util::Empty::new())
        .unwrap();
    let response = sim.call(request).await.unwrap();
    let bytes = http_body_util::BodyExt::collect(response.into_body())
        .await
        .unwrap()
        .to_bytes();
    let table: Value = serde_json::from_slice(&bytes).unwrap();
    let shown: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|column| column["priority"] == 0)
        .map(|column| column["name"].as_str().unwrap())
        .collect();
    assert_eq!(shown, ["Name", "Ready", "Status", "Restarts", "Age"]);
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(
        Value::from(&cells[..5]),
        json!(["p", "0/1", "Pending", 0, "2m5s"])
    );
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
}

#[tokio::test(start_paused = true)]
async fn default_tolerations_are_added_on_request() {
    let config = Config {
        default_toleration_seconds: Some(300),
        ..Config::default()
    };
    let sim = Sim::new(config, jiff::Timestamp::UNIX_EPOCH).unwrap();
    let mut own = pod("p");
    own["spec"]["tolerations"] = json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}]);
    let created = sim.create(own).unwrap();
    let tolerations = created["spec"]["tolerations"].as_array().unwrap();
    assert_eq!(tolerations.len(), 2);
    assert_eq!(tolerations[1]["key"], "node.kubernetes.io/unreachable");
    assert_eq!(tolerations[1]["tolerationSeconds"], 300);
}

#[tokio::test(start_paused = true)]
async fn server_side_apply_creates_and_overwrites() {
    let sim = sim();
    let path = format!("{MAPS}/a?fieldManager=me");
    let apply = |yaml: &'static str| {
        let (sim, path) = (sim.clone(), path.clone());
        async move {
            let body = yaml.as_bytes().to_vec();
            let response = send(&sim, "PATCH", &path, "application/apply-patch+yaml", body).await;
            response.unwrap().status().as_u16()
        }
    };
    let head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
    assert_eq!(
        apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: '1'}\n").await,
        201
    );
    assert_eq!(
        apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: '2'}\n").await,
        200
    );
    assert_eq!(
        sim.get("v1", "ConfigMap", "default", "a").unwrap()["data"]["x"],
        "2"
    );
    let nobody = format!("{MAPS}/a");
    let response = send(
        &sim,
        "PATCH",
        &nobody,
        "application/apply-patch+yaml",
        head.into(),
    )
    .await;
    assert_eq!(response.unwrap().status(), 422);
}

/// A state that a test sets in process may lack fields that validation requires; a
/// request may not.
#[tokio::test(start_paused = true)]
async fn a_status_set_in_process_is_stored_unchanged() {
    let sim = sim();
    let entry = json!({"apiServerID": "a", "encodingVersion": "v1", "decodableVersions": ["v1"]});
    let version = json!({
        "apiVersion": "internal.apiserver.k8s.io/v1alpha1", "kind": "StorageVersion",
        "metadata": {"name": "example.com.widgets"}, "spec": {},
        "status": {"storageVersions": [entry]},
    });
    let stored = sim.create(version.clone()).unwrap();
    assert_eq!(stored["status"], version["status"]);
    let path = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/example.com.widgets";
    let (code, refused) = call(&sim, "PUT", &format!("{path}/status"), Some(stored)).await;
    assert_eq!(code, 422);
    assert_eq!(
        refused["details"]["causes"][0]["field"],
        "status.commonEncodingVersion"
    );
}
