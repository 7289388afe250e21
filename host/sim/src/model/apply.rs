//! Server-side apply.

use serde_json::{Value, json};

use super::managed_fields::{clock, writer};
use super::strategy::{match_name, match_namespace, restrict};
use super::{Model, WriteOptions, decode};
use crate::apply;
use crate::body::Body;
use crate::object::Object;
use crate::resource::Resource;
use crate::status::{FieldError, Result, Status};
use crate::stored::StoredObject;
use crate::target::Target;
use crate::time::Time;

impl Model {
    /// Applies a configuration: sets its fields, removes the fields that its manager
    /// applied before and that no other manager has, and creates a missing object.
    pub(super) fn apply(
        &mut self,
        now: Time,
        target: &Target,
        body: Body,
        options: &WriteOptions,
    ) -> Result<(StoredObject, bool)> {
        let resource = target.resource.clone();
        let mut config = body.configuration()?;
        check_type(&resource, &config)?;
        if config
            .pointer("/metadata/managedFields")
            .is_some_and(|fields| !fields.is_null())
        {
            return Err(Status::bad_request("metadata.managedFields must be nil"));
        }
        let existing = self.collection(&resource)?.get(&target.key()).cloned();
        if existing.is_none() {
            if !target.subresource.is_empty() {
                return Err(Status::not_found(resource.group_resource(), &target.name));
            }
            refuse_uid(target, &config)?;
        }
        let old = existing.as_ref().map(StoredObject::object).transpose()?;
        let (live, managed) = match &old {
            Some(old) => (
                decode::view(&resource, old),
                old.metadata.managed_fields.as_slice(),
            ),
            None => (Value::Null, [].as_slice()),
        };
        narrow(target, &mut config);
        let time = clock(now);
        let writer = writer(target, options, &time);
        let outcome = apply::apply(&resource, &live, &config, managed, writer, options.force)?;
        let mut new = decoded(&resource, outcome.object, options.strict)?;
        new.metadata.managed_fields = outcome.managed_fields;
        match_namespace(target, &mut new)?;
        if new.metadata.name.is_empty() {
            target.name.clone_into(&mut new.metadata.name);
        }
        match_name(target, &new)?;
        let Some((existing, old)) = existing.as_ref().zip(old.as_ref()) else {
            self.may_create(target, options)?;
            return Ok((self.create_object(now, target, new, options)?, true));
        };
        restrict(target, &mut new, old);
        let stored = self.replace(now, target, (existing, old), new, options)?;
        Ok((stored, false))
    }
}

/// A configuration that names a uid creates nothing.
fn refuse_uid(target: &Target, config: &Value) -> Result<()> {
    let uid = config.pointer("/metadata/uid").and_then(Value::as_str);
    let Some(uid) = uid.filter(|uid| !uid.is_empty()) else {
        return Ok(());
    };
    Err(Status::conflict(
        target.resource.group_resource(),
        &target.name,
        format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was \
             found"
        ),
    ))
}

/// The type of a configuration must be that of the resource.
fn check_type(resource: &Resource, config: &Value) -> Result<()> {
    let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if api_version != resource.api_version() || kind != resource.kind {
        return Err(Status::bad_request(format!(
            "invalid object type: {}, Kind={kind}",
            apply::group_version(api_version)
        )));
    }
    Ok(())
}

/// Drops the fields that the endpoint does not write: no manager gets them.
fn narrow(target: &Target, config: &mut Value) {
    let Value::Object(fields) = config else {
        return;
    };
    match target.subresource.as_str() {
        "" => {
            if target.resource.has_status() {
                fields.remove("status");
            }
        }
        _ => fields.retain(|name, _| {
            ["apiVersion", "kind", "metadata", "status"].contains(&name.as_str())
        }),
    }
}

fn decoded(resource: &Resource, object: Value, strict: bool) -> Result<Object> {
    let shown = object.to_string();
    decode::complete(resource, object, strict).map_err(|why| {
        let error = FieldError::invalid("patch", &json!(shown), why.json);
        Status::invalid("", "", "", &[error])
    })
}
