//! Rules and Controllers before they are written.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use davit_core::api::{API_VERSION, KIND, encode_config};
use policy::explain::Explainer;
use serde_json::{Map, Value, json};

use super::Problem;
use super::cel::{all, any};
use super::kinds::Resource;

/// The most rules that the guest accepts in a configuration.
const MAX_RULES: usize = 100;

/// A rule.
#[derive(Clone, Debug)]
pub(super) struct RuleDraft {
    /// Where it comes from.
    pub(super) place: String,
    pub(super) name: String,
    pub(super) resource: Resource,
    /// None for all.
    pub(super) namespaces: Option<Vec<String>>,
    pub(super) namespace_selector: Option<Value>,
    /// As kubectl writes them; all of them select.
    pub(super) label_selectors: Vec<String>,
    pub(super) variables: BTreeMap<String, String>,
    /// Conditions that all have to hold.
    pub(super) when: Vec<String>,
    /// Conditions of which each spares.
    pub(super) unless: Vec<String>,
    /// Empty for the kind's own.
    pub(super) propagation: String,
    /// The reason and the message of an event.
    pub(super) event: Option<(String, String)>,
}

/// A Controller with rules.
#[derive(Debug)]
pub(super) struct ControllerDraft {
    pub(super) name: String,
    /// What changes against the policy, line by line.
    pub(super) notes: Vec<String>,
    pub(super) rules: Vec<RuleDraft>,
}

impl RuleDraft {
    pub(super) fn new(place: &str, name: &str, resource: Resource) -> Self {
        Self {
            place: place.to_owned(),
            name: short(name),
            resource,
            namespaces: None,
            namespace_selector: None,
            label_selectors: Vec::new(),
            variables: BTreeMap::new(),
            when: Vec::new(),
            unless: Vec::new(),
            propagation: String::new(),
            event: None,
        }
    }

    /// Adds a variable.
    pub(super) fn define(&mut self, name: &str, expression: String) {
        self.variables.insert(name.to_owned(), expression);
    }

    /// Only objects of these namespaces, and of those that it names already.
    pub(super) fn restrict(&mut self, namespaces: Vec<String>) {
        self.namespaces = Some(match self.namespaces.take() {
            None => namespaces,
            Some(before) => before
                .into_iter()
                .filter(|it| namespaces.contains(it))
                .collect(),
        });
    }

    fn value(&self) -> Value {
        let mut matches = Map::new();
        let mut add = |key: &str, value| matches.insert(key.to_owned(), value);
        add("resource", json!(self.resource.name));
        if let Some(namespaces) = &self.namespaces {
            add("namespaces", json!(namespaces));
        }
        if let Some(selector) = &self.namespace_selector {
            add("namespaceSelector", selector.clone());
        }
        let selectors = self.label_selectors.iter().map(String::as_str);
        let selectors: Vec<&str> = selectors.filter(|it| !it.is_empty()).collect();
        if !selectors.is_empty() {
            add("labelSelector", json!(selectors.join(",")));
        }
        let mut rule = Map::new();
        let mut add = |key: &str, value| rule.insert(key.to_owned(), value);
        add("name", json!(self.name));
        add("match", Value::Object(matches));
        if !self.variables.is_empty() {
            add("variables", json!(self.variables));
        }
        let when = if self.when.is_empty() {
            "true".to_owned()
        } else {
            all(&self.when)
        };
        add("when", json!(when));
        if !self.unless.is_empty() {
            add("unless", json!(any(&self.unless)));
        }
        add("do", self.actions());
        Value::Object(rule)
    }

    fn actions(&self) -> Value {
        let delete = if self.propagation.is_empty() {
            json!({})
        } else {
            json!({"propagationPolicy": self.propagation})
        };
        match &self.event {
            None => json!({"delete": delete}),
            Some((reason, message)) => {
                json!({"delete": delete, "event": {"reason": reason, "message": message}})
            }
        }
    }
}

impl ControllerDraft {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: short(name),
            notes: Vec::new(),
            rules: Vec::new(),
        }
    }

    /// Leaves out the rules that the guest does not accept, and those about no object.
    pub(super) fn check(&mut self) -> Vec<Problem> {
        let mut problems = Vec::new();
        self.rules.retain(|rule| {
            let problem = problem_of(rule);
            let is_accepted = problem.is_none();
            problems.extend(problem);
            is_accepted
        });
        let mut taken = BTreeSet::new();
        for rule in &mut self.rules {
            rule.name = apart(&rule.name, &mut taken);
        }
        problems
    }

    /// Controllers with as many rules as a configuration may have. Each rule has all of its
    /// conditions, so it does not matter which of them are together.
    pub(super) fn divided(self) -> impl Iterator<Item = Self> {
        let Self { name, notes, rules } = self;
        let mut rules = rules.into_iter().peekable();
        std::iter::from_fn(move || {
            rules.peek()?;
            Some(Self {
                name: name.clone(),
                notes: notes.clone(),
                rules: rules.by_ref().take(MAX_RULES).collect(),
            })
        })
    }

    pub(super) fn config(&self) -> Value {
        let rules: Vec<Value> = self.rules.iter().map(RuleDraft::value).collect();
        json!({"rules": rules})
    }

    /// The Controller, with the notes above it.
    pub(super) fn yaml(&self) -> Result<String> {
        let resource = json!({
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": self.name},
            "spec": {
                "module": {"builtin": "policy"},
                "mode": "DryRun",
                "config": self.config(),
            },
        });
        let mut text = String::new();
        for note in &self.notes {
            let note = davit_core::untrusted::line(note, usize::MAX);
            text.push_str("# ");
            text.push_str(&note);
            text.push('\n');
        }
        text.push_str(serde_saphyr::to_string(&resource)?.trim_end());
        text.push('\n');
        Ok(text)
    }
}

/// Why the guest does not accept a rule.
fn problem_of(rule: &RuleDraft) -> Option<Problem> {
    if rule.namespaces.as_ref().is_some_and(Vec::is_empty) {
        return Some(Problem::new(&rule.place, "it selects no namespace"));
    }
    let config = json!({"rules": [rule.value()]});
    let encoded = match encode_config(&config) {
        Ok(encoded) => encoded,
        Err(error) => return Some(Problem::new(&rule.place, error.to_string())),
    };
    let error = Explainer::new(&encoded).err()?;
    let field = error.field.trim_start_matches("rules[0].");
    Some(Problem::new(
        &rule.place,
        format!("as a rule, {field}: {}", error.message),
    ))
}

/// A name that no other one has: the same, or the same with a number.
pub(super) fn apart(name: &str, taken: &mut BTreeSet<String>) -> String {
    let mut numbers = 2..;
    let mut apart = name.to_owned();
    while !taken.insert(apart.clone()) {
        let suffix = numbers
            .next()
            .map_or_else(String::new, |it| format!("-{it}"));
        let stem: String = name.chars().take(63 - suffix.len()).collect();
        apart = format!("{stem}{suffix}");
    }
    apart
}

/// A name of which metrics and Controllers can consist.
fn short(name: &str) -> String {
    let mut short = String::new();
    for c in name.chars() {
        match c.to_ascii_lowercase() {
            c @ ('a'..='z' | '0'..='9') => short.push(c),
            _ if !short.ends_with('-') => short.push('-'),
            _ => {}
        }
    }
    short.truncate(50);
    match short.trim_matches('-') {
        "" => "unnamed".to_owned(),
        short => short.to_owned(),
    }
}
