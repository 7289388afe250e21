//! Profiles: what a journal records of the cluster beyond what running guests declare, so that
//! a later guest may read more. `docs/journal.md` has the format.

use serde::Deserialize;
use serde_json::Value;

use crate::api::{SpecError, strict};
use crate::manifest::{Source, WatchSpec};
use crate::object::ApiResource;
use crate::path::{FieldPath, FieldTree};
use crate::secrets;

/// What the journal never has of a Secret.
const SECRET_FIELDS: [&str; 3] = ["data", "stringData", "metadata.annotations"];
/// What changes with every heartbeat, by resource: the group, the plural and the path. The
/// journal has no entry for a heartbeat alone.
const HEARTBEATS: [(&str, &str, &str); 2] = [
    ("", "nodes", "status.conditions[*].lastHeartbeatTime"),
    ("coordination.k8s.io", "leases", "spec.renewTime"),
];
/// The same of every resource.
const VERSIONS: [&str; 2] = ["metadata.resourceVersion", "metadata.managedFields"];

/// The resources and fields that a journal records for later guests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    watches: Vec<WatchSpec>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ProfileConfig {
    resources: Vec<ResourceConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ResourceConfig {
    api_version: String,
    resource: String,
    fields: Vec<FieldPath>,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    label_selector: String,
    #[serde(default)]
    field_selector: String,
}

impl Profile {
    /// Reads a profile. An error names the field, such as `resources[0].fields[1]`.
    pub fn read(value: &Value) -> Result<Self, SpecError> {
        let config: ProfileConfig = strict::read(value)?;
        if config.resources.is_empty() {
            return Err(refused(
                "resources".to_owned(),
                "it must have an entry".to_owned(),
            ));
        }
        let resources = config.resources.into_iter().enumerate();
        let watches = resources.map(|(number, one)| {
            watch(number, one).map_err(|error| error.below(&format!("resources[{number}]")))
        });
        Ok(Self {
            watches: watches.collect::<Result<_, _>>()?,
        })
    }

    /// The watches that it stands for. None of them is waited for.
    #[must_use]
    pub fn watches(&self) -> &[WatchSpec] {
        &self.watches
    }
}

fn watch(number: usize, config: ResourceConfig) -> Result<WatchSpec, SpecError> {
    let (group, version) = match config.api_version.split_once('/') {
        Some((group, version)) => (group, version),
        None => ("", &*config.api_version),
    };
    if version.is_empty() || version.contains('/') {
        let what = "a group and a version, such as v1 or apps/v1";
        let reason = strict::expected_text(what, &config.api_version);
        return Err(refused("apiVersion".to_owned(), reason));
    }
    if config.resource.is_empty() || config.resource.contains('/') {
        let what = "the plural name of a resource, such as pods";
        let reason = strict::expected_text(what, &config.resource);
        return Err(refused("resource".to_owned(), reason));
    }
    if config.fields.is_empty() {
        let reason = "it must have an entry".to_owned();
        return Err(refused("fields".to_owned(), reason));
    }
    let resource = ApiResource::new(group, version, &config.resource);
    for (place, field) in config.fields.iter().enumerate() {
        check(&resource, field).map_err(|reason| refused(format!("fields[{place}]"), reason))?;
    }
    Ok(WatchSpec {
        namespace: config.namespace,
        label_selector: config.label_selector,
        field_selector: config.field_selector,
        fields: config.fields,
        optional: true,
        ..WatchSpec::new(format!("profile-{number}"), Source::One(resource))
    })
}

/// Refuses a field that no journal has.
fn check(resource: &ApiResource, field: &FieldPath) -> Result<(), String> {
    let wanted: FieldTree = std::iter::once(field).collect();
    let overlaps = |path: &&&str| {
        let path = path.parse::<FieldPath>();
        path.is_ok_and(|path| wanted.overlaps(&std::iter::once(&path).collect()))
    };
    if secrets::are_of(resource)
        && let Some(path) = SECRET_FIELDS.iter().find(overlaps)
    {
        return Err(format!(
            "{field} has {path} of Secrets, which no journal records"
        ));
    }
    let of_resource = HEARTBEATS
        .iter()
        .filter(|(group, plural, _)| *group == resource.group && *plural == resource.plural);
    let mut heartbeats = of_resource.map(|(_, _, path)| path).chain(&VERSIONS);
    match heartbeats.find(overlaps) {
        Some(path) => Err(format!(
            "{field} has {path}, which changes with every heartbeat: name fields beside it"
        )),
        None => Ok(()),
    }
}

fn refused(field: String, reason: String) -> SpecError {
    SpecError { field, reason }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn error(value: &Value) -> String {
        Profile::read(value).unwrap_err().to_string()
    }

    fn one(resource: &str, fields: &[&str]) -> Value {
        let version = match resource {
            "leases" => "coordination.k8s.io/v1",
            _ => "v1",
        };
        json!({"resources": [{"apiVersion": version, "resource": resource, "fields": fields}]})
    }

    #[test]
    fn a_profile_names_watches_that_nobody_waits_for() {
        let profile = json!({"resources": [
            {"apiVersion": "v1", "resource": "pods", "fields": ["spec.priority"]},
            {"apiVersion": "apps/v1", "resource": "deployments", "namespace": "default",
             "labelSelector": "app=web", "fieldSelector": "metadata.name=a",
             "fields": ["spec.replicas", "metadata.labels"]},
        ]});
        let profile = Profile::read(&profile).unwrap();
        let [pods, deployments] = profile.watches() else {
            panic!("{profile:?}");
        };
        assert_eq!(pods.source, Source::One(ApiResource::new("", "v1", "pods")));
        assert_eq!(pods.fields.len(), 1);
        assert!(pods.optional && deployments.optional);
        assert_eq!(
            deployments.source,
            Source::One(ApiResource::new("apps", "v1", "deployments"))
        );
        assert_eq!(deployments.label_selector, "app=web");
        assert_ne!(pods.name, deployments.name);
    }

    #[test]
    fn the_data_of_secrets_and_heartbeats_are_refused_by_name() {
        for (resource, field, part) in [
            (
                "secrets",
                "data",
                "data of Secrets, which no journal records",
            ),
            (
                "secrets",
                "data.password",
                "data.password has data of Secrets",
            ),
            ("secrets", "stringData", "stringData of Secrets"),
            (
                "secrets",
                "metadata",
                "metadata has metadata.annotations of Secrets",
            ),
            (
                "nodes",
                "status",
                "status has status.conditions[*].lastHeartbeatTime, which changes with every \
                 heartbeat",
            ),
            ("nodes", "status.conditions", "lastHeartbeatTime"),
            (
                "nodes",
                "status.conditions[*].lastHeartbeatTime",
                "heartbeat",
            ),
            ("leases", "spec", "spec has spec.renewTime"),
            ("pods", "metadata", "metadata has metadata.resourceVersion"),
            ("pods", "metadata.managedFields", "heartbeat"),
        ] {
            let error = error(&one(resource, &["metadata.labels", field]));
            assert!(error.starts_with("resources[0].fields[1]: "), "{error}");
            assert!(error.contains(part), "{error}");
        }
        for (resource, field) in [
            ("secrets", "type"),
            ("secrets", "metadata.labels"),
            ("nodes", "status.conditions[*].status"),
            ("leases", "spec.holderIdentity"),
            ("pods", "metadata.annotations"),
            ("configmaps", "data"),
        ] {
            let read = Profile::read(&one(resource, &[field]));
            assert!(read.is_ok(), "{resource} {field}: {read:?}");
        }
    }

    #[test]
    fn a_profile_that_does_not_fit_is_refused_by_the_path_of_the_value() {
        let entry = |name: &str, value: &str| {
            let mut entry = json!({"apiVersion": "v1", "resource": "pods", "fields": ["spec"]});
            entry[name] = json!(value);
            json!({"resources": [entry]})
        };
        for (value, expected) in [
            (json!({}), "resources"),
            (json!({"resources": []}), "resources: it must have an entry"),
            (
                one("pods", &[]),
                "resources[0].fields: it must have an entry",
            ),
            (one("pods", &["spec..a"]), "resources[0].fields[0]"),
            (
                one("pods/status", &["spec"]),
                "resources[0].resource: expected the plural",
            ),
            (
                entry("apiVersion", "a/b/c"),
                "resources[0].apiVersion: expected a group",
            ),
            (
                entry("apiVersion", ""),
                "resources[0].apiVersion: expected a group",
            ),
            (entry("kind", "Pod"), "resources[0].kind: unknown field"),
        ] {
            let error = error(&value);
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }
}
