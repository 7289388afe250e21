//! What rules would do with objects, by object.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use jiff::Timestamp;
use policy::explain::contract::decisions::{DeleteOptions, Step};
use policy::{Explanation, Finding, Verdict};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::objects::{Coordinates, Objects};

/// The report about the rules of one Controller.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// The Controller's name; empty for a configuration alone.
    pub(super) controller: String,
    /// When the rules were judged.
    pub(super) now: String,
    /// How many objects there are.
    pub(super) objects: usize,
    /// How many of them no rule matches.
    pub(super) unmatched: usize,
    /// How many plans there are.
    pub(super) acts: usize,
    /// Those that a rule matches; all of them with `--all`.
    pub(super) explained: Vec<ExplainedObject>,
}

/// What each rule would do with an object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExplainedObject {
    pub(super) api_version: String,
    pub(super) kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) rules: Vec<RuleOutcome>,
}

/// What a rule would do with an object, and why.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RuleOutcome {
    pub(super) rule: String,
    /// One word for programs.
    pub(super) verdict: &'static str,
    /// The same for people, and why.
    pub(super) reason: String,
    /// When it can change without a change of an object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) changes_at: Option<String>,
    /// The fields that decide, with their values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) values: BTreeMap<String, String>,
    /// What is done.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) steps: Vec<Value>,
}

/// What is in a report beside the objects that rules match.
pub(super) struct Selection<'a> {
    /// Only this rule.
    pub(super) rule: Option<&'a str>,
    /// Also objects that no rule matches.
    pub(super) all: bool,
}

impl Report {
    pub(super) fn new(
        controller: &str,
        now: Timestamp,
        explanation: &Explanation,
        objects: &Objects,
        selection: &Selection<'_>,
    ) -> Result<Self> {
        let mut by_object: BTreeMap<Coordinates, Vec<RuleOutcome>> = BTreeMap::new();
        for coordinates in &objects.all {
            by_object.entry(coordinates.clone()).or_default();
        }
        for it in &explanation.objects {
            let outcomes = by_object.entry(coordinates(&it.object)).or_default();
            for finding in &it.findings {
                outcomes.push(outcome(finding)?);
            }
        }
        for (rule, misses) in &objects.misses {
            for (coordinates, why) in misses {
                let outcomes = by_object.entry(coordinates.clone()).or_default();
                outcomes.push(miss(rule, why));
            }
        }
        let place = |rule: &str| explanation.rules.iter().position(|it| it.rule == rule);
        for outcomes in by_object.values_mut() {
            outcomes.retain(|it| selection.rule.is_none_or(|rule| it.rule == rule));
            outcomes.sort_by_key(|it| place(&it.rule));
        }
        let is_matched = |it: &Vec<RuleOutcome>| it.iter().any(|it| it.verdict != NOT_MATCHED);
        let matched = by_object.values().filter(|it| is_matched(it)).count();
        let acts = by_object.values().flatten().filter(|it| it.verdict == ACTS);
        Ok(Self {
            controller: controller.to_owned(),
            now: now.to_string(),
            objects: by_object.len(),
            unmatched: by_object.len() - matched,
            acts: acts.count(),
            explained: by_object
                .into_iter()
                .filter(|(_, outcomes)| selection.all || is_matched(outcomes))
                .map(|(it, rules)| ExplainedObject {
                    api_version: it.api_version,
                    kind: it.kind,
                    namespace: it.namespace,
                    name: it.name,
                    rules,
                })
                .collect(),
        })
    }
}

/// How many objects the rules of all reports act on. An object of several Controllers is one, also
/// if they name its kind in several versions.
pub(super) fn acted_on(reports: &[Report]) -> usize {
    let explained = reports.iter().flat_map(|it| &it.explained);
    let acted = explained.filter(|it| it.rules.iter().any(|rule| rule.verdict == ACTS));
    let objects = acted.map(|it| {
        let group = it.api_version.split_once('/').map(|(group, _)| group);
        (group, &it.kind, &it.namespace, &it.name)
    });
    objects.collect::<BTreeSet<_>>().len()
}

const ACTS: &str = "acts";
const NOT_MATCHED: &str = "not-matched";

fn coordinates(object: &policy::explain::contract::types::ObjectRef) -> Coordinates {
    Coordinates {
        api_version: object.api_version.clone(),
        kind: object.kind.clone(),
        namespace: object.namespace.clone(),
        name: object.name.clone(),
    }
}

fn miss(rule: &str, why: &str) -> RuleOutcome {
    RuleOutcome {
        rule: rule.to_owned(),
        verdict: NOT_MATCHED,
        reason: why.to_owned(),
        changes_at: None,
        values: BTreeMap::new(),
        steps: Vec::new(),
    }
}

fn outcome(finding: &Finding) -> Result<RuleOutcome> {
    let steps = finding.verdict.plan().map(|plan| plan.steps.as_slice());
    let mut steps: Vec<Value> = steps
        .unwrap_or_default()
        .iter()
        .map(step)
        .collect::<Result<_>>()?;
    if let Verdict::Acts {
        deletes_after: Some(after),
        ..
    } = &finding.verdict
        && let Some(step) = steps.last_mut()
        && let Some(options) = step.get_mut("evict").and_then(Value::as_object_mut)
    {
        let seconds = json!(after.as_secs());
        options.insert("thenDeleteAfterSeconds".to_owned(), seconds);
    }
    Ok(RuleOutcome {
        rule: finding.rule.clone(),
        verdict: word(&finding.verdict),
        reason: finding.verdict.to_string(),
        changes_at: finding.changes_at.and_then(time),
        values: finding.values.iter().cloned().collect(),
        steps,
    })
}

fn time(millis: i64) -> Option<String> {
    let time = Timestamp::from_millisecond(millis).ok()?;
    Some(time.to_string())
}

const fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Acts { .. } => ACTS,
        Verdict::Unchanged => "unchanged",
        Verdict::NotMatched(_) => NOT_MATCHED,
        Verdict::Not { .. } => "not",
        Verdict::Spared { .. } => "spared",
        Verdict::Terminating => "terminating",
        Verdict::Recorded => "recorded",
        Verdict::NoGroup | Verdict::Kept { .. } => "kept",
        Verdict::Held { .. } => "held",
        Verdict::Unproven => "unproven",
        Verdict::Preceded { .. } => "preceded",
        Verdict::NextCall => "next-call",
        Verdict::Failed { .. } => "failed",
    }
}

/// A step as a manifest would have it: one key that names it.
fn step(step: &Step) -> Result<Value> {
    Ok(match step {
        Step::Patch(patch) => {
            let mut body: Value = rmp_serde::from_slice(&patch.body)?;
            // The version that was judged: the one of the test means nothing to a cluster.
            if let Some(metadata) = body.pointer_mut("/metadata").and_then(Value::as_object_mut) {
                metadata.remove("resourceVersion");
            }
            if patch.kind == "json" {
                json!({"jsonPatch": body})
            } else {
                json!({"mergePatch": body})
            }
        }
        Step::Delete(options) => json!({"delete": options_of(options)}),
        Step::Evict(options) => json!({"evict": options_of(options)}),
        Step::Create(create) => {
            let body: Value = rmp_serde::from_slice(&create.body)?;
            json!({"create": body})
        }
        Step::Event(event) => json!({"event": {
            "type": event.event_type, "reason": event.reason, "message": event.message,
        }}),
    })
}

fn options_of(options: &DeleteOptions) -> Value {
    let mut fields = Map::new();
    if let Some(seconds) = options.grace_period_seconds {
        fields.insert("gracePeriodSeconds".to_owned(), json!(seconds));
    }
    if !options.propagation_policy.is_empty() {
        let policy = json!(options.propagation_policy);
        fields.insert("propagationPolicy".to_owned(), policy);
    }
    Value::Object(fields)
}
