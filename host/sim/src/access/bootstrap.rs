//! The bootstrap roles and bindings, as far as requests to this server need them.

use serde_json::{Value, json};

/// Kind and body of each.
pub(crate) fn objects() -> Vec<(&'static str, Value)> {
    let everything = json!([
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ]);
    let reviews = json!([
        {
            "apiGroups": ["authorization.k8s.io"], "verbs": ["create"],
            "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
        },
        {
            "apiGroups": ["authentication.k8s.io"], "verbs": ["create"],
            "resources": ["selfsubjectreviews"],
        },
    ]);
    let discovery = json!([{
        "nonResourceURLs": [
            "/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*",
            "/readyz", "/version", "/version/",
        ],
        "verbs": ["get"],
    }]);
    let public = json!([{
        "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"],
        "verbs": ["get"],
    }]);
    let (known, unknown) = ("system:authenticated", "system:unauthenticated");
    [
        ("cluster-admin", everything, vec!["system:masters"]),
        ("system:basic-user", reviews, vec![known]),
        ("system:discovery", discovery, vec![known]),
        ("system:public-info-viewer", public, vec![known, unknown]),
    ]
    .into_iter()
    .flat_map(|(name, rules, groups)| [role(name, &rules), binding(name, &groups)])
    .collect()
}

fn metadata(name: &str) -> Value {
    json!({"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}})
}

fn role(name: &str, rules: &Value) -> (&'static str, Value) {
    let role = json!({"metadata": metadata(name), "rules": rules});
    ("clusterroles", role)
}

fn binding(name: &str, groups: &[&str]) -> (&'static str, Value) {
    let subjects: Vec<Value> = groups
        .iter()
        .map(|group| json!({"apiGroup": super::GROUP, "kind": "Group", "name": group}))
        .collect();
    let role = json!({"apiGroup": super::GROUP, "kind": "ClusterRole", "name": name});
    let binding = json!({"metadata": metadata(name), "roleRef": role, "subjects": subjects});
    ("clusterrolebindings", binding)
}
