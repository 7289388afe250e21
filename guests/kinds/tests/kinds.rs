//! The built-in kinds, as an API server publishes them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot continue has failed"
)]

use davit_kinds::{Kind, Type, kind, kind_at, kinds, resource_of_kind};

fn of(group: &str, plural: &str) -> Kind {
    kind(group, plural).unwrap_or_else(|| panic!("{plural}.{group} is not built in"))
}

/// The type at a path, as it is displayed; or the error.
fn spelling(group: &str, plural: &str, path: &str) -> String {
    match of(group, plural).check(path) {
        Ok(found) => found.to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn kinds_have_their_groups_versions_and_scopes() {
    let pods = of("", "pods");
    assert_eq!(
        (pods.kind, pods.version, pods.is_namespaced),
        ("Pod", "v1", true)
    );
    assert_eq!(pods.api_version(), "v1");
    assert_eq!(pods.to_string(), "pods (v1)");
    assert!(!of("", "nodes").is_namespaced);
    assert!(!of("", "namespaces").is_namespaced);
    assert_eq!(of("apps", "deployments").api_version(), "apps/v1");
    assert_eq!(
        of("apps", "deployments").to_string(),
        "deployments.apps (v1)"
    );
    // It can be created only.
    assert_eq!(
        of("authorization.k8s.io", "subjectaccessreviews").kind,
        "SubjectAccessReview"
    );
}

#[test]
fn the_newest_stable_version_is_first() {
    assert_eq!(of("autoscaling", "horizontalpodautoscalers").version, "v2");
    assert_eq!(of("resource.k8s.io", "resourceclaims").version, "v1");
    assert_eq!(
        of("coordination.k8s.io", "leasecandidates").version,
        "v1beta1"
    );
    let former = kind_at("autoscaling", "v1", "horizontalpodautoscalers").unwrap();
    assert!(former.check("spec.targetCPUUtilizationPercentage").is_ok());
    assert!(
        of("autoscaling", "horizontalpodautoscalers")
            .check("spec.metrics")
            .is_ok()
    );
}

#[test]
fn fields_have_their_types() {
    for (group, plural, path, expected) in [
        ("", "pods", "spec", "core.v1.PodSpec"),
        ("", "pods", "spec.nodeName", "string"),
        ("", "pods", "spec.containers", "[]core.v1.Container"),
        (
            "",
            "pods",
            "spec.containers[*].resources.limits.cpu",
            "quantity",
        ),
        (
            "",
            "pods",
            "spec.containers[*].livenessProbe.httpGet.port",
            "int-or-string",
        ),
        ("", "pods", "spec.containers[*].args[*]", "string"),
        (
            "",
            "pods",
            "metadata.labels[\"kubernetes.io/os\"]",
            "string",
        ),
        ("", "pods", "metadata.labels.app", "string"),
        (
            "",
            "pods",
            "metadata.managedFields[*].fieldsV1[\"f:spec\"][*].any",
            "any",
        ),
        ("", "nodes", "spec.taints[*].effect", "string"),
        ("", "nodes", "status.capacity", "{}quantity"),
        ("", "configmaps", "data", "{}string"),
        ("", "configmaps", "binaryData[\"a.b\"]", "bytes"),
        ("", "configmaps", "immutable", "boolean"),
        ("", "secrets", "data.password", "bytes"),
        ("batch", "jobs", "spec.ttlSecondsAfterFinished", "integer"),
        ("batch", "jobs", "spec.template.spec.nodeName", "string"),
        ("apps", "controllerrevisions", "data", "any"),
        (
            "authorization.k8s.io",
            "subjectaccessreviews",
            "spec.extra",
            "{}[]string",
        ),
        (
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            // A type that contains itself.
            "spec.versions[*].schema.openAPIV3Schema.properties.a.properties.b.maximum",
            "number",
        ),
        (
            "internal.apiserver.k8s.io",
            "storageversions",
            "status.storageVersions[*].apiServerID",
            "string",
        ),
    ] {
        assert_eq!(spelling(group, plural, path), expected, "{path}");
    }
}

#[test]
fn times_are_times() {
    for (group, plural, path) in [
        ("", "pods", "metadata.creationTimestamp"),
        ("", "pods", "metadata.deletionTimestamp"),
        ("", "pods", "status.conditions[*].lastTransitionTime"),
        ("", "nodes", "spec.taints[*].timeAdded"),
        ("batch", "jobs", "status.completionTime"),
        // With microseconds.
        ("coordination.k8s.io", "leases", "spec.renewTime"),
        ("events.k8s.io", "events", "eventTime"),
    ] {
        assert_eq!(
            of(group, plural).check(path),
            Ok(Type::Time),
            "{plural} {path}"
        );
    }
    assert_eq!(of("", "pods").check("status.phase"), Ok(Type::String));
}

#[test]
fn an_unknown_field_comes_with_a_suggestion() {
    for (path, suggested) in [
        ("status.fase", Some("status.phase")),
        ("statsu", Some("status")),
        ("statsu.phase", Some("status")),
        ("spec.nodename", Some("spec.nodeName")),
        ("spec.containers[*].img", Some("spec.containers[*].image")),
        ("spec.containers[*].imag", Some("spec.containers[*].image")),
        ("spec.container", Some("spec.containers")),
        // In another part of the object.
        ("nodeName", Some("spec.nodeName")),
        ("status.nodeName", Some("spec.nodeName")),
        ("spec.ownerReferences", Some("metadata.ownerReferences")),
        // A list's elements.
        ("status.conditions.type", Some("status.conditions[*].type")),
        ("status.conditions.nothing", None),
        // Nothing is below.
        ("spec.nodeName.x", None),
        ("metadata.labels[*]", None),
        ("spec[*]", None),
    ] {
        let error = of("", "pods").check(path).unwrap_err();
        assert_eq!(error.suggestion.as_deref(), suggested, "{path}: {error}");
    }
    let error = of("", "pods")
        .check("spec.containers[*].imag[*].x")
        .unwrap_err();
    assert_eq!(error.kind, "pods (v1)");
    assert_eq!(error.path_so_far, "spec.containers[*]");
    assert_eq!(error.field, "imag");
    assert_eq!(
        spelling("apps", "deployments", "metadata[*]"),
        "deployments.apps (v1) has no field \"metadata[*]\""
    );
    assert_eq!(
        spelling("", "pods", "status.conditions[\"a.b/c\"].x"),
        "pods (v1) has no field \"status.conditions[\"a.b/c\"]\""
    );
}

#[test]
fn a_text_that_is_not_a_path_is_an_unknown_field() {
    for path in [
        "",
        ".",
        "spec.",
        "spec..nodeName",
        ".spec",
        "[*]",
        "spec[0]",
        "spec[\"nodeName",
        "é",
    ] {
        assert!(of("", "pods").check(path).is_err(), "{path}");
    }
}

#[test]
fn every_suggestion_is_a_field() {
    let pods = of("", "pods");
    for path in [
        "specs",
        "spec.toleration",
        "status.hostip",
        "metadata.uuid",
        "status.conditions.type",
    ] {
        let suggestion = pods.check(path).unwrap_err().suggestion;
        let suggestion = suggestion.unwrap_or_else(|| panic!("{path} has no suggestion"));
        assert!(pods.check(&suggestion).is_ok(), "{suggestion}");
    }
}

#[test]
fn unknown_kinds_are_none() {
    assert_eq!(kind("", "pod"), None);
    assert_eq!(kind("", "deployments"), None);
    assert_eq!(kind("davit.dev", "controllers"), None);
    assert_eq!(kind_at("", "v2", "pods"), None);
    assert_eq!(resource_of_kind("v1", "PodList"), None);
    assert_eq!(resource_of_kind("apps/v1", "Pod"), None);
    assert_eq!(resource_of_kind("", ""), None);
}

#[test]
fn a_kind_is_found_by_what_owner_references_name() {
    for found in kinds() {
        assert_eq!(
            resource_of_kind(&found.api_version(), found.kind),
            Some(found)
        );
        assert_eq!(
            kind_at(found.group, found.version, found.plural),
            Some(found)
        );
    }
}

#[test]
fn every_kind_has_a_type() {
    for found in kinds() {
        assert!(matches!(found.root(), Type::Object(_)), "{found}");
        assert_eq!(found.check("apiVersion"), Ok(Type::String), "{found}");
    }
}
