//! Loads the revision of a controller of a configuration file, before the file is applied.

use std::time::Duration;

use super::{Preparation, RevisionLoadError};
use crate::api::{ControllerSpec, ControllerStatus};
use crate::control::{LoadFailure, is_same_revision};
use crate::revision::LoadedRevision;
use crate::trust::TrustPolicy;

/// How long a configuration file waits for one of its modules.
pub const FILE_TIMEOUT: Duration = Duration::from_secs(30);

/// The load of one controller. A file with a revision that cannot run is refused; one whose
/// revision cannot be loaded now is applied without it, and the host loads it later.
#[derive(Debug)]
pub struct FileLoad<'a> {
    spec: &'a ControllerSpec,
    /// Why the revision cannot be loaded, while the record is read.
    error: Option<RevisionLoadError>,
}

/// What a driver does next.
#[derive(Debug)]
pub enum FileLoadStep<G> {
    /// Load the revision within [`FILE_TIMEOUT`]: [`FileLoad::loaded`], or
    /// [`FileLoad::unanswered`].
    Prepare(Preparation),
    /// Read the status of the controller's record: [`FileLoad::recorded`].
    ReadStatus,
    /// The revision; none if the file is applied without it. An error refuses the file.
    Done(Result<Option<LoadedRevision<G>>, RevisionLoadError>),
}

impl<'a> FileLoad<'a> {
    /// The load of the revision of this spec.
    #[must_use]
    pub fn new(spec: &'a ControllerSpec) -> Self {
        Self { spec, error: None }
    }

    /// The first step. `former` is the spec that the controller has now. The revision of an
    /// unchanged spec is loaded; a module that is denied never is, and the controller's
    /// condition says why.
    #[must_use]
    pub fn start<G>(&self, former: Option<&ControllerSpec>, trust: TrustPolicy) -> FileLoadStep<G> {
        let is_same = former.is_some_and(|former| is_same_revision(former, self.spec));
        if is_same || trust.denies(&self.spec.module) {
            return FileLoadStep::Done(Ok(None));
        }
        FileLoadStep::Prepare(Preparation::of_spec(self.spec))
    }

    /// The revision is ready, or cannot be loaded. The record may say that a module with
    /// another digest replaces the pinned one, which is stable.
    pub fn loaded<G>(
        &mut self,
        loaded: Result<LoadedRevision<G>, RevisionLoadError>,
    ) -> FileLoadStep<G> {
        match loaded {
            Ok(loaded) => FileLoadStep::Done(Ok(Some(loaded))),
            Err(error) if error.kind.failure() == LoadFailure::DigestMismatch => {
                self.error = Some(error);
                FileLoadStep::ReadStatus
            }
            Err(error) => self.decide(error, &ControllerStatus::default()),
        }
    }

    /// Loading ended without an answer: with a panic, or after the timeout.
    #[must_use]
    pub fn unanswered<G>(&self) -> FileLoadStep<G> {
        FileLoadStep::Done(Ok(None))
    }

    /// The status of the record; none if it cannot be read.
    pub fn recorded<G>(&mut self, status: Option<ControllerStatus>) -> FileLoadStep<G> {
        match self.error.take() {
            Some(error) => self.decide(error, &status.unwrap_or_default()),
            None => FileLoadStep::Done(Ok(None)),
        }
    }

    fn decide<G>(&self, error: RevisionLoadError, recorded: &ControllerStatus) -> FileLoadStep<G> {
        let failure = error.kind.failure();
        let is_admitted = failure.is_admitted(self.spec.module.digest, recorded);
        FileLoadStep::Done(if is_admitted { Ok(None) } else { Err(error) })
    }
}
