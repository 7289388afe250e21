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

use serde::Serialize;

use crate::{ObjectRef, Time, View};

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
    pub last_transition_time: Option<Time>,
    /// Why, in a word.
    pub reason: String,
    /// Why, in a sentence.
    #[serde(skip_serializing_if = "String::is_empty")]
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
