//! One controller's rollout: which revision runs, which is tried, and what is
//! said of it.
//!
//! Nothing here does I/O. [`Managed::advance`] takes what is seen of the
//! controller and changes its status; the status is all that is remembered.

use std::time::Duration;

use davit_core::budget::Trip;
use davit_core::desired::TrippedGuardrail;
use davit_core::observation::Observation;
use davit_core::rollout::cohort::{CandidateStep, Cohort, Share};
use davit_core::rollout::compare::Counts;
use davit_core::rollout::progress::{
    Analysis, Fault, Hold, Next, Observed, Progress, Request, next,
};
use jiff::{SignedDuration, Timestamp};

use super::counted::Counted;
use super::declared::Requests;
use super::describe::{Noticed, describe};
use super::revision::{Loss, Problem, Revision, differs_in_module_alone};
use super::text::one_line;
use super::trips::remembered_trip;
use crate::driver::DesiredController;
use davit_core::api::HumanDuration;
use davit_core::api::ModuleSource;
use davit_core::api::StepConfig;
use davit_core::api::{
    CandidateStatus, ComparisonStatus, ControllerStatus, HostStatus, LostStatus, RejectedStatus,
    TrippedStatus,
};
use davit_core::api::{ControllerSpec, ModeConfig, SpecError};

/// How much time is left in a step that has no end.
const UNTIL_PROMOTED: &str = "until promoted";

/// One controller.
pub(super) struct Managed {
    pub(super) name: String,
    pub(super) generation: Option<i64>,
    /// What is wanted; the last spec that made sense. None as long as this host
    /// has seen none: then nothing runs. What is kept of former specs says what
    /// a revision was made of, not what it may do by now.
    pub(super) spec: Option<ControllerSpec>,
    /// What is wrong with the present one.
    pub(super) spec_error: Option<SpecError>,
    /// What the annotations ask for.
    pub(super) asked: Requests,
    /// The part of it that is in force: that fits, and has not been answered.
    pub(super) requests: Requests,
    /// What is said and remembered.
    pub(super) status: ControllerStatus,
    pub(super) stable: Option<Revision>,
    /// What the spec describes; what it described before as long as that is
    /// being prepared, or cannot be had.
    pub(super) desired: Option<Revision>,
    /// Why what the spec describes cannot be had.
    pub(super) problem: Option<Problem>,
    /// Why the stable revision cannot be had again after a start.
    pub(super) lost: Option<Loss>,
    /// The guardrails that hold plans back, as this host has seen them, and
    /// what is said of each.
    pub(super) tripped: Vec<(Trip, TrippedStatus)>,
    /// Why the candidate stays in its step.
    pub(super) hold: Option<Hold>,
    /// Why decisions cannot be recorded.
    pub(super) unrecorded: Option<String>,
    /// Another host that writes the same status.
    pub(super) other_host: Option<HostStatus>,
    /// What people were told.
    pub(super) noticed: Noticed,
    /// Those that did when an earlier host ended.
    remembered_trips: Vec<TrippedGuardrail>,
    counted: Counted,
    elapsed: Duration,
    /// The last time that tells one trial, rejection or loss from another.
    named: Timestamp,
}

/// Something that people are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) warning: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// How far the step of a candidate is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepProgress {
    /// The candidate's name.
    pub revision: String,
    /// The step, counted from 1.
    pub number: u32,
    /// How many steps there are.
    pub of: u32,
    /// The step in words.
    pub text: String,
    /// How long it has been under way.
    pub elapsed: Duration,
    /// How much of its time is left; none until it is promoted.
    pub left: Option<Duration>,
    /// Why it goes on.
    pub waits_for: String,
    /// Targets compared in it.
    pub compared: u64,
    /// How many it takes for the step to end well by itself.
    pub min_decisions: u64,
}

impl Managed {
    /// A controller that is remembered by its status.
    pub(super) fn new(name: &str, status: ControllerStatus) -> Self {
        let candidate = status.candidate.as_ref();
        let tripped = status.tripped.iter();
        Self {
            name: name.to_owned(),
            generation: None,
            spec: None,
            spec_error: None,
            asked: Requests::default(),
            requests: Requests::default(),
            stable: None,
            desired: None,
            problem: None,
            lost: None,
            tripped: Vec::new(),
            hold: None,
            unrecorded: None,
            other_host: None,
            noticed: Noticed::default(),
            remembered_trips: tripped.filter_map(remembered_trip).collect(),
            counted: Counted::since(candidate.map(Observed::from).unwrap_or_default()),
            elapsed: Duration::from_secs(candidate.map_or(0, |one| one.elapsed_seconds)),
            named: Timestamp::MIN,
            status,
        }
    }

    /// Goes on from what is seen; `passed` is the time since it was last asked.
    /// Returns what people are to be told.
    pub(super) fn advance(
        &mut self,
        seen: Option<&Observation>,
        passed: Duration,
        now: Timestamp,
    ) -> Vec<Told> {
        let mut told = Vec::new();
        let open = self.review_requests();
        self.choose_stable(now, &mut told);
        self.note_loss(now);
        self.choose_candidate(now, &mut told);
        self.judge(seen, passed, now, &mut told);
        describe(self, seen, now, &mut told);
        self.answer_requests(open, seen, now, &mut told);
        told
    }

    /// How far the step of the candidate is; none without one.
    pub(super) fn progress(&self) -> Option<StepProgress> {
        let (spec, candidate) = (self.spec.as_ref()?, self.status.candidate.as_ref()?);
        let lasts = step_of(&spec.rollout.steps, candidate.step).and_then(|step| step.0.lasts);
        Some(StepProgress {
            revision: candidate.revision.clone(),
            number: candidate.step,
            of: candidate.steps,
            text: candidate.step_text.clone(),
            elapsed: self.elapsed,
            left: lasts.map(|lasts| lasts.saturating_sub(self.elapsed)),
            waits_for: candidate.waits_for.clone(),
            compared: Counts::from(&candidate.comparison).compared(),
            min_decisions: spec.rollout.analysis.min_decisions,
        })
    }

    /// What the host is to run; none if there is nothing to run yet.
    pub(super) fn wanted(&self, namespace: &str) -> Option<DesiredController> {
        let (spec, stable) = (self.spec.as_ref()?, self.stable.as_ref()?);
        let cohort = Cohort::from(&spec.rollout.cohort);
        let candidate = self.status.candidate.as_ref();
        let candidate = candidate.and_then(|candidate| {
            let desired = self.desired.as_ref()?;
            let step = CandidateStep {
                share: Share {
                    cohort: cohort.clone(),
                    weight: candidate.weight,
                },
                number: candidate.step,
                window: spec.rollout.analysis.window.map(|window| window.0),
            };
            (desired.name() == candidate.revision).then(|| (desired.prepared.clone(), step))
        });
        let account = spec.service_account_name.as_ref();
        Some(DesiredController {
            name: self.name.clone(),
            settings: spec.settings(),
            user: account.map(|name| format!("system:serviceaccount:{namespace}:{name}")),
            stable: stable.prepared.clone(),
            // Without steps no candidate is ever tried: nothing beyond what the
            // guest reads has to be held.
            cohort: if spec.rollout.steps.is_empty() && candidate.is_none() {
                Cohort::default()
            } else {
                cohort
            },
            candidate,
            tripped: self.remembered_trips.clone(),
        })
    }

    /// Whether the revision at hand is what the present spec describes. Until
    /// then nothing begins and nothing gets further: it may be what an operator
    /// has just taken back.
    pub(super) fn is_current(&self) -> bool {
        let desired = self.desired.as_ref();
        desired.is_some_and(|desired| self.is_described(desired))
    }

    /// The digest of the module that is ready to run: `sha256:…`.
    pub(super) fn digest(&self) -> Option<String> {
        let digest = self.desired.as_ref()?.prepared.identity.digest();
        Some(format!("sha256:{digest}"))
    }

    /// Whether the present spec describes this revision.
    pub(super) fn is_described(&self, revision: &Revision) -> bool {
        let spec = self.spec.as_ref();
        spec.is_some_and(|spec| revision.is_described_by(spec))
    }

    fn choose_stable(&mut self, now: Timestamp, told: &mut Vec<Told>) {
        if self.stable.is_some() {
            return;
        }
        let Some(desired) = &self.desired else {
            return;
        };
        let name = desired.name();
        let Some(former) = &self.status.stable else {
            if self.is_current() {
                self.establish(now);
            }
            return;
        };
        if former.revision == name {
            self.stable = Some(desired.clone());
            return;
        }
        if !self.is_current() {
            return;
        }
        // The former one is fetched, unless nobody waits for it any more.
        let former = &former.revision;
        if self.requests.abandons(&self.status) {
            let message = format!("{name} takes over: {former}, which is lost, is abandoned");
            told.push(Told::normal("Promoted", message));
            self.establish(now);
        } else if self.requests.swaps(&name, self.generation) {
            let message = format!("{name} takes the place of {former}, which is not there");
            told.push(Told::normal("Swapped", message));
            self.establish(now);
        } else if self.is_updated(&name) {
            let reason = self.lost.as_ref().map_or("", |lost| &lost.reason);
            let message = format!(
                "{name} takes the place of {former} at once, without any step: this Davit comes \
                 with another guest of that name, and the former one cannot be loaded: {reason}"
            );
            told.push(Told::warning("Updated", message));
            self.establish(now);
        }
    }

    /// Whether the stable revision is lost because Davit was updated: what the
    /// spec describes is the same built-in guest, configuration and limits as
    /// before, so nobody has asked for anything but the update. Nothing that is
    /// being tried, or was taken back, takes over like that.
    fn is_updated(&self, name: &str) -> bool {
        let is_lost = self.lost.as_ref().is_some_and(|lost| lost.is_updated);
        let (Some(spec), Some(stable)) = (&self.spec, &self.status.stable) else {
            return false;
        };
        let module = &spec.module;
        let is_builtin = matches!(module.source, ModuleSource::Builtin(_));
        let candidate = self.status.candidate.iter().map(|one| &one.revision);
        let rejected = self.status.rejected.iter().map(|one| &one.revision);
        let is_free = candidate.chain(rejected).all(|other| other != name);
        is_lost
            && is_builtin
            && module.digest.is_none()
            && is_free
            && differs_in_module_alone(spec, stable)
    }

    /// Says that the stable revision is lost, until it is there or abandoned.
    fn note_loss(&mut self, now: Timestamp) {
        if self.stable.is_some() || self.status.stable.is_none() {
            self.lost = None;
            self.status.lost = None;
            return;
        }
        let ready = self.desired.as_ref().filter(|_| self.is_current());
        let ready = ready.map(Revision::name);
        let since = self.status.lost.as_ref().map(|said| said.since.clone());
        if let Some(lost) = self.lost.clone() {
            let since = since.unwrap_or_else(|| self.name_time(now));
            let reason = lost.reason;
            self.status.lost = Some(LostStatus {
                since,
                reason,
                ready,
            });
        } else if let Some(said) = &mut self.status.lost {
            said.ready = ready;
        }
    }

    /// The time by which requests tell a trial, a rejection or a loss from any
    /// other: never the same twice, to the millisecond.
    fn name_time(&mut self, now: Timestamp) -> String {
        let next = self.named.checked_add(SignedDuration::from_millis(1));
        self.named = now.max(next.unwrap_or(now));
        precise_time(self.named)
    }

    /// What the spec describes runs from now on.
    fn establish(&mut self, now: Timestamp) {
        let since = self.name_time(now);
        if let Some(desired) = &self.desired {
            self.status.stable = Some(desired.status(since));
            self.stable = Some(desired.clone());
            self.status.rejected = None;
        }
        self.end_trial();
    }

    fn end_trial(&mut self) {
        self.status.candidate = None;
        self.begin_step();
    }

    fn begin_step(&mut self) {
        self.hold = None;
        self.counted = Counted::default();
        self.elapsed = Duration::ZERO;
    }

    fn give_up_candidate(&mut self, told: &mut Vec<Told>) {
        if let Some(former) = &self.status.candidate {
            let message = format!("{} is not wanted any more", former.revision);
            told.push(Told::normal("RolloutEnded", message));
        }
        self.end_trial();
    }

    fn choose_candidate(&mut self, now: Timestamp, told: &mut Vec<Told>) {
        if !self.is_current() {
            let stable = self.stable.as_ref();
            if stable.is_some_and(|stable| self.is_described(stable)) {
                // Taken back, even if its source is away by now.
                self.give_up_candidate(told);
            }
            return;
        }
        let (Some(spec), Some(stable), Some(desired)) = (&self.spec, &self.stable, &self.desired)
        else {
            return;
        };
        let name = desired.name();
        if name != stable.name() && self.requests.swaps(&name, self.generation) {
            let message = format!("{name} takes the place of {} without steps", stable.name());
            told.push(Told::normal("Swapped", message));
            return self.establish(now);
        }
        if let Some(rejected) = &self.status.rejected
            && (rejected.revision != name || self.requests.retries(rejected))
        {
            self.status.rejected = None;
        }
        if name == stable.name() || self.status.rejected.is_some() {
            return self.give_up_candidate(told);
        }
        let candidate = self.status.candidate.as_ref();
        if candidate.is_some_and(|candidate| candidate.revision == name) {
            // Also if its steps are taken away: how it ends is judged below.
            return;
        }
        let Some(first) = spec.rollout.steps.first() else {
            let message = format!("{name} takes the place of {}", stable.name());
            told.push(Told::normal("Swapped", message));
            return self.establish(now);
        };
        let message = format!("{name} is tried beside {}: {first}", stable.name());
        told.push(Told::normal("RolloutStarted", message));
        let desired = desired.clone();
        let revision = desired.status(self.name_time(now));
        self.end_trial();
        self.status.candidate = Some(CandidateStatus {
            revision: revision.revision,
            digest: revision.digest,
            config_hash: revision.config_hash,
            since: revision.since,
            step: 1,
            ..CandidateStatus::default()
        });
    }

    fn judge(
        &mut self,
        seen: Option<&Observation>,
        passed: Duration,
        now: Timestamp,
        told: &mut Vec<Told>,
    ) {
        let (Some(spec), Some(candidate)) = (&self.spec, &self.status.candidate) else {
            return;
        };
        let rollout = &spec.rollout;
        let seen = self.seen_in_step(seen, candidate);
        let is_current = self.is_current();
        let is_held = rollout.paused || !is_current;
        if let Some(seen) = seen {
            self.counted.see(seen);
            if !is_held && spec.mode != ModeConfig::Disabled {
                self.elapsed += passed;
            }
        }
        let observed = self.counted.sum();
        let progress = Progress {
            step: (candidate.step as usize).saturating_sub(1),
            elapsed: self.elapsed,
        };
        let next = next(
            &rollout.steps(),
            &Analysis::from(&rollout.analysis),
            &progress,
            &observed,
            is_held,
            self.requests
                .of(candidate)
                .filter(|request| is_current || *request == Request::Abort),
        );
        let steps = rollout.steps.clone();
        let counted = match next {
            Next::Hold(_) => observed,
            _ => Observed::default(),
        };
        self.take(next, &steps, now, told);
        if let Some(candidate) = &mut self.status.candidate
            && !is_current
        {
            "what the spec describes by now".clone_into(&mut candidate.waits_for);
        }
        self.say_progress(&steps, &counted);
    }

    /// What is seen of the candidate in this step, while both revisions run.
    fn seen_in_step<'a>(
        &self,
        seen: Option<&'a Observation>,
        candidate: &CandidateStatus,
    ) -> Option<&'a Observed> {
        let stable = self.stable.as_ref()?;
        let seen = seen.filter(|seen| seen.complete)?;
        // Beside a revision that has been replaced it says nothing.
        if seen.stable.as_ref() != Some(&stable.prepared.identity) {
            return None;
        }
        let running = seen.candidate.as_ref().filter(|one| one.complete)?;
        let is_it = running.identity.to_string() == candidate.revision;
        (is_it && running.step == candidate.step).then_some(&running.observed)
    }

    fn take(&mut self, next: Next, steps: &[StepConfig], now: Timestamp, told: &mut Vec<Told>) {
        let Some(candidate) = &mut self.status.candidate else {
            return;
        };
        let name = candidate.revision.clone();
        match next {
            Next::Hold(hold) => {
                candidate.waits_for = describe_hold(&hold);
                self.hold = Some(hold);
            }
            Next::Advance => {
                candidate.step += 1;
                candidate.waits_for.clear();
                let (step, text) = (candidate.step, step_text(steps, candidate.step));
                let message = format!("{name}: step {step} of {}: {text}", steps.len());
                self.begin_step();
                told.push(Told::normal("StepStarted", message));
            }
            Next::Promote => {
                told.push(Told::normal("Promoted", format!("{name} takes over")));
                self.establish(now);
            }
            Next::RollBack(fault) => {
                let step = candidate.step;
                let message = format!("{name} was rolled back in step {step}: {fault}");
                told.push(Told {
                    warning: fault != Fault::Aborted,
                    reason: "RolledBack",
                    message,
                });
                self.status.rejected = Some(RejectedStatus {
                    revision: name,
                    at: self.name_time(now),
                    step,
                    cause: cause(&fault).to_owned(),
                    reason: one_line(&fault.to_string()),
                });
                self.end_trial();
            }
        }
    }

    fn say_progress(&mut self, steps: &[StepConfig], counted: &Observed) {
        let elapsed = Duration::from_secs(self.elapsed.as_secs());
        if let Some(candidate) = &mut self.status.candidate {
            // Without steps, it keeps what it has for as long as it is paused.
            if let Some(step) = step_of(steps, candidate.step) {
                candidate.steps = u32::try_from(steps.len()).unwrap_or(u32::MAX);
                candidate.step_text = step.to_string();
                candidate.weight = step.0.weight;
                candidate.remaining = match step.0.lasts {
                    None => UNTIL_PROMOTED.to_owned(),
                    Some(lasts) => HumanDuration(lasts.saturating_sub(elapsed)).to_string(),
                };
            }
            candidate.elapsed_seconds = elapsed.as_secs();
            candidate.elapsed = HumanDuration(elapsed).to_string();
            candidate.comparison = ComparisonStatus::from(&counted.counts);
            candidate.failed_calls = counted.failed_calls;
            candidate.refused_writes = counted.refused_writes;
        }
    }
}

impl Told {
    pub(super) fn warning(reason: &'static str, message: String) -> Self {
        Self {
            warning: true,
            ..Self::normal(reason, message)
        }
    }

    pub(super) fn normal(reason: &'static str, message: String) -> Self {
        Self {
            warning: false,
            reason,
            message,
        }
    }
}

/// A point in time that names something, to the millisecond.
pub(super) fn precise_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

/// A point in time as Kubernetes writes it.
pub(super) fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Why a candidate was rolled back, in two words.
fn cause(fault: &Fault) -> &'static str {
    match fault {
        Fault::FailedCalls { .. } => "failed calls",
        Fault::Disagreement { .. } => "disagreement",
        Fault::RefusedWrites { .. } => "refused writes",
        Fault::Latency { .. } => "slow calls",
        Fault::Trip(_) => "guardrail",
        Fault::Aborted => "aborted",
    }
}

/// What holds a step, without what changes every second.
fn describe_hold(hold: &Hold) -> String {
    match hold {
        Hold::Running { .. } => "the time of the step has not passed".to_owned(),
        other => other.to_string(),
    }
}

/// The step of that number; the last one if there are fewer by now.
fn step_of(steps: &[StepConfig], number: u32) -> Option<&StepConfig> {
    let index = (number as usize).saturating_sub(1);
    steps.get(index).or(steps.last())
}

fn step_text(steps: &[StepConfig], number: u32) -> String {
    step_of(steps, number)
        .map(ToString::to_string)
        .unwrap_or_default()
}
