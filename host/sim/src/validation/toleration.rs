//! Taints of nodes and tolerations of pods.

use serde_json::{Value, json};

use super::at::FieldLocation;
use super::go;
use crate::name;
use crate::status::FieldError;

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Taints; the server names them under `metadata`.
pub(super) fn taints(taints: &Value, errors: &mut Vec<FieldError>) {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for taint in FieldLocation::new("metadata.taints", taints).items() {
        let (key, value, effect) = (
            taint.child("key"),
            taint.child("value"),
            taint.child("effect"),
        );
        key.each(name::qualified(key.text()), errors);
        let problems = name::label_value(value.text());
        if !problems.is_empty() {
            errors.push(value.invalid_text(problems.join(";")));
        }
        effect.one_of(&EFFECTS, errors);
        let pair = (effect.text(), key.text());
        if seen.contains(&pair) {
            let printed = go::object(&[
                ("Key", &json!(key.text())),
                ("Value", &json!(value.text())),
                ("Effect", &json!(effect.text())),
                ("TimeAdded", taint.child("timeAdded").value),
            ]);
            errors.push(FieldError::duplicate_printed(
                taint.path(),
                &printed,
                "taints must be unique by key and effect pair",
            ));
        }
        seen.push(pair);
    }
}

/// Tolerations.
pub(super) fn tolerations(tolerations: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    for toleration in tolerations.items() {
        let child = |name: &str| toleration.child(name);
        let (key, operator, value, effect) = (
            child("key"),
            child("operator"),
            child("value"),
            child("effect"),
        );
        if !key.is_empty() {
            key.each(name::qualified(key.text()), errors);
        } else if operator.text() != "Exists" {
            errors.push(operator.invalid_text(
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            ));
        }
        if child("tolerationSeconds").is_set() && effect.text() != "NoExecute" {
            errors.push(
                effect.invalid_text("effect must be 'NoExecute' when `tolerationSeconds` is set"),
            );
        }
        match operator.text() {
            "" | "Equal" => {
                let problems = name::label_value(value.text());
                if !problems.is_empty() {
                    errors.push(operator.invalid_as(&json!(value.text()), problems.join(";")));
                }
            }
            "Exists" if value.is_empty() => {}
            "Exists" => errors.push(FieldError::invalid_printed(
                operator.path(),
                &printed(&toleration),
                "value must be empty when `operator` is 'Exists'",
            )),
            _ => errors.push(operator.not_supported(&["Equal", "Exists"])),
        }
        if !effect.is_empty() {
            effect.one_of(&EFFECTS, errors);
        }
    }
}

fn printed(toleration: &FieldLocation<'_>) -> String {
    let text = |name: &str| json!(toleration.child(name).text());
    go::object(&[
        ("Key", &text("key")),
        ("Operator", &text("operator")),
        ("Value", &text("value")),
        ("Effect", &text("effect")),
        (
            "TolerationSeconds",
            toleration.child("tolerationSeconds").value,
        ),
    ])
}
