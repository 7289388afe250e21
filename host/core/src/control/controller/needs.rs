//! What the loaded revisions of a controller need in order to run. Only a declaration and
//! a loaded revision change that, so it is computed then and not in each reconcile.

use std::collections::{BTreeMap, BTreeSet};
use std::ptr;
use std::sync::Arc;

use super::Controller;
use crate::account::Account;
use crate::control::conditions::{GrantText, say_allowed};
use crate::control::reviews::Knowledge;
use crate::control::revision::Revision;
use crate::grant::{Grant, Permissions};
use crate::manifest::Manifest;
use crate::request::review::{Access, AccessReview};
use crate::revision::LoadedRevision;
use crate::undo::UndoRules;

/// What a loaded revision needs, with the grant and the account of the present spec.
#[derive(Debug)]
pub(super) struct Needs {
    manifest: Arc<Manifest>,
    is_shipped: bool,
    /// What the guest declares.
    pub(super) declared: Permissions,
    /// What the operator grants.
    pub(super) grant: Grant,
    /// The same in words.
    pub(super) granted: GrantText,
    /// What the guest declares and the operator does not grant.
    pub(super) missing: Permissions,
    /// What must be allowed, so that the account may open the guest's watches, and the host
    /// may read and write as the account; and what the API server says about it. Nothing
    /// for Davit's own account.
    pub(super) reviews: BTreeMap<AccessReview, Knowledge>,
    /// What these ask for, in words.
    pub(super) allowed: String,
}

impl<G: Clone> Controller<G> {
    /// Computes the needs of all loaded revisions: the grant or the account may have
    /// changed.
    pub(super) fn compute_needs(&mut self) {
        self.needs.clear();
        self.have_needs_changed = true;
        self.compute_new_needs();
    }

    /// Computes the needs of revisions that were loaded since the last time.
    pub(super) fn compute_new_needs(&mut self) {
        self.note_described();
        let mut new: Vec<Needs> = Vec::new();
        for one in self.loaded() {
            if !self.needs.iter().chain(&new).any(|known| known.are_of(one)) {
                new.push(self.needs_of(one));
            }
        }
        self.have_needs_changed |= !new.is_empty();
        self.needs.extend(new);
    }

    /// Notes which of the loaded revisions the present spec describes.
    fn note_described(&mut self) {
        let spec = self.spec.as_ref();
        for one in self.stable.iter_mut().chain(&mut self.desired) {
            let is_it = spec.is_some_and(|spec| one.is_described_by(spec));
            one.is_described = one.is_confirmed && is_it;
        }
    }

    /// Drops the needs of revisions that are gone.
    pub(super) fn drop_needs(&mut self) {
        let mut needs = std::mem::take(&mut self.needs);
        let former = needs.len();
        needs.retain(|known| self.loaded().any(|one| known.are_of(one)));
        self.have_needs_changed |= needs.len() != former;
        self.needs = needs;
    }

    /// The loaded revisions: those that run and those that would.
    fn loaded(&self) -> impl Iterator<Item = &LoadedRevision<G>> {
        let kept = self.stable.iter().chain(&self.desired);
        kept.map(|one| &one.loaded).chain(self.running())
    }

    /// What a revision needs. None for one that never was this controller's: it does not
    /// run.
    pub(super) fn needs(&self, revision: &LoadedRevision<G>) -> Option<&Needs> {
        self.needs.iter().find(|known| known.are_of(revision))
    }

    /// The needs of the revision that the present spec describes, and those of the stable
    /// one if they are others.
    pub(super) fn needs_of_decided<'a>(&'a self) -> Vec<(&'a Revision<G>, &'a Needs)> {
        let with_needs = |one: &'a Revision<G>| Some((one, self.needs(&one.loaded)?));
        let described = self.described().and_then(with_needs);
        let is_listed = |stable: &Needs| described.is_some_and(|(_, one)| ptr::eq(one, stable));
        let stable = self.stable.as_ref().and_then(with_needs);
        let stable = stable.filter(|(_, needs)| !is_listed(needs));
        described.into_iter().chain(stable).collect()
    }

    fn needs_of(&self, revision: &LoadedRevision<G>) -> Needs {
        let LoadedRevision {
            manifest,
            is_shipped,
            ..
        } = revision;
        // Whoever writes the file of the configuration also starts the host.
        let is_trusted = *is_shipped || self.object.is_none();
        let spec = self.spec.as_ref();
        let grant = spec.map_or_else(Grant::nothing, |spec| spec.grant(is_trusted, &self.home));
        let declared = Permissions::declared_by(manifest);
        let granted = match &grant {
            Grant::Declared if *is_shipped => GrantText::shipped(&declared),
            Grant::Declared => GrantText::file(&declared),
            Grant::Rules { rules, .. } => GrantText::rules(rules),
        };
        let account = self.account();
        let rules = spec.map_or_else(UndoRules::default, |spec| (&spec.undo).into());
        let kept = rules.reads(manifest);
        let reviews = account
            .iter()
            .flat_map(|account| of_account(account, manifest, &kept));
        let known = |review: &AccessReview| self.reviewed.get(review).cloned().unwrap_or_default();
        let reviews: BTreeMap<_, _> = reviews.map(|one| (one.clone(), known(&one))).collect();
        let allowed = account.map(|account| say_allowed(&account, reviews.keys()));
        Needs {
            declared,
            granted,
            missing: grant.missing(manifest),
            reviews,
            allowed: allowed.unwrap_or_default(),
            grant,
            manifest: Arc::clone(manifest),
            is_shipped: *is_shipped,
        }
    }
}

impl Needs {
    fn are_of<G>(&self, revision: &LoadedRevision<G>) -> bool {
        Arc::ptr_eq(&self.manifest, &revision.manifest) && self.is_shipped == revision.is_shipped
    }
}

/// What an account needs, to open the watches of a guest, and the host, to read and write
/// for the guest as the account.
fn of_account(
    account: &Account,
    manifest: &Manifest,
    kept: &BTreeSet<(String, String)>,
) -> impl Iterator<Item = AccessReview> {
    let watched = manifest.watches.iter().map(|watch| {
        let (group, resource) = watch.rule_resource();
        (group, resource, watch.namespace.as_str())
    });
    let reads = watched.flat_map(move |(group, resource, namespace)| {
        ["list", "watch"].map(|verb| {
            AccessReview::Access(Access {
                group: group.to_owned(),
                resource: resource.to_owned(),
                namespace: namespace.to_owned(),
                verb,
                account: account.clone(),
            })
        })
    });
    let impersonates = manifest.acts_as_account();
    let impersonation = || AccessReview::Impersonation(account.clone());
    let kept = kept.iter().flat_map(|(group, resource)| {
        let namespaces = manifest.namespaces_of(group, resource).into_iter();
        namespaces.map(|namespace| {
            AccessReview::Access(Access {
                group: group.clone(),
                resource: resource.clone(),
                namespace: namespace.to_owned(),
                verb: "get",
                account: account.clone(),
            })
        })
    });
    let kept = kept.collect::<Vec<_>>();
    impersonates
        .then(impersonation)
        .into_iter()
        .chain(reads)
        .chain(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Source, WatchSpec};
    use crate::object::ApiResource;

    fn pods_of(namespace: &str) -> WatchSpec {
        WatchSpec {
            namespace: namespace.to_owned(),
            ..WatchSpec::new(
                format!("pods of {namespace}"),
                Source::One(ApiResource::new("", "v1", "pods")),
            )
        }
    }

    /// The roles that `davit inspect --rbac` prints grant no more.
    #[test]
    fn what_is_kept_for_undo_is_read_in_the_namespaces_that_are_watched() {
        let account = Account {
            namespace: "davit-system".to_owned(),
            name: "old".to_owned(),
        };
        let kept = BTreeSet::from([(String::new(), "pods".to_owned())]);
        let reads = |watched: &[&str]| -> Vec<String> {
            let manifest = Manifest {
                watches: watched.iter().map(|one| pods_of(one)).collect(),
                ..Manifest::default()
            };
            let reviews = of_account(&account, &manifest, &kept);
            let gets = reviews.filter_map(|review| match review {
                AccessReview::Access(access) if access.verb == "get" => Some(access.namespace),
                _ => None,
            });
            gets.collect()
        };
        assert_eq!(reads(&["ci", "test"]), ["ci", "test"]);
        assert_eq!(reads(&["ci"]), ["ci"]);
        assert_eq!(reads(&["ci", ""]), [""]);
        assert_eq!(reads(&[]), [""]);
    }
}
