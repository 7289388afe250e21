//! Reads and writes of records.

use std::time::Duration;

use davit_core::api::HostStatus;
use davit_core::record::{Owner, Record, RecordId, StoredRecord};

use super::in_flight::RecordCall;
use super::{Link, Notice, ScheduledEvent, WorldEvent};
use crate::fault::FaultKind;

/// How long the host waits for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
const AWAY: &str = "the API server is away";

impl Link<'_> {
    /// Reads a record. The answer is a [`Notice::RecordRead`].
    pub fn read_record(&mut self, id: RecordId, owner: Owner) {
        self.call_records(id, owner, None);
    }

    /// Writes to a record. The answer is a [`Notice::RecordWritten`].
    pub fn write_record(&mut self, id: RecordId, owner: Owner, record: Record) {
        self.call_records(id, owner, Some(record));
    }

    fn call_records(&mut self, id: RecordId, owner: Owner, record: Option<Record>) {
        let number = self.shared.fresh_id();
        let deadline = self.work_ends(&owner.name);
        let mut call = RecordCall {
            incarnation: self.client.incarnation,
            deadline,
            id,
            owner,
            record,
            answer: None,
        };
        let latency = self.record_latency();
        if call.record.is_some() && !self.is_in_term(&call.owner.name) {
            call.record = None;
            call.answer = Some(call.unwritten("this replica does not lead the controller"));
        }
        self.client.record_calls.insert(number, call);
        self.schedule(latency, ScheduledEvent::RecordCall(number));
    }

    /// How long a call takes to reach the records, or its answer the host.
    fn record_latency(&mut self) -> Duration {
        if self.shared.dice.chance(self.shared.conditions.late_records) {
            self.shared.count(FaultKind::LateRecord);
            self.shared.dice.duration(&self.shared.conditions.lateness)
        } else {
            self.shared.latency()
        }
    }

    /// A call reaches the records, or its answer the host.
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
        let is_cut = self.client.cut.requests;
        let (answer, after) = match call.record.take() {
            None => (self.read_stored(&call), latency),
            Some(_) if is_cut => (call.unwritten(AWAY), PATIENCE),
            Some(record) => {
                let (answer, is_lost) = self.write_stored(&call, record);
                (answer, if is_lost { PATIENCE } else { latency })
            }
        };
        let at = self.shared.instant.after(after);
        if matches!(answer, Notice::RecordWritten { .. }) && at > call.deadline {
            call.answer = Some(call.unwritten("the term has ended"));
            let at = call.deadline.max(self.shared.instant);
            self.schedule_at(at, ScheduledEvent::RecordCall(number));
        } else {
            call.answer = Some(answer);
            self.schedule(after, ScheduledEvent::RecordCall(number));
        }
        self.client.record_calls.insert(number, call);
    }

    fn read_stored(&mut self, call: &RecordCall) -> Notice {
        let reader = self.client.identity.as_deref();
        let mut stored = self.shared.records.read(&call.owner, reader);
        let is_cut = self.client.cut.is_any();
        if is_cut
            || self
                .shared
                .dice
                .chance(self.shared.conditions.unreadable_records)
        {
            self.shared.count(FaultKind::RecordReadFailure);
            self.note(format_args!(
                "{}: read of the record fails",
                call.owner.name
            ));
            stored = StoredRecord::new(Err(AWAY.to_owned()), stored.paused.is_some());
        }
        Notice::RecordRead {
            id: call.id,
            controller: call.owner.name.clone(),
            record: Box::new(stored),
        }
    }

    fn write_stored(&mut self, call: &RecordCall, record: Record) -> (Notice, bool) {
        let controller = call.owner.name.clone();
        let is_status = matches!(record, Record::Status(_));
        let fails = self.shared.dice.chance(self.shared.conditions.no_records);
        let is_lost = !fails && self.shared.dice.chance(self.shared.conditions.lost_records);
        let is_lost = is_lost || self.client.cut.answers;
        let mut result = Err(AWAY.to_owned());
        if fails {
            self.shared.count(FaultKind::RecordWriteFailure);
            self.note(format_args!("{controller}: write of the record fails"));
        } else {
            let written = self.write(&call.owner, record);
            if is_lost {
                self.shared.count(FaultKind::LostRecordAnswer);
            } else {
                result = written;
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

    /// Writes to a record. Returns another host that wrote since this one did.
    fn write(&mut self, owner: &Owner, record: Record) -> Result<Option<HostStatus>, String> {
        let summary = Summary(&record).to_string();
        let is_status = matches!(record, Record::Status(_));
        let written = self
            .shared
            .records
            .write(owner, record)
            .inspect_err(|error| {
                let note = format_args!("{}: record not written: {error}", owner.name);
                self.shared.trace.note(self.shared.instant, note);
            })?;
        self.note(format_args!("{}: record written: {summary}", owner.name));
        for problem in written.problems {
            self.shared.violated(problem);
        }
        if is_status {
            self.announce_status();
        }
        Ok(written.other_host)
    }

    /// The hosts will receive a changed status with the declarations.
    fn announce_status(&mut self) {
        for reminder in self.shared.status_reminders.clone() {
            let lag = self.shared.dice.duration(&self.shared.conditions.lag);
            let at = self.shared.instant.after(lag);
            self.shared.schedule(at, WorldEvent::Remind(reminder));
        }
    }

    /// The host crashed: each of its writes to records succeeds or not, and nobody reads the
    /// answers.
    pub(super) fn end_record_calls(&mut self) {
        for (_, mut call) in std::mem::take(&mut self.client.record_calls) {
            if let Some(record) = call.record.take()
                && self.shared.dice.chance(0.5)
            {
                // Nobody reads the answer.
                let _ = self.write(&call.owner, record);
            }
        }
    }
}

/// A write in one line.
struct Summary<'a>(&'a Record);

impl std::fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Record::Revision(activation) => write!(f, "the spec of {}", activation.revision),
            Record::Paused(paused) => write!(f, "paused: {paused}"),
            Record::Status(status) => {
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
    }
}
