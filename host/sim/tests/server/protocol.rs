//! The answers of the generic layer to unusual requests: types, options, preconditions,
//! subresources. From the source of Kubernetes 1.36.

use davit_sim::Sim;
use serde_json::{Value, json};

use crate::support::{call, config_map, pod, sim};

const CORE: &str = "/api/v1/namespaces/default";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const UID: &str = "11111111-1111-1111-1111-111111111111";

async fn said(sim: &Sim, method: &str, path: &str, body: Option<Value>) -> (u16, String) {
    let (status, answer) = call(sim, method, path, body).await;
    (
        status,
        answer["message"].as_str().unwrap_or_default().to_owned(),
    )
}

#[tokio::test(start_paused = true)]
async fn objects_of_another_type() {
    let sim = sim();
    for (api_version, kind, why) in [
        (
            "v2",
            "ConfigMap",
            "ConfigMap in version \"v2\" cannot be handled as a ConfigMap: no kind \"ConfigMap\" is registered for version \"v2\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
        ),
        (
            "v1",
            "Gadget",
            "Gadget in version \"v1\" cannot be handled as a ConfigMap: no kind \"Gadget\" is registered for version \"v1\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
        ),
        (
            "apps/v1",
            "Deployment",
            "Deployment in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Deployment) to (core.ConfigMap): unknown conversion",
        ),
    ] {
        let body = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}});
        let answer = said(&sim, "POST", MAPS, Some(body)).await;
        assert_eq!(answer, (400, why.to_owned()));
    }
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}});
    let events = "/apis/events.k8s.io/v1/namespaces/default/events";
    assert_eq!(
        said(&sim, "POST", events, Some(event)).await.1,
        "the API version in the data (v1) does not match the expected API version (events.k8s.io/v1)"
    );
}

#[tokio::test(start_paused = true)]
async fn custom_objects_have_their_type() {
    let sim = sim();
    sim.create(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gears.example.com"},
        "spec": {
            "group": "example.com", "scope": "Cluster", "names": {"kind": "Gear", "plural": "gears"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                          "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    }))
    .unwrap();
    let path = "/apis/example.com/v1/gears";
    let body = json!({"metadata": {"name": "g"}});
    assert_eq!(
        said(&sim, "POST", path, Some(body)).await.1,
        "the object provided is unrecognized (must be of type Gear): Object 'Kind' is missing in '{\"metadata\":{\"name\":\"g\"}}' ({\"metadata\":{\"name\":\"g\"}})"
    );
    let of = |api_version: &str, kind: &str| {
        Some(json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "g"}}))
    };
    assert_eq!(
        said(&sim, "POST", path, of("example.com/v2", "Gear"))
            .await
            .1,
        "the API version in the data (example.com/v2) does not match the expected API version (example.com/v1)"
    );
    assert_eq!(
        said(&sim, "POST", path, of("example.com/v1", "Cog"))
            .await
            .1,
        "Cog.example.com \"g\" is invalid: kind: Invalid value: \"Cog\": must be Gear"
    );
    let (status, _) = said(&sim, "POST", path, of("example.com/v1", "Gear")).await;
    assert_eq!(status, 201);
    // The status endpoint changes only the status.
    let patch = json!({"metadata": {"uid": UID, "labels": {"a": "b"}}, "status": {"ready": true}});
    let (status, patched) = call(&sim, "PATCH", &format!("{path}/g/status"), Some(patch)).await;
    assert_eq!((status, &patched["status"]), (200, &json!({"ready": true})));
    assert_eq!(patched["metadata"].get("labels"), None);
}

#[tokio::test(start_paused = true)]
async fn options_that_make_no_sense() {
    let sim = sim();
    sim.create(config_map("a")).unwrap();
    for (method, query, body, why) in [
        (
            "PATCH",
            "a?force=true",
            Some(json!({})),
            "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch",
        ),
        (
            "DELETE",
            "a",
            Some(json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": "now"})),
            "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64",
        ),
        (
            "GET",
            "?watch=true&resourceVersionMatch=Exact",
            None,
            "ListOptions.meta.k8s.io \"\" is invalid: [resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided, resourceVersionMatch: Unsupported value: \"Exact\": supported values: \"NotOlderThan\"]",
        ),
        (
            "GET",
            "?resourceVersionMatch=Exact&continue=x",
            None,
            "ListOptions.meta.k8s.io \"\" is invalid: [resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided, resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided]",
        ),
        (
            "GET",
            "a?resourceVersion=abc",
            None,
            "resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax",
        ),
    ] {
        let path = format!("{MAPS}/{query}").replace("/?", "?");
        assert_eq!(said(&sim, method, &path, body).await.1, why, "{query}");
    }
    // A single object is returned, whatever the query says.
    let path = format!("{MAPS}/a?watch=true");
    assert_eq!(call(&sim, "GET", &path, None).await.1["kind"], "ConfigMap");
}

#[tokio::test(start_paused = true)]
async fn writes_by_uid_and_version() {
    let sim = sim();
    let missing = json!({"metadata": {"name": "a", "uid": UID}});
    let (status, why) = said(&sim, "PUT", &format!("{MAPS}/a"), Some(missing)).await;
    assert_eq!(status, 409);
    assert!(
        why.ends_with("Precondition failed: UID in precondition: 11111111-1111-1111-1111-111111111111, UID in object meta: "),
        "{why}"
    );
    let zero = json!({"metadata": {"name": "z", "resourceVersion": "0"}});
    assert_eq!(call(&sim, "POST", MAPS, Some(zero)).await.0, 201);
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "z", "uid": UID});
    let twice = json!({"metadata": {"name": "t", "ownerReferences": [owner, owner]}});
    let (_, created) = call(&sim, "POST", MAPS, Some(twice)).await;
    assert_eq!(created["metadata"]["ownerReferences"], json!([owner]));
    // The namespace is checked before the name.
    let wrong = json!({"metadata": {"name": "x", "namespace": "other"}});
    assert_eq!(
        said(&sim, "PUT", &format!("{MAPS}/t"), Some(wrong)).await.1,
        "the namespace of the provided object does not match the namespace sent on the request"
    );
}

#[tokio::test(start_paused = true)]
async fn bindings_and_evictions() {
    let sim = sim();
    sim.create(pod("p")).unwrap();
    let binding = |target: Value| Some(json!({"metadata": {"name": "p"}, "target": target}));
    let path = format!("{CORE}/pods/p/binding");
    assert_eq!(
        said(&sim, "POST", &path, binding(json!({"kind": "Pod"}))).await,
        (
            500,
            "[target.kind: Unsupported value: \"Pod\": supported values: \"Node\", \"<empty>\", target.name: Required value]".to_owned()
        )
    );
    let (status, answer) = call(&sim, "POST", &path, binding(json!({"name": "n2"}))).await;
    assert_eq!(
        (status, answer["message"].as_str().unwrap()),
        (
            409,
            "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n1\""
        )
    );
    assert_eq!(answer["details"]["kind"], "pods/binding");

    let running = json!({"status": {"phase": "Running"}});
    call(
        &sim,
        "PATCH",
        &format!("{CORE}/pods/p/status"),
        Some(running),
    )
    .await;
    let evict = format!("{CORE}/pods/p/eviction");
    let eviction =
        |options: Value| Some(json!({"metadata": {"name": "p"}, "deleteOptions": options}));
    let wrong = json!({"preconditions": {"uid": UID}});
    assert_eq!(call(&sim, "POST", &evict, eviction(wrong)).await.0, 409);
    let (_, left) = call(&sim, "GET", &format!("{CORE}/pods/p"), None).await;
    assert_eq!(left["status"].get("conditions"), None);
    for name in ["b", "c"] {
        sim.create(json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "p"}}},
        }))
        .unwrap();
    }
    // The failure is in the body of a successful answer.
    let (status, answer) = call(&sim, "POST", &evict, eviction(json!({}))).await;
    assert_eq!(
        (status, &answer["code"], &answer["status"]),
        (201, &json!(500), &json!("Failure"))
    );
}

#[tokio::test(start_paused = true)]
async fn jobs_and_services_get_what_they_need() {
    let sim = sim();
    let job = json!({"metadata": {"name": "j"}, "spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
    }}}});
    let (status, job) = call(
        &sim,
        "POST",
        "/apis/batch/v1/namespaces/default/jobs",
        Some(job),
    )
    .await;
    assert_eq!(status, 201);
    let uid = &job["metadata"]["uid"];
    assert_eq!(
        job["spec"]["selector"],
        json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}})
    );
    assert_eq!(job["metadata"]["labels"]["job-name"], "j");
    assert_eq!(job["spec"]["completions"], 1);

    let services = format!("{CORE}/services");
    let service = |name: &str, spec: Value| Some(json!({"metadata": {"name": name}, "spec": spec}));
    let headless = json!({"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 80}]});
    let (_, made) = call(&sim, "POST", &services, service("h", headless)).await;
    assert_eq!(
        made["spec"],
        json!({
            "clusterIP": "None", "clusterIPs": ["None"], "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "selector": {"a": "b"},
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
            "sessionAffinity": "None", "type": "ClusterIP",
        })
    );
    let node = json!({"type": "NodePort", "ports": [{"port": 80}]});
    let (_, made) = call(&sim, "POST", &services, service("n", node)).await;
    let (address, port) = (
        &made["spec"]["clusterIP"],
        &made["spec"]["ports"][0]["nodePort"],
    );
    assert!(
        port.as_u64()
            .is_some_and(|port| (30_000..32_768).contains(&port))
    );
    let replaced = json!({"type": "NodePort", "ports": [{"port": 81, "nodePort": port}]});
    let path = format!("{services}/n");
    let (_, kept) = call(&sim, "PUT", &path, service("n", replaced)).await;
    assert_eq!(&kept["spec"]["clusterIP"], address);
    let moved = json!({"type": "NodePort", "clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"], "ports": [{"port": 81}]});
    assert_eq!(call(&sim, "PUT", &path, service("n", moved)).await.0, 422);
}
