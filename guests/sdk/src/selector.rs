//! Kubernetes' label selectors.

use std::collections::BTreeMap;

use crate::View;

/// A selector over labels (`metav1.LabelSelector`).
#[derive(Clone, Debug, Default, PartialEq, Eq, View)]
pub struct LabelSelector {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<Requirement>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, View)]
struct Requirement {
    key: String,
    operator: String,
    values: Vec<String>,
}

impl LabelSelector {
    /// Whether it has no requirement. What that means depends on the field: most such
    /// selectors select everything, a workload's selects nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// What is wrong with a requirement, if anything is: an invalid selector selects nothing.
    #[must_use]
    pub fn mistake(&self) -> Option<String> {
        let mut expressions = self.match_expressions.iter();
        let wrong = expressions.find(|it| !it.is_valid())?;
        let operator = &wrong.operator;
        Some(match operator.as_str() {
            "In" | "NotIn" => format!("{operator} needs values"),
            "Exists" | "DoesNotExist" => format!("{operator} takes no values"),
            _ => format!("\"{operator}\" is no operator: write In, NotIn, Exists or DoesNotExist"),
        })
    }

    /// Whether it has requirements, and an object with these labels meets them all. An
    /// invalid selector selects nothing.
    #[must_use]
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        !self.is_empty()
            && self.match_expressions.iter().all(Requirement::is_valid)
            && self
                .match_labels
                .iter()
                .all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|it| it.holds(labels))
    }
}

impl Requirement {
    fn is_valid(&self) -> bool {
        match self.operator.as_str() {
            "In" | "NotIn" => !self.values.is_empty(),
            "Exists" | "DoesNotExist" => self.values.is_empty(),
            _ => false,
        }
    }

    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let is_listed = value.is_some_and(|value| self.values.contains(value));
        match self.operator.as_str() {
            "In" => is_listed,
            "NotIn" => !is_listed,
            "Exists" => value.is_some(),
            _ => value.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn selects(selector: Value, labels: Value) -> bool {
        let selector: LabelSelector = serde_json::from_value(selector).unwrap();
        selector.selects(&serde_json::from_value(labels).unwrap())
    }

    #[test]
    fn every_requirement_must_hold() {
        let selector = json!({
            "matchLabels": {"app": "log"},
            "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}],
        });
        for (labels, selected) in [
            (json!({"app": "log", "tier": "b", "more": "x"}), true),
            (json!({"app": "log", "tier": "c"}), false),
            (json!({"app": "log"}), false),
            (json!({"app": "web", "tier": "a"}), false),
            (json!({}), false),
        ] {
            assert_eq!(
                selects(selector.clone(), labels.clone()),
                selected,
                "{labels}"
            );
        }
    }

    #[test]
    fn each_operator_compares_as_in_kubernetes() {
        let labels = json!({"k": "v"});
        for (key, operator, values, selected) in [
            ("k", "In", json!(["v"]), true),
            ("k", "In", json!(["w"]), false),
            ("k", "NotIn", json!(["v"]), false),
            ("k", "NotIn", json!(["w"]), true),
            ("other", "NotIn", json!(["v"]), true),
            ("k", "Exists", json!([]), true),
            ("other", "Exists", json!([]), false),
            ("k", "DoesNotExist", json!([]), false),
            ("other", "DoesNotExist", json!([]), true),
        ] {
            let requirement = json!({"key": key, "operator": operator, "values": values});
            let selector = json!({"matchExpressions": [requirement]});
            assert_eq!(
                selects(selector, labels.clone()),
                selected,
                "{key} {operator} {values}"
            );
        }
    }

    #[test]
    fn an_empty_or_invalid_selector_matches_nothing() {
        let labels = json!({"k": "v"});
        for selector in [
            json!({}),
            json!({"matchLabels": {}, "matchExpressions": []}),
            json!({"matchLabels": {"k": "v"}, "matchExpressions": [{"key": "x", "operator": "Is"}]}),
            json!({"matchExpressions": [{"key": "x", "operator": "NotIn", "values": []}]}),
            json!({"matchExpressions": [{"key": "k", "operator": "Exists", "values": ["v"]}]}),
        ] {
            assert!(!selects(selector.clone(), labels.clone()), "{selector}");
        }
    }
}
