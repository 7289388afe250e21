//! Server-side apply, and the record of who manages which field.

use serde_json::{Value, json};

use super::create::match_namespace;
use super::update::{match_name, restrict};
use super::{Body, Model, Target, WriteOptions, decode};
use crate::apply::{self, Writer};
use crate::object::{Object, Stored};
use crate::resource::Resource;
use crate::status::{FieldError, Result, Status};
use crate::time::Time;

impl Model {
    /// Applies a configuration: sets the fields it names, takes away those
    /// that its manager applied before and nobody else has, and creates the
    /// object if there is none.
    pub(super) fn apply(
        &mut self,
        now: Time,
        target: &Target,
        body: Body,
        options: &WriteOptions,
    ) -> Result<(Stored, bool)> {
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
        if existing.is_none() && !target.subresource.is_empty() {
            return Err(Status::not_found(&resource, &target.name));
        }
        let old = existing.as_ref().map(Stored::object).transpose()?;
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

/// Notes who wrote what, if the object is tracked. A client that leaves the
/// record out keeps it; one that sends an empty entry ends it.
pub(super) fn track(
    now: Time,
    target: &Target,
    new: &mut Object,
    old: &Object,
    options: &WriteOptions,
) {
    let sent = std::mem::take(&mut new.metadata.managed_fields);
    if target.subresource.is_empty() && sent.as_slice() == [json!({})] {
        return;
    }
    let own = target.subresource.is_empty() && !sent.is_empty();
    let managed = if own {
        sent
    } else {
        old.metadata.managed_fields.clone()
    };
    if managed.is_empty() {
        return;
    }
    let resource = &target.resource;
    let time = clock(now);
    new.metadata.managed_fields = apply::update(
        resource,
        &decode::view(resource, old),
        &decode::view(resource, new),
        &managed,
        writer(target, options, &time),
    );
}

fn writer<'a>(target: &'a Target, options: &'a WriteOptions, time: &'a str) -> Writer<'a> {
    Writer {
        manager: &options.field_manager,
        subresource: &target.subresource,
        time,
    }
}

fn clock(now: Time) -> String {
    json!(now).as_str().unwrap_or_default().to_owned()
}

/// A configuration says what it is.
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

/// What the endpoint does not write is nobody's.
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
