//! From a spec to a revision that is ready to run.

use std::sync::Arc;

use super::error::{LoadErrorKind, RevisionLoadError};
use super::search::{FoundModule, ModuleSearch};
use crate::api::{ControllerSpec, encode_config};
use crate::digest::ModuleDigest;
use crate::manifest::Manifest;
use crate::revision::{LoadedRevision, RevisionIdentity};

/// The preparation of a revision: its module is found, compiled and described.
#[derive(Clone, Debug)]
pub struct Preparation {
    spec: Box<ControllerSpec>,
    is_recorded: bool,
    /// Whether no revision with this configuration is known to have run.
    is_new_config: bool,
    found: Option<FoundModule>,
}

/// What a driver does next in a preparation. `M` is a module that was found, `C` one that
/// is compiled, `G` a guest.
#[derive(Clone, Debug)]
pub enum PreparationStep<M, C, G> {
    /// Find the module; [`Preparation::found`].
    Find(ModuleSearch),
    /// Compile this module, unless it is compiled; [`Preparation::compiled`].
    Compile(ModuleDigest, M),
    /// Let the guest check its configuration, unless the same revision is described
    /// already; [`Preparation::described`].
    Describe {
        /// The compiled module.
        module: C,
        /// The revision.
        identity: RevisionIdentity,
        /// Whether its instances have to fit into the memory of the container. Then one
        /// revision is described at a time: those that are described together would not
        /// see each other. A recorded revision is never refused: it ran before.
        is_limited: bool,
    },
    /// Check the fields that the configuration of a guest that ships with Davit names, as far as
    /// the driver knows how, and as far as the API server says which fields there are;
    /// [`Preparation::checked`]. A configuration that ran before is not checked again: a
    /// definition that has lost a field stops no controller.
    CheckFields(LoadedRevision<G>),
    /// The revision, or why there is none.
    Done(Result<LoadedRevision<G>, RevisionLoadError>),
}

impl Preparation {
    /// The preparation of the revision that a spec describes.
    #[must_use]
    pub fn of_spec(spec: &ControllerSpec) -> Self {
        Self {
            spec: Box::new(spec.clone()),
            is_recorded: false,
            is_new_config: true,
            found: None,
        }
    }

    /// The preparation of the revision that a spec describes, if a recorded revision has the same
    /// configuration.
    #[must_use]
    pub fn of_known_config(spec: &ControllerSpec) -> Self {
        Self {
            is_new_config: false,
            ..Self::of_spec(spec)
        }
    }

    /// The preparation of a recorded revision, by its recorded spec.
    #[must_use]
    pub fn of_record(spec: &ControllerSpec) -> Self {
        Self {
            is_recorded: true,
            ..Self::of_known_config(spec)
        }
    }

    /// The first step.
    #[must_use]
    pub fn start<M, C, G>(&self) -> PreparationStep<M, C, G> {
        let module = &self.spec.module;
        PreparationStep::Find(if self.is_recorded {
            ModuleSearch::of_record(module)
        } else {
            ModuleSearch::of_spec(module)
        })
    }

    /// The module was found, or was not.
    pub fn found<M, C, G>(
        &mut self,
        found: Result<(FoundModule, M), RevisionLoadError>,
    ) -> PreparationStep<M, C, G> {
        match found {
            Ok((found, module)) => {
                let digest = found.digest;
                self.found = Some(found);
                PreparationStep::Compile(digest, module)
            }
            Err(error) => PreparationStep::Done(Err(error)),
        }
    }

    /// The module with this digest was compiled, or does not compile.
    pub fn compiled<M, C, G>(
        &self,
        digest: ModuleDigest,
        compiled: Result<C, RevisionLoadError>,
    ) -> PreparationStep<M, C, G> {
        let config = encode_config(&self.spec.config)
            .map_err(|error| RevisionLoadError::new(LoadErrorKind::Encode, error.to_string()));
        match compiled.and_then(|module| Ok((module, config?))) {
            Ok((module, config)) => PreparationStep::Describe {
                module,
                identity: RevisionIdentity::new(digest, config.into(), self.spec.limits),
                is_limited: !self.is_recorded,
            },
            Err(error) => PreparationStep::Done(Err(error)),
        }
    }

    /// The guest of this revision accepts its configuration and has this manifest, or it
    /// was not described.
    pub fn described<M, C, G>(
        &mut self,
        identity: RevisionIdentity,
        described: Result<(G, Arc<Manifest>), RevisionLoadError>,
    ) -> PreparationStep<M, C, G> {
        let described = described.map(|(guest, manifest)| LoadedRevision {
            guest,
            manifest,
            identity,
            away: self.found.take().and_then(|found| found.away),
            is_shipped: self.spec.module.source.is_builtin(),
        });
        match described {
            Ok(revision) if revision.is_shipped && self.is_new_config => {
                PreparationStep::CheckFields(revision)
            }
            described => PreparationStep::Done(described),
        }
    }

    /// Objects have the fields that the configuration names, as far as anybody knows, or they do
    /// not.
    pub fn checked<M, C, G>(
        &self,
        revision: LoadedRevision<G>,
        checked: Result<(), RevisionLoadError>,
    ) -> PreparationStep<M, C, G> {
        PreparationStep::Done(checked.map(|()| revision))
    }
}
