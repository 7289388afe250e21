//! The collector's patches.
//!
//! Types that are compiled into the API server accept a strategic merge patch,
//! which names single references. Custom resources refuse it (415). They get a
//! merge patch of the whole list, which must carry the version that it was made
//! from.

use davit_guest::views::OwnerReference;
use davit_guest::{Context, FailureClass, ObjectRef, Patch, PlanFailure};
use serde::Serialize;

use crate::memory;
use crate::view::Item;

/// The form of patch for an object's owner references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchForm {
    StrategicMerge,
    Merge,
}

impl PatchForm {
    /// The form that an object accepts, as far as is known.
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

/// The version of an object at which a strategic merge patch of its references
/// is right. A merge patch is right only at the version that it was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchVersion {
    /// Whatever its other references are.
    AnyVersion,
    /// Only with its present references.
    ThisVersion,
}

impl PatchVersion {
    fn version(self, item: &Item) -> Option<&str> {
        match self {
            Self::AnyVersion => None,
            Self::ThisVersion => Some(&item.resource_version),
        }
    }
}

/// Removes these references from a dependent.
pub(crate) fn drop_references(
    item: &Item,
    form: PatchForm,
    at: PatchVersion,
    dropped: &[&OwnerReference],
) -> Patch {
    let references = item.view.metadata.owner_references.iter();
    let kept: Vec<_> = references.filter(|it| !dropped.contains(it)).collect();
    let mut uids: Vec<&str> = dropped.iter().map(|it| it.uid.as_str()).collect();
    uids.dedup();
    // A strategic merge patch removes every reference with the uid.
    let ambiguous = kept.iter().any(|it| uids.contains(&it.uid.as_str()));
    if form == PatchForm::Merge || ambiguous {
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

/// Lets the owners be deleted before the dependent, for the references that
/// `unblocks` selects. At another version, the patch could restore a reference
/// that was removed meanwhile.
pub(crate) fn unblock(
    item: &Item,
    form: PatchForm,
    unblocks: impl Fn(&OwnerReference) -> bool,
) -> Patch {
    let unblocked = |reference: &OwnerReference| OwnerReference {
        block_owner_deletion: Some(false),
        ..reference.clone()
    };
    let references = item.view.metadata.owner_references.iter();
    if form == PatchForm::Merge {
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
        resource_version: PatchVersion::ThisVersion.version(item),
        owner_references: changed.collect::<Vec<_>>(),
    }))
}

/// Removes this finalizer from an owner.
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

/// Whether the API server refused a strategic merge patch for this object
/// because of its type.
pub(crate) fn was_refused(item: &Item, failures: &[PlanFailure]) -> bool {
    let uid = &item.reference.uid;
    failures
        .iter()
        .any(|it| it.uid == *uid && it.failure.class == FailureClass::UnsupportedMedia)
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
    /// None is written as null and removes all of them.
    owner_references: R,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Finalizers<'a> {
    resource_version: &'a str,
    /// None is written as null and removes all of them.
    finalizers: Option<Vec<&'a String>>,
}

/// The way to remove an element from a list in a strategic merge patch.
#[derive(Serialize)]
struct Removal<'a> {
    #[serde(rename = "$patch")]
    patch: &'static str,
    uid: &'a str,
}
