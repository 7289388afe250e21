//! The patches that the collector makes.
//!
//! What is compiled into the API server takes a strategic merge patch, which
//! names single references. Custom resources take none (415) and get a merge
//! patch of the whole list, which has to carry the version that it was made of.

use davit_guest::{Context, ObjectRef, Patch, PlanFailure};
use serde::Serialize;

use crate::memory;
use crate::view::{Item, OwnerReference};

/// How an object's owner references can be patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    StrategicMerge,
    Merge,
}

impl Form {
    /// The form that an object takes, as far as is known.
    pub(crate) fn of(cx: &Context<'_>, item: &Item, failures: &[PlanFailure]) -> Self {
        let ObjectRef {
            api_version, kind, ..
        } = &item.reference;
        if was_refused(item, failures) || memory::is_merge_only(cx, api_version, kind) {
            Self::Merge
        } else {
            Self::StrategicMerge
        }
    }
}

/// At which version of an object a strategic merge patch of its references is
/// right. A merge patch is right only at the one that it was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// Whatever else names it.
    AnyVersion,
    /// As long as its other references are what they were.
    ThisVersion,
}

impl At {
    fn version(self, item: &Item) -> Option<&str> {
        match self {
            Self::AnyVersion => None,
            Self::ThisVersion => Some(&item.resource_version),
        }
    }
}

/// Takes these references off a dependent.
pub(crate) fn drop_references(
    item: &Item,
    form: Form,
    at: At,
    dropped: &[&OwnerReference],
) -> Patch {
    let references = item.view.metadata.owner_references.iter();
    let kept: Vec<_> = references.filter(|it| !dropped.contains(it)).collect();
    let mut uids: Vec<&str> = dropped.iter().map(|it| it.uid.as_str()).collect();
    uids.dedup();
    // A strategic merge patch takes every reference with the uid off.
    let ambiguous = kept.iter().any(|it| uids.contains(&it.uid.as_str()));
    if form == Form::Merge || ambiguous {
        return merge_references(item, kept);
    }
    let removals = uids.into_iter().map(|uid| Removal {
        patch: "delete",
        uid,
    });
    Patch::strategic_merge(&Body::of(References {
        resource_version: at.version(item),
        owner_references: removals.collect::<Vec<_>>(),
    }))
}

/// Lets the owners go before the dependent to which `unblocks` points. At any
/// other version it could put a reference back that was taken off meanwhile.
pub(crate) fn unblock(
    item: &Item,
    form: Form,
    unblocks: impl Fn(&OwnerReference) -> bool,
) -> Patch {
    let unblocked = |reference: &OwnerReference| OwnerReference {
        block_owner_deletion: Some(false),
        ..reference.clone()
    };
    let references = item.view.metadata.owner_references.iter();
    if form == Form::Merge {
        let all = references.map(|it| {
            if unblocks(it) {
                unblocked(it)
            } else {
                it.clone()
            }
        });
        return merge_references(item, all.collect::<Vec<_>>());
    }
    let changed = references.filter(|it| unblocks(it)).map(unblocked);
    Patch::strategic_merge(&Body::of(References {
        resource_version: At::ThisVersion.version(item),
        owner_references: changed.collect::<Vec<_>>(),
    }))
}

/// Lets an owner go, as far as this finalizer keeps it.
pub(crate) fn release(item: &Item, finalizer: &str) -> Patch {
    let finalizers = item.view.metadata.finalizers.iter();
    let kept: Vec<&String> = finalizers.filter(|it| *it != finalizer).collect();
    Patch::merge(&Body::of(Finalizers {
        resource_version: &item.resource_version,
        finalizers: (!kept.is_empty()).then_some(kept),
    }))
}

fn merge_references<R: Serialize>(item: &Item, references: Vec<R>) -> Patch {
    let owner_references = (!references.is_empty()).then_some(references);
    Patch::merge(&Body::of(References {
        resource_version: Some(&item.resource_version),
        owner_references,
    }))
}

/// Whether the API server refused an object's strategic merge patch as such.
pub(crate) fn was_refused(item: &Item, failures: &[PlanFailure]) -> bool {
    let uid = &item.reference.uid;
    failures
        .iter()
        .any(|it| it.uid == *uid && it.failure.class == "unsupported-media")
}

/// A patch's body. The host adds the uid.
#[derive(Serialize)]
struct Body<M> {
    metadata: M,
}

impl<M> Body<M> {
    fn of(metadata: M) -> Self {
        Self { metadata }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct References<'a, R> {
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<&'a str>,
    /// None, which is written as null, takes all of them off.
    owner_references: R,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Finalizers<'a> {
    resource_version: &'a str,
    /// None, which is written as null, takes all of them off.
    finalizers: Option<Vec<&'a String>>,
}

/// A strategic merge patch's way to take an element off a list.
#[derive(Serialize)]
struct Removal<'a> {
    #[serde(rename = "$patch")]
    patch: &'static str,
    uid: &'a str,
}
