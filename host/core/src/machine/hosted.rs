//! One controller of the machine: the revisions that run, and those that wait for their
//! watches.

use std::time::Duration;

use super::compared::ComparedController;
use super::deferred::DeferredDeletions;
use crate::account::Account;
use crate::budget::CountedWrites;
use crate::controller::{Controller, Settings, Views};
use crate::desired::TrippedGuardrail;
use crate::manifest::{Manifest, WatchSpec};
use crate::revision::LoadedRevision;
use crate::rollout::Role;
use crate::rollout::cohort::{CandidateStep, Cohort};
use crate::store::ViewId;
use crate::time::Instant;

/// What every refusal of an authorizer says (`responsewriters.Forbidden`).
const NOT_PERMITTED: &str = "is forbidden: User ";
/// How long a refused request counts: it is retried after thirty seconds, a controller's
/// items one after the other.
const REFUSED_FOR: Duration = Duration::from_mins(2);

/// One controller.
#[derive(Debug)]
pub(super) struct HostedController<G> {
    /// None until the watches of a stable revision are synced for the first time.
    pub(super) controller: Option<Controller<G>>,
    /// The revision that replaces the stable one once its watches are synced.
    pub(super) stable: Option<PendingRevision<G>>,
    /// The revision that becomes the candidate once its watches are synced.
    pub(super) candidate: Option<(PendingRevision<G>, CandidateStep)>,
    /// Whether the control half decides about it here.
    pub(super) decides: bool,
    /// Whether this replica led it when that was last judged.
    pub(super) leads: bool,
    /// The settings that a controller starts with.
    pub(super) settings: Settings,
    pub(super) tripped: Vec<TrippedGuardrail>,
    /// What another host has admitted.
    pub(super) recent: CountedWrites,
    /// The account that reads and writes for it; none for the host's own.
    pub(super) account: Option<Account>,
    /// The comparison of its dry run with the cluster; none if it is not compared.
    pub(super) compared: Option<ComparedController>,
    /// How many requests of the account the API server has refused as forbidden.
    pub(super) forbidden: u64,
    /// The deletions that are deferred.
    pub(super) deferred_deletions: DeferredDeletions,
    /// The first of them that the stable revision made and that is still refused, and when
    /// one was refused last.
    refusal: Option<(String, Instant)>,
}

/// A revision whose watches are not synced yet.
#[derive(Debug)]
pub(super) struct PendingRevision<G> {
    pub(super) loaded: LoadedRevision<G>,
    pub(super) views: Views,
    /// When it started to wait.
    pub(super) since: Instant,
}

impl<G> Default for HostedController<G> {
    fn default() -> Self {
        Self {
            controller: None,
            stable: None,
            candidate: None,
            decides: false,
            leads: false,
            settings: Settings::default(),
            tripped: Vec::new(),
            recent: CountedWrites::default(),
            account: None,
            compared: None,
            forbidden: 0,
            deferred_deletions: DeferredDeletions::default(),
            refusal: None,
        }
    }
}

impl<G: Clone> HostedController<G> {
    /// The revisions that run or will run, each with its views.
    pub(super) fn revisions(&self) -> impl Iterator<Item = (&Manifest, &Views)> {
        let controller = self.controller.iter();
        let running = controller.flat_map(|controller| {
            let revisions = Role::ALL.into_iter();
            revisions.filter_map(|role| controller.revision(role))
        });
        let running = running.map(|revision| (&**revision.manifest(), revision.views()));
        let candidate = self.candidate.iter().map(|(pending, _)| pending);
        let pending = self.stable.iter().chain(candidate);
        running.chain(pending.map(|pending| (&*pending.loaded.manifest, &pending.views)))
    }

    /// Notes that the API server refused a request of the stable revision as forbidden. A
    /// refusal of admission control is about one object, and counts for that alone.
    pub(super) fn note_refusal(&mut self, message: &str, now: Instant) {
        if !message.contains(NOT_PERMITTED) {
            return;
        }
        let known = self.refusal(now).map(ToOwned::to_owned);
        let message = known.unwrap_or_else(|| message.to_owned());
        self.refusal = Some((message, now));
    }

    /// A request that is refused as forbidden.
    pub(super) fn refusal(&self, now: Instant) -> Option<&str> {
        let (message, last) = self.refusal.as_ref()?;
        (now.since(*last) < REFUSED_FOR).then_some(message)
    }

    /// The watches of these revisions and of the comparison, each with its view.
    pub(super) fn watches(&self) -> impl Iterator<Item = (&WatchSpec, ViewId)> {
        let compared = self.compared.iter().flat_map(ComparedController::watches);
        let revisions = self.revisions().flat_map(|(manifest, views)| {
            let watches = manifest.watches.iter();
            watches.zip(views.ids.iter().copied())
        });
        revisions.chain(compared)
    }

    /// The view of an identical watch, if there is one.
    pub(super) fn reusable_view(&self, watch: &WatchSpec, cohort: &Cohort) -> Option<ViewId> {
        let mut alike = self
            .revisions()
            .filter(|(_, views)| views.cohort.fields() == cohort.fields());
        alike.find_map(|(manifest, views)| {
            let position = manifest.watches.iter().position(|other| other == watch)?;
            views.ids.get(position).copied()
        })
    }

    /// The guests of its revisions.
    pub(super) fn into_guests(self) -> impl Iterator<Item = G> {
        let candidate = self.candidate.into_iter().map(|(pending, _)| pending);
        let pending = self.stable.into_iter().chain(candidate);
        let running = self
            .controller
            .into_iter()
            .flat_map(Controller::into_guests);
        running.chain(pending.map(|pending| pending.loaded.guest))
    }
}
