//! The permissions of the files: what the manifest needs, field by field, and nothing else.

use std::collections::BTreeSet;

use davit_guest::bindings::davit::controller::manifests::Watch;
use davit_guest::testing::Harness;
use davit_guest::{Source, covers};
use policy::Policy;
use serde_json::{Value, json};

use crate::cases;
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
        let mut readable: Vec<String> = entries("reads").iter().map(of_entry).collect();
        readable.sort();
        assert!(
            readable.iter().eq(&watched),
            "{name}: {readable:?}, {watched:?}"
        );
        for entry in entries("reads") {
            let resource = of_entry(&entry);
            let of_resource = manifest.watches.iter();
            let of_resource = of_resource.filter(|it| resource_name(it) == resource);
            let read: BTreeSet<String> = of_resource.flat_map(fields).collect();
            assert_eq!(
                texts(&entry["fields"]),
                reduced(&read),
                "{name}: {resource}"
            );
        }
    }
}

/// The fields that a watch reads; a selector by labels reads all of them.
fn fields(watch: &Watch) -> Vec<String> {
    assert_eq!(watch.field_selector, "", "{}", watch.name);
    let labels = (!watch.label_selector.is_empty()).then(|| "metadata.labels".to_owned());
    watch.fields.iter().cloned().chain(labels).collect()
}

/// The fields without those that others contain.
fn reduced(fields: &BTreeSet<String>) -> BTreeSet<String> {
    let is_below_other = |field: &String| fields.iter().any(|it| it != field && covers(it, field));
    fields
        .iter()
        .filter(|it| !is_below_other(it))
        .cloned()
        .collect()
}

/// Also for what a rule with a live proof reads.
#[test]
fn every_policy_does_what_its_file_says_with_its_permissions_alone() {
    for case in cases() {
        let mut harness = Harness::new(&config_of(case.name)).unwrap();
        harness.grant(&resource_of(case.name)["spec"]["permissions"]);
        let outcome = (case.story)(&mut harness);
        assert_eq!(outcome, case.expected, "{}", case.name);
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
