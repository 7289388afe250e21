//! What the rules of kube-janitor delete.

use serde_json::{Value, json};

use super::super::tests::{config, deleted, object, problems};

fn deployment(name: &str, more: &Value) -> Value {
    object("apps/v1", "Deployment", name, more)
}

#[test]
fn the_first_rule_of_kube_janitor_that_matches_decides() {
    let config = config(
        r#"
rules:
  - id: previews
    resources: [deployments, namespaces]
    jmespath: "starts_with(metadata.name, 'pr-')"
    ttl: forever
  - id: unnamed
    resources: [deployments]
    jmespath: "!(spec.template.metadata.labels.application)"
    ttl: 4d
"#,
    );
    let pod = |labels: Value| json!({"spec.template.metadata.labels": labels});
    let mut annotated = deployment("annotated", &pod(json!({})));
    annotated["metadata"]["annotations"]["janitor/ttl"] = json!("10w");
    let mut expired = deployment("expired", &pod(json!({"application": "a"})));
    expired["metadata"]["annotations"]["janitor/expires"] = json!("2026-11-26T11:59");
    let mut young = deployment("young", &pod(json!({})));
    young["metadata"]["creationTimestamp"] = json!("2026-11-25T00:00:00Z");
    let objects = json!([
        deployment("unnamed", &pod(json!({}))),
        deployment("pr-1", &pod(json!({}))),
        deployment("named", &pod(json!({"application": "shop"}))),
        annotated,
        expired,
        young,
    ]);
    assert_eq!(deleted(&config, &objects), ["expired", "unnamed"]);
}

#[test]
fn a_rule_of_kube_janitor_after_one_without_a_translation_is_left_out() {
    let text = r#"
rules:
  - {id: hooked, resources: [persistentvolumeclaims], jmespath: "_context.pvc_is_not_mounted", ttl: 1d}
  - {id: all, resources: ["*"], jmespath: "starts_with(metadata.name, 'x')", ttl: 1d}
  - {id: later, resources: [persistentvolumeclaims], jmespath: "starts_with(metadata.name, 'y')", ttl: 1d}
"#;
    assert_eq!(
        problems(text),
        [
            "rules[0] (persistentvolumeclaims): _context is what a hook in Python adds",
            "rules[1] (*): a rule names its resources",
            "rules[2] (persistentvolumeclaims): a rule before it that has no translation may decide",
        ]
    );
}

/// What kube-janitor does with these objects, by jmespath.py. The names are those for which a
/// condition has the result true.
const MATCHED: [(&str, &[&str]); 10] = [
    // The function fails for a list or a text that is missing.
    ("!contains(metadata.finalizers, 'keep')", &["final"]),
    ("!(length(spec.template.spec.volumes) > `1`)", &["mounted"]),
    ("!starts_with(metadata.labels.app, 'x')", &["app-z"]),
    ("!(!starts_with(metadata.labels.app, 'x'))", &["app-x"]),
    (
        "starts_with(metadata.labels.app, 'x') || starts_with(metadata.name, 'bare')",
        &["app-x"],
    ),
    // It does not where the left side decides.
    (
        "starts_with(metadata.name, 'bare') || starts_with(metadata.labels.app, 'x')",
        &["app-x", "bare"],
    ),
    (
        "starts_with(metadata.name, 'app') && starts_with(metadata.labels.app, 'x')",
        &["app-x"],
    ),
    (
        "!(starts_with(metadata.name, 'app') && starts_with(metadata.labels.app, 'x'))",
        &["app-z", "bare", "final", "keep", "mounted", "mounted-twice"],
    ),
    (
        "!(metadata.labels.app) || !starts_with(metadata.labels.app, 'x')",
        &["app-z", "bare", "final", "keep", "mounted", "mounted-twice"],
    ),
    // A comparison does not fail.
    (
        "!(status.readyReplicas < `5`) && metadata.labels.app != 'xa'",
        &["app-z", "bare", "final", "keep", "mounted", "mounted-twice"],
    ),
];

fn matched_objects() -> Value {
    let volumes = |names: &[&str]| {
        let volumes: Vec<Value> = names.iter().map(|it| json!({"name": it})).collect();
        json!({"spec.template.spec.volumes": volumes})
    };
    json!([
        deployment("bare", &json!({})),
        deployment("app-x", &json!({"metadata.labels.app": "xa"})),
        deployment("app-z", &json!({"metadata.labels.app": "z"})),
        deployment("keep", &json!({"metadata.finalizers": ["keep"]})),
        deployment("final", &json!({"metadata.finalizers": ["final"]})),
        deployment("mounted", &volumes(&["a"])),
        deployment("mounted-twice", &volumes(&["a", "b"])),
    ])
}

fn rule(id: &str, jmespath: &str, ttl: &str) -> Value {
    json!({"id": id, "resources": ["deployments"], "jmespath": jmespath, "ttl": ttl})
}

#[test]
fn an_object_for_which_jmespath_fails_stays() {
    for (jmespath, expected) in MATCHED {
        let rules = json!({"rules": [rule("first", jmespath, "1d")]});
        let config = config(&rules.to_string());
        let found = deleted(&config, &matched_objects());
        assert_eq!(found, expected, "{jmespath}: {config}");
    }
}

/// Where an earlier condition fails, no later rule decides.
#[test]
fn an_object_for_which_jmespath_fails_in_an_earlier_rule_stays() {
    let every = "metadata.name != 'none'";
    for (negated, unmatched) in [
        ("contains(metadata.finalizers, 'keep')", &["final"][..]),
        ("length(spec.template.spec.volumes) > `1`", &["mounted"]),
        ("!starts_with(metadata.labels.app, 'x')", &["app-x"]),
        (
            "metadata.labels.app && starts_with(metadata.labels.app, 'x')",
            &["app-z", "bare", "final", "keep", "mounted", "mounted-twice"],
        ),
    ] {
        let rules = [
            rule("first", negated, "forever"),
            rule("second", every, "1d"),
        ];
        let config = config(&json!({"rules": rules}).to_string());
        let found = deleted(&config, &matched_objects());
        assert_eq!(found, unmatched, "{negated}: {config}");
    }
}

#[test]
fn a_condition_that_may_mean_something_else_is_named() {
    for (jmespath, expected) in [
        // `metadata` is no boolean that could be negated, and `false.labels` is null.
        (
            "!metadata.labels.app",
            "\"!\" before a path negates its first name alone: write !(a.b)",
        ),
        // A text or a number.
        (
            "length(spec.strategy.rollingUpdate.maxSurge) > `1`",
            "the length of object.spec.strategy.rollingUpdate.maxSurge has no translation",
        ),
    ] {
        let rules = json!({"rules": [rule("first", jmespath, "1d")]});
        let found = problems(&rules.to_string());
        assert_eq!(found, [format!("rules[0] (deployments): {expected}")]);
    }
    let long = "metadata.name && ".repeat(1000) + "metadata.name";
    let rules = json!({"rules": [rule("first", &long, "1d")]});
    let found = problems(&rules.to_string());
    assert_eq!(
        found,
        ["rules[0] (deployments): the condition is longer than 4096 bytes"]
    );
}

/// It may be about any resource, and decide that the object stays.
#[test]
fn a_rule_whose_resources_cannot_be_read_leaves_out_the_later_ones() {
    for resources in [json!("deployments"), json!([{"name": "deployments"}])] {
        let mut first = rule("first", "metadata.name", "forever");
        first["resources"] = resources;
        let rules = [first, rule("second", "metadata.name", "1d")];
        assert_eq!(
            problems(&json!({"rules": rules}).to_string()),
            [
                "rules[0] (*): a rule names its resources",
                "rules[1] (deployments): a rule before it that has no translation may decide",
            ]
        );
    }
}
