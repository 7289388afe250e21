//! The definition: up to date, structural, and neither too strict nor too lax.

use std::path::Path;

use davit::resource::definition::{definition, yaml};
use davit_core::api::ControllerSpec;
use regex::Regex;
use serde_json::{Value, json};

use crate::cluster::{Cluster, DIGEST, spec};

#[test]
fn the_definition_in_deploy_is_that_of_the_types() {
    let file = "../deploy/crds/controllers.davit.dev.yaml";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == yaml().unwrap(),
        "deploy/crds/controllers.davit.dev.yaml is not up to date: run cargo xtask crds"
    );
}

/// The API server's rules for the schema of a definition, from the page "Extend the
/// Kubernetes API with `CustomResourceDefinitions`" and apiextensions' own validation.
#[test]
fn the_schema_is_structural() {
    let definition = serde_json::to_value(definition()).unwrap();
    let version = &definition["spec"]["versions"][0];
    let mut wrong = Vec::new();
    check_schema("", &version["schema"]["openAPIV3Schema"], &mut wrong);
    assert!(wrong.is_empty(), "{wrong:#?}");
    for column in version["additionalPrinterColumns"].as_array().unwrap() {
        let path = column["jsonPath"].as_str().unwrap();
        let schema = &version["schema"]["openAPIV3Schema"];
        let names = path.split('.').skip(1);
        let found = names.fold(schema, |schema, name| &schema["properties"][name]);
        assert!(
            !found.is_null() || path.starts_with(".metadata."),
            "a column shows {path}, which there is not"
        );
    }
}

#[test]
fn the_check_of_schemas_finds_each_mistake() {
    for (schema, found) in [
        (json!({"properties": {}}), "has no type"),
        (
            json!({"type": "object", "properties": {"a": {"$ref": "#/a"}}}),
            ".a: $ref",
        ),
        (json!({"type": "integer", "format": "uint32"}), "format"),
        (json!({"type": "array"}), "has no items"),
        (
            json!({"type": "object", "oneOf": [{"type": "string"}]}),
            "oneOf",
        ),
        (json!({"type": "string", "default": 7}), "default"),
        (
            json!({"type": "object", "required": ["a"], "properties": {}}),
            "requires a",
        ),
    ] {
        let mut wrong = Vec::new();
        check_schema("", &schema, &mut wrong);
        assert!(
            wrong.iter().any(|wrong| wrong.contains(found)),
            "{schema}: {wrong:?}"
        );
    }
}

fn check_schema(path: &str, schema: &Value, wrong: &mut Vec<String>) {
    const KEYWORDS: [&str; 22] = [
        "default",
        "description",
        "enum",
        "format",
        "maxItems",
        "maximum",
        "minItems",
        "minLength",
        "minimum",
        "pattern",
        "required",
        "title",
        "type",
        "properties",
        "items",
        "additionalProperties",
        "oneOf",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-map-type",
        "x-kubernetes-validations",
    ];
    const FORMATS: [&str; 6] = ["int32", "int64", "float", "double", "date-time", "byte"];
    let mut say = |what: &str| wrong.push(format!("{path}: {what}"));
    for keyword in schema.as_object().unwrap().keys() {
        if !KEYWORDS.contains(&keyword.as_str()) {
            say(keyword);
        }
    }
    let kind = schema["type"].as_str().unwrap_or_default();
    if kind.is_empty() {
        say("has no type");
    }
    if schema
        .get("format")
        .is_some_and(|format| !FORMATS.iter().any(|known| format == known))
    {
        say("format that Kubernetes does not know");
    }
    if schema
        .get("default")
        .is_some_and(|default| kind_of(default) != kind)
    {
        say("default of another type");
    }
    // Value validations must not define structure.
    for alternative in schema["oneOf"].as_array().into_iter().flatten() {
        if alternative
            .as_object()
            .unwrap()
            .keys()
            .any(|keyword| keyword != "required")
        {
            say("oneOf with more than required");
        }
    }
    let properties = schema["properties"].as_object();
    for required in schema["required"].as_array().into_iter().flatten() {
        let name = required.as_str().unwrap();
        if !properties.is_some_and(|all| all.contains_key(name)) {
            say(&format!("requires {name}, which there is not"));
        }
    }
    if properties.is_some() && schema.get("additionalProperties").is_some() {
        say("both properties and additionalProperties");
    }
    if kind == "array" {
        if schema["items"].is_null() {
            say("has no items");
        }
        let list = &schema["x-kubernetes-list-type"];
        if list == "map" {
            let item = &schema["items"];
            for key in schema["x-kubernetes-list-map-keys"].as_array().unwrap() {
                let required = item["required"].as_array().unwrap();
                if !required.contains(key) {
                    say("a key of the list is not required");
                }
            }
        } else if list.is_null() {
            say("has no list type");
        }
    }
    for (name, property) in properties.into_iter().flatten() {
        check_schema(&format!("{path}.{name}"), property, wrong);
    }
    for part in ["items", "additionalProperties"] {
        if schema[part].is_object() {
            check_schema(&format!("{path}.{part}"), &schema[part], wrong);
        }
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn full() -> Value {
    json!({
        "module": {
            "oci": {
                "reference": "registry.example.com/guests/podgc:1.0",
                "pullSecret": {"namespace": "davit-system", "name": "registry"},
                "caCert": {"configMap": {"namespace": "davit-system", "name": "ca", "key": "a"}},
            },
            "digest": DIGEST,
        },
        "mode": "Enforce",
        "config": {"quarantine": "40s", "nested": {"list": [1, {"a": true}]}},
        "permissions": {
            "reads": [{"resource": "pods", "namespaces": ["test"], "fields": ["spec.nodeName"]}],
            "writes": [{"verb": "delete", "group": "batch", "resource": "jobs"}],
        },
        "guardrails": {
            "writesPerMinute": 100,
            "deletesPercentPerMinute": 10,
            "cooldown": "until reset",
        },
        "limits": {"memoryMib": 32, "callMillis": 500, "instances": 2},
        "rollout": {
            "steps": ["shadow 10m", "weight 10 for 1h30m", "weight 50 until promoted"],
            "paused": true,
            "cohort": {"by": "Node", "namespaces": ["test"], "matchLabels": {"a": "b"}},
            "analysis": {"maxDisagreementPercent": 5, "window": "90s"},
        },
        "serviceAccountName": "podgc",
        "undo": {"kinds": [{"group": "apps", "resource": "deployments"}], "for": "48h"},
    })
}

#[tokio::test]
async fn the_api_server_keeps_every_field_that_davit_reads() {
    let cluster = Cluster::new();
    let created = cluster.create("podgc", full()).await.unwrap();
    assert_eq!(read(&created["spec"]), read(&full()));
    assert_eq!(created["spec"]["config"], full()["config"]);

    let small = json!({"module": {"builtin": "podgc"}});
    let created = cluster.create("small", small.clone()).await.unwrap();
    assert_eq!(read(&created["spec"]), read(&small));
    assert_eq!(created["spec"]["mode"], "DryRun");
}

fn read(spec: &Value) -> ControllerSpec {
    ControllerSpec::read(spec).unwrap()
}

#[tokio::test]
async fn invalid_specs_are_refused() {
    let cluster = Cluster::new();
    for (pointer, value, says) in [
        ("/mode", json!("On"), "spec.mode"),
        ("/compareWith", json!("Users"), "spec.compareWith"),
        ("/colour", json!("red"), "unknown field \"spec.colour\""),
        ("/config", json!(7), "spec.config"),
        ("/limits/instances", json!(0), "spec.limits.instances"),
        ("/limits/instances", json!(17), "spec.limits.instances"),
        ("/limits/memoryMib", json!(2000), "spec.limits.memoryMib"),
        ("/limits/callMillis", json!(5), "spec.limits.callMillis"),
        (
            "/guardrails/deletesPercentPerMinute",
            json!(101),
            "deletesPercentPerMinute",
        ),
        (
            "/guardrails/deletesPerMinute",
            json!(-1),
            "deletesPerMinute",
        ),
        (
            "/guardrails/writesPerMinute",
            json!(4_294_967_296_u64),
            "writesPerMinute",
        ),
        (
            "/rollout/analysis/maxDisagreementPercent",
            json!(101),
            "maxDisagreementPercent",
        ),
        ("/rollout/cohort/by", json!("Pod"), "spec.rollout.cohort.by"),
        ("/module", Value::Null, "spec.module"),
        (
            "/permissions/writes/0/verb",
            json!("frobnicate"),
            "spec.permissions.writes[0].verb",
        ),
    ] {
        let mut spec = full();
        set(&mut spec, pointer, value);
        let error = cluster.create("podgc", spec).await.unwrap_err();
        assert!(error.contains(says), "{pointer}: {error}");
    }
}

/// Sets a value, which may be new; null removes it.
fn set(object: &mut Value, pointer: &str, value: Value) {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let parent = object.pointer_mut(parent).unwrap();
    match (parent, value) {
        (Value::Object(fields), Value::Null) => drop(fields.remove(name)),
        (Value::Object(fields), value) => drop(fields.insert(name.to_owned(), value)),
        (Value::Array(items), value) => items[name.parse::<usize>().unwrap()] = value,
        (other, _) => panic!("{other} has no {name}"),
    }
}

/// The API server in memory does not evaluate patterns, so the test does, with an
/// engine of the same syntax, and compares with the host. The host accepts what a
/// pattern accepts; both accept the examples of the documentation.
#[test]
fn the_patterns_and_the_host_agree() {
    let definition = serde_json::to_value(definition()).unwrap();
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let spec = &schema["properties"]["spec"]["properties"];
    let uppercase = DIGEST.to_uppercase();
    for (pointer, place, good, bad) in [
        (
            "/module/properties/digest",
            "/module/digest",
            vec![DIGEST],
            vec!["", "9f86", &DIGEST[7..], &uppercase],
        ),
        (
            "/serviceAccountName",
            "/serviceAccountName",
            vec!["podgc", "a.b-c.d", "0"],
            vec![
                "",
                "Nope!",
                "-a",
                "a-",
                "a..b",
                "a.",
                "a_b",
                "system:serviceaccount:a:b",
            ],
        ),
        (
            "/guardrails/properties/cooldown",
            "/guardrails/cooldown",
            vec!["5m", "1h30m", "10s", "10000ms", "until reset"],
            vec![
                "",
                "5",
                "-5m",
                "forever",
                "until reset 5m",
                "5s",
                "9999ms",
                "0m",
            ],
        ),
        (
            "/rollout/properties/analysis/properties/window",
            "/rollout/analysis/window",
            vec!["90s", "1m30s", "200ms", "0s", "1h2ms"],
            vec!["", "10", "ten minutes", "-5m", "5d", "5s1h", "1m1m"],
        ),
        (
            "/rollout/properties/steps/items",
            "/rollout/steps/0",
            vec![
                "shadow 10m",
                "shadow for 1h",
                "shadow until promoted",
                "weight 10 for 1m30s",
                "weight 0 5m",
                "weight 100 until promoted",
            ],
            vec![
                "",
                "shadow",
                "weight",
                "weight ten for 1m",
                "weight 10",
                "weight 101 for 1m",
                "wait 10m",
                "shadow 10m now",
                "shadow for 1s1m",
            ],
        ),
    ] {
        let pattern = spec.pointer(&format!("{pointer}/pattern"));
        let pattern = Regex::new(pattern.and_then(Value::as_str).unwrap()).unwrap();
        let good = good.into_iter().map(|text| (text, true));
        for (text, expected) in good.chain(bad.into_iter().map(|text| (text, false))) {
            let mut spec = full();
            set(&mut spec, place, json!(text));
            let read = ControllerSpec::read(&spec);
            assert_eq!(read.is_ok(), expected, "{place}: \"{text}\": {read:?}");
            assert_eq!(pattern.is_match(text), expected, "{pattern}: \"{text}\"");
        }
    }
}

#[test]
fn the_schema_and_the_host_know_the_same_verbs() {
    let definition = serde_json::to_value(definition()).unwrap();
    let verbs = definition.pointer(
        "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/permissions\
         /properties/writes/items/properties/verb/enum",
    );
    let verbs = verbs.and_then(Value::as_array).unwrap().iter();
    for verb in verbs {
        let mut spec = full();
        set(&mut spec, "/permissions/writes/0/verb", verb.clone());
        ControllerSpec::read(&spec).unwrap();
    }
    for bad in ["frobnicate", "*", "Delete", "get", ""] {
        let mut spec = full();
        set(&mut spec, "/permissions/writes/0/verb", json!(bad));
        let error = ControllerSpec::read(&spec).unwrap_err().to_string();
        let start = format!("permissions.writes[0].verb: \"{bad}\" is not a verb of writes");
        assert!(error.starts_with(&start), "{error}");
    }
}

/// `kubectl get davit` works like `kubectl get controllers`.
#[test]
fn the_resource_has_a_short_name() {
    let definition = serde_json::to_value(definition()).unwrap();
    assert_eq!(definition["spec"]["names"]["shortNames"], json!(["davit"]));
}

/// The server does not evaluate rules either; they only repeat errors of the host
/// early.
#[test]
fn the_schema_has_rules_for_names_and_sources() {
    let definition = serde_json::to_value(definition()).unwrap();
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let fields = &schema["properties"]["spec"]["properties"]["module"]["properties"];
    let rule = |schema: &Value| {
        let rule = &schema["x-kubernetes-validations"][0]["rule"];
        rule.as_str().unwrap().to_owned()
    };
    assert!(rule(schema).contains("self.metadata.name.size() <= 63"));
    let sources = rule(&schema["properties"]["spec"]["properties"]["module"]);
    for name in fields.as_object().unwrap().keys() {
        let is_source = !["digest", "verify"].contains(&name.as_str());
        assert_eq!(
            sources.contains(&format!("has(self.{name})")),
            is_source,
            "{name}"
        );
    }
    let module = &schema["properties"]["spec"]["properties"]["module"];
    let comparison = rule(&schema["properties"]["spec"]);
    assert_eq!(
        comparison,
        "!has(self.compareWith) || self.mode != 'Enforce'"
    );
    let verify = &module["x-kubernetes-validations"][1]["rule"];
    assert_eq!(*verify, json!("!has(self.verify) || has(self.oci)"));
}

#[tokio::test]
async fn kubectl_get_prints_summary_and_step() {
    let cluster = Cluster::new();
    cluster.create("podgc", spec(1)).await.unwrap();
    cluster.change(
        "podgc",
        json!({"status": {
            "summary": "Rolling out: step 2 of 3",
            "stable": {"revision": "aaaa", "digest": DIGEST, "configHash": "1", "since": "x"},
            "candidate": {
                "revision": "bbbb", "digest": DIGEST, "configHash": "2", "since": "x",
                "step": 2, "steps": 3, "stepText": "weight 10 for 10m", "weight": 10,
                "elapsedSeconds": 180, "elapsed": "3m", "remaining": "7m", "waitsFor": "", "comparison": {"agree": 97, "disagree": 3},
            },
        }}),
    );
    let request = http::Request::get("/apis/davit.dev/v1alpha1/controllers")
        .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())
        .unwrap();
    let table: Value = cluster.client.request(request).await.unwrap();
    let names = table["columnDefinitions"].as_array().unwrap().iter();
    let names: Vec<&str> = names
        .map(|column| column["name"].as_str().unwrap())
        .collect();
    let expected = [
        "Name",
        "Mode",
        "Stable",
        "Candidate",
        "Step",
        "Agree",
        "Disagree",
        "Status",
        "Age",
        "Elapsed",
        "Remaining",
    ];
    assert_eq!(names, expected);
    let cells = &table["rows"][0]["cells"];
    assert_eq!(
        cells.as_array().unwrap()[..8],
        [
            json!("podgc"),
            json!("DryRun"),
            json!("aaaa"),
            json!("bbbb"),
            json!("weight 10 for 10m"),
            json!(97),
            json!(3),
            json!("Rolling out: step 2 of 3"),
        ]
    );
    let wide = table["columnDefinitions"].as_array().unwrap().iter();
    let wide = wide.map(|column| column["priority"] == 1);
    let wide = cells.as_array().unwrap().iter().zip(wide);
    let wide: Vec<&Value> = wide
        .filter_map(|(cell, wide)| wide.then_some(cell))
        .collect();
    assert_eq!(wide, ["3m", "7m"]);
}
