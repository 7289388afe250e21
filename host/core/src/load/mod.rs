//! Attempts to load a revision: the order of their steps, and what a failure of a step
//! means.
//!
//! [`crate::control`] decides which revisions are loaded and when. A driver executes one
//! attempt: it passes the result of each step to the attempt, which returns the next one.

mod error;
mod file;
mod preparation;
mod pull;
mod search;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use error::{LoadErrorKind, LoadErrorStep, OtherModule, RevisionLoadError};
pub use file::{FILE_TIMEOUT, FileLoad, FileLoadStep};
pub use preparation::{Preparation, PreparationStep};
pub use pull::{ArtefactManifest, ArtefactPull, PullFailure, PullStep};
pub use search::{FoundModule, ModuleSearch, RecalledModule, SearchStep};

use crate::api::ControllerSpec;
use crate::control::{LoadFailure, LoadProblem, LoadResult, LoadTarget, SourceVersion};
use crate::revision::LoadedRevision;

/// The timeout for loading a revision: more than the timeouts of a registry's probe,
/// manifest and blob, and the time of Cranelift for the largest module. Until an attempt
/// has ended, the control half starts no other for the same spec.
pub const TIMEOUT: Duration = Duration::from_mins(10);

/// One attempt to load a revision.
#[derive(Clone, Debug)]
pub struct LoadAttempt {
    target: LoadTarget,
    /// The version of the source, if it is checked.
    version: Option<SourceVersion>,
    /// The spec of a recorded revision.
    recorded: Option<Box<ControllerSpec>>,
}

/// What a driver does next in an attempt.
#[derive(Clone, Debug)]
pub enum LoadStep<G> {
    /// Read the recorded spec of a revision of this name; [`LoadAttempt::recorded`].
    ReadSpec(String),
    /// Read the version of the source of this spec; [`LoadAttempt::probed`].
    Probe(Box<ControllerSpec>),
    /// Prepare the revision; [`LoadAttempt::prepared`].
    Prepare(Preparation),
    /// The result.
    Done(Result<LoadResult<G>, LoadProblem>),
}

impl LoadAttempt {
    /// An attempt to load this revision.
    #[must_use]
    pub fn new(target: LoadTarget) -> Self {
        Self {
            target,
            version: None,
            recorded: None,
        }
    }

    /// The first step.
    #[must_use]
    pub fn start<G>(&self) -> LoadStep<G> {
        match &self.target {
            LoadTarget::Desired { spec, .. } if spec.module.check_interval().is_some() => {
                LoadStep::Probe(spec.clone())
            }
            LoadTarget::Desired { spec, has_run, .. } => prepare(spec, *has_run),
            LoadTarget::Stable { revision } | LoadTarget::Candidate { revision } => {
                LoadStep::ReadSpec(revision.clone())
            }
        }
    }

    /// The version of the source was read, or cannot be read. While it is the same as
    /// before, there is nothing to load. The module cache may have a pinned module.
    pub fn probed<G>(&mut self, probed: Result<SourceVersion, RevisionLoadError>) -> LoadStep<G> {
        let LoadTarget::Desired {
            spec,
            before,
            has_run,
        } = &self.target
        else {
            return self.start();
        };
        let version = match probed {
            Ok(version) => version,
            Err(error) if spec.module.digest.is_some() && error.kind.is_unavailable() => {
                SourceVersion::unavailable()
            }
            Err(error) => return LoadStep::Done(Err(error.problem(None))),
        };
        if before.as_ref() == Some(&version) {
            return LoadStep::Done(Ok(LoadResult::Unchanged));
        }
        self.version = Some(version);
        prepare(spec, *has_run)
    }

    /// The recorded spec was read, is missing, or cannot be read for this reason.
    pub fn recorded<G>(&mut self, spec: Result<Option<ControllerSpec>, String>) -> LoadStep<G> {
        let missing = |message: &str| {
            LoadStep::Done(Err(LoadProblem::new(LoadFailure::NotRecorded, message)))
        };
        match (spec, &self.target) {
            (_, LoadTarget::Desired { .. }) => self.start(),
            (Ok(Some(spec)), _) => {
                let preparation = Preparation::of_record(&spec);
                self.recorded = Some(Box::new(spec));
                LoadStep::Prepare(preparation)
            }
            (Ok(None), LoadTarget::Stable { revision } | LoadTarget::Candidate { revision }) => {
                missing(&format!("the spec of {revision} is not recorded"))
            }
            (Err(error), _) => missing(&error),
        }
    }

    /// The revision is ready, or cannot be loaded.
    pub fn prepared<G>(
        &mut self,
        prepared: Result<LoadedRevision<G>, RevisionLoadError>,
    ) -> LoadStep<G> {
        let result = match (&self.target, self.recorded.take()) {
            (LoadTarget::Desired { spec, .. }, _) => match prepared {
                Ok(revision) => Ok(LoadResult::Loaded {
                    revision,
                    spec: spec.clone(),
                    version: self.version.take(),
                }),
                Err(error) => Err(error.problem(self.version.take())),
            },
            (LoadTarget::Stable { revision } | LoadTarget::Candidate { revision }, Some(spec)) => {
                match prepared {
                    Ok(revision) => Ok(LoadResult::Loaded {
                        revision,
                        spec,
                        version: None,
                    }),
                    Err(error) => Err(error.problem_of_record(revision, &spec)),
                }
            }
            (LoadTarget::Stable { .. } | LoadTarget::Candidate { .. }, None) => {
                return self.start();
            }
        };
        LoadStep::Done(result)
    }
}

fn prepare<G>(spec: &ControllerSpec, has_run: bool) -> LoadStep<G> {
    LoadStep::Prepare(if has_run {
        Preparation::of_known_config(spec)
    } else {
        Preparation::of_spec(spec)
    })
}

/// The result of an attempt that ended without an answer: with a panic, or after its
/// timeout.
#[must_use]
pub fn unanswered(reason: &str) -> LoadProblem {
    LoadProblem::new(LoadFailure::Unanswered, reason)
}
