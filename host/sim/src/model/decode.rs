//! From a request's body to an object of the resource's kind.

use serde_json::Value;

use crate::body::{Body, unrecognized};
use crate::object::Object;
use crate::resource::Resource;
use crate::status::{FieldError, Result, Status};
use crate::target::Target;
use crate::typed::{self, WrongType};
use crate::{canonical, defaults, events, protobuf, schema};

/// Decodes a body that must hold an object of the target's kind.
pub(super) fn object(target: &Target, body: Body, strict: bool) -> Result<Object> {
    let resource = &target.resource;
    let bytes = body.text();
    let value = body.parse(&resource.kind)?;
    if resource.custom.is_some() {
        check_custom_type(resource, &value, bytes.as_deref())?;
    } else {
        check_type(&value, resource)?;
    }
    complete(resource, value, strict).map_err(|why| unhandled(resource, &why))
}

/// The answer to a body without an object of the resource's kind.
pub(super) fn unhandled(resource: &Resource, why: &WrongType) -> Box<Status> {
    Status::bad_request(format!(
        "{kind} in version {:?} cannot be handled as a {kind}: {}",
        resource.version,
        why.json,
        kind = resource.kind
    ))
}

/// Custom objects say what they are, and in which version.
fn check_custom_type(resource: &Resource, value: &Value, bytes: Option<&[u8]>) -> Result<()> {
    let text = |path: &str| {
        value
            .pointer(path)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (api_version, kind) = (text("/apiVersion"), text("/kind"));
    if let (true, Some(bytes)) = (kind.is_empty(), bytes) {
        let shown = String::from_utf8_lossy(bytes);
        let problem = format!("Object 'Kind' is missing in '{shown}'");
        return Err(unrecognized(&resource.kind, bytes, &problem));
    }
    if bytes.is_some() && api_version != resource.api_version() {
        return Err(other_version(resource, api_version));
    }
    if kind.is_empty() || kind == resource.kind {
        return Ok(());
    }
    let why = format!("must be {}", resource.kind);
    let error = FieldError::invalid("kind", &kind.into(), why);
    // The server trusts the kind in the body.
    Err(Status::invalid(
        kind,
        &resource.group,
        text("/metadata/name"),
        &[error],
    ))
}

fn other_version(resource: &Resource, api_version: &str) -> Box<Status> {
    Status::bad_request(format!(
        "the API version in the data ({api_version}) does not match the expected API version ({})",
        resource.api_version()
    ))
}

/// Built-in objects may leave out what they are; what they say must be so.
pub(super) fn check_type(value: &Value, resource: &Resource) -> Result<()> {
    let own = (resource.api_version(), resource.kind.as_str());
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let api_version = Some(text("apiVersion")).filter(|text| !text.is_empty());
    let kind = Some(text("kind")).filter(|text| !text.is_empty());
    let (api_version, kind) = (api_version.unwrap_or(&own.0), kind.unwrap_or(own.1));
    let refuse = |why: String| {
        let version = api_version.rsplit('/').next().unwrap_or_default();
        Err(Status::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {}: {why}",
            own.1
        )))
    };
    if !protobuf::is_kind(api_version, kind) {
        return refuse(format!(
            "no kind {kind:?} is registered for version {api_version:?} in scheme {:?}",
            scheme(resource)
        ));
    }
    if kind != own.1 {
        let version = api_version.rsplit('/').next().unwrap_or_default();
        return refuse(format!(
            "converting ({version}.{kind}) to ({}.{}): unknown conversion",
            package(resource),
            own.1
        ));
    }
    if api_version == own.0 {
        Ok(())
    } else {
        Err(other_version(resource, api_version))
    }
}

/// Where the server's source creates the scheme with a kind.
fn scheme(resource: &Resource) -> &'static str {
    if resource.group == "apiextensions.k8s.io" {
        "pkg/apiserver/apiserver.go:55"
    } else {
        "pkg/api/legacyscheme/scheme.go:30"
    }
}

/// The package of a kind's internal type: named after the group's first label.
fn package(resource: &Resource) -> &str {
    match resource.group.as_str() {
        "" | "events.k8s.io" => "core",
        "internal.apiserver.k8s.io" => "apiserverinternal",
        group => group.split('.').next().unwrap_or_default(),
    }
}

/// From the JSON of a whole object, decoded or patched, to the object as it
/// is stored: typed metadata, conversion, pruning and defaults.
pub(super) fn complete(
    resource: &Resource,
    mut value: Value,
    strict: bool,
) -> std::result::Result<Object, WrongType> {
    if resource.custom.is_none() {
        let findings = typed::decode(&resource.api_version(), &resource.kind, &mut value);
        if let Some(wrong) = findings.error {
            return Err(wrong);
        }
        if strict && !findings.unknown.is_empty() {
            return Err(WrongType::text(typed::strict_error(&findings.unknown)));
        }
    }
    let mut object = Object::from_value(value).map_err(WrongType::text)?;
    if let Some(custom) = &resource.custom {
        if let Some(schema) = &custom.schema {
            let unknown = schema::shape(schema, &mut object.body);
            if strict && !unknown.is_empty() {
                return Err(WrongType::text(typed::strict_error(&unknown)));
            }
        }
    } else {
        canonical::drop_unset(resource, &mut object.body);
        if resource.kind == "DaemonSet" {
            defaults::template_generation(&object).map_err(WrongType::text)?;
        }
    }
    if events::is_new_api(resource) {
        events::to_core(&mut object);
    }
    settle(resource, &mut object);
    Ok(object)
}

/// Fills in what the server does on every write.
pub(super) fn settle(resource: &Resource, object: &mut Object) {
    (resource.rules.default)(object);
    if resource.custom.is_none() {
        canonical::fill_written(resource, &mut object.body);
    }
}

/// The JSON of a whole object in the form of `resource`: what patches work on.
pub(super) fn view(resource: &Resource, object: &Object) -> Value {
    if events::is_new_api(resource) {
        let mut object = object.clone();
        events::from_core(&mut object);
        return object.to_value(&resource.api_version(), &resource.kind);
    }
    object.to_value(&resource.api_version(), &resource.kind)
}
