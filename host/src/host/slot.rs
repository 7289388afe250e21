//! One controller in the host: what runs, what is tried beside it, and what is
//! about to take over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use davit_cluster::write::Writer;
use davit_core::controller::{Controller, RevisionId, Settings};
use davit_core::desired::{CandidateStep, TrippedGuardrail};
use davit_core::manifest::{Manifest, WatchSpec};
use davit_core::revision::RevisionIdentity;
use davit_core::rollout::Role;
use davit_core::rollout::cohort::Cohort;
use davit_core::store::{ViewId, ViewSpec};
use davit_core::time::Instant;
use davit_engine::Guest;
use tokio::sync::watch;

use crate::loader::LoadedRevision;
use crate::metrics::GuestMetrics;

/// One controller.
#[derive(Default)]
pub(super) struct Slot {
    /// What runs; none until its watches are complete for the first time.
    pub(super) active: Option<Active>,
    /// What takes the stable revision's place once its watches are complete.
    pub(super) stable: Option<Incoming<()>>,
    /// What is tried beside it once its watches are complete.
    pub(super) candidate: Option<Incoming<CandidateStep>>,
    /// What it begins with.
    pub(super) settings: Settings,
    pub(super) writer: Option<Writer>,
    /// In whose name it writes.
    pub(super) user: Option<String>,
    pub(super) tripped: Vec<TrippedGuardrail>,
}

/// A controller that runs.
pub(super) struct Active {
    /// Its number, never used twice: what comes back from an earlier
    /// controller of the same name is not this one's.
    pub(super) number: u64,
    pub(super) core: Controller,
    pub(super) stable: Part,
    pub(super) candidate: Option<Part>,
    /// The step of the rollout that the candidate's doings are counted for.
    pub(super) step: u32,
    /// None if they could not be published.
    pub(super) metrics: Option<GuestMetrics>,
    pub(super) writer: Writer,
    pub(super) brake: Brake,
}

/// How a controller's plans are kept back that were admitted and have not begun:
/// one that sees the brake pulled since it was admitted never begins. It is
/// pulled when an operator decides otherwise, a candidate is taken back, or the
/// host stops; not at a swap, where what was admitted is known to the successor.
#[derive(Default)]
pub(super) struct Brake(watch::Sender<u64>);

/// The brake as a plan sees it that was admitted.
pub(super) struct Braked(watch::Receiver<u64>);

impl Brake {
    pub(super) fn pull(&self) {
        self.0.send_modify(|pulls| *pulls += 1);
    }

    /// For a plan that is admitted now.
    pub(super) fn watched(&self) -> Braked {
        Braked(self.0.subscribe())
    }
}

impl Braked {
    /// Waits until the brake is pulled.
    pub(super) async fn pulled(&mut self) {
        if self.0.changed().await.is_err() {
            // Nobody can pull it any more.
            std::future::pending::<()>().await;
        }
    }
}

/// A revision that runs.
pub(super) struct Part {
    pub(super) id: RevisionId,
    pub(super) guest: Arc<Guest>,
    pub(super) manifest: Arc<Manifest>,
    pub(super) identity: RevisionIdentity,
    /// The revision's name.
    pub(super) revision: Arc<str>,
    pub(super) views: Views,
    pub(super) by_name: Arc<BTreeMap<String, ViewId>>,
    /// Whether every watch shows what it should. A resource that is served no
    /// longer takes its objects out of the cache: their absence must not be
    /// taken for the cluster's.
    pub(super) complete: bool,
    /// Calls under way.
    pub(super) calls: u32,
}

/// A revision whose watches are not complete yet.
pub(super) struct Incoming<T> {
    pub(super) prepared: LoadedRevision,
    pub(super) views: Views,
    /// Since when it waits.
    pub(super) since: Instant,
    /// What is to become of it then.
    pub(super) then: T,
}

/// The views of a manifest's watches, in their order, and what they hold beyond
/// the fields that the guest reads.
#[derive(Clone)]
pub(super) struct Views {
    pub(super) ids: Vec<ViewId>,
    pub(super) cohort: Cohort,
}

impl Slot {
    /// The revisions that run or are to run, each with its views.
    pub(super) fn parts(&self) -> impl Iterator<Item = (&Arc<Manifest>, &Views)> {
        let running = self.active.iter().flat_map(Active::parts);
        let running = running.map(|(_, part)| (&part.manifest, &part.views));
        let stable = self.stable.iter();
        let stable = stable.map(|one| (&one.prepared.manifest, &one.views));
        let candidate = self.candidate.iter();
        let candidate = candidate.map(|one| (&one.prepared.manifest, &one.views));
        running.chain(stable).chain(candidate)
    }

    /// The view of an identical watch that is there already.
    pub(super) fn reusable_view(&self, watch: &WatchSpec, cohort: &Cohort) -> Option<ViewId> {
        let mut alike = self
            .parts()
            .filter(|(_, views)| views.cohort.fields() == cohort.fields());
        alike.find_map(|(manifest, views)| {
            let position = manifest.watches.iter().position(|other| other == watch)?;
            views.ids.get(position).copied()
        })
    }

    /// Every view that is in use.
    pub(super) fn views(&self) -> impl Iterator<Item = ViewId> {
        self.parts()
            .flat_map(|(_, views)| views.ids.iter().copied())
    }
}

impl Active {
    /// The revisions that run.
    pub(super) fn parts(&self) -> impl Iterator<Item = (Role, &Part)> {
        let stable = std::iter::once((Role::Stable, &self.stable));
        let candidate = self.candidate.iter();
        stable.chain(candidate.map(|part| (Role::Candidate, part)))
    }

    pub(super) fn part(&self, role: Role) -> Option<&Part> {
        match role {
            Role::Stable => Some(&self.stable),
            Role::Candidate => self.candidate.as_ref(),
        }
    }

    pub(super) fn part_mut(&mut self, role: Role) -> Option<&mut Part> {
        match role {
            Role::Stable => Some(&mut self.stable),
            Role::Candidate => self.candidate.as_mut(),
        }
    }

    /// The revision of that name, with its part.
    pub(super) fn revision_mut(&mut self, id: RevisionId) -> Option<(Role, &mut Part)> {
        let stable = std::iter::once((Role::Stable, &mut self.stable));
        let candidate = self.candidate.as_mut();
        let mut all = stable.chain(candidate.map(|part| (Role::Candidate, part)));
        all.find(|(_, part)| part.id == id)
    }

    /// The revisions that another call can be made into.
    pub(super) fn ready(&self) -> Vec<Role> {
        let parts = self.parts().filter(|(_, part)| part.has_room());
        parts.map(|(role, _)| role).collect()
    }
}

impl Part {
    /// A revision that begins.
    pub(super) fn new(id: RevisionId, prepared: LoadedRevision, views: Views) -> Self {
        Self {
            id,
            by_name: by_name(&prepared.manifest, &views),
            manifest: prepared.manifest,
            guest: prepared.guest,
            revision: prepared.identity.to_string().into(),
            identity: prepared.identity,
            views,
            complete: true,
            calls: 0,
        }
    }

    /// Shows it other views of the same watches from now on.
    pub(super) fn change_views(&mut self, views: Views) {
        self.by_name = by_name(&self.manifest, &views);
        self.views = views;
    }

    /// Whether another call can be made.
    pub(super) fn has_room(&self) -> bool {
        self.complete && self.calls < self.identity.limits().instances
    }
}

fn by_name(manifest: &Manifest, views: &Views) -> Arc<BTreeMap<String, ViewId>> {
    let names = manifest.watches.iter().map(|watch| watch.name.clone());
    Arc::new(names.zip(views.ids.iter().copied()).collect())
}

/// What a view of a watch holds: what the guest reads, and what tells the
/// cohorts apart.
pub(super) fn view_spec(watch: &WatchSpec, cohort: &Cohort) -> ViewSpec {
    let mut spec = ViewSpec::from(watch);
    spec.fields.merge(&cohort.fields().iter().collect());
    spec
}

/// How long a target waits for the other revision: long enough for both to take
/// their turns.
pub(super) fn window(asked: Option<Duration>, manifests: [&Manifest; 2]) -> Duration {
    let ticks = manifests.iter().flat_map(|manifest| &manifest.ticks);
    let longest = ticks.map(|tick| tick.period).max().unwrap_or_default();
    asked.unwrap_or_else(|| (longest * 2).max(Duration::from_secs(30)))
}
