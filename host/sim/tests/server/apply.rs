//! Server-side apply: fields that it sets and removes, and conflicts.

use davit_sim::Sim;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::support::{call, config_map, pod, send, sim};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

async fn apply(sim: &Sim, path: &str, query: &str, body: &Value) -> (u16, Value) {
    let path = format!("{path}?{query}");
    let body = body.to_string().into_bytes();
    let answer = send(sim, "PATCH", &path, "application/apply-patch+yaml", body)
        .await
        .expect("connection stays");
    let code = answer.status().as_u16();
    let bytes = answer.into_body().collect().await.expect("whole");
    let value = serde_json::from_slice(&bytes.to_bytes()).expect("JSON");
    (code, value)
}

fn map(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

fn with_images(images: &[(&str, &str)]) -> Value {
    let containers: Vec<Value> = images
        .iter()
        .map(|(name, image)| json!({"name": name, "image": image}))
        .collect();
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"app": "d"}},
            "template": {
                "metadata": {"labels": {"app": "d"}}, "spec": {"containers": containers},
            },
        },
    })
}

#[tokio::test(start_paused = true)]
async fn a_field_is_removed_when_its_only_manager_drops_it() {
    let sim = sim();
    let path = format!("{MAPS}/a");
    let (code, created) = apply(
        &sim,
        &path,
        "fieldManager=x",
        &map(&json!({"a": "1", "b": "1"})),
    )
    .await;
    assert_eq!(code, 201, "{created}");
    assert_eq!(
        created["metadata"]["managedFields"],
        json!([{
            "manager": "x", "operation": "Apply", "apiVersion": "v1",
            "time": "1970-01-01T00:00:00Z", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:a": {}, "f:b": {}}},
        }])
    );
    // Another manager applies one of the two unchanged, and shares it.
    let (code, _) = apply(&sim, &path, "fieldManager=y", &map(&json!({"b": "1"}))).await;
    assert_eq!(code, 200);
    let (code, left) = apply(&sim, &path, "fieldManager=x", &map(&json!({"c": "1"}))).await;
    assert_eq!(code, 200);
    assert_eq!(left["data"], json!({"b": "1", "c": "1"}));
    let (_, left) = apply(&sim, &path, "fieldManager=y", &json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"l": "1"}},
    })).await;
    assert_eq!(left["data"], json!({"c": "1"}));
    // The same apply changes nothing.
    let before = left["metadata"]["resourceVersion"].clone();
    let (_, same) = apply(&sim, &path, "fieldManager=x", &map(&json!({"c": "1"}))).await;
    assert_eq!(same["metadata"]["resourceVersion"], before);
}

#[tokio::test(start_paused = true)]
async fn fields_of_other_managers_need_force() {
    let sim = sim();
    let path = format!("{MAPS}/a");
    let first = map(&json!({"a": "1", "b": "1"}));
    apply(&sim, &path, "fieldManager=x", &first).await;
    let (code, refused) = apply(&sim, &path, "fieldManager=y", &map(&json!({"a": "2"}))).await;
    assert_eq!(
        (code, &refused["reason"], &refused["message"]),
        (
            409,
            &json!("Conflict"),
            &json!("Apply failed with 1 conflict: conflict with \"x\": .data.a")
        )
    );
    assert_eq!(
        refused["details"],
        json!({"causes": [{
            "reason": "FieldManagerConflict", "message": "conflict with \"x\"", "field": ".data.a",
        }]})
    );
    let both = map(&json!({"a": "2", "b": "2"}));
    let (_, refused) = apply(&sim, &path, "fieldManager=y", &both).await;
    assert_eq!(
        refused["message"],
        "Apply failed with 2 conflicts: conflicts with \"x\":\n- .data.a\n- .data.b"
    );
    let (code, forced) = apply(&sim, &path, "fieldManager=y&force=true", &both).await;
    assert_eq!((code, &forced["data"]), (200, &json!({"a": "2", "b": "2"})));
    // The first manager does not own these fields any more.
    let (_, left) = apply(&sim, &path, "fieldManager=x", &map(&json!({}))).await;
    assert_eq!(left["data"], json!({"a": "2", "b": "2"}));
}

#[tokio::test(start_paused = true)]
async fn an_update_owns_the_fields_that_it_changes() {
    let sim = sim();
    let path = format!("{MAPS}/a");
    apply(
        &sim,
        &path,
        "fieldManager=x",
        &map(&json!({"a": "1", "b": "1"})),
    )
    .await;
    let patch = json!({"data": {"a": "2", "c": "2"}});
    let (_, patched) = call(
        &sim,
        "PATCH",
        &format!("{path}?fieldManager=z"),
        Some(patch),
    )
    .await;
    let managed = &patched["metadata"]["managedFields"];
    assert_eq!(managed[0]["fieldsV1"], json!({"f:data": {"f:b": {}}}));
    assert_eq!(managed[1]["manager"], "z");
    assert_eq!(managed[1]["operation"], "Update");
    assert_eq!(
        managed[1]["fieldsV1"],
        json!({"f:data": {"f:a": {}, "f:c": {}}})
    );
    let (code, refused) = apply(&sim, &path, "fieldManager=x", &map(&json!({"a": "1"}))).await;
    assert_eq!(code, 409);
    assert_eq!(
        refused["message"],
        "Apply failed with 1 conflict: conflict with \"z\" using v1 at 1970-01-01T00:00:00Z: .data.a"
    );
    // A client that omits the record does not remove it.
    let (_, replaced) = call(&sim, "PUT", &path, Some(config_map("a"))).await;
    assert_eq!(replaced["data"], json!({"k": "v"}));
    assert_eq!(
        replaced["metadata"]["managedFields"][0]["manager"],
        "unknown"
    );
}

#[tokio::test(start_paused = true)]
async fn earlier_fields_are_kept() {
    let sim = sim();
    let created = call(&sim, "POST", MAPS, Some(config_map("a"))).await.1;
    assert_eq!(created["metadata"]["managedFields"], Value::Null);
    let path = format!("{MAPS}/a");
    let (code, _) = apply(&sim, &path, "fieldManager=x", &map(&json!({"k": "other"}))).await;
    assert_eq!(code, 409);
    let (code, _) = apply(
        &sim,
        &path,
        "fieldManager=x",
        &map(&json!({"k": "v", "l": "1"})),
    )
    .await;
    assert_eq!(code, 200);
    let (_, left) = apply(&sim, &path, "fieldManager=x", &map(&json!({}))).await;
    assert_eq!(left["data"], json!({"k": "v"}));
}

#[tokio::test(start_paused = true)]
async fn elements_of_lists_have_their_own_managers() {
    let sim = sim();
    let path = "/apis/apps/v1/namespaces/default/deployments/d";
    let images = |all: &Value| -> Vec<String> {
        all.pointer("/spec/template/spec/containers")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(|one| format!("{}={}", one["name"], one["image"]).replace('"', ""))
            .collect()
    };
    let (code, created) = apply(
        &sim,
        path,
        "fieldManager=x",
        &with_images(&[("a", "1"), ("b", "1")]),
    )
    .await;
    assert_eq!(code, 201, "{created}");
    let (code, refused) = apply(&sim, path, "fieldManager=y", &with_images(&[("a", "2")])).await;
    assert_eq!(code, 409);
    assert_eq!(
        refused["details"]["causes"][0]["field"],
        ".spec.template.spec.containers[name=\"a\"].image"
    );
    let (code, more) = apply(
        &sim,
        path,
        "fieldManager=y",
        &with_images(&[("c", "1"), ("b", "1")]),
    )
    .await;
    assert_eq!(code, 200, "{more}");
    assert_eq!(images(&more), ["a=1", "c=1", "b=1"]);
    let (code, less) = apply(&sim, path, "fieldManager=x", &with_images(&[("c", "1")])).await;
    assert_eq!(code, 200, "{less}");
    assert_eq!(images(&less), ["c=1", "b=1"]);
    assert_eq!(less["metadata"]["generation"], 3);
}

#[tokio::test(start_paused = true)]
async fn status_is_applied_through_its_endpoint() {
    let sim = sim();
    call(&sim, "POST", PODS, Some(pod("p"))).await;
    let ready = |status: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "status": {"conditions": [{"type": "Ready", "status": status}]},
        })
    };
    let path = format!("{PODS}/p");
    let (code, ignored) = apply(&sim, &path, "fieldManager=x", &ready("True")).await;
    assert_eq!(
        (code, &ignored["status"]["conditions"]),
        (200, &Value::Null)
    );
    let status = format!("{path}/status");
    let (code, set) = apply(&sim, &status, "fieldManager=x", &ready("True")).await;
    assert_eq!(code, 200);
    assert_eq!(set["status"]["conditions"][0]["status"], "True");
    let (_, refused) = apply(&sim, &status, "fieldManager=y", &ready("False")).await;
    assert_eq!(
        refused["message"],
        "Apply failed with 1 conflict: conflict with \"x\" with subresource \"status\": .status.conditions[type=\"Ready\"].status"
    );
}

/// Whoever names a uid means one object: no other one of that name, and no new one.
#[tokio::test(start_paused = true)]
async fn a_configuration_with_a_uid_applies_to_that_object_alone() {
    let sim = sim();
    let path = format!("{MAPS}/a");
    let with_uid = |uid: &Value| {
        let mut map = map(&json!({"a": "1"}));
        map["metadata"]["uid"] = uid.clone();
        map
    };
    let of_nobody = json!("0e5a2b1e-6d7c-4a39-9d0e-6f5a3c1b2d4e");
    let (code, refused) = apply(&sim, &path, "fieldManager=x", &with_uid(&of_nobody)).await;
    assert_eq!((code, &refused["reason"]), (409, &json!("Conflict")));
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("no existing object was found"),
        "{message}"
    );
    let (_, created) = apply(&sim, &path, "fieldManager=x", &map(&json!({}))).await;
    let (code, _) = apply(
        &sim,
        &path,
        "fieldManager=x",
        &with_uid(&created["metadata"]["uid"]),
    )
    .await;
    assert_eq!(code, 200);
    let (code, refused) = apply(&sim, &path, "fieldManager=x", &with_uid(&of_nobody)).await;
    assert_eq!(code, 422, "{refused}");
    assert_eq!(refused["details"]["causes"][0]["field"], "metadata.uid");
}

#[tokio::test(start_paused = true)]
async fn an_invalid_configuration_is_refused() {
    let sim = sim();
    let path = format!("{MAPS}/a");
    for (body, code, message) in [
        (
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}),
            400,
            "invalid object type: /v1, Kind=Pod",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "what": 1}),
            500,
            "failed to create typed patch object (/; /v1, Kind=ConfigMap): .what: field not declared in schema",
        ),
        (json!({}), 400, "invalid object type: /, Kind="),
        (
            map(&json!({"a": true})),
            500,
            "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .data.a: expected string, got &value.valueUnstructured{Value:true}",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"managedFields": []}}),
            400,
            "metadata.managedFields must be nil",
        ),
    ] {
        let (found, answer) = apply(&sim, &path, "fieldManager=x", &body).await;
        assert_eq!((found, &answer["message"]), (code, &json!(message)));
    }
}

#[tokio::test(start_paused = true)]
async fn custom_objects_are_merged_by_their_schema() {
    let sim = sim();
    let parts = json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
        "items": {"type": "object", "required": ["id"], "properties": {
            "id": {"type": "integer"}, "size": {"type": "integer"},
        }},
    });
    let spec = json!({"type": "object", "properties": {
        "parts": parts, "plain": {"type": "array", "items": {"type": "string"}},
    }});
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {
                "openAPIV3Schema": {"type": "object", "properties": {"spec": spec}},
            }}],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(
        call(&sim, "POST", definitions, Some(definition)).await.0,
        201
    );
    let path = "/apis/example.com/v1/namespaces/default/widgets/w";
    let widget = |spec: Value| {
        json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
            "spec": spec,
        })
    };
    let first = widget(json!({"parts": [{"id": 1, "size": 1}, {"id": 2}], "plain": ["a"]}));
    let (code, created) = apply(&sim, path, "fieldManager=x", &first).await;
    assert_eq!(code, 201, "{created}");
    let (code, refused) = apply(
        &sim,
        path,
        "fieldManager=y",
        &widget(json!({"parts": [{"id": 1, "size": 2}], "plain": ["b"]})),
    )
    .await;
    assert_eq!(code, 409);
    assert_eq!(
        refused["message"],
        "Apply failed with 2 conflicts: conflicts with \"x\":\n- .spec.plain\n- .spec.parts[id=1].size"
    );
    let (code, more) = apply(
        &sim,
        path,
        "fieldManager=y",
        &widget(json!({"parts": [{"id": 3}]})),
    )
    .await;
    assert_eq!(code, 200, "{more}");
    let (_, less) = apply(
        &sim,
        path,
        "fieldManager=x",
        &widget(json!({"parts": [{"id": 2}]})),
    )
    .await;
    assert_eq!(less["spec"], json!({"parts": [{"id": 2}, {"id": 3}]}));
    let (code, refused) = apply(&sim, path, "fieldManager=x", &widget(json!({"part": 1}))).await;
    assert_eq!(code, 500);
    assert_eq!(
        refused["message"],
        "failed to create typed patch object (/w; example.com/v1, Kind=Widget): .spec.part: field not declared in schema"
    );
}
