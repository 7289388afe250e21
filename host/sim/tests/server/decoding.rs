//! Malformed bodies and patches, and their errors.

use davit_sim::Sim;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::support::{call, config_map, pod, send, sim};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// Patches the config map `a`: the status and the message, if it fails.
async fn patch(sim: &Sim, kind: &str, query: &str, body: &str) -> (u16, String) {
    let path = format!("{MAPS}/a{query}");
    let media_type = format!("application/{kind}+json");
    let response = send(sim, "PATCH", &path, &media_type, body.into()).await;
    let response = response.unwrap();
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&bytes).unwrap();
    (
        status,
        body["message"].as_str().unwrap_or_default().to_owned(),
    )
}

#[tokio::test(start_paused = true)]
async fn unknown_fields_are_dropped_or_refused() {
    let sim = sim();
    let mut map = config_map("a");
    map["extra"] = json!(1);
    let strict = format!("{MAPS}?fieldValidation=Strict");
    let (status, body) = call(&sim, "POST", &strict, Some(map.clone())).await;
    assert_eq!(
        (status, body["message"].as_str().unwrap()),
        (
            400,
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"extra\""
        )
    );
    let (status, created) = call(&sim, "POST", MAPS, Some(map)).await;
    assert_eq!((status, &created["extra"]), (201, &Value::Null));

    let body = r#"{"extra":1}"#;
    let (status, message) = patch(
        &sim,
        "strategic-merge-patch",
        "?fieldValidation=Strict",
        body,
    )
    .await;
    assert_eq!(
        (status, message.as_str()),
        (
            422,
            " \"\" is invalid: patch: Invalid value: \"map[extra:1]\": strict decoding error: unknown field \"extra\""
        )
    );
    let before = sim.get("v1", "ConfigMap", "default", "a").unwrap();
    assert_eq!(patch(&sim, "merge-patch", "", body).await.0, 200);
    assert_eq!(sim.get("v1", "ConfigMap", "default", "a").unwrap(), before);
}

#[tokio::test(start_paused = true)]
async fn values_of_a_wrong_type() {
    let sim = sim();
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"replicas": "3"}});
    let (status, body) = call(&sim, "POST", DEPLOYMENTS, Some(deployment)).await;
    assert_eq!(
        (status, body["message"].as_str().unwrap()),
        (
            400,
            "Deployment in version \"v1\" cannot be handled as a Deployment: json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"
        )
    );
    sim.create(config_map("a")).unwrap();
    let body = r#"{"data":{"k":2}}"#;
    let (status, message) = patch(&sim, "strategic-merge-patch", "", body).await;
    assert_eq!(
        (status, message.as_str()),
        (
            422,
            " \"\" is invalid: patch: Invalid value: \"map[data:map[k:2]]\": cannot convert int64 to string"
        )
    );
    let (status, message) = patch(&sim, "merge-patch", "", body).await;
    assert_eq!(status, 422);
    assert!(
        message.ends_with(
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
        ),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn patches_that_are_no_patches() {
    let sim = sim();
    sim.create(config_map("a")).unwrap();
    let long = format!("[{}{{}}]", "{},".repeat(10_000));
    for (kind, body, status, said) in [
        (
            "merge-patch",
            "[]",
            400,
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        ("merge-patch", "null", 400, "Invalid JSON Patch"),
        (
            "json-patch",
            "[x",
            400,
            "invalid character 'x' looking for beginning of value",
        ),
        (
            "strategic-merge-patch",
            "1",
            400,
            "json: cannot unmarshal number into Go value of type map[string]interface {}",
        ),
        ("strategic-merge-patch", "null", 200, ""),
        (
            "json-patch",
            "{}",
            400,
            "json: cannot unmarshal object into Go value of type jsonpatch.Patch",
        ),
        (
            "json-patch",
            "[true]",
            400,
            "json: cannot unmarshal bool into Go value of type jsonpatch.Operation",
        ),
        (
            "json-patch",
            r#"[{"op":"remove","path":"/none"}]"#,
            422,
            "the server rejected our request due to an error in our request",
        ),
        (
            "json-patch",
            &long,
            413,
            "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001",
        ),
    ] {
        let answered = patch(&sim, kind, "", body).await;
        assert_eq!(answered, (status, said.to_owned()), "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_of_an_eviction_evicts_nothing() {
    let sim = sim();
    sim.create(pod("p")).unwrap();
    let path = "/api/v1/namespaces/default/pods/p/eviction";
    let eviction = json!({"metadata": {"name": "p"}});
    let dry = format!("{path}?dryRun=All");
    let (status, _) = call(&sim, "POST", &dry, Some(eviction.clone())).await;
    let deleted = || {
        let pod = sim.get("v1", "Pod", "default", "p").unwrap();
        !pod["metadata"]["deletionTimestamp"].is_null()
    };
    assert_eq!((status, deleted()), (201, false));
    let (status, _) = call(&sim, "POST", path, Some(eviction)).await;
    assert_eq!((status, deleted()), (201, true));
}

/// kubectl before 1.27 reads this before any other request.
#[tokio::test(start_paused = true)]
async fn the_old_openapi_names_every_kind() {
    let sim = sim();
    let response = send(&sim, "GET", "/openapi/v2", "", Vec::new())
        .await
        .unwrap();
    assert_eq!(
        response.headers()["content-type"],
        "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    );
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&bytes);
    for part in [
        "/api/v1/namespaces/{namespace}/pods/{name}",
        "\"kind\":\"Lease\"",
        "dryRun",
    ] {
        assert!(text.contains(part), "{part}");
    }
}
