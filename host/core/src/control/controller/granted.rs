//! Which revisions of a controller may run: those that declare no more than the operator
//! grants. To read is authority too: a revision beyond its grant is not even a shadow.

use super::Controller;
use crate::control::conditions::{Granted, NotGranted};
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
        self.missing(revision).is_empty() || Mutant::RunUngranted.is_active()
    }

    /// What the operator grants to a revision.
    pub(super) fn grant(&self, revision: &LoadedRevision<G>) -> Grant {
        // Whoever writes the file of the configuration also starts the host.
        let is_trusted = revision.is_shipped || self.object.is_none();
        let spec = self.spec.as_ref();
        spec.map_or_else(Grant::nothing, |spec| spec.grant(is_trusted, &self.home))
    }

    /// What the revision of the present spec lacks, or the stable one; none if nothing.
    pub(super) fn not_granted(&self) -> Option<NotGranted> {
        let spec = self.spec.as_ref()?;
        let all: Vec<&Revision<G>> = self.described().into_iter().chain(&self.stable).collect();
        let mut lacking = all
            .iter()
            .copied()
            .filter(|one| !self.is_granted(&one.loaded));
        let first = lacking.next()?;
        // The first rules replace the trust in what ships with Davit.
        let to_add = |one: &Revision<G>| match spec.permissions {
            None => Permissions::declared_by(&one.loaded.manifest),
            Some(_) => self.missing(&one.loaded),
        };
        let stable = self.stable.as_ref();
        Some(NotGranted {
            revision: first.name(),
            missing: self.missing(&first.loaded),
            to_add: all
                .into_iter()
                .fold(Permissions::default(), |all, one| all.with(&to_add(one))),
            stops_stable: stable.is_some_and(|stable| !self.is_granted(&stable.loaded)),
        })
    }

    /// What the revision of the present spec may read and write.
    pub(super) fn granted(&self) -> Option<Granted> {
        let described = &self.described()?.loaded;
        if !self.is_granted(described) {
            return None;
        }
        let declared = || Permissions::declared_by(&described.manifest);
        Some(match self.grant(described) {
            Grant::Declared if described.is_shipped => Granted::Shipped(declared()),
            Grant::Declared => Granted::File(declared()),
            Grant::Rules { rules, .. } => Granted::Rules((*rules).clone()),
        })
    }

    fn missing(&self, revision: &LoadedRevision<G>) -> Permissions {
        self.grant(revision).missing(&revision.manifest)
    }
}
