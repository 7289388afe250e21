//! The machine: every decision of the host about the controllers that run, as one state
//! machine without I/O.
//!
//! [`Machine::handle`] takes an input, [`Machine::poll`] returns an effect,
//! [`Machine::next_wake`] returns when to poll again. A driver passes inputs and
//! executes effects; it decides nothing.
//!
//! ```text
//! stream ── store ── changes ── queues ── call ── decisions ── gate ── execute
//! ```

mod apply;
mod cluster_comparison;
mod compared;
mod deferred;
mod discovery;
mod exchange;
mod hosted;
mod journal;
mod leadership;
mod log;
mod observe;
mod outbox;
mod preview;
mod profile;
mod reads;
mod report;
mod start;
mod streams;
mod undo;
mod updates;
mod work;

#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::circuit::CallFailure;
use crate::cluster_comparison::OwnDeletions;
use crate::controller::{CallId, Controller, ControllerId, Outcome, PlanId, World};
use crate::coverage::{UnlistedResource, UnlistedResourcesByView};
use crate::manifest::WatchSpec;
use crate::mapping::Mapping;
use crate::mutant::Mutant;
use crate::plan::Decision;
use crate::request::plan::withdrawn;
use crate::store::{SegmentId, Store, ViewId};
use crate::time::{Instant, Now};

pub use crate::live::{ReadAnswer, ReadId, ReadRequest};
pub use exchange::{Call, Effect, Execute, Input};
pub use report::{BoundUse, ControllerState, Report, State};

use hosted::HostedController;
use leadership::Leadership;
use outbox::Outbox;
use streams::Streams;

/// How often gauges are reported and lapsed expectations dropped.
const HOUSEKEEPING_PERIOD: Duration = Duration::from_secs(1);
/// How many controllers one report of the state has in a second, and the longest pause between
/// two: the state of a thousand controllers is reported every four seconds.
const STATES_A_SECOND: usize = 256;
const LONGEST_REPORT_PERIOD: Duration = Duration::from_secs(5);

/// The state of every controller that runs. `G` is a guest, which only the driver
/// can call.
#[derive(Debug)]
pub struct Machine<G> {
    store: Store,
    streams: Streams,
    /// None until the first discovery.
    mapping: Option<Arc<Mapping>>,
    controllers: BTreeMap<String, HostedController<G>>,
    /// What is recorded for later guests, each watch with its view.
    profile: Vec<(WatchSpec, ViewId)>,
    /// The live reads without an answer.
    reads: BTreeMap<ReadId, reads::Awaited>,
    /// The resources of which views may lack objects; none if it has to be computed
    /// again.
    unlisted: Option<UnlistedResourcesByView>,
    outbox: Outbox<G>,
    /// What controllers of Davit have planned to delete.
    own_deletions: OwnDeletions,
    /// When the streams of each segment last delivered something.
    heard: BTreeMap<SegmentId, Instant>,
    /// Whether the API server answers at all.
    reachable: bool,
    leadership: Leadership,
    /// When to request discovery; none while a discovery is running.
    discover_at: Option<Instant>,
    housekeep_at: Instant,
    /// When the state is reported next.
    report_at: Instant,
    /// Whether this series of polls has already asked the controllers for work.
    polled: bool,
    last_controller: u64,
}

impl<G: Clone> Machine<G> {
    /// A machine without controllers.
    #[must_use]
    pub fn new(now: Now) -> Self {
        Self {
            store: Store::default(),
            streams: Streams::default(),
            mapping: None,
            controllers: BTreeMap::new(),
            profile: Vec::new(),
            reads: BTreeMap::new(),
            unlisted: None,
            outbox: Outbox::new(),
            own_deletions: OwnDeletions::default(),
            heard: BTreeMap::new(),
            reachable: true,
            leadership: Leadership::default(),
            discover_at: Some(now.instant),
            housekeep_at: now.instant,
            report_at: now.instant,
            polled: false,
            last_controller: 0,
        }
    }

    /// Handles an input. [`Self::poll`] returns its effects.
    pub fn handle(&mut self, now: Now, input: Input) {
        self.set_journal_time(now);
        match input {
            Input::Stream(batch) => self.handle_updates(now, batch),
            Input::Reachable(reachable) => self.reachable = reachable,
            Input::Discovered(result) => self.handle_discovery(now, result),
            Input::Answered {
                call,
                result,
                logged,
                took,
                copy,
            } => {
                self.note_answer(call, &result, copy, took);
                self.handle_answer(now.instant, call, result, logged, took);
            }
            Input::ReadRequested {
                read,
                call,
                controller,
                request,
            } => self.handle_read_request(now.instant, read, call, controller, request),
            Input::ReadDone { read, answer } => self.handle_read(now.instant, read, answer),
            Input::Executed {
                plan,
                outcome,
                took,
            } => self.handle_outcome(now.instant, plan, outcome, took),
            Input::Stop => {
                self.store.release_renewals();
                self.outbox.stopping = true;
                self.withdraw_all(now.instant);
            }
        }
        self.note_changes();
    }

    /// The next effect. Call it until it returns none, after every input and at
    /// [`Self::next_wake`]. Several inputs may be handled in between.
    pub fn poll(&mut self, now: Now) -> Option<Effect<G>> {
        self.set_journal_time(now);
        if self.leadership.ends <= now.instant {
            // What was decided before must not start any more.
            self.judge_leadership(now);
        }
        let mut next = self.outbox.pop();
        if next.is_none() && !self.polled {
            self.polled = true;
            self.judge_leadership(now);
            self.wake(now);
            self.work(now);
            next = self.outbox.pop();
        }
        self.note_changes();
        if next.is_none() {
            // The next series of polls asks the controllers again.
            self.polled = false;
        }
        next
    }

    /// When to poll again if nothing else happens.
    #[must_use]
    pub fn next_wake(&self, now: Now) -> Instant {
        if self.outbox.stopping {
            // While stopping, the machine makes no calls: only outcomes matter.
            return self.housekeep_at;
        }
        // Without a mapping, no controller is called.
        let called = self.running().filter(|_| self.mapping.is_some());
        let due = called.filter_map(|(_, controller)| controller.poll_timeout(now.instant));
        due.chain(self.discover_at)
            .chain([self.leadership.ends])
            .fold(self.housekeep_at, Instant::min)
    }

    /// Whether the machine was stopped and the last plan has ended.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.outbox.stopping && !self.outbox.is_executing()
    }

    /// Whether a plan of a controller of that name is in execution.
    pub(crate) fn is_executing(&self, controller: &str) -> bool {
        self.outbox.is_executing_for(controller)
    }

    /// Whether the revision that is stable runs here, with synced watches.
    pub(crate) fn is_ready(&self, controller: &str) -> bool {
        let hosted = self.controllers.get(controller);
        hosted.is_some_and(|hosted| {
            let runs = hosted.controller.as_ref();
            hosted.stable.is_none() && runs.is_some_and(|one| one.stable().is_complete())
        })
    }

    /// Performs what is due at this time.
    fn wake(&mut self, now: Now) {
        if self.discover_at.is_some_and(|at| at <= now.instant) && !self.outbox.stopping {
            self.discover_at = None;
            self.outbox.push(Effect::Discover);
        }
        if self.housekeep_at <= now.instant {
            self.housekeep_at = now.instant.after(HOUSEKEEPING_PERIOD);
            self.housekeep(now);
        }
    }

    /// The controllers that run.
    fn running(&self) -> impl Iterator<Item = (&String, &Controller<G>)> {
        let hosted = self.controllers.iter();
        hosted.filter_map(|(name, hosted)| Some((name, hosted.controller.as_ref()?)))
    }

    fn running_mut(&mut self) -> impl Iterator<Item = (&String, &mut Controller<G>)> {
        let hosted = self.controllers.iter_mut();
        hosted.filter_map(|(name, hosted)| Some((name, hosted.controller.as_mut()?)))
    }

    /// Resets a controller's tripped guardrails.
    pub fn reset(&mut self, now: Instant, controller: &str) {
        let hosted = self.controllers.get_mut(controller);
        if let Some(controller) = hosted.and_then(|hosted| hosted.controller.as_mut()) {
            controller.reset(now);
        }
    }

    fn handle_answer(
        &mut self,
        now: Instant,
        call: CallId,
        result: Result<Vec<Decision>, CallFailure>,
        logged: usize,
        took: Duration,
    ) {
        let Some((name, hosted)) = find(&mut self.controllers, call.controller) else {
            return;
        };
        let Some(controller) = &mut hosted.controller else {
            return;
        };
        self.outbox.log.logged(name, logged, now);
        match result {
            Ok(decisions) => controller.handle_decisions(call, decisions, took),
            Err(failure) => controller.handle_call_failure(now, call, failure, took),
        }
    }

    fn handle_outcome(&mut self, now: Instant, plan: PlanId, mut outcome: Outcome, took: Duration) {
        self.note_refusal(plan, &mut outcome, now);
        self.note_deferred_deletions(plan, &outcome, now);
        if let Some(mapping) = self.mapping.clone()
            && let Some((name, hosted)) = find(&mut self.controllers, plan.controller)
            && let Some(controller) = &mut hosted.controller
        {
            let snapshot = self.store.snapshot();
            let world = World {
                now,
                snapshot: &snapshot,
                mapping: &mapping,
                leading: hosted.leads && self.leadership.holds(name, now),
            };
            controller.handle_outcome(plan, outcome.clone(), &world);
        }
        self.outbox.executed(plan, outcome, took, now);
    }

    fn withdraw_all(&mut self, now: Instant) {
        let ids: Vec<ControllerId> = self.running().map(|(_, one)| one.id()).collect();
        for id in ids {
            self.withdraw(now, id);
        }
    }

    /// Withdraws the plans of a controller. Plans that the driver has not taken yet end
    /// here; the driver withdraws the others that have not started.
    fn withdraw(&mut self, now: Instant, controller: ControllerId) {
        if Mutant::WithdrawNothing.is_active() {
            return;
        }
        for (id, plan) in self.outbox.withdraw(controller) {
            self.handle_outcome(now, id, withdrawn(&plan), Duration::ZERO);
        }
    }

    /// The resources of which views may lack objects.
    fn unlisted(&mut self, mapping: &Mapping, now: Instant) -> UnlistedResourcesByView {
        if let Some(known) = &self.unlisted {
            return Arc::clone(known);
        }
        let (coverage, store) = (&mut self.streams.coverage, &self.store);
        let watches = self
            .controllers
            .values()
            .flat_map(HostedController::watches);
        let unlisted: BTreeMap<_, Vec<UnlistedResource>> = watches
            .map(|(watch, view)| {
                let unlisted = coverage.unlisted(store, view, watch, mapping, now);
                (view, unlisted)
            })
            .collect();
        Arc::clone(self.unlisted.insert(Arc::new(unlisted)))
    }
}

/// The controller of that id, with its name; none if it was removed.
fn find<G: Clone>(
    controllers: &mut BTreeMap<String, HostedController<G>>,
    id: ControllerId,
) -> Option<(&String, &mut HostedController<G>)> {
    controllers.iter_mut().find(|(_, hosted)| {
        let controller = hosted.controller.as_ref();
        controller.is_some_and(|controller| controller.id() == id)
    })
}
