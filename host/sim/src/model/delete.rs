//! Deleting objects: preconditions, grace, finalizers, propagation policies.

use super::lifecycle;
use super::{DeleteOptions, DeletionKind, ListOptions, Model, Page};
use crate::object::{Metadata, Object};
use crate::resource::{Collection, Resource};
use crate::status::{Details, GroupResource, Result, Status};
use crate::stored::StoredObject;
use crate::target::Target;
use crate::time::Time;

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// What a DELETE is answered with.
#[derive(Clone, Debug)]
pub enum DeleteAnswer {
    /// The object: it is deleted later, or answers for its kind always have it.
    Object(StoredObject),
    /// The object is deleted.
    Gone(Details),
}

/// The progress of a deletion.
enum Grace {
    /// This request grants a grace period (0 for kinds that are deleted immediately).
    Granted(i64),
    /// An earlier request did, and this one does not shorten it.
    Pending,
    /// None applies.
    None,
}

impl Model {
    /// Deletes an object, or starts to.
    pub fn delete(
        &mut self,
        now: Time,
        target: &Target,
        options: &DeleteOptions,
    ) -> Result<DeleteAnswer> {
        let resource = target.resource.clone();
        if resource.group.is_empty() && resource.kind == "Namespace" {
            return self.delete_namespace(now, target, options);
        }
        if resource.custom.is_none() && resource.kind == "CustomResourceDefinition" {
            return self.delete_definition(now, target, options);
        }
        self.delete_object(now, target, options)
    }

    fn delete_object(
        &mut self,
        now: Time,
        target: &Target,
        options: &DeleteOptions,
    ) -> Result<DeleteAnswer> {
        let resource = target.resource.clone();
        let existing = self.stored(target)?.clone();
        let old = existing.object()?;
        check_preconditions(&resource, &old.metadata, options)?;
        if !options.is_dry_run() {
            self.note_deletion(now, &old.metadata.uid, DeletionKind::Requested);
        }
        let mut new = old.clone();
        let graceful = match grant_grace(now, &resource, &mut new, options) {
            Grace::Pending => return Ok(answer(&resource, existing, false)),
            Grace::Granted(seconds) => Some(seconds),
            Grace::None => None,
        };
        new.metadata.finalizers = finalizers(&resource, &new.metadata, options);
        let held = !new.metadata.finalizers.is_empty();
        if graceful.is_none() && held {
            mark(now, &mut new.metadata);
        }
        let current = if new == old {
            existing
        } else {
            let marked = new.metadata.deletion_timestamp.is_some();
            if marked && old.metadata.deletion_timestamp.is_none() && !options.is_dry_run() {
                self.note_deletion(now, &old.metadata.uid, DeletionKind::Marked);
            }
            self.commit(now, target, new, options.is_dry_run())?
        };
        if held || graceful.is_some_and(|seconds| seconds > 0) {
            if !options.is_dry_run() {
                self.after_write(now, target)?;
            }
            return Ok(answer(&resource, current, false));
        }
        let gone = self.remove(now, target, &current, options.is_dry_run())?;
        if !options.is_dry_run() {
            self.after_write(now, target)?;
        }
        Ok(answer(&resource, gone, true))
    }

    /// Marks a namespace as terminating. It is deleted when its content is gone and its
    /// controller has removed its finalizer from `spec`.
    fn delete_namespace(
        &mut self,
        now: Time,
        target: &Target,
        options: &DeleteOptions,
    ) -> Result<DeleteAnswer> {
        let resource = target.resource.clone();
        if ["default", "kube-system", "kube-public"].contains(&target.name.as_str()) {
            return Err(Status::forbidden(
                resource.group_resource(),
                &target.name,
                "this namespace may not be deleted",
            ));
        }
        let existing = self.stored(target)?.clone();
        let old = existing.object()?;
        check_own_preconditions(&resource, &old.metadata, options)?;
        if old.metadata.deletion_timestamp.is_some() {
            let held = old
                .at(&["spec", "finalizers"])
                .and_then(|list| list.as_array())
                .is_some_and(|list| !list.is_empty());
            if held {
                return Ok(DeleteAnswer::Object(existing));
            }
            return self.delete_object(now, target, options);
        }
        if !options.is_dry_run() {
            self.note_deletion(now, &old.metadata.uid, DeletionKind::Requested);
            self.note_deletion(now, &old.metadata.uid, DeletionKind::Marked);
        }
        let mut new = old;
        new.metadata.deletion_timestamp = Some(now);
        new.metadata.finalizers = finalizers(&resource, &new.metadata, options);
        new.section("status")
            .insert("phase".to_owned(), "Terminating".into());
        let stored = self.commit(now, target, new, options.is_dry_run())?;
        Ok(DeleteAnswer::Object(stored))
    }

    /// Marks a definition as terminating. It is deleted when its objects are gone.
    fn delete_definition(
        &mut self,
        now: Time,
        target: &Target,
        options: &DeleteOptions,
    ) -> Result<DeleteAnswer> {
        let mut definition = self.stored(target)?.object()?;
        check_own_preconditions(&target.resource, &definition.metadata, options)?;
        if definition.metadata.deletion_timestamp.is_some() {
            return self.delete_object(now, target, options);
        }
        lifecycle::mark_for_deletion(now, &mut definition);
        let uid = definition.metadata.uid.clone();
        let marked = self.commit(now, target, definition, options.is_dry_run())?;
        if !options.is_dry_run() {
            self.note_deletion(now, &uid, DeletionKind::Requested);
            self.note_deletion(now, &uid, DeletionKind::Marked);
            self.after_write(now, target)?;
        }
        Ok(DeleteAnswer::Object(marked))
    }

    /// Deletes every object of a list, one by one, and answers that list.
    pub fn delete_collection(
        &mut self,
        now: Time,
        target: &Target,
        list: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<Page> {
        let page = self.list(target, list)?;
        for object in &page.items {
            let metadata = object.metadata()?;
            let one = Target::new(&target.resource, &metadata.namespace, &metadata.name);
            match self.delete(now, &one, options) {
                Err(status) if status.code != 404 => return Err(status),
                _ => {}
            }
        }
        Ok(page)
    }
}

fn answer(resource: &Resource, object: StoredObject, gone: bool) -> DeleteAnswer {
    let stays = !gone;
    match object.metadata() {
        Ok(metadata) if !(resource.rules.returns_deleted || stays) => DeleteAnswer::Gone(Details {
            name: metadata.name,
            group: resource.group.clone(),
            kind: resource.plural.clone(),
            uid: metadata.uid,
            ..Details::default()
        }),
        _ => DeleteAnswer::Object(object),
    }
}

pub(super) fn check_preconditions(
    resource: &Resource,
    metadata: &Metadata,
    options: &DeleteOptions,
) -> Result<()> {
    let Some(wanted) = &options.preconditions else {
        return Ok(());
    };
    // The server names the kind here, not the resource.
    let kind = GroupResource {
        group: &resource.group,
        resource: &resource.kind,
    };
    let refuse = |why: String| Err(Status::conflict(kind, &metadata.name, why));
    if let Some(uid) = &wanted.uid
        && *uid != metadata.uid
    {
        return refuse(format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
            metadata.uid
        ));
    }
    if let Some(version) = &wanted.resource_version
        && *version != metadata.resource_version
    {
        return refuse(format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The object might have been modified",
            metadata.resource_version
        ));
    }
    Ok(())
}

/// Namespaces and definitions compare for themselves, and word it otherwise.
fn check_own_preconditions(
    resource: &Resource,
    metadata: &Metadata,
    options: &DeleteOptions,
) -> Result<()> {
    let wanted = options.preconditions.clone().unwrap_or_default();
    for (what, wanted, found) in [
        ("UID", wanted.uid, &metadata.uid),
        (
            "ResourceVersion",
            wanted.resource_version,
            &metadata.resource_version,
        ),
    ] {
        if let Some(wanted) = wanted
            && wanted != *found
        {
            return Err(Status::conflict(
                resource.group_resource(),
                &metadata.name,
                format!(
                    "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
                ),
            ));
        }
    }
    Ok(())
}

/// Sets or shortens the time that the object still has (`rest.BeforeDelete`).
fn grant_grace(
    now: Time,
    resource: &Resource,
    object: &mut Object,
    options: &DeleteOptions,
) -> Grace {
    if !resource.rules.graceful {
        return Grace::None;
    }
    let asked = options
        .grace_period_seconds
        .map(|seconds| if seconds < 0 { 1 } else { seconds });
    let metadata = &mut object.metadata;
    if let Some(deadline) = metadata.deletion_timestamp {
        let granted = match metadata.deletion_grace_period_seconds {
            None | Some(0) => return Grace::None,
            Some(seconds) => seconds,
        };
        let Some(seconds) = asked.filter(|seconds| *seconds < granted) else {
            return Grace::Pending;
        };
        let sooner = deadline.after(seconds.saturating_sub(granted));
        // An end that is past already is now, but never without any grace.
        let seconds = if sooner < now {
            seconds.min(1)
        } else {
            seconds
        };
        metadata.deletion_timestamp = Some(sooner.max(now));
        metadata.deletion_grace_period_seconds = Some(seconds);
        return Grace::Granted(seconds);
    }
    let seconds = pod_grace(object, asked);
    let metadata = &mut object.metadata;
    metadata.deletion_timestamp = Some(now.after(seconds));
    metadata.deletion_grace_period_seconds = Some(seconds);
    if metadata.generation > 0 {
        metadata.generation += 1;
    }
    Grace::Granted(seconds)
}

/// A pod without a kubelet, or a finished pod, is deleted immediately.
fn pod_grace(pod: &Object, asked: Option<i64>) -> i64 {
    let own = || {
        pod.at(&["spec", "terminationGracePeriodSeconds"])
            .and_then(serde_json::Value::as_i64)
            .unwrap_or(0)
    };
    let unbound = pod.text(&["spec", "nodeName"]).is_empty();
    let finished = ["Failed", "Succeeded"].contains(&pod.text(&["status", "phase"]));
    match asked.unwrap_or_else(own) {
        _ if unbound || finished => 0,
        seconds if seconds < 0 => 1,
        seconds => seconds,
    }
}

/// Marks an object that waits for its finalizers only.
fn mark(now: Time, metadata: &mut Metadata) {
    if metadata.deletion_timestamp.is_none() && metadata.generation > 0 {
        metadata.generation += 1;
    }
    if metadata.deletion_timestamp.is_none_or(|at| at > now) {
        metadata.deletion_timestamp = Some(now);
    }
    metadata.deletion_grace_period_seconds = Some(0);
}

/// The finalizers after the propagation policy is applied: it adds and removes `orphan`
/// and `foregroundDeletion`.
fn finalizers(resource: &Resource, metadata: &Metadata, options: &DeleteOptions) -> Vec<String> {
    let old = &metadata.finalizers;
    let wanted = wanted_finalizer(resource, old, options);
    let has = |name: &str| old.iter().any(|finalizer| finalizer == name);
    let unchanged =
        has(ORPHAN) == (wanted == Some(ORPHAN)) && has(FOREGROUND) == (wanted == Some(FOREGROUND));
    if unchanged {
        return old.clone();
    }
    old.iter()
        .map(String::as_str)
        .filter(|name| *name != ORPHAN && *name != FOREGROUND)
        .chain(wanted)
        .map(str::to_owned)
        .collect()
}

fn wanted_finalizer(
    resource: &Resource,
    finalizers: &[String],
    options: &DeleteOptions,
) -> Option<&'static str> {
    if resource.rules.collection == Collection::Unsupported {
        return None;
    }
    if let Some(orphan) = options.orphan_dependents {
        return orphan.then_some(ORPHAN);
    }
    match options.propagation_policy.as_deref() {
        Some("Orphan") => return Some(ORPHAN),
        Some("Foreground") => return Some(FOREGROUND),
        Some(_) => return None,
        None => {}
    }
    for name in finalizers {
        match name.as_str() {
            ORPHAN => return Some(ORPHAN),
            FOREGROUND => return Some(FOREGROUND),
            _ => {}
        }
    }
    (resource.rules.collection == Collection::Orphan).then_some(ORPHAN)
}
