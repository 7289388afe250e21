//! Judges what the host does by rules of its own: a budget is a count, a target has one
//! owner, and nothing runs but what was recorded.
//!
//! It knows what operators declared, as the host has heard of it, and what was written
//! to records; of the core's state it knows nothing. What was decided before a change
//! may still be executed in the same moment: so what forbids something holds from
//! [`Watchdog::settle`] on, what allows something at once.

mod budget;
mod record;

use std::collections::BTreeMap;
use std::sync::Arc;

use davit_core::api::{ControllerSpec, ModeConfig};
use davit_core::control::{Declaration, FileController, Notice, Requests, is_same_revision};
use davit_core::machine::Report;
use davit_core::plan::Step;
use davit_core::time::Now;

use crate::host::{Executed, Guest};
use crate::records::Records;
use budget::Spending;
use record::Recorded;

/// What it takes to judge the next plan.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    controllers: BTreeMap<String, Watched>,
    /// Whether the wall clock has jumped: what it says of times is worth nothing.
    jumped: bool,
}

/// What is known of one controller.
#[derive(Debug, Default)]
struct Watched {
    uid: Option<String>,
    /// The last spec that could be read.
    spec: Option<ControllerSpec>,
    requests: Requests,
    /// The mode, after those that have just ended.
    modes: Vec<ModeConfig>,
    spending: Spending,
    recorded: Recorded,
    /// The revision that wrote to each target since the ownership last changed.
    owners: BTreeMap<String, Arc<str>>,
}

impl Watchdog {
    /// The host is another one, and forgot what it did.
    pub(crate) fn restarted(&mut self) {
        for watched in self.controllers.values_mut() {
            watched.modes.clear();
            watched.spending = Spending::default();
            watched.recorded.restarted();
            watched.owners.clear();
        }
    }

    /// The wall clock jumps.
    pub(crate) fn clock_jumped(&mut self) {
        self.jumped = true;
        for watched in self.controllers.values_mut() {
            watched.recorded.forget_times();
        }
    }

    /// A source holds another module: a spec may describe another revision.
    pub(crate) fn modules_changed(&mut self) {
        for watched in self.controllers.values_mut() {
            watched.recorded.forgive();
        }
    }

    /// What was decided before the last change has been executed by now.
    pub(crate) fn settle(&mut self) {
        for watched in self.controllers.values_mut() {
            watched.recorded.settle();
            let former = watched.modes.len().saturating_sub(1);
            watched.modes.drain(..former);
        }
    }

    /// The host has heard of these controllers.
    pub(crate) fn declared(&mut self, all: &[Declaration], now: Now) {
        for declaration in all {
            let uid = declaration.object.as_ref().map(|object| object.uid.clone());
            let watched = self.watched(&declaration.name, uid);
            watched.request(&declaration.requests);
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
    pub(crate) fn changed(&mut self, controller: &str, requests: &Requests) {
        self.watched(controller, None).request(requests);
    }

    fn watched(&mut self, controller: &str, uid: Option<String>) -> &mut Watched {
        let watched = self.controllers.entry(controller.to_owned()).or_default();
        if watched.uid != uid {
            *watched = Watched {
                uid,
                ..Watched::default()
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
            watched.recorded.acknowledge(controller, last, records);
            watched.recorded.settle();
            watched
                .recorded
                .take_trips(now, jumped, watched.spec.as_ref());
            watched.recorded.request(&requests);
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
            let changed = watched.recorded.acknowledge(controller, written, records);
            watched.recorded.take_trips(now, jumped, None);
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
        let runs = watched.recorded.may_run(controller, revision, records);
        problems.extend(runs.err());
        problems
    }

    /// What is wrong with this plan.
    pub(crate) fn executes(&mut self, executed: &Executed, records: &Records) -> Vec<String> {
        let Executed {
            at,
            controller,
            revision,
            plan,
        } = executed;
        let Some(watched) = self.controllers.get_mut(controller) else {
            return vec![format!("{controller} is not declared, and executes a plan")];
        };
        let mut problems = Vec::new();
        if !watched.modes.contains(&ModeConfig::Enforce) {
            problems.push(format!(
                "{controller} does not enforce, and executes a plan"
            ));
        }
        let steps = plan.steps.iter();
        if !steps.clone().all(|step| matches!(step, Step::Event(_))) {
            problems.extend(watched.spending.spend(controller, plan, *at));
            problems.extend(watched.recorded.held_back(controller, plan, *at));
        }
        let spec = watched.spec.as_ref();
        let runs = watched
            .recorded
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

impl Watched {
    /// The host has heard of this spec.
    fn specify(&mut self, spec: &ControllerSpec, now: Now) {
        if self.modes.last() != Some(&spec.mode) {
            self.modes.push(spec.mode);
        }
        self.spending.limit(&spec.guardrails, now.instant);
        let former = self.spec.replace(spec.clone());
        let former = former.as_ref();
        if former.is_none_or(|former| !is_same_revision(former, spec)) {
            self.recorded.forgive();
        }
        if former.is_none_or(|former| former.guardrails != spec.guardrails) {
            self.recorded.release(now.wall);
        }
        if former.is_none_or(|former| former.rollout.cohort != spec.rollout.cohort) {
            self.recorded.cohort_changed();
            self.owners.clear();
        }
        if former.is_none_or(|former| former.rollout.steps != spec.rollout.steps) {
            // A step that is under way has another weight.
            self.owners.clear();
        }
    }

    /// The host has heard of these requests.
    fn request(&mut self, requests: &Requests) {
        if self.requests != *requests {
            self.requests = requests.clone();
            self.recorded.request(requests);
        }
    }
}
