//! Where the module of a revision is looked for, and in which order.

use super::error::{OtherModule, RevisionLoadError};
use crate::api::ModuleConfig;
use crate::digest::ModuleDigest;

/// A search for a module. The source comes first, also if the module is pinned: a source
/// that can be read and holds another module is an error. A recorded revision is looked
/// for by its digest first, because it ran before.
#[derive(Clone, Debug)]
pub struct ModuleSearch {
    module: Box<ModuleConfig>,
    is_recorded: bool,
    /// Why the source cannot be read.
    away: Option<RevisionLoadError>,
}

/// What a driver does next in a search. `F` is a module that it fetched, `M` one that it
/// can compile or has compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SearchStep<F, M> {
    /// Fetch the module from its source, with the signatures that the spec requires;
    /// [`ModuleSearch::fetched`].
    Fetch,
    /// Look for a module with this digest among those that are loaded, and in the module
    /// cache; [`ModuleSearch::recalled`].
    Recall(ModuleDigest),
    /// Add a fetched module to the module cache; [`ModuleSearch::added`]. A failure
    /// matters only at a later start, while the source is unavailable.
    Keep {
        /// Its digest.
        digest: ModuleDigest,
        /// The module.
        fetched: F,
        /// Whether its required signatures were verified: a later recall needs no source.
        is_verified: bool,
    },
    /// The module, or why there is none.
    Done(Result<(FoundModule, M), RevisionLoadError>),
}

/// A module that was recalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecalledModule<M> {
    /// The module.
    pub module: M,
    /// Whether this host is known to have verified the signatures that the spec requires.
    /// Another controller may have loaded the module without them.
    pub is_verified: bool,
}

/// What is known of a module that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundModule {
    /// Its digest.
    pub digest: ModuleDigest,
    /// Why it was recalled instead of fetched, if its source cannot be read.
    pub away: Option<String>,
}

impl ModuleSearch {
    /// A search for the module that a spec names.
    #[must_use]
    pub fn of_spec(module: &ModuleConfig) -> Self {
        Self {
            module: Box::new(module.clone()),
            is_recorded: false,
            away: None,
        }
    }

    /// A search for the module of a recorded revision.
    #[must_use]
    pub fn of_record(module: &ModuleConfig) -> Self {
        Self {
            is_recorded: true,
            ..Self::of_spec(module)
        }
    }

    /// The module as the spec names it.
    #[must_use]
    pub fn module(&self) -> &ModuleConfig {
        &self.module
    }

    /// The first step.
    #[must_use]
    pub fn start<F, M>(&self) -> SearchStep<F, M> {
        match self.module.digest {
            Some(digest) if self.is_recorded => SearchStep::Recall(digest),
            _ => SearchStep::Fetch,
        }
    }

    /// The source holds a module with this digest, or cannot be used. Only a source that
    /// cannot be read is replaced by the cache.
    pub fn fetched<F, M>(
        &mut self,
        fetched: Result<(ModuleDigest, F), RevisionLoadError>,
    ) -> SearchStep<F, M> {
        let pinned = self.module.digest;
        match (fetched, pinned) {
            (Ok((found, _)), Some(wanted)) if found != wanted => {
                let origin = self.module.source.to_string();
                let other = OtherModule {
                    origin,
                    found,
                    wanted,
                };
                SearchStep::Done(Err(other.into()))
            }
            (Ok((digest, fetched)), _) => SearchStep::Keep {
                digest,
                fetched,
                is_verified: self.module.verify.is_some(),
            },
            // The module of a record was looked for before.
            (Err(error), Some(pinned)) if error.kind.is_unavailable() && !self.is_recorded => {
                self.away = Some(error);
                SearchStep::Recall(pinned)
            }
            (Err(error), _) => SearchStep::Done(Err(error)),
        }
    }

    /// The module with the pinned digest was recalled, or is not there.
    pub fn recalled<F, M>(&mut self, recalled: Option<RecalledModule<M>>) -> SearchStep<F, M> {
        let is_usable = |one: &RecalledModule<M>| self.module.verify.is_none() || one.is_verified;
        match (recalled.filter(is_usable), self.module.digest) {
            (Some(recalled), Some(digest)) => self.done(digest, recalled.module),
            _ => match self.away.take() {
                Some(error) => SearchStep::Done(Err(error)),
                None => SearchStep::Fetch,
            },
        }
    }

    /// The module with this digest was added to the cache.
    pub fn added<F, M>(&mut self, digest: ModuleDigest, module: M) -> SearchStep<F, M> {
        self.done(digest, module)
    }

    fn done<F, M>(&mut self, digest: ModuleDigest, module: M) -> SearchStep<F, M> {
        let away = self.away.take().map(|error| error.message);
        SearchStep::Done(Ok((FoundModule { digest, away }, module)))
    }
}
