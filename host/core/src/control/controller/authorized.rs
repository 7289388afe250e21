//! Whether the account of a controller may open the watches of its revisions, and whether
//! the host may impersonate it. The host opens watches with its own account: without this,
//! a guest would read what its account may not.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::Controller;
use super::needs::Needs;
use crate::account::Account;
use crate::control::conditions::{Authorization, MissingAuthorization, say_allowed};
use crate::control::reviews::{Answers, Knowledge};
use crate::mutant::Mutant;
use crate::observation::Observation;
use crate::request::review::{AccessReview, ReviewAnswer};
use crate::revision::LoadedRevision;

impl<G: Clone> Controller<G> {
    /// The account that reads and writes for the controller; none for Davit's own.
    pub(in crate::control) fn account(&self) -> Option<Account> {
        let name = self.spec.as_ref()?.service_account_name.clone()?;
        Some(Account {
            namespace: self.home.clone(),
            name,
        })
    }

    /// What its revisions need, those that run and those that would.
    pub(in crate::control) fn reviews(&self) -> impl Iterator<Item = &AccessReview> {
        self.needs.iter().flat_map(|needs| needs.reviews.keys())
    }

    /// Whether these have changed since the last call.
    pub(in crate::control) fn take_changed_needs(&mut self) -> bool {
        std::mem::take(&mut self.have_needs_changed)
    }

    /// Notes what the API server says.
    pub(in crate::control) fn note_reviews(&mut self, known: &Arc<Answers>) {
        if self.reviewed != *known {
            self.reviewed = Arc::clone(known);
            let all = self.needs.iter_mut().flat_map(|needs| &mut needs.reviews);
            for (review, knowledge) in all {
                *knowledge = known.get(review).cloned().unwrap_or_default();
            }
            self.rest.end();
        }
    }

    /// Whether the API server has refused a request of the account since the last
    /// observation.
    pub(in crate::control) fn note_forbidden(&mut self, seen: Option<&Observation>) -> bool {
        let forbidden = seen.map_or(0, |seen| seen.forbidden);
        let former = std::mem::replace(&mut self.forbidden, forbidden);
        forbidden > former
    }

    /// Whether the account may open the watches of a revision, and the host may impersonate
    /// it if the revision reads live or writes. What is not known yet is not allowed, but that what
    /// it deletes may be read first: that is asked for when an operator adds `undo` to a controller
    /// that runs, and without the permission nothing is deleted.
    pub(super) fn is_authorized(&self, revision: &LoadedRevision<G>) -> bool {
        let Some(needs) = self.needs(revision) else {
            return false;
        };
        // The stable revision may wait for its record.
        let next = self.applied.as_ref().and(self.stable.as_ref());
        let next = next.map(|stable| &stable.loaded);
        let mut running = self.running().chain(next);
        let runs = running.any(|one| one.identity == revision.identity);
        needs.reviews.iter().all(|(review, known)| {
            known.is_allowed() || (runs && known.answer.is_none() && is_of_undo(review))
        })
    }

    /// What the status says about the account; none before a revision is loaded.
    pub(super) fn authorization(&self) -> Option<Authorization<'_>> {
        self.spec.as_ref()?;
        let Some(account) = self.account() else {
            return Some(Authorization::OwnAccount);
        };
        let all = self.needs_of_decided();
        let (_, first) = all.first()?;
        let known = || all.iter().flat_map(|(_, needs)| needs.reviews.values());
        // An operator learns all that is missing at once.
        if known().any(|one| *one == Knowledge::default()) {
            let failure = None;
            return Some(Authorization::Unknown { account, failure });
        }
        for (revision, needs) in &all {
            let missing = needs.denied();
            if !missing.is_empty() {
                let stable = self.stable.as_ref();
                let stable = stable.and_then(|stable| self.needs(&stable.loaded));
                return Some(Authorization::Denied(MissingAuthorization {
                    account,
                    revision: revision.name().to_owned(),
                    missing,
                    stops_stable: stable.is_some_and(|needs| !needs.denied().is_empty()),
                }));
            }
        }
        let failure = known().find_map(|one| one.failure.as_deref());
        if !known().all(|one| one.answer.is_some()) {
            return Some(Authorization::Unknown { account, failure });
        }
        let is_first = |needs: &Needs| needs.reviews.keys().eq(first.reviews.keys());
        let allowed = if all.iter().all(|(_, needs)| is_first(needs)) {
            Cow::Borrowed(first.allowed.as_str())
        } else {
            let needed = all.iter().flat_map(|(_, needs)| needs.reviews.keys());
            let needed: BTreeSet<&AccessReview> = needed.collect();
            Cow::Owned(say_allowed(&account, needed.into_iter()))
        };
        Some(Authorization::Allowed { allowed, failure })
    }
}

/// Whether this asks whether copies may be kept of what is deleted.
fn is_of_undo(review: &AccessReview) -> bool {
    matches!(review, AccessReview::Access(access) if access.verb == "get")
}

impl Needs {
    /// What is not allowed, with the reasons.
    fn denied(&self) -> Vec<(AccessReview, String)> {
        let denied = self
            .reviews
            .iter()
            .filter_map(|(review, known)| match &known.answer {
                Some(ReviewAnswer::Denied { reason }) => Some((review.clone(), reason.clone())),
                Some(ReviewAnswer::Allowed) | None => None,
            });
        denied.collect()
    }
}

impl Knowledge {
    fn is_allowed(&self) -> bool {
        match self.answer {
            Some(ReviewAnswer::Allowed) => true,
            Some(ReviewAnswer::Denied { .. }) => Mutant::IgnoreDenials.is_active(),
            None => false,
        }
    }
}
