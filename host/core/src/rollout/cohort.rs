//! Ownership: which of two revisions owns a target.
//!
//! A pure function of the target, the cache and the share: exactly one revision owns a
//! target at any time. Ownership grows with the weight: a target that the candidate
//! owns at 10 % is still its own at 50 %.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Role;
use crate::msgpack::{self, Value};
use crate::object::{ObjectRef, Uid};
use crate::path::{FieldPath, Segment};
use crate::store::{Object, Snapshot};

/// The cohort: targets that always belong to the same revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Unit {
    /// Each object is a cohort.
    #[default]
    Uid,
    /// All objects of a namespace. A namespace and a cluster-scoped object are
    /// identified by their name.
    Namespace,
    /// All objects that share their first owner. An object without an owner is a
    /// cohort.
    Owner,
    /// All pods of a node, and the node itself.
    Node,
}

/// How targets are divided between the two revisions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Cohort {
    /// The cohort: targets that always belong to the same revision.
    #[serde(rename = "by")]
    pub unit: Unit,
    /// The namespaces whose targets the candidate may own; all namespaces if empty.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub namespaces: BTreeSet<String>,
    /// The labels that a target must have for the candidate to own it.
    #[serde(rename = "matchLabels", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// The candidate's share of the targets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// How targets are divided into cohorts.
    pub cohort: Cohort,
    /// The weight, in percent of the cohorts. 0 is a shadow.
    pub weight: u8,
}

/// Whether a revision owns a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// The target is its own, and so is what the plan creates.
    Own,
    /// The target belongs to the other revision.
    OfOther,
    /// The target is the candidate's. The plan writes another object outside of its cohorts.
    WritesOutside,
}

/// One step of a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CandidateStep {
    /// The candidate's share.
    pub share: Share,
    /// The number of the step. The counts restart when it changes.
    pub number: u32,
    /// How long a target on which one revision has decided waits for the other; derived
    /// from the guests' ticks if none.
    pub window: Option<Duration>,
}

impl Cohort {
    /// The fields that the cache must hold of every target, beyond those that
    /// the guest reads.
    #[must_use]
    pub fn fields(&self) -> Vec<FieldPath> {
        let unit = match self.unit {
            Unit::Uid | Unit::Namespace => None,
            Unit::Owner => Some(vec![
                field("metadata"),
                field("ownerReferences"),
                Segment::Each,
                field("uid"),
            ]),
            Unit::Node => Some(vec![field("spec"), field("nodeName")]),
        };
        let labels = self.labels.keys();
        let labels = labels.map(|label| vec![field("metadata"), field("labels"), field(label)]);
        unit.into_iter().chain(labels).map(FieldPath::of).collect()
    }
}

impl Share {
    /// The role of the revision that owns a target. If the cohort depends on fields of
    /// the target and the cache does not hold it, the stable revision owns it.
    #[must_use]
    pub fn owner(&self, target: &ObjectRef, snapshot: &Snapshot) -> Role {
        if self.weight == 0 || !self.selects_namespace(target) {
            return Role::Stable;
        }
        let copies = snapshot.copies(&Uid::new(&target.uid));
        let Some(key) = self.selected_key(target, &copies) else {
            return Role::Stable;
        };
        self.owner_of_key(&key)
    }

    /// Whether a revision may execute a plan for a target of this owner, which also writes
    /// these other objects. The stable revision may write any for its targets.
    #[must_use]
    pub fn ownership<'a>(
        &self,
        role: Role,
        target: &ObjectRef,
        others: impl IntoIterator<Item = &'a ObjectRef>,
        snapshot: &Snapshot,
    ) -> Ownership {
        if self.owner(target, snapshot) != role {
            return Ownership::OfOther;
        }
        let mut others = others.into_iter();
        match role {
            Role::Stable => Ownership::Own,
            Role::Candidate if others.all(|it| self.admits(it, target, snapshot)) => Ownership::Own,
            Role::Candidate => Ownership::WritesOutside,
        }
    }

    /// Whether the candidate may write another object than its target. One without a uid is
    /// created, or is the target's already: the host checks that before it applies. One with a
    /// uid exists, and belongs to the target, or to the candidate as its own target would.
    fn admits(&self, other: &ObjectRef, target: &ObjectRef, snapshot: &Snapshot) -> bool {
        if other.uid.is_empty() {
            return self.admits_creation(other);
        }
        is_owned(other, target, snapshot) || self.owner(other, snapshot) == Role::Candidate
    }

    /// Whether the candidate may create an object for a target of its own. The namespace of
    /// the object decides as for a target: its labels, owners and node are those that the
    /// candidate chooses.
    fn admits_creation(&self, created: &ObjectRef) -> bool {
        let owns_namespace = || self.owner_of_key(namespace(created)) == Role::Candidate;
        self.weight > 0
            && self.selects_namespace(created)
            && (self.cohort.unit != Unit::Namespace || owns_namespace())
    }

    fn owner_of_key(&self, key: &str) -> Role {
        if bucket(key) < u64::from(self.weight) * BUCKETS_PER_PERCENT {
            Role::Candidate
        } else {
            Role::Stable
        }
    }

    fn selects_namespace(&self, target: &ObjectRef) -> bool {
        let namespaces = &self.cohort.namespaces;
        namespaces.is_empty() || namespaces.contains(namespace(target))
    }

    /// The key that is hashed; none if the candidate cannot own the target. The cache may have the
    /// target several times, some of them with the fields of other controllers only.
    fn selected_key(&self, target: &ObjectRef, copies: &[&Arc<Object>]) -> Option<String> {
        let text = |path: &[&str]| copies.iter().find_map(|object| text_at(object, path));
        for (label, wanted) in &self.cohort.labels {
            if text(&["metadata", "labels", label])? != *wanted {
                return None;
            }
        }
        match self.cohort.unit {
            Unit::Uid => Some(target.uid.clone()),
            Unit::Namespace => Some(namespace(target).to_owned()),
            Unit::Node if target.kind == "Node" => Some(target.name.clone()),
            Unit::Node => text(&["spec", "nodeName"]),
            Unit::Owner if copies.is_empty() => None,
            Unit::Owner => {
                let owner = copies.iter().find_map(|object| first_owner(object));
                Some(owner.unwrap_or_else(|| target.uid.clone()))
            }
        }
    }
}

/// The namespace of a target; for a namespace, its own name.
fn namespace(target: &ObjectRef) -> &str {
    if target.namespace.is_empty() {
        &target.name
    } else {
        &target.namespace
    }
}

const BUCKETS_PER_PERCENT: u64 = 100;
const BUCKETS: u64 = 100 * BUCKETS_PER_PERCENT;

/// FNV-1a with mixed bits: the same on every replica and in every version. Without the
/// mixing, the low bits of names that differ in their last letter are nearly the same.
fn bucket(key: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in key.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        hash = (hash ^ (hash >> 33)).wrapping_mul(factor);
    }
    (hash ^ (hash >> 33)) % BUCKETS
}

fn field(name: &str) -> Segment {
    Segment::Field(name.into())
}

fn text_at(object: &Object, fields: &[&str]) -> Option<String> {
    let data = object.data();
    let mut data = &*data;
    for name in fields {
        data = msgpack::field(data, name).ok()??;
    }
    match Value::read(data) {
        Ok(Value::Text(text)) => Some(text.to_owned()),
        _ => None,
    }
}

/// Whether the cache has the target among the owners of an object.
fn is_owned(object: &ObjectRef, target: &ObjectRef, snapshot: &Snapshot) -> bool {
    let mut copies = snapshot.copies(&Uid::new(&object.uid)).into_iter();
    copies.any(|object| owners(&object.data()).any(|uid| uid == target.uid))
}

fn first_owner(object: &Object) -> Option<String> {
    owners(&object.data()).next().map(str::to_owned)
}

/// The uids of the owners that the cache has of an object with this data.
fn owners(data: &[u8]) -> impl Iterator<Item = &str> {
    let metadata = msgpack::field(data, "metadata").ok().flatten();
    let owners = metadata.and_then(|metadata| msgpack::field(metadata, "ownerReferences").ok()?);
    let owners = match owners.map(Value::read) {
        Some(Ok(Value::List(owners))) => Some(owners),
        _ => None,
    };
    owners.into_iter().flatten().filter_map(|owner| {
        let uid = msgpack::field(owner.ok()?, "uid").ok()??;
        match Value::read(uid) {
            Ok(Value::Text(uid)) => Some(uid),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests;
