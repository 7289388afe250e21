//! Label selectors, as texts and as conditions.

use serde_json::Value;

use super::cel::{field, list, quoted};
use super::shape::{self, elements, fields, refuse_others, texts};
use super::{Converted, Problem};
use crate::commands::print::part;

/// One requirement of a selector.
struct Requirement {
    key: String,
    operator: String,
    values: Vec<String>,
}

/// A selector as kubectl writes it; empty for one without requirements.
pub(super) fn text(place: &str, selector: &Value) -> Converted<String> {
    let parts = requirements(place, selector)?.into_iter().map(|it| {
        let Requirement {
            key,
            operator,
            values,
        } = it;
        let values = values.join(",");
        match operator.as_str() {
            "Equals" => format!("{key}={values}"),
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key,
            _ => format!("!{key}"),
        }
    });
    Ok(parts.collect::<Vec<_>>().join(","))
}

/// A selector as conditions on the labels of an object, such as `object` or `namespaceObject`.
pub(super) fn conditions(place: &str, selector: &Value, object: &str) -> Converted<Vec<String>> {
    let parts = requirements(place, selector)?.into_iter().map(|it| {
        let label = field(object, ["metadata", "labels", it.key.as_str()]);
        let values = || list(it.values.iter().map(String::as_str));
        match it.operator.as_str() {
            "Equals" => format!(
                "{label} == {}",
                quoted(it.values.first().map_or("", String::as_str))
            ),
            "In" => format!("{label} in {}", values()),
            "NotIn" => format!("!({label} in {})", values()),
            "Exists" => format!("{label} != null"),
            _ => format!("{label} == null"),
        }
    });
    Ok(parts.collect())
}

/// Fails for what a selector of Kubernetes does not have, such as Kyverno's wildcards.
pub(super) fn check(place: &str, selector: &Value) -> Converted<()> {
    requirements(place, selector).map(drop)
}

fn requirements(place: &str, selector: &Value) -> Converted<Vec<Requirement>> {
    let mut requirements = Vec::new();
    let parts = fields(place, selector)?;
    refuse_others(place, parts, &["matchLabels", "matchExpressions"])?;
    let labels = part(selector, "/matchLabels");
    if !labels.is_null() {
        let place = format!("{place}.matchLabels");
        for (key, value) in fields(&place, labels)? {
            let value = value.as_str();
            let value = value.ok_or_else(|| Problem::new(&place, "a label is a text"))?;
            check_label(&place, key)?;
            check_label(&place, value)?;
            requirements.push(Requirement {
                key: key.clone(),
                operator: "Equals".to_owned(),
                values: vec![value.to_owned()],
            });
        }
    }
    let place = format!("{place}.matchExpressions");
    for expression in elements(&place, part(selector, "/matchExpressions"))? {
        requirements.push(expression_of(&place, expression)?);
    }
    Ok(requirements)
}

fn expression_of(place: &str, expression: &Value) -> Converted<Requirement> {
    refuse_others(
        place,
        fields(place, expression)?,
        &["key", "operator", "values"],
    )?;
    let text = |name: &str| {
        let place = format!("{place}.{name}");
        shape::text(&place, part(expression, &format!("/{name}")))
    };
    let (key, operator) = (text("key")?, text("operator")?);
    if key.is_empty() {
        return Err(Problem::new(place, "it has no key"));
    }
    let values = values_of(place, operator, part(expression, "/values"))?;
    for text in values.iter().map(String::as_str).chain([key]) {
        check_label(place, text)?;
    }
    Ok(Requirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values,
    })
}

/// The values of an operator, which takes some or none.
fn values_of(place: &str, operator: &str, values: &Value) -> Converted<Vec<String>> {
    let values = texts(&format!("{place}.values"), values)?;
    let why = match (operator, values.is_empty()) {
        ("In" | "NotIn", false) | ("Exists" | "DoesNotExist", true) => return Ok(values),
        ("In" | "NotIn", true) => "has no values",
        ("Exists" | "DoesNotExist", false) => "has values",
        _ => "is not known",
    };
    let message = format!("the operator \"{operator}\" {why}");
    Err(Problem::new(place, message))
}

/// Fails for what no key and no value of a label has. In a selector's text it would be a sign.
fn check_label(place: &str, text: &str) -> Converted<()> {
    if text.contains(['*', '?']) {
        let message = "wildcards in labels have no translation";
        return Err(Problem::new(place, message));
    }
    let is_known = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if !text.chars().all(is_known) {
        return Err(Problem::new(place, format!("\"{text}\" is no label")));
    }
    Ok(())
}
