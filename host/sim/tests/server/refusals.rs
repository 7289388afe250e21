//! Refused requests and their messages: from the source of Kubernetes 1.36, not
//! recorded.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test may fail by panicking"
)]

use serde_json::{Value, json};

use crate::support::{call, sim};

const CORE: &str = "/api/v1/namespaces/default";

/// Creates `body` and returns the server's errors.
async fn refusal(path: &str, body: Value) -> Vec<String> {
    let sim = sim();
    let (status, answer) = call(&sim, "POST", path, Some(body)).await;
    assert_eq!(status, 422, "{answer}");
    causes(&answer)
}

fn causes(answer: &Value) -> Vec<String> {
    let causes = answer["details"]["causes"].as_array().expect("causes");
    let text = |cause: &Value| {
        format!(
            "{}: {}",
            cause["field"].as_str().unwrap_or_default(),
            cause["message"].as_str().unwrap_or_default()
        )
    };
    causes.iter().map(text).collect()
}

fn pod(spec: Value) -> Value {
    json!({"metadata": {"name": "p"}, "spec": spec})
}

fn workload(spec: Value) -> Value {
    json!({"metadata": {"name": "w"}, "spec": spec})
}

fn template(labels: Value) -> Value {
    json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

#[tokio::test(start_paused = true)]
async fn pods() {
    let path = format!("{CORE}/pods");
    let cases = [
        (json!({}), vec!["spec.containers: Required value"]),
        (
            json!({"containers": [{"name": "c", "image": "i"}, {"name": "c"}]}),
            vec![
                "spec.containers[1].image: Required value",
                "spec.containers[1].name: Duplicate value: \"c\"",
            ],
        ),
        (
            json!({"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Sometimes"}),
            vec![
                "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\"",
            ],
        ),
        (
            json!({"containers": [{"name": "c", "image": "i"}], "tolerations": [
                {"key": "k", "operator": "Exists", "value": "v"},
                {"key": "k", "effect": "NoSchedule", "tolerationSeconds": 3},
                {"operator": "Equal"},
            ]}),
            vec![
                "spec.tolerations[0].operator: Invalid value: {\"Key\":\"k\",\"Operator\":\"Exists\",\"Value\":\"v\",\"Effect\":\"\",\"TolerationSeconds\":null}: value must be empty when `operator` is 'Exists'",
                "spec.tolerations[1].effect: Invalid value: \"NoSchedule\": effect must be 'NoExecute' when `tolerationSeconds` is set",
                "spec.tolerations[2].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            ],
        ),
        (
            json!({"containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]}),
            vec!["spec.containers[0].volumeMounts[0].name: Not found: \"v\""],
        ),
        (
            json!({"containers": [{"name": "c", "image": "i"}], "schedulingGates": [{"name": "g"}], "nodeName": "n"}),
            vec![
                "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
            ],
        ),
    ];
    for (spec, said) in cases {
        assert_eq!(refusal(&path, pod(spec)).await, said);
    }
}

#[tokio::test(start_paused = true)]
async fn pods_do_not_change() {
    let sim = sim();
    sim.create(crate::support::pod("p")).unwrap();
    let path = format!("{CORE}/pods/p");
    let added =
        json!({"spec": {"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]}});
    let (_, answer) = call(&sim, "PATCH", &path, Some(added)).await;
    assert_eq!(
        causes(&answer),
        ["spec.containers: Forbidden: pod updates may not add or remove containers"]
    );
    let deadline = |seconds: i64| Some(json!({"spec": {"activeDeadlineSeconds": seconds}}));
    assert_eq!(call(&sim, "PATCH", &path, deadline(5)).await.0, 200);
    let (_, answer) = call(&sim, "PATCH", &path, deadline(9)).await;
    assert_eq!(
        causes(&answer),
        [
            "spec.activeDeadlineSeconds: Invalid value: 9: must be less than or equal to previous value"
        ]
    );
    let (_, answer) = call(
        &sim,
        "PATCH",
        &format!("{path}/status"),
        Some(json!({"status": {"conditions": [{"type": "not good", "status": "True"}]}})),
    )
    .await;
    assert!(causes(&answer)[0].starts_with(
        "metadata.conditions[0].Type: Invalid value: \"not good\": name part must consist of"
    ));
}

#[tokio::test(start_paused = true)]
async fn nodes() {
    let node = json!({"metadata": {"name": "n"}, "spec": {"taints": [
        {"key": "k", "effect": "NoSchedule"}, {"key": "k", "value": "v", "effect": "NoSchedule"},
        {"key": "j", "effect": "Never"}, {"key": "i"},
    ]}});
    assert_eq!(
        refusal("/api/v1/nodes", node).await,
        [
            "metadata.taints[1]: Duplicate value: {\"Key\":\"k\",\"Value\":\"v\",\"Effect\":\"NoSchedule\",\"TimeAdded\":null}: taints must be unique by key and effect pair",
            "metadata.taints[2].effect: Unsupported value: \"Never\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
            "metadata.taints[3].effect: Required value",
        ]
    );
    let sim = sim();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
                      "spec": {"providerID": "a", "podCIDRs": ["10.0.0.0/24"]}});
    sim.create(node).unwrap();
    let change = json!({"spec": {"providerID": "b", "podCIDRs": ["10.0.1.0/24"]}});
    let (_, answer) = call(&sim, "PATCH", "/api/v1/nodes/n", Some(change)).await;
    assert_eq!(
        causes(&answer),
        [
            "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid",
            "spec.providerID: Forbidden: node updates may not change providerID except from \"\" to valid",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn sets_of_pods() {
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let (x, y) = (json!({"app": "x"}), json!({"app": "y"}));
    assert_eq!(
        refusal(path, workload(json!({"template": template(x.clone())}))).await,
        [
            "spec.selector: Required value",
            "spec.template.metadata.labels: Invalid value: {\"app\":\"x\"}: `selector` does not match template `labels`",
        ]
    );
    let empty = json!({"selector": {}, "template": template(x.clone())});
    assert_eq!(
        refusal(path, workload(empty)).await,
        ["spec.selector: Invalid value: {}: empty selector is invalid for deployment"]
    );
    let strategy = json!({
        "selector": {"matchLabels": x}, "template": template(x.clone()), "replicas": -1,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}},
    });
    assert_eq!(
        refusal(path, workload(strategy)).await,
        [
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
            "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"0%\": may not be 0 when `maxSurge` is 0",
        ]
    );
    let sim = sim();
    let good = json!({"selector": {"matchLabels": x}, "template": template(json!({"app": "x", "b": "c"}))});
    let (status, _) = call(&sim, "POST", path, Some(workload(good))).await;
    assert_eq!(status, 201);
    let change = json!({"spec": {"selector": {"matchLabels": {"b": "c"}}}});
    let (_, answer) = call(&sim, "PATCH", &format!("{path}/w"), Some(change)).await;
    assert_eq!(
        causes(&answer),
        [
            "spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"x\",\"b\":\"c\"}}: field is immutable"
        ]
    );
    let controllers = format!("{CORE}/replicationcontrollers");
    let mismatch = json!({"selector": y, "template": template(x.clone())});
    assert_eq!(
        refusal(&controllers, workload(mismatch)).await,
        [
            "spec.template.metadata.labels: Invalid value: {\"app\":\"x\"}: `selector` does not match template `labels`"
        ]
    );
    let status = json!({"status": {"replicas": 1, "readyReplicas": 2}});
    let (_, answer) = call(&sim, "PATCH", &format!("{path}/w/status"), Some(status)).await;
    assert_eq!(
        causes(&answer),
        ["status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas"]
    );
}

#[tokio::test(start_paused = true)]
async fn data() {
    let maps = format!("{CORE}/configmaps");
    let bad = json!({"metadata": {"name": "m"}, "data": {"a b": "1"}});
    assert_eq!(
        refusal(&maps, bad).await,
        [
            "data[a b]: Invalid value: \"a b\": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
        ]
    );
    let secrets = format!("{CORE}/secrets");
    let tls = json!({"metadata": {"name": "s"}, "type": "kubernetes.io/tls"});
    assert_eq!(
        refusal(&secrets, tls).await,
        [
            "data[tls.crt]: Required value",
            "data[tls.key]: Required value"
        ]
    );
    let sim = sim();
    let fixed = json!({"metadata": {"name": "m"}, "data": {"a": "1"}, "immutable": true});
    call(&sim, "POST", &maps, Some(fixed)).await;
    let change = json!({"data": {"a": "2"}, "immutable": false});
    let (_, answer) = call(&sim, "PATCH", &format!("{maps}/m"), Some(change)).await;
    assert_eq!(
        causes(&answer),
        [
            "immutable: Forbidden: field is immutable when `immutable` is set",
            "data: Forbidden: field is immutable when `immutable` is set",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn jobs_services_budgets_leases() {
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    assert_eq!(
        refusal(jobs, workload(json!({"template": template(json!({}))}))).await,
        [
            "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\""
        ]
    );
    let services = format!("{CORE}/services");
    let clash =
        json!({"ports": [{"port": 80, "name": "a"}, {"port": 80, "name": "b", "protocol": "TCP"}]});
    assert_eq!(
        refusal(&services, workload(clash)).await,
        [
            "spec.ports[1]: Duplicate value: {\"Name\":\"\",\"Protocol\":\"TCP\",\"AppProtocol\":null,\"Port\":80,\"TargetPort\":0,\"NodePort\":0}"
        ]
    );
    assert_eq!(
        refusal(&services, workload(json!({}))).await,
        ["spec.ports: Required value"]
    );
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let both = json!({"minAvailable": 1, "maxUnavailable": "10%", "selector": {"matchLabels": {"a": "b"}}});
    assert_eq!(
        refusal(budgets, workload(both)).await,
        [
            "spec: Invalid value: {\"MinAvailable\":1,\"Selector\":{\"matchLabels\":{\"a\":\"b\"}},\"MaxUnavailable\":\"10%\",\"UnhealthyPodEvictionPolicy\":null}: minAvailable and maxUnavailable cannot be both set"
        ]
    );
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease = json!({"leaseDurationSeconds": 0, "leaseTransitions": -1});
    assert_eq!(
        refusal(leases, workload(lease)).await,
        [
            "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
            "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn storage_versions() {
    let sim = sim();
    let path = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
    let bad = json!({"metadata": {"name": "pods"}});
    assert_eq!(
        refusal(path, bad).await,
        ["metadata.name: Invalid value: \"pods\": name must be in the form of <group>.<resource>"]
    );
    let good = json!({"metadata": {"name": "apps.deployments"}});
    assert_eq!(call(&sim, "POST", path, Some(good)).await.0, 201);
    let status = json!({"status": {"storageVersions": [
        {"apiServerID": "a", "encodingVersion": "apps/v1", "decodableVersions": ["v1"]},
    ]}});
    let (_, answer) = call(
        &sim,
        "PATCH",
        &format!("{path}/apps.deployments/status"),
        Some(status),
    )
    .await;
    assert_eq!(
        causes(&answer),
        [
            "status.storageVersions[0].decodableVersions: Invalid value: [\"v1\"]: decodableVersions must include encodingVersion apps/v1",
            "status.commonEncodingVersion: Invalid value: null: the common encoding version is apps/v1",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn definitions() {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let with = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"properties": {
        "a": {"type": "array"}, "b": {"type": "string", "oneOf": [{"type": "string"}]},
    }}}}});
    let spec = json!({
        "group": "example.com", "scope": "Global", "names": {"kind": "Widget", "plural": "widgets"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
    });
    assert_eq!(
        refusal(path, with("widgets.example.com", spec)).await,
        [
            "spec.scope: Unsupported value: \"Global\": supported values: \"Cluster\", \"Namespaced\"",
            "spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[a].items: Required value: must be specified",
            "spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[b].oneOf[0].type: Forbidden: must be empty to be structural",
            "spec.versions[0].schema.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified object fields",
        ]
    );
    let bare = json!({"group": "example", "scope": "Cluster", "names": {}, "versions": []});
    let found = refusal(path, with("x.example", bare)).await;
    assert_eq!(
        found,
        [
            "metadata.name: Invalid value: \"x.example\": must be spec.names.plural+\".\"+spec.group",
            "spec.group: Invalid value: \"example\": should be a domain with at least one dot",
            "spec.versions: Invalid value: []: must have exactly one version marked as storage version",
            "spec.names.plural: Required value",
            "spec.names.singular: Required value",
            "spec.names.kind: Required value",
            "spec.names.listKind: Required value",
        ]
    );
}
