//! Which revisions of a controller may run: those that declare no more than the operator
//! grants.

use std::sync::Arc;

use super::Controller;
use crate::api::ModuleSource;
use crate::control::loading::{LoadFailure, LoadProblem};
use crate::control::revision::Revision;
use crate::grant::{Grant, Permissions};

impl<G: Clone> Controller<G> {
    /// Whether the operator grants what a revision declares.
    pub(super) fn may_run(&self, revision: &Revision<G>) -> bool {
        self.missing(revision).is_empty()
    }

    /// Why a loaded revision may not run: that of the spec, else the stable one.
    pub(super) fn not_granted(&self) -> Option<LoadProblem> {
        let described = self.desired.iter().filter(|one| self.is_described(one));
        let mut loaded = described.chain(&self.stable);
        loaded.find_map(|revision| {
            let missing = self.missing(revision);
            let (revision, name) = (revision.name(), &self.name);
            let message = format!(
                "the revision {revision} declares more than spec.permissions grants: {missing}; \
                 davit grant {name} prints the rules to add"
            );
            (!missing.is_empty()).then(|| LoadProblem::new(LoadFailure::NotGranted, &message))
        })
    }

    /// The rules that a revision lacks.
    fn missing(&self, revision: &Revision<G>) -> Permissions {
        let spec = self.spec.as_ref().unwrap_or(&revision.spec);
        let is_shipped = matches!(revision.spec.module.source, ModuleSource::Builtin(_));
        // Whoever writes the file of the configuration also starts the host.
        let is_of_file = self.object.is_none();
        let grant = match &spec.permissions {
            None if is_shipped || is_of_file => Grant::Declared,
            rules => Grant::Rules {
                rules: Arc::new(rules.clone().unwrap_or_default()),
                home: "".into(),
            },
        };
        grant.missing(&revision.loaded.manifest)
    }
}
