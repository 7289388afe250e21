//! The decisions about one object, in order. `docs/operating.md` has the form as JSON.

use std::collections::BTreeMap;

use davit_core::controller::DecisionId;
use davit_core::gate::Ruling;
use davit_core::journal::{ExecutionEntry, RulingEntry};
use serde::Serialize;
use serde_json::Value;

use super::requests::{PreparedRequest, ReportedRequest, left, reported_requests};
use crate::commands::journal::plans::{self, PlanProgress};
use crate::commands::journal::{ReportedRead, time};
use crate::http::disagreements::{Step, Target};

/// A decision about an object, or a call about it that failed.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReportedDecision {
    pub(super) time: String,
    pub(super) controller: String,
    pub(super) revision: Revision,
    /// The decision's name; none for the failure of a call without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) decision: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) item: Option<Item>,
    pub(super) saw: Saw,
    /// What was decided.
    #[serde(flatten)]
    pub(super) content: Content,
    pub(super) took_millis: u64,
    /// How often it was decided so in a row.
    pub(super) count: u64,
    pub(super) last_time: String,
    /// What the guest saw the last time; none if it saw the same as the first time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_saw: Option<Saw>,
}

/// The revision that decided.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Revision {
    pub(super) name: String,
    pub(super) role: &'static str,
    /// `sha256:…`; empty if the journal does not have the revision.
    pub(super) module: String,
    /// The SHA-256 of the configuration that the guest received, in the same form.
    pub(super) configuration: String,
    /// The configuration; none if the journal does not have the revision.
    pub(super) config: Option<Value>,
}

/// The work item.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Item {
    pub(super) queue: String,
    pub(super) key: String,
    /// What made it due; `page` for a further page of a decision.
    pub(super) reason: &'static str,
    pub(super) attempt: u32,
}

/// What the guest saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Saw {
    /// The object in each watch of the revision that has it, by the watch's name.
    pub(super) object: BTreeMap<String, Value>,
    pub(super) related: Vec<Related>,
    /// The live reads of the whole call.
    pub(super) live_reads: Vec<ReportedRead>,
    /// Why it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unknown: Option<String>,
}

/// An object that the object depends on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Related {
    /// `owner` or `node`.
    pub(super) relation: &'static str,
    pub(super) kind: String,
    pub(super) name: String,
    /// Its fields; none if the guest's watches did not have it.
    pub(super) fields: Option<Value>,
}

/// What two decisions have in common if one repeats the other.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Content {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) verdict: Option<String>,
    pub(super) plans: Vec<ReportedPlan>,
    /// How many plans the decision has about other objects.
    pub(super) other_plans: usize,
    pub(super) commands: Vec<String>,
    /// Why the call failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<String>,
    /// Whether the answer came too late, and counted for nothing.
    pub(super) is_void: bool,
}

/// A plan, and its outcome.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReportedPlan {
    pub(super) target: Target,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) steps: Vec<Step>,
    pub(super) actions: String,
    /// The ruling. What had to wait is decided again, as another plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ruling: Option<ReportedRuling>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) execution: Option<ReportedExecution>,
    /// The writes of its steps; none for a step that sends nothing.
    #[serde(skip)]
    pub(super) writes: Vec<Option<PreparedRequest>>,
}

/// What the gate ruled, and on which grounds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct ReportedRuling {
    pub(super) ruling: &'static str,
    pub(super) message: String,
}

/// How the execution of a plan ended.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReportedExecution {
    /// `ok`, or the failure class.
    pub(super) result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<String>,
    pub(super) took_millis: u64,
    /// The writes, and how they were answered.
    pub(super) requests: Vec<ReportedRequest>,
    /// What they left of the object; none if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) left: Option<String>,
}

/// Its duration is not what was decided, nor are the versions that it left.
impl PartialEq for ReportedExecution {
    fn eq(&self, other: &Self) -> bool {
        (self.result, &self.message) == (other.result, &other.message)
    }
}

impl ReportedDecision {
    /// Whether it comes from the same revision and the same item. The reason that made the item
    /// due may be another one.
    fn is_of(&self, other: &Self) -> bool {
        let item = |reported: &Self| {
            let item = reported.item.as_ref();
            item.map(|item| (item.queue.clone(), item.key.clone()))
        };
        self.controller == other.controller
            && self.revision == other.revision
            && item(self) == item(other)
    }
}

/// The decisions about one object.
#[derive(Clone, Debug, Default)]
pub(super) struct Story {
    /// In order, by a number that grows.
    reported: BTreeMap<u64, (DecisionId, ReportedDecision)>,
    next: u64,
    /// The decisions with plans, by their names, until a host starts again.
    open: BTreeMap<DecisionId, Vec<u64>>,
}

impl Story {
    /// Adds a decision. What repeats the one before it takes no further memory, once the outcome
    /// of its plans is known.
    pub(super) fn add(&mut self, id: DecisionId, reported: ReportedDecision) {
        let has_plans = !reported.content.plans.is_empty();
        let mut before = self.reported.iter_mut().rev();
        let last = before.find(|(_, (_, last))| last.is_of(&reported));
        if let Some((_, (_, last))) = last
            && !has_plans
            && last.content == reported.content
        {
            repeat(last, &reported);
            return;
        }
        // The item is decided again: the plans of its last decision are over.
        let place = last.map(|(place, _)| *place);
        let is_other_page = self.open.contains_key(&id);
        if let Some(place) = place.filter(|_| !is_other_page) {
            self.fold(place);
        }
        if has_plans {
            self.open.entry(id).or_default().push(self.next);
        }
        self.reported.insert(self.next, (id, reported));
        self.next += 1;
    }

    /// Counts a decision in the one before it of its item, if it repeats that one and is over.
    fn fold(&mut self, place: u64) {
        let Some((id, reported)) = self.reported.get(&place) else {
            return;
        };
        let id = *id;
        if !reported.content.plans.iter().all(ReportedPlan::is_over) {
            return;
        }
        let mut before = self.reported.range(..place).rev();
        let first = before.find(|(_, (_, first))| first.is_of(reported));
        let Some((first, _)) = first.filter(|(_, (_, it))| it.content == reported.content) else {
            return;
        };
        let first = *first;
        if let Some((_, reported)) = self.reported.remove(&place)
            && let Some((_, first)) = self.reported.get_mut(&first)
        {
            repeat(first, &reported);
        }
        if let Some(pages) = self.open.get_mut(&id) {
            pages.retain(|page| *page != place);
            if pages.is_empty() {
                self.open.remove(&id);
            }
        }
    }

    /// A host has started: the names of decisions mean others from now on.
    pub(super) fn restart(&mut self) {
        self.open.clear();
    }

    pub(super) fn rule(&mut self, entry: &RulingEntry) {
        let target = Target::from(&entry.target);
        let place = plans::ruled(self.plans(entry.decision, &target), &entry.reason);
        if let Some(plan) = place.and_then(|place| self.plan(place)) {
            plan.ruling = Some(ReportedRuling {
                ruling: entry.ruling.as_str(),
                message: entry.ruling.to_string(),
            });
        }
    }

    pub(super) fn execute(&mut self, entry: &ExecutionEntry) {
        let target = Target::from(&entry.target);
        let place = plans::executed(self.plans(entry.decision, &target), &entry.reason);
        if let Some(plan) = place.and_then(|place| self.plan(place)) {
            let failed = entry.outcome.failed.as_ref();
            plan.execution = Some(ReportedExecution {
                result: failed.map_or("ok", |(_, failure)| failure.class.as_str()),
                message: failed.map(|(_, failure)| failure.message.clone()),
                took_millis: millis(entry.took),
                requests: reported_requests(&plan.writes, &entry.outcome),
                left: left(&entry.outcome),
            });
        }
    }

    /// The plans of a decision about an object, in their order: the number of the page and the
    /// place in it.
    fn plans(
        &self,
        id: DecisionId,
        target: &Target,
    ) -> impl Iterator<Item = ((u64, usize), &str, PlanProgress)> {
        let pages = self.open.get(&id).into_iter().flatten();
        let pages = pages.filter_map(|page| Some((*page, self.reported.get(page)?)));
        pages.flat_map(move |(page, (_, reported))| {
            let plans = reported.content.plans.iter().enumerate();
            let about = plans.filter(move |(_, plan)| plan.target == *target);
            about.map(move |(place, plan)| ((page, place), &*plan.reason, plan.progress()))
        })
    }

    fn plan(&mut self, (page, place): (u64, usize)) -> Option<&mut ReportedPlan> {
        let (_, reported) = self.reported.get_mut(&page)?;
        reported.content.plans.get_mut(place)
    }

    /// The decisions, the oldest first. Those that repeat identically are one.
    pub(super) fn folded(self) -> Vec<ReportedDecision> {
        let mut folded: Vec<ReportedDecision> = Vec::new();
        for (_, reported) in self.reported.into_values() {
            let last = folded.iter_mut().rev().find(|last| last.is_of(&reported));
            match last {
                Some(last) if last.content == reported.content => repeat(last, &reported),
                _ => folded.push(reported),
            }
        }
        folded
    }
}

impl ReportedPlan {
    /// Whether no outcome follows any more.
    fn is_over(&self) -> bool {
        self.progress() == PlanProgress::Over
    }

    fn progress(&self) -> PlanProgress {
        match &self.ruling {
            _ if self.execution.is_some() => PlanProgress::Over,
            None => PlanProgress::Decided,
            Some(ruling) if ruling.ruling == Ruling::Admit.as_str() => PlanProgress::Admitted,
            Some(_) => PlanProgress::Over,
        }
    }
}

fn repeat(first: &mut ReportedDecision, again: &ReportedDecision) {
    first.count += again.count;
    first.last_time.clone_from(&again.last_time);
    let last = again.last_saw.as_ref().unwrap_or(&again.saw);
    first.last_saw = (*last != first.saw).then(|| last.clone());
}

pub(super) fn millis(took: std::time::Duration) -> u64 {
    u64::try_from(took.as_millis()).unwrap_or(u64::MAX)
}

/// The time of a decision that was not repeated.
pub(super) fn at(reported: ReportedDecision, micros: i64) -> ReportedDecision {
    let time = time(micros);
    ReportedDecision {
        last_time: time.clone(),
        time,
        count: 1,
        ..reported
    }
}

#[cfg(test)]
mod tests {
    use davit_core::controller::{CallId, ControllerId};

    use super::*;

    fn id(number: u64) -> DecisionId {
        DecisionId {
            call: CallId {
                controller: ControllerId(1),
                number,
            },
            position: 0,
        }
    }

    fn reported(
        seconds: i64,
        key: &str,
        verdict: &str,
        plans: Vec<ReportedPlan>,
    ) -> ReportedDecision {
        let reported = ReportedDecision {
            controller: "podgc".to_owned(),
            item: Some(Item {
                key: key.to_owned(),
                ..Item::default()
            }),
            content: Content {
                verdict: Some(verdict.to_owned()),
                plans,
                ..Content::default()
            },
            ..ReportedDecision::default()
        };
        at(reported, seconds * 1_000_000)
    }

    fn plan() -> ReportedPlan {
        ReportedPlan {
            target: Target::from(&davit_core::object::ObjectRef::default()),
            reason: "orphaned".to_owned(),
            message: String::new(),
            steps: Vec::new(),
            actions: "delete".to_owned(),
            ruling: None,
            execution: None,
            writes: Vec::new(),
        }
    }

    /// The plan that a ruling with this reason is about.
    fn found<'s>(story: &'s mut Story, number: u64, reason: &str) -> Option<&'s mut ReportedPlan> {
        let target = plan().target;
        let place = plans::ruled(story.plans(id(number), &target), reason);
        place.and_then(|place| story.plan(place))
    }

    fn summary(story: Story) -> Vec<(String, u64, String)> {
        let folded = story.folded().into_iter();
        let text = |time: &str| time[14..19].to_owned();
        folded
            .map(|reported| {
                (
                    text(&reported.time),
                    reported.count,
                    text(&reported.last_time),
                )
            })
            .collect()
    }

    /// A pod that fails: the guest decides the same, and has seen it.
    #[test]
    fn a_repeated_decision_has_what_the_guest_saw_the_last_time() {
        let phases = ["Running", "Failed", "Running"];
        for (count, last) in [(1, None), (2, Some("Failed")), (3, None)] {
            let mut story = Story::default();
            for (number, phase) in (1..).zip(&phases[..count]) {
                let mut one = reported(number, "a", "done", Vec::new());
                one.saw.object.insert("pods".to_owned(), (*phase).into());
                story.add(id(number.unsigned_abs()), one);
            }
            let [folded] = &*story.folded() else {
                panic!("{count} are one");
            };
            assert_eq!(folded.saw.object["pods"], "Running");
            let seen = folded.last_saw.as_ref().map(|saw| &saw.object["pods"]);
            assert_eq!(seen, last.map(serde_json::Value::from).as_ref());
        }
    }

    #[test]
    fn decisions_that_repeat_identically_are_one_with_a_count_and_the_last_time() {
        let mut story = Story::default();
        for (second, key, verdict) in [
            (1, "a", "done"),
            (2, "b", "done"),
            (3, "a", "done"),
            (4, "a", "retry"),
            (5, "a", "done"),
        ] {
            let number = u64::try_from(second).unwrap();
            story.add(id(number), reported(second, key, verdict, Vec::new()));
        }
        let expected = [("00:01", 2, "00:03"), ("00:02", 1, "00:02")];
        let expected = expected
            .into_iter()
            .chain([("00:04", 1, "00:04"), ("00:05", 1, "00:05")]);
        let expected: Vec<_> = expected
            .map(|(time, count, last)| (time.to_owned(), count, last.to_owned()))
            .collect();
        assert_eq!(summary(story), expected);
    }

    #[test]
    fn plans_that_were_ruled_otherwise_are_not_one() {
        let ruled = |ruling| ReportedPlan {
            ruling: Some(ReportedRuling {
                ruling,
                message: String::new(),
            }),
            ..plan()
        };
        let mut story = Story::default();
        for (second, ruling) in [(1, "not-leading"), (2, "not-leading"), (3, "admitted")] {
            let number = u64::try_from(second).unwrap();
            story.add(
                id(number),
                reported(second, "a", "done", vec![ruled(ruling)]),
            );
        }
        let counts: Vec<u64> = summary(story).iter().map(|(_, count, _)| *count).collect();
        assert_eq!(counts, [2, 1]);
    }

    /// A week of a dry run: the guest decides the same every minute.
    #[test]
    fn a_plan_that_repeats_takes_memory_once_its_ruling_is_known() {
        let mut story = Story::default();
        for number in 1..=1_000 {
            let seconds = i64::try_from(number).unwrap();
            let one = reported(seconds, "a", "done", vec![plan()]);
            story.add(id(number), one);
            let other = reported(seconds, "b", "done", Vec::new());
            story.add(id(10_000 + number), other);
            let plan = found(&mut story, number, "orphaned").unwrap();
            plan.ruling = Some(ReportedRuling {
                ruling: Ruling::DryRun.as_str(),
                message: String::new(),
            });
            assert!(story.reported.len() <= 3, "{}", story.reported.len());
            assert!(story.open.len() <= 2, "{}", story.open.len());
        }
        let counts: Vec<u64> = summary(story).iter().map(|(_, count, _)| *count).collect();
        assert_eq!(counts, [1_000, 1_000]);
    }

    #[test]
    fn a_plan_of_an_earlier_host_gets_no_ruling_of_the_next_one() {
        let mut story = Story::default();
        story.add(id(1), reported(1, "a", "done", vec![plan()]));
        assert!(found(&mut story, 1, "orphaned").is_some());
        assert!(found(&mut story, 1, "terminated").is_none());
        story.restart();
        assert!(found(&mut story, 1, "orphaned").is_none());
    }
}
