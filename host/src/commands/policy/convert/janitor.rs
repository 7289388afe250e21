//! The rules file of kube-janitor.

mod condition;
#[cfg(test)]
mod tests;

use anyhow::Result;
use serde_json::Value;

use super::draft::{ControllerDraft, RuleDraft};
use super::kinds::{Kinds, Resource};
use super::{Conversion, Problem, ttl};
use crate::commands::print::{part, text_at};
use crate::yaml;
use condition::Condition;

/// What kube-janitor leaves alone by default.
const SPARED: [&str; 2] = ["events", "controllerrevisions"];

/// The name that stands for every resource.
const EVERY: &str = "*";

/// Whether a `ConfigMap` has rules of kube-janitor.
pub(super) fn has_rules(config_map: &Value) -> bool {
    rule_texts(config_map).next().is_some()
}

fn rule_texts(config_map: &Value) -> impl Iterator<Item = &str> {
    let data = part(config_map, "/data").as_object();
    let texts = data
        .into_iter()
        .flatten()
        .filter_map(|(_, text)| text.as_str());
    texts.filter(|text| text.contains("jmespath:") && text.contains("rules:"))
}

/// The rules in a `ConfigMap`.
pub(super) fn config_map(
    config_map: &Value,
    kinds: &Kinds,
    conversion: &mut Conversion,
) -> Result<()> {
    let name = text_at(config_map, "/metadata/name");
    for text in rule_texts(config_map) {
        let document: Value = yaml::one(text)?;
        rules(name, &document, kinds, conversion);
    }
    Ok(())
}

/// A rules file. The first rule that matches an object decides how long it lives, unless its
/// annotation does.
pub(super) fn rules(name: &str, document: &Value, kinds: &Kinds, conversion: &mut Conversion) {
    let mut controller = ControllerDraft::new(name);
    controller.notes = vec![
        "From a rules file of kube-janitor. The annotations of the objects count too.".to_owned(),
        ttl::JANITOR_FLAGS.to_owned(),
        "kube-janitor checks at its interval; Davit deletes as soon as a rule selects an object."
            .to_owned(),
    ];
    let mut earlier: Vec<Earlier> = Vec::new();
    let mut annotated: Vec<Resource> = Vec::new();
    let Some(entries) = part(document, "/rules").as_array() else {
        conversion
            .problems
            .push(Problem::new("rules", "it is no list"));
        return;
    };
    for (index, entry) in entries.iter().enumerate() {
        let place = format!("rules[{index}]");
        let plurals = plurals(entry);
        if plurals.is_empty() {
            let message = "it names no resources";
            conversion
                .problems
                .push(Problem::new(format!("{place}.resources"), message));
        }
        for plural in plurals {
            let converted = rule(&place, entry, plural, kinds, &earlier);
            let condition = match converted {
                Ok((rule, condition)) => {
                    if !annotated.contains(&rule.resource) {
                        annotated.push(rule.resource.clone());
                    }
                    if lives(entry) {
                        controller.rules.push(rule);
                    }
                    Some(condition)
                }
                Err(message) => {
                    let place = format!("{place} ({plural})");
                    conversion.problems.push(Problem::new(place, message));
                    None
                }
            };
            earlier.push(Earlier {
                plural: plural.to_owned(),
                condition,
            });
        }
    }
    for resource in annotated {
        controller
            .rules
            .extend(ttl::of_annotations("annotations", &resource));
    }
    conversion.add(controller);
}

/// A rule that decides before others.
struct Earlier {
    plural: String,
    /// None if it has no translation.
    condition: Option<Condition>,
}

impl Earlier {
    fn is_about(&self, plural: &str) -> bool {
        self.plural == plural || self.plural == EVERY
    }
}

/// The resources that a rule names. What names none in a way that can be read may mean any, so no
/// later rule is certain to decide.
fn plurals(entry: &Value) -> Vec<&str> {
    match part(entry, "/resources") {
        Value::Null => Vec::new(),
        Value::Array(names) => {
            let names = names.iter();
            names.map(|it| it.as_str().unwrap_or(EVERY)).collect()
        }
        _ => vec![EVERY],
    }
}

/// Whether a rule ever deletes.
fn lives(entry: &Value) -> bool {
    !text_at(entry, "/ttl").eq_ignore_ascii_case("forever")
}

/// A rule for one of its resources, and its condition.
fn rule(
    place: &str,
    entry: &Value,
    plural: &str,
    kinds: &Kinds,
    earlier: &[Earlier],
) -> Result<(RuleDraft, Condition), String> {
    if plural == EVERY {
        return Err("a rule names its resources".to_owned());
    }
    // Events are in two groups, so their plural name alone is no resource.
    spared(plural)?;
    let resource = kinds.of_plural(plural)?;
    deletable(&resource)?;
    let condition = Condition::parse(text_at(entry, "/jmespath"), &resource)?;
    let id = text_at(entry, "/id");
    let mut rule = RuleDraft::new(place, &format!("{id}-{plural}"), resource);
    rule.when
        .push("object.metadata.annotations['janitor/ttl'] in [null, '']".to_owned());
    for it in earlier.iter().filter(|it| it.is_about(plural)) {
        let Some(before) = &it.condition else {
            return Err("a rule before it that has no translation may decide".to_owned());
        };
        demand(&mut rule, before.unmet());
    }
    demand(&mut rule, condition.met());
    if lives(entry) {
        let duration = duration(text_at(entry, "/ttl"))?;
        rule.when
            .push(format!("{} > duration('{duration}')", ttl::AGE));
    }
    rule.event = Some(ttl::event(
        "TimeToLiveExpired",
        &format!("rule {id} matches"),
    ));
    Ok((ttl::of_janitor(rule), condition))
}

/// Adds to what a rule demands. Several conditions may need the same field.
fn demand(rule: &mut RuleDraft, parts: Vec<String>) {
    for part in parts {
        if !rule.when.contains(&part) {
            rule.when.push(part);
        }
    }
}

/// Refuses a resource whose objects kube-janitor never deletes, whatever their annotations and its
/// rules say.
pub(super) fn deletable(resource: &Resource) -> Result<(), String> {
    spared(&resource.plural)?;
    if resource.is_namespaced != Some(true) && !resource.is_namespace() {
        return Err("kube-janitor deletes only objects in namespaces".to_owned());
    }
    Ok(())
}

fn spared(plural: &str) -> Result<(), String> {
    if SPARED.contains(&plural) {
        return Err("kube-janitor spares them by default".to_owned());
    }
    Ok(())
}

/// `4d` in the units of CEL.
fn duration(text: &str) -> Result<String, String> {
    let refused = || format!("the ttl \"{text}\" is no number of s, m, h, d or w above 0");
    let (number, unit) = text
        .split_at_checked(text.len().saturating_sub(1))
        .ok_or_else(refused)?;
    let number: u64 = number.parse().map_err(|_| refused())?;
    let (factor, unit) = match unit {
        "s" | "m" | "h" => (1, unit),
        "d" => (24, "h"),
        "w" => (168, "h"),
        _ => return Err(refused()),
    };
    let number = number
        .checked_mul(factor)
        .filter(|it| *it > 0)
        .ok_or_else(refused)?;
    Ok(format!("{number}{unit}"))
}
