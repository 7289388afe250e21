//! Sets of fields, in the form of `managedFields` (`FieldsV1`).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Map, Value, json};

/// One step of a path into an object, in the order that messages list them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// A field, or a key of a map.
    Field(String),
    /// The element of a list that has these keys: a JSON object, sorted.
    Keys(String),
    /// The element of a set that is this value, in JSON.
    Element(String),
}

impl Step {
    /// The element with that value for every key.
    pub(super) fn keys<'a>(keys: impl Iterator<Item = (&'a str, Value)>) -> Self {
        let sorted: BTreeMap<&str, Value> = keys.collect();
        Step::Keys(json!(sorted).to_string())
    }

    fn encode(&self) -> String {
        match self {
            Step::Field(name) => format!("f:{name}"),
            Step::Keys(keys) => format!("k:{keys}"),
            Step::Element(value) => format!("v:{value}"),
        }
    }

    fn decode(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "f" => Some(Step::Field(rest.to_owned())),
            "k" => {
                let keys: BTreeMap<String, Value> = serde_json::from_str(rest).ok()?;
                Some(Step::Keys(json!(keys).to_string()))
            }
            "v" => {
                let value: Value = serde_json::from_str(rest).ok()?;
                Some(Step::Element(value.to_string()))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Field(name) => write!(out, ".{name}"),
            Step::Element(value) => write!(out, "[={value}]"),
            Step::Keys(keys) => {
                let keys: BTreeMap<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                let keys: Vec<String> = keys
                    .iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect();
                write!(out, "[{}]", keys.join(","))
            }
        }
    }
}

/// A set of paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldSet {
    /// The steps at which a path of the set ends.
    pub(super) members: BTreeSet<Step>,
    /// The fields below a step; never an empty set.
    pub(super) children: BTreeMap<Step, FieldSet>,
}

impl FieldSet {
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.is_empty()
    }

    /// Adds a set below `step`.
    pub(super) fn adopt(&mut self, step: Step, child: FieldSet) {
        if child.is_empty() {
            return;
        }
        match self.children.entry(step) {
            Entry::Vacant(place) => {
                place.insert(child);
            }
            Entry::Occupied(mut place) => {
                let all = place.get().union(&child);
                place.insert(all);
            }
        }
    }

    pub(super) fn union(&self, other: &FieldSet) -> FieldSet {
        let mut all = self.clone();
        all.members.extend(other.members.iter().cloned());
        for (step, child) in &other.children {
            all.adopt(step.clone(), child.clone());
        }
        all
    }

    pub(super) fn difference(&self, other: &FieldSet) -> FieldSet {
        let mut left = FieldSet {
            members: self.members.difference(&other.members).cloned().collect(),
            children: BTreeMap::new(),
        };
        for (step, child) in &self.children {
            let child = match other.children.get(step) {
                Some(without) => child.difference(without),
                None => child.clone(),
            };
            left.adopt(step.clone(), child);
        }
        left
    }

    pub(super) fn intersection(&self, other: &FieldSet) -> FieldSet {
        let mut both = FieldSet {
            members: self.members.intersection(&other.members).cloned().collect(),
            children: BTreeMap::new(),
        };
        for (step, child) in &self.children {
            if let Some(with) = other.children.get(step) {
                both.adopt(step.clone(), child.intersection(with));
            }
        }
        both
    }

    /// Every path, as messages write it.
    pub(super) fn paths(&self) -> Vec<String> {
        let own = self.members.iter().map(Step::to_string);
        let below = self.children.iter().flat_map(|(step, child)| {
            let paths = child.paths().into_iter();
            paths.map(move |path| format!("{step}{path}"))
        });
        own.chain(below).collect()
    }

    /// `FieldsV1`.
    pub(super) fn to_json(&self) -> Value {
        let mut fields = Map::new();
        for step in &self.members {
            fields.insert(step.encode(), json!({}));
        }
        for (step, child) in &self.children {
            let mut below = child.to_json();
            if let (true, Value::Object(below)) = (self.members.contains(step), &mut below) {
                below.insert(".".to_owned(), json!({}));
            }
            fields.insert(step.encode(), below);
        }
        Value::Object(fields)
    }

    /// Reads `FieldsV1`. What it cannot be is left out.
    pub(super) fn from_json(fields: &Value) -> FieldSet {
        let mut set = FieldSet::default();
        for (text, below) in fields.as_object().into_iter().flatten() {
            let Some(step) = Step::decode(text) else {
                continue;
            };
            let child = FieldSet::from_json(below);
            if child.is_empty() || below.get(".").is_some() {
                set.members.insert(step.clone());
            }
            set.adopt(step, child);
        }
        set
    }
}
