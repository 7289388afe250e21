//! Whether the account of a controller may open the watches of its revisions. The host
//! opens them with its own account: without this, a guest would read what its account may
//! not.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Controller;
use crate::account::Account;
use crate::control::conditions::{Authorization, NotAuthorized};
use crate::control::reviews::{Answers, Knowledge};
use crate::control::revision::Revision;
use crate::manifest::{Manifest, Source};
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
    pub(in crate::control) fn reviews(&self) -> BTreeSet<AccessReview> {
        let Some(account) = self.account() else {
            return BTreeSet::new();
        };
        let loaded = self.stable.iter().chain(&self.desired);
        loaded
            .map(|one| &one.loaded)
            .chain(self.running())
            .flat_map(|one| needed(&account, &one.manifest))
            .collect()
    }

    /// Notes what the API server says.
    pub(in crate::control) fn note_reviews(&mut self, known: &Arc<Answers>) {
        if self.reviewed != *known {
            self.reviewed = Arc::clone(known);
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

    /// Whether the account may open the watches of a revision. What is not known yet is
    /// not allowed.
    pub(super) fn is_authorized(&self, revision: &LoadedRevision<G>) -> bool {
        let Some(account) = self.account() else {
            return true;
        };
        Mutant::IgnoreDenials.is_active()
            || needed(&account, &revision.manifest)
                .all(|review| self.answer_to(&review) == Some(&ReviewAnswer::Allowed))
    }

    /// What the status says about the account; none before a revision is loaded.
    pub(super) fn authorization(&self) -> Option<Authorization> {
        self.spec.as_ref()?;
        let Some(account) = self.account() else {
            return Some(Authorization::OwnAccount);
        };
        let all: Vec<&Revision<G>> = self.described().into_iter().chain(&self.stable).collect();
        if all.is_empty() {
            return None;
        }
        let needed = all
            .iter()
            .flat_map(|one| needed(&account, &one.loaded.manifest));
        let needed: BTreeSet<AccessReview> = needed.collect();
        let known = |review| self.reviewed.get(review).cloned().unwrap_or_default();
        let known: Vec<Knowledge> = needed.iter().map(known).collect();
        // An operator learns all that is missing at once.
        if known.iter().any(|one| *one == Knowledge::default()) {
            let failure = None;
            return Some(Authorization::Unknown { account, failure });
        }
        let stable = self.stable.as_ref();
        for revision in &all {
            let missing = self.denied(&account, &revision.loaded.manifest);
            if !missing.is_empty() {
                let stops = |stable: &Revision<G>| {
                    !self.denied(&account, &stable.loaded.manifest).is_empty()
                };
                let stops_stable = stable.is_some_and(stops);
                return Some(Authorization::Denied(NotAuthorized {
                    account,
                    revision: revision.name(),
                    missing,
                    stops_stable,
                }));
            }
        }
        let failure = known.iter().find_map(|one| one.failure.clone());
        Some(if known.iter().all(|one| one.answer.is_some()) {
            Authorization::Allowed {
                account,
                permissions: needed.into_iter().collect(),
                failure,
            }
        } else {
            Authorization::Unknown { account, failure }
        })
    }

    /// What the account may not do, of what a guest needs, with the reasons.
    fn denied(&self, account: &Account, manifest: &Manifest) -> Vec<(AccessReview, String)> {
        let needed: BTreeSet<AccessReview> = needed(account, manifest).collect();
        let denied = needed
            .into_iter()
            .filter_map(|review| match self.answer_to(&review)? {
                ReviewAnswer::Denied { reason } => Some((review, reason.clone())),
                ReviewAnswer::Allowed => None,
            });
        denied.collect()
    }

    fn answer_to(&self, review: &AccessReview) -> Option<&ReviewAnswer> {
        let Knowledge { answer, .. } = self.reviewed.get(review)?;
        answer.as_ref()
    }
}

/// What an account needs, to open the watches of a guest.
fn needed(account: &Account, manifest: &Manifest) -> impl Iterator<Item = AccessReview> {
    let watched = manifest.watches.iter().map(|watch| {
        let (group, resource) = match &watch.source {
            Source::One(resource) => (resource.group.as_str(), resource.plural.as_str()),
            Source::EveryDeletable(_) => ("*", "*"),
        };
        (group, resource, watch.namespace.as_str())
    });
    watched.flat_map(move |(group, resource, namespace)| {
        ["list", "watch"].map(|verb| AccessReview {
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            verb,
            account: account.clone(),
        })
    })
}
