//! Loading revisions: which, when, and what follows from the result.
//!
//! A driver fetches the module, compiles it, and lets the guest validate its
//! configuration. This module decides whether a failure is final, when the source is
//! checked again, and which revision is lost.

use std::time::Duration;

use super::revision::is_same_revision;
use super::text::one_line;
use crate::api::{ControllerSpec, ControllerStatus};
use crate::digest::ModuleDigest;
use crate::record::Owner;
use crate::revision::LoadedRevision;
use crate::rollout::Role;
use crate::time::Instant;

/// The conditions of loading a revision, in order.
pub(super) const RESOLVED: &str = "Resolved";
pub(super) const VERIFIED: &str = "Verified";
pub(super) const COMPILED: &str = "Compiled";
pub(super) const CONFIGURED: &str = "Configured";

/// The pauses between attempts to load a revision.
const RETRY_FIRST: Duration = Duration::from_secs(2);
const RETRY_MOST: Duration = Duration::from_secs(60);

/// The id of one attempt to load a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LoadId(pub u64);

/// A revision to load.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// The id of the attempt.
    pub id: LoadId,
    /// The controller.
    pub owner: Owner,
    /// The revision.
    pub target: LoadTarget,
}

/// Which revision of a controller is loaded.
#[derive(Clone, Debug, PartialEq)]
pub enum LoadTarget {
    /// The revision that the spec describes. Its module comes from the source, even if
    /// it is pinned.
    Desired {
        /// The spec.
        spec: Box<ControllerSpec>,
        /// The version of the source when the revision was last loaded. If the source
        /// still has it, there is nothing to load.
        before: Option<SourceVersion>,
        /// Whether a recorded revision has the same configuration.
        has_run: bool,
    },
    /// The recorded stable revision, by its recorded spec. Its module comes from the
    /// module cache, else from the source if that still has the same module.
    Stable {
        /// Its name.
        revision: String,
    },
    /// The recorded candidate, in the same way, while its source cannot be read.
    Candidate {
        /// Its name.
        revision: String,
    },
}

/// The version of a source: it identifies the content without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceVersion(pub String);

impl SourceVersion {
    /// The version of a source that cannot be read.
    #[must_use]
    pub fn unavailable() -> Self {
        Self(String::new())
    }
}

/// The result of loading.
#[derive(Clone, Debug)]
pub enum LoadResult<G> {
    /// The source has not changed.
    Unchanged,
    /// The revision.
    Loaded {
        /// Ready to run.
        revision: LoadedRevision<G>,
        /// The spec that it was loaded for.
        spec: Box<ControllerSpec>,
        /// The version of its source; none if the source is not checked again.
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
    /// The version of the source, if it was read.
    pub version: Option<SourceVersion>,
    /// Whether the revision is of a built-in guest.
    pub is_builtin: bool,
}

/// The kinds of failures while a revision is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadFailure {
    /// The source cannot be read.
    NotFound,
    /// Davit has no built-in guest of that name.
    NoSuchBuiltin,
    /// The module in the source has another digest than the pinned one.
    DigestMismatch,
    /// The module does not have the signatures that the spec requires.
    NotSigned,
    /// The host runs only modules that are built in, pinned or signed.
    Unsigned,
    /// The module is larger than any guest.
    TooLarge,
    /// The module does not compile.
    NotWasm,
    /// The module is WebAssembly, but not a guest that this host can run.
    NotAGuest,
    /// The guest refuses its configuration, or returns no valid manifest.
    Refused,
    /// The configuration names a field that objects do not have. Their definition may get it.
    UnknownField,
    /// The guest could not be called: the machine is busy.
    Busy,
    /// The instances of all revisions may need more memory than the container has.
    MemoryLimit,
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
            Self::DigestMismatch
            | Self::NotSigned
            | Self::Unsigned
            | Self::TooLarge
            | Self::NotAGuest => VERIFIED,
            Self::NotWasm => COMPILED,
            Self::Refused | Self::UnknownField | Self::Busy | Self::MemoryLimit => CONFIGURED,
        }
    }

    /// The reason of that condition.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotFound | Self::NoSuchBuiltin => "NotFound",
            Self::DigestMismatch => "DigestMismatch",
            Self::NotSigned => "NotSigned",
            Self::Unsigned => "Unsigned",
            Self::TooLarge => "TooLarge",
            Self::NotWasm => "NotWasm",
            Self::NotAGuest => "NotAGuest",
            Self::Refused | Self::UnknownField | Self::Busy => "Refused",
            Self::MemoryLimit => "MemoryLimit",
            Self::Unanswered => "LoadFailed",
            Self::NotRecorded => "NotRecorded",
        }
    }

    /// Whether the same module with the same configuration fails again, for as long as
    /// its source is at this version.
    fn is_final(self, version: Option<&SourceVersion>) -> bool {
        match self {
            Self::DigestMismatch => version.is_some(),
            Self::Unsigned | Self::TooLarge | Self::NotWasm | Self::NotAGuest | Self::Refused => {
                true
            }
            // A signature is pushed after its artefact.
            Self::NotFound
            | Self::NoSuchBuiltin
            | Self::NotSigned
            | Self::UnknownField
            | Self::Busy
            | Self::MemoryLimit
            | Self::Unanswered
            | Self::NotRecorded => false,
        }
    }

    /// Whether the source, or this version of Davit, has another module than the
    /// recorded one.
    fn is_of_another_module(self) -> bool {
        matches!(
            self,
            Self::DigestMismatch | Self::TooLarge | Self::NotWasm | Self::NotAGuest
        )
    }

    /// Whether a configuration file is applied although one of its revisions cannot be
    /// loaded: the revision may be loaded later without a change of the file, or it is
    /// the recorded stable revision.
    #[must_use]
    pub fn is_admitted(self, pinned: Option<ModuleDigest>, recorded: &ControllerStatus) -> bool {
        match self {
            Self::NotFound
            | Self::NotSigned
            | Self::UnknownField
            | Self::Unanswered
            // On a busy machine, a guest takes longer than it may.
            | Self::Busy => true,
            Self::DigestMismatch => {
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
    /// A failure with its message.
    #[must_use]
    pub fn new(failure: LoadFailure, message: &str) -> Self {
        Self {
            failure,
            message: one_line(message),
            version: None,
            is_builtin: false,
        }
    }

    /// Whether a revision is lost because Davit was updated: the built-in guest of that
    /// name is another module in this version of Davit.
    pub(super) fn is_updated(&self) -> bool {
        self.is_builtin && self.failure.is_of_another_module()
    }
}

/// The revisions of a controller that are being loaded, and when the next attempts are
/// due.
#[derive(Debug)]
pub(super) struct LoadState {
    /// The version of the source when it was last checked.
    version: Option<SourceVersion>,
    /// Why the module in the source cannot be used, if it cannot.
    unusable: Option<LoadProblem>,
    /// When the source is checked again.
    check_at: Option<Instant>,
    /// The attempt to load what the spec describes, and that spec.
    desired: Option<(LoadId, ControllerSpec)>,
    /// An attempt for a former spec that has not ended, and that spec: a registry that hangs
    /// must not delay the present one. There is one at most, however often the spec changes.
    former: Option<(LoadId, ControllerSpec)>,
    /// When loading the recorded revisions is retried.
    restore_at: Option<Instant>,
    /// The attempt to load a recorded revision, and its role.
    recorded: Option<(LoadId, Role)>,
    pause: Duration,
    /// Whether, as a follower, this replica has once loaded what it would run as the leader.
    pub(super) was_complete: bool,
}

/// The meaning of the result of an attempt.
#[derive(Debug)]
pub(super) enum LoadOutcome<G> {
    /// Nothing: the attempt is void, or nothing changed.
    Nothing,
    /// The revision that the spec describes, or why it cannot be loaded.
    Desired {
        revision: Option<(LoadedRevision<G>, Box<ControllerSpec>)>,
        problem: Option<LoadProblem>,
    },
    /// A recorded revision.
    Recorded(Role, LoadedRevision<G>, Box<ControllerSpec>),
    /// A recorded revision cannot be loaded.
    Missing(Role, LoadProblem),
}

impl LoadState {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            version: None,
            unusable: None,
            check_at: None,
            desired: None,
            former: None,
            restore_at: Some(now),
            recorded: None,
            pause: RETRY_FIRST,
            was_complete: false,
        }
    }

    /// Whether an attempt of that name is under way.
    pub(super) fn is_about(&self, id: LoadId) -> bool {
        let is_it = |attempt: &(LoadId, ControllerSpec)| attempt.0 == id;
        let loading = self.desired.iter().chain(&self.former).any(is_it);
        let restoring = self.recorded.map(|(restoring, _)| restoring);
        loading || restoring == Some(id)
    }

    /// Whether the module in the source cannot be used.
    pub(super) fn is_unusable(&self) -> bool {
        self.unusable.is_some()
    }

    /// The revision of this spec is loaded from now on. The attempt for another one is void.
    pub(super) fn start_again(&mut self, now: Instant, spec: &ControllerSpec) {
        self.version = None;
        self.unusable = None;
        self.pause = RETRY_FIRST;
        self.check_at = Some(now);
        self.restore_at.get_or_insert(now);
        self.set_void_aside(spec);
    }

    /// The source is read again, whatever its version, by an attempt that starts from now on: its
    /// answer is no older.
    pub(super) fn read_again(&mut self, now: Instant) {
        (self.desired, self.former) = (None, None);
        self.version = None;
        self.pause = RETRY_FIRST;
        self.check_at = Some(now);
        self.restore_at.get_or_insert(now);
    }

    /// An attempt for another spec than this one no longer holds this one back. If one for this
    /// spec was set aside before, it counts again.
    fn set_void_aside(&mut self, spec: &ControllerSpec) {
        let is_void = |(_, of): &(LoadId, ControllerSpec)| !is_same_revision(of, spec);
        let is_misplaced = match &self.former {
            Some(former) => !is_void(former) && self.desired.as_ref().is_none_or(is_void),
            None => self.desired.as_ref().is_some_and(is_void),
        };
        if is_misplaced {
            std::mem::swap(&mut self.former, &mut self.desired);
        }
    }

    /// The revision of the spec was loaded together with its declaration.
    pub(super) fn provided(&mut self, spec: &ControllerSpec, now: Instant) {
        self.unusable = None;
        let every = spec.module.check_interval();
        self.check_at = every.map(|every| check_after(now, every));
    }

    /// Starts to load the revision that the spec describes, if that is due. `has_run` says
    /// whether a recorded revision has the configuration of a spec.
    pub(super) fn start_desired(
        &mut self,
        now: Instant,
        spec: Option<&ControllerSpec>,
        has_run: impl FnOnce(&ControllerSpec) -> bool,
        id: impl FnOnce() -> LoadId,
    ) -> Option<(LoadId, LoadTarget)> {
        if self.check_at.is_none_or(|at| now < at) {
            return None;
        }
        let spec = spec?;
        self.set_void_aside(spec);
        if self.desired.is_some() {
            return None;
        }
        let spec = spec.clone();
        let id = id();
        self.desired = Some((id, spec.clone()));
        let target = LoadTarget::Desired {
            has_run: has_run(&spec),
            spec: Box::new(spec),
            before: self.version.clone(),
        };
        Some((id, target))
    }

    /// Whether loading a recorded revision is due.
    pub(super) fn may_restore(&self, now: Instant) -> bool {
        self.recorded.is_none() && self.restore_at.is_some_and(|at| at <= now)
    }

    /// All recorded revisions are loaded.
    pub(super) fn restored(&mut self) {
        self.restore_at = None;
    }

    /// Another revision is recorded.
    pub(super) fn restore_again(&mut self, now: Instant) {
        self.recorded = None;
        self.restore_at = Some(now);
        self.pause = RETRY_FIRST;
    }

    /// Starts to load a recorded revision.
    pub(super) fn start_recorded(
        &mut self,
        which: Role,
        revision: String,
        id: LoadId,
    ) -> (LoadId, LoadTarget) {
        self.recorded = Some((id, which));
        let target = match which {
            Role::Stable => LoadTarget::Stable { revision },
            Role::Candidate => LoadTarget::Candidate { revision },
        };
        (id, target)
    }

    /// Handles the result of an attempt. `spec` is the present one. The source is not checked
    /// again before the pause is over.
    pub(super) fn handle<G>(
        &mut self,
        now: Instant,
        id: LoadId,
        result: Result<LoadResult<G>, LoadProblem>,
        spec: Option<&ControllerSpec>,
        pause: Duration,
    ) -> LoadOutcome<G> {
        self.former.take_if(|(former, _)| *former == id);
        if let Some((_, loaded_for)) = self.desired.take_if(|(loading, _)| *loading == id) {
            return self.handle_desired(now, &loaded_for, result, spec, pause);
        }
        if let Some((_, which)) = self.recorded.take_if(|(restoring, _)| *restoring == id) {
            return self.handle_recorded(now, which, result);
        }
        LoadOutcome::Nothing
    }

    fn handle_desired<G>(
        &mut self,
        now: Instant,
        loaded_for: &ControllerSpec,
        result: Result<LoadResult<G>, LoadProblem>,
        spec: Option<&ControllerSpec>,
        pause: Duration,
    ) -> LoadOutcome<G> {
        if spec.is_none_or(|present| !is_same_revision(present, loaded_for)) {
            self.check_at = Some(now);
            return LoadOutcome::Nothing;
        }
        let mut check_interval = loaded_for.module.check_interval();
        let mut loaded = None;
        match result {
            Ok(LoadResult::Unchanged) => {}
            Ok(LoadResult::Loaded {
                revision,
                spec,
                version,
            }) => {
                if revision.away.is_some() {
                    check_interval = Some(check_interval.unwrap_or(RETRY_MOST));
                }
                loaded = Some((revision, spec));
                (self.version, self.unusable) = (version, None);
            }
            Err(problem) if problem.failure.is_final(problem.version.as_ref()) => {
                self.version.clone_from(&problem.version);
                self.unusable = Some(problem);
            }
            Err(problem) => {
                self.check_at = Some(now.after(self.pause));
                self.pause = (self.pause * 2).min(RETRY_MOST);
                return LoadOutcome::Desired {
                    revision: None,
                    problem: Some(problem),
                };
            }
        }
        self.pause = RETRY_FIRST;
        self.check_at = check_interval.map(|every| check_after(now, every.max(pause)));
        LoadOutcome::Desired {
            revision: loaded,
            problem: self.unusable.clone(),
        }
    }

    fn handle_recorded<G>(
        &mut self,
        now: Instant,
        which: Role,
        result: Result<LoadResult<G>, LoadProblem>,
    ) -> LoadOutcome<G> {
        self.restore_at = Some(now.after(RETRY_FIRST));
        match result {
            Ok(LoadResult::Loaded { revision, spec, .. }) => {
                LoadOutcome::Recorded(which, revision, spec)
            }
            // Only a load for a spec can return `Unchanged`.
            Ok(LoadResult::Unchanged) => LoadOutcome::Nothing,
            Err(problem) => {
                self.restore_at = Some(now.after(RETRY_MOST.min(self.pause)));
                LoadOutcome::Missing(which, problem)
            }
        }
    }
}

/// When a source is checked again: at the end of a second, with all others that are due in it. So
/// the host wakes once for a thousand controllers, and not a thousand times.
fn check_after(now: Instant, pause: Duration) -> Instant {
    const SECOND: u64 = 1_000_000_000;
    let seconds = now.after(pause).as_nanos().div_ceil(SECOND);
    Instant::from_nanos(seconds.saturating_mul(SECOND))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ModuleSource;

    /// How often the file of a controller is checked within a minute.
    fn checks_of_a_minute(pause: Duration) -> u32 {
        let spec = ControllerSpec::of(ModuleSource::File("/guests/a.wasm".into()).into());
        let mut state = LoadState::new(Instant::ZERO);
        state.start_again(Instant::ZERO, &spec);
        let mut checks = 0;
        for second in 0..60 {
            let now = Instant::ZERO.after(Duration::from_secs(second));
            let Some((id, _)) = state.start_desired(now, Some(&spec), |_| false, || LoadId(second))
            else {
                continue;
            };
            checks += 1;
            let unchanged = Ok(LoadResult::Unchanged);
            state.handle::<()>(now, id, unchanged, Some(&spec), pause);
        }
        checks
    }

    #[test]
    fn sources_are_checked_together() {
        let pause = Duration::from_secs(2);
        for millis in [1, 400, 1_000] {
            let now = Instant::ZERO.after(Duration::from_millis(millis));
            let due = check_after(now, pause);
            assert_eq!(due, Instant::ZERO.after(Duration::from_secs(3)), "{millis}");
        }
    }

    #[test]
    fn many_sources_are_checked_less_often() {
        assert_eq!(checks_of_a_minute(Duration::from_millis(50)), 30);
        assert_eq!(checks_of_a_minute(Duration::from_secs(10)), 6);
    }
}
