//! Loading revisions: which, when, and what follows from the result.
//!
//! A driver loads them: it fetches a module, compiles it, and lets the guest check its
//! configuration. It reports what happened; whether that is final, when the source is
//! looked at again and what is lost is decided here.

use std::time::Duration;

use super::declaration::Owner;
use super::revision::is_same_revision;
use super::text::one_line;
use crate::api::{ControllerSpec, ControllerStatus};
use crate::digest::ModuleDigest;
use crate::revision::LoadedRevision;
use crate::time::Instant;

/// The conditions that a revision passes while it is loaded.
pub(super) const RESOLVED: &str = "Resolved";
pub(super) const VERIFIED: &str = "Verified";
pub(super) const COMPILED: &str = "Compiled";
pub(super) const CONFIGURED: &str = "Configured";

/// The pauses between attempts to load a revision.
const RETRY_FIRST: Duration = Duration::from_secs(2);
const RETRY_MOST: Duration = Duration::from_secs(60);

/// Names one attempt to load a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LoadId(pub u64);

/// A revision to load.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Names the attempt in its result.
    pub id: LoadId,
    /// Whose it is.
    pub owner: Owner,
    /// Which revision.
    pub target: LoadTarget,
}

/// Which revision of a controller is loaded.
#[derive(Clone, Debug, PartialEq)]
pub enum LoadTarget {
    /// The one that the spec describes: its module from the source, also if it is
    /// pinned.
    Desired {
        /// The spec.
        spec: Box<ControllerSpec>,
        /// What the source held when the revision was loaded last: if it still holds
        /// that, there is nothing to load.
        before: Option<SourceVersion>,
    },
    /// The stable one of the record, by its recorded spec: its module from the module
    /// cache, else from the source if that still holds the same.
    Stable {
        /// Its name.
        revision: String,
    },
    /// The candidate of the record, in the same way: for as long as its source cannot
    /// be read.
    Candidate {
        /// Its name.
        revision: String,
    },
}

/// What identifies the content of a source without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceVersion(pub String);

impl SourceVersion {
    /// That of a source that cannot be read.
    #[must_use]
    pub fn unavailable() -> Self {
        Self(String::new())
    }
}

/// What a driver loaded.
#[derive(Clone, Debug)]
pub enum LoadResult<G> {
    /// The source holds what it held before.
    Unchanged,
    /// The revision.
    Loaded {
        /// Ready to run.
        revision: LoadedRevision<G>,
        /// The spec that it was loaded for.
        spec: Box<ControllerSpec>,
        /// What its source holds; none if that is not looked at again.
        version: Option<SourceVersion>,
    },
}

/// Why a revision cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadProblem {
    /// What failed.
    pub failure: LoadFailure,
    /// The failure with its causes.
    pub message: String,
    /// What the source held, if it was looked at.
    pub version: Option<SourceVersion>,
    /// Whether the revision is of a built-in guest.
    pub is_builtin: bool,
}

/// What can fail while a revision is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadFailure {
    /// The source cannot be read.
    NotFound,
    /// Davit has no built-in guest of that name.
    NoSuchBuiltin,
    /// The source holds another module than the pinned one.
    OtherDigest,
    /// The module is larger than any guest.
    TooLarge,
    /// The module does not compile.
    NotWasm,
    /// The module is WebAssembly, but no guest that this host can run.
    NoGuest,
    /// The guest refuses its configuration, or cannot say what it needs.
    Refused,
    /// The guest could not be asked: the machine is busy.
    Busy,
    /// Loading ended without an answer.
    Unanswered,
    /// The spec of the revision is not recorded, or cannot be read.
    NotRecorded,
}

impl LoadFailure {
    /// The condition that is false because of it.
    #[must_use]
    pub fn condition(self) -> &'static str {
        match self {
            Self::NotFound | Self::NoSuchBuiltin | Self::Unanswered | Self::NotRecorded => RESOLVED,
            Self::OtherDigest | Self::TooLarge | Self::NoGuest => VERIFIED,
            Self::NotWasm => COMPILED,
            Self::Refused | Self::Busy => CONFIGURED,
        }
    }

    /// The reason of that condition.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotFound | Self::NoSuchBuiltin => "NotFound",
            Self::OtherDigest => "OtherDigest",
            Self::TooLarge => "TooLarge",
            Self::NotWasm => "NotWasm",
            Self::NoGuest => "NoGuest",
            Self::Refused | Self::Busy => "Refused",
            Self::Unanswered => "Unprepared",
            Self::NotRecorded => "NotKept",
        }
    }

    /// Whether the same module with the same configuration fails again, for as long as
    /// its source is at this version.
    fn is_final(self, version: Option<&SourceVersion>) -> bool {
        match self {
            Self::OtherDigest => version.is_some(),
            Self::TooLarge | Self::NotWasm | Self::NoGuest | Self::Refused => true,
            Self::NotFound
            | Self::NoSuchBuiltin
            | Self::Busy
            | Self::Unanswered
            | Self::NotRecorded => false,
        }
    }

    /// Whether the source of a recorded revision holds, or this Davit runs, another
    /// module than the one that was recorded.
    fn is_of_another_module(self) -> bool {
        matches!(
            self,
            Self::OtherDigest | Self::TooLarge | Self::NotWasm | Self::NoGuest
        )
    }

    /// Whether a configuration file is applied although one of its revisions cannot be
    /// loaded: the revision may be loaded later without a change of the file, or it is
    /// what ran when an earlier host ended.
    #[must_use]
    pub fn is_admitted(self, pinned: Option<ModuleDigest>, recorded: &ControllerStatus) -> bool {
        match self {
            Self::NotFound | Self::Unanswered => true,
            Self::OtherDigest => {
                let stable = recorded.stable.as_ref();
                pinned.is_some_and(|pinned| {
                    stable.is_some_and(|stable| stable.digest.parse() == Ok(pinned))
                })
            }
            _ => false,
        }
    }
}

impl LoadProblem {
    /// A failure, and what it says.
    #[must_use]
    pub fn new(failure: LoadFailure, message: &str) -> Self {
        Self {
            failure,
            message: one_line(message),
            version: None,
            is_builtin: false,
        }
    }

    /// Whether a revision is lost because Davit was updated: what the spec of a
    /// built-in guest stands for is another module in this Davit.
    pub(super) fn is_updated(&self) -> bool {
        self.is_builtin && self.failure.is_of_another_module()
    }
}

/// Which revisions of a controller are being loaded, and when the next are.
#[derive(Debug)]
pub(super) struct Loading {
    /// What the source held when it was last looked at.
    version: Option<SourceVersion>,
    /// Why that cannot be used, if so.
    unusable: Option<LoadProblem>,
    /// When the source is looked at again.
    look_at: Option<Instant>,
    /// The attempt to load what the spec describes, and that spec.
    desired: Option<(LoadId, ControllerSpec)>,
    /// When the revisions of the record are loaded again.
    restore_at: Option<Instant>,
    /// The attempt to load one of them.
    recorded: Option<(LoadId, Recorded)>,
    pause: Duration,
}

/// A revision of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recorded {
    Stable,
    Candidate,
}

/// What the result of an attempt means.
#[derive(Debug)]
pub(super) enum Loaded<G> {
    /// Nothing: the attempt was about something else, or nothing changed.
    Nothing,
    /// What the spec describes, or what is wrong with it.
    Desired {
        revision: Option<(LoadedRevision<G>, Box<ControllerSpec>)>,
        problem: Option<LoadProblem>,
    },
    /// A revision of the record.
    Recorded(Recorded, LoadedRevision<G>, Box<ControllerSpec>),
    /// One of them cannot be loaded.
    Missing(Recorded, LoadProblem),
}

impl Loading {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            version: None,
            unusable: None,
            look_at: None,
            desired: None,
            restore_at: Some(now),
            recorded: None,
            pause: RETRY_FIRST,
        }
    }

    /// Whether an attempt of that name is under way.
    pub(super) fn is_about(&self, id: LoadId) -> bool {
        let loading = self.desired.as_ref().map(|(loading, _)| *loading);
        let restoring = self.recorded.map(|(restoring, _)| restoring);
        loading == Some(id) || restoring == Some(id)
    }

    /// Whether the source was found to hold what cannot be used.
    pub(super) fn is_unusable(&self) -> bool {
        self.unusable.is_some()
    }

    /// The spec describes another revision than before.
    pub(super) fn start_again(&mut self, now: Instant) {
        self.version = None;
        self.unusable = None;
        self.pause = RETRY_FIRST;
        self.look_at = Some(now);
        self.restore_at.get_or_insert(now);
    }

    /// What the spec describes was loaded along with its declaration.
    pub(super) fn provided(&mut self, spec: &ControllerSpec, now: Instant) {
        self.unusable = None;
        self.look_at = spec.module.look_every().map(|every| now.after(every));
    }

    /// Starts to load what the spec describes, if that is due.
    pub(super) fn start_desired(
        &mut self,
        now: Instant,
        spec: Option<&ControllerSpec>,
        id: impl FnOnce() -> LoadId,
    ) -> Option<(LoadId, LoadTarget)> {
        if self.desired.is_some() || self.look_at.is_none_or(|at| now < at) {
            return None;
        }
        let spec = spec?.clone();
        let id = id();
        self.desired = Some((id, spec.clone()));
        let target = LoadTarget::Desired {
            spec: Box::new(spec),
            before: self.version.clone(),
        };
        Some((id, target))
    }

    /// Whether a revision of the record may be loaded now.
    pub(super) fn may_restore(&self, now: Instant) -> bool {
        self.recorded.is_none() && self.restore_at.is_some_and(|at| at <= now)
    }

    /// Every revision of the record is loaded.
    pub(super) fn restored(&mut self) {
        self.restore_at = None;
    }

    /// Starts to load a revision of the record.
    pub(super) fn start_recorded(
        &mut self,
        which: Recorded,
        revision: String,
        id: LoadId,
    ) -> (LoadId, LoadTarget) {
        self.recorded = Some((id, which));
        let target = match which {
            Recorded::Stable => LoadTarget::Stable { revision },
            Recorded::Candidate => LoadTarget::Candidate { revision },
        };
        (id, target)
    }

    /// Takes the result of an attempt. `spec` is the present one.
    pub(super) fn handle<G>(
        &mut self,
        now: Instant,
        id: LoadId,
        result: Result<LoadResult<G>, LoadProblem>,
        spec: Option<&ControllerSpec>,
    ) -> Loaded<G> {
        if let Some((_, loaded_for)) = self.desired.take_if(|(loading, _)| *loading == id) {
            return self.handle_desired(now, &loaded_for, result, spec);
        }
        if let Some((_, which)) = self.recorded.take_if(|(restoring, _)| *restoring == id) {
            return self.handle_recorded(now, which, result);
        }
        Loaded::Nothing
    }

    fn handle_desired<G>(
        &mut self,
        now: Instant,
        loaded_for: &ControllerSpec,
        result: Result<LoadResult<G>, LoadProblem>,
        spec: Option<&ControllerSpec>,
    ) -> Loaded<G> {
        if spec.is_none_or(|present| !is_same_revision(present, loaded_for)) {
            self.look_at = Some(now);
            return Loaded::Nothing;
        }
        let mut look_every = loaded_for.module.look_every();
        let mut loaded = None;
        match result {
            Ok(LoadResult::Unchanged) => {}
            Ok(LoadResult::Loaded {
                revision,
                spec,
                version,
            }) => {
                if revision.away.is_some() {
                    look_every = Some(look_every.unwrap_or(RETRY_MOST));
                }
                loaded = Some((revision, spec));
                (self.version, self.unusable) = (version, None);
            }
            Err(problem) if problem.failure.is_final(problem.version.as_ref()) => {
                self.version.clone_from(&problem.version);
                self.unusable = Some(problem);
            }
            Err(problem) => {
                self.look_at = Some(now.after(self.pause));
                self.pause = (self.pause * 2).min(RETRY_MOST);
                return Loaded::Desired {
                    revision: None,
                    problem: Some(problem),
                };
            }
        }
        self.pause = RETRY_FIRST;
        self.look_at = look_every.map(|every| now.after(every));
        Loaded::Desired {
            revision: loaded,
            problem: self.unusable.clone(),
        }
    }

    fn handle_recorded<G>(
        &mut self,
        now: Instant,
        which: Recorded,
        result: Result<LoadResult<G>, LoadProblem>,
    ) -> Loaded<G> {
        self.restore_at = Some(now.after(RETRY_FIRST));
        match result {
            Ok(LoadResult::Loaded { revision, spec, .. }) => {
                Loaded::Recorded(which, revision, spec)
            }
            // That is said only of what a spec describes.
            Ok(LoadResult::Unchanged) => Loaded::Nothing,
            Err(problem) => {
                self.restore_at = Some(now.after(RETRY_MOST.min(self.pause)));
                Loaded::Missing(which, problem)
            }
        }
    }
}
