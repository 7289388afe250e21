//! Discovery: which groups, versions and resources are served, in the plain
//! form and in the aggregated one.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::model::{AggregatedDocuments, Model};
use crate::resource::{Resource, Subresource};

/// `GET /version`: the server that this one is true to.
#[must_use]
pub(crate) fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.2", "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z", "goVersion": "go1.26", "compiler": "gc", "platform": "linux/amd64",
        "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
    })
}

/// `GET /api`.
#[must_use]
pub(crate) fn core_versions(model: &Model) -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{
            "clientCIDR": "0.0.0.0/0", "serverAddress": model.config().advertised_address,
        }],
    })
}

/// `GET /apis`.
#[must_use]
pub(crate) fn groups(model: &Model) -> Value {
    let groups: Vec<Value> = group_names(model)
        .into_iter()
        .filter(|group| !group.is_empty())
        .map(|group| describe_group(model, group))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `GET /apis/{group}`, if the group is served.
#[must_use]
pub(crate) fn group(model: &Model, name: &str) -> Option<Value> {
    if name.is_empty() || !group_names(model).contains(&name) {
        return None;
    }
    let mut group = describe_group(model, name);
    if let Some(fields) = group.as_object_mut() {
        fields.insert("kind".to_owned(), "APIGroup".into());
        fields.insert("apiVersion".to_owned(), "v1".into());
    }
    Some(group)
}

fn describe_group(model: &Model, name: &str) -> Value {
    let versions: Vec<Value> = versions(model, name)
        .into_iter()
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    json!({"name": name, "preferredVersion": versions.first(), "versions": versions})
}

/// `GET /api/v1` and `GET /apis/{group}/{version}`, if served.
#[must_use]
pub(crate) fn resources(model: &Model, group: &str, version: &str) -> Option<Value> {
    let mut entries: BTreeMap<String, Value> = BTreeMap::new();
    let served = in_version(model, group, version);
    for resource in &served {
        entries.insert(resource.plural.clone(), describe(resource));
        for subresource in &resource.subresources {
            let name = format!("{}/{}", resource.plural, subresource.name);
            entries.insert(name, describe_sub(resource, subresource));
        }
    }
    if served.is_empty() {
        return None;
    }
    let group_version = api_version(group, version);
    let mut list = json!({
        "kind": "APIResourceList", "groupVersion": group_version,
        "resources": entries.into_values().collect::<Vec<_>>(),
    });
    // The list of the core group has no version.
    if let (false, Some(fields)) = (group.is_empty(), list.as_object_mut()) {
        fields.insert("apiVersion".to_owned(), "v1".into());
    }
    Some(list)
}

fn describe(resource: &Resource) -> Value {
    let mut entry = json!({
        "name": resource.plural, "singularName": resource.singular, "kind": resource.kind,
        "namespaced": resource.namespaced, "verbs": resource.listed_verbs(),
    });
    if let Some(fields) = entry.as_object_mut() {
        insert_list(fields, "shortNames", &resource.short_names);
        insert_list(fields, "categories", &resource.categories);
        if !resource.storage_version.is_empty() {
            fields.insert(
                "storageVersionHash".to_owned(),
                resource.storage_version_hash().into(),
            );
        }
    }
    entry
}

fn describe_sub(resource: &Resource, subresource: &Subresource) -> Value {
    let (group, version, kind) = &subresource.kind;
    let mut entry = json!({
        "name": format!("{}/{}", resource.plural, subresource.name), "singularName": "",
        "kind": kind, "namespaced": resource.namespaced, "verbs": subresource.verbs,
    });
    if let (false, Some(fields)) = (version.is_empty(), entry.as_object_mut()) {
        fields.insert("group".to_owned(), group.clone().into());
        fields.insert("version".to_owned(), version.clone().into());
    }
    entry
}

fn insert_list(fields: &mut Map<String, Value>, name: &str, list: &[String]) {
    if !list.is_empty() {
        fields.insert(name.to_owned(), list.into());
    }
}

/// The aggregated form of `GET /api` (the core group only) and `GET /apis`
/// (all others), as JSON.
pub(crate) fn aggregated(model: &Model, core: bool) -> Bytes {
    let AggregatedDocuments { core: own, others } = model.aggregated_documents();
    let document = if core { own } else { others };
    let document = document.get_or_init(|| aggregated_list(model, core).to_string().into());
    document.clone()
}

fn aggregated_list(model: &Model, core: bool) -> Value {
    let items: Vec<Value> = group_names(model)
        .into_iter()
        .filter(|group| group.is_empty() == core)
        .map(|group| aggregated_group(model, group))
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {}, "items": items,
    })
}

fn aggregated_group(model: &Model, group: &str) -> Value {
    let versions: Vec<Value> = versions(model, group)
        .into_iter()
        .map(|version| {
            let resources: Vec<Value> = in_version(model, group, version)
                .into_iter()
                .map(aggregated_resource)
                .collect();
            json!({"version": version, "freshness": "Current", "resources": resources})
        })
        .collect();
    let mut metadata = json!({});
    if !group.is_empty() {
        metadata = json!({"name": group});
    }
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated_resource(resource: &Resource) -> Value {
    let subresources: Vec<Value> = resource
        .subresources
        .iter()
        .map(|subresource| {
            let (group, version, kind) = &subresource.kind;
            let own = version.is_empty();
            json!({
                "subresource": subresource.name,
                "responseKind": {
                    "group": if own { &resource.group } else { group },
                    "version": if own { &resource.version } else { version },
                    "kind": kind,
                },
                "verbs": subresource.verbs,
            })
        })
        .collect();
    let mut entry = json!({
        "resource": resource.plural, "singularResource": resource.singular,
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "responseKind": {
            "group": resource.group, "version": resource.version, "kind": resource.kind,
        },
        "verbs": resource.listed_verbs(),
    });
    if let Some(fields) = entry.as_object_mut() {
        insert_list(fields, "shortNames", &resource.short_names);
        insert_list(fields, "categories", &resource.categories);
        if !subresources.is_empty() {
            fields.insert("subresources".to_owned(), subresources.into());
        }
    }
    entry
}

fn in_version<'a>(model: &'a Model, group: &str, version: &str) -> Vec<&'a Resource> {
    model
        .resources()
        .iter()
        .map(AsRef::as_ref)
        .filter(|resource: &&Resource| resource.group == group && resource.version == version)
        .collect()
}

/// The groups in the order of the table, then those of custom resources.
fn group_names(model: &Model) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for resource in model.resources() {
        if !names.contains(&resource.group.as_str()) {
            names.push(&resource.group);
        }
    }
    names
}

/// A group's versions, the preferred one first.
fn versions<'a>(model: &'a Model, group: &str) -> Vec<&'a str> {
    let mut versions: Vec<&str> = Vec::new();
    for resource in model.resources() {
        if resource.group == group && !versions.contains(&resource.version.as_str()) {
            versions.push(&resource.version);
        }
    }
    versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
    versions
}

/// Kubernetes' order of version names: `v2` before `v1` before `v1beta1`
/// before `v1alpha1`; others come last.
fn priority(version: &str) -> (u8, u32, u32) {
    let Some(rest) = version.strip_prefix('v') else {
        return (0, 0, 0);
    };
    let digits = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (major, tail) = rest.split_at(digits);
    let Ok(major) = major.parse() else {
        return (0, 0, 0);
    };
    for (stage, rank) in [("beta", 2), ("alpha", 1)] {
        if let Some(minor) = tail.strip_prefix(stage) {
            return (rank, major, minor.parse().unwrap_or(0));
        }
    }
    if tail.is_empty() {
        (3, major, 0)
    } else {
        (0, 0, 0)
    }
}

fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_rank_as_kubernetes_says() {
        let mut versions = ["v1alpha1", "v2", "foo", "v1beta2", "v1", "v1beta1"];
        versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
        assert_eq!(
            versions,
            ["v2", "v1", "v1beta2", "v1beta1", "v1alpha1", "foo"]
        );
    }
}
