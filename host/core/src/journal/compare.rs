//! Comparing what a guest decided with what it decides again.

use std::fmt;

use super::strip;
use super::wire::{Wire, is_same};
use crate::plan::{Decision, PatchKind, Plan, Step};
use crate::untrusted::shorten;

/// The longest text of a value, in bytes.
const LONGEST: usize = 400;

/// The first part in which two answers differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The position of the decision, which is that of its item in the call.
    pub item: usize,
    /// The part of the decision.
    pub part: DecisionPart,
    /// What was recorded.
    pub recorded: String,
    /// What the guest decides now.
    pub replayed: String,
}

/// A part of a decision. Commands, plans and steps have their positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionPart {
    /// The decision itself: one of the answers lacks it.
    Decision,
    /// The verdict.
    Verdict,
    /// How many plans are executed at once.
    Parallel,
    /// A command.
    Command(usize),
    /// A plan that one of the decisions lacks.
    Plan(usize),
    /// A field of a plan.
    PlanField(usize, &'static str),
    /// A step of a plan.
    Step(usize, usize),
}

impl fmt::Display for DecisionPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decision => f.write_str("the decision"),
            Self::Verdict => f.write_str("the verdict"),
            Self::Parallel => f.write_str("the number of parallel plans"),
            Self::Command(command) => write!(f, "command {command}"),
            Self::Plan(plan) => write!(f, "plan {plan}"),
            Self::PlanField(plan, field) => write!(f, "the {field} of plan {plan}"),
            Self::Step(plan, step) => write!(f, "step {step} of plan {plan}"),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            item,
            part,
            recorded,
            replayed,
        } = self;
        write!(
            f,
            "item {item}: {part} differs: recorded {recorded}, now {replayed}"
        )
    }
}

/// The first part in which a new answer differs from the recorded one; none if they are the
/// same to the bit. The data of Secrets does not count: it is not recorded.
#[must_use]
pub fn compare(recorded: &[Decision], replayed: &[Decision]) -> Option<Difference> {
    difference(recorded, &strip::decisions(replayed.to_vec()))
}

/// The first part in which two answers to the same call differ; none if they are the same to
/// the bit.
#[must_use]
pub fn difference(recorded: &[Decision], replayed: &[Decision]) -> Option<Difference> {
    let count = recorded.len().max(replayed.len());
    (0..count).find_map(|item| {
        let (part, recorded, replayed) = match (recorded.get(item), replayed.get(item)) {
            (Some(recorded), Some(replayed)) => decision(recorded, replayed)?,
            (recorded, replayed) => (DecisionPart::Decision, text(recorded), text(replayed)),
        };
        Some(Difference {
            item,
            part,
            recorded,
            replayed,
        })
    })
}

/// A part, and both values as texts.
type Part = (DecisionPart, String, String);

fn decision(recorded: &Decision, replayed: &Decision) -> Option<Part> {
    if is_same(recorded, replayed) {
        return None;
    }
    let commands = positions(&recorded.commands, &replayed.commands);
    let mut commands = commands.filter(|(_, old, new)| !same_option(*old, *new));
    let command = commands
        .next()
        .map(|(at, old, new)| (DecisionPart::Command(at), text(old), text(new)));
    let mut plans = positions(&recorded.plans, &replayed.plans);
    let plan = || {
        plans.find_map(|(at, old, new)| match (old, new) {
            (Some(old), Some(new)) => plan(at, old, new),
            (old, new) => Some((DecisionPart::Plan(at), plan_text(old), plan_text(new))),
        })
    };
    command.or_else(plan).or_else(|| {
        if recorded.verdict == replayed.verdict {
            let (old, new) = (recorded.parallel, replayed.parallel);
            return Some((DecisionPart::Parallel, old.to_string(), new.to_string()));
        }
        let (old, new) = (&recorded.verdict, &replayed.verdict);
        Some((DecisionPart::Verdict, debug(old), debug(new)))
    })
}

fn plan(at: usize, recorded: &Plan, replayed: &Plan) -> Option<Part> {
    if is_same(recorded, replayed) {
        return None;
    }
    let field = |name| DecisionPart::PlanField(at, name);
    let (old, new) = (recorded, replayed);
    if old.target != new.target {
        return Some((
            field("target"),
            old.target.to_string(),
            new.target.to_string(),
        ));
    }
    for (name, old, new) in [
        ("reason", &old.reason, &new.reason),
        ("message", &old.message, &new.message),
    ] {
        if old != new {
            return Some((field(name), debug(old), debug(new)));
        }
    }
    for (position, old, new) in positions(&recorded.steps, &replayed.steps) {
        if !same_option(old, new) {
            let part = DecisionPart::Step(at, position);
            return Some((part, step_text(old), step_text(new)));
        }
    }
    if old.when_cancelled != new.when_cancelled {
        let part = field("condition");
        return Some((part, debug(&old.when_cancelled), debug(&new.when_cancelled)));
    }
    Some((
        field("measures"),
        debug(&old.measures),
        debug(&new.measures),
    ))
}

/// The values of two lists at each position.
fn positions<'a, T>(
    one: &'a [T],
    other: &'a [T],
) -> impl Iterator<Item = (usize, Option<&'a T>, Option<&'a T>)> {
    let count = one.len().max(other.len());
    (0..count).map(|at| (at, one.get(at), other.get(at)))
}

fn same_option<T: Wire>(one: Option<&T>, other: Option<&T>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => is_same(one, other),
        _ => false,
    }
}

fn text<T: fmt::Debug>(value: Option<&T>) -> String {
    value.map_or_else(nothing, debug)
}

fn debug<T: fmt::Debug>(value: &T) -> String {
    cut(format!("{value:?}"))
}

fn plan_text(plan: Option<&Plan>) -> String {
    plan.map_or_else(nothing, |plan| {
        cut(format!("{} {}: {}", plan.reason, plan.target, plan.message))
    })
}

/// A step as text, with its body as JSON.
fn step_text(step: Option<&Step>) -> String {
    let Some(step) = step else {
        return nothing();
    };
    let json = |body: &[u8]| {
        let value = rmp_serde::from_slice::<serde_json::Value>(body);
        value.map_or_else(|_| "unreadable".to_owned(), |value| value.to_string())
    };
    cut(match step {
        Step::Patch(patch) => {
            let kind = match patch.kind {
                PatchKind::StrategicMerge => "strategic merge",
                PatchKind::Merge => "merge",
                PatchKind::Json => "JSON",
            };
            let (subresource, body) = (&patch.subresource, json(&patch.body));
            format!("{kind} patch of {subresource:?}: {body}")
        }
        Step::Create(create) => format!("create {}: {}", create.object, json(&create.body)),
        Step::Apply(apply) => {
            let force = if apply.force { "force " } else { "" };
            let (object, subresource) = (&apply.object, &apply.subresource);
            format!(
                "{force}apply {object} {subresource:?}: {}",
                json(&apply.body)
            )
        }
        other => format!("{other:?}"),
    })
}

fn nothing() -> String {
    "nothing".to_owned()
}

fn cut(mut text: String) -> String {
    shorten(&mut text, LONGEST);
    text
}
