//! Taking on a configuration: which controllers run, and when a new revision
//! takes over.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use davit_cluster::write::Writer;
use davit_core::controller::{Controller, Settings};
use davit_core::gate::Mode;
use davit_core::manifest::Manifest;
use davit_core::queue::Origin;
use davit_core::store::{Store, ViewId, ViewSpec};
use davit_core::time::Instant;

use super::prepare::Prepared;
use super::report::Report;
use super::run::Run;
use super::slot::{self, Active, Incoming, Slot};
use super::streams;
use crate::metrics::GuestMetrics;

/// How long a revision waits for resources that it can do without, as
/// kube-controller-manager's garbage collector does.
const INITIAL_SYNC: Duration = Duration::from_secs(30);

impl Run {
    /// Makes these the controllers that run.
    pub(super) fn apply(&mut self, prepared: Vec<Prepared>) {
        let names: BTreeSet<&String> = prepared.iter().map(|one| &one.name).collect();
        let removed = self.slots.extract_if(.., |name, _| !names.contains(name));
        for (controller, _) in removed {
            tracing::info!(controller, "the controller is removed");
            self.metrics.forget(&controller);
        }
        for one in prepared {
            self.take_on(one);
        }
        self.attach_all();
    }

    fn take_on(&mut self, prepared: Prepared) {
        let slot = self.slots.entry(prepared.name.clone()).or_insert(Slot {
            active: None,
            incoming: None,
        });
        if let Some(active) = &mut slot.active
            && active.recipe == prepared.recipe
        {
            slot.incoming = None;
            let now = self.api.clock().instant();
            if set(active, prepared.settings) {
                let snapshot = self.store.snapshot();
                active.core.look_at_everything(now, &snapshot);
            }
            return;
        }
        let manifest = prepared.guest.manifest();
        let reusable = slot.reusable_views(manifest);
        let watches = manifest.watches.iter();
        let views = watches.zip(reusable).map(|(watch, view)| {
            view.unwrap_or_else(|| self.store.add_view(ViewSpec::from(watch)))
        });
        let views = views.collect();
        let since = self.api.clock().instant();
        slot.incoming = Some(Incoming {
            prepared,
            views,
            since,
        });
    }

    /// Gives every view the segments that its watch is made of, lets go of
    /// views that nobody has any more, and follows what is to be followed.
    pub(super) fn attach_all(&mut self) {
        let Some(mapping) = self.mapping.clone() else {
            return;
        };
        let mut changes = Vec::new();
        for slot in self.slots.values() {
            let active = slot.active.iter();
            let active = active.map(|active| (active.core.manifest(), &active.views));
            let incoming = slot.incoming.iter();
            let incoming =
                incoming.map(|incoming| (incoming.prepared.guest.manifest(), &incoming.views));
            for (manifest, views) in active.chain(incoming) {
                for (watch, view) in manifest.watches.iter().zip(views) {
                    if let Some(resource) = streams::unserved(watch, &mapping) {
                        let controller = &manifest.name;
                        tracing::warn!(
                            controller, %resource,
                            "waiting for a resource that the API server does not serve"
                        );
                    }
                    self.streams
                        .attach(&mut self.store, *view, watch, &mapping, &mut changes);
                }
            }
        }
        let now = self.api.clock().instant();
        self.tell_changes(&changes, Origin::Relist, now);
        self.take_over();
    }

    /// Lets every revision take over whose watches are complete, or as complete
    /// as they have to be by now.
    pub(super) fn take_over(&mut self) {
        let now = self.api.clock().instant();
        for (name, slot) in &mut self.slots {
            if let Some(active) = &mut slot.active {
                let complete = is_complete(&self.store, active.core.manifest(), &active.views);
                if active.complete && !complete {
                    tracing::error!(
                        controller = name,
                        "the controller pauses: a resource that it watches is not served any more"
                    );
                }
                active.complete = complete;
            }
            let Some(incoming) = &slot.incoming else {
                continue;
            };
            if !may_begin(&self.store, incoming, now) {
                continue;
            }
            let Some(incoming) = slot.incoming.take() else {
                continue;
            };
            let metrics = |former: Option<GuestMetrics>| {
                let specs = &incoming.prepared.guest.manifest().metrics;
                self.metrics.replace_guest(name, specs, former)
            };
            if let Some(active) = &mut slot.active {
                active.metrics = metrics(active.metrics.take());
                swap(active, incoming, now);
            } else {
                self.next_number += 1;
                let writer = Writer::new(self.api.clone(), self.recorder.clone(), name);
                let metrics = metrics(None);
                let active = begin(incoming, writer, metrics, self.next_number, now);
                slot.active = Some(active);
            }
            if let Some(active) = &mut slot.active {
                let snapshot = self.store.snapshot();
                active.core.look_at_everything(now, &snapshot);
            }
            let controller = name.clone();
            self.reporter.tell(Report::Started { controller }, now);
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

/// Whether every watch of a manifest shows what it should.
fn is_complete(store: &Store, manifest: &Manifest, views: &[ViewId]) -> bool {
    let mut watches = manifest.watches.iter().zip(views);
    watches.all(|(watch, view)| streams::is_ready(store, *view, watch))
}

/// Whether a revision has seen enough of the cluster. It waits a while for every
/// resource, even where it does not depend on each: a garbage collector that
/// does not see an owner's dependents yet would let the owner go before them.
fn may_begin(store: &Store, incoming: &Incoming, now: Instant) -> bool {
    let manifest = incoming.prepared.guest.manifest();
    let synced = |view: &ViewId| store.synced(*view) == Some(true);
    is_complete(store, manifest, &incoming.views)
        && (incoming.views.iter().all(synced) || now.since(incoming.since) >= INITIAL_SYNC)
}

/// Takes on settings; returns whether everything has to be looked at again,
/// because plans that were only shown would be carried out now.
fn set(active: &mut Active, settings: Settings) -> bool {
    let before = active.core.settings();
    let more = *before != settings && settings.mode == Mode::Enforce;
    active.core.set(settings);
    more
}

fn begin(
    incoming: Incoming,
    writer: Writer,
    metrics: Option<GuestMetrics>,
    number: u64,
    now: Instant,
) -> Active {
    let Incoming {
        prepared, views, ..
    } = incoming;
    let manifest = Arc::clone(prepared.guest.manifest());
    Active {
        number,
        views_by_name: slot::by_name(&manifest, &views),
        core: Controller::new(now, manifest, prepared.settings, &views),
        most_calls: prepared.recipe.instances(),
        guest: prepared.guest,
        recipe: prepared.recipe,
        views,
        metrics,
        writer,
        complete: true,
        calls: 0,
    }
}

/// The new revision takes over: queues, timers and notes stay, and what the
/// former revision still answers is void.
fn swap(active: &mut Active, incoming: Incoming, now: Instant) {
    let Incoming {
        prepared, views, ..
    } = incoming;
    let manifest = Arc::clone(prepared.guest.manifest());
    active.views_by_name = slot::by_name(&manifest, &views);
    active.core.reconfigure(now, manifest, &views);
    active.core.set(prepared.settings);
    active.most_calls = prepared.recipe.instances();
    active.guest = prepared.guest;
    active.recipe = prepared.recipe;
    active.views = views;
    active.complete = true;
}
