//! What a build of the guest decides otherwise than the one before.
//!
//! A build decides about every item when it starts. Once no item is due any more, its plans are
//! compared with those of the last build that came so far, object by object. The former build is
//! not called again: what it decided is compared, as long as it did not decide again.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};

use davit_core::controller::DecisionId;
use davit_core::gate::Ruling;
use davit_core::machine::{ControllerState, Report};
use davit_core::plan::{Plan, QueueKey};
use davit_core::rollout::compare;

use crate::http::disagreements::Target;

/// The most plans of a build that are compared.
const MOST_PLANS: usize = 100_000;
/// The most objects that a line names for each result.
const MOST_NAMED: usize = 10;
/// How many reports of the state in a row find nothing due before a build is compared. The pages
/// of a resync follow each other faster.
const CALM: u32 = 2;

/// The present build, and the one that it is compared with.
#[derive(Default)]
pub(super) struct Builds {
    former: Option<Build>,
    present: Build,
}

/// A build that runs or ran.
#[derive(Default)]
struct Build {
    /// Its number, counted from 1; 0 before the first one.
    number: u32,
    /// The dry run's plans, by the item that they were decided for.
    decisions: BTreeMap<QueueKey, Decision>,
    /// The number of all plans.
    plans: usize,
    /// Whether there were more plans than are compared.
    is_partial: bool,
    failed_calls: u64,
    retried: BTreeSet<QueueKey>,
    /// Whether anything has happened since the last report of the state.
    is_busy: bool,
    /// The reports of the state since then.
    calm: u32,
}

struct Decision {
    id: DecisionId,
    plans: Vec<(Subject, u64)>,
}

/// The object of a plan.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Subject {
    /// `v1 Pod`
    kind: String,
    /// `namespace/name`
    name: String,
}

impl Subject {
    fn of(plan: &Plan) -> Self {
        let Target {
            api_version,
            kind,
            namespace,
            name,
            ..
        } = Target::from(&plan.target);
        let kind = format!("{api_version} {kind}");
        let name = match namespace.as_str() {
            "" => name,
            namespace => format!("{namespace}/{name}"),
        };
        Self { kind, name }
    }
}

impl Builds {
    /// A build starts to run; returns its number.
    pub(super) fn start(&mut self) -> u32 {
        let number = self.present.number + 1;
        let next = Build {
            number,
            is_busy: true,
            ..Build::default()
        };
        let before = std::mem::replace(&mut self.present, next);
        if before.is_complete() {
            self.former = Some(before);
        }
        number
    }

    /// Adds what the host reports. Returns how the build differs from the former one, once it
    /// has decided about everything: one line for each kind of object. For the first build, the
    /// line has the number of objects.
    pub(super) fn add(&mut self, report: &Report) -> Vec<String> {
        match report {
            Report::State(state) => {
                let mut controllers = state.controllers.iter();
                if self.present.has_settled(controllers.next()) {
                    return self.differences();
                }
            }
            Report::Ruled {
                item,
                decision,
                plan,
                ruling: Ruling::DryRun,
                ..
            } => self.present.decide(item, *decision, plan),
            Report::Called { failure, .. } => {
                self.present.is_busy = true;
                self.present.failed_calls += u64::from(failure.is_some());
            }
            Report::Retried { item, .. } => {
                self.present.is_busy = true;
                self.present.retried.insert(item.clone());
            }
            Report::Reconciled { item, decision, .. } => self.present.end(item, *decision),
            Report::Dequeued { .. } => self.present.is_busy = true,
            _ => {}
        }
        Vec::new()
    }

    fn differences(&self) -> Vec<String> {
        let present = self.present.subjects();
        let doubt = self.present.doubt();
        let Some(former) = &self.former else {
            let (number, objects) = (self.present.number, present.len());
            return vec![format!(
                "build {number}: plans for {objects} objects{doubt}"
            )];
        };
        let kinds = compared(&former.subjects(), &present);
        let prefix = format!("compared with build {}", former.number);
        let differs = |kind: &&(String, Kind)| !kind.1.is_same();
        let lines: Vec<String> = kinds
            .iter()
            .filter(differs)
            .map(|(name, kind)| format!("{prefix}: {name}: {}{doubt}", kind.text()))
            .collect();
        if !lines.is_empty() {
            return lines;
        }
        let same: usize = kinds.iter().map(|(_, kind)| kind.same).sum();
        vec![format!(
            "{prefix}: nothing differs, {same} as before{doubt}"
        )]
    }
}

impl Build {
    /// Whether the plans of all items are known.
    fn is_complete(&self) -> bool {
        self.number > 0 && self.calm >= CALM && self.doubt().is_empty()
    }

    /// Whether nothing is due since just now.
    fn has_settled(&mut self, controller: Option<&ControllerState>) -> bool {
        let is_due = controller.is_none_or(|one| {
            let mut queues = one.queues.iter();
            queues.any(|queue| queue.depth + queue.processing > 0)
        });
        if self.calm >= CALM {
            return false;
        }
        if std::mem::take(&mut self.is_busy) || is_due {
            self.calm = 0;
        } else {
            self.calm += 1;
        }
        self.calm == CALM
    }

    fn decide(&mut self, item: &QueueKey, id: DecisionId, plan: &Plan) {
        self.is_busy = true;
        self.retried.remove(item);
        let decision = self.decisions.entry(item.clone());
        let decision = decision.or_insert_with(|| Decision {
            id,
            plans: Vec::new(),
        });
        if decision.id != id {
            self.plans -= decision.plans.len();
            *decision = Decision {
                id,
                plans: Vec::new(),
            };
        }
        if self.plans >= MOST_PLANS {
            self.is_partial = true;
            return;
        }
        self.plans += 1;
        let effect = compare::effect(plan);
        decision.plans.push((Subject::of(plan), effect));
    }

    /// A decision has ended. If it had no plan, those of the item's earlier decision count no
    /// more.
    fn end(&mut self, item: &QueueKey, id: DecisionId) {
        self.is_busy = true;
        if let Entry::Occupied(entry) = self.decisions.entry(item.clone())
            && entry.get().id != id
        {
            self.plans -= entry.remove().plans.len();
        }
    }

    /// What a build plans for each object.
    fn subjects(&self) -> BTreeMap<&Subject, Vec<u64>> {
        let mut subjects: BTreeMap<&Subject, Vec<u64>> = BTreeMap::new();
        let plans = self.decisions.values().flat_map(|one| &one.plans);
        for (subject, effect) in plans {
            subjects.entry(subject).or_default().push(*effect);
        }
        for effects in subjects.values_mut() {
            effects.sort_unstable();
        }
        subjects
    }

    /// Why plans may be missing; empty if none is.
    fn doubt(&self) -> String {
        let mut reasons = Vec::new();
        if self.failed_calls > 0 {
            reasons.push(format!("failed calls: {}", self.failed_calls));
        }
        if !self.retried.is_empty() {
            reasons.push(format!("items to retry: {}", self.retried.len()));
        }
        if self.is_partial {
            reasons.push(format!("only {MOST_PLANS} plans are compared"));
        }
        match reasons.as_slice() {
            [] => String::new(),
            reasons => format!(" ({})", reasons.join(", ")),
        }
    }
}

/// The objects of one kind, by result.
#[derive(Debug, Default, PartialEq)]
struct Kind {
    fewer: Vec<String>,
    more: Vec<String>,
    different: Vec<String>,
    same: usize,
}

impl Kind {
    fn is_same(&self) -> bool {
        self.fewer.is_empty() && self.more.is_empty() && self.different.is_empty()
    }

    /// `2 fewer (ci/a, ci/b), 1 as before`
    fn text(&self) -> String {
        let results = [
            (&self.fewer, "fewer"),
            (&self.more, "more"),
            (&self.different, "different"),
        ];
        let results = results.into_iter().filter(|(names, _)| !names.is_empty());
        let mut parts: Vec<String> = results
            .map(|(names, result)| format!("{} {result} ({})", names.len(), listed(names)))
            .collect();
        if self.same > 0 {
            parts.push(format!("{} as before", self.same));
        }
        parts.join(", ")
    }
}

fn listed(names: &[String]) -> String {
    let (named, others) = names.split_at(names.len().min(MOST_NAMED));
    let mut text = named.join(", ");
    if !others.is_empty() {
        text = format!("{text} and {} more", others.len());
    }
    text
}

/// The objects for which two builds plan anything, by kind.
fn compared(
    former: &BTreeMap<&Subject, Vec<u64>>,
    present: &BTreeMap<&Subject, Vec<u64>>,
) -> Vec<(String, Kind)> {
    let mut kinds: BTreeMap<&str, Kind> = BTreeMap::new();
    let subjects: BTreeSet<&Subject> = former.keys().chain(present.keys()).copied().collect();
    for subject in subjects {
        let kind = kinds.entry(&subject.kind).or_default();
        let name = subject.name.clone();
        match (former.get(subject), present.get(subject)) {
            (one, other) if one == other => kind.same += 1,
            (Some(_), None) => kind.fewer.push(name),
            (None, _) => kind.more.push(name),
            (Some(_), Some(_)) => kind.different.push(name),
        }
    }
    let kinds = kinds.into_iter();
    kinds.map(|(kind, it)| (kind.to_owned(), it)).collect()
}

#[cfg(test)]
mod tests;
