//! PATCH: the four types of patches.

use serde_json::{Value, json};

use super::strategy::{match_name, match_namespace};
use super::{Model, WriteOptions, decode};
use crate::body::Body;
use crate::object::Object;
use crate::patch::{self, PatchError, PatchType};
use crate::resource::Resource;
use crate::status::{FieldError, Result, Status};
use crate::stored::StoredObject;
use crate::syntax;
use crate::target::Target;
use crate::time::Time;
use crate::validation::go;

impl Model {
    /// Patches an object or one of its subresources.
    pub fn patch(
        &mut self,
        now: Time,
        target: &Target,
        patch_type: PatchType,
        body: Body,
        options: &WriteOptions,
    ) -> Result<(StoredObject, bool)> {
        if patch_type == PatchType::Apply {
            return self.apply(now, target, body, options);
        }
        let resource = target.resource.clone();
        let existing = self.stored(target)?.clone();
        let old = existing.object()?;
        let value = decode::view(&resource, &old);
        let mut new = patched(&resource, value, patch_type, body, options.strict)?;
        match_namespace(target, &mut new)?;
        match_name(target, &new)?;
        let stored = self.write_over(now, target, (&existing, &old), new, options)?;
        Ok((stored, false))
    }
}

/// Applies a patch to the JSON of a whole object and decodes the result.
fn patched(
    resource: &Resource,
    mut value: Value,
    how: PatchType,
    body: Body,
    strict: bool,
) -> Result<Object> {
    let patch = patch_document(how, body)?;
    // The value in the error for a patch whose result is not an object: for strategic
    // merge patches the patch itself, otherwise the result.
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
