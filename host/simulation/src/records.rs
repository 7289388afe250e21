//! The records of controllers, which outlive a host, and checks of every write to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use davit_core::api::{
    CandidateStatus, ControllerSpec, ControllerStatus, HostStatus, RequestResult, RequestStatus,
};
use davit_core::record::{ControllerRecord, Owner, Record, StoredRecord, in_use};
use davit_core::request::{Method, Request, RequestError, record};
use davit_core::time::Instant;
use davit_sim::Time;

use crate::record_server::RecordServer;

/// The records of all controllers.
#[derive(Debug, Default)]
pub struct Records {
    /// Whether the records are in a cluster: each belongs to one resource, and hosts read and
    /// write it with requests. Otherwise they are in files of one host.
    pub are_shared: bool,
    server: Option<RecordServer>,
    /// The uid of the resource of each controller.
    uids: BTreeMap<String, String>,
    histories: BTreeMap<String, RecordHistory>,
}

/// The record of one controller.
#[derive(Debug, Default)]
struct RecordHistory {
    /// The record; of a cluster only the status.
    record: ControllerRecord,
    /// Every written decision, in order.
    written: Vec<Arc<ControllerStatus>>,
    /// When a request last wrote the status.
    written_at: Option<Instant>,
    /// The rollouts that ended.
    ended: BTreeSet<String>,
    /// Whether the host answered that the rollout is paused.
    pause_is_confirmed: bool,
}

/// What a request did, and its answer.
#[derive(Debug)]
pub(crate) struct RecordArrival {
    pub(crate) answer: Result<Vec<u8>, RequestError>,
    /// The new status, if the request wrote one.
    pub(crate) status: Option<ControllerStatus>,
    /// What the request breaks.
    pub(crate) problems: Vec<String>,
}

impl Records {
    /// A resource of this name exists from now on, without a record.
    pub fn create(&mut self, controller: &str, uid: &str) {
        self.histories.remove(controller);
        self.uids.insert(controller.to_owned(), uid.to_owned());
        let server = self.server.get_or_insert_with(RecordServer::new);
        server.create(controller, uid);
    }

    /// The resource of this name is deleted, and its status with it.
    pub fn remove(&mut self, controller: &str) {
        self.histories.remove(controller);
        self.uids.remove(controller);
        if let Some(server) = &mut self.server {
            server.remove(controller);
        }
    }

    /// An operator changes the resource of this name.
    pub fn change(&mut self, controller: &str) {
        if let Some(server) = &mut self.server
            && self.uids.contains_key(controller)
        {
            server.change(controller);
        }
    }

    /// The recorded status of a controller.
    #[must_use]
    pub fn status(&self, controller: &str) -> Option<&ControllerStatus> {
        Some(&self.histories.get(controller)?.record.status)
    }

    /// The recorded spec of the stable revision.
    #[must_use]
    pub fn stable_spec(&self, controller: &str) -> Option<ControllerSpec> {
        let stable = self.status(controller)?.stable.as_ref()?;
        self.spec(&self.owner(controller), &stable.revision)
    }

    /// Another host writes to the record that it runs this controller.
    pub fn other_host_writes(&mut self, controller: &str, host: HostStatus) {
        if let (Some(held), Some(server)) = (self.histories.get_mut(controller), &mut self.server) {
            server.write_host(controller, &host);
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

    /// The owner of a record.
    fn owner(&self, controller: &str) -> Owner {
        Owner {
            name: controller.to_owned(),
            uid: self.uid(controller).map(str::to_owned),
        }
    }

    pub(crate) fn spec(&self, owner: &Owner, revision: &str) -> Option<ControllerSpec> {
        match &self.server {
            Some(server) if self.are_shared => server.spec(owner, revision),
            _ => self.histories.get(&owner.name)?.record.spec(revision),
        }
    }

    /// Reads the record in a file.
    pub(crate) fn read_file(&self, owner: &Owner) -> StoredRecord {
        let held = self.histories.get(&owner.name);
        let record = held.map(|held| &held.record);
        StoredRecord {
            status: Ok(record.map(|it| it.status.clone()).unwrap_or_default()),
            version: None,
            paused: Some(Ok(record.is_some_and(|record| record.paused))),
        }
    }

    /// Writes to the record in a file. Returns what the write breaks.
    pub(crate) fn write_file(&mut self, owner: &Owner, record: Record) -> Vec<String> {
        let mut problems = Vec::new();
        if let Record::Status(write) = &record {
            problems = self.check(&owner.name, &write.status);
        }
        let held = self.histories.entry(owner.name.clone()).or_default();
        held.record.write(record);
        problems
    }

    /// Executes a request for the record in a cluster, which was sent at this time.
    pub(crate) fn arrive(
        &mut self,
        time: Time,
        request: &Request,
        sent: Instant,
        now: Instant,
    ) -> RecordArrival {
        let server = self.server.get_or_insert_with(RecordServer::new);
        if request.method == Method::Get {
            return RecordArrival {
                answer: server.answer(time, request),
                status: None,
                problems: Vec::new(),
            };
        }
        let status_of = controller_of_status(request);
        // No write to a status deletes a spec.
        let used = status_of.is_none().then(|| self.used_specs());
        let server = self.server.get_or_insert_with(RecordServer::new);
        let answer = server.answer(time, request);
        let mut arrival = RecordArrival {
            answer,
            status: None,
            problems: Vec::new(),
        };
        if arrival.answer.is_err() {
            return arrival;
        }
        if let Some(name) = status_of {
            let owner = self.owner(name);
            // The answer is the object as it is stored.
            let written = record::status(&owner, arrival.answer.as_deref());
            let status = written.ok().map(|(status, _)| status);
            let Some(status) = status else {
                let what = format!("{name}: the status that was written cannot be read");
                arrival.problems.push(what);
                return arrival;
            };
            arrival.problems = self.check(name, &status);
            let held = self.histories.entry(name.to_owned()).or_default();
            if held.written_at.is_some_and(|written| sent < written) {
                // Its host cannot have known that one when it sent this one.
                let what = format!("{name}: a late status replaces a later one");
                arrival.problems.push(what);
            }
            held.written_at = Some(now);
            held.record.status = status.clone();
            arrival.status = Some(status);
        } else {
            let is_lost =
                |(owner, revision): &&(Owner, String)| self.spec(owner, revision).is_none();
            let used = used.iter().flatten();
            let lost = used.filter(is_lost);
            let lost = lost.map(|(owner, revision)| {
                format!(
                    "{}: the spec of {revision}, which is in use, is deleted",
                    owner.name
                )
            });
            arrival.problems.extend(lost);
        }
        arrival
    }

    /// The recorded specs of the revisions in use.
    fn used_specs(&self) -> Vec<(Owner, String)> {
        let all = self.histories.iter().flat_map(|(name, held)| {
            let owner = self.owner(name);
            let used = in_use(&held.record.status).into_iter();
            used.map(move |revision| (owner.clone(), revision))
        });
        all.filter(|(owner, revision)| self.spec(owner, revision).is_some())
            .collect()
    }

    /// Checks a status that is written now. Returns what it breaks.
    fn check(&mut self, name: &str, status: &ControllerStatus) -> Vec<String> {
        let owner = self.owner(name);
        let mut unrecorded = in_use(status);
        unrecorded.retain(|revision| self.spec(&owner, revision).is_none());
        let unrecorded = unrecorded.into_iter().map(|revision| {
            format!("{name}: the status names {revision}, whose spec is not recorded")
        });
        let mut problems: Vec<String> = unrecorded.collect();
        let held = self.histories.entry(name.to_owned()).or_default();
        problems.extend(held.problems(name, status));
        let decided = Arc::new(ControllerStatus {
            host: None,
            ..status.clone()
        });
        let last = held.written.last();
        if !last.is_some_and(|last| is_same(last, &decided)) {
            held.written.push(decided);
        }
        problems
    }
}

/// The controller whose status a request writes.
fn controller_of_status(request: &Request) -> Option<&str> {
    let name = request.uri.strip_suffix("/status")?;
    name.rsplit('/').next()
}

impl RecordHistory {
    /// What a new status breaks.
    fn problems(&mut self, name: &str, status: &ControllerStatus) -> Vec<String> {
        let before = &self.record.status;
        let mut problems = Vec::new();
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
