//! Why a rule acts on an object or does not, by the same turns that decide it.

use std::collections::BTreeMap;

use davit_guest::Object;
use davit_guest::dynamic::Value;

use super::group::{ExcessAct, Exclusion, Group, ORDER};
use super::{Act, Call, Turn, Wait};
use crate::cel::Expression;
use crate::evaluate::Evaluator;
use crate::explanation::{Finding, ObjectExplanation, Verdict};
use crate::judge::{Outcome, RELATED};
use crate::keep::{Keep, Ordered};
use crate::rule::Rule;
use crate::sources::Source;

/// The groups of one source that were divided already, by rule and what their objects have in
/// common.
type Groups = BTreeMap<(String, String), Group>;

impl Call<'_> {
    /// What the rules would do with the objects of all sources.
    pub(crate) fn explain(&self) -> Vec<ObjectExplanation> {
        let mut objects = Vec::new();
        for source in &self.policy.sources.matched {
            let mut groups = Groups::new();
            for object in self.cx.watch(source.name).scan() {
                objects.push(ObjectExplanation {
                    watch: source.name.as_str().to_owned(),
                    findings: self.findings(source, &object, &mut groups),
                    object: object.reference,
                });
            }
        }
        objects
    }

    /// The order of the turns, and where they end, is that of a call about the object.
    fn findings(
        &self,
        source: &Source,
        object: &Object<Value>,
        groups: &mut Groups,
    ) -> Vec<Finding> {
        let key = object.reference.key();
        let mut findings = Vec::new();
        let mut acting: Option<&str> = None;
        for rule in self.policy.rules_of(source) {
            if let Some(by) = acting {
                let by = by.to_owned();
                // The other objects of its group lead to it too.
                if rule.keep.is_some()
                    && let (turn @ (Turn::Group | Turn::OneByOne), changes_at) =
                        self.turn(rule, source, object, &key)
                {
                    let verdict = self.verdict(rule, source, object, turn, groups);
                    findings.push(finding(rule, verdict, changes_at, Vec::new()));
                    continue;
                }
                findings.push(finding(rule, Verdict::Preceded { by }, None, Vec::new()));
                continue;
            }
            let (turn, changes_at) = self.turn(rule, source, object, &key);
            let ends_here = match &turn {
                Turn::Eviction | Turn::Act(Act::Plan(_)) => true,
                Turn::OneByOne => rule.keep.is_none(),
                Turn::Act(Act::Later(_)) | Turn::Passed(Outcome::Unknown(_)) => {
                    !rule.actions.is_only_event()
                }
                _ => false,
            };
            if ends_here {
                acting = Some(&rule.name);
            }
            let values = match &turn {
                Turn::Passed(outcome) => self.values(rule, object, outcome),
                _ => Vec::new(),
            };
            let verdict = self.verdict(rule, source, object, turn, groups);
            findings.push(finding(rule, verdict, changes_at, values));
        }
        findings
    }

    fn verdict(
        &self,
        rule: &Rule,
        source: &Source,
        object: &Object<Value>,
        turn: Turn,
        groups: &mut Groups,
    ) -> Verdict {
        match turn {
            Turn::Passed(outcome) => passed(rule, object, outcome),
            Turn::Noted { .. } => Verdict::Recorded,
            Turn::Terminating => Verdict::Terminating,
            Turn::Claimed { by } => Verdict::Preceded { by },
            Turn::Group => self.in_group(rule, source, object, groups),
            Turn::OneByOne if rule.keep.is_some() => self.in_group(rule, source, object, groups),
            Turn::Eviction | Turn::OneByOne => match self.claim(rule, source, object) {
                Some(by) => preceded(by),
                None => of_act(rule, self.act(rule, object, false)),
            },
            Turn::Act(act) => of_act(rule, act),
        }
    }

    fn in_group(
        &self,
        rule: &Rule,
        source: &Source,
        object: &Object<Value>,
        groups: &mut Groups,
    ) -> Verdict {
        let Some(keep) = &rule.keep else {
            return Verdict::NoGroup;
        };
        let Some(name) = keep.group_of(object) else {
            return Verdict::NoGroup;
        };
        let group = groups
            .entry((rule.name.clone(), name.clone()))
            .or_insert_with(|| self.divided(rule, keep, source, &name));
        let key = object.reference.key();
        match group.left_out.get(&key) {
            Some(Exclusion::Ended { by }) => return Verdict::Preceded { by: by.clone() },
            Some(Exclusion::Unordered(message)) => {
                return Verdict::Failed {
                    expression: ORDER.to_owned(),
                    message: message.clone(),
                };
            }
            None => {}
        }
        let position = |objects: &[Ordered]| objects.iter().position(|it| it.key == key);
        match position(&group.excess) {
            None => kept(keep, group, &name, position(&group.spared)),
            Some(_) if group.is_unproven => Verdict::Unproven,
            Some(place) if place >= rule.most_acts() => Verdict::NextCall,
            Some(_) => match self.act_on_excess(rule, source, &key) {
                ExcessAct::Act(act) => of_act(rule, act),
                ExcessAct::Claimed => match self.claim(rule, source, object) {
                    Some(by) => preceded(by),
                    None => Verdict::Unproven,
                },
            },
        }
    }

    /// What the deciding expression reads of the object, and of what is related to it.
    fn values(
        &self,
        rule: &Rule,
        object: &Object<Value>,
        outcome: &Outcome,
    ) -> Vec<(String, String)> {
        let of_clause = |text: &str| {
            let mut clauses = rule.clauses.iter();
            let clause = clauses.find(|clause| *clause.text == *text);
            clause.map(|clause| &clause.expression)
        };
        let expression = match outcome {
            Outcome::Not { clause, .. } => of_clause(clause),
            Outcome::Spared { .. } => rule.unless.as_ref(),
            Outcome::Failed { expression, .. } if expression == "unless" => rule.unless.as_ref(),
            Outcome::Failed { expression, .. } => of_clause(expression),
            Outcome::OtherNamespace
            | Outcome::OtherOwner
            | Outcome::Unknown(_)
            | Outcome::Selected => None,
        };
        let Some(expression) = expression else {
            return Vec::new();
        };
        self.judge(rule, object, |evaluator, _| read(expression, evaluator))
    }
}

fn finding(
    rule: &Rule,
    verdict: Verdict,
    changes_at: Option<i64>,
    values: Vec<(String, String)>,
) -> Finding {
    Finding {
        rule: rule.name.clone(),
        verdict,
        changes_at,
        values,
    }
}

fn preceded(by: &Rule) -> Verdict {
    Verdict::Preceded {
        by: by.name.clone(),
    }
}

fn passed(rule: &Rule, object: &Object<Value>, outcome: Outcome) -> Verdict {
    match outcome {
        Outcome::OtherNamespace => Verdict::NotMatched(other_namespace(rule, object)),
        Outcome::OtherOwner => Verdict::NotMatched(outcome.to_string()),
        Outcome::Not { clause, absent } => Verdict::Not {
            clause: clause.to_string(),
            absent,
        },
        Outcome::Spared { absent } => Verdict::Spared {
            unless: rule.texts.unless.clone(),
            absent,
        },
        Outcome::Failed {
            expression,
            message,
        } => Verdict::Failed {
            expression,
            message,
        },
        Outcome::Unknown(message) => Verdict::Failed {
            expression: RELATED.to_owned(),
            message,
        },
        Outcome::Selected => Verdict::Unchanged,
    }
}

fn other_namespace(rule: &Rule, object: &Object<Value>) -> String {
    let namespace = &object.reference.namespace;
    let namespaces = &rule.matches.namespaces;
    if namespaces.is_empty() || namespaces.contains(namespace) {
        format!("match.namespaceSelector does not select the namespace {namespace}")
    } else {
        format!("match.namespaces does not have {namespace}")
    }
}

fn kept(keep: &Keep, group: &Group, name: &str, position: Option<usize>) -> Verdict {
    let selected = group.spared.len() + group.excess.len();
    let is_full = selected > keep.above;
    Verdict::Kept {
        // What is spared before all others comes last.
        place: position
            .filter(|_| is_full)
            .map(|at| group.spared.len() - at),
        selected,
        keeps: keep.count,
        above: keep.above,
        group: name.to_owned(),
    }
}

fn of_act(rule: &Rule, act: Act) -> Verdict {
    match act {
        Act::Plan(plan) => Verdict::Acts {
            plan,
            deletes_after: rule.actions.eviction_deadline(),
        },
        Act::Nothing => Verdict::Unchanged,
        Act::Later(Wait::Unproven) => Verdict::Unproven,
        Act::Later(Wait::Changed) => Verdict::NextCall,
        Act::Later(Wait::Failed(message)) => Verdict::Failed {
            expression: "do".to_owned(),
            message,
        },
        Act::Later(Wait::Held(hold)) => Verdict::Held {
            hold: rule.texts.hold.clone(),
            counts: hold.counts,
            failure: hold.failure,
        },
    }
}

/// The fields that an expression reads, with their values in short.
fn read(expression: &Expression, evaluator: &Evaluator<'_>) -> Vec<(String, String)> {
    let mut values: Vec<(String, String)> = Vec::new();
    for slot in expression.slots() {
        let name = format!("{}{}", slot.binding, slot.path.below());
        if values.iter().any(|(known, _)| *known == name) {
            continue;
        }
        let object = evaluator.objects.get(&slot.binding);
        let value = object.and_then(|object| object.at(slot.path.keys()));
        values.push((name, in_short(value)));
    }
    values
}

/// The longest text of a value, in bytes.
const LONGEST: usize = 120;

fn in_short(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "not set".to_owned(),
        Some(Value::Text(text)) => {
            let end = text.floor_char_boundary(LONGEST);
            let rest = if end < text.len() { "…" } else { "" };
            format!("{:?}{rest}", &text[..end])
        }
        Some(Value::Bool(value)) => value.to_string(),
        Some(Value::Int(value)) => value.to_string(),
        Some(Value::Float(value)) => value.to_string(),
        Some(Value::List(elements)) => format!("a list of {}", elements.len()),
        Some(Value::Map(entries)) => {
            let names: Vec<&str> = entries.iter().map(|(name, _)| name.as_str()).collect();
            format!("a map of {}", names.join(", "))
        }
    }
}
