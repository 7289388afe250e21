//! Empty parts of a configuration. A key whose value was commented out, or a list without entries,
//! would mean every object, or no protection: whoever means that leaves the key out.

use davit_guest::ConfigError;
use davit_guest::dynamic::Value;

use crate::mistake::{error, in_rule};

/// What a rule writes, or compares labels with: null takes something away, and texts may be empty.
const WRITTEN: [&str; 4] = ["annotate", "label", "matchLabels", "mergePatch"];

/// Single values of these.
const VALUES: [&str; 2] = ["value", "values"];

/// Refuses the empty parts of a configuration.
pub(crate) fn check(config: &Value) -> Result<(), ConfigError> {
    let Value::Map(fields) = config else {
        return Ok(());
    };
    for (name, value) in fields {
        match value {
            Value::List(rules) if name == "rules" => {
                for (index, rule) in rules.iter().enumerate() {
                    let checked = part(&format!("rules[{index}]"), "", rule);
                    checked.map_err(|it| match rule.text("name") {
                        "" => it,
                        name => in_rule(name, it),
                    })?;
                }
            }
            value => part(name, name, value)?,
        }
    }
    Ok(())
}

/// Refuses what is empty at a path, or below it.
fn part(path: &str, name: &str, value: &Value) -> Result<(), ConfigError> {
    let is_of_action = path.contains("].do.");
    let is_open = is_of_action || path.contains("].match.");
    if is_open && VALUES.contains(&name) {
        return Ok(());
    }
    match value {
        Value::Null => Err(empty(path, name, "null")),
        Value::Text(text) if text.trim().is_empty() && !is_of_action => {
            Err(empty(path, name, "empty"))
        }
        Value::List(elements) if elements.is_empty() && name == "namespaces" => {
            Err(empty(path, name, "empty"))
        }
        Value::Map(_) if is_open && WRITTEN.contains(&name) => Ok(()),
        Value::List(elements) => {
            let mut each = elements.iter().enumerate();
            each.try_for_each(|(index, it)| part(&format!("{path}[{index}]"), name, it))
        }
        Value::Map(entries) => {
            let mut each = entries.iter();
            each.try_for_each(|(key, it)| part(&format!("{path}.{key}"), key, it))
        }
        _ => Ok(()),
    }
}

fn empty(path: &str, name: &str, what: &str) -> ConfigError {
    let instead = instead(path, name);
    error(path, format!("it is {what}: {instead}"))
}

/// What to write instead of an empty part.
fn instead(path: &str, name: &str) -> &'static str {
    match name {
        "annotate" | "label" | "mergePatch" => "leave it out, or write what it sets",
        "by" if path.ends_with(".keep.by") => "leave it out for the creation, or write a time",
        "delete" | "evict" => "leave it out; without options, write delete: {} or evict: {}",
        "do" => "say what is done, such as delete: {}",
        "fieldSelector" => "leave it out for all objects, or write one such as status.phase=Failed",
        "hold" => "leave it out if the rule never waits, or write when it does",
        "keep" => "leave it out if the rule spares no object, or write how many",
        "labelSelector" => "leave it out for all objects, or write one such as app=web",
        "match" => "say which objects, such as resource: pods",
        "name" => "write a short word for metrics and logs",
        "namespaces" | "namespaceSelector" => ALL_NAMESPACES,
        "per" => {
            "leave it out to count all objects together, or write namespace, owner, node or a field"
        }
        "resource" => "name a resource, such as pods or jobs.batch",
        "unless" => "leave it out if the rule spares no object, or write which it spares",
        "when" if path.starts_with("counts.") => {
            "leave it out for all objects of the count, or write which count"
        }
        "when" => "say when the rule acts; true for always",
        _ => "leave it out, or write its value",
    }
}

/// What to write instead of namespaces that are not named.
pub(crate) const ALL_NAMESPACES: &str = "leave it out for all namespaces, or write which";
