//! Checks one host by rules of its own: a budget is a count, a target has one owner, and
//! only a recorded revision runs.
//!
//! The watchdog knows the declarations that the host received, and the records. It does not
//! read the core's state. The host may still execute in the same moment what it decided
//! before a change. A change that forbids something therefore holds from
//! [`Watchdog::settle`] on; a change that allows something holds immediately.

mod accounts;
mod budget;
mod grants;
mod observed;
mod record;

use std::collections::BTreeMap;
use std::sync::Arc;

use davit_core::api::{ControllerSpec, ControllerStatus};
use davit_core::control::{Declaration, FileController, Notice, Requests, is_same_revision};
use davit_core::controller::PlanId;
use davit_core::gate::Mode;
use davit_core::machine::{Input, Report};
use davit_core::manifest::Manifest;
use davit_core::plan::Step;
use davit_core::request::review::{AccessReview, ReviewAnswer};
use davit_core::time::{Instant, Now};

use crate::execution::ExecutedPlan;
use crate::guest::Guest;
use crate::records::Records;
use accounts::{Accounts, Answers};
use budget::Budget;
use grants::Grants;
use observed::Observations;
use record::KnownRecord;

/// The state that the checks need.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    controllers: BTreeMap<String, ControllerState>,
    observations: Observations,
    answers: Answers,
    /// What each revision declares that was called.
    manifests: BTreeMap<Arc<str>, Manifest>,
    /// The plans in execution.
    executing: BTreeMap<PlanId, PlanInFlight>,
    /// Whether the host takes part in leader election: it decides only about controllers
    /// whose record it has read since it got the lease.
    elects: bool,
    /// Whether the wall clock has jumped: recorded times then say nothing.
    jumped: bool,
    /// Whether [`Watchdog::settle`] has something to do.
    is_unsettled: bool,
}

/// A plan in execution.
#[derive(Debug)]
struct PlanInFlight {
    controller: String,
    /// The uid of its target.
    uid: String,
}

/// The state of one controller.
#[derive(Debug, Default)]
struct ControllerState {
    uid: Option<String>,
    /// What leader election allows.
    part: Part,
    /// The last valid spec.
    spec: Option<ControllerSpec>,
    requests: Requests,
    /// The mode, after the modes that may still have effects.
    modes: Vec<Mode>,
    grants: Grants,
    accounts: Accounts,
    budget: Budget,
    record: KnownRecord,
    /// The revision that wrote to each target since the owners last changed.
    owners: BTreeMap<String, Arc<str>>,
}

/// The part of a host that takes part in leader election.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    /// It may not decide. It may run whatever it has observed, in the dark.
    #[default]
    Follower,
    /// It has the lease, and has not read the record yet.
    Elected,
    /// It decides.
    Leader,
}

impl Watchdog {
    /// A new host starts. It does not know what the former one did.
    pub(crate) fn restarted(&mut self, elects: bool) {
        self.is_unsettled = true;
        self.elects = elects;
        self.observations = Observations::default();
        self.answers = Answers::default();
        self.executing.clear();
        for watched in self.controllers.values_mut() {
            watched.modes.clear();
            watched.grants.clear();
            watched.accounts.clear();
            watched.resign();
        }
    }

    /// The host gets the lease of a controller.
    pub(crate) fn elected(&mut self, controller: &str) {
        let watched = self.controllers.entry(controller.to_owned()).or_default();
        if watched.part == Part::Follower {
            watched.part = Part::Elected;
        }
    }

    /// Another host may decide about a controller from now on.
    pub(crate) fn follows(&mut self, controller: &str) {
        if let Some(watched) = self.controllers.get_mut(controller) {
            watched.resign();
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

    /// The driver has taken every effect of the inputs so far.
    pub(crate) fn settle(&mut self) {
        if !std::mem::take(&mut self.is_unsettled) {
            return;
        }
        for watched in self.controllers.values_mut() {
            watched.record.settle();
            let former = watched.modes.len().saturating_sub(1);
            watched.modes.drain(..former);
            watched.grants.settle();
            watched.accounts.settle();
        }
        self.answers.settle();
    }

    /// The host receives these declarations.
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

    /// The host applies these controllers of its file.
    pub(crate) fn applied(&mut self, all: &[FileController<Guest>], now: Now) {
        for controller in all {
            self.watched(&controller.name, None)
                .specify(&controller.spec, now);
        }
    }

    /// An operator sends a request for a controller of the file.
    pub(crate) fn changed(&mut self, controller: &str, requests: &Requests, now: Now) {
        self.watched(controller, None).request(requests, now);
    }

    fn watched(&mut self, controller: &str, uid: Option<String>) -> &mut ControllerState {
        self.is_unsettled = true;
        let watched = self.controllers.entry(controller.to_owned()).or_default();
        if watched.uid != uid {
            // The lease is of the name; the record is of the resource.
            let part = match watched.part {
                Part::Follower => Part::Follower,
                Part::Elected | Part::Leader => Part::Elected,
            };
            *watched = ControllerState {
                uid,
                part,
                ..ControllerState::default()
            };
        }
        watched
    }

    /// The host has read the record of a controller, with so many written decisions.
    pub(crate) fn record_read(
        &mut self,
        controller: &str,
        written: usize,
        records: &Records,
        now: Now,
    ) {
        self.is_unsettled = true;
        let jumped = self.jumped;
        if let Some(watched) = self.controllers.get_mut(controller) {
            let requests = watched.requests.clone();
            watched.record.acknowledge(controller, written, records);
            watched.record.settle();
            if watched.part == Part::Elected {
                watched.part = Part::Leader;
            }
            let spec = watched.spec.as_ref();
            watched.record.read_trips(now, jumped, spec);
            watched.record.request(&requests);
            watched.owners.clear();
        }
    }

    /// The host decides to record this status. Returns what that breaks.
    pub(crate) fn decides(
        &mut self,
        controller: &str,
        status: &ControllerStatus,
    ) -> Option<String> {
        let watched = self.controllers.get_mut(controller)?;
        watched.record.decided(status);
        let is_refused = self.elects && watched.part != Part::Leader;
        is_refused.then(|| format!("{controller}: a follower records a status"))
    }

    /// The host knows that this decision is recorded.
    pub(crate) fn record_written(
        &mut self,
        controller: &str,
        written: usize,
        records: &Records,
        now: Now,
    ) {
        self.is_unsettled = true;
        let jumped = self.jumped;
        if let Some(watched) = self.controllers.get_mut(controller)
            && watched.uid.as_deref() == records.uid(controller)
        {
            let changed = watched.record.acknowledge(controller, written, records);
            watched.record.take_trips(now, jumped);
            if changed {
                watched.owners.clear();
            }
        }
    }

    /// The host records an event. A candidate that is rolled back loses its targets
    /// immediately.
    pub(crate) fn notified(&mut self, controller: &str, notice: &Notice) {
        if matches!(notice.reason, "RolledBack" | "RolloutEnded" | "Swapped") {
            self.forget_owners(controller);
        }
    }

    /// The machine sends a report. A revision that starts may own other targets.
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

    /// What a call of this revision breaks.
    pub(crate) fn calls(
        &mut self,
        controller: &str,
        revision: &Arc<str>,
        manifest: &Manifest,
        records: &Records,
    ) -> Vec<String> {
        let Some(watched) = self.controllers.get_mut(controller) else {
            return vec![format!("{controller} is called and not declared")];
        };
        let mut problems = Vec::new();
        if watched.modes.iter().all(|mode| *mode == Mode::Disabled) {
            problems.push(format!(
                "{controller} is disabled and its revision {revision} is called"
            ));
        }
        problems.extend(watched.grants.exceeded(manifest).map(|what| {
            format!("{controller}: {revision} is called and declares {what}, which is not granted")
        }));
        problems.extend(
            watched
                .accounts
                .exceeded(manifest, &self.answers)
                .map(|what| format!("{controller}: {revision} is called, and {what}")),
        );
        if !self.manifests.contains_key(revision) {
            self.manifests.insert(revision.clone(), manifest.clone());
        }
        // With leases, a revision may run in the dark: a follower has observed another record,
        // and a new leader may not have loaded what the record names. What counts is what
        // it executes.
        if !self.elects {
            let runs = watched.record.may_run(controller, revision, records);
            problems.extend(runs.err());
        }
        problems
    }

    /// The host receives the answer to a review.
    pub(crate) fn reviewed(
        &mut self,
        review: &AccessReview,
        result: &Result<ReviewAnswer, String>,
    ) {
        self.is_unsettled = true;
        self.answers.receive(review, result);
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

    /// What the execution of this plan breaks.
    pub(crate) fn executes(
        &mut self,
        id: PlanId,
        executed: &ExecutedPlan,
        records: &Records,
        now: Instant,
    ) -> Vec<String> {
        let ExecutedPlan {
            controller,
            revision,
            plan,
            ..
        } = executed;
        let mut problems = Vec::new();
        let target = &plan.target;
        let is_same =
            |other: &PlanInFlight| other.controller == *controller && other.uid == target.uid;
        if self.executing.values().any(is_same) {
            problems.push(format!("{controller} executes two plans on {target}"));
        }
        let in_flight = PlanInFlight {
            controller: controller.clone(),
            uid: target.uid.clone(),
        };
        self.executing.insert(id, in_flight);
        let Some(watched) = self.controllers.get_mut(controller) else {
            problems.push(format!("{controller} executes a plan and is not declared"));
            return problems;
        };
        if self.elects && watched.part != Part::Leader {
            problems.push(format!(
                "{controller}: a follower executes a plan for {target}"
            ));
        }
        if !watched.modes.contains(&Mode::Enforce) {
            problems.push(format!("{controller} executes a plan and does not enforce"));
        }
        problems.extend(
            watched
                .grants
                .forbidden(plan)
                .map(|what| format!("{controller} executes {what}, which is not granted")),
        );
        let manifest = self.manifests.get(revision);
        let exceeded = manifest.and_then(|one| watched.accounts.exceeded(one, &self.answers));
        problems.extend(exceeded.map(|what| format!("{controller} executes a plan, and {what}")));
        let stale = self.observations.stale(id.controller, target, now);
        problems.extend(stale.map(|why| {
            format!(
                "{controller} executes a plan for {}, which {why}",
                plan.target
            )
        }));
        let steps = plan.steps.iter();
        if !steps.clone().all(|step| matches!(step, Step::Event(_))) {
            problems.extend(watched.budget.spend(controller, plan, now));
            problems.extend(watched.record.deferred_by(controller, plan, now));
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

impl ControllerState {
    /// The host decides no longer. What it knew of the record may become old.
    fn resign(&mut self) {
        self.part = Part::Follower;
        self.budget.forget();
        self.record.restarted();
        self.owners.clear();
    }

    /// The host receives this spec.
    fn specify(&mut self, spec: &ControllerSpec, now: Now) {
        if self.modes.last() != Some(&spec.mode) {
            self.modes.push(spec.mode);
        }
        self.grants.specify(spec, self.uid.is_none());
        self.accounts.specify(spec);
        self.budget.limit(&spec.guardrails, now.instant);
        let former = self.spec.replace(spec.clone());
        let former = former.as_ref();
        if former.is_none_or(|former| !is_same_revision(former, spec)) {
            self.record.forgive();
        }
        if former.is_none_or(|former| former.guardrails != spec.guardrails) {
            self.record.release(now.instant);
        }
        if former.is_none_or(|former| former.rollout.cohort != spec.rollout.cohort) {
            self.record.cohort_changed();
            self.owners.clear();
        }
        if former.is_none_or(|former| former.rollout.steps != spec.rollout.steps) {
            // The present step may have another weight.
            self.owners.clear();
        }
    }

    /// The host receives these requests.
    fn request(&mut self, requests: &Requests, now: Now) {
        if self.requests == *requests {
            return;
        }
        let is_other = self.requests.reset != requests.reset;
        self.requests = requests.clone();
        if self.record.request(requests) && is_other {
            self.budget.reset(now.instant);
        }
    }
}

#[cfg(test)]
mod tests;
