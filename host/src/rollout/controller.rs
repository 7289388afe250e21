//! One controller in the task of the rollouts: how its revisions are being
//! prepared, and what of it is written down.

use std::collections::BTreeMap;
use std::time::Duration;

use davit_core::object::ObjectRef;
use tokio::time::Instant;

use super::answers::is_running;
use super::declared::Declared;
use super::managed::Managed;
use super::records::{Owner, RecordError, Records};
use super::revision::{Loss, Problem, Revision};
use super::{Preparation, RETRY_FIRST, RETRY_MOST, SAVE_PERIOD, UPDATED, What};
use crate::host::{Observation, Prepared, Wanted};
use crate::modules::Version;
use crate::spec::ControllerSpec;
use crate::status::ControllerStatus;

/// A controller, and how it is being prepared and written down.
pub(super) struct Controller {
    pub(super) managed: Managed,
    pub(super) object: Option<ObjectRef>,
    /// What the host is to run.
    pub(super) wanted: Option<Wanted>,
    /// What was last written down.
    pub(super) saved: ControllerStatus,
    pub(super) saved_at: Option<Instant>,
    /// The revisions that are active, as far as their specs are kept, and since
    /// when which of them is kept as stable.
    pub(super) kept: BTreeMap<String, Option<String>>,
    /// What its module's source held when it was last looked at.
    pub(super) version: Option<Version>,
    /// Why that cannot be used, if so.
    pub(super) unusable: Option<Problem>,
    /// When the module's source is looked at again.
    pub(super) look_at: Option<Instant>,
    pub(super) is_preparing: bool,
    /// When the revisions of its status are tried again.
    pub(super) restore_at: Option<Instant>,
    pub(super) is_restoring: bool,
    pub(super) pause: Duration,
}

impl Controller {
    /// One that is remembered by its status.
    pub(super) fn new(name: &str, object: Option<ObjectRef>, status: ControllerStatus) -> Self {
        let kept = active(&status);
        Self {
            managed: Managed::new(name, status.clone()),
            object,
            wanted: None,
            saved: status,
            saved_at: None,
            kept,
            version: None,
            unusable: None,
            look_at: None,
            is_preparing: false,
            restore_at: Some(Instant::now()),
            is_restoring: false,
            pause: RETRY_FIRST,
        }
    }

    pub(super) fn declare(&mut self, declared: Declared, prepared: Option<Prepared>) {
        let managed = &mut self.managed;
        managed.generation = declared.generation;
        managed.asked = declared.requests;
        match declared.spec {
            Err(error) => managed.spec_error = Some(error),
            Ok(spec) => {
                managed.spec_error = None;
                let former = managed.spec.replace(spec.clone());
                if let Some(prepared) = prepared {
                    managed.desired = Some(Revision::new(prepared, &spec));
                    managed.problem = None;
                    self.unusable = None;
                    self.look_at = spec.module.look_every().map(|every| Instant::now() + every);
                } else if (managed.desired.is_none() && self.unusable.is_none())
                    || former.is_none_or(|former| !is_same_revision(&former, &spec))
                {
                    self.version = None;
                    self.unusable = None;
                    self.pause = RETRY_FIRST;
                    self.look_at = Some(Instant::now());
                    self.restore_at.get_or_insert_with(Instant::now);
                }
            }
        }
    }

    /// The spec to prepare now, if there is one.
    pub(super) fn due_to_prepare(&mut self, now: Instant) -> Option<ControllerSpec> {
        if self.is_preparing || self.look_at.is_none_or(|at| now < at) {
            return None;
        }
        let spec = self.managed.spec.clone()?;
        self.is_preparing = true;
        Some(spec)
    }

    /// The revision of its status to prepare now, if one is missing.
    pub(super) fn due_to_restore(&mut self, now: Instant) -> Option<(What, String)> {
        if self.is_restoring || self.restore_at.is_none_or(|at| now < at) {
            return None;
        }
        let managed = &self.managed;
        let status = &managed.status;
        let missing = if managed.stable.is_none() {
            let revision = status.stable.as_ref()?.revision.clone();
            (What::Stable, revision)
        } else if managed.desired.is_none() && managed.spec.is_some() {
            let revision = status.candidate.as_ref()?.revision.clone();
            (What::Candidate, revision)
        } else {
            self.restore_at = None;
            return None;
        };
        self.is_restoring = true;
        Some(missing)
    }

    pub(super) fn take_prepared(&mut self, what: What, result: Result<Preparation, Problem>) {
        let now = Instant::now();
        match what {
            What::Desired(spec) => self.take_desired(&spec, result, now),
            What::Stable | What::Candidate => {
                self.is_restoring = false;
                self.restore_at = Some(now + RETRY_FIRST);
                match result {
                    Ok(Preparation::Ready { revision, .. }) if what == What::Stable => {
                        self.managed.stable.get_or_insert(*revision);
                    }
                    Ok(Preparation::Ready { revision, .. }) => {
                        // It may have been replaced while no host was there.
                        if self.managed.is_described(&revision) {
                            self.managed.desired.get_or_insert(*revision);
                        } else {
                            self.restore_at = None;
                        }
                    }
                    // That is said only of what a spec describes.
                    Ok(Preparation::Unchanged | Preparation::Unusable { .. }) => {}
                    Err(problem) => {
                        self.restore_at = Some(now + RETRY_MOST.min(self.pause));
                        if what == What::Stable && self.managed.stable.is_none() {
                            self.managed.lost = Some(Loss {
                                reason: problem.message,
                                is_updated: problem.reason == UPDATED,
                            });
                        }
                    }
                }
            }
        }
    }

    pub(super) fn take_desired(
        &mut self,
        spec: &ControllerSpec,
        result: Result<Preparation, Problem>,
        now: Instant,
    ) {
        self.is_preparing = false;
        let present = self.managed.spec.as_ref();
        if present.is_none_or(|present| !is_same_revision(present, spec)) {
            self.look_at = Some(now);
            return;
        }
        match result {
            Ok(preparation) => {
                match preparation {
                    Preparation::Unchanged => {}
                    Preparation::Ready { revision, version } => {
                        self.managed.desired = Some(*revision);
                        (self.version, self.unusable) = (version, None);
                    }
                    Preparation::Unusable { problem, version } => {
                        (self.version, self.unusable) = (version, Some(problem));
                    }
                }
                self.set_problem(self.unusable.clone());
                self.pause = RETRY_FIRST;
                self.look_at = spec.module.look_every().map(|every| now + every);
            }
            Err(problem) => {
                self.set_problem(Some(problem));
                self.look_at = Some(now + self.pause);
                self.pause = (self.pause * 2).min(RETRY_MOST);
            }
        }
    }

    fn set_problem(&mut self, problem: Option<Problem>) {
        if let Some(new) = &problem
            && self.managed.problem.as_ref() != Some(new)
        {
            let controller = &self.managed.name;
            tracing::warn!(controller, "the spec cannot be taken on: {}", new.message);
        }
        self.managed.problem = problem;
    }

    /// Whether an operator releases the guardrails that have tripped.
    pub(super) fn is_released(&self, seen: Option<&Observation>) -> bool {
        is_running(seen) && self.managed.requests.releases(&self.managed.status)
    }

    /// Takes on what must not wait for anything to be written down: what an
    /// operator has decided, and that a candidate is not tried any more.
    pub(super) fn take_on_at_once(&mut self, namespace: &str) {
        let wanted = self.managed.wanted(namespace);
        if let (Some(running), Some(wanted)) = (&mut self.wanted, wanted) {
            running.settings = wanted.settings;
            running.user = wanted.user;
            if wanted.candidate.is_none() && wanted.stable == running.stable {
                running.candidate = None;
            }
        }
    }

    /// Has the host run what is wanted, if that is written down.
    pub(super) fn take_over(&mut self, namespace: &str) {
        if material(&self.saved) == material(&self.managed.status) {
            self.wanted = self.managed.wanted(namespace);
        }
    }

    /// Writes its status down if it changed, and keeps the specs of revisions
    /// that are active.
    pub(super) async fn save(&mut self, name: &str, records: &Records) -> Result<(), RecordError> {
        let owner = owner(name, self.object.as_ref());
        let status = &self.managed.status;
        let active = active(status);
        for revision in [&self.managed.stable, &self.managed.desired]
            .into_iter()
            .flatten()
        {
            let revision_name = revision.name();
            let Some(stable_since) = active.get(&revision_name) else {
                continue;
            };
            if self.kept.get(&revision_name) != Some(stable_since) {
                let (spec, since) = (&revision.spec, stable_since.as_deref());
                records.keep(owner, &revision_name, spec, since).await?;
                self.kept.insert(revision_name, stable_since.clone());
            }
        }
        self.kept
            .retain(|revision, _| active.contains_key(revision));
        let material_change = material(&self.saved) != material(status);
        let is_due = self.saved_at.is_none_or(|at| at.elapsed() >= SAVE_PERIOD);
        if material_change || (is_due && self.saved != *status) {
            records.save(owner, status).await?;
            self.saved = status.clone();
            self.saved_at = Some(Instant::now());
        }
        Ok(())
    }
}

/// Whose records they are: a controller's, and those of its resource alone if
/// it has one.
pub(super) fn owner<'a>(name: &'a str, object: Option<&'a ObjectRef>) -> Owner<'a> {
    let uid = object.map(|object| object.uid.as_str());
    Owner {
        name,
        uid: uid.filter(|uid| !uid.is_empty()),
    }
}

/// The revisions that a status says are active, the stable one with the time
/// since when it is that.
fn active(status: &ControllerStatus) -> BTreeMap<String, Option<String>> {
    let stable = status.stable.iter();
    let stable = stable.map(|one| (one.revision.clone(), Some(one.since.clone())));
    let candidate = status.candidate.iter();
    let candidate = candidate.map(|one| (one.revision.clone(), None));
    candidate.chain(stable).collect()
}

/// A status without what only counts up.
fn material(status: &ControllerStatus) -> ControllerStatus {
    let mut status = status.clone();
    if let Some(candidate) = &mut status.candidate {
        candidate.elapsed_seconds = 0;
        candidate.comparison = crate::status::ComparisonStatus::default();
        candidate.failed_calls = 0;
        candidate.refused_writes = 0;
    }
    status
}

/// Whether two specs describe the same revision, as far as they tell.
pub(super) fn is_same_revision(a: &ControllerSpec, b: &ControllerSpec) -> bool {
    a.module == b.module && a.config == b.config && a.limits == b.limits
}
