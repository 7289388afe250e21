//! The host's task: what comes in, and in which order it is digested.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use davit_cluster::api::Api;
use davit_cluster::discovery::{self, Discovered};
use davit_cluster::events::Recorder;
use davit_cluster::write;
use davit_core::controller::{CallId, Outcome, PlanId, Revision, RevisionId, World};
use davit_core::coverage::{Unlisted, is_definitions};
use davit_core::failure::Failure;
use davit_core::health::{Health, State};
use davit_core::mapping::Mapping;
use davit_core::observation::{Disagreements, Observation};
use davit_core::plan::{Decision, Plan};
use davit_core::queue::Origin;
use davit_core::rollout::Role;
use davit_core::store::{Change, Store, Taken, ViewId};
use davit_core::stream::{Batch, StreamId, Update};
use davit_core::throttle::{LeftOut, Throttle};
use davit_core::time::Instant;
use davit_core::untrusted;
use davit_core::watch::Condition;
use davit_engine::CallError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, sleep_until};

use super::report::{Report, Reporter};
use super::slot::{Active, Slot};
use super::streams::Streams;
use super::work::{self, Executor};
use super::{DesiredController, HostOptions};
use crate::health;
use crate::metrics::{GuestMetrics, HostMetrics};

/// How often the API server is asked what it serves.
const DISCOVERY_PERIOD: Duration = Duration::from_secs(30);
/// The pause after a discovery that failed.
const DISCOVERY_RETRY: Duration = Duration::from_secs(2);
/// How often gauges are set and lapsed expectations forgotten.
const HOUSEKEEPING_PERIOD: Duration = Duration::from_secs(1);
/// How much news of streams waits for the task, in batches, before the streams
/// do.
const NEWS: usize = 64;
/// How many inputs are digested before the controllers are asked what to do.
const MOST_AT_ONCE: usize = 256;

/// What the task is told.
pub(super) enum Input {
    Apply(Vec<DesiredController>),
    Observe(oneshot::Sender<BTreeMap<String, Observation>>),
    Disagreements {
        controller: String,
        answer: oneshot::Sender<Option<Disagreements>>,
    },
    Reset(String),
    Called {
        controller: String,
        number: u64,
        revision: RevisionId,
        id: CallId,
        result: Result<Vec<Decision>, CallError>,
        took: Duration,
    },
    Carried {
        controller: String,
        number: u64,
        id: PlanId,
        decision: write::Decision,
        plan: Arc<Plan>,
        outcome: Outcome,
        took: Duration,
    },
    Discovered(Result<Discovered, Failure>),
    Stop,
}

/// Of which resources each view may lack objects.
pub(super) type Uncovered = Arc<BTreeMap<ViewId, Vec<Unlisted>>>;

/// The host's task.
pub(super) struct Run {
    pub(super) api: Api,
    pub(super) recorder: Recorder,
    pub(super) store: Store,
    pub(super) streams: Streams,
    /// None until the first discovery.
    pub(super) mapping: Option<Arc<Mapping>>,
    pub(super) slots: BTreeMap<String, Slot>,
    pub(super) metrics: Arc<HostMetrics>,
    pub(super) health: Arc<health::Health>,
    pub(super) executor: Executor,
    pub(super) next_number: u64,
    /// What went wrong with watches and discovery.
    troubles: Throttle<String>,
    /// Of which resources views may lack objects; none if that may have changed.
    uncovered: Option<Uncovered>,
    inbox: mpsc::UnboundedSender<Input>,
    news: mpsc::Receiver<Batch>,
}

impl Run {
    pub(super) fn new(
        options: HostOptions,
        api: Api,
        recorder: Recorder,
        inbox: mpsc::UnboundedSender<Input>,
    ) -> Self {
        let (updates, news) = mpsc::channel(NEWS);
        let streams = Streams::new(api.clone(), options.watch, options.seed, updates);
        let executor = Executor {
            api: api.clone(),
            metrics: Arc::clone(&options.metrics),
            reporter: Reporter::new(options.listener),
            inbox: inbox.clone(),
            carrying: 0,
            name: unique_name(),
            stopping: false,
        };
        Self {
            recorder,
            api,
            store: Store::default(),
            streams,
            mapping: None,
            slots: BTreeMap::new(),
            metrics: options.metrics,
            health: options.health,
            executor,
            next_number: 0,
            troubles: Throttle::default(),
            uncovered: None,
            inbox,
            news,
        }
    }

    /// Runs until it is told to stop and the last plan has come to its end.
    pub(super) async fn until_stopped(mut self, mut inputs: mpsc::UnboundedReceiver<Input>) {
        self.discover_after(Duration::ZERO);
        let mut housekeeping = interval(HOUSEKEEPING_PERIOD);
        housekeeping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !(self.executor.stopping && self.executor.carrying == 0) {
            let wake = self.next_wake();
            tokio::select! {
                Some(input) = inputs.recv() => {
                    self.digest(input);
                    for _ in 1..MOST_AT_ONCE {
                        let Ok(input) = inputs.try_recv() else { break };
                        self.digest(input);
                    }
                }
                Some(batch) = self.news.recv() => self.take_news(batch),
                _ = housekeeping.tick() => self.keep_house(),
                () = sleep_until(wake) => {}
            }
            self.work();
        }
    }

    fn next_wake(&self) -> tokio::time::Instant {
        let clock = self.api.clock();
        if self.executor.stopping {
            // What is due is not looked at any more: only outcomes matter.
            return clock.deadline(Instant::FAR_FUTURE);
        }
        let now = clock.instant();
        let wakes = self.active().filter_map(|active| {
            let ready = active.ready();
            active.core.poll_timeout(now, &ready)
        });
        clock.deadline(wakes.min().unwrap_or(Instant::FAR_FUTURE))
    }

    fn active(&self) -> impl Iterator<Item = &Active> {
        let slots = self.slots.values();
        slots.filter_map(|slot| slot.active.as_ref())
    }

    fn active_mut(&mut self, controller: &str, number: u64) -> Option<&mut Active> {
        let active = self.slots.get_mut(controller)?.active.as_mut()?;
        (active.number == number).then_some(active)
    }

    fn digest(&mut self, input: Input) {
        match input {
            Input::Apply(wanted) => self.apply(wanted),
            // Whoever asked may have gone.
            Input::Observe(answer) => {
                let _ = answer.send(self.observe());
            }
            Input::Disagreements { controller, answer } => {
                let _ = answer.send(self.disagreements(&controller));
            }
            Input::Reset(controller) => {
                let now = self.api.clock().instant();
                let slot = self.slots.get_mut(&controller);
                if let Some(active) = slot.and_then(|slot| slot.active.as_mut()) {
                    active.core.reset(now);
                }
            }
            Input::Called {
                controller,
                number,
                revision,
                id,
                result,
                took,
            } => self.take_decisions(&controller, number, (revision, id), result, took),
            Input::Carried {
                controller,
                number,
                id,
                decision,
                plan,
                outcome,
                took,
            } => self.take_outcome(controller, number, (id, decision, plan), outcome, took),
            Input::Discovered(result) => self.take_discovery(result),
            Input::Stop => {
                self.executor.stopping = true;
                self.active().for_each(|active| active.brake.pull());
            }
        }
    }

    fn take_decisions(
        &mut self,
        controller: &str,
        number: u64,
        (revision, id): (RevisionId, CallId),
        result: Result<Vec<Decision>, CallError>,
        took: Duration,
    ) {
        let Some(mapping) = self.mapping.clone() else {
            return;
        };
        let metrics = Arc::clone(&self.metrics);
        let snapshot = self.store.snapshot();
        let now = self.api.clock().instant();
        let Some(active) = self.active_mut(controller, number) else {
            return;
        };
        let role = active.revision_mut(revision).map(|(role, part)| {
            part.calls -= 1;
            role
        });
        let Some(role) = role else {
            // The revision is gone, and with it what it was asked.
            return;
        };
        let result = result.map_err(|error| (work::call_failure(&error), error));
        let counted = result
            .as_ref()
            .map(drop)
            .map_err(|(failure, _)| failure.kind);
        metrics.calls.ended(controller, role, counted, took);
        let world = World {
            now,
            snapshot: &snapshot,
            mapping: &mapping,
        };
        match result {
            Ok(decisions) => active.core.handle_decisions(id, decisions, took, &world),
            Err((failure, error)) => {
                let part = role.as_str();
                // It says what the guest printed before a trap.
                let text = untrusted::line(&error.to_string(), untrusted::MOST_LOGGED);
                tracing::warn!(controller, part, error = text, "a call of the guest failed");
                active.core.handle_call_failure(now, id, failure);
                let health = active.core.revision(role).map(Revision::health);
                if let Some(State::Quarantined { until, reason }) = health.map(Health::state) {
                    let pause = until.since(now);
                    let error = untrusted::line(&reason.to_string(), untrusted::MOST_LOGGED);
                    tracing::error!(
                        controller,
                        part,
                        ?pause,
                        error,
                        "circuit open: the guest is not called for a while"
                    );
                }
            }
        }
    }

    fn take_outcome(
        &mut self,
        controller: String,
        number: u64,
        (id, decision, plan): (PlanId, write::Decision, Arc<Plan>),
        outcome: Outcome,
        took: Duration,
    ) {
        self.executor.carrying -= 1;
        self.metrics.plans.executed(&controller, &outcome, took);
        let snapshot = self.store.snapshot();
        let now = self.api.clock().instant();
        if let Some(mapping) = self.mapping.clone()
            && let Some(active) = self.active_mut(&controller, number)
        {
            let world = World {
                now,
                snapshot: &snapshot,
                mapping: &mapping,
            };
            active.core.handle_outcome(id, outcome.clone(), &world);
        }
        let report = Report::Carried {
            controller,
            decision,
            plan,
            outcome,
        };
        self.executor.reporter.tell(report, now);
    }

    fn take_news(&mut self, batch: Batch) {
        let now = self.api.clock().instant();
        let mut news = Vec::new();
        let segment = self.streams.segment(batch.stream);
        let spec = segment.and_then(|segment| self.store.segment_spec(segment));
        // What is defined, and what is served, tells whose objects are gone.
        let mut may_be_gone = spec.is_some_and(|spec| is_definitions(&spec.resource));
        for update in batch.updates {
            if let Update::Status(condition) = &update {
                may_be_gone |= *condition == Condition::NotServed;
                self.note_condition(batch.stream, condition);
                continue;
            }
            let mut changes = Vec::new();
            let (streams, store) = (&mut self.streams, &mut self.store);
            match streams.take(store, batch.stream, update, now, &mut changes) {
                Taken::News => news.append(&mut changes),
                Taken::List => {
                    self.note_condition(batch.stream, &Condition::Synced);
                    self.tell_changes(&std::mem::take(&mut news), Origin::Fresh, now);
                    self.tell_changes(&changes, Origin::Relist, now);
                    // It may be the version that takes another one's place.
                    self.detach_all();
                    self.take_over();
                }
            }
        }
        self.tell_changes(&news, Origin::Fresh, now);
        if may_be_gone {
            self.detach_all();
        }
    }

    pub(super) fn tell_changes(&mut self, changes: &[Change], origin: Origin, now: Instant) {
        if changes.is_empty() {
            return;
        }
        let snapshot = self.store.snapshot();
        for active in self
            .slots
            .values_mut()
            .filter_map(|slot| slot.active.as_mut())
        {
            active.core.handle_changes(now, changes, origin, &snapshot);
        }
    }

    fn note_condition(&mut self, stream: StreamId, condition: &Condition) {
        let segment = self.streams.segment(stream);
        let Some(spec) = segment.and_then(|segment| self.store.segment_spec(segment)) else {
            return;
        };
        let resource = spec.resource.to_string();
        match condition {
            Condition::Synced => tracing::debug!(resource, "followed"),
            Condition::NotServed => tracing::warn!(resource, "the API server does not serve it"),
            Condition::Interrupted { reason } => {
                if let Some(left_out) = self.trouble(reason) {
                    tracing::warn!(resource, "the watch was interrupted: {reason}{left_out}");
                } else {
                    tracing::debug!(resource, "the watch was interrupted: {reason}");
                }
                self.metrics.cache.interrupted(&resource);
            }
        }
        self.streams.note_hindrance(stream, condition);
        if !self.streams.fills(stream) {
            // What the views show comes from another stream.
            return;
        }
        let now = self.api.clock().instant();
        self.streams.note_condition(stream, condition, now);
        self.uncovered = None;
        let is_synced = *condition == Condition::Synced;
        self.metrics.cache.set_synced(&resource, is_synced);
    }

    /// Whether a warning about this is written. While the API server does not
    /// answer, that is told once for all.
    fn trouble(&mut self, cause: &str) -> Option<LeftOut> {
        if self.api.absence().is_some() {
            return None;
        }
        let now = self.api.clock().instant();
        self.troubles.admit(cause.to_owned(), now)
    }

    fn take_discovery(&mut self, result: Result<Discovered, Failure>) {
        let discovered = match result {
            Ok(discovered) => discovered,
            Err(failure) => {
                if let Some(left_out) = self.trouble(&failure.message) {
                    tracing::warn!(
                        "the API server does not say what it serves: {failure}{left_out}"
                    );
                } else {
                    tracing::debug!("the API server does not say what it serves: {failure}");
                }
                let metrics = self.active().filter_map(|active| active.metrics.as_ref());
                metrics.for_each(GuestMetrics::sync_error);
                self.discover_after(DISCOVERY_RETRY);
                return;
            }
        };
        self.discover_after(DISCOVERY_PERIOD);
        let failed = discovered.failed.into_iter();
        let failed: Vec<String> = failed.map(|(version, _)| version).collect();
        if !failed.is_empty()
            && let Some(left_out) = self.trouble(&failed.join(", "))
        {
            tracing::warn!(?failed, "some groups do not say what they serve{left_out}");
        }
        let before = self.mapping.as_deref();
        let mapping = match before {
            Some(before) => discovered.mapping.or_from(before, &failed),
            None => discovered.mapping,
        };
        self.streams
            .coverage
            .note_discovery(&self.store, before, &mapping, &failed);
        let is_news = before.is_some_and(|before| *before != mapping);
        self.mapping = Some(Arc::new(mapping));
        self.streams.list_returned();
        self.attach_all();
        if is_news {
            let now = self.api.clock().instant();
            let slots = self.slots.values_mut();
            for active in slots.filter_map(|slot| slot.active.as_mut()) {
                active.core.handle_mapping(now);
            }
        }
        self.count_overdue();
    }

    /// Counts for every controller that something it watches was not listed for
    /// a whole period of discovery.
    fn count_overdue(&mut self) {
        let overdue = self.streams.overdue(&self.store);
        for active in self.active() {
            let views = active.stable.views.ids.iter();
            let mut segments = views.flat_map(|view| self.store.segments_of(*view));
            if let Some(metrics) = &active.metrics
                && segments.any(|(segment, _)| overdue.contains(&segment))
            {
                metrics.sync_error();
            }
        }
    }

    fn discover_after(&self, pause: Duration) {
        let (api, inbox) = (self.api.clone(), self.inbox.clone());
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            let result = discovery::discover(&api).await;
            // The host may have stopped meanwhile.
            let _ = inbox.send(Input::Discovered(result));
        });
    }

    /// What views are made of has changed.
    pub(super) fn forget_uncovered(&mut self) {
        self.uncovered = None;
    }

    /// Of which resources views may lack objects.
    pub(super) fn uncovered(&mut self, mapping: &Mapping) -> Uncovered {
        if let Some(known) = &self.uncovered {
            return Arc::clone(known);
        }
        let now = self.api.clock().instant();
        let (coverage, store) = (&mut self.streams.coverage, &self.store);
        let mut uncovered = BTreeMap::new();
        for (manifest, views) in self.slots.values().flat_map(Slot::parts) {
            for (watch, view) in manifest.watches.iter().zip(&views.ids) {
                let unlisted = coverage.unlisted(store, *view, watch, mapping, now);
                uncovered.insert(*view, unlisted);
            }
        }
        Arc::clone(self.uncovered.insert(Arc::new(uncovered)))
    }

    /// What keeps the controllers from running; nothing if all of them do.
    fn waits(&self) -> Option<String> {
        if self.mapping.is_none() {
            return Some("the API server did not say what it serves".to_owned());
        }
        self.slots.iter().find_map(|(name, slot)| {
            match slot.active.as_ref().map(|active| active.stable.complete) {
                Some(true) => None,
                Some(false) => Some(format!("{name}: a resource that it watches is not served")),
                None => Some(match self.awaited(slot) {
                    Some(awaited) => format!("{name}: {awaited}"),
                    None => format!("{name}: what it watches is not complete"),
                }),
            }
        })
    }

    fn keep_house(&mut self) {
        if self.streams.coverage.tidy(self.api.clock().instant()) {
            self.uncovered = None;
        }
        let waits = |slot: &Slot| slot.stable.is_some() || slot.candidate.is_some();
        if self.mapping.is_some() && self.slots.values().any(waits) {
            // Some have waited long enough by now.
            self.take_over();
        }
        let now = self.api.clock().instant();
        let snapshot = self.store.snapshot();
        for (name, slot) in &mut self.slots {
            if let Some(active) = &mut slot.active {
                active.core.tidy(now, &snapshot);
                let state = active.core.stable().health().state();
                let is_open = !matches!(state, State::Healthy);
                self.metrics.calls.set_circuit_open(name, is_open);
                if let Some(stable) = active.core.revision_mut(Role::Stable) {
                    for stats in stable.queue_stats(now) {
                        self.metrics.queues.set(name, &stats);
                    }
                }
            }
        }
        self.metrics.events.set(&self.recorder.stats());
        let mut bytes = 0;
        for (segment, spec) in self.store.segments() {
            bytes += self.store.segment_bytes(segment);
            let objects = self.store.segment_len(segment);
            let resource = spec.resource.to_string();
            self.metrics.cache.set_objects(&resource, objects);
        }
        self.metrics.cache.set_bytes(bytes);
        self.health.heartbeat(self.waits());
        self.health
            .set_unreachable(self.api.absence().map(|absence| {
                let lasts = now.since(absence.since);
                (lasts, absence.last)
            }));
    }
}

/// Ten digits of the time at which the host started: decisions of another run
/// have others.
fn unique_name() -> String {
    let millis = jiff::Timestamp::now().as_millisecond();
    format!("{millis:010x}")
}
