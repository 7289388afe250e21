//! The records of controllers, which outlive a host, and checks of every write to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use davit_core::api::{
    CandidateStatus, ControllerSpec, ControllerStatus, HostStatus, RequestResult, RequestStatus,
};
use davit_core::record::{ControllerRecord, Owner, Record, StoredRecord, in_use};

const GONE: &str = "the Controller is gone";

/// The records of all controllers.
#[derive(Debug, Default)]
pub struct Records {
    /// Whether other hosts may write records too, as in a cluster. A record then belongs to
    /// one resource and is deleted with the resource.
    pub are_shared: bool,
    /// Whether the hosts elect a leader: each then refuses to replace what another one has
    /// written since it last read or wrote.
    pub are_elected: bool,
    /// The uid of the resource of each controller.
    uids: BTreeMap<String, String>,
    histories: BTreeMap<String, RecordHistory>,
}

/// The record of one controller.
#[derive(Debug, Default)]
struct RecordHistory {
    record: ControllerRecord,
    /// Every written decision, in order.
    written: Vec<Arc<ControllerStatus>>,
    /// The hosts that wrote the status.
    writers: BTreeSet<String>,
    /// The writer of the status that each host last read or wrote.
    seen: BTreeMap<String, Option<String>>,
    /// The rollouts that ended.
    ended: BTreeSet<String>,
    /// Whether the host answered that the rollout is paused.
    pause_is_confirmed: bool,
}

/// The result of a write.
#[derive(Debug)]
pub(crate) struct WriteResult {
    /// Another host that wrote after the last write of this one.
    pub(crate) other_host: Option<HostStatus>,
    /// What the write breaks.
    pub(crate) problems: Vec<String>,
}

impl Records {
    /// A resource of this name exists from now on, without a record.
    pub fn create(&mut self, controller: &str, uid: &str) {
        self.histories.remove(controller);
        self.uids.insert(controller.to_owned(), uid.to_owned());
    }

    /// The resource of this name is deleted, and its record with it.
    pub fn remove(&mut self, controller: &str) {
        self.histories.remove(controller);
        self.uids.remove(controller);
    }

    /// The recorded status of a controller.
    #[must_use]
    pub fn status(&self, controller: &str) -> Option<&ControllerStatus> {
        Some(&self.histories.get(controller)?.record.status)
    }

    /// The recorded spec of the stable revision.
    #[must_use]
    pub fn stable_spec(&self, controller: &str) -> Option<ControllerSpec> {
        let record = &self.histories.get(controller)?.record;
        record.spec(&record.status.stable.as_ref()?.revision)
    }

    /// Another host writes to the record that it runs this controller.
    pub fn other_host_writes(&mut self, controller: &str, host: HostStatus) {
        if let Some(held) = self.histories.get_mut(controller) {
            held.record.status.host = Some(host);
        }
    }

    /// Every recorded decision of a controller, in order.
    #[must_use]
    pub fn written(&self, controller: &str) -> &[Arc<ControllerStatus>] {
        let held = self.histories.get(controller);
        held.map(|held| held.written.as_slice()).unwrap_or_default()
    }

    /// Whether the rollout of a controller of a file is recorded as paused.
    #[must_use]
    pub fn is_paused(&self, controller: &str) -> bool {
        let held = self.histories.get(controller);
        held.is_some_and(|held| held.record.paused)
    }

    /// The host confirmed to an operator that the rollout of a controller of a file is
    /// paused, or the operator continues the rollout.
    pub(crate) fn confirm_pause(&mut self, controller: &str, is_confirmed: bool) {
        if let Some(held) = self.histories.get_mut(controller) {
            held.pause_is_confirmed = is_confirmed;
        }
    }

    /// The uid of a controller's resource, if it has one.
    #[must_use]
    pub fn uid(&self, controller: &str) -> Option<&str> {
        self.uids.get(controller).map(String::as_str)
    }

    fn is_of(&self, owner: &Owner) -> bool {
        owner.uid.is_none() || owner.uid.as_ref() == self.uids.get(&owner.name)
    }

    pub(crate) fn read(&mut self, owner: &Owner, reader: Option<&str>) -> StoredRecord {
        if let Some(reader) = reader
            && let Some(held) = self.histories.get_mut(&owner.name)
        {
            let writer = held.record.status.host.as_ref();
            let writer = writer.map(|host| host.id.clone());
            held.seen.insert(reader.to_owned(), writer);
        }
        let held = self.histories.get(&owner.name);
        let record = held.map(|held| &held.record);
        let paused = record.is_some_and(|record| record.paused);
        let status = if self.is_of(owner) {
            Ok(record.map(|it| it.status.clone()).unwrap_or_default())
        } else {
            Err(GONE.to_owned())
        };
        StoredRecord {
            status,
            paused: (!self.are_shared).then_some(Ok(paused)),
        }
    }

    pub(crate) fn spec(&self, owner: &Owner, revision: &str) -> Option<ControllerSpec> {
        let held = self
            .histories
            .get(&owner.name)
            .filter(|_| self.is_of(owner))?;
        held.record.spec(revision)
    }

    /// Writes to a record. The record of a deleted resource is gone.
    pub(crate) fn write(&mut self, owner: &Owner, record: Record) -> Result<WriteResult, String> {
        if !self.is_of(owner) {
            return Err(GONE.to_owned());
        }
        let mut written = WriteResult {
            other_host: None,
            problems: Vec::new(),
        };
        let name = &owner.name;
        let held = self.histories.entry(name.clone()).or_default();
        if let Record::Status(status) = &record {
            if self.are_elected {
                held.check_writer(status)?;
            } else {
                written.other_host = held.takes_over(status);
            }
            written.problems = held.problems(name, status);
            let decided = Arc::new(ControllerStatus {
                host: None,
                ..(**status).clone()
            });
            if !held
                .written
                .last()
                .is_some_and(|last| is_same(last, &decided))
            {
                held.written.push(decided);
            }
        }
        held.record.write(record);
        Ok(written)
    }
}

impl RecordHistory {
    /// Refuses to replace what another host has written after the last write of this one.
    fn check_writer(&mut self, status: &ControllerStatus) -> Result<(), String> {
        let Some(own) = &status.host else {
            return Ok(());
        };
        let writer = self.record.status.host.as_ref();
        let writer = writer.map(|host| host.id.as_str());
        let seen = self.seen.get(&own.id).and_then(Option::as_deref);
        if seen == Some(own.id.as_str()) && writer != seen {
            return Err("another replica has written it since".to_owned());
        }
        self.seen.insert(own.id.clone(), Some(own.id.clone()));
        Ok(())
    }

    /// Another host, if it wrote after the last write of this one.
    fn takes_over(&mut self, status: &ControllerStatus) -> Option<HostStatus> {
        let own = status.host.as_ref()?;
        let has_written = !self.writers.insert(own.id.clone());
        let former = self.record.status.host.clone();
        former.filter(|former| has_written && former.id != own.id)
    }

    /// What a new status breaks.
    fn problems(&mut self, name: &str, status: &ControllerStatus) -> Vec<String> {
        let before = &self.record.status;
        let mut problems = Vec::new();
        for revision in in_use(status) {
            if self.record.spec(&revision).is_none() {
                let what =
                    format!("{name}: the status names {revision}, whose spec is not recorded");
                problems.push(what);
            }
        }
        for answer in &before.requests {
            let again = status.answer(&answer.request, &answer.value);
            if let Some(again) = again
                && answer.result != RequestResult::Pending
                && !again.is_same(answer)
            {
                problems.push(format!(
                    "{name}: a request has two answers: {answer:?}, then {again:?}"
                ));
            }
        }
        let named = status.candidate.as_ref().map(rollout);
        let former = before.candidate.as_ref().map(rollout);
        if let Some(former) = former
            && Some(&former) != named.as_ref()
        {
            self.ended.insert(former);
        }
        if let Some(named) = named
            && self.ended.contains(&named)
        {
            problems.push(format!(
                "{name}: the rollout {named} continues after its end"
            ));
        }
        if self.pause_is_confirmed && moves_on(before, status) {
            problems.push(format!("{name}: a paused rollout changes its step"));
        }
        if let (Some(candidate), Some(rejected)) = (&status.candidate, &status.rejected)
            && candidate.revision == rejected.revision
        {
            let revision = &rejected.revision;
            problems.push(format!("{name}: {revision} is both candidate and rejected"));
        }
        problems
    }
}

/// Whether a rollout is in a later step than before without a promotion by an operator.
fn moves_on(before: &ControllerStatus, status: &ControllerStatus) -> bool {
    let (Some(former), Some(candidate)) = (&before.candidate, &status.candidate) else {
        return false;
    };
    let is_promoted = |answer: &RequestStatus| {
        let is_done = |answer: &RequestStatus| {
            answer.request == "promote" && answer.result == RequestResult::Done
        };
        let former = before.answer(&answer.request, &answer.value);
        is_done(answer) && !former.is_some_and(is_done)
    };
    rollout(former) == rollout(candidate)
        && former.steps == candidate.steps
        && former.step < candidate.step
        && !status.requests.iter().any(is_promoted)
}

/// The name of a rollout.
fn rollout(candidate: &CandidateStatus) -> String {
    format!("{}@{}", candidate.revision, candidate.since)
}

/// Whether two statuses hold the same decisions.
fn is_same(one: &ControllerStatus, other: &ControllerStatus) -> bool {
    let step = |status: &ControllerStatus| {
        let candidate = status.candidate.as_ref();
        candidate.map(|one| (rollout(one), one.step, one.weight))
    };
    one.stable == other.stable
        && step(one) == step(other)
        && one.rejected == other.rejected
        && one.lost == other.lost
        && one.tripped == other.tripped
        && one.requests == other.requests
}
