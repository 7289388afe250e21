//! The scale subresource: how many replicas there are and should be.

use serde_json::{Map, Value, json};

use super::strategy::{match_name, match_namespace};
use super::{Model, WriteOptions};
use crate::body::Body;
use crate::object::{Metadata, Object};
use crate::patch::{self, PatchType};
use crate::resource::ScalePaths;
use crate::status::{FieldError, Result, Status};
use crate::target::Target;
use crate::time::Time;

impl Model {
    /// The `autoscaling/v1` Scale of an object.
    pub fn scale(&self, target: &Target) -> Result<Value> {
        let object = self.stored(target)?.object()?;
        let paths = paths(target);
        let custom = target.resource.custom.is_some();
        if custom && at(&object, &paths.spec_replicas).is_none() {
            return Err(Status::internal(format!(
                "the spec replicas field \".{}\" does not exist",
                paths.spec_replicas
            )));
        }
        Ok(scale_of(&object, &paths, custom))
    }

    /// Sets the replicas by a whole Scale, or by a patch of one.
    pub fn set_scale(
        &mut self,
        now: Time,
        target: &Target,
        how: Option<PatchType>,
        body: Body,
        options: &WriteOptions,
    ) -> Result<Value> {
        let paths = paths(target);
        let custom = target.resource.custom.is_some();
        let stored = self.stored(target)?.clone();
        let mut object = stored.object()?;
        let change = body.parse("Scale")?;
        let mut scale = scale_of(&object, &paths, custom);
        match how {
            None => scale = change,
            Some(PatchType::Json) => {
                patch::apply_json(&mut scale, &change).map_err(|_| Status::rejected())?;
            }
            Some(_) => patch::apply_merge(&mut scale, change),
        }
        match_target(target, &scale)?;
        let unset = at(&object, &paths.spec_replicas).is_none();
        let silent = how.is_some() && scale.pointer("/spec/replicas").is_none();
        if custom && unset && silent {
            return Err(Status::bad_request(format!(
                "the spec replicas field \".{}\" cannot be empty",
                paths.spec_replicas
            )));
        }
        let version = scale
            .pointer("/metadata/resourceVersion")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if !version.is_empty() && version != object.metadata.resource_version {
            return Err(Status::modified(
                target.resource.group_resource(),
                &target.name,
            ));
        }
        let replicas = scale
            .pointer("/spec/replicas")
            .cloned()
            .unwrap_or_else(|| json!(0));
        if replicas.as_i64().is_some_and(|replicas| replicas < 0) {
            let why = "must be greater than or equal to 0";
            let error = FieldError::invalid("spec.replicas", &replicas, why);
            return Err(Status::invalid(
                "Scale",
                "autoscaling",
                &target.name,
                &[error],
            ));
        }
        set(&mut object.body, &paths.spec_replicas, replicas);
        let whole = Target::new(&target.resource, &target.namespace, &target.name);
        let stored = self.write(now, &whole, &stored, object, options)?;
        Ok(scale_of(&stored.object()?, &paths, custom))
    }
}

fn paths(target: &Target) -> ScalePaths {
    target
        .resource
        .custom
        .as_ref()
        .and_then(|custom| custom.scale.clone())
        .unwrap_or_else(|| ScalePaths {
            spec_replicas: "spec.replicas".to_owned(),
            status_replicas: "status.replicas".to_owned(),
            selector: None,
        })
}

fn scale_of(object: &Object, paths: &ScalePaths, custom: bool) -> Value {
    let metadata = &object.metadata;
    let selector = match (&paths.selector, custom) {
        (Some(path), _) => at(object, path).unwrap_or_default(),
        (None, true) => Value::Null,
        (None, false) => label_text(object).into(),
    };
    let replicas = match at(object, &paths.spec_replicas) {
        Some(Value::Number(number)) if number.as_i64() != Some(0) => json!({"replicas": number}),
        _ => json!({}),
    };
    let mut status = json!({
        "replicas": at(object, &paths.status_replicas).unwrap_or_else(|| json!(0)),
    });
    if selector.as_str().is_some_and(|text| !text.is_empty())
        && let Value::Object(status) = &mut status
    {
        status.insert("selector".to_owned(), selector);
    }
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid,
            "resourceVersion": metadata.resource_version,
            "creationTimestamp": metadata.creation_timestamp,
        },
        "spec": replicas,
        "status": status,
    })
}

fn at(object: &Object, path: &str) -> Option<Value> {
    let path: Vec<&str> = path.split('.').collect();
    object.at(&path).cloned()
}

/// A Scale is of the object that the URL names.
fn match_target(target: &Target, scale: &Value) -> Result<()> {
    let text = |path: &str| {
        let text = scale.pointer(path).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let metadata = Metadata {
        name: text("/metadata/name"),
        namespace: text("/metadata/namespace"),
        ..Metadata::default()
    };
    let mut named = Object {
        metadata,
        body: Map::new(),
    };
    match_namespace(target, &mut named)?;
    match_name(target, &named)
}

/// The selector of a built-in kind as text, by keys.
fn label_text(object: &Object) -> String {
    let Some(selector) = object.at(&["spec", "selector"]) else {
        return String::new();
    };
    let structured = ["matchLabels", "matchExpressions"]
        .iter()
        .any(|part| selector.get(part).is_some());
    let labels = if structured {
        selector.get("matchLabels")
    } else {
        Some(selector)
    };
    let mut terms: Vec<(&str, String)> = labels
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.as_str(), format!("{key}={}", value.as_str()?))))
        .collect();
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    terms.extend(expressions.into_iter().flatten().filter_map(expression));
    terms.sort_by_key(|(key, _)| *key);
    let terms: Vec<String> = terms.into_iter().map(|(_, term)| term).collect();
    terms.join(",")
}

fn expression(expression: &Value) -> Option<(&str, String)> {
    let key = expression.get("key")?.as_str()?;
    let values = expression.get("values").and_then(Value::as_array);
    let mut values: Vec<&str> = values
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    values.sort_unstable();
    let values = values.join(",");
    let term = match expression.get("operator")?.as_str()? {
        "In" => format!("{key} in ({values})"),
        "NotIn" => format!("{key} notin ({values})"),
        "Exists" => key.to_owned(),
        _ => format!("!{key}"),
    };
    Some((key, term))
}

fn set(body: &mut Map<String, Value>, path: &str, value: Value) {
    let mut fields = body;
    let mut parts = path.split('.').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            fields.insert(part.to_owned(), value);
            return;
        }
        fields = crate::object::section(fields, part);
    }
}
