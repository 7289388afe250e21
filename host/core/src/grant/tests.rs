use super::*;
use serde_json::{Value, json};

fn grant(rules: Value) -> Grant {
    Grant::Rules {
        rules: Arc::new(serde_json::from_value(rules).unwrap()),
        home: "davit-system".into(),
    }
}

fn watch(source: Source, namespace: &str, fields: &[&str]) -> WatchSpec {
    WatchSpec {
        namespace: namespace.into(),
        fields: paths(fields),
        ..WatchSpec::new("objects", source)
    }
}

fn one(group: &str, plural: &str) -> Source {
    Source::One(ApiResource::new(group, "v1", plural))
}

fn paths(texts: &[&str]) -> Vec<FieldPath> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn manifest(watches: Vec<WatchSpec>, permissions: &[(&str, &str, &str)]) -> Manifest {
    Manifest {
        name: "test".into(),
        watches,
        permissions: permissions.iter().map(|it| permission(*it)).collect(),
        ..Manifest::default()
    }
}

fn permission((verb, group, resource): (&str, &str, &str)) -> Permission {
    Permission::new(verb, group, resource)
}

/// What a guest lacks that declares this watch alone.
fn missing(rules: Value, declared: WatchSpec) -> String {
    grant(rules)
        .missing(&manifest(vec![declared], &[]))
        .to_string()
}

#[test]
fn without_rules_everything_declared_is_missing() {
    let pods = watch(one("", "pods"), "", &["spec.nodeName", "status.phase"]);
    let asks = [("get", "", "nodes"), ("delete", "", "pods")];
    let declared = manifest(vec![pods], &asks);
    let missing = grant(json!({})).missing(&declared);
    let expected = "read nodes; read pods (spec.nodeName, status.phase); delete pods";
    assert_eq!(missing, Permissions::declared_by(&declared));
    assert_eq!(missing.to_string(), expected);
    // The rules that are missing are those that would be enough.
    let rules = serde_json::to_value(&missing).unwrap();
    assert!(grant(rules).missing(&declared).is_empty());
    assert!(Grant::Declared.missing(&declared).is_empty());
}

#[test]
fn a_live_read_lacks_the_fields_that_the_guest_names() {
    let pods = watch(one("", "pods"), "", &["spec.nodeName"]);
    let asks = [
        ("get", "", "nodes"),
        ("get", "", "jobs"),
        ("list", "", "pods"),
    ];
    let mut declared = manifest(vec![pods], &asks);
    let live = |resource: &str, fields: &[&str]| LiveFields {
        group: String::new(),
        resource: resource.into(),
        fields: paths(fields),
    };
    declared.live_fields = vec![
        live("nodes", &[]),
        live("pods", &["spec.volumes", "status.phase"]),
    ];
    let missing = grant(json!({})).missing(&declared);
    let expected = "read jobs; read nodes (metadata.name); \
                    read pods (spec.nodeName, spec.volumes, status.phase)";
    assert_eq!(missing.to_string(), expected);
    let rules = grant(serde_json::to_value(&missing).unwrap());
    assert!(rules.missing(&declared).is_empty());
    let nodes = ApiResource::new("", "v1", "nodes");
    rules.allows_read(&nodes, "", &[]).unwrap();
}

#[test]
fn a_rule_grants_a_field_with_everything_below_it() {
    let pods = |fields: &[&str]| watch(one("", "pods"), "", fields);
    let rules = json!({"reads": [{"resource": "pods", "fields": ["spec", "status.conditions"]}]});
    let granted = ["spec.nodeName", "status.conditions[*].type"];
    assert_eq!(missing(rules.clone(), pods(&granted)), "");
    assert_eq!(missing(rules.clone(), pods(&[])), "");
    assert_eq!(
        missing(rules.clone(), pods(&["status"])),
        "read pods (status)"
    );
    assert_eq!(
        missing(rules, pods(&["spec", "metadata.labels"])),
        "read pods (metadata.labels)"
    );
    let several = json!({"reads": [
        {"resource": "pods", "fields": ["spec"]},
        {"resource": "pods", "fields": ["status.phase"]},
    ]});
    assert_eq!(
        missing(several, pods(&["spec.nodeName", "status.phase"])),
        ""
    );
    let all = json!({"reads": [{"resource": "pods"}]});
    assert_eq!(missing(all, pods(&["spec", "status"])), "");
}

#[test]
fn a_rule_for_a_namespace_does_not_grant_a_watch_of_all() {
    let rules = json!({"reads": [{"resource": "pods", "namespaces": ["tools"]}]});
    let pods = |namespace| watch(one("", "pods"), namespace, &["spec"]);
    assert_eq!(missing(rules.clone(), pods("tools")), "");
    assert_eq!(missing(rules.clone(), pods("")), "read pods (spec)");
    assert_eq!(
        missing(rules, pods("default")),
        "read pods in default (spec)"
    );
}

#[test]
fn a_rule_of_another_group_grants_nothing() {
    let rules = json!({"reads": [{"group": "metrics.k8s.io", "resource": "pods"}]});
    let pods = watch(one("", "pods"), "", &["spec"]);
    assert_eq!(missing(rules, pods), "read pods (spec)");
}

/// Whatever is granted by wildcard, or declared by a guest that ships with Davit.
#[test]
fn the_data_of_secrets_is_granted_only_by_name() {
    let secrets = |fields: &[&str]| watch(one("", "secrets"), "", fields);
    let wildcards = [
        json!({"reads": [{"group": "*", "resource": "*"}]}),
        json!({"reads": [{"group": "*", "resource": "*", "fields": ["data", "metadata"]}]}),
        json!({"reads": [{"resource": "secrets"}]}),
    ];
    for rules in wildcards {
        let own = ["metadata.ownerReferences", "metadata.labels"];
        assert_eq!(missing(rules.clone(), secrets(&own)), "", "{rules}");
        for data in [
            "data",
            "stringData",
            "metadata.annotations",
            "metadata",
            "type",
        ] {
            let lacks = missing(rules.clone(), secrets(&[data]));
            assert_eq!(lacks, format!("read secrets ({data})"), "{rules}");
        }
    }
    let declared = manifest(vec![secrets(&["data"])], &[]);
    assert_eq!(
        Grant::Declared.missing(&declared).to_string(),
        "read secrets (data)"
    );
    let named = json!({"reads": [{"resource": "secrets", "fields": ["data"]}]});
    assert_eq!(missing(named.clone(), secrets(&["data"])), "");
    assert_eq!(
        missing(named, secrets(&["metadata"])),
        "read secrets (metadata)"
    );
}

/// `kubectl apply` copies the data of a Secret into an annotation.
#[test]
fn a_watch_of_every_resource_does_not_read_the_annotations_of_secrets() {
    let every = |except: Vec<ApiResource>, fields: &[&str]| {
        watch(Source::EveryDeletable(except), "", fields)
    };
    let rules = json!({"reads": [{"group": "*", "resource": "*", "fields": ["metadata"]}]});
    let owners = every(vec![], &["metadata.ownerReferences", "metadata.finalizers"]);
    assert_eq!(missing(rules.clone(), owners), "");
    let annotations = ["metadata.annotations"];
    let lacks = missing(rules.clone(), every(vec![], &annotations));
    assert_eq!(lacks, "read secrets (metadata.annotations)");
    let without = every(vec![ApiResource::new("", "v1", "secrets")], &annotations);
    assert_eq!(missing(rules, without), "");
    let pods = json!({"reads": [{"resource": "pods"}]});
    let owners = every(vec![], &["metadata.ownerReferences"]);
    assert_eq!(missing(pods, owners), "read */* (metadata.ownerReferences)");
}

#[test]
fn a_live_read_needs_a_grant_for_its_namespace_and_its_fields() {
    let rules = json!({"reads": [
        {"resource": "pods", "namespaces": ["tools"], "fields": ["spec"]},
        {"resource": "secrets", "fields": ["data.token"]},
    ]});
    let grant = grant(rules);
    let reads = |plural, namespace, fields: &[&str]| {
        grant.allows_read(
            &ApiResource::new("", "v1", plural),
            namespace,
            &paths(fields),
        )
    };
    assert_eq!(reads("pods", "tools", &["spec.nodeName"]), Ok(()));
    assert_eq!(reads("pods", "tools", &[]), Ok(()));
    assert_eq!(reads("secrets", "tools", &["data.token"]), Ok(()));
    for (plural, namespace, fields) in [
        ("pods", "tools", "status"),
        ("pods", "default", "spec"),
        ("pods", "", "spec"),
        ("nodes", "", "spec"),
        ("secrets", "tools", "data"),
    ] {
        let failure = reads(plural, namespace, &[fields]).unwrap_err();
        assert_eq!(
            failure.class,
            FailureClass::Forbidden,
            "{plural} {namespace} {fields}"
        );
    }
}

#[test]
fn a_write_needs_a_grant_for_its_namespace() {
    let delete = permission(("delete", "", "pods"));
    let in_tools = grant(json!({"writes": [
        {"verb": "delete", "resource": "pods", "namespaces": ["tools"]},
    ]}));
    assert!(in_tools.allows_write(&delete, "tools"));
    assert!(!in_tools.allows_write(&delete, "default"));
    assert!(!in_tools.allows_write(&permission(("patch", "", "pods")), "tools"));
    assert!(!in_tools.allows_write(&permission(("delete", "", "nodes")), ""));
    assert!(
        in_tools
            .missing(&manifest(vec![], &[("delete", "", "pods")]))
            .is_empty()
    );
}

#[test]
fn a_write_to_davits_namespace_needs_a_rule_that_names_it() {
    let delete = permission(("delete", "", "pods"));
    let rule = |namespaces: Value| {
        grant(json!({"writes": [
            {"verb": "delete", "resource": "pods", "namespaces": namespaces},
        ]}))
    };
    assert!(rule(json!([])).allows_write(&delete, "default"));
    assert!(!rule(json!([])).allows_write(&delete, "davit-system"));
    assert!(rule(json!(["davit-system"])).allows_write(&delete, "davit-system"));
}

#[test]
fn a_wildcard_allows_no_write_to_what_decides_who_may_do_what() {
    let rule = |group: &str, resource: &str| {
        grant(json!({"writes": [{"verb": "delete", "group": group, "resource": resource}]}))
    };
    let rbac = "rbac.authorization.k8s.io";
    for (group, resource) in [
        ("davit.dev", "controllers"),
        (rbac, "clusterrolebindings"),
        (
            "admissionregistration.k8s.io",
            "validatingwebhookconfigurations",
        ),
        ("apiregistration.k8s.io", "apiservices"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
    ] {
        let delete = permission(("delete", group, resource));
        for wildcard in [rule("*", "*"), rule("*", resource), rule(group, "*")] {
            assert!(!wildcard.allows_write(&delete, ""), "{delete}");
        }
        assert!(rule(group, resource).allows_write(&delete, ""));
        assert!(Grant::Declared.allows_write(&delete, ""));
    }
    assert!(rule("*", "*").allows_write(&permission(("delete", "batch", "jobs")), "default"));
}

/// A rule without fields would grant them all.
#[test]
fn a_watch_without_fields_needs_the_name_alone() {
    let nothing = json!({});
    let pods = watch(one("", "pods"), "", &[]);
    assert_eq!(
        missing(nothing.clone(), pods.clone()),
        "read pods (metadata.name)"
    );
    let secrets = watch(one("", "secrets"), "", &[]);
    assert_eq!(missing(nothing, secrets), "read secrets (metadata.name)");
    let rules = json!({"reads": [{"resource": "pods", "fields": ["metadata.name"]}]});
    assert_eq!(missing(rules, pods), "");
}

#[test]
fn a_live_read_without_known_fields_covers_a_watch() {
    let pods = watch(one("", "pods"), "", &["spec"]);
    let secrets = watch(one("", "secrets"), "", &["data"]);
    let asks = [("get", "", "pods"), ("get", "", "secrets")];
    let declared = Permissions::declared_by(&manifest(vec![pods, secrets], &asks));
    let expected = "read pods; read secrets; read secrets (data)";
    assert_eq!(declared.to_string(), expected);
}

/// What the operator wrote stays, in its order.
#[test]
fn missing_rules_are_added_to_the_present_ones() {
    let rules = |rules: Value| serde_json::from_value::<Permissions>(rules).unwrap();
    let present = rules(json!({
        "reads": [
            {"resource": "secrets"},
            {"resource": "pods", "fields": ["status.phase"]},
            {"resource": "nodes", "namespaces": ["tools"], "fields": ["spec"]},
        ],
        "writes": [{"verb": "delete", "resource": "pods", "namespaces": ["tools"]}],
    }));
    let missing = rules(json!({
        "reads": [
            {"resource": "nodes", "fields": ["spec"]},
            {"resource": "pods", "fields": ["spec.nodeName", "status"]},
            {"resource": "secrets", "fields": ["data"]},
        ],
        "writes": [{"verb": "patch", "resource": "pods/status"}],
    }));
    let expected = "read secrets; read pods (spec.nodeName, status); read nodes in tools (spec); \
                    read nodes (spec); read secrets (data); delete pods in tools; patch pods/status";
    assert_eq!(present.with(&missing).to_string(), expected);
    assert_eq!(
        present.with(&missing).with(&missing),
        present.with(&missing)
    );
}

#[test]
fn a_status_takes_the_first_rules() {
    let long = "x".repeat(30_000);
    let rule = |name: &str| json!({"resource": format!("{name}{long}")});
    let all = json!({"reads": [rule("a"), rule("b"), rule("c")]});
    let all: Permissions = serde_json::from_value(all).unwrap();
    assert_eq!(all.shortened().reads, all.reads[..2]);
    let writes = json!({"writes": [{"verb": "delete", "resource": "pods"}]});
    let few: Permissions = serde_json::from_value(writes).unwrap();
    assert_eq!(few.shortened(), few);
}

/// Who selects by a field learns it.
#[test]
fn a_selector_needs_the_fields_that_it_reads() {
    let by = |labels: &str, fields: &str| WatchSpec {
        label_selector: labels.into(),
        field_selector: fields.into(),
        ..watch(one("", "secrets"), "", &["metadata.name"])
    };
    let names = json!({"reads": [{"resource": "secrets", "fields": ["metadata.name"]}]});
    let of_labels = by("owner=x", "");
    let of_type = by("", "type!=Opaque,metadata.namespace=a");
    assert_eq!(missing(names.clone(), by("", "metadata.name=a")), "");
    for (declared, field) in [(of_labels, "metadata.labels"), (of_type, "type")] {
        let expected = format!("read secrets ({field})");
        assert_eq!(missing(names.clone(), declared.clone()), expected);
        let list = ListRequest {
            resource: ApiResource::new("", "v1", "secrets"),
            namespace: String::new(),
            label_selector: declared.label_selector,
            field_selector: declared.field_selector,
            fields: declared.fields,
        };
        let refused = grant(names.clone()).allows_list(&list).unwrap_err();
        assert!(refused.message.contains(&expected), "{refused}");
        let rules = json!({
            "reads": [{"resource": "secrets", "fields": ["metadata.name", field]}],
        });
        assert!(grant(rules).allows_list(&list).is_ok());
    }
}
