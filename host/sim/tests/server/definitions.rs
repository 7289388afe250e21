//! The life of a `CustomResourceDefinition`: names accepted, established, changed, and
//! deleted together with its objects.

use davit_sim::Sim;
use serde_json::{Value, json};

use crate::support::{call, sim, watch};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn definition(plural: &str, kind: &str, short: &[&str]) -> Value {
    let schema = json!({"openAPIV3Schema": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
    }});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "shortNames": short},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    })
}

fn widget(name: &str, finalizers: &[&str]) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": name, "finalizers": finalizers},
    })
}

async fn create(sim: &Sim, path: &str, body: Value) -> Value {
    let (code, body) = call(sim, "POST", path, Some(body)).await;
    assert_eq!(code, 201, "{body}");
    body
}

/// Type, status and reason of every condition.
fn conditions(definition: &Value) -> Vec<(&str, &str, &str)> {
    definition["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| {
            let text = |field: &str| one[field].as_str().unwrap_or_default();
            (text("type"), text("status"), text("reason"))
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_definition_is_named_then_established() {
    let sim = sim();
    let mut changes = watch(&sim, &format!("{DEFINITIONS}?watch=true&resourceVersion=0")).await;
    create(&sim, DEFINITIONS, definition("widgets", "Widget", &[])).await;
    let mut seen = Vec::new();
    for _ in 0..3 {
        let event = changes.next().await.expect("an event").expect("stays");
        let of_it: Vec<String> = conditions(&event["object"])
            .iter()
            .map(|(kind, status, reason)| format!("{kind} {status} {reason}"))
            .collect();
        seen.push((event["type"].clone(), of_it.join(", ")));
    }
    assert_eq!(
        seen,
        [
            (json!("ADDED"), String::new()),
            (
                json!("MODIFIED"),
                "NamesAccepted True NoConflicts, Established False Installing".to_owned()
            ),
            (
                json!("MODIFIED"),
                "NamesAccepted True NoConflicts, Established True InitialNamesAccepted".to_owned()
            ),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_definition_with_names_in_use_waits() {
    let sim = sim();
    create(&sim, DEFINITIONS, definition("widgets", "Widget", &["w"])).await;
    create(&sim, DEFINITIONS, definition("wonders", "Widget", &["w"])).await;
    let path = format!("{DEFINITIONS}/wonders.example.com");
    let (_, refused) = call(&sim, "GET", &path, None).await;
    assert_eq!(
        conditions(&refused),
        [
            ("NamesAccepted", "False", "ListKindConflict"),
            ("Established", "False", "NotAccepted"),
        ]
    );
    assert_eq!(
        refused["status"]["conditions"][0]["message"],
        "\"WidgetList\" is already in use"
    );
    // The names that are free are accepted nevertheless.
    assert_eq!(
        refused["status"]["acceptedNames"],
        json!({"kind": "", "plural": "wonders"})
    );
    let wonders = WIDGETS.replace("widgets", "wonders");
    assert_eq!(call(&sim, "GET", &wonders, None).await.0, 404);

    call(
        &sim,
        "DELETE",
        &format!("{DEFINITIONS}/widgets.example.com"),
        None,
    )
    .await;
    let (_, accepted) = call(&sim, "GET", &path, None).await;
    assert_eq!(
        conditions(&accepted),
        [
            ("NamesAccepted", "True", "NoConflicts"),
            ("Established", "True", "InitialNamesAccepted"),
        ]
    );
    assert_eq!(call(&sim, "GET", &wonders, None).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_definition_is_removed_after_its_objects() {
    let sim = sim();
    create(&sim, DEFINITIONS, definition("widgets", "Widget", &[])).await;
    create(&sim, WIDGETS, widget("free", &[])).await;
    create(&sim, WIDGETS, widget("held", &["example.com/x"])).await;
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let (code, answer) = call(&sim, "DELETE", &path, None).await;
    assert_eq!(code, 200);
    assert_eq!(
        answer["metadata"]["finalizers"],
        json!(["customresourcecleanup.apiextensions.k8s.io"])
    );
    assert_eq!(answer["metadata"]["generation"], 1);
    assert_eq!(
        answer["metadata"]["deletionGracePeriodSeconds"],
        Value::Null
    );
    assert_eq!(
        conditions(&answer).last(),
        Some(&("Terminating", "True", "InstanceDeletionPending"))
    );

    let (_, waiting) = call(&sim, "GET", &path, None).await;
    assert_eq!(
        conditions(&waiting).last(),
        Some(&("Terminating", "True", "InstanceDeletionInProgress"))
    );
    let (_, left) = call(&sim, "GET", WIDGETS, None).await;
    assert_eq!(left["items"].as_array().map(Vec::len), Some(1));
    let (code, refused) = call(&sim, "POST", WIDGETS, Some(widget("late", &[]))).await;
    assert_eq!(code, 403);
    assert_eq!(
        refused["message"],
        "widgets.example.com \"late\" is forbidden: create not allowed while custom resource definition is terminating"
    );

    let release = json!({"metadata": {"finalizers": null}});
    call(&sim, "PATCH", &format!("{WIDGETS}/held"), Some(release)).await;
    assert_eq!(call(&sim, "GET", &path, None).await.0, 404);
    assert_eq!(call(&sim, "GET", WIDGETS, None).await.0, 404);
    create(&sim, DEFINITIONS, definition("widgets", "Widget", &[])).await;
    create(&sim, WIDGETS, widget("free", &[])).await;
}

#[tokio::test(start_paused = true)]
async fn a_definition_is_deleted_by_its_uid() {
    let sim = sim();
    create(&sim, DEFINITIONS, definition("widgets", "Widget", &[])).await;
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let other = json!({"preconditions": {"uid": "other"}});
    let (code, refused) = call(&sim, "DELETE", &path, Some(other)).await;
    assert_eq!(code, 409);
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(
        message.starts_with(
            "Operation cannot be fulfilled on customresourcedefinitions.apiextensions.k8s.io \"widgets.example.com\": Precondition failed: UID in precondition: other, UID in object meta: "
        ),
        "{message}"
    );
    let (code, _) = call(&sim, "DELETE", &format!("{path}?dryRun=All"), None).await;
    assert_eq!(code, 200);
    assert_eq!(call(&sim, "GET", WIDGETS, None).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn versions_that_were_stored_are_remembered() {
    let sim = sim();
    let mut changed = create(&sim, DEFINITIONS, definition("widgets", "Widget", &[])).await;
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let mut second = changed["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    changed["spec"]["versions"][0]["storage"] = json!(false);
    changed["spec"]["versions"]
        .as_array_mut()
        .expect("a list")
        .push(second);
    let patch = json!({"spec": {"versions": changed["spec"]["versions"]}});
    let (code, patched) = call(&sim, "PATCH", &path, Some(patch)).await;
    assert_eq!(code, 200, "{patched}");
    assert_eq!(patched["status"]["storedVersions"], json!(["v1", "v2"]));
    let first = json!({"spec": {"versions": [changed["spec"]["versions"][1]]}});
    let (code, refused) = call(&sim, "PATCH", &path, Some(first)).await;
    assert_eq!(code, 422);
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("status.storedVersions[0]: Invalid value: \"v1\": missing from"),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_scale_without_replicas_is_an_error() {
    let sim = sim();
    let mut scaled = definition("widgets", "Widget", &[]);
    scaled["spec"]["versions"][0]["subresources"] = json!({"scale": {
        "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
    }});
    create(&sim, DEFINITIONS, scaled).await;
    create(&sim, WIDGETS, widget("w", &[])).await;
    let path = format!("{WIDGETS}/w/scale");
    let (code, missing) = call(&sim, "GET", &path, None).await;
    assert_eq!(code, 500);
    assert_eq!(
        missing["message"],
        "Internal error occurred: the spec replicas field \".spec.replicas\" does not exist"
    );
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    let (code, silent) = call(&sim, "PATCH", &path, Some(patch)).await;
    assert_eq!(code, 400);
    assert_eq!(
        silent["message"],
        "the spec replicas field \".spec.replicas\" cannot be empty"
    );
    let patch = json!({"spec": {"replicas": 2}});
    let (code, scale) = call(&sim, "PATCH", &path, Some(patch)).await;
    assert_eq!(code, 200);
    assert_eq!(scale["spec"], json!({"replicas": 2}));
    assert_eq!(scale["status"], json!({"replicas": 0}));
    let mut other = scale;
    other["metadata"]["name"] = json!("x");
    let (code, refused) = call(&sim, "PUT", &path, Some(other)).await;
    assert_eq!(code, 400);
    assert_eq!(
        refused["message"],
        "the name of the object (x) does not match the name on the URL (w)"
    );
}

/// The order of a dump depends on the arguments of kubectl.
#[tokio::test(start_paused = true)]
async fn objects_are_loaded_before_their_definition_and_namespace() {
    let sim = sim();
    let mut early = widget("early", &[]);
    early["metadata"]["namespace"] = json!("own");
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "own", "uid": "u-1"},
    });
    let definition = definition("widgets", "Widget", &[]);
    let list = json!({"kind": "List", "apiVersion": "v1", "items": [early, namespace, definition]});
    assert_eq!(sim.load(&list.to_string()).unwrap(), 3);
    sim.get("example.com/v1", "Widget", "own", "early").unwrap();
    let own = sim.get("v1", "Namespace", "", "own").unwrap();
    assert_eq!(own["metadata"]["uid"], "u-1");
    let orphan = json!({"apiVersion": "none.com/v1", "kind": "None", "metadata": {"name": "n"}});
    let error = sim.load(&orphan.to_string()).unwrap_err().to_string();
    assert!(
        error.starts_with("cannot load None \"n\": no resource"),
        "{error}"
    );
}

/// Without a served version the resource answers 404. Its objects are there when it is
/// served again. A deletion of the definition deletes them in any case.
#[tokio::test(start_paused = true)]
async fn a_definition_without_a_served_version_keeps_its_objects() {
    let sim = sim();
    let made = create(&sim, DEFINITIONS, definition("widgets", "Widget", &[])).await;
    let kept = create(&sim, WIDGETS, widget("w", &[])).await;
    let serve = async |served: bool| {
        let mut definition = made.clone();
        definition["spec"]["versions"][0]["served"] = json!(served);
        definition["metadata"]["resourceVersion"] = Value::Null;
        let path = format!("{DEFINITIONS}/widgets.example.com");
        let patch = json!({"spec": definition["spec"]});
        let (code, body) = call(&sim, "PATCH", &path, Some(patch)).await;
        assert_eq!(code, 200, "{body}");
    };
    serve(false).await;
    let (code, _) = call(&sim, "GET", &format!("{WIDGETS}/w"), None).await;
    assert_eq!(code, 404);
    serve(true).await;
    let (code, found) = call(&sim, "GET", &format!("{WIDGETS}/w"), None).await;
    assert_eq!(
        (code, &found["metadata"]["uid"]),
        (200, &kept["metadata"]["uid"])
    );
    serve(false).await;
    let (code, _) = call(
        &sim,
        "DELETE",
        &format!("{DEFINITIONS}/widgets.example.com"),
        None,
    )
    .await;
    assert_eq!(code, 200);
    create(&sim, DEFINITIONS, definition("widgets", "Widget", &[])).await;
    let (code, _) = call(&sim, "GET", &format!("{WIDGETS}/w"), None).await;
    assert_eq!(code, 404);
}

/// A definition of two versions: the first one is stored.
fn versioned(first: &Value, selectable: [Value; 2]) -> Value {
    let mut definition = definition("widgets", "Widget", &[]);
    let [of_first, of_second] = selectable;
    let schema = |fields: &Value| {
        let spec = json!({"type": "object", "properties": fields});
        json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}})
    };
    definition["spec"]["versions"] = json!([
        {"name": "v1", "served": true, "storage": true, "schema": schema(first), "selectableFields": of_first},
        {"name": "v2", "served": true, "storage": false, "schema": schema(first), "selectableFields": of_second},
    ]);
    definition
}

/// As after an upgrade of the definition: what is stored has the new defaults, and not what the
/// schema has dropped.
#[tokio::test(start_paused = true)]
async fn stored_objects_follow_their_definition() {
    let sim = sim();
    let text = json!({"type": "string"});
    let former = json!({"old": text, "color": text});
    create(
        &sim,
        DEFINITIONS,
        versioned(&former, [json!([]), json!([])]),
    )
    .await;
    let mut one = widget("w", &[]);
    one["spec"] = json!({"old": "x", "color": "red"});
    let created = create(&sim, WIDGETS, one).await;
    let version = &created["metadata"]["resourceVersion"];
    let mut changes = watch(
        &sim,
        &format!(
            "{WIDGETS}?watch=1&resourceVersion={}",
            version.as_str().unwrap()
        ),
    )
    .await;

    let fields = json!({"color": text, "mode": {"type": "string", "default": "auto"}});
    let patch = versioned(&fields, [json!([]), json!([])]);
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let patch = json!({"spec": {"versions": patch["spec"]["versions"]}});
    assert_eq!(call(&sim, "PATCH", &path, Some(patch)).await.0, 200);
    let (_, read) = call(&sim, "GET", &format!("{WIDGETS}/w"), None).await;
    assert_eq!(read["spec"], json!({"color": "red", "mode": "auto"}));
    assert_eq!(read["metadata"]["resourceVersion"], *version);
    // The watch of the former definition ends; nothing has changed.
    assert!(changes.next().await.is_none());
}

/// Each version has fields of its own, and a field may be added later.
#[tokio::test(start_paused = true)]
async fn a_selector_reads_the_field_that_it_names() {
    let sim = sim();
    let text = json!({"type": "string"});
    let fields = json!({"size": text, "color": text, "shape": text});
    let paths = |names: &[&str]| -> Value {
        let path = |name: &&str| json!({"jsonPath": format!(".spec.{name}")});
        names.iter().map(path).collect()
    };
    let selectable = [paths(&["color"]), paths(&["size", "color"])];
    create(&sim, DEFINITIONS, versioned(&fields, selectable)).await;
    let mut one = widget("w", &[]);
    one["spec"] = json!({"size": "10", "color": "red", "shape": "round"});
    create(&sim, WIDGETS, one).await;
    let definition = format!("{DEFINITIONS}/widgets.example.com");
    let found = async |version: &str, field: &str| {
        let widgets = WIDGETS.replace("/v1/", &format!("/{version}/"));
        let path = format!("{widgets}?fieldSelector=spec.{field}");
        let (code, list) = call(&sim, "GET", &path, None).await;
        (code, list["items"].as_array().map_or(0, Vec::len))
    };
    assert_eq!(found("v1", "color%3Dred").await, (200, 1));
    assert_eq!(found("v2", "color%3Dred").await, (200, 1));
    assert_eq!(found("v2", "size%3Dred").await, (200, 0));
    assert_eq!(found("v1", "shape%3Dround").await.0, 400);

    let selectable = [paths(&["shape", "color"]), paths(&["size"])];
    let patch = versioned(&fields, selectable);
    let patch = json!({"spec": {"versions": patch["spec"]["versions"]}});
    assert_eq!(call(&sim, "PATCH", &definition, Some(patch)).await.0, 200);
    assert_eq!(found("v1", "shape%3Dround").await, (200, 1));
    assert_eq!(found("v1", "color!%3Dred").await, (200, 0));
}
