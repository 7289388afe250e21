//! What the annotations of each tool delete.

use serde_json::{Value, json};

use super::super::tests::{config, converted, deleted, object, problems};

fn annotated(name: &str, annotations: &[(&str, &str)]) -> Value {
    let mut map = object("v1", "ConfigMap", name, &json!({}));
    for (key, value) in annotations {
        map["metadata"]["annotations"][*key] = json!(value);
    }
    map
}

fn text_with(kind: &str, annotation: &str) -> String {
    format!(
        "apiVersion: v1\nkind: {kind}\nmetadata:\n  name: a\n  annotations: {{{annotation}: 1d}}\n"
    )
}

const TTL: &str = "k8s-ttl-controller.twin.sh/ttl";
const REFRESHED: &str = "k8s-ttl-controller.twin.sh/refreshed-at";

/// The objects are 25 days and 12 hours old.
#[test]
fn the_annotation_of_k8s_ttl_controller_counts_from_the_creation_or_the_refresh() {
    let config = config(&text_with("ConfigMap", TTL));
    let of = |name: &str, ttl: &str| annotated(name, &[(TTL, ttl)]);
    let refreshed = |name: &str, at: &str| annotated(name, &[(TTL, "24h"), (REFRESHED, at)]);
    let objects = json!([
        of("days", "25d"),
        of("long", "26d"),
        of("weeks", "3w"),
        of("hours", "611h59m59.5s"),
        of("later", "612h0m1s"),
        of("mixed", "1d12h"),
        of("zero", "0"),
        of("negative", "-1h"),
        of("nonsense", "soon"),
        refreshed("refreshed", "2026-11-25T11:59:59Z"),
        refreshed("elsewhere", "2026-11-25T12:59:59+01:00"),
        refreshed("fresh", "2026-11-25T12:00:01Z"),
        refreshed("no-time", "yesterday"),
        annotated("only-refreshed", &[(REFRESHED, "2026-11-01T00:00:00Z")]),
        annotated("none", &[]),
    ]);
    assert_eq!(
        deleted(&config, &objects),
        ["days", "elsewhere", "hours", "refreshed", "weeks"]
    );
    let action = &config["rules"][0]["do"];
    assert_eq!(action["delete"], json!({}));
    assert_eq!(action["event"]["reason"], "DeletedExpiredTTL");
}

/// It spares no namespace, as kube-janitor does.
#[test]
fn k8s_ttl_controller_deletes_in_every_namespace() {
    let config = config(&text_with("ConfigMap", TTL));
    let mut system = annotated("system", &[(TTL, "1d")]);
    system["metadata"]["namespace"] = json!("kube-system");
    assert_eq!(deleted(&config, &json!([system])), ["system"]);
}

#[test]
fn the_annotations_of_k8s_cleaner_are_a_duration_of_one_unit_and_a_time() {
    let config = config(&text_with("ConfigMap", "cleaner/ttl"));
    let ttl = |name: &str, ttl: &str| annotated(name, &[("cleaner/ttl", ttl)]);
    let expires = |name: &str, at: &str| annotated(name, &[("cleaner/expires", at)]);
    let objects = json!([
        ttl("days", "25d"),
        ttl("long", "4w"),
        ttl("seconds", "360s"),
        ttl("two-units", "1h30m"),
        ttl("zero", "0s"),
        expires("expired", "2026-11-26T11:59:59Z"),
        expires("future", "2026-11-26T12:00:01Z"),
        expires("date", "2026-11-25"),
        annotated("none", &[]),
    ]);
    assert_eq!(deleted(&config, &objects), ["days", "expired", "seconds"]);
}

#[test]
fn what_k8s_cleaner_cannot_delete_is_named() {
    assert_eq!(
        problems(&text_with("Namespace", "cleaner/ttl")),
        ["Namespace a: the scripts of k8s-cleaner fail for an object without a namespace"]
    );
}

/// Kyverno and k8s-ttl-controller delete these objects.
#[test]
fn what_kube_janitor_never_deletes_is_named_and_has_no_rule() {
    let kinds = [
        ("v1", "PersistentVolume", "persistentvolumes"),
        (
            "rbac.authorization.k8s.io/v1",
            "ClusterRole",
            "clusterroles",
        ),
        ("apps/v1", "ControllerRevision", "controllerrevisions"),
        ("v1", "Event", "events"),
        ("events.k8s.io/v1", "Event", "events"),
    ];
    let marked = |version: &str, kind: &str, marks: &str| {
        format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a, {marks}}}\n")
    };
    for (version, kind, plural) in kinds {
        let why = match plural {
            "events" | "controllerrevisions" => "spares them by default",
            _ => "deletes only objects in namespaces",
        };
        for annotation in ["janitor/ttl: 1d", "janitor/expires: 2026-11-25"] {
            let marks = format!("annotations: {{{annotation}}}");
            let conversion = converted(&marked(version, kind, &marks));
            assert!(conversion.controllers.is_empty(), "{kind} {annotation}");
            let problems = conversion.problems.iter();
            let problems: Vec<_> = problems.map(|it| (&it.place, &it.message)).collect();
            let expected = (&format!("{kind} a"), &format!("kube-janitor {why}"));
            assert_eq!(problems, [expected], "{annotation}");
        }
        for marks in [
            "labels: {cleanup.kyverno.io/ttl: 1d}".to_owned(),
            format!("annotations: {{{TTL}: 1d}}"),
        ] {
            let config = config(&marked(version, kind, &marks));
            let resource = config["rules"][0]["match"]["resource"].as_str().unwrap();
            assert!(resource.starts_with(plural), "{resource}");
        }
    }
    // Namespaces have no namespace, and kube-janitor deletes them.
    let config = config(&text_with("Namespace", "janitor/ttl"));
    assert_eq!(config["rules"][0]["match"]["resource"], "namespaces");
}

/// An object may have the marks of several tools: each is a Controller, so that the tools can be
/// replaced one after the other.
#[test]
fn each_tool_is_a_controller() {
    let text = [
        text_with("Pod", "janitor/ttl"),
        text_with("Pod", TTL),
        text_with("Pod", "cleaner/expires"),
        text_with("Secret", TTL),
        text_with("Secret", TTL),
    ];
    let conversion = converted(&text.join("---\n"));
    let controllers = conversion.controllers.iter();
    let rules: Vec<(&str, usize)> = controllers
        .map(|it| (it.name.as_str(), it.rules.len()))
        .collect();
    assert_eq!(
        rules,
        [
            ("janitor-ttl", 2),
            ("k8s-ttl-controller", 2),
            ("k8s-cleaner-ttl", 2)
        ]
    );
}

/// Also of a kind that the API server in memory does not have.
#[test]
fn every_kind_of_kubernetes_may_have_a_time_to_live() {
    let mut ingress = object("networking.k8s.io/v1", "Ingress", "old", &json!({}));
    ingress["metadata"]["annotations"]["janitor/ttl"] = json!("1d");
    let config = config(&ingress.to_string());
    assert_eq!(
        config["rules"][0]["match"]["resource"],
        "ingresses.networking.k8s.io"
    );
    assert_eq!(deleted(&config, &json!([ingress])), ["old"]);
}

/// A configuration has 100 rules at most.
#[test]
fn many_kinds_are_divided_over_several_controllers() {
    let kinds = [
        ("v1", "Pod"),
        ("v1", "Secret"),
        ("v1", "ConfigMap"),
        ("v1", "Service"),
        ("v1", "Namespace"),
        ("v1", "ServiceAccount"),
        ("v1", "PersistentVolumeClaim"),
        ("v1", "PersistentVolume"),
        ("v1", "ReplicationController"),
        ("v1", "ResourceQuota"),
        ("v1", "LimitRange"),
        ("v1", "Endpoints"),
        ("apps/v1", "Deployment"),
        ("apps/v1", "StatefulSet"),
        ("apps/v1", "DaemonSet"),
        ("apps/v1", "ReplicaSet"),
        ("batch/v1", "Job"),
        ("batch/v1", "CronJob"),
        ("policy/v1", "PodDisruptionBudget"),
        ("networking.k8s.io/v1", "Ingress"),
        ("networking.k8s.io/v1", "NetworkPolicy"),
        ("rbac.authorization.k8s.io/v1", "Role"),
        ("rbac.authorization.k8s.io/v1", "RoleBinding"),
        ("rbac.authorization.k8s.io/v1", "ClusterRole"),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
        ("coordination.k8s.io/v1", "Lease"),
    ];
    let texts = kinds.map(|(version, kind)| {
        format!(
            "apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a, labels: \
             {{cleanup.kyverno.io/ttl: 1d}}}}\n"
        )
    });
    let conversion = converted(&texts.join("---\n"));
    assert_eq!(conversion.problems, []);
    let controllers = conversion.controllers.iter();
    let rules: Vec<(&str, usize)> = controllers
        .map(|it| (it.name.as_str(), it.rules.len()))
        .collect();
    assert_eq!(rules, [("kyverno-ttl", 100), ("kyverno-ttl-2", 4)]);
}
