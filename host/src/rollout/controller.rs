//! One controller in the task of the rollouts: how its revisions are being
//! prepared, and what of it is written down.

use std::collections::BTreeMap;
use std::time::Duration;

use davit_core::object::ObjectRef;
use davit_core::observation::Observation;
use tokio::time::Instant;

use super::answers::is_running;
use super::declared::Declared;
use super::identity::Identity;
use super::managed::Managed;
use super::records::{Owner, RecordError, Records};
use super::revision::{Loss, Problem, Revision};
use super::{
    OTHER_HOST_FOR, Preparation, RETRY_FIRST, RETRY_MOST, SAVE_PERIOD, SAVE_RETRY_FIRST,
    SAVE_RETRY_MOST, UPDATED, What,
};
use crate::driver::DesiredController;
use crate::loader::LoadedRevision;
use crate::modules::Version;
use davit_core::api::ControllerSpec;
use davit_core::api::{ControllerStatus, HostStatus};

/// A controller, and how it is being prepared and written down.
pub(super) struct Controller {
    pub(super) managed: Managed,
    pub(super) object: Option<ObjectRef>,
    /// What the host is to run.
    pub(super) wanted: Option<DesiredController>,
    /// What was last written down.
    pub(super) saved: ControllerStatus,
    pub(super) saved_at: Option<Instant>,
    /// Not before then is it recorded again, after a failure.
    pub(super) save_at: Option<Instant>,
    save_pause: Duration,
    /// Another host that has written its status, and when that was seen.
    other_host: Option<(HostStatus, Instant)>,
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
        let status = ControllerStatus {
            host: None,
            ..status
        };
        let kept = active(&status);
        Self {
            managed: Managed::new(name, status.clone()),
            object,
            wanted: None,
            saved: status,
            saved_at: None,
            save_at: None,
            save_pause: SAVE_RETRY_FIRST,
            other_host: None,
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

    pub(super) fn declare(&mut self, declared: Declared, prepared: Option<LoadedRevision>) {
        let managed = &mut self.managed;
        managed.generation = declared.generation;
        managed.asked = declared.requests;
        match declared.spec {
            Err(error) => managed.spec_error = Some(error),
            Ok(spec) => {
                managed.spec_error = None;
                let former = managed.spec.replace(spec.clone());
                let is_another = former.is_none_or(|former| !is_same_revision(&former, &spec));
                if is_another {
                    // It was about what another spec describes.
                    managed.problem = None;
                }
                if let Some(prepared) = prepared {
                    managed.desired = Some(Revision::new(prepared, &spec));
                    managed.problem = None;
                    self.unusable = None;
                    self.look_at = spec.module.look_every().map(|every| Instant::now() + every);
                } else if (managed.desired.is_none() && self.unusable.is_none()) || is_another {
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
                let mut look_every = spec.module.look_every();
                match preparation {
                    Preparation::Unchanged => {}
                    Preparation::Ready { revision, version } => {
                        if revision.prepared.away.is_some() {
                            look_every = Some(look_every.unwrap_or(RETRY_MOST));
                        }
                        self.managed.desired = Some(*revision);
                        (self.version, self.unusable) = (version, None);
                    }
                    Preparation::Unusable { problem, version } => {
                        (self.version, self.unusable) = (version, Some(problem));
                    }
                }
                self.managed.problem.clone_from(&self.unusable);
                self.pause = RETRY_FIRST;
                self.look_at = look_every.map(|every| now + every);
            }
            Err(problem) => {
                self.managed.problem = Some(problem);
                self.look_at = Some(now + self.pause);
                self.pause = (self.pause * 2).min(RETRY_MOST);
            }
        }
    }

    /// Whether an operator resets the guardrails that have tripped.
    pub(super) fn is_reset(&self, seen: Option<&Observation>) -> bool {
        is_running(seen) && self.managed.requests.resets(&self.managed.status)
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

    /// Records its status if it changed, and keeps the specs of revisions that
    /// are active. Where hosts share the records, this one shows that it is
    /// there.
    pub(super) async fn save(
        &mut self,
        name: &str,
        records: &Records,
        identity: &Identity,
    ) -> Result<(), RecordError> {
        let status = self.managed.status.clone();
        let Err(error) = self.keep(name, records).await else {
            return self.write(name, records, status, identity).await;
        };
        // No decision is recorded before its specs are kept; but why is said.
        let said = ControllerStatus {
            summary: status.summary,
            conditions: status.conditions,
            observed_generation: status.observed_generation,
            ..self.saved.clone()
        };
        self.write(name, records, said, identity).await?;
        Err(error)
    }

    /// Keeps the specs of revisions that are active.
    async fn keep(&mut self, name: &str, records: &Records) -> Result<(), RecordError> {
        let owner = owner(name, self.object.as_ref());
        let active = active(&self.managed.status);
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
        Ok(())
    }

    async fn write(
        &mut self,
        name: &str,
        records: &Records,
        status: ControllerStatus,
        identity: &Identity,
    ) -> Result<(), RecordError> {
        let is_due = self.saved_at.is_none_or(|at| at.elapsed() >= SAVE_PERIOD);
        let is_another = is_due && (records.are_shared() || self.saved != status);
        if material(&self.saved) == material(&status) && !is_another {
            return Ok(());
        }
        let written = ControllerStatus {
            host: records.are_shared().then(|| identity.status()),
            ..status.clone()
        };
        let owner = owner(name, self.object.as_ref());
        if let Some(other) = records.save(owner, &written).await? {
            self.other_host = Some((other, Instant::now()));
        }
        self.saved = status;
        self.saved_at = Some(Instant::now());
        Ok(())
    }

    /// Notes how recording it ended. After failures it is tried less and less
    /// often.
    pub(super) fn note_saved(&mut self, failure: Option<&str>) {
        self.managed.unrecorded = failure.map(str::to_owned);
        if failure.is_none() {
            (self.save_at, self.save_pause) = (None, SAVE_RETRY_FIRST);
        } else {
            self.save_at = Some(Instant::now() + self.save_pause);
            self.save_pause = (self.save_pause * 2).min(SAVE_RETRY_MOST);
        }
    }

    /// Notes which other host has written its status of late.
    pub(super) fn note_other_host(&mut self) {
        let is_over = |(_, at): &(HostStatus, Instant)| at.elapsed() >= OTHER_HOST_FOR;
        if self.other_host.as_ref().is_some_and(is_over) {
            self.other_host = None;
        }
        let other = self.other_host.as_ref();
        self.managed.other_host = other.map(|(host, _)| host.clone());
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
        candidate.elapsed.clear();
        candidate.remaining.clear();
        candidate.comparison = davit_core::api::ComparisonStatus::default();
        candidate.failed_calls = 0;
        candidate.refused_writes = 0;
    }
    status
}

/// Whether two specs describe the same revision, as far as they tell.
pub(super) fn is_same_revision(a: &ControllerSpec, b: &ControllerSpec) -> bool {
    a.module == b.module && a.config == b.config && a.limits == b.limits
}
