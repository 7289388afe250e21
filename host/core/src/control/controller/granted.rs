//! Which revisions of a controller may run: those that declare no more than the operator
//! grants. To read is authority too: a revision beyond its grant is not even a shadow.

use super::Controller;
use super::needs::Needs;
use crate::control::conditions::{GrantText, MissingGrant};
use crate::control::revision::Revision;
use crate::grant::{Grant, Permissions};
use crate::mutant::Mutant;
use crate::revision::LoadedRevision;

impl<G: Clone> Controller<G> {
    /// The loaded revision that the present spec describes, if it may run. Without one
    /// nothing starts and nothing advances: the spec may be what an operator has just
    /// reverted.
    pub(super) fn eligible(&self) -> Option<&Revision<G>> {
        self.described().filter(|one| self.may_run(&one.loaded))
    }

    /// Whether the operator grants what a revision declares, and the controller's account
    /// may open its watches.
    pub(super) fn may_run(&self, revision: &LoadedRevision<G>) -> bool {
        self.is_granted(revision) && self.is_authorized(revision)
    }

    /// Whether the operator grants what a revision declares.
    pub(super) fn is_granted(&self, revision: &LoadedRevision<G>) -> bool {
        self.needs(revision).is_some_and(Needs::are_granted)
    }

    /// What the operator grants to a revision.
    pub(super) fn grant(&self, revision: &LoadedRevision<G>) -> Grant {
        let needs = self.needs(revision);
        needs.map_or_else(Grant::nothing, |needs| needs.grant.clone())
    }

    /// What the revision of the present spec lacks, or the stable one; none if nothing.
    pub(super) fn not_granted(&self) -> Option<MissingGrant> {
        let spec = self.spec.as_ref()?;
        let all = self.needs_of_decided();
        let (first, lacking) = all.iter().find(|(_, needs)| !needs.are_granted())?;
        // The first rules replace the trust in what ships with Davit.
        let to_add = |needs: &Needs| match spec.permissions {
            None => needs.declared.clone(),
            Some(_) => needs.missing.clone(),
        };
        let stable = self.stable.as_ref();
        Some(MissingGrant {
            revision: first.name().to_owned(),
            missing: lacking.missing.clone(),
            to_add: all.iter().fold(Permissions::default(), |all, (_, one)| {
                all.with(&to_add(one))
            }),
            stops_stable: stable.is_some_and(|stable| !self.is_granted(&stable.loaded)),
        })
    }

    /// What the revision of the present spec may read and write; none if it may not run.
    pub(super) fn granted(&self) -> Option<&GrantText> {
        let needs = self.needs(&self.described()?.loaded)?;
        needs.are_granted().then_some(&needs.granted)
    }
}

impl Needs {
    fn are_granted(&self) -> bool {
        self.missing.is_empty() || Mutant::RunUngranted.is_active()
    }
}
