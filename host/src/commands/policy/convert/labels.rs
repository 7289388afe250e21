//! Label selectors, as texts and as conditions.

use serde_json::Value;

use super::cel::{field, list, quoted};
use super::{Converted, Problem};

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
    let Value::Object(fields) = selector else {
        return Err(Problem::new(place, "it is no label selector"));
    };
    for (name, value) in fields {
        match (name.as_str(), value) {
            (_, Value::Null) => {}
            ("matchLabels", Value::Object(labels)) => {
                for (key, value) in labels {
                    let values = vec![text_of(place, value)?];
                    let (key, operator) = (key.clone(), "Equals".to_owned());
                    requirements.push(Requirement {
                        key,
                        operator,
                        values,
                    });
                }
            }
            ("matchExpressions", Value::Array(expressions)) => {
                for expression in expressions {
                    requirements.push(expression_of(place, expression)?);
                }
            }
            _ => return Err(Problem::new(place, format!("\"{name}\" is not known"))),
        }
    }
    for it in &requirements {
        let mut texts = it.values.iter().chain([&it.key]);
        if texts.any(|text| text.contains(['*', '?'])) {
            let message = "wildcards in labels have no translation";
            return Err(Problem::new(place, message));
        }
    }
    Ok(requirements)
}

fn expression_of(place: &str, expression: &Value) -> Converted<Requirement> {
    let text = |name: &str| {
        expression
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let values = expression.get("values").and_then(Value::as_array);
    let values = values.into_iter().flatten().map(|it| text_of(place, it));
    let operator = text("operator");
    if !matches!(operator, "In" | "NotIn" | "Exists" | "DoesNotExist") {
        let message = format!("the operator \"{operator}\" is not known");
        return Err(Problem::new(place, message));
    }
    Ok(Requirement {
        key: text("key").to_owned(),
        operator: operator.to_owned(),
        values: values.collect::<Converted<_>>()?,
    })
}

fn text_of(place: &str, value: &Value) -> Converted<String> {
    let text = value.as_str().map(str::to_owned);
    text.ok_or_else(|| Problem::new(place, "a label is a text"))
}
