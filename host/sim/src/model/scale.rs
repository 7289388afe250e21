//! The scale subresource: how many replicas there are and should be.

use serde_json::{Map, Value, json};

use super::{Body, Model, Target, WriteOptions};
use crate::object::Object;
use crate::patch::{self, PatchType};
use crate::resource::ScalePaths;
use crate::status::{FieldError, Result, Status};
use crate::time::Time;

impl Model {
    /// The `autoscaling/v1` Scale of an object.
    pub fn scale(&self, target: &Target) -> Result<Value> {
        let object = self.stored(target)?.object()?;
        Ok(scale_of(&object, &paths(target)))
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
        let stored = self.stored(target)?.clone();
        let mut object = stored.object()?;
        let change = body.parse("Scale")?;
        let mut scale = scale_of(&object, &paths);
        match how {
            None => scale = change,
            Some(PatchType::Json) => {
                patch::apply_json(&mut scale, &change).map_err(|_| Status::rejected())?;
            }
            Some(_) => patch::apply_merge(&mut scale, change),
        }
        let version = scale
            .pointer("/metadata/resourceVersion")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if !version.is_empty() && version != object.metadata.resource_version {
            return Err(Status::modified(&target.resource, &target.name));
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
        Ok(scale_of(&stored.object()?, &paths))
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

fn scale_of(object: &Object, paths: &ScalePaths) -> Value {
    let at = |path: &str| {
        let path: Vec<&str> = path.split('.').collect();
        object.at(&path).cloned()
    };
    let metadata = &object.metadata;
    let selector = match &paths.selector {
        Some(path) => at(path).unwrap_or_else(|| json!("")),
        None => label_text(object).into(),
    };
    let replicas = match at(&paths.spec_replicas) {
        Some(Value::Number(number)) if number.as_i64() != Some(0) => json!({"replicas": number}),
        _ => json!({}),
    };
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid,
            "resourceVersion": metadata.resource_version,
            "creationTimestamp": metadata.creation_timestamp,
        },
        "spec": replicas,
        "status": {
            "replicas": at(&paths.status_replicas).unwrap_or_else(|| json!(0)),
            "selector": selector,
        },
    })
}

/// The `matchLabels` of a built-in kind as a selector's text.
fn label_text(object: &Object) -> String {
    let labels = object
        .at(&["spec", "selector", "matchLabels"])
        .or_else(|| object.at(&["spec", "selector"]))
        .and_then(Value::as_object);
    let terms: Vec<String> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)))
        .collect();
    terms.join(",")
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
