//! Policies of Kyverno that delete objects.

mod condition;
mod deleting;
mod filter;
#[cfg(test)]
mod tests;

use serde_json::Value;

use super::draft::{ControllerDraft, RuleDraft};
use super::kinds::Kinds;
use super::shape::{fields, refuse_others, text};
use super::{Conversion, Converted, Problem};
use crate::commands::print::{part, text_at};

pub(super) use deleting::deleting;

/// What Kyverno spares by default, in its `ConfigMap`'s resourceFilters.
const FILTERED: &str = "in ['kube-system', 'kube-public', 'kube-node-lease', 'kyverno']";
/// The kinds of which it spares every object.
const FILTERED_KINDS: [&str; 4] = ["apiservices", "events", "nodes", "replicasets"];

/// A `CleanupPolicy` or `ClusterCleanupPolicy` of kyverno.io.
pub(super) fn cleanup(policy: &Value, kinds: &Kinds, conversion: &mut Conversion) {
    let place = place_of(policy);
    match cleanup_rules(policy, &place, kinds, &mut conversion.problems) {
        Ok(rules) => {
            let mut controller = ControllerDraft::new(text_at(policy, "/metadata/name"));
            controller.notes = notes(policy, &place);
            controller.rules = rules;
            conversion.add(controller);
        }
        Err(problem) => conversion.problems.push(problem),
    }
}

/// `CleanupPolicy clean`
fn place_of(policy: &Value) -> String {
    format!(
        "{} {}",
        text_at(policy, "/kind"),
        text_at(policy, "/metadata/name")
    )
}

/// What a reader has to know.
fn notes(policy: &Value, place: &str) -> Vec<String> {
    let mut notes = vec![
        format!("From the {place} of Kyverno."),
        format!(
            "Its schedule is {:?}: Kyverno deletes then. Davit deletes as soon as a rule selects an \
             object.",
            text_at(policy, "/spec/schedule")
        ),
        "Kyverno spares what the resourceFilters of its ConfigMap name. The rules spare the \
         namespaces that it names by default."
            .to_owned(),
    ];
    if policy
        .get("metadata")
        .and_then(|it| it.get("annotations"))
        .is_some()
    {
        notes.push("The annotations of the policy are left out.".to_owned());
    }
    notes
}

fn cleanup_rules(
    policy: &Value,
    place: &str,
    kinds: &Kinds,
    problems: &mut Vec<Problem>,
) -> Converted<Vec<RuleDraft>> {
    let spec = fields(&format!("{place} spec"), part(policy, "/spec"))?;
    refuse_others(
        &format!("{place} spec"),
        spec,
        &[
            "match",
            "exclude",
            "schedule",
            "conditions",
            "deletionPropagationPolicy",
        ],
    )?;
    let conditions = part(policy, "/spec/conditions");
    let mut rules = Vec::new();
    for filter in filter::alternatives(&format!("{place} spec.match"), part(policy, "/spec/match"))?
    {
        let drafts = filter::rules(place, text_at(policy, "/metadata/name"), &filter, kinds)?;
        for draft in drafts {
            match complete(draft, policy, place, conditions) {
                Ok(rule) => rules.push(rule),
                Err(problem) => problems.push(problem),
            }
        }
    }
    Ok(rules)
}

/// A rule with everything but what it matches.
fn complete(
    mut rule: RuleDraft,
    policy: &Value,
    place: &str,
    conditions: &Value,
) -> Converted<RuleDraft> {
    restrict(&mut rule, policy, place)?;
    refuse_filtered(&rule, place)?;
    let exclude = part(policy, "/spec/exclude");
    if !exclude.is_null() {
        let place = format!("{place} spec.exclude");
        rule.unless
            .extend(filter::excluded(&place, exclude, &rule)?);
    }
    let place = format!("{place} spec.conditions");
    rule.when
        .extend(condition::conditions(&place, conditions, &rule.resource)?);
    finish(rule, policy)
}

/// Kyverno deletes none of these by default.
fn refuse_filtered(rule: &RuleDraft, place: &str) -> Converted<()> {
    let plural = &rule.resource.plural;
    if FILTERED_KINDS.contains(&plural.as_str()) {
        return Err(Problem::new(
            format!("{place} spec.match"),
            format!("the resourceFilters of Kyverno's ConfigMap spare all {plural} by default"),
        ));
    }
    Ok(())
}

/// The namespace of a policy of one namespace is that of its objects.
fn restrict(rule: &mut RuleDraft, policy: &Value, place: &str) -> Converted<()> {
    let is_of_namespace = matches!(
        text_at(policy, "/kind"),
        "CleanupPolicy" | "NamespacedDeletingPolicy"
    );
    if !is_of_namespace {
        return Ok(());
    }
    let namespace = text_at(policy, "/metadata/namespace");
    if namespace.is_empty() {
        let message = "the file does not say in which namespace it is";
        return Err(Problem::new(format!("{place} metadata.namespace"), message));
    }
    rule.restrict(vec![namespace.to_owned()]);
    Ok(())
}

/// What holds for every rule.
fn finish(mut rule: RuleDraft, policy: &Value) -> Converted<RuleDraft> {
    if rule.resource.is_namespace() {
        rule.unless.push(format!("object.metadata.name {FILTERED}"));
    } else if rule.resource.is_namespaced != Some(false) {
        rule.unless
            .push(format!("object.metadata.namespace {FILTERED}"));
    }
    let propagation = part(policy, "/spec/deletionPropagationPolicy");
    let place = format!("{} spec.deletionPropagationPolicy", place_of(policy));
    text(&place, propagation)?.clone_into(&mut rule.propagation);
    Ok(rule)
}
