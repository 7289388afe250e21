//! Judges what the host does by rules of its own: a budget is a count, a target has one
//! owner, and nothing runs but what was recorded.
//!
//! It knows what operators declared, as the host has heard of it, and what was written
//! to records; of the core's state it knows nothing. What was decided before a change
//! may still be executed in the same moment: so what forbids something holds from
//! [`Watchdog::settle`] on, what allows something at once.

mod budget;
mod observed;
mod record;

use std::collections::BTreeMap;
use std::sync::Arc;

use davit_core::api::{ControllerSpec, ModeConfig};
use davit_core::control::{Declaration, FileController, Notice, Requests, is_same_revision};
use davit_core::controller::PlanId;
use davit_core::machine::{Input, Report};
use davit_core::plan::Step;
use davit_core::time::{Instant, Now};

use crate::host::{ExecutedPlan, Guest};
use crate::records::Records;
use budget::Spending;
use observed::Observations;
use record::KnownRecord;

/// What it takes to judge the next plan.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    controllers: BTreeMap<String, WatchedController>,
    observations: Observations,
    /// The plans in execution.
    executing: BTreeMap<PlanId, PlanInFlight>,
    /// Whether the host has lost leadership.
    lost_leadership: bool,
    /// Whether the wall clock has jumped: what it says of times is worth nothing.
    jumped: bool,
}

/// A plan in execution.
#[derive(Debug)]
struct PlanInFlight {
    controller: String,
    /// The uid of its target.
    uid: String,
}

/// What is known of one controller.
#[derive(Debug, Default)]
struct WatchedController {
    uid: Option<String>,
    /// The last spec that could be read.
    spec: Option<ControllerSpec>,
    requests: Requests,
    /// The mode, after those that have just ended.
    modes: Vec<ModeConfig>,
    spending: Spending,
    record: KnownRecord,
    /// The revision that wrote to each target since the ownership last changed.
    owners: BTreeMap<String, Arc<str>>,
}

impl Watchdog {
    /// The host is another one, and forgot what it did.
    pub(crate) fn restarted(&mut self) {
        self.observations = Observations::default();
        self.executing.clear();
        for watched in self.controllers.values_mut() {
            watched.modes.clear();
            watched.spending = Spending::default();
            watched.record.restarted();
            watched.owners.clear();
        }
    }

    /// The wall clock jumps.
    pub(crate) fn clock_jumped(&mut self) {
        self.jumped = true;
        for watched in self.controllers.values_mut() {
            watched.record.forget_times();
        }
    }

    /// A source holds another module: a spec may describe another revision.
    pub(crate) fn modules_changed(&mut self) {
        for watched in self.controllers.values_mut() {
            watched.record.forgive();
        }
    }

    /// What was decided before the last change has been executed by now.
    pub(crate) fn settle(&mut self) {
        for watched in self.controllers.values_mut() {
            watched.record.settle();
            let former = watched.modes.len().saturating_sub(1);
            watched.modes.drain(..former);
        }
    }

    /// The host has heard of these controllers.
    pub(crate) fn declared(&mut self, all: &[Declaration], now: Now) {
        for declaration in all {
            let uid = declaration.object.as_ref().map(|object| object.uid.clone());
            let watched = self.watched(&declaration.name, uid);
            watched.request(&declaration.requests, now);
            if let Ok(spec) = &declaration.spec {
                watched.specify(spec, now);
            }
        }
    }

    /// The host has read these controllers in its file.
    pub(crate) fn applied(&mut self, all: &[FileController<Guest>], now: Now) {
        for controller in all {
            self.watched(&controller.name, None)
                .specify(&controller.spec, now);
        }
    }

    /// An operator asks something of a controller of the file.
    pub(crate) fn changed(&mut self, controller: &str, requests: &Requests, now: Now) {
        self.watched(controller, None).request(requests, now);
    }

    fn watched(&mut self, controller: &str, uid: Option<String>) -> &mut WatchedController {
        let watched = self.controllers.entry(controller.to_owned()).or_default();
        if watched.uid != uid {
            *watched = WatchedController {
                uid,
                ..WatchedController::default()
            };
        }
        watched
    }

    /// The record of a controller was read.
    pub(crate) fn remembered(&mut self, controller: &str, records: &Records, now: Now) {
        let jumped = self.jumped;
        if let Some(watched) = self.controllers.get_mut(controller) {
            let requests = watched.requests.clone();
            let last = records.written(controller).len();
            watched.record.acknowledge(controller, last, records);
            watched.record.settle();
            watched
                .record
                .take_trips(now, jumped, watched.spec.as_ref());
            watched.record.request(&requests);
            watched.owners.clear();
        }
    }

    /// The host knows that this was recorded.
    pub(crate) fn recorded(
        &mut self,
        controller: &str,
        written: usize,
        records: &Records,
        now: Now,
    ) {
        let jumped = self.jumped;
        if let Some(watched) = self.controllers.get_mut(controller)
            && watched.uid.as_deref() == records.uid(controller)
        {
            let changed = watched.record.acknowledge(controller, written, records);
            watched.record.take_trips(now, jumped, None);
            if changed {
                watched.owners.clear();
            }
        }
    }

    /// People are notified. A candidate that is withdrawn leaves its targets at once.
    pub(crate) fn notified(&mut self, controller: &str, notice: &Notice) {
        if matches!(notice.reason, "RolledBack" | "RolloutEnded" | "Swapped") {
            self.forget_owners(controller);
        }
    }

    /// Another revision runs: it may own other targets.
    pub(crate) fn reported(&mut self, report: &Report) {
        if let Report::Started { controller, .. }
        | Report::Promoted { controller, .. }
        | Report::CandidateStarted { controller, .. } = report
        {
            self.forget_owners(controller);
        }
    }

    fn forget_owners(&mut self, controller: &str) {
        if let Some(watched) = self.controllers.get_mut(controller) {
            watched.owners.clear();
        }
    }

    /// What is wrong with a call of this revision.
    pub(crate) fn calls(
        &mut self,
        controller: &str,
        revision: &Arc<str>,
        records: &Records,
    ) -> Vec<String> {
        let Some(watched) = self.controllers.get_mut(controller) else {
            return vec![format!("{controller} is not declared, and is called")];
        };
        let mut problems = Vec::new();
        if watched
            .modes
            .iter()
            .all(|mode| *mode == ModeConfig::Disabled)
        {
            problems.push(format!(
                "{controller} is disabled, and {revision} is called"
            ));
        }
        let runs = watched.record.may_run(controller, revision, records);
        problems.extend(runs.err());
        problems
    }

    /// The host gains or loses leadership.
    pub(crate) fn leads(&mut self, held: bool) {
        self.lost_leadership = !held;
    }

    /// The host receives an input.
    pub(crate) fn receives(&mut self, input: &Input, now: Instant) {
        match input {
            Input::Stream(batch) => self.observations.deliver(&batch.updates),
            Input::Executed { plan, outcome, .. } => {
                if let Some(ended) = self.executing.remove(plan) {
                    self.observations
                        .end(plan.controller, &ended.uid, outcome, now);
                }
            }
            _ => {}
        }
    }

    /// What is wrong with this plan.
    pub(crate) fn executes(
        &mut self,
        id: PlanId,
        executed: &ExecutedPlan,
        records: &Records,
    ) -> Vec<String> {
        let ExecutedPlan {
            at,
            controller,
            revision,
            plan,
        } = executed;
        let mut problems = Vec::new();
        let target = &plan.target;
        let is_same =
            |other: &PlanInFlight| other.controller == *controller && other.uid == target.uid;
        if self.executing.values().any(is_same) {
            problems.push(format!("{controller} executes two plans on {target}"));
        }
        if self.lost_leadership {
            problems.push(format!(
                "{controller} executes without leadership: {target}"
            ));
        }
        let in_flight = PlanInFlight {
            controller: controller.clone(),
            uid: target.uid.clone(),
        };
        self.executing.insert(id, in_flight);
        let Some(watched) = self.controllers.get_mut(controller) else {
            problems.push(format!("{controller} is not declared, and executes a plan"));
            return problems;
        };
        if !watched.modes.contains(&ModeConfig::Enforce) {
            problems.push(format!(
                "{controller} does not enforce, and executes a plan"
            ));
        }
        let stale = self.observations.stale(id.controller, target, *at);
        problems.extend(stale.map(|why| {
            format!(
                "{controller} executes a plan for {}, which {why}",
                plan.target
            )
        }));
        let steps = plan.steps.iter();
        if !steps.clone().all(|step| matches!(step, Step::Event(_))) {
            problems.extend(watched.spending.spend(controller, plan, *at));
            problems.extend(watched.record.held_back(controller, plan, *at));
        }
        let spec = watched.spec.as_ref();
        let runs = watched
            .record
            .may_execute(controller, revision, &plan.target, spec, records);
        problems.extend(runs.err());
        let owner = watched.owners.entry(plan.target.uid.clone());
        let owner = owner.or_insert_with(|| revision.clone());
        if owner != revision {
            problems.push(format!(
                "{controller}: {revision} writes to {}, which {owner} owns",
                plan.target
            ));
        }
        problems
    }
}

impl WatchedController {
    /// The host has heard of this spec.
    fn specify(&mut self, spec: &ControllerSpec, now: Now) {
        if self.modes.last() != Some(&spec.mode) {
            self.modes.push(spec.mode);
        }
        self.spending.limit(&spec.guardrails, now.instant);
        let former = self.spec.replace(spec.clone());
        let former = former.as_ref();
        if former.is_none_or(|former| !is_same_revision(former, spec)) {
            self.record.forgive();
        }
        if former.is_none_or(|former| former.guardrails != spec.guardrails) {
            self.record.release(now.wall);
        }
        if former.is_none_or(|former| former.rollout.cohort != spec.rollout.cohort) {
            self.record.cohort_changed();
            self.owners.clear();
        }
        if former.is_none_or(|former| former.rollout.steps != spec.rollout.steps) {
            // A step that is under way has another weight.
            self.owners.clear();
        }
    }

    /// The host has heard of these requests.
    fn request(&mut self, requests: &Requests, now: Now) {
        if self.requests == *requests {
            return;
        }
        let is_other = self.requests.reset != requests.reset;
        self.requests = requests.clone();
        if self.record.request(requests) && is_other {
            self.spending.reset(now.instant);
        }
    }
}

#[cfg(test)]
mod tests;
