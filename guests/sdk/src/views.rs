//! Views of what many guests read. Each is a part of an object: a guest's own view names
//! the fields that it needs of them.
//!
//! ```
//! use davit_guest::View;
//! use davit_guest::views::{JobStatus, OwnerReference};
//!
//! #[derive(Default, View)]
//! struct Job {
//!     #[view(path = "metadata.ownerReferences")]
//!     owners: Vec<OwnerReference>,
//!     status: JobStatus,
//! }
//! ```
//!
//! Pods have theirs in [`pod`](crate::pod), taints and tolerations in
//! [`toleration`](crate::toleration).
//!
//! # Metadata
//!
//! A watch caches what its view reads, for each object, and each change of it is a trigger. So
//! there is no view of all metadata: [`Metadata`], [`Created`], [`Labels`], [`Annotations`] and
//! [`Owners`] read a part each, and a guest flattens those that it needs.
//!
//! ```
//! use davit_guest::views::{Created, Labels, Metadata, Owners};
//! use davit_guest::{Object, View, fields_of};
//!
//! #[derive(Default, View)]
//! struct Site {
//!     #[view(path = "metadata", flatten)]
//!     metadata: Metadata,
//!     #[view(path = "metadata", flatten)]
//!     created: Created,
//!     #[view(path = "metadata", flatten)]
//!     labels: Labels,
//!     #[view(path = "metadata", flatten)]
//!     owners: Owners,
//!     // One annotation, without all others.
//!     #[view(path = "metadata.annotations[\"example.com/owner\"]")]
//!     contact: String,
//! }
//!
//! assert_eq!(
//!     fields_of::<Site>(),
//!     [
//!         "metadata.annotations[\"example.com/owner\"]",
//!         "metadata.creationTimestamp",
//!         "metadata.deletionTimestamp",
//!         "metadata.finalizers[*]",
//!         "metadata.generation",
//!         "metadata.labels",
//!         "metadata.ownerReferences[*].apiVersion",
//!         "metadata.ownerReferences[*].blockOwnerDeletion",
//!         "metadata.ownerReferences[*].controller",
//!         "metadata.ownerReferences[*].kind",
//!         "metadata.ownerReferences[*].name",
//!         "metadata.ownerReferences[*].uid",
//!     ]
//! );
//!
//! fn is_tool(site: &Object<Site>) -> bool {
//!     site.view.labels.get("team") == Some("tools") && site.view.owners.controller().is_none()
//! }
//! ```
//!
//! Two of them that read the same field do not compile:
//!
//! ```compile_fail
//! use davit_guest::{View, views::{Created, Labels}};
//!
//! #[derive(Default, View)]
//! struct Site {
//!     #[view(path = "metadata", flatten)]
//!     one: Labels,
//!     #[view(path = "metadata", flatten)]
//!     other: Labels,
//! }
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::{Instant, ObjectRef, Time, View};

/// Kubernetes' `OwnerReference` with all fields: a merge patch writes it back.
#[derive(Clone, Debug, Default, PartialEq, Eq, View, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerReference {
    /// The group and version in which the owner is named.
    pub api_version: String,
    /// The owner's kind.
    pub kind: String,
    /// The owner's name.
    pub name: String,
    /// The owner's uid.
    pub uid: String,
    /// Whether the owner is the object's controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    /// Whether the owner must not be deleted before the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

impl OwnerReference {
    /// Whether the owner must not be deleted before the object.
    #[must_use]
    pub fn blocks(&self) -> bool {
        self.block_owner_deletion == Some(true)
    }

    /// Whether a reference from this namespace (empty for a cluster-scoped object) means
    /// this owner. Only the group of the API version counts: an object is served in several
    /// versions.
    #[must_use]
    pub fn means(&self, owner: &ObjectRef, namespace: &str) -> bool {
        self.uid == owner.uid
            && self.kind == owner.kind
            && self.name == owner.name
            && group(&self.api_version) == group(&owner.api_version)
            && (owner.namespace.is_empty() || owner.namespace == namespace)
    }
}

/// The metadata that a controller of a custom resource decides on.
#[derive(Clone, Debug, Default, PartialEq, Eq, View)]
pub struct Metadata {
    /// The generation of the spec; a write to the status does not change it.
    pub generation: i64,
    /// What keeps the object from being deleted.
    pub finalizers: Vec<String>,
    /// When its deletion was asked for.
    pub deletion_timestamp: Option<Time>,
}

impl Metadata {
    /// Whether the object is deleted as soon as it has no finalizer.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Whether what the object owns should outlive it: `kubectl delete --cascade=orphan`. The
    /// garbage collector first removes the object from the owners of the others, and then its
    /// own finalizer. Until then, a controller deletes nothing that the object owns.
    #[must_use]
    pub fn is_orphaning(&self) -> bool {
        self.is_deleting() && self.finalizers.iter().any(|it| it == "orphan")
    }
}

/// When an object was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, View)]
pub struct Created {
    /// None only for an object that the API server has not stored yet.
    pub creation_timestamp: Option<Time>,
}

impl Created {
    /// How old the object is at a time, such as [`Context::now`](crate::Context::now); zero if
    /// it was created later, or without a time.
    #[must_use]
    pub fn age(&self, now: Instant) -> Duration {
        let created = self.creation_timestamp.map(Instant::from);
        created.map_or(Duration::ZERO, |created| now - created)
    }
}

/// All labels of an object. A guest that needs one reads its path:
/// `metadata.labels["app"]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, View)]
pub struct Labels {
    /// The values by their keys; a [`LabelSelector`](crate::LabelSelector) selects by them.
    pub labels: BTreeMap<String, String>,
}

impl Labels {
    /// The value of a label, which may be empty; none without the label.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }
}

/// All annotations of an object: up to 256 KiB for each. A guest that needs one reads its path:
/// `metadata.annotations["example.com/keep"]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, View)]
pub struct Annotations {
    /// The values by their keys.
    pub annotations: BTreeMap<String, String>,
}

impl Annotations {
    /// The value of an annotation, which may be empty; none without the annotation.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(String::as_str)
    }
}

/// The owners of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, View)]
pub struct Owners {
    /// The references, with all fields.
    pub owner_references: Vec<OwnerReference>,
}

impl Owners {
    /// The owner that is the object's controller.
    #[must_use]
    pub fn controller(&self) -> Option<&OwnerReference> {
        let mut owners = self.owner_references.iter();
        owners.find(|owner| owner.controller == Some(true))
    }
}

/// The group of an API version; empty for core.
#[must_use]
pub fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// A condition of any kind of object (`metav1.Condition`), with all fields: a merge patch
/// writes it back.
#[derive(Clone, Debug, Default, PartialEq, Eq, View, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// `Available`, `Progressing`, …
    pub r#type: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The generation that it was written for; 0 if unknown.
    #[serde(skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    /// When the status last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// Why, in a word.
    pub reason: String,
    /// Why, in a sentence; it may be empty. It is always written: most definitions require it, as
    /// `metav1.Condition` does.
    pub message: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// The part of a custom resource's status that
/// [kstatus](https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus) reads.
/// [`Conditions`](crate::Conditions) writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, View, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The generation that the status is about: an object of a later one is in progress,
    /// whatever its conditions.
    pub observed_generation: i64,
    /// The conditions of all controllers.
    pub conditions: Vec<Condition>,
}

/// The image of a container in a pod's template.
#[derive(Clone, Debug, Default, PartialEq, Eq, View)]
pub struct ContainerImage {
    /// `nginx:1.29`
    pub image: String,
}

/// A condition's type and status, without its times: a heartbeat is not a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, View)]
pub struct ConditionStatus {
    /// `Ready`, `MemoryPressure`, …
    pub r#type: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
}

/// Whether a condition holds. The first condition of the type decides; without one, it
/// does not.
#[must_use]
pub fn is_true(conditions: &[ConditionStatus], r#type: &str) -> bool {
    conditions
        .iter()
        .find(|condition| condition.r#type == r#type)
        .is_some_and(|condition| condition.status == "True")
}

/// A job's status.
#[derive(Clone, Debug, Default, PartialEq, Eq, View)]
pub struct JobStatus {
    /// The number of its pods that are pending or running.
    pub active: i32,
    /// The number of its pods that succeeded.
    pub succeeded: i32,
    /// The number of its pods that failed.
    pub failed: i32,
    /// When its controller first saw it.
    pub start_time: Option<Time>,
    /// When it completed.
    pub completion_time: Option<Time>,
    /// `Complete`, `Failed`, `Suspended`, …
    pub conditions: Vec<ConditionStatus>,
}

impl JobStatus {
    /// Whether it has completed or failed.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        is_true(&self.conditions, "Complete") || is_true(&self.conditions, "Failed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(of: &[(&str, &str)]) -> Vec<ConditionStatus> {
        of.iter()
            .map(|&(r#type, status)| ConditionStatus {
                r#type: r#type.to_owned(),
                status: status.to_owned(),
            })
            .collect()
    }

    #[test]
    fn pgc_34_is_node_ready() {
        for (of, ready) in [
            (&[("Ready", "True")][..], true),
            (&[("Ready", "False")], false),
            (&[("Ready", "Unknown")], false),
            (&[("MemoryPressure", "True")], false),
            (&[], false),
            (&[("Ready", "False"), ("Ready", "True")], false),
            (&[("DiskPressure", "False"), ("Ready", "True")], true),
        ] {
            assert_eq!(is_true(&conditions(of), "Ready"), ready, "{of:?}");
        }
    }

    #[test]
    fn an_object_is_as_old_as_the_time_since_its_creation() {
        let created = |text| Created {
            creation_timestamp: Time::parse(text),
        };
        let now = Instant::from_millis(10_000);
        let age = |text| created(text).age(now);
        assert_eq!(age("1970-01-01T00:00:04Z"), Duration::from_secs(6));
        assert_eq!(age("1970-01-01T00:00:11Z"), Duration::ZERO);
        assert_eq!(Created::default().age(now), Duration::ZERO);
    }

    #[test]
    fn what_an_object_owns_outlives_it_if_its_deletion_asks_for_that() {
        let metadata = |is_deleting: bool, finalizers: &[&str]| Metadata {
            finalizers: finalizers.iter().map(ToString::to_string).collect(),
            deletion_timestamp: Time::parse("2023-11-14T22:13:20Z").filter(|_| is_deleting),
            ..Metadata::default()
        };
        assert!(metadata(true, &["example.com/own", "orphan"]).is_orphaning());
        assert!(!metadata(true, &["foregroundDeletion"]).is_orphaning());
        assert!(!metadata(false, &["orphan"]).is_orphaning());
    }

    #[test]
    fn only_one_owner_is_the_controller() {
        let owner = |name: &str, controller| OwnerReference {
            name: name.to_owned(),
            controller,
            ..OwnerReference::default()
        };
        let owners = |owner_references| Owners { owner_references };
        let two = owners(vec![owner("a", Some(false)), owner("b", Some(true))]);
        assert_eq!(two.controller().map(|it| it.name.as_str()), Some("b"));
        assert_eq!(owners(vec![owner("a", None)]).controller(), None);
    }

    #[test]
    fn a_job_is_finished_when_a_final_condition_holds() {
        for (of, finished) in [
            (&[("Complete", "True")][..], true),
            (&[("Failed", "True")], true),
            (&[("Complete", "False"), ("Suspended", "True")], false),
        ] {
            let status = JobStatus {
                conditions: conditions(of),
                ..JobStatus::default()
            };
            assert_eq!(status.is_finished(), finished, "{of:?}");
        }
    }
}
