//! The definition of the custom resource, generated from the Rust types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
    ValidationRule,
};
use kube::CustomResourceExt as _;

use super::Controller;

const HEADER: &str = "# Written by `cargo xtask crds` from the types in host/core/src.\n";

/// The file `deploy/crds/controllers.davit.dev.yaml`.
pub fn yaml() -> Result<String, serde_saphyr::ser_error::Error> {
    let definition = serde_saphyr::to_string(&definition())?;
    Ok(format!("{HEADER}{definition}"))
}

/// The definition, with a structural schema.
#[must_use]
pub fn definition() -> CustomResourceDefinition {
    let mut definition = Controller::crd();
    for version in &mut definition.spec.versions {
        let schema = version.schema.as_mut();
        if let Some(root) = schema.and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            simplify(root);
            root.x_kubernetes_validations = Some(vec![name_rule()]);
        }
    }
    definition
}

/// The name becomes a label's value and a part of a field manager's name, so it has to
/// be a DNS label. Kubernetes requires only a subdomain.
fn name_rule() -> ValidationRule {
    ValidationRule {
        rule: "self.metadata.name.size() <= 63 && !self.metadata.name.contains('.')".to_owned(),
        message: Some("the name has to be a DNS label: 63 characters at most, no dots".to_owned()),
        ..ValidationRule::default()
    }
}

/// Removes parts that come from Rust's types and that Kubernetes does not need: unknown
/// formats, and that an absent field may be null. The API server drops nulls, except
/// where they are allowed.
fn simplify(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    let format = schema.format.as_deref().unwrap_or_default();
    if format.starts_with("uint") {
        // Of the smaller ones, the schema has the limit.
        if format == "uint32" && schema.maximum.is_none() {
            schema.maximum = Some(f64::from(u32::MAX));
        }
        schema.format = None;
    }
    for property in schema
        .properties
        .iter_mut()
        .flat_map(|all| all.values_mut())
    {
        simplify(property);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => simplify(items),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(simplify),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        simplify(values);
    }
}
