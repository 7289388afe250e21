//! Mistakes that only an API server makes known: fields of custom resources.

use std::collections::BTreeMap;
use std::sync::Arc;

use davit_kinds::PublishedType;
use policy::explain::{self, Published};
use serde_json::{Value, json};

fn object(fields: Vec<(&str, PublishedType)>) -> PublishedType {
    let fields = fields.into_iter();
    let fields: BTreeMap<String, Arc<PublishedType>> = fields
        .map(|(name, field)| (name.to_owned(), Arc::new(field)))
        .collect();
    PublishedType::Object {
        fields,
        other: None,
    }
}

/// Sites, with a size, hosts with names, and a free part.
fn published() -> Published {
    let host = object(vec![("name", PublishedType::Scalar)]);
    let spec = object(vec![
        ("size", PublishedType::Scalar),
        ("hosts", PublishedType::List(Arc::new(host))),
        ("free", PublishedType::Any),
    ]);
    let site = object(vec![("metadata", PublishedType::Any), ("spec", spec)]);
    let mut published = Published::default();
    published.insert("example.com", "v1", "sites", Arc::new(site));
    published
}

fn check(config: &Value) -> Result<(), String> {
    let config = rmp_serde::to_vec_named(config).unwrap();
    // The guest alone knows only their metadata.
    explain::check(&config, &Published::default()).unwrap();
    explain::check(&config, &published()).map_err(|it| format!("{}: {}", it.field, it.message))
}

fn rule(changes: Value) -> Value {
    let mut rule = json!({
        "name": "small", "match": {"resource": "sites.v1.example.com"},
        "when": "true", "do": {"delete": {}},
    });
    let fields = rule.as_object_mut().unwrap();
    fields.extend(changes.as_object().unwrap().clone());
    json!({"rules": [rule]})
}

#[test]
fn fields_that_objects_have_are_accepted() {
    for when in [
        "object.spec.size > 3 && object.metadata.labels['a'] == 'b'",
        "object.spec.hosts.exists(h, h.name == 'a') || object.spec.hosts[0].name != ''",
        "size(object.spec.hosts.filter(h, h.name == 'a')) == 1 && object.spec.free.any.thing == 1",
        "now - timestamp(object.spec.size) > duration('1h')",
    ] {
        assert_eq!(check(&rule(json!({"when": when}))), Ok(()), "{when}");
    }
}

#[test]
fn an_unknown_field_is_refused_with_rule_column_and_suggestion() {
    for (changes, refusal) in [
        (
            json!({"when": "true && object.spec.sise > 3"}),
            "rules[0].when: rule small: column 21: object.spec has no field \"sise\"; did you mean \
             \"size\"?",
        ),
        (
            json!({"when": "object.spec.hosts.exists(h, h.nmae == 'a')"}),
            "rules[0].when: rule small: column 31: object.spec.hosts[*] has no field \"nmae\"; did \
             you mean \"name\"?",
        ),
        (
            json!({"when": "object.spec.hosts.name == 'a'"}),
            "rules[0].when: rule small: column 19: object.spec.hosts has no field \"name\": it is a \
             list; for its elements, write exists(it, it.name == …)",
        ),
        (
            json!({"unless": "object.spec.size.big"}),
            "rules[0].unless: rule small: column 18: object.spec.size has no field \"big\": it is a \
             single value",
        ),
        (
            json!({"variables": {"s": "object.spc.size"}, "when": "variables.s == 1"}),
            "rules[0].variables.s: rule small: column 8: object has no field \"spc\"; did you mean \
             \"spec\"?",
        ),
        (
            json!({"keep": {"newest": 1, "per": "spec.siz"}}),
            "rules[0].keep.per: rule small: column 6: object.spec has no field \"siz\"; did you \
             mean \"size\"?",
        ),
        (
            json!({"match": {"resource": "pods"}, "when": "size(sites) == 0", "related": {"sites": {
                "resource": "sites.v1.example.com", "by": "spec.hosts[*].nam",
                "is": "object.metadata.name"}}}),
            "rules[0].related.sites.by: rule small: column 15: sites.example.com (v1) has no field \
             \"spec.hosts[*].nam\"; did you mean \"spec.hosts[*].name\"?",
        ),
        (
            json!({"match": {"resource": "pods"}, "when": "size(sites) == 0", "related": {"sites": {
                "resource": "sites.v1.example.com", "by": "spec.hosts",
                "is": "object.metadata.name"}}}),
            "rules[0].related.sites.by: rule small: spec.hosts is a list, by which nothing is found: \
             name a text, a number or a boolean; did you mean \"spec.hosts[*].name\"?",
        ),
        (
            json!({"related": {"pods": {"resource": "pods", "by": "metadata.name",
                "is": "object.spec.sizes"}}, "when": "size(pods) == 0"}),
            "rules[0].related.pods.is: rule small: column 13: object.spec has no field \"sizes\"; \
             did you mean \"size\"?",
        ),
        (
            json!({"do": {"mergePatch": {"spec": {"free": {"any": 1}, "sise": 1}}}}),
            "rules[0].do.mergePatch: rule small: sites.example.com (v1) has no field \"spec.sise\"; \
             did you mean \"spec.size\"?",
        ),
        (
            json!({"do": {"jsonPatch": [
                {"op": "test", "path": "/spec/hosts/0/name", "value": "b"},
                {"op": "replace", "path": "/spec/hosts/0/nam", "value": "a"}]}}),
            "rules[0].do.jsonPatch[1].path: rule small: sites.example.com (v1) has no field \
             \"spec.hosts[*].nam\"; did you mean \"spec.hosts[*].name\"?",
        ),
    ] {
        assert_eq!(
            check(&rule(changes.clone())).unwrap_err(),
            refusal,
            "{changes}"
        );
    }
    let mut counted = rule(json!({"hold": "counts.big > 1"}));
    counted["counts"] = json!({"big": {"resource": "sites.v1.example.com",
        "when": "object.spec.siz > 1"}});
    assert_eq!(
        check(&counted).unwrap_err(),
        "counts.big.when: column 13: object.spec has no field \"siz\"; did you mean \"size\"?"
    );
}

#[test]
fn the_documentation_names_the_version_of_the_known_fields() {
    let page = include_str!("../../../../docs/policies.md");
    let version = format!("as of Kubernetes {},", davit_kinds::kubernetes_version());
    assert!(page.contains(&version), "{version}");
}
