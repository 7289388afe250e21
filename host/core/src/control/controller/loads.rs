//! Which revision of a controller is loaded next, and the effect of a loaded revision.

use std::time::Duration;

use super::Controller;
use crate::api::{ControllerSpec, encode_config};
use crate::control::loading::{
    LoadFailure, LoadId, LoadOutcome, LoadProblem, LoadResult, LoadTarget,
};
use crate::control::revision::Revision;
use crate::control::state::Rollout;
use crate::control::transition::LoadFailureOfStable;
use crate::revision::config_hash;
use crate::rollout::Role;
use crate::time::Instant;

/// Why a module does not run.
const UNSIGNED: &str = "module: it is neither built in, nor pinned by its digest, nor signed, and \
                        the host's configuration denies such modules (trust.unsigned: Deny): pin \
                        the digest (module.digest), or require signatures (module.verify)";

impl<G: Clone> Controller<G> {
    /// The next revision to load, if one is due.
    pub(in crate::control) fn next_load(
        &mut self,
        now: Instant,
        id: impl FnOnce() -> LoadId,
    ) -> Option<(LoadId, LoadTarget)> {
        if self.is_denied() {
            let problem = LoadProblem::new(LoadFailure::Unsigned, UNSIGNED);
            if self.problem.as_ref() != Some(&problem) {
                self.problem = Some(problem);
                self.rest.end();
            }
            return None;
        }
        let loaded = [self.stable.as_ref(), self.desired.as_ref()];
        let rollout = &self.rollout;
        let has_run = |spec: &ControllerSpec| has_run(spec, rollout, &loaded);
        let spec = self.spec.as_ref();
        self.loading.start_desired(now, spec, has_run, id)
    }

    /// The next revision of the record to load, if one is due.
    pub(in crate::control) fn next_recorded_load(
        &mut self,
        now: Instant,
        id: impl FnOnce() -> LoadId,
    ) -> Option<(LoadId, LoadTarget)> {
        if !self.loading.may_restore(now) {
            return None;
        }
        let (which, revision) = if self.stable.is_none() {
            let stable = self.rollout.stable()?;
            if self.trust.denies_recorded(stable) {
                self.failure = Some(LoadFailureOfStable {
                    reason: UNSIGNED.to_owned(),
                    is_updated: false,
                });
                return None;
            }
            (Role::Stable, stable.revision.clone())
        } else if !self.has_read_source() && self.spec.is_some() {
            let candidate = self.rollout.candidate()?;
            if self.trust.denies_recorded(&candidate.revision) {
                self.loading.restored();
                return None;
            }
            (Role::Candidate, candidate.revision.revision.clone())
        } else {
            self.loading.restored();
            return None;
        };
        Some(self.loading.start_recorded(which, revision, id()))
    }

    /// Whether the revision that the spec describes is loaded, with what its source has.
    fn has_read_source(&self) -> bool {
        let desired = self.desired.as_ref();
        desired.is_some_and(|desired| desired.is_confirmed)
    }

    /// Handles the result of an attempt to load a revision. Its source is not checked again
    /// before that pause is over. Returns whether anything has changed.
    pub(in crate::control) fn handle_loaded(
        &mut self,
        now: Instant,
        id: LoadId,
        result: Result<LoadResult<G>, LoadProblem>,
        pause: Duration,
    ) -> bool {
        let spec = self.spec.as_ref();
        let outcome = self.loading.handle(now, id, result, spec, pause);
        // A source that may change is checked every few seconds, and has rarely changed.
        let is_unchanged = matches!(
            &outcome,
            LoadOutcome::Desired { revision: None, problem } if *problem == self.problem
        );
        if !is_unchanged {
            self.rest.end();
        }
        match outcome {
            // The candidate may still be loaded from its source.
            LoadOutcome::Nothing | LoadOutcome::Missing(Role::Candidate, _) => {}
            LoadOutcome::Desired { revision, problem } => {
                if let Some((loaded, spec)) = revision {
                    self.desired = Some(Revision::new(loaded, &spec));
                }
                self.problem = problem;
            }
            LoadOutcome::Recorded(Role::Stable, loaded, spec) => {
                self.handle_recorded_stable(Revision::new(loaded, &spec));
            }
            LoadOutcome::Recorded(Role::Candidate, loaded, spec) => {
                let loaded = Revision::new(loaded, &spec);
                // The spec may have changed while no host was running.
                let spec = self.spec.as_ref();
                let is_described = spec.is_some_and(|spec| loaded.is_described_by(spec));
                if is_described && self.is_candidate(Some(&loaded)) {
                    if !self.has_read_source() {
                        self.desired = Some(loaded);
                    }
                } else {
                    self.loading.restored();
                }
            }
            LoadOutcome::Missing(Role::Stable, problem) => {
                if self.stable.is_none() {
                    self.failure = Some(LoadFailureOfStable {
                        is_updated: problem.is_updated(),
                        reason: problem.message,
                    });
                }
            }
        }
        self.compute_new_needs();
        !is_unchanged
    }

    /// Takes the stable revision that the recorded spec describes, unless somebody has
    /// changed that spec.
    fn handle_recorded_stable(&mut self, loaded: Revision<G>) {
        let Some(stable) = self.rollout.stable() else {
            return;
        };
        if loaded.is_recorded_as(stable) {
            self.stable.get_or_insert(loaded);
        } else if self.stable.is_none() {
            let reason = format!(
                "the recorded spec of {}, {}, describes another revision: {}, sha256:{}",
                stable.revision,
                stable.digest,
                loaded.name(),
                loaded.digest()
            );
            self.failure = Some(LoadFailureOfStable {
                reason,
                is_updated: false,
            });
        }
    }
}

/// Whether a recorded revision has the configuration of a spec, whatever the digest of its module:
/// an update of Davit has another one. A record does not name the source of a module. So another
/// source is noticed only if the recorded revision is loaded.
fn has_run<G>(spec: &ControllerSpec, rollout: &Rollout, loaded: &[Option<&Revision<G>>]) -> bool {
    let Ok(config) = encode_config(&spec.config) else {
        return false;
    };
    let hash = config_hash(&config);
    let candidate = rollout.candidate().map(|one| &one.revision);
    let mut recorded = rollout.stable().into_iter().chain(candidate);
    recorded.any(|recorded| {
        let mut loaded = loaded.iter().flatten();
        let loaded = loaded.find(|it| it.is_recorded_as(recorded));
        let has_its_source = loaded.is_none_or(|it| it.spec.module.source == spec.module.source);
        recorded.config_hash == hash && has_its_source
    })
}
