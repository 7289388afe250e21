//! Reads and writes of records: in a cluster request by request, in a file at once.

use std::fmt;
use std::time::Duration;

use davit_core::api::ControllerStatus;
use davit_core::record::{Owner, Record, RecordFailure, RecordId, RecordReceipt, StoredRecord};
use davit_core::request::call::Sender;
use davit_core::request::record::{self, RecordAction, RecordUpdate};
use davit_core::request::{Method, Request, RequestError};
use davit_core::time::Instant;

use super::calls::silence;
use super::in_flight::{Call, CallId, Caller, RecordCall, RecordWork, RecordWorkId};
use super::{Link, Notice, ScheduledEvent, WorldEvent};
use crate::fault::FaultKind;
use crate::namespace::NAMESPACE;
use crate::server::{Answer, refused, reset};

/// How long the host waits for a read or a write of a record.
const PATIENCE: Duration = Duration::from_secs(10);
const AWAY: &str = "the API server is away";

impl Link<'_> {
    /// Reads a record. The answer is a [`Notice::RecordRead`].
    pub fn read_record(&mut self, id: RecordId, owner: Owner) {
        if self.shared.records.are_shared {
            let request = record::read_status(&owner);
            let work = self.add_record_work(id, owner, None);
            self.send_for_record(work, request);
        } else {
            self.call_records(id, owner, None);
        }
    }

    /// Writes to a record. The answer is a [`Notice::RecordWritten`].
    pub fn write_record(&mut self, id: RecordId, owner: Owner, record: Record) {
        if self.shared.records.are_shared {
            let (update, next) = RecordUpdate::start(NAMESPACE, &owner, record);
            let work = self.add_record_work(id, owner, Some(update));
            self.proceed_with_record(work, next);
        } else {
            self.call_records(id, owner, Some(record));
        }
    }

    /// A request for a record was answered, or not.
    pub(crate) fn record_answered(
        &mut self,
        id: RecordWorkId,
        answer: Result<&[u8], &RequestError>,
    ) {
        let Some(mut work) = self.client.record_work.remove(&id) else {
            return;
        };
        if let Some(update) = &mut work.update {
            let next = update.handle(answer);
            self.client.record_work.insert(id, work);
            self.proceed_with_record(id, next);
            return;
        }
        let read = record::status(&work.owner, answer);
        let (status, version) = match read {
            Ok((status, version)) => (Ok(status), Some(version)),
            Err(error) => (Err(error), None),
        };
        self.client.notices.push_back(Notice::RecordRead {
            id: work.id,
            controller: work.owner.name,
            record: Box::new(StoredRecord {
                status,
                version,
                paused: None,
            }),
            written: work.written.unwrap_or_default(),
        });
    }

    fn add_record_work(
        &mut self,
        id: RecordId,
        owner: Owner,
        update: Option<RecordUpdate>,
    ) -> RecordWorkId {
        let number = RecordWorkId(self.shared.fresh_id());
        let work = RecordWork {
            id,
            owner,
            update,
            ends: self.shared.instant.after(PATIENCE),
            written: None,
        };
        self.client.record_work.insert(number, work);
        number
    }

    fn proceed_with_record(&mut self, id: RecordWorkId, next: RecordAction) {
        let Some(work) = self.client.record_work.get(&id) else {
            return;
        };
        match next {
            RecordAction::Send(request) if self.is_in_term(&work.owner.name) => {
                self.send_for_record(id, request);
            }
            RecordAction::Send(_) => {
                self.record_answered(id, Err(&RequestError::term_over(true)));
            }
            RecordAction::Done(result) => {
                let notice = Notice::RecordWritten {
                    id: work.id,
                    controller: work.owner.name.clone(),
                    result,
                    written: work.written,
                };
                self.client.record_work.remove(&id);
                self.client.notices.push_back(notice);
            }
        }
    }

    fn send_for_record(&mut self, id: RecordWorkId, request: Request) {
        let Some(work) = self.client.record_work.get(&id) else {
            return;
        };
        let sender = Sender::new(&work.owner.name, None);
        self.send(Call::new(Caller::Record(id), &sender, request));
    }

    /// Until when the host waits for the answer to a request that is sent now.
    pub(super) fn record_deadline(&self, id: RecordWorkId) -> Instant {
        let Some(work) = self.client.record_work.get(&id) else {
            return self.shared.instant;
        };
        if work.update.is_none() {
            return work.ends;
        }
        work.ends.min(self.work_ends(&work.owner.name))
    }

    /// A request for a record reaches the server while the host waits for the answer.
    pub(super) fn record_arrives(&mut self, id: CallId, work: RecordWorkId) {
        let Some(exchange) = self.client.exchanges.get(&id) else {
            return;
        };
        let (request, sent) = (exchange.call.request.clone(), exchange.sent);
        let answer = self.execute_record(Some(work), &request, sent);
        let back = self.shared.instant.after(self.record_latency());
        let now = self.shared.instant;
        let Some(exchange) = self.client.exchanges.get_mut(&id) else {
            return;
        };
        let at = match answer {
            Some(answer) if back <= exchange.deadline => {
                exchange.answer = Some(Answer::Body(answer));
                back
            }
            _ => {
                exchange.end(silence());
                exchange.deadline.max(now)
            }
        };
        self.schedule_at(at, ScheduledEvent::Answer(id));
    }

    /// A request for a record reaches the server. Returns the answer, unless it is lost.
    pub(super) fn execute_record(
        &mut self,
        work: Option<RecordWorkId>,
        request: &Request,
        sent: Instant,
    ) -> Option<Result<Vec<u8>, RequestError>> {
        let is_read = request.method == Method::Get;
        let conditions = &self.shared.conditions;
        let (fails, fault) = if is_read {
            (conditions.unreadable_records, FaultKind::RecordReadFailure)
        } else {
            (conditions.no_records, FaultKind::RecordWriteFailure)
        };
        if self.shared.dice.chance(fails) {
            self.shared.count(fault);
            self.note(format_args!("{request} fails"));
            return Some(Err(self.some_refusal()));
        }
        let (time, now) = (self.shared.time(), self.shared.instant);
        let arrival = self.shared.records.arrive(time, request, sent, now);
        let code = match &arrival.answer {
            Ok(_) => 200,
            Err(error) => error.code().unwrap_or(0),
        };
        self.note(format_args!("{request} {code}"));
        for problem in arrival.problems {
            self.shared.violated(problem);
        }
        if let Some(status) = &arrival.status {
            self.note(format_args!("status: {}", Summary(status)));
            self.announce_status();
        }
        let work = work.and_then(|work| self.client.record_work.get_mut(&work));
        if let Some(work) = work
            && (arrival.status.is_some() || work.update.is_none())
        {
            let written = self.shared.records.written(&work.owner.name).len();
            work.written = Some(written);
        }
        if !is_read && self.shared.dice.chance(self.shared.conditions.lost_records) {
            self.shared.count(FaultKind::LostRecordAnswer);
            return None;
        }
        Some(arrival.answer)
    }

    /// The server refuses a request for a record, or the connection breaks.
    fn some_refusal(&mut self) -> RequestError {
        match self.shared.dice.below(3) {
            0 => refused(409, "Conflict", "somebody else has changed it"),
            1 => refused(500, "InternalError", AWAY),
            _ => reset(AWAY),
        }
    }

    /// How long a request for a record takes to the server, or its answer to the host.
    pub(super) fn record_latency(&mut self) -> Duration {
        if self.shared.dice.chance(self.shared.conditions.late_records) {
            self.shared.count(FaultKind::LateRecord);
            self.shared.dice.duration(&self.shared.conditions.lateness)
        } else {
            self.shared.latency()
        }
    }

    /// The hosts will receive a changed status with the declarations.
    fn announce_status(&mut self) {
        for reminder in self.shared.status_reminders.clone() {
            let lag = self.shared.dice.duration(&self.shared.conditions.lag);
            let at = self.shared.instant.after(lag);
            self.shared.schedule(at, WorldEvent::Remind(reminder));
        }
    }
}

/// The records in files.
impl Link<'_> {
    fn call_records(&mut self, id: RecordId, owner: Owner, record: Option<Record>) {
        let number = self.shared.fresh_id();
        let call = RecordCall {
            incarnation: self.client.incarnation,
            id,
            owner,
            record,
            answer: None,
        };
        let latency = self.record_latency();
        self.client.record_calls.insert(number, call);
        self.schedule(latency, ScheduledEvent::RecordCall(number));
    }

    /// A call reaches the files, or its answer the host.
    pub(super) fn record_due(&mut self, number: u64) {
        let Some(mut call) = self.client.record_calls.remove(&number) else {
            return;
        };
        if let Some(answer) = call.answer {
            if call.incarnation == self.client.incarnation {
                self.client.notices.push_back(answer);
            }
            return;
        }
        let latency = self.record_latency();
        let (answer, after) = match call.record.take() {
            None => (self.read_file(&call), latency),
            Some(record) => {
                let (answer, is_lost) = self.write_file(&call, record);
                (answer, if is_lost { PATIENCE } else { latency })
            }
        };
        call.answer = Some(answer);
        self.schedule(after, ScheduledEvent::RecordCall(number));
        self.client.record_calls.insert(number, call);
    }

    fn read_file(&mut self, call: &RecordCall) -> Notice {
        let controller = call.owner.name.clone();
        let mut stored = self.shared.records.read_file(&call.owner);
        let fails = self.shared.conditions.unreadable_records;
        if self.shared.dice.chance(fails) {
            self.shared.count(FaultKind::RecordReadFailure);
            self.note(format_args!("{controller}: read of the record fails"));
            stored = StoredRecord::new(Err(AWAY.to_owned()), true);
        }
        Notice::RecordRead {
            id: call.id,
            written: self.shared.records.written(&controller).len(),
            controller,
            record: Box::new(stored),
        }
    }

    fn write_file(&mut self, call: &RecordCall, record: Record) -> (Notice, bool) {
        let controller = call.owner.name.clone();
        let is_status = matches!(record, Record::Status(_));
        let fails = self.shared.dice.chance(self.shared.conditions.no_records);
        let is_lost = !fails && self.shared.dice.chance(self.shared.conditions.lost_records);
        let mut result = Err(RecordFailure::Failed(AWAY.to_owned()));
        if fails {
            self.shared.count(FaultKind::RecordWriteFailure);
            self.note(format_args!("{controller}: write of the record fails"));
        } else {
            self.write(&call.owner, record);
            if is_lost {
                self.shared.count(FaultKind::LostRecordAnswer);
            } else {
                result = Ok(RecordReceipt::default());
            }
        }
        let written = is_status.then(|| self.shared.records.written(&controller).len());
        let notice = Notice::RecordWritten {
            id: call.id,
            controller,
            result,
            written,
        };
        (notice, is_lost)
    }

    fn write(&mut self, owner: &Owner, record: Record) {
        let name = &owner.name;
        match &record {
            Record::Revision(activation) => {
                self.note(format_args!("{name}: the spec of {}", activation.revision));
            }
            Record::Paused(paused) => self.note(format_args!("{name}: paused: {paused}")),
            Record::Status(write) => {
                self.note(format_args!("{name}: status: {}", Summary(&write.status)));
            }
        }
        for problem in self.shared.records.write_file(owner, record) {
            self.shared.violated(problem);
        }
    }

    /// The host crashed: each of its writes to files succeeds or not, and nobody reads the
    /// answers.
    pub(super) fn end_record_calls(&mut self) {
        for (_, mut call) in std::mem::take(&mut self.client.record_calls) {
            if let Some(record) = call.record.take()
                && self.shared.dice.chance(0.5)
            {
                self.write(&call.owner, record);
            }
        }
    }
}

/// A status in one line.
struct Summary<'a>(&'a ControllerStatus);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(status) = self;
        let stable = status.stable.as_ref().map_or("-", |one| &one.revision);
        write!(f, "{stable} stable")?;
        if let Some(one) = &status.candidate {
            write!(
                f,
                ", {} at {} in step {}",
                one.revision, one.weight, one.step
            )?;
        }
        if let Some(one) = &status.rejected {
            write!(f, ", {} rejected: {}", one.revision, one.reason)?;
        }
        for one in &status.tripped {
            write!(f, ", {} tripped since {}", one.guardrail, one.since)?;
        }
        for one in &status.requests {
            write!(f, ", {} {} {:?}", one.request, one.value, one.result)?;
        }
        write!(f, ": {}", status.summary)
    }
}
