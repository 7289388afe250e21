//! The permissions of the files: what the manifest needs, and nothing else.

use std::collections::BTreeSet;

use davit_guest::bindings::davit::controller::manifests::Watch;
use davit_guest::testing::Harness;
use davit_guest::{Source, covers};
use policy::Policy;
use serde_json::{Value, json};

use crate::support::{config_of, names, resource_of};

fn texts(value: &Value) -> BTreeSet<String> {
    let texts = value.as_array().into_iter().flatten();
    texts.map(|it| it.as_str().unwrap().to_owned()).collect()
}

fn named(group: &str, resource: &str) -> String {
    format!("{resource}.{group}")
}

fn resource_name(watch: &Watch) -> String {
    match &watch.source {
        Source::One(resource) => named(&resource.group, &resource.plural),
        Source::EveryDeletable(_) => panic!("{} watches more than one resource", watch.name),
    }
}

fn of_entry(entry: &Value) -> String {
    named(
        entry["group"].as_str().unwrap_or_default(),
        entry["resource"].as_str().unwrap(),
    )
}

#[test]
fn the_permissions_of_a_file_are_those_that_its_rules_need() {
    for name in names() {
        let harness = Harness::<Policy>::new(&config_of(&name)).unwrap();
        let manifest = harness.manifest();
        let permissions = &resource_of(&name)["spec"]["permissions"];
        let entries = |kind: &str| permissions[kind].as_array().unwrap().clone();

        let needed: BTreeSet<String> = manifest
            .permissions
            .iter()
            .filter(|it| !matches!(it.verb.as_str(), "get" | "list"))
            .map(|it| format!("{} {}", it.verb, named(&it.group, &it.resource)))
            .collect();
        let granted: BTreeSet<String> = entries("writes")
            .iter()
            .map(|it| format!("{} {}", it["verb"].as_str().unwrap(), of_entry(it)))
            .collect();
        assert_eq!(granted, needed, "{name}");

        let watched: BTreeSet<String> = manifest.watches.iter().map(resource_name).collect();
        let readable: BTreeSet<String> = entries("reads").iter().map(of_entry).collect();
        assert_eq!(readable, watched, "{name}");
        for watch in &manifest.watches {
            let resource = resource_name(watch);
            let reads = entries("reads");
            let entries: Vec<&Value> = reads.iter().filter(|it| of_entry(it) == resource).collect();
            if entries.iter().any(|it| it["fields"].is_null()) {
                continue;
            }
            let fields: BTreeSet<String> =
                entries.iter().flat_map(|it| texts(&it["fields"])).collect();
            let declares = |field: &String| fields.iter().any(|it| covers(it, field));
            let needed = watch.fields.iter();
            let missing: Vec<_> = needed.filter(|it| !declares(it)).collect();
            assert_eq!(missing, [""; 0], "{name}: {resource}");
        }
    }
}

#[test]
fn every_policy_starts_as_a_dry_run_of_the_guest_that_ships() {
    for name in names() {
        let resource = resource_of(&name);
        assert_eq!(resource["metadata"]["name"], json!(name));
        assert_eq!(resource["kind"], "Controller", "{name}");
        assert_eq!(resource["spec"]["mode"], "DryRun", "{name}");
        assert_eq!(
            resource["spec"]["module"],
            json!({"builtin": "policy"}),
            "{name}"
        );
    }
}
