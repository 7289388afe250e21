//! Undo: which objects the host keeps before it deletes them for a controller, so that
//! `davit restore` can create them again.
//!
//! An operator who asks for undo expects that nothing is deleted that could not be
//! restored. So an object that cannot be kept is not deleted: [`NotKept`] says why. The
//! guest sees nothing of a kept object.

use std::collections::BTreeSet;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::manifest::{Manifest, Permission};
use crate::mapping::Mapping;
use crate::object::{ApiResource, ObjectRef};

/// A rule's name for everything.
const ALL: &str = "*";
/// The resource that only a rule of its own names.
const SECRETS: &str = "secrets";

/// The largest object that is kept, in bytes of JSON. The bound keeps copies small, of which
/// some wait for the disk; the journal takes larger entries. etcd holds objects of 1.5 MiB, which
/// the API server may store in a denser form than JSON.
pub const MOST_KEPT_BYTES: usize = (2 << 20) - (64 << 10);

/// Objects that are kept before they are deleted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct UndoKind {
    /// The API group; empty for the core group, `*` for all groups.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The plural name of the resource, such as `pods`; `*` for all resources of the
    /// group except Secrets, which are kept with their data only if a kind names `secrets`.
    #[schemars(length(min = 1))]
    pub resource: String,
}

/// What a controller's host keeps, and for how long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UndoRules {
    /// The kinds; empty for none.
    pub kinds: Vec<UndoKind>,
    /// How long a kept object stays in the journal at least.
    pub keep_for: Duration,
}

/// The kinds of the rules that keep nothing, such as `pod` instead of `pods`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdleKinds {
    /// Those that the API server does not serve, as `deployments.apps`.
    pub not_served: Vec<String>,
    /// Those that no revision of the controller may delete.
    pub not_deleted: Vec<String>,
}

/// An object that was read before its deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptObject {
    /// The object, with its uid.
    pub target: ObjectRef,
    /// Its resource.
    pub resource: ApiResource,
    /// How long it stays in the journal at least.
    pub keep_for: Duration,
    /// The whole object, as JSON of the API server.
    pub object: Vec<u8>,
}

/// Why an object was not kept, and what an operator can do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotKept {
    /// The host records no journal.
    #[error(
        "the host keeps no journal: start davit run with --journal DIR, or remove the kind from \
         spec.undo.kinds"
    )]
    NoJournal,
    /// The journal does not record at the moment.
    #[error(
        "the journal records nothing, because its disk is full or fails: davit_journal_recording \
         is 0, and the log has the cause; it records again by itself once the disk does"
    )]
    Stopped,
    /// The disk did not take the object.
    #[error("the journal cannot write it ({0}): make room on its disk, or replace the disk")]
    Failed(String),
    /// The disk did not answer in time.
    #[error("the journal's disk did not write it within {} s", .0.as_secs())]
    Silent(Duration),
    /// Too many copies wait for the disk already.
    #[error(
        "copies of {} MiB wait for the journal's disk, which does not keep up: the deletion is \
         retried later; a faster disk for --journal helps",
        .waiting >> 20
    )]
    Behind {
        /// The most bytes of copies that may wait.
        waiting: usize,
    },
    /// The object has changed after each copy, before it could be deleted.
    #[error(
        "it has changed after each of {copies} copies, and only what was kept is deleted: see \
         who writes to it so often, or remove the kind from spec.undo.kinds"
    )]
    Changes {
        /// How many copies were made in a row.
        copies: u32,
    },
    /// The object is larger than [`MOST_KEPT_BYTES`].
    #[error(
        "it has {bytes} bytes of JSON, and the journal keeps at most {MOST_KEPT_BYTES}: remove the \
         kind from spec.undo.kinds, or delete the object yourself"
    )]
    TooLarge {
        /// The size, in bytes.
        bytes: usize,
    },
}

impl UndoKind {
    /// Whether it names a resource. Only its own name names Secrets.
    #[must_use]
    pub fn names(&self, group: &str, resource: &str) -> bool {
        let is_secrets = group.is_empty() && resource == SECRETS;
        let fits = |rule: &str, value: &str| rule == ALL || rule == value;
        fits(&self.group, group)
            && fits(&self.resource, resource)
            && (!is_secrets || self.resource == SECRETS)
    }

    /// `deployments.apps`, or `pods` for the core group.
    fn text(&self) -> String {
        match self.group.as_str() {
            "" => self.resource.clone(),
            group => format!("{}.{group}", self.resource),
        }
    }

    /// What it and a permission of a guest name both; `*` for all.
    fn common(&self, group: &str, resource: &str) -> Option<(String, String)> {
        let common = |one: &str, other: &str| match (one, other) {
            (ALL, other) => Some(other.to_owned()),
            (one, ALL) => Some(one.to_owned()),
            (one, other) => (one == other).then(|| one.to_owned()),
        };
        let both = (
            common(&self.group, group)?,
            common(&self.resource, resource)?,
        );
        let is_unnamed = both == (String::new(), SECRETS.to_owned()) && self.resource != SECRETS;
        (!is_unnamed).then_some(both)
    }
}

impl UndoRules {
    /// Whether nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Whether the objects of a resource are kept.
    #[must_use]
    pub fn keeps(&self, resource: &ApiResource) -> bool {
        let (group, plural) = (&resource.group, &resource.plural);
        self.kinds.iter().any(|kind| kind.names(group, plural))
    }

    /// The kinds that keep nothing: of a resource that is not served, or that no guest of these
    /// manifests deletes.
    #[must_use]
    pub fn idle(&self, mapping: &Mapping, manifests: &[&Manifest]) -> IdleKinds {
        let mut idle = IdleKinds::default();
        for kind in &self.kinds {
            let mut served = mapping.iter().map(|served| &served.resource);
            let permissions = manifests.iter().flat_map(|one| &one.permissions);
            let mut deleted = permissions.filter_map(deletes);
            if !served.any(|it| kind.names(&it.group, &it.plural)) {
                idle.not_served.push(kind.text());
            } else if !deleted.any(|(group, resource)| kind.common(group, resource).is_some()) {
                idle.not_deleted.push(kind.text());
            }
        }
        idle
    }

    /// The groups and resources that the host has to `get` for a guest of this manifest: those
    /// that the guest may delete and that are kept; `*` stands for all.
    #[must_use]
    pub fn reads(&self, manifest: &Manifest) -> BTreeSet<(String, String)> {
        let deleted = manifest.permissions.iter().filter_map(deletes);
        let deleted = deleted.collect::<BTreeSet<_>>();
        let kinds = self.kinds.iter();
        let reads = kinds.flat_map(|kind| {
            let common = deleted.iter();
            common.filter_map(|(group, resource)| kind.common(group, resource))
        });
        reads.collect()
    }
}

/// The group and the resource of the objects that a permission allows to delete.
fn deletes(permission: &Permission) -> Option<(&str, &str)> {
    let Permission {
        verb,
        group,
        resource,
    } = permission;
    match (verb.as_str(), resource.as_str()) {
        ("create" | ALL, "pods/eviction") => Some((group, "pods")),
        ("delete" | ALL, resource) => Some((group, resource)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(kinds: &[(&str, &str)]) -> UndoRules {
        let kinds = kinds.iter().map(|(group, resource)| UndoKind {
            group: (*group).to_owned(),
            resource: (*resource).to_owned(),
        });
        UndoRules {
            kinds: kinds.collect(),
            keep_for: Duration::from_secs(60),
        }
    }

    fn manifest(permissions: &[(&str, &str, &str)]) -> Manifest {
        let permissions = permissions
            .iter()
            .map(|&(verb, group, resource)| Permission::new(verb, group, resource));
        Manifest {
            permissions: permissions.collect(),
            ..Manifest::default()
        }
    }

    #[test]
    fn secrets_are_kept_only_if_a_kind_names_them() {
        let of = |group: &str, plural: &str| ApiResource::new(group, "v1", plural);
        let all = rules(&[("*", "*")]);
        assert!(all.keeps(&of("", "pods")) && all.keeps(&of("apps", "deployments")));
        assert!(!all.keeps(&of("", "secrets")));
        assert!(all.keeps(&of("example.com", "secrets")), "another kind");
        assert!(!rules(&[("", "*")]).keeps(&of("", "secrets")));
        assert!(rules(&[("", "secrets")]).keeps(&of("", "secrets")));
        assert!(!rules(&[("", "pods")]).keeps(&of("metrics.k8s.io", "pods")));
        assert!(!UndoRules::default().keeps(&of("", "pods")));
    }

    #[test]
    fn a_kind_that_is_not_served_or_never_deleted_keeps_nothing_and_is_named() {
        let served = |group: &str, plural: &str, kind: &str| crate::mapping::ServedResource {
            resource: ApiResource::new(group, "v1", plural),
            kind: kind.into(),
            namespaced: true,
            verbs: vec!["delete".into()],
            preferred: true,
        };
        let mapping = Mapping::new([
            served("", "pods", "Pod"),
            served("", "secrets", "Secret"),
            served("apps", "deployments", "Deployment"),
        ]);
        let podgc = manifest(&[("delete", "", "pods")]);
        let all = manifest(&[("delete", "*", "*")]);
        let idle = |kinds: &[(&str, &str)], manifest: &Manifest| {
            let IdleKinds {
                not_served,
                not_deleted,
            } = rules(kinds).idle(&mapping, &[manifest]);
            (not_served.join(" "), not_deleted.join(" "))
        };
        let pair = |one: &str, other: &str| (one.to_owned(), other.to_owned());
        let kinds = [("", "pod"), ("", "pods"), ("apps", "deployments")];
        assert_eq!(idle(&kinds, &podgc), pair("pod", "deployments.apps"));
        assert_eq!(idle(&[("*", "*"), ("apps", "*")], &all), pair("", ""));
        assert_eq!(idle(&[("batch", "*")], &all), pair("*.batch", ""));
        assert_eq!(idle(&[("", "secrets")], &all), pair("", ""));
        assert_eq!(idle(&[("", "secrets")], &podgc), pair("", "secrets"));
    }

    #[test]
    fn an_account_needs_to_read_what_its_guest_deletes_and_the_operator_keeps() {
        let reads = |kinds: &[(&str, &str)], manifest: &Manifest| {
            let reads = rules(kinds).reads(manifest);
            let reads = reads
                .into_iter()
                .map(|(group, plural)| format!("{group}/{plural}"));
            reads.collect::<Vec<_>>()
        };
        let podgc = manifest(&[("delete", "", "pods"), ("patch", "", "nodes")]);
        assert_eq!(reads(&[("", "pods"), ("", "nodes")], &podgc), ["/pods"]);
        assert_eq!(reads(&[("*", "*")], &podgc), ["/pods"]);
        let evicts = manifest(&[("create", "", "pods/eviction")]);
        assert_eq!(reads(&[("", "pods")], &evicts), ["/pods"]);
        let all = manifest(&[("delete", "*", "*")]);
        let kinds = [("apps", "deployments"), ("", "*")];
        assert_eq!(reads(&kinds, &all), ["/*", "apps/deployments"]);
        let secrets = manifest(&[("delete", "", "secrets")]);
        assert!(reads(&[("", "*")], &secrets).is_empty());
        assert_eq!(reads(&[("", "secrets")], &secrets), ["/secrets"]);
    }
}
