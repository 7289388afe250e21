//! Mutants of a policy: its configuration with one number, operator, text or clause changed.

use serde_json::{Value, json};

use crate::edits::{self, Edit};

/// A configuration with one change.
pub(crate) struct Mutant {
    pub(crate) pointer: String,
    pub(crate) change: String,
    pub(crate) config: Value,
}

/// A field or an element of a configuration.
struct Place<'a> {
    pointer: String,
    value: &'a Value,
}

/// A change of a place: its name, and the value; none without the place.
type Change = (String, Option<Value>);

/// What no API server holds: the name and the message of a rule. The proof has other values.
const FIELDS_OF_RULES: [&str; 3] = ["name", "message", "proof"];

/// The fields with a few values.
const CHOICES: [(&str, &[&str]); 5] = [
    ("per", &["", "namespace", "owner", "node"]),
    ("propagationPolicy", &["Background", "Foreground", "Orphan"]),
    ("effect", &["NoSchedule", "PreferNoSchedule", "NoExecute"]),
    ("type", &["Normal", "Warning"]),
    ("proof", &["live", "cache"]),
];

/// Every mutant of a configuration.
pub(crate) fn mutants(config: &Value) -> Vec<Mutant> {
    let mut places = Vec::new();
    collect(String::new(), config, &mut places);
    let changes = places.iter().flat_map(|place| {
        let changes = place.changes().into_iter();
        changes.map(|change| (place.pointer.clone(), change))
    });
    let mutants = changes.chain(proofs(config)).map(|(pointer, change)| {
        let (change, value) = change;
        Mutant {
            config: changed(config, &pointer, value),
            pointer,
            change,
        }
    });
    mutants.collect()
}

/// Every place below a value.
fn collect<'a>(pointer: String, value: &'a Value, places: &mut Vec<Place<'a>>) {
    let fields = value.as_object().into_iter().flatten();
    for (name, field) in fields {
        let name = name.replace('/', "~1");
        collect(format!("{pointer}/{name}"), field, places);
    }
    let elements = value.as_array().into_iter().flatten();
    for (index, element) in elements.enumerate() {
        collect(format!("{pointer}/{index}"), element, places);
    }
    if !pointer.is_empty() {
        places.push(Place { pointer, value });
    }
}

/// The proof `cache` of the rules whose default it is not.
fn proofs(config: &Value) -> Vec<(String, Change)> {
    let rules = config["rules"].as_array().into_iter().flatten();
    let of_others = rules.enumerate().filter(|(_, rule)| {
        let reads_node = ["when", "unless"].iter().any(|field| {
            let expression = rule[field].as_str().unwrap_or_default();
            expression.contains("node.") || expression.contains("namespaceObject")
        });
        let ends = ["delete", "evict"]
            .iter()
            .any(|it| rule["do"][it].is_object());
        let keeps = ends && rule["keep"].is_object();
        let reads_others = reads_node || rule["related"].is_object() || keeps;
        reads_others && rule["proof"].is_null()
    });
    let proofs = of_others.map(|(index, _)| {
        let pointer = format!("/rules/{index}/proof");
        (pointer, ("cache".to_owned(), Some(json!("cache"))))
    });
    proofs.collect()
}

/// The configuration with another value at a place, or without the place.
fn changed(config: &Value, pointer: &str, value: Option<Value>) -> Value {
    let mut config = config.clone();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = config.pointer_mut(parent).unwrap();
    match (parent, value) {
        (Value::Array(elements), None) => {
            elements.remove(key.parse().unwrap());
        }
        (Value::Array(elements), Some(value)) => {
            elements[key.parse::<usize>().unwrap()] = value;
        }
        (parent, None) => {
            parent
                .as_object_mut()
                .unwrap()
                .remove(&key.replace("~1", "/"));
        }
        (parent, Some(value)) => parent[key.replace("~1", "/")] = value,
    }
    config
}

impl Place<'_> {
    fn changes(&self) -> Vec<Change> {
        let mut changes = match self.value {
            Value::Bool(value) => vec![replacement(self.value, json!(!value))],
            Value::Number(number) => {
                let number = number.as_i64().unwrap();
                let others = [number + 1, number - 1];
                others.map(|it| replacement(self.value, json!(it))).into()
            }
            Value::String(text) => self.changes_of_text(text),
            _ => Vec::new(),
        };
        if !self.is_of_rule(&FIELDS_OF_RULES) {
            changes.push(("without it".to_owned(), None));
        }
        changes
    }

    fn name(&self) -> &str {
        self.pointer.rsplit('/').next().unwrap_or_default()
    }

    /// Whether it is one of these fields of a rule.
    fn is_of_rule(&self, names: &[&str]) -> bool {
        let is_field = self.pointer.split('/').count() == 4 && self.pointer.starts_with("/rules/");
        is_field && names.contains(&self.name())
    }

    fn is_expression(&self) -> bool {
        let is_count = self.pointer.starts_with("/counts/") && self.name() == "when";
        let is_variable = self.pointer.contains("/variables/");
        let is_order = self.pointer.ends_with("/keep/by");
        is_count || is_variable || is_order || self.is_of_rule(&["when", "unless", "hold"])
    }

    fn changes_of_text(&self, text: &str) -> Vec<Change> {
        if self.is_of_rule(&["name", "message"]) {
            return Vec::new();
        }
        if self.is_expression() {
            let mut changes = of_edits(edits::of_expression(text));
            if self.is_of_rule(&["when"]) {
                changes.push(("always".to_owned(), Some(json!("true"))));
            }
            return changes;
        }
        let choices = CHOICES.iter().find(|(name, _)| *name == self.name());
        let others: Vec<String> = match (choices, edits::durations(text)) {
            (Some((_, values)), _) => {
                let others = values.iter().filter(|it| **it != text);
                others.map(|it| (*it).to_owned()).collect()
            }
            (None, Some(durations)) => durations.into_iter().collect(),
            (None, None) => vec![edits::other(text)],
        };
        let others = others.iter().map(|it| replacement(self.value, json!(it)));
        let in_templates = of_edits(edits::of_template(text));
        others.chain(in_templates).collect()
    }
}

fn replacement(before: &Value, after: Value) -> Change {
    (format!("{before} -> {after}"), Some(after))
}

fn of_edits(edits: Vec<Edit>) -> Vec<Change> {
    let changes = edits
        .into_iter()
        .map(|it| (it.change, Some(json!(it.text))));
    changes.collect()
}

#[test]
fn a_configuration_is_changed_in_each_place() {
    let config = json!({"rules": [{
        "name": "a", "message": "b", "match": {"namespaces": ["x", "y"]},
        "when": "node.spec.unschedulable == true", "keep": {"newest": 1, "per": "node"},
        "do": {"evict": {"thenDeleteAfter": "2m"}},
    }]});
    let of_places = |it: Mutant| format!("{}: {}", it.pointer, it.change);
    let changes: Vec<String> = mutants(&config).into_iter().map(of_places).collect();
    let expected = [
        "/rules/0/do/evict/thenDeleteAfter: \"2m\" -> \"1m\"",
        "/rules/0/do/evict/thenDeleteAfter: \"2m\" -> \"3m\"",
        "/rules/0/do/evict/thenDeleteAfter: \"2m\" -> \"4m\"",
        "/rules/0/do/evict/thenDeleteAfter: without it",
        "/rules/0/do/evict: without it",
        "/rules/0/do: without it",
        "/rules/0/keep/newest: 1 -> 2",
        "/rules/0/keep/newest: 1 -> 0",
        "/rules/0/keep/newest: without it",
        "/rules/0/keep/per: \"node\" -> \"\"",
        "/rules/0/keep/per: \"node\" -> \"namespace\"",
        "/rules/0/keep/per: \"node\" -> \"owner\"",
        "/rules/0/keep/per: without it",
        "/rules/0/keep: without it",
        "/rules/0/match/namespaces/0: \"x\" -> \"x-other\"",
        "/rules/0/match/namespaces/0: without it",
        "/rules/0/match/namespaces/1: \"y\" -> \"y-other\"",
        "/rules/0/match/namespaces/1: without it",
        "/rules/0/match/namespaces: without it",
        "/rules/0/match: without it",
        "/rules/0/when: node.spec.unschedulable == true -> node.spec.unschedulable != true",
        "/rules/0/when: node.spec.unschedulable == true -> node.spec.unschedulable == false",
        "/rules/0/when: always",
        "/rules/0/when: without it",
        "/rules/0: without it",
        "/rules: without it",
        "/rules/0/proof: cache",
    ];
    assert_eq!(changes, expected);
}
