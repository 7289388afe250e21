//! Walks over objects along their shape: the set of their fields, the differences of
//! two objects, a merge, and an object without a set of fields.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::set::{FieldSet, Step};
use super::shape::{Scalar, Shape};

/// Every field of a value.
pub(super) fn fields_of(value: &Value, shape: &Shape<'_>) -> FieldSet {
    let mut set = FieldSet::default();
    for (step, child, below, named) in parts(value, shape) {
        if child.is_leaf(below) {
            set.members.insert(step);
            continue;
        }
        let empty = below.is_null() || below.as_object().is_some_and(Map::is_empty);
        if empty || !named {
            set.members.insert(step.clone());
        }
        set.adopt(step, fields_of(below, &child));
    }
    set
}

/// The parts of a value: step, shape, value, and whether the type names it.
fn parts<'a, 'v>(value: &'v Value, shape: &Shape<'a>) -> Vec<(Step, Shape<'a>, &'v Value, bool)> {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter_map(|(name, below)| {
                let (child, named) = shape.field(name)?;
                Some((Step::Field(name.clone()), child, below, named))
            })
            .collect(),
        Value::Array(elements) => elements
            .iter()
            .filter_map(|below| Some((shape.step(below).ok()?, shape.element(), below, false)))
            .collect(),
        _ => Vec::new(),
    }
}

/// How a value differs from an older one.
#[derive(Debug, Default)]
pub(super) struct Difference {
    pub(super) removed: FieldSet,
    /// Added or modified.
    pub(super) changed: FieldSet,
}

/// Compares two values of the same shape.
pub(super) fn compare(old: &Value, new: &Value, shape: &Shape<'_>) -> Difference {
    let mut found = Difference::default();
    let before: BTreeMap<Step, (Shape<'_>, &Value)> = indexed(old, shape);
    let after: BTreeMap<Step, (Shape<'_>, &Value)> = indexed(new, shape);
    let steps: BTreeSet<&Step> = before.keys().chain(after.keys()).collect();
    for step in steps {
        match (before.get(step), after.get(step)) {
            (Some((child, old)), Some((_, new))) => {
                if child.is_leaf(old) || child.is_leaf(new) {
                    if old != new {
                        found.changed.members.insert(step.clone());
                    }
                    continue;
                }
                let below = compare(old, new, child);
                found.removed.adopt(step.clone(), below.removed);
                found.changed.adopt(step.clone(), below.changed);
            }
            (Some((child, old)), None) => whole(step, child, old, &mut found.removed),
            (None, Some((child, new))) => whole(step, child, new, &mut found.changed),
            (None, None) => {}
        }
    }
    found
}

fn indexed<'a, 'v>(value: &'v Value, shape: &Shape<'a>) -> BTreeMap<Step, (Shape<'a>, &'v Value)> {
    parts(value, shape)
        .into_iter()
        .map(|(step, child, below, _)| (step, (child, below)))
        .collect()
}

/// A part that was added or removed, with everything in it.
fn whole(step: &Step, shape: &Shape<'_>, value: &Value, set: &mut FieldSet) {
    set.members.insert(step.clone());
    if !shape.is_leaf(value) {
        let empty = Value::Null;
        let below = compare(&empty, value, shape);
        set.adopt(step.clone(), below.changed);
    }
}

/// `live` with the fields of `config` set.
pub(super) fn merge(live: Value, config: &Value, shape: &Shape<'_>) -> Value {
    if shape.is_leaf(config) || shape.is_leaf(&live) {
        return config.clone();
    }
    match (live, config) {
        (Value::Object(mut fields), Value::Object(config)) => {
            for (name, wanted) in config {
                let Some((child, _)) = shape.field(name) else {
                    continue;
                };
                let merged = match fields.remove(name) {
                    Some(old) => merge(old, wanted, &child),
                    None => wanted.clone(),
                };
                fields.insert(name.clone(), merged);
            }
            Value::Object(fields)
        }
        (Value::Array(live), Value::Array(config)) => {
            Value::Array(merge_lists(live, config, shape))
        }
        (_, config) => config.clone(),
    }
}

/// The elements of both lists. Those of `config` keep their order; the others keep
/// their place among them as far as possible.
fn merge_lists(live: Vec<Value>, config: &[Value], shape: &Shape<'_>) -> Vec<Value> {
    let step = |element: &Value| shape.step(element).ok();
    let wanted: Vec<(Option<Step>, &Value)> = config.iter().map(|one| (step(one), one)).collect();
    let mut found: Vec<(Option<Step>, Value)> =
        live.into_iter().map(|one| (step(&one), one)).collect();
    let mut live = found.iter().map(|(step, _)| step.clone()).peekable();
    let mut wanted = wanted.into_iter().peekable();
    let shared: Vec<Option<Step>> = config
        .iter()
        .map(step)
        .filter(|step| found.iter().any(|(other, _)| other == step))
        .collect();
    let all: BTreeSet<Option<Step>> = config.iter().map(step).collect();
    let mut shared = shared.into_iter();
    let mut next_shared = shared.next();
    let mut merged = BTreeSet::new();
    let mut order: Vec<(Option<Step>, Option<&Value>)> = Vec::new();
    while live.peek().is_some() || wanted.peek().is_some() {
        if let (Some(here), Some((there, config))) = (live.peek(), wanted.peek()) {
            if here == there {
                merged.insert(here.clone());
                order.push((here.clone(), Some(*config)));
                live.next();
                wanted.next();
                next_shared = shared.next();
                continue;
            }
            if all.contains(here) && next_shared.as_ref().is_some_and(|next| next != here) {
                live.next();
                continue;
            }
        }
        if let Some(here) = live.peek() {
            if !all.contains(here) {
                order.push((here.clone(), None));
                live.next();
                continue;
            }
            if merged.contains(here) {
                live.next();
            }
        }
        if let Some((there, config)) = wanted.next() {
            if next_shared.as_ref() == Some(&there) {
                next_shared = shared.next();
            }
            merged.insert(there.clone());
            order.push((there, Some(config)));
        }
    }
    let element = shape.element();
    let mut take = |step: &Option<Step>| {
        let place = found.iter().position(|(other, _)| other == step)?;
        Some(found.remove(place).1)
    };
    order
        .into_iter()
        .filter_map(|(step, config)| match (take(&step), config) {
            (Some(old), Some(config)) => Some(merge(old, config, &element)),
            (None, Some(config)) => Some(config.clone()),
            (old, None) => old,
        })
        .collect()
}

/// `value` without the fields of `set`; none if nothing is left.
pub(super) fn without(value: Value, set: &FieldSet, shape: &Shape<'_>) -> Option<Value> {
    match value {
        Value::Object(fields) => {
            let mut left = Map::new();
            for (name, below) in fields {
                let step = Step::Field(name);
                let kept = match shape.field(field_name(&step)) {
                    _ if set.members.contains(&step) => None,
                    Some((child, _)) => part_without(below, &step, set, &child),
                    None => Some(below),
                };
                if let (Some(kept), Step::Field(name)) = (kept, step) {
                    left.insert(name, kept);
                }
            }
            (!left.is_empty()).then_some(Value::Object(left))
        }
        Value::Array(elements) => {
            let left: Vec<Value> = elements
                .into_iter()
                .filter_map(|below| match shape.step(&below) {
                    Ok(step) if set.members.contains(&step) => None,
                    Ok(step) => part_without(below, &step, set, &shape.element()),
                    Err(_) => Some(below),
                })
                .collect();
            (!left.is_empty()).then_some(Value::Array(left))
        }
        other => Some(other),
    }
}

fn field_name(step: &Step) -> &str {
    match step {
        Step::Field(name) => name,
        Step::Keys(_) | Step::Element(_) => "",
    }
}

fn part_without(below: Value, step: &Step, set: &FieldSet, shape: &Shape<'_>) -> Option<Value> {
    match set.children.get(step) {
        Some(child) if !shape.is_leaf(&below) => without(below, child, shape),
        _ => Some(below),
    }
}

/// The set, with the parent fields that the type names as members where they contain
/// something.
pub(super) fn with_parents(set: &FieldSet, shape: &Shape<'_>) -> FieldSet {
    let mut all = FieldSet {
        members: set.members.clone(),
        children: BTreeMap::new(),
    };
    for (step, below) in &set.children {
        let child = match step {
            Step::Field(name) => shape.field(name),
            Step::Keys(_) | Step::Element(_) => Some((shape.element(), false)),
        };
        let (child, named) = child.unwrap_or((Shape::Unknown, false));
        if named {
            all.members.insert(step.clone());
        }
        all.adopt(step.clone(), with_parents(below, &child));
    }
    all
}

/// An error in a configuration: `path: problem`.
pub(super) fn problems(value: &Value, shape: &Shape<'_>, path: &str) -> Vec<String> {
    let found = |problem: String| {
        if path.is_empty() {
            problem
        } else {
            format!("{path}: {problem}")
        }
    };
    match (shape, value) {
        (_, Value::Null) => Vec::new(),
        (Shape::Leaf(scalar), value) => misfit(*scalar, value).map(found).into_iter().collect(),
        (Shape::List(..), Value::Array(elements)) => {
            let mut seen = BTreeSet::new();
            let mut problems = Vec::new();
            for (at, below) in elements.iter().enumerate() {
                match shape.step(below) {
                    Err(why) => problems.push(found(format!("element {at}: {why}"))),
                    Ok(step) => {
                        let path = format!("{path}{step}");
                        problems.extend(self::problems(below, &shape.element(), &path));
                        if !seen.insert(step.clone()) {
                            problems.push(found(format!("duplicate entries for key {step}")));
                        }
                    }
                }
            }
            problems
        }
        (_, Value::Object(fields)) => {
            let mut problems = Vec::new();
            for (name, below) in fields {
                let path = format!("{path}.{name}");
                match shape.field(name) {
                    Some((child, _)) => problems.extend(self::problems(below, &child, &path)),
                    None => problems.push(format!("{path}: field not declared in schema")),
                }
            }
            problems
        }
        _ => Vec::new(),
    }
}

fn misfit(scalar: Scalar, value: &Value) -> Option<String> {
    let fits = match scalar {
        Scalar::Any => true,
        Scalar::Text => value.is_string(),
        Scalar::Number => value.is_number(),
        Scalar::Flag => value.is_boolean(),
    };
    if fits {
        return None;
    }
    Some(match scalar {
        Scalar::Number => {
            let found = match value {
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                Value::Array(_) => "[]interface {}",
                _ => "map[string]interface {}",
            };
            format!("expected numeric (int or float), got {found}")
        }
        Scalar::Flag => format!("expected boolean, got &{{{value}}}"),
        _ => format!("expected string, got &value.valueUnstructured{{Value:{value}}}"),
    })
}
