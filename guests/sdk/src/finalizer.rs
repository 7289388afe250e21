//! Finalizers.

use crate::views::Metadata;
use crate::{JsonPatch, Object, Patch};

/// A finalizer of the controller: an object that has it is deleted only after the controller
/// has removed it. While the controller is disabled, in a dry run or without a grant, and after
/// it was removed, nobody removes it: the object stays, and so does its namespace.
///
/// The cache may lag behind. Before the finalizer is removed, read live what has to be gone:
/// [`Context::prove_gone`](crate::Context::prove_gone) does so for an object that this one
/// owns. Delete nothing that should [outlive](Metadata::is_orphaning) the object.
///
/// ```
/// use davit_guest::views::Metadata;
/// use davit_guest::{Finalizer, Object, Plan, Reason, View};
///
/// const CLEANUP: Finalizer = Finalizer::new("example.com/cleanup");
/// const DELETED: Reason = Reason::new("deleted");
/// const NEW: Reason = Reason::new("new");
///
/// #[derive(Default, View)]
/// struct Site {
///     metadata: Metadata,
/// }
///
/// fn plan(site: &Object<Site>) -> Option<Plan> {
///     let target = site.reference.clone();
///     if site.view.metadata.is_deleting() {
///         // Clean up first: nothing is known about the object afterwards.
///         let patch = CLEANUP.remove(&site.view.metadata)?;
///         return Some(Plan::new(target, DELETED, "cleaned up").patch(patch));
///     }
///     let patch = CLEANUP.ensure(site, &site.view.metadata)?;
///     Some(Plan::new(target, NEW, "to be cleaned up after").patch(patch))
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finalizer(&'static str);

impl Finalizer {
    /// Names a finalizer: `example.com/cleanup`.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// Whether an object has it.
    #[must_use]
    pub fn is_on(self, metadata: &Metadata) -> bool {
        metadata.finalizers.iter().any(|it| it == self.0)
    }

    /// Adds it; none if the object has it, or is being deleted: the API server adds none
    /// then. The patch fails if the object has changed since it was read.
    #[must_use]
    pub fn ensure<T>(self, object: &Object<T>, metadata: &Metadata) -> Option<Patch> {
        if self.is_on(metadata) || metadata.is_deleting() {
            return None;
        }
        let version = &object.resource_version;
        let patch = JsonPatch::new().test("/metadata/resourceVersion", version);
        let patch = if metadata.finalizers.is_empty() {
            patch.add("/metadata/finalizers", &[self.0])
        } else {
            patch.add("/metadata/finalizers/-", &self.0)
        };
        Some(patch.into_patch())
    }

    /// Removes it, and no finalizer of somebody else; none if the object has it not. The host
    /// adds the uid of the plan's target: another object of that name keeps its own.
    #[must_use]
    pub fn remove(self, metadata: &Metadata) -> Option<Patch> {
        let finalizers = metadata.finalizers.iter();
        let position = finalizers.clone().position(|it| it == self.0)?;
        let path = format!("/metadata/finalizers/{position}");
        let patch = JsonPatch::new().test(&path, &self.0).remove(&path);
        Some(patch.into_patch())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{Instant, ObjectRef, Time, msgpack};

    const OWN: Finalizer = Finalizer::new("example.com/own");

    fn object() -> Object<()> {
        Object {
            reference: ObjectRef::named("v1", "ConfigMap", "ns", "a"),
            resource_version: "7".to_owned(),
            changed_at: Instant::from_millis(0),
            view: (),
        }
    }

    fn metadata(finalizers: &[&str]) -> Metadata {
        Metadata {
            finalizers: finalizers.iter().map(ToString::to_string).collect(),
            ..Metadata::default()
        }
    }

    fn operations(patch: Option<Patch>) -> Value {
        patch.map_or(Value::Null, |patch| {
            msgpack::decode(&patch.body).unwrap_or_default()
        })
    }

    #[test]
    fn a_finalizer_is_added_to_the_version_that_was_read() {
        let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"});
        let first = json!({"op": "add", "path": "/metadata/finalizers", "value": [OWN.0]});
        let next = json!({"op": "add", "path": "/metadata/finalizers/-", "value": OWN.0});
        let ensured =
            |finalizers: &[&str]| operations(OWN.ensure(&object(), &metadata(finalizers)));
        assert_eq!(ensured(&[]), json!([test, first]));
        assert_eq!(ensured(&["other"]), json!([test, next]));
        assert_eq!(ensured(&["other", OWN.0]), Value::Null);
        let deleted = Metadata {
            deletion_timestamp: Time::parse("2023-11-14T22:13:20Z"),
            ..Metadata::default()
        };
        assert_eq!(operations(OWN.ensure(&object(), &deleted)), Value::Null);
    }

    #[test]
    fn only_the_own_finalizer_is_removed() {
        let removed = |finalizers: &[&str]| operations(OWN.remove(&metadata(finalizers)));
        let path = "/metadata/finalizers/1";
        assert_eq!(
            removed(&["other", OWN.0, "third"]),
            json!([
                {"op": "test", "path": path, "value": OWN.0},
                {"op": "remove", "path": path},
            ])
        );
        assert_eq!(removed(&["other"]), Value::Null);
    }
}
