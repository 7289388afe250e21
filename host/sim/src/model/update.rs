//! Replacing and patching objects.

use serde_json::{Map, Value, json};

use super::create::match_namespace;
use super::{Body, Model, Target, WriteOptions, apply, decode};
use crate::object::{Metadata, Object, Stored};
use crate::patch::{self, PatchError, PatchType};
use crate::resource::{Generation, Resource};
use crate::status::{FieldError, Result, Status};
use crate::syntax;
use crate::time::Time;
use crate::{
    defaults,
    validation::{self, go},
};

impl Model {
    /// Replaces an object or one of its subresources. Answers what is stored
    /// now, and whether that was created.
    pub fn update(
        &mut self,
        now: Time,
        target: &Target,
        body: Body,
        options: &WriteOptions,
    ) -> Result<(Stored, bool)> {
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
            return Err(Status::not_found(resource, &target.name));
        };
        check_uid(target, &new.metadata.uid, &existing.metadata()?.uid)?;
        let stored = self.write(now, target, &existing, new, options)?;
        Ok((stored, false))
    }

    /// Patches an object or one of its subresources.
    pub fn patch(
        &mut self,
        now: Time,
        target: &Target,
        patch_type: PatchType,
        body: Body,
        options: &WriteOptions,
    ) -> Result<(Stored, bool)> {
        if patch_type == PatchType::Apply {
            return self.apply(now, target, body, options);
        }
        let resource = target.resource.clone();
        let existing = self.stored(target)?.clone();
        let value = decode::view(&resource, &existing.object()?);
        let mut new = patched(&resource, value, patch_type, body, options.strict)?;
        match_namespace(target, &mut new)?;
        match_name(target, &new)?;
        let stored = self.write(now, target, &existing, new, options)?;
        Ok((stored, false))
    }

    /// Stores `new` in the place of `existing`, by the rules of updates: the
    /// version sent must be the stored one, system fields stay, and an object
    /// that terminates goes when its last finalizer does.
    pub(super) fn write(
        &mut self,
        now: Time,
        target: &Target,
        existing: &Stored,
        mut new: Object,
        options: &WriteOptions,
    ) -> Result<Stored> {
        let old = existing.object()?;
        restrict(target, &mut new, &old);
        apply::track(now, target, &mut new, &old, options);
        self.replace(now, target, (existing, &old), new, options)
    }

    /// The same, with `managedFields` as they are to be. `existing` comes in
    /// both its forms.
    pub(super) fn replace(
        &mut self,
        now: Time,
        target: &Target,
        (existing, old): (&Stored, &Object),
        mut new: Object,
        options: &WriteOptions,
    ) -> Result<Stored> {
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
        if generation_rises(&resource, &new, old) {
            new.metadata.generation = old.metadata.generation + 1;
        }
        if !options.unchecked {
            check_update(target, &new, old)?;
        }
        if may_go(&resource, &new, old) {
            // The answer is the object as it was sent, at its last version.
            let answer = Stored::new(&resource, &new)?;
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

/// An object that is written by its uid is that object, as the storage words
/// it.
pub(super) fn check_uid(target: &Target, wanted: &str, found: &str) -> Result<()> {
    if wanted.is_empty() || wanted == found {
        return Ok(());
    }
    let resource = &target.resource;
    Err(Status::conflict(
        resource,
        &target.name,
        format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{}/{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}",
            resource.etcd_prefix,
            target.key(),
        ),
    ))
}

pub(super) fn match_name(target: &Target, object: &Object) -> Result<()> {
    let (sent, wanted) = (&object.metadata.name, &target.name);
    if sent == wanted {
        return Ok(());
    }
    Err(Status::bad_request(if sent.is_empty() {
        format!(
            "the name of the object ({wanted} based on URL) was undeterminable: name must be provided"
        )
    } else {
        format!("the name of the object ({sent}) does not match the name on the URL ({wanted})")
    }))
}

/// Applies a patch of a known type to the JSON of a whole object, and decodes
/// the outcome.
fn patched(
    resource: &Resource,
    mut value: Value,
    how: PatchType,
    body: Body,
    strict: bool,
) -> Result<Object> {
    let patch = patch_document(how, body)?;
    // What the server shows of a patch that makes no object: of strategic ones
    // the patch, of others the outcome.
    let mut shown = String::new();
    let outcome = match how {
        PatchType::Json => patch::apply_json(&mut value, &patch),
        PatchType::Strategic => {
            shown = go::print(&patch);
            // One list, two names: the paths are those of the core form.
            patch::apply_strategic(&resource.kind, &mut value, patch)
        }
        PatchType::Merge | PatchType::Apply => {
            patch::apply_merge(&mut value, patch);
            Ok(())
        }
    };
    match outcome {
        Ok(()) => {}
        Err(PatchError::Malformed(message)) => return Err(Status::bad_request(message)),
        Err(PatchError::TooLong(message)) => return Err(Status::too_large(message)),
        Err(PatchError::Unapplicable(_)) => return Err(Status::rejected()),
    }
    if !patch::is_shallow(&value) {
        return Err(Status::bad_request(
            "the patched object is nested too deeply",
        ));
    }
    let strategic = how == PatchType::Strategic;
    if !strategic {
        shown = value.to_string();
    }
    decode::complete(resource, value, strict).map_err(|why| {
        let problem = if strategic { why.conversion } else { why.json };
        let error = FieldError::invalid("patch", &json!(shown), problem);
        Status::invalid("", "", "", &[error])
    })
}

fn patch_document(how: PatchType, body: Body) -> Result<Value> {
    let prefix = match how {
        PatchType::Merge => "error decoding patch: ",
        PatchType::Json | PatchType::Strategic | PatchType::Apply => "",
    };
    let bad = |problem: String| Status::bad_request(format!("{prefix}{problem}"));
    let value: Value = match body {
        Body::Json(value) => value,
        Body::Protobuf(_) => return Err(Status::bad_request("a patch is never protobuf")),
        Body::JsonText(bytes) => {
            serde_json::from_slice(&bytes).map_err(|error| bad(syntax::error(&bytes, &error)))?
        }
        Body::YamlText(bytes) => {
            serde_saphyr::from_slice(&bytes).map_err(|error| bad(error.to_string()))?
        }
    };
    let found = match &value {
        Value::Object(_) => None,
        _ if how == PatchType::Json => None,
        Value::Null if how == PatchType::Strategic => return Ok(json!({})),
        Value::Null => return Err(Status::bad_request("Invalid JSON Patch")),
        Value::Bool(_) => Some("bool"),
        Value::Number(_) => Some("number"),
        Value::String(_) => Some("string"),
        Value::Array(_) => Some("array"),
    };
    if let Some(found) = found {
        return Err(bad(format!(
            "json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
        )));
    }
    if !patch::is_shallow(&value) {
        return Err(Status::bad_request("the patch is nested too deeply"));
    }
    Ok(value)
}

fn check_version(target: &Target, existing: &Stored, new: &mut Object) -> Result<()> {
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
        return Err(Status::modified(resource, &target.name));
    }
    new.metadata.resource_version = existing.version().to_string();
    Ok(())
}

/// Takes over from `old` what the endpoint does not write.
pub(super) fn restrict(target: &Target, new: &mut Object, old: &Object) {
    let resource = &target.resource;
    match target.subresource.as_str() {
        "" => {
            if resource.has_status() {
                restore(&mut new.body, &old.body, "status");
            }
            if resource.kind == "Namespace" && resource.group.is_empty() {
                let finalizers = old.at(&["spec", "finalizers"]).cloned();
                set_or_remove(new.section("spec"), "finalizers", finalizers);
            }
            if resource.custom.is_none() && resource.kind == "CustomResourceDefinition" {
                defaults::note_stored_version(new);
            }
        }
        "status" => {
            let status = new.body.remove("status");
            new.body.clone_from(&old.body);
            set_or_remove(&mut new.body, "status", status);
            keep_metadata(resource, &mut new.metadata, &old.metadata);
            if is_builtin(resource, "", "Pod") {
                defaults::keep_pod_status(new, old);
            }
        }
        "finalize" => {
            let finalizers = new.at(&["spec", "finalizers"]).cloned();
            new.body.clone_from(&old.body);
            set_or_remove(new.section("spec"), "finalizers", finalizers);
        }
        _ => {}
    }
}

fn is_builtin(resource: &Resource, group: &str, kind: &str) -> bool {
    resource.custom.is_none() && resource.group == group && resource.kind == kind
}

/// What a status endpoint leaves of metadata as it is.
fn keep_metadata(resource: &Resource, new: &mut Metadata, old: &Metadata) {
    if resource.custom.is_some() {
        let managed = std::mem::take(&mut new.managed_fields);
        // The version is still to be compared with the stored one.
        let version = std::mem::take(&mut new.resource_version);
        new.clone_from(old);
        new.managed_fields = managed;
        new.resource_version = version;
        return;
    }
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Pod") => new.owner_references.clone_from(&old.owner_references),
        ("apps", "Deployment") => new.labels.clone_from(&old.labels),
        ("internal.apiserver.k8s.io", _) => {
            new.labels.clone_from(&old.labels);
            new.annotations.clone_from(&old.annotations);
            new.finalizers.clone_from(&old.finalizers);
            new.owner_references.clone_from(&old.owner_references);
        }
        _ => {}
    }
}

/// What a service was given it keeps, if it does not say otherwise.
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

fn restore(new: &mut Map<String, Value>, old: &Map<String, Value>, field: &str) {
    set_or_remove(new, field, old.get(field).cloned());
}

fn set_or_remove(fields: &mut Map<String, Value>, name: &str, value: Option<Value>) {
    match value {
        Some(value) => fields.insert(name.to_owned(), value),
        None => fields.remove(name),
    };
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

/// Whether the update takes the last thing that kept a terminating object.
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
