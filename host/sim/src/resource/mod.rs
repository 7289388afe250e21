//! The served resources and their rules.

mod table;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::name::NameRule;
use crate::object::Object;
use crate::schema::Schema;
use crate::status::GroupResource;

pub use table::builtin;

/// A resource of one API version: a built-in one, a row of the table, or one
/// that a `CustomResourceDefinition` declares.
#[derive(Debug)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: String,
    /// The API version.
    pub version: String,
    /// The name in URLs, `pods`.
    pub plural: String,
    /// The name kubectl uses for one, `pod`.
    pub singular: String,
    /// The kind of an object, `Pod`.
    pub kind: String,
    /// The kind of a list, `PodList`.
    pub list_kind: String,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Abbreviations for kubectl.
    pub short_names: Vec<String>,
    /// Categories for kubectl, such as `all`.
    pub categories: Vec<String>,
    /// The subresources of an object.
    pub subresources: Vec<Subresource>,
    /// The verbs on the resource itself.
    pub verbs: Vec<&'static str>,
    /// The collection its objects are stored in. Two versions of a resource
    /// share one; so do core and `events.k8s.io` events.
    pub store: Arc<str>,
    /// The prefix in etcd, for the one error message that contains it.
    pub etcd_prefix: String,
    /// The version whose form is stored, for the storage version hash.
    pub storage_version: String,
    /// How objects are written and deleted.
    pub rules: Rules,
    /// Fields, beside name and namespace, that a field selector may use.
    pub selectable: Vec<String>,
    /// The additional properties of a custom resource; none for built-in resources.
    pub custom: Option<Custom>,
}

/// A subresource as discovery lists it.
#[derive(Clone, Debug)]
pub struct Subresource {
    /// The last segment of the URL.
    pub name: String,
    /// Group, version and kind of the body; group and version are empty if they are the
    /// resource's own.
    pub kind: (String, String, String),
    /// What can be done with it.
    pub verbs: Vec<&'static str>,
}

/// One version of a `CustomResourceDefinition`.
#[derive(Debug)]
pub struct Custom {
    /// The structural schema, if there is one.
    pub schema: Option<Schema>,
    /// `additionalPrinterColumns`.
    pub columns: Vec<Value>,
    /// The paths of `spec.replicas`, `status.replicas` and the label selector.
    pub scale: Option<ScalePaths>,
    /// The definition is being deleted: no object is created any more.
    pub terminating: bool,
}

/// The fields of a custom resource that its `scale` subresource uses.
#[derive(Clone, Debug)]
pub struct ScalePaths {
    /// `specReplicasPath`, without the leading dot.
    pub spec_replicas: String,
    /// `statusReplicasPath`.
    pub status_replicas: String,
    /// `labelSelectorPath`.
    pub selector: Option<String>,
}

/// How the objects of a resource are written and deleted.
#[derive(Clone, Copy, Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "independent columns of a table"
)]
pub struct Rules {
    /// What raises `metadata.generation`.
    pub generation: Generation,
    /// A PUT without `resourceVersion` overwrites any stored version.
    pub unconditional_update: bool,
    /// A PUT of a missing object creates it.
    pub create_on_update: bool,
    /// A DELETE answers with the object, not with a `Status`.
    pub returns_deleted: bool,
    /// What a DELETE without a policy does to dependents.
    pub collection: Collection,
    /// Deleting it grants a grace period (pods).
    pub graceful: bool,
    /// A create keeps the `status` in the body.
    pub keeps_status: bool,
    /// Sets the defaults of a decoded object.
    pub default: fn(&mut Object),
    /// Prepares a new object (`PrepareForCreate`).
    pub prepare: fn(&mut Object),
    /// The syntax of names.
    pub name: NameRule,
}

/// What raises `metadata.generation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// Nothing; it is not set.
    Unused,
    /// A change of `spec`.
    Spec,
    /// A change of `spec` or of the annotations (Deployments).
    SpecOrAnnotations,
    /// A change of anything but `metadata` and, where it is a subresource,
    /// `status` (custom resources).
    NotMetadata,
}

/// The default of garbage collection: for a DELETE without a policy of an object without
/// a finalizer that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collection {
    /// They are collected.
    Delete,
    /// They are orphaned (`Jobs` and `ReplicationControllers`, for old clients).
    Orphan,
    /// They do not exist: policies are ignored (Events).
    Unsupported,
}

impl Resource {
    /// `group/version`, or just `version` for the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The resource, as messages name it.
    #[must_use]
    pub fn group_resource(&self) -> GroupResource<'_> {
        GroupResource {
            group: &self.group,
            resource: &self.plural,
        }
    }

    /// The subresource of that name.
    #[must_use]
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }

    /// The verbs that discovery lists: once its definition terminates, a
    /// custom resource is only to be seen and deleted.
    #[must_use]
    pub fn listed_verbs(&self) -> Vec<&'static str> {
        let terminating = self
            .custom
            .as_ref()
            .is_some_and(|custom| custom.terminating);
        self.verbs
            .iter()
            .copied()
            .filter(|verb| !(terminating && ["create", "patch", "update"].contains(verb)))
            .collect()
    }

    /// Whether a separate endpoint writes `status`.
    #[must_use]
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    /// The key of an object in its collection: etcd's, so that lists have
    /// etcd's order.
    #[must_use]
    pub fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced {
            format!("{namespace}/{name}")
        } else {
            name.to_owned()
        }
    }

    /// Discovery's hash of the stored form.
    #[must_use]
    pub fn storage_version_hash(&self) -> String {
        let form = format!("{}/{}/{}", self.group, self.storage_version, self.kind);
        let digest = Sha256::digest(form.as_bytes());
        BASE64_STANDARD.encode(digest.get(..8).unwrap_or_default())
    }

    /// The values of the selectable fields of a built-in resource, each ended by a NUL.
    #[must_use]
    pub fn selectable_values(&self, object: &Object) -> String {
        let mut values = String::new();
        // Those of a custom resource change with its definition.
        let fields = self.selectable.iter().filter(|_| self.custom.is_none());
        for field in fields {
            let path: Vec<&str> = field.split('.').collect();
            let value = match field.as_str() {
                // Events: the component, in either of its fields.
                "source" => object
                    .at(&["source", "component"])
                    .filter(|component| component.as_str() != Some(""))
                    .or_else(|| object.at(&["reportingComponent"])),
                _ => object.at(&path),
            };
            match value {
                Some(Value::Null) | None
                    if field == "spec.hostNetwork" || field == "spec.unschedulable" =>
                {
                    values.push_str("false");
                }
                value => values.push_str(&selectable_text(value)),
            }
            values.push('\0');
        }
        values
    }
}

/// The text that a field selector compares.
pub(crate) fn selectable_text(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}
