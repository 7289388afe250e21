//! Taking on what is wanted, and the moment at which a revision takes over.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use davit_cluster::write::Writer;
use davit_core::controller::{Controller, RevisionId, Settings};
use davit_core::desired::CandidateStep;
use davit_core::manifest::Manifest;
use davit_core::queue::Origin;
use davit_core::rollout::Role;
use davit_core::rollout::cohort::Cohort;
use davit_core::store::{Store, ViewId};
use davit_core::time::Instant;

use super::DesiredController;
use super::report::Report;
use super::run::Run;
use super::slot::{self, Active, Brake, Incoming, Part, Slot, Views};
use super::streams::{self, Streams};
use crate::loader::LoadedRevision;

/// How long a revision waits for resources that it can do without, as
/// kube-controller-manager's garbage collector does.
const INITIAL_SYNC: Duration = Duration::from_secs(30);

impl Run {
    /// Makes these the controllers that run.
    pub(super) fn apply(&mut self, wanted: Vec<DesiredController>) {
        self.settle();
        let names: BTreeSet<&String> = wanted.iter().map(|one| &one.name).collect();
        let removed = self.slots.extract_if(.., |name, _| !names.contains(name));
        for (controller, _) in removed {
            tracing::info!(controller, "the controller is removed");
            self.metrics.calls.remove(&controller);
        }
        for one in wanted {
            self.take_on(one);
        }
        self.attach_all();
    }

    fn take_on(&mut self, wanted: DesiredController) {
        let DesiredController {
            name,
            settings,
            user,
            stable,
            cohort,
            candidate,
            tripped,
        } = wanted;
        let now = self.api.clock().instant();
        let writer = Writer::new(&self.api, self.recorder.clone(), &name, user.as_deref());
        let mut slot = self.slots.remove(&name).unwrap_or_default();
        slot.settings.clone_from(&settings);
        slot.tripped = tripped;
        if let Some(active) = &mut slot.active {
            if *active.core.settings() != settings || slot.user != user {
                active.brake.pull();
            }
            active.core.set(now, settings);
            active.writer = writer.clone();
        }
        slot.writer = Some(writer);
        slot.user = user;
        self.take_on_stable(&name, &mut slot, stable, &cohort, now);
        self.take_on_candidate(&mut slot, candidate, now);
        self.slots.insert(name, slot);
    }

    fn take_on_stable(
        &mut self,
        name: &str,
        slot: &mut Slot,
        wanted: LoadedRevision,
        cohort: &Cohort,
        now: Instant,
    ) {
        if let Some(active) = &mut slot.active {
            let is_candidate = |part: &mut Part| part.identity == wanted.identity;
            if active.stable.identity != wanted.identity
                && let Some(part) = active.candidate.take_if(is_candidate)
            {
                tracing::info!(controller = name, revision = %part.identity, "promoted");
                let specs = &part.manifest.metrics;
                let former = active.metrics.take();
                active.metrics = self.metrics.replace_guest(name, specs, former);
                active.core.promote(now);
                active.stable = part;
            }
            if active.stable.identity == wanted.identity {
                slot.stable = None;
                return;
            }
        }
        if let Some(incoming) = &slot.stable
            && incoming.prepared.identity == wanted.identity
        {
            return;
        }
        slot.stable = Some(self.incoming(slot, wanted, cohort, now, ()));
    }

    fn take_on_candidate(
        &mut self,
        slot: &mut Slot,
        wanted: Option<(LoadedRevision, CandidateStep)>,
        now: Instant,
    ) {
        let Some((prepared, step)) = wanted else {
            slot.candidate = None;
            if let Some(active) = &mut slot.active
                && active.candidate.take().is_some()
            {
                active.brake.pull();
                active.core.drop_candidate(now);
            }
            return;
        };
        if let Some(active) = &mut slot.active
            && let Some(part) = &active.candidate
            && part.identity == prepared.identity
            && part.views.cohort.fields() == step.share.cohort.fields()
        {
            active.core.set_share(now, step.share.clone());
            let manifests = [&part.manifest, &active.stable.manifest];
            let window = slot::window(step.window, manifests.map(|manifest| &**manifest));
            active.core.set_window(window);
            begin_step(active, step.number, now);
            slot.candidate = None;
            return;
        }
        if let Some(incoming) = &mut slot.candidate
            && incoming.prepared.identity == prepared.identity
            && incoming.views.cohort.fields() == step.share.cohort.fields()
        {
            incoming.then = step;
            return;
        }
        if let Some(active) = &mut slot.active {
            // Until it is seen who is whose by the new cohorts, nobody is the
            // candidate's.
            active.core.withhold_share(now);
        }
        let cohort = step.share.cohort.clone();
        slot.candidate = Some(self.incoming(slot, prepared, &cohort, now, step));
    }

    fn incoming<T>(
        &mut self,
        slot: &Slot,
        prepared: LoadedRevision,
        cohort: &Cohort,
        now: Instant,
        then: T,
    ) -> Incoming<T> {
        let watches = prepared.manifest.watches.iter();
        let ids = watches.map(|watch| {
            slot.reusable_view(watch, cohort)
                .unwrap_or_else(|| self.store.add_view(slot::view_spec(watch, cohort)))
        });
        let views = Views {
            ids: ids.collect(),
            cohort: cohort.clone(),
        };
        Incoming {
            prepared,
            views,
            since: now,
            then,
        }
    }

    /// Gives every view the segments that its watch is made of, lets go of
    /// views that nobody has any more, and follows what is to be followed.
    pub(super) fn attach_all(&mut self) {
        let Some(mapping) = self.mapping.clone() else {
            return;
        };
        let mut changes = Vec::new();
        for slot in self.slots.values() {
            for (manifest, views) in slot.parts() {
                for (watch, view) in manifest.watches.iter().zip(&views.ids) {
                    if let Some(resource) = streams::unserved(watch, &mapping) {
                        let controller = &manifest.name;
                        tracing::warn!(
                            controller, %resource,
                            "waiting for a resource that the API server does not serve"
                        );
                    }
                    Streams::attach(&mut self.store, *view, watch, &mapping, &mut changes);
                }
            }
        }
        let now = self.api.clock().instant();
        self.tell_changes(&changes, Origin::Relist, now);
        self.detach_all();
        self.take_over();
    }

    /// Takes segments out of views that have nothing to show there any more.
    pub(super) fn detach_all(&mut self) {
        let Some(mapping) = self.mapping.clone() else {
            return;
        };
        let now = self.api.clock().instant();
        let mut changes = Vec::new();
        for (manifest, views) in self.slots.values().flat_map(Slot::parts) {
            for (watch, view) in manifest.watches.iter().zip(&views.ids) {
                let (streams, store) = (&self.streams, &mut self.store);
                streams.detach(store, *view, watch, &mapping, now, &mut changes);
            }
        }
        self.forget_uncovered();
        self.tell_changes(&changes, Origin::Relist, now);
    }

    /// Lets every revision take over whose watches are complete, or as complete
    /// as they have to be by now.
    pub(super) fn take_over(&mut self) {
        self.settle();
        let clock = self.api.clock().now();
        let now = clock.instant;
        for (name, slot) in &mut self.slots {
            if let Some(active) = &mut slot.active {
                note_completeness(name, active, &self.store);
            }
            let ready = |one: &mut Incoming<()>| may_begin(&self.store, one, now);
            if let Some(incoming) = slot.stable.take_if(ready) {
                let specs = &incoming.prepared.manifest.metrics;
                let former = slot.active.as_mut().and_then(|one| one.metrics.take());
                let metrics = self.metrics.replace_guest(name, specs, former);
                if let Some(active) = &mut slot.active {
                    swap(active, incoming, now);
                    active.metrics = metrics;
                } else if let Some(writer) = slot.writer.clone() {
                    self.next_number += 1;
                    let settings = slot.settings.clone();
                    let mut active = begin(incoming, settings, writer, self.next_number, now);
                    active.metrics = metrics;
                    for tripped in &slot.tripped {
                        active.core.resume_trip(tripped.resumed(clock));
                    }
                    slot.active = Some(active);
                }
                let controller = name.clone();
                self.executor
                    .reporter
                    .tell(Report::Started { controller }, now);
            }
            let ready = |one: &mut Incoming<CandidateStep>| may_begin(&self.store, one, now);
            // It is compared with the revision that it is to replace.
            if let Some(active) = &mut slot.active
                && slot.stable.is_none()
                && let Some(incoming) = slot.candidate.take_if(ready)
            {
                try_candidate(name, active, incoming, now);
            }
        }
        self.drop_unused_views();
        self.streams.follow(&self.store);
    }

    fn drop_unused_views(&mut self) {
        let used: BTreeSet<ViewId> = self.slots.values().flat_map(Slot::views).collect();
        let unused: Vec<ViewId> = self.store.views().filter(|id| !used.contains(id)).collect();
        for view in unused {
            self.store.remove_view(view);
        }
    }
}

fn note_completeness(name: &str, active: &mut Active, store: &Store) {
    for role in Role::ALL {
        let Some(part) = active.part_mut(role) else {
            continue;
        };
        let complete = is_complete(store, &part.manifest, &part.views.ids);
        if part.complete && !complete {
            let role = role.as_str();
            tracing::error!(
                controller = name,
                role,
                "the controller pauses: a resource that it watches is not served any more"
            );
        }
        part.complete = complete;
    }
}

/// Whether every watch of a manifest shows what it should.
fn is_complete(store: &Store, manifest: &Manifest, views: &[ViewId]) -> bool {
    let mut watches = manifest.watches.iter().zip(views);
    watches.all(|(watch, view)| streams::is_ready(store, *view, watch))
}

/// Whether a revision has seen enough of the cluster. It waits a while for every
/// resource, even where it does not depend on each: a garbage collector that
/// does not see an owner's dependents yet would let the owner go before them.
fn may_begin<T>(store: &Store, incoming: &Incoming<T>, now: Instant) -> bool {
    let manifest = &incoming.prepared.manifest;
    let views = &incoming.views.ids;
    let synced = |view: &ViewId| store.synced(*view) == Some(true);
    is_complete(store, manifest, views)
        && (views.iter().all(synced) || now.since(incoming.since) >= INITIAL_SYNC)
}

fn begin(
    incoming: Incoming<()>,
    settings: Settings,
    writer: Writer,
    number: u64,
    now: Instant,
) -> Active {
    let Incoming {
        prepared, views, ..
    } = incoming;
    let manifest = Arc::clone(&prepared.manifest);
    let core = Controller::new(now, manifest, settings, &views.ids);
    Active {
        number,
        stable: Part::new(core.stable().id(), prepared, views),
        core,
        candidate: None,
        step: 0,
        metrics: None,
        writer,
        brake: Brake::default(),
    }
}

/// Another revision takes the stable one's place: queues, timers and notes
/// stay, and what the former revision still answers is void.
fn swap(active: &mut Active, incoming: Incoming<()>, now: Instant) {
    let Incoming {
        prepared, views, ..
    } = incoming;
    let manifest = Arc::clone(&prepared.manifest);
    active.core.reconfigure(now, manifest, &views.ids);
    let id: RevisionId = active.core.stable().id();
    let former = std::mem::replace(&mut active.stable, Part::new(id, prepared, views));
    // Its instances are given back by another thread.
    tokio::task::spawn_blocking(move || drop(former));
}

/// Counts for another step, if it is another.
fn begin_step(active: &mut Active, step: u32, now: Instant) {
    if active.step != step {
        active.step = step;
        active.core.begin_counting(now);
    }
}

fn try_candidate(name: &str, active: &mut Active, incoming: Incoming<CandidateStep>, now: Instant) {
    let Incoming {
        prepared,
        views,
        then: step,
        ..
    } = incoming;
    let manifest = Arc::clone(&prepared.manifest);
    let window = slot::window(step.window, [&*manifest, &*active.stable.manifest]);
    let share = step.share.clone();
    if let Some(part) = &mut active.candidate
        && part.identity == prepared.identity
    {
        active.core.set_window(window);
        active.core.change_candidate_views(now, &views.ids, share);
        part.change_views(views);
        return begin_step(active, step.number, now);
    }
    tracing::info!(
        controller = name,
        revision = %prepared.identity,
        weight = step.share.weight,
        "trying a candidate"
    );
    active
        .core
        .try_candidate(now, manifest, &views.ids, share, window);
    let candidate = active.core.candidate();
    active.candidate = candidate.map(|revision| Part::new(revision.id(), prepared, views));
    active.step = step.number;
}
