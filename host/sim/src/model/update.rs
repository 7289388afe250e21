//! Replacing objects.

use serde_json::{Map, Value, json};

use super::strategy::{is_builtin, match_name, match_namespace, restrict};
use super::{Model, WriteOptions, decode, managed_fields};
use crate::body::Body;
use crate::object::Object;
use crate::resource::{Generation, Resource};
use crate::status::{FieldError, Result, Status};
use crate::stored::StoredObject;
use crate::target::Target;
use crate::time::Time;
use crate::{defaults, validation};

impl Model {
    /// Replaces an object or one of its subresources. Returns the stored object, and
    /// whether it was created.
    pub fn update(
        &mut self,
        now: Time,
        target: &Target,
        body: Body,
        options: &WriteOptions,
    ) -> Result<(StoredObject, bool)> {
        let resource = &target.resource;
        let mut new = decode::object(target, body, options.strict)?;
        match_namespace(target, &mut new)?;
        match_name(target, &new)?;
        let Some(existing) = self.collection(resource)?.get(&target.key()).cloned() else {
            check_uid(target, &new.metadata.uid, "")?;
            if resource.rules.create_on_update && target.subresource.is_empty() {
                self.may_create(target, options)?;
                let created = self.create_object(now, target, new, options)?;
                return Ok((created, true));
            }
            return Err(Status::not_found(resource.group_resource(), &target.name));
        };
        check_uid(target, &new.metadata.uid, &existing.metadata()?.uid)?;
        let stored = self.write(now, target, &existing, new, options)?;
        Ok((stored, false))
    }

    /// Replaces `existing` by the rules of updates: the version must match, system fields
    /// stay, and a terminating object is removed with its last finalizer.
    pub(super) fn write(
        &mut self,
        now: Time,
        target: &Target,
        existing: &StoredObject,
        new: Object,
        options: &WriteOptions,
    ) -> Result<StoredObject> {
        let old = existing.object()?;
        self.write_over(now, target, (existing, &old), new, options)
    }

    /// The same, with the parsed object.
    pub(super) fn write_over(
        &mut self,
        now: Time,
        target: &Target,
        (existing, old): (&StoredObject, &Object),
        mut new: Object,
        options: &WriteOptions,
    ) -> Result<StoredObject> {
        restrict(target, &mut new, old);
        managed_fields::track(now, target, &mut new, old, options);
        self.replace(now, target, (existing, old), new, options)
    }

    /// Replaces `existing` without a change of `managedFields`.
    pub(super) fn replace(
        &mut self,
        now: Time,
        target: &Target,
        (existing, old): (&StoredObject, &Object),
        mut new: Object,
        options: &WriteOptions,
    ) -> Result<StoredObject> {
        let resource = target.resource.clone();
        new.metadata.drop_repeated_owners();
        self.check_grants(target, &new, Some(old), options)?;
        check_version(target, existing, &mut new)?;
        keep_system_fields(&mut new, old);
        if target.subresource.is_empty() {
            keep_addresses(&resource, &mut new, old);
            self.allocate(&resource, &mut new)?;
        }
        if is_builtin(&resource, "apps", "DaemonSet") {
            defaults::count_template_generation(&mut new, old);
        }
        // Whoever writes a Deployment's status may change its annotations, as its controller does.
        if target.subresource != "status" && generation_rises(&resource, &new, old) {
            new.metadata.generation = old.metadata.generation + 1;
        }
        if !options.unchecked {
            check_update(target, &new, old)?;
        }
        if may_go(&resource, &new, old) {
            // The answer is the object as it was sent, at its last version.
            let answer = StoredObject::new(&resource, &new)?;
            self.remove(now, target, existing, options.dry_run)?;
            if !options.dry_run {
                self.after_write(now, target)?;
            }
            return Ok(answer);
        }
        if new == *old {
            return Ok(existing.clone());
        }
        let stored = self.commit(now, target, new, options.dry_run)?;
        if !options.dry_run {
            self.after_write(now, target)?;
        }
        Ok(stored)
    }
}

/// The precondition on the uid, with the message of the storage.
pub(super) fn check_uid(target: &Target, wanted: &str, found: &str) -> Result<()> {
    if wanted.is_empty() || wanted == found {
        return Ok(());
    }
    let resource = &target.resource;
    Err(Status::conflict(
        resource.group_resource(),
        &target.name,
        format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{}/{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}",
            resource.etcd_prefix,
            target.key(),
        ),
    ))
}

fn check_version(target: &Target, existing: &StoredObject, new: &mut Object) -> Result<()> {
    let resource = &target.resource;
    let sent = &new.metadata.resource_version;
    let number = match sent.as_str() {
        "" => 0,
        text => text.parse().map_err(|_| {
            Status::unclassified(format!(
                "strconv.ParseUint: parsing {text:?}: invalid syntax"
            ))
        })?,
    };
    if number == 0 {
        if !resource.rules.unconditional_update {
            let error = FieldError::invalid(
                "metadata.resourceVersion",
                &json!(0),
                "must be specified for an update",
            );
            // The server puts the resource where the kind belongs.
            return Err(Status::invalid(
                &resource.plural,
                &resource.group,
                &target.name,
                &[error],
            ));
        }
    } else if number != existing.version() {
        return Err(Status::modified(resource.group_resource(), &target.name));
    }
    new.metadata.resource_version = existing.version().to_string();
    Ok(())
}

/// A service keeps its addresses, unless the update sets others.
fn keep_addresses(resource: &Resource, new: &mut Object, old: &Object) {
    let external = |service: &Object| service.text(&["spec", "type"]) == "ExternalName";
    if resource.kind != "Service" || resource.custom.is_some() || external(new) || external(old) {
        return;
    }
    for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if let Some(value) = old.at(&["spec", field]).cloned() {
            new.section("spec").entry(field).or_insert(value);
        }
    }
}

fn keep_system_fields(new: &mut Object, old: &Object) {
    let (new, old) = (&mut new.metadata, &old.metadata);
    if new.uid.is_empty() {
        new.uid.clone_from(&old.uid);
    }
    new.generation = old.generation;
    if old.creation_timestamp.is_some() {
        new.creation_timestamp = old.creation_timestamp;
    }
    if old.deletion_timestamp.is_some() {
        new.deletion_timestamp = old.deletion_timestamp;
    }
    if new.deletion_grace_period_seconds.is_none() {
        new.deletion_grace_period_seconds = old.deletion_grace_period_seconds;
    }
}

fn generation_rises(resource: &Resource, new: &Object, old: &Object) -> bool {
    let spec = || new.body.get("spec") != old.body.get("spec");
    match resource.rules.generation {
        Generation::Unused => false,
        Generation::Spec => spec(),
        Generation::SpecOrAnnotations => {
            spec() || new.metadata.annotations != old.metadata.annotations
        }
        Generation::NotMetadata => {
            let counts = |name: &String| name != "status" || !resource.has_status();
            let fields = |object: &Object| -> Map<String, Value> {
                object
                    .body
                    .iter()
                    .filter(|(name, _)| counts(name))
                    .map(|(name, value)| (name.clone(), value.clone()))
                    .collect()
            };
            fields(new) != fields(old)
        }
    }
}

fn check_update(target: &Target, new: &Object, old: &Object) -> Result<()> {
    let resource = &target.resource;
    let errors = validation::update(resource, &target.subresource, new, old);
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(
        &resource.kind,
        &resource.group,
        &new.metadata.name,
        &errors,
    ))
}

/// Whether the update removes the last finalizer of a terminating object.
fn may_go(resource: &Resource, new: &Object, old: &Object) -> bool {
    let released = new.metadata.finalizers.is_empty()
        && old.metadata.deletion_timestamp.is_some()
        && new.metadata.deletion_grace_period_seconds.unwrap_or(0) == 0;
    let is_namespace = resource.kind == "Namespace" && resource.group.is_empty();
    let emptied = !is_namespace
        || new
            .at(&["spec", "finalizers"])
            .and_then(Value::as_array)
            .is_none_or(Vec::is_empty);
    released && emptied
}
