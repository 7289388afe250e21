//! The rules file of kube-janitor.

use anyhow::Result;
use policy::explain::{FieldType, field_type};
use serde_json::Value;

use super::cel::{field, quoted};
use super::draft::{ControllerDraft, RuleDraft};
use super::jmespath::{Jmes, parse};
use super::kinds::{Kinds, Resource};
use super::{Conversion, Problem, ttl};
use crate::commands::print::{part, text_at};

/// What kube-janitor leaves alone by default.
const SPARED: [&str; 2] = ["events", "controllerrevisions"];

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
        let document: Value = serde_saphyr::from_str(text)?;
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
        let resources = part(entry, "/resources").as_array();
        if resources.is_none_or(Vec::is_empty) {
            let message = "it names no resources";
            conversion
                .problems
                .push(Problem::new(format!("{place}.resources"), message));
        }
        for plural in resources.into_iter().flatten() {
            let plural = plural.as_str().unwrap_or_default();
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
    condition: Option<String>,
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
) -> Result<(RuleDraft, String), String> {
    if plural == "*" {
        return Err("a rule names its resources".to_owned());
    }
    // Events are in two groups, so their plural name alone is no resource.
    spared(plural)?;
    let resource = kinds.of_plural(plural)?;
    deletable(&resource)?;
    let condition = truth(&parse(text_at(entry, "/jmespath"))?, &resource)?;
    let id = text_at(entry, "/id");
    let mut rule = RuleDraft::new(place, &format!("{id}-{plural}"), resource);
    rule.when
        .push("object.metadata.annotations['janitor/ttl'] in [null, '']".to_owned());
    for it in earlier
        .iter()
        .filter(|it| it.plural == plural || it.plural == "*")
    {
        let Some(before) = &it.condition else {
            return Err("a rule before it that has no translation may decide".to_owned());
        };
        rule.when.push(format!("!({before})"));
    }
    rule.when.push(condition.clone());
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

/// Whether `JMESPath` takes a result for true.
fn truth(jmes: &Jmes, resource: &Resource) -> Result<String, String> {
    match jmes {
        Jmes::Path(keys) => {
            let (cel, kind) = of_path(keys, resource)?;
            match kind {
                FieldType::Bool => Ok(format!("{cel} == true")),
                FieldType::Text | FieldType::Time => Ok(format!("!({cel} in [null, ''])")),
                FieldType::List | FieldType::Other => Ok(format!("size({cel}) > 0")),
                FieldType::Number | FieldType::Unknown => {
                    Err(format!("{cel} alone has no translation: compare it"))
                }
            }
        }
        Jmes::Not(it) => Ok(format!("!({})", truth(it, resource)?)),
        Jmes::And(one, other) => both("&&", one, other, resource),
        Jmes::Or(one, other) => both("||", one, other, resource),
        Jmes::Compare(operator, one, other) => compared(operator, one, other, resource),
        Jmes::Call(name, arguments) => called(name, arguments, resource),
        Jmes::Flatten(_) | Jmes::Literal(_) => Err("that alone has no translation".to_owned()),
    }
}

fn both(operator: &str, one: &Jmes, other: &Jmes, resource: &Resource) -> Result<String, String> {
    let (one, other) = (truth(one, resource)?, truth(other, resource)?);
    Ok(format!("(({one}) {operator} ({other}))"))
}

fn of_path(keys: &[String], resource: &Resource) -> Result<(String, FieldType), String> {
    if keys.first().is_some_and(|it| it == "_context") {
        return Err("_context is what a hook in Python adds".to_owned());
    }
    let cel = field("object", keys.iter().map(String::as_str));
    let kind = field_type(&resource.name, &cel)?;
    Ok((cel, kind))
}

fn compared(
    operator: &str,
    one: &Jmes,
    other: &Jmes,
    resource: &Resource,
) -> Result<String, String> {
    let Jmes::Literal(value) = other else {
        return Err("the right side of a comparison is a literal".to_owned());
    };
    let is_equality = matches!(operator, "==" | "!=");
    match one {
        Jmes::Path(keys) => {
            let (cel, kind) = of_path(keys, resource)?;
            match (kind, value) {
                (FieldType::Text, Value::String(text)) if is_equality => {
                    Ok(format!("{cel} {operator} {}", quoted(text)))
                }
                (FieldType::Bool, Value::Bool(_)) | (FieldType::Number, Value::Number(_))
                    if is_equality =>
                {
                    Ok(format!("{cel} {operator} {value}"))
                }
                (FieldType::Number, Value::Number(_)) => {
                    Ok(format!("({cel} != null && {cel} {operator} {value})"))
                }
                (_, Value::Null) if is_equality => Ok(format!("{cel} {operator} null")),
                _ => Err(format!("{cel} compared with {value} has no translation")),
            }
        }
        Jmes::Call(name, arguments) if name == "length" => {
            let [Jmes::Path(keys)] = arguments.as_slice() else {
                return Err("length takes a field".to_owned());
            };
            let (cel, kind) = of_path(keys, resource)?;
            if kind == FieldType::Number || kind == FieldType::Bool || !value.is_number() {
                return Err(format!("the length of {cel} has no translation"));
            }
            // JMESPath fails for what is missing.
            Ok(format!("({cel} != null && size({cel}) {operator} {value})"))
        }
        _ => Err("the left side of a comparison is a field".to_owned()),
    }
}

fn called(name: &str, arguments: &[Jmes], resource: &Resource) -> Result<String, String> {
    let [Jmes::Path(keys), Jmes::Literal(Value::String(text))] = arguments else {
        return Err(format!("{name} has no translation with these arguments"));
    };
    let (cel, kind) = of_path(keys, resource)?;
    let text = quoted(text);
    match (name, kind) {
        ("starts_with", FieldType::Text) => Ok(format!("{cel}.startsWith({text})")),
        ("ends_with", FieldType::Text) => Ok(format!("{cel}.endsWith({text})")),
        ("contains", FieldType::Text) => Ok(format!("{cel}.contains({text})")),
        ("contains", FieldType::List) => Ok(format!("{cel}.exists(element, element == {text})")),
        _ => Err(format!("the function {name} has no translation for {cel}")),
    }
}
