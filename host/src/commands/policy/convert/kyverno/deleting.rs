//! `DeletingPolicy` and `NamespacedDeletingPolicy`: their conditions are CEL already.

use std::collections::BTreeMap;

use policy::explain::{FieldType, Reads, field_type, reads_of};
use serde_json::Value;

use super::super::cel::list;
use super::super::draft::{ControllerDraft, RuleDraft};
use super::super::kinds::{Kinds, Resource};
use super::super::shape::{elements, fields, refuse_others, text, texts};
use super::super::{Conversion, Converted, Problem, labels};
use super::{finish, notes, place_of, refuse_filtered, restrict};
use crate::commands::print::{part, text_at};

/// What every object has: a read of it cannot fail.
const ALWAYS_SET: [&str; 4] = [
    "object.metadata",
    "object.metadata.name",
    "object.metadata.creationTimestamp",
    "object.metadata.uid",
];
/// What every object in a namespace has.
const NAMESPACE: &str = "object.metadata.namespace";

/// A policy of policies.kyverno.io.
pub(in super::super) fn deleting(policy: &Value, kinds: &Kinds, conversion: &mut Conversion) {
    let place = place_of(policy);
    let mut controller = ControllerDraft::new(text_at(policy, "/metadata/name"));
    controller.notes = notes(policy, &place);
    match rules(policy, &place, kinds, &mut controller.notes) {
        Ok(rules) => {
            controller.rules = rules;
            conversion.add(controller);
        }
        Err(problem) => conversion.problems.push(problem),
    }
}

fn rules(
    policy: &Value,
    place: &str,
    kinds: &Kinds,
    notes: &mut Vec<String>,
) -> Converted<Vec<RuleDraft>> {
    let spec_place = format!("{place} spec");
    let spec = fields(&spec_place, part(policy, "/spec"))?;
    let known = [
        "matchConstraints",
        "conditions",
        "variables",
        "schedule",
        "deletionPropagationPolicy",
    ];
    refuse_others(&spec_place, spec, &known)?;
    let constraints = part(policy, "/spec/matchConstraints");
    let match_place = format!("{spec_place}.matchConstraints");
    refuse_others(
        &match_place,
        fields(&match_place, constraints)?,
        &[
            "resourceRules",
            "namespaceSelector",
            "objectSelector",
            "matchPolicy",
        ],
    )?;
    let conditions = Conditions::read(&spec_place, part(policy, "/spec"))?;
    let rules_place = format!("{match_place}.resourceRules");
    let resource_rules = elements(&rules_place, part(constraints, "/resourceRules"))?;
    if resource_rules.is_empty() {
        return Err(Problem::new(rules_place, "it names no resources"));
    }
    let mut rules = Vec::new();
    for (index, it) in resource_rules.iter().enumerate() {
        let place = format!("{rules_place}[{index}]");
        for resource in resources(&place, it, kinds)? {
            let word = format!("{}-{}", text_at(policy, "/metadata/name"), resource.word());
            let mut rule = RuleDraft::new(&spec_place, &word, resource);
            rule.when.extend(names(&place, it)?);
            select(&match_place, constraints, &mut rule)?;
            conditions.apply(&mut rule, notes)?;
            restrict(&mut rule, policy, &spec_place)?;
            refuse_filtered(&rule, &spec_place)?;
            rules.push(finish(rule, policy)?);
        }
    }
    Ok(rules)
}

fn resources(place: &str, rule: &Value, kinds: &Kinds) -> Converted<Vec<Resource>> {
    let known = [
        "apiGroups",
        "apiVersions",
        "resources",
        "resourceNames",
        "operations",
        "scope",
    ];
    refuse_others(place, fields(place, rule)?, &known)?;
    let of = |name: &str| texts(&format!("{place}.{name}"), part(rule, &format!("/{name}")));
    let versions = of("apiVersions")?;
    let version = match versions.as_slice() {
        [one] => one.as_str(),
        _ => "*",
    };
    let scope = text(&format!("{place}.scope"), part(rule, "/scope"))?;
    let mut resources: Vec<Resource> = Vec::new();
    for group in of("apiGroups")? {
        for plural in of("resources")? {
            let resource = kinds.of_group(&group, version, &plural);
            let resource = resource.map_err(|why| Problem::new(place, why))?;
            if !fits(&resource, scope) {
                let message = format!("{} are not of its scope", resource.plural);
                return Err(Problem::new(format!("{place}.scope"), message));
            }
            if !resources.contains(&resource) {
                resources.push(resource);
            }
        }
    }
    if resources.is_empty() {
        return Err(Problem::new(place, "it names no resources"));
    }
    Ok(resources)
}

fn fits(resource: &Resource, scope: &str) -> bool {
    match scope {
        "Namespaced" => resource.is_namespaced != Some(false),
        "Cluster" => resource.is_namespaced != Some(true),
        _ => matches!(scope, "" | "*"),
    }
}

fn names(place: &str, rule: &Value) -> Converted<Option<String>> {
    let names = texts(
        &format!("{place}.resourceNames"),
        part(rule, "/resourceNames"),
    )?;
    if names.is_empty() {
        return Ok(None);
    }
    let names = list(names.iter().map(String::as_str));
    Ok(Some(format!("object.metadata.name in {names}")))
}

fn select(place: &str, constraints: &Value, rule: &mut RuleDraft) -> Converted<()> {
    let objects = part(constraints, "/objectSelector");
    if !objects.is_null() {
        let text = labels::text(&format!("{place}.objectSelector"), objects)?;
        rule.label_selectors.push(text);
    }
    let namespaces = part(constraints, "/namespaceSelector");
    if namespaces.is_null() {
        return Ok(());
    }
    let place = format!("{place}.namespaceSelector");
    labels::check(&place, namespaces)?;
    // An empty one selects every namespace, and what is in none.
    if !fields(&place, namespaces)?.is_empty() {
        if rule.resource.is_namespaced == Some(false) {
            let message = format!("{} are in no namespace", rule.resource.plural);
            return Err(Problem::new(place, message));
        }
        rule.namespace_selector = Some(namespaces.clone());
    }
    Ok(())
}

/// Conditions and variables in CEL.
struct Conditions {
    place: String,
    expressions: Vec<String>,
    variables: BTreeMap<String, String>,
}

impl Conditions {
    fn read(place: &str, spec: &Value) -> Converted<Self> {
        let mut variables = BTreeMap::new();
        for (name, expression) in named(&format!("{place}.variables"), part(spec, "/variables"))? {
            if variables.insert(name, expression).is_some() {
                let message = "two variables have the same name";
                return Err(Problem::new(format!("{place}.variables"), message));
            }
        }
        let conditions = named(&format!("{place}.conditions"), part(spec, "/conditions"))?;
        Ok(Self {
            place: format!("{place}.conditions"),
            expressions: conditions.into_iter().map(|(_, it)| it).collect(),
            variables,
        })
    }

    /// Adds them to a rule.
    fn apply(&self, rule: &mut RuleDraft, notes: &mut Vec<String>) -> Converted<()> {
        for (index, expression) in self.expressions.iter().enumerate() {
            let refused = |why: String| Problem::new(format!("{}[{index}]", self.place), why);
            let reads = reads_of(expression, &self.variables).map_err(refused)?;
            check(&reads).map_err(|why| refused(why.to_owned()))?;
            check_times(&reads, &rule.resource).map_err(refused)?;
            demand(&reads, rule, notes);
            let expression = expression.trim();
            // A comment ends with its line.
            let has_comment = expression.contains("//");
            rule.when.push(if has_comment {
                format!("({expression}\n)")
            } else {
                expression.to_owned()
            });
        }
        rule.variables.clone_from(&self.variables);
        Ok(())
    }
}

/// Refuses reads that are errors in Kyverno where something is missing, and have a result here.
fn check(reads: &Reads) -> Result<(), &'static str> {
    if reads.reads_elements {
        return Err(
            "a field of an element, or of a key that is computed, has no translation: in Kyverno, \
             one that is missing is an error, and the object stays",
        );
    }
    // A test in one part of an alternative guards no other part.
    if reads.may_do_without && !reads.tested.is_empty() {
        return Err(
            "has() beside ||, ? or a loop has no translation: in Kyverno, a field that is missing \
             where has() does not guard it is an error, and the object stays",
        );
    }
    Ok(())
}

/// Refuses a time that is read as it is: it is a text in Kyverno. What CEL does with a time is an error
/// there, and the object stays.
fn check_times(reads: &Reads, resource: &Resource) -> Result<(), String> {
    match reads.plain.iter().find(|field| is_time(field, resource)) {
        Some(field) => Err(format!(
            "{field} is a text in Kyverno, and a time here: write timestamp({field})"
        )),
        None => Ok(()),
    }
}

fn is_time(field: &str, resource: &Resource) -> bool {
    let found = match field.strip_prefix("namespaceObject.") {
        Some(rest) => field_type("namespaces", &format!("object.{rest}")),
        None => field_type(&resource.name, field),
    };
    found == Ok(FieldType::Time)
}

/// Demands the fields that neither a `has()` nor an `in` guards: where the API server's CEL fails because one is
/// missing, the object stays.
fn demand(reads: &Reads, rule: &mut RuleDraft, notes: &mut Vec<String>) {
    let is_in_namespace = rule.resource.is_namespaced == Some(true);
    let is_set =
        |field: &str| ALWAYS_SET.contains(&field) || (is_in_namespace && field == NAMESPACE);
    for field in reads.fields.iter().filter(|it| !is_set(it)) {
        let demand = format!("{field} != null");
        if rule.when.contains(&demand) {
            continue;
        }
        rule.when.push(demand);
        if reads.may_do_without {
            let name = &rule.name;
            let text = format!(
                "The rule {name} demands {field}. In Kyverno, a condition with ||, ? or a loop may \
                 hold without it."
            );
            note(notes, text);
        }
    }
}

fn note(notes: &mut Vec<String>, text: String) {
    if !notes.contains(&text) {
        notes.push(text);
    }
}

/// Expressions with their names. `time.now()` is `now`.
fn named(place: &str, value: &Value) -> Converted<Vec<(String, String)>> {
    let mut found = Vec::new();
    for (index, it) in elements(place, value)?.iter().enumerate() {
        let place = format!("{place}[{index}]");
        refuse_others(&place, fields(&place, it)?, &["name", "expression"])?;
        let name = text(&format!("{place}.name"), part(it, "/name"))?;
        let expression = text(&format!("{place}.expression"), part(it, "/expression"))?;
        if expression.trim().is_empty() {
            return Err(Problem::new(place, "it has no expression"));
        }
        let expression = expression.replace("time.now()", "now");
        found.push((name.to_owned(), expression));
    }
    Ok(found)
}
