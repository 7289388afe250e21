//! Writes the record of a controller: which part, in which order, and when.
//!
//! The host records the specs of active revisions before the status that names them.
//! One write is under way at a time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::decision::Decision;
use super::exchange::HostIdentity;
use crate::api::{CandidateStatus, ComparisonStatus, ControllerSpec, ControllerStatus, HostStatus};
use crate::digest::ModuleDigest;
use crate::mutant::Mutant;
use crate::record::{
    Activation, Record, RecordFailure, RecordId, RecordReceipt, StatusConflict, StatusVersion,
    StatusWrite,
};
use crate::time::{Instant, Now};
use crate::times::time;

/// How often rising counts are recorded.
const PERIOD: Duration = Duration::from_secs(10);
/// How often a status shows that its host runs, to hosts that take part in no election. Most
/// of these writes have no other news, and cost the API server as much as any other.
pub(super) const SHOWN_EVERY: Duration = Duration::from_secs(60);
/// The pauses between attempts to record something.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(30);

/// The state of a controller's record, and the write that is under way.
#[derive(Debug)]
pub(super) struct RecordProgress {
    under_way: Option<(RecordId, Write)>,
    /// The status that was recorded last, without its host.
    status: ControllerStatus,
    /// The recorded decision; none if it is unknown, because a write without an answer
    /// may have replaced it.
    decision: Option<Decision>,
    /// The version of the recorded status, if it is known.
    version: Option<StatusVersion>,
    /// Whether the record certainly holds [`Self::status`].
    is_certain: bool,
    /// The modules that the record may name: after a write with an unknown result, also
    /// those of that write. None if the record was not read.
    modules: Option<BTreeSet<ModuleDigest>>,
    recorded_at: Option<Instant>,
    /// When the next write may start after a failure.
    retry_at: Option<Instant>,
    pause: Duration,
    /// The active revisions whose specs are recorded, with the recorded time at which
    /// they became stable.
    revisions: BTreeMap<String, Option<String>>,
    /// Pauses of the rollout that are not recorded yet.
    pauses: VecDeque<bool>,
}

/// A write that is under way.
#[derive(Debug)]
enum Write {
    Revision {
        name: String,
        stable_since: Option<String>,
    },
    Status(Box<ControllerStatus>),
    /// The status without decisions, and why the revisions could not be recorded.
    Conditions(Box<ControllerStatus>, String),
    Paused,
}

/// The inputs of a write.
pub(super) struct RecordInputs<'a> {
    pub(super) now: Now,
    pub(super) status: &'a ControllerStatus,
    /// The loaded revisions.
    pub(super) revisions: Vec<(&'a str, &'a ControllerSpec)>,
    /// The identity of this host, if other hosts may write the record too.
    pub(super) host: Option<&'a HostIdentity>,
    /// What happens if one of them has written the status since.
    pub(super) conflict: StatusConflict,
}

impl<'a> RecordInputs<'a> {
    /// The inputs of a write of the status. With leases, another host that has written the
    /// status leads.
    pub(super) fn of_status(
        status: &'a ControllerStatus,
        has_lease: bool,
        now: Now,
        host: Option<&'a HostIdentity>,
    ) -> Self {
        Self {
            now,
            status,
            revisions: Vec::new(),
            host,
            conflict: if has_lease {
                StatusConflict::Fail
            } else {
                StatusConflict::Replace
            },
        }
    }
}

/// The effect of the end of a write.
#[derive(Debug, PartialEq)]
pub(super) enum RecordOutcome {
    /// None: it was another write.
    Nothing,
    /// The write succeeded; there may be more to record.
    Done {
        /// Another host that has written since this one did.
        other_host: Option<HostStatus>,
    },
    /// The write failed.
    Failed(String),
    /// Another host has written the status since, and decides.
    Overtaken(String),
    /// A pause of the rollout is recorded, or cannot be recorded.
    Paused(Result<(), String>),
    /// The specs cannot be recorded. The status records why.
    Explain(String),
}

impl RecordProgress {
    /// The recording of a controller whose record was read.
    pub(super) fn new(status: ControllerStatus, version: Option<StatusVersion>) -> Self {
        let status = ControllerStatus {
            host: None,
            ..status
        };
        Self {
            under_way: None,
            decision: Some(Decision::of(&status)),
            version,
            is_certain: true,
            modules: Some(modules(&status).collect()),
            recorded_at: None,
            retry_at: None,
            pause: RETRY_FIRST,
            revisions: active(&status)
                .into_iter()
                .map(|(name, since)| (name.to_owned(), since.map(ToOwned::to_owned)))
                .collect(),
            pauses: VecDeque::new(),
            status,
        }
    }

    /// The record could not be read: its content is unknown until a write succeeds.
    pub(super) fn doubt(&mut self) {
        (self.decision, self.is_certain) = (None, false);
        (self.modules, self.version) = (None, None);
    }

    /// The digests of the modules that the record may name; none if they are unknown.
    pub(super) fn modules(&self) -> Option<&BTreeSet<ModuleDigest>> {
        self.modules.as_ref()
    }

    /// The status that was recorded last, as far as this host knows.
    pub(super) fn status(&self) -> &ControllerStatus {
        &self.status
    }

    /// The recorded decision, if it is known.
    pub(super) fn decision(&self) -> Option<&Decision> {
        self.decision.as_ref()
    }

    /// Whether a write is under way.
    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.is_some() || !self.pauses.is_empty()
    }

    /// Whether a write is under way or has to be repeated, or nobody knows what is recorded.
    pub(super) fn is_open(&self) -> bool {
        !self.is_certain || self.is_under_way() || self.retry_at.is_some()
    }

    /// Whether there is nothing to record of this status, as long as it does not change.
    pub(super) fn is_idle(&self, status: &ControllerStatus, now: Instant) -> bool {
        let is_recent = |within| self.recorded_at.is_some_and(|at| now.since(at) < within);
        !self.is_open() && (is_recent(PERIOD) || (is_recent(SHOWN_EVERY) && self.status == *status))
    }

    /// Whether the write with this id is under way.
    pub(super) fn is_about(&self, id: RecordId) -> bool {
        self.under_way.as_ref().is_some_and(|(own, _)| *own == id)
    }

    /// Whether nothing is left to record, so that an earlier failure is resolved.
    pub(super) fn is_complete(&self, now: Instant) -> bool {
        !self.is_under_way() && self.retry_at.is_none_or(|at| at <= now)
    }

    /// Queues a pause of the rollout for recording.
    pub(super) fn pause(&mut self, paused: bool) {
        self.pauses.push_back(paused);
    }

    /// The next write, if there is something to record now.
    pub(super) fn next(
        &mut self,
        inputs: &RecordInputs<'_>,
        id: RecordId,
    ) -> Option<(RecordId, Record)> {
        if self.under_way.is_some() {
            return None;
        }
        if let Some(paused) = self.pauses.pop_front() {
            return Some(self.start(id, Write::Paused, Record::Paused(paused)));
        }
        if self.retry_at.is_some_and(|at| inputs.now.instant < at) {
            return None;
        }
        if let Some((write, record)) = self.next_revision(inputs)
            && !(Mutant::RecordStatusFirst.is_active() && self.is_due(inputs.status, inputs))
        {
            return Some(self.start(id, write, record));
        }
        if !self.is_due(inputs.status, inputs) {
            return None;
        }
        if let Some(named) = &mut self.modules {
            named.extend(modules(inputs.status));
        }
        let write = Write::Status(Box::new(inputs.status.clone()));
        let record = self.status_write(inputs.status, inputs);
        Some(self.start(id, write, record))
    }

    /// A write of the status, if nothing is under way and nothing but its counts is new.
    pub(super) fn counts(&self, inputs: &RecordInputs<'_>) -> Option<Record> {
        let is_new = self.is_certain
            && !self.is_under_way()
            && self.status != *inputs.status
            && differ_in_counts_alone(&self.status, inputs.status);
        is_new.then(|| self.status_write(inputs.status, inputs))
    }

    fn start(&mut self, id: RecordId, write: Write, record: Record) -> (RecordId, Record) {
        self.under_way = Some((id, write));
        (id, record)
    }

    fn status_write(&self, status: &ControllerStatus, inputs: &RecordInputs<'_>) -> Record {
        let status = ControllerStatus {
            host: inputs.host.map(|host| host.status(inputs.now.wall)),
            ..status.clone()
        };
        Record::Status(StatusWrite {
            status: Box::new(status),
            replaces: self.version.clone(),
            conflict: inputs.conflict,
        })
    }

    fn next_revision(&mut self, inputs: &RecordInputs<'_>) -> Option<(Write, Record)> {
        let active = active(inputs.status);
        self.revisions
            .retain(|name, _| active.contains_key(name.as_str()));
        let mut loaded = inputs.revisions.iter();
        let (name, spec) = loaded.find(|(name, _)| {
            let recorded = self.revisions.get(*name).map(Option::as_deref);
            active
                .get(name)
                .is_some_and(|since| recorded != Some(*since))
        })?;
        let name = (*name).to_owned();
        let since = active.get(name.as_str()).copied().flatten();
        let stable_since = since.map(ToOwned::to_owned);
        let activation = Activation {
            revision: name.clone(),
            spec: (*spec).clone(),
            at: time(inputs.now.wall),
            stable_since: stable_since.clone(),
        };
        let record = Record::Revision(Box::new(activation));
        Some((Write::Revision { name, stable_since }, record))
    }

    /// Whether to record a status now: immediately if it differs in more than counts,
    /// otherwise every ten seconds. If hosts share the records, a write each minute shows
    /// that this one runs.
    fn is_due(&self, status: &ControllerStatus, inputs: &RecordInputs<'_>) -> bool {
        let is_same = self.status == *status;
        if !self.is_certain || (!is_same && !differ_in_counts_alone(&self.status, status)) {
            return true;
        }
        let now = inputs.now.instant;
        let is_old = |age| self.recorded_at.is_none_or(|at| now.since(at) >= age);
        (!is_same && is_old(PERIOD)) || (inputs.host.is_some() && is_old(SHOWN_EVERY))
    }

    /// Handles the end of a write.
    pub(super) fn handle(
        &mut self,
        id: RecordId,
        result: Result<RecordReceipt, RecordFailure>,
        now: Instant,
    ) -> RecordOutcome {
        let Some((_, write)) = self.under_way.take_if(|(under_way, _)| *under_way == id) else {
            return RecordOutcome::Nothing;
        };
        let result = match result {
            Err(error @ RecordFailure::Overtaken { .. }) => {
                return RecordOutcome::Overtaken(error.to_string());
            }
            result => result.map_err(|error| error.to_string()),
        };
        match (write, result) {
            (Write::Paused, result) => RecordOutcome::Paused(result.map(|_| ())),
            (Write::Revision { name, stable_since }, Ok(_)) => {
                self.revisions.insert(name, stable_since);
                RecordOutcome::Done { other_host: None }
            }
            (Write::Revision { .. }, Err(error)) => RecordOutcome::Explain(error),
            (Write::Status(status), Ok(receipt)) => {
                self.recorded(*status, receipt.version, now);
                (self.retry_at, self.pause) = (None, RETRY_FIRST);
                RecordOutcome::Done {
                    other_host: receipt.other_host,
                }
            }
            (Write::Conditions(status, error), Ok(receipt)) => {
                self.recorded(*status, receipt.version, now);
                self.fail(error, now)
            }
            (Write::Status(status) | Write::Conditions(status, _), Err(error)) => {
                if Mutant::CountFailedRecords.is_active() {
                    self.recorded(*status, None, now);
                    return RecordOutcome::Done { other_host: None };
                }
                // The write may have been executed.
                self.is_certain = false;
                if self.decision != Some(Decision::of(&status)) {
                    self.decision = None;
                }
                self.fail(error, now)
            }
        }
    }

    fn recorded(&mut self, status: ControllerStatus, version: Option<StatusVersion>, now: Instant) {
        self.version = version;
        self.decision = Some(Decision::of(&status));
        self.modules = Some(modules(&status).collect());
        self.status = status;
        self.is_certain = true;
        self.recorded_at = Some(now);
    }

    /// Records why specs cannot be recorded, without the decision: no decision is
    /// recorded before its specs.
    pub(super) fn explain(
        &mut self,
        error: String,
        inputs: &RecordInputs<'_>,
        id: RecordId,
    ) -> Result<(RecordId, Record), RecordOutcome> {
        let now = inputs.now.instant;
        if self.decision.is_none() {
            // A write without an answer may have recorded more than this host knows.
            return Err(self.fail(error, now));
        }
        let status = ControllerStatus {
            summary: inputs.status.summary.clone(),
            conditions: inputs.status.conditions.clone(),
            observed_generation: inputs.status.observed_generation,
            ..self.status.clone()
        };
        if !self.is_due(&status, inputs) {
            return Err(self.fail(error, now));
        }
        let record = self.status_write(&status, inputs);
        Ok(self.start(id, Write::Conditions(Box::new(status), error), record))
    }

    /// Doubles the pause after each failure.
    fn fail(&mut self, error: String, now: Instant) -> RecordOutcome {
        self.retry_at = Some(now.after(self.pause));
        self.pause = (self.pause * 2).min(RETRY_MOST);
        RecordOutcome::Failed(error)
    }
}

/// The active revisions of a status, the stable one with the time at which it became
/// stable.
fn active(status: &ControllerStatus) -> BTreeMap<&str, Option<&str>> {
    let stable = status.stable.iter();
    let stable = stable.map(|one| (one.revision.as_str(), Some(one.since.as_str())));
    let candidate = status.candidate.iter();
    let candidate = candidate.map(|one| (one.revision.as_str(), None));
    candidate.chain(stable).collect()
}

/// The digests of the modules that a status names.
fn modules(status: &ControllerStatus) -> impl Iterator<Item = ModuleDigest> {
    let stable = status.stable.iter().map(|one| &one.digest);
    let candidate = status.candidate.iter().map(|one| &one.digest);
    let digests = stable.chain(candidate);
    digests.filter_map(|digest| digest.parse().ok())
}

/// Whether two statuses are the same except for recent writes, for the comparison with the
/// cluster, for the guest's reports, and for the counts and times of a candidate.
fn differ_in_counts_alone(one: &ControllerStatus, other: &ControllerStatus) -> bool {
    let ControllerStatus {
        observed_generation,
        summary,
        host,
        stable,
        lost,
        candidate,
        rejected,
        tripped,
        recent_writes: _,
        cluster_comparison: _,
        reports: _,
        missing_permissions,
        requests,
        conditions,
    } = one;
    *observed_generation == other.observed_generation
        && *summary == other.summary
        && *host == other.host
        && *stable == other.stable
        && *lost == other.lost
        && candidate.as_ref().map(without_counts) == other.candidate.as_ref().map(without_counts)
        && *rejected == other.rejected
        && *tripped == other.tripped
        && *missing_permissions == other.missing_permissions
        && *requests == other.requests
        && *conditions == other.conditions
}

/// A candidate without counts and times.
fn without_counts(candidate: &CandidateStatus) -> CandidateStatus {
    CandidateStatus {
        elapsed_seconds: 0,
        elapsed: String::new(),
        remaining: String::new(),
        comparison: ComparisonStatus::default(),
        failed_calls: 0,
        refused_writes: 0,
        ..candidate.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Wall;

    fn at(seconds: u64) -> Now {
        Now {
            instant: Instant::ZERO.after(Duration::from_secs(seconds)),
            wall: Wall::default(),
        }
    }

    fn status(summary: &str) -> ControllerStatus {
        ControllerStatus {
            summary: summary.into(),
            ..ControllerStatus::default()
        }
    }

    fn next(
        recording: &mut RecordProgress,
        status: &ControllerStatus,
        seconds: u64,
    ) -> Option<Record> {
        let inputs = RecordInputs::of_status(status, false, at(seconds), None);
        let (_, record) = recording.next(&inputs, RecordId(seconds))?;
        Some(record)
    }

    fn no_answer() -> RecordFailure {
        RecordFailure::Failed("no answer".to_owned())
    }

    /// A write without an answer may have been executed: the former record has to be
    /// written again, although nothing else has changed.
    #[test]
    fn a_status_is_written_again_after_a_write_without_an_answer() {
        let (before, after) = (status("before"), status("after"));
        let mut recording = RecordProgress::new(before.clone(), None);
        assert_eq!(next(&mut recording, &before, 1), None);
        assert!(next(&mut recording, &after, 2).is_some());
        let failed = recording.handle(RecordId(2), Err(no_answer()), at(2).instant);
        assert_eq!(failed, RecordOutcome::Failed("no answer".into()));
        assert_eq!(next(&mut recording, &before, 2), None, "after a pause");
        let again = next(&mut recording, &before, 4);
        assert_eq!(again, Some(Record::Status(StatusWrite::any(before))));
    }

    #[test]
    fn attempts_become_rarer_up_to_30_seconds() {
        let mut recording = RecordProgress::new(status("before"), None);
        let after = status("after");
        let mut attempts = Vec::new();
        for second in 0..120 {
            if next(&mut recording, &after, second).is_some() {
                attempts.push(second);
                recording.handle(RecordId(second), Err(no_answer()), at(second).instant);
            }
        }
        assert_eq!(attempts, [0, 1, 3, 7, 15, 31, 61, 91]);
    }
}
