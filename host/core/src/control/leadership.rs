//! Which controllers this replica decides about.
//!
//! The replica that holds the lease of a controller decides and records. Any other follows:
//! it loads what the record names and runs that in the dark. Before a follower decides, it
//! reads the record, because what it last saw of the status may be older.

use std::collections::BTreeSet;

use super::controller::Controller;
use super::exchange::HostIdentity;
use super::part::Part;
use super::{Control, ControlEffect, Entry, READ_AGAIN, known};
use crate::api::ControllerStatus;
use crate::election::ControllerHistory;
use crate::mutant::Mutant;
use crate::record::{Owner, Record, RecordId, StoredRecord};
use crate::time::{Instant, Now};

impl<G: Clone> Control<G> {
    /// This replica holds the leases of these controllers and of no others. Those that it is
    /// `passing` on it holds until no request is under way, so that the next leader reads what
    /// this one has counted.
    pub(crate) fn lead(&mut self, now: Now, leases: BTreeSet<String>, passing: &BTreeSet<&str>) {
        if self.leases.as_ref() == Some(&leases) {
            return;
        }
        let mut lost = Vec::new();
        for (name, controller) in known(&mut self.controllers) {
            if leases.contains(name) {
                continue;
            }
            let host = self.settings.host.as_ref();
            let is_passing = passing.contains(name.as_str());
            let last = is_passing.then(|| controller.last_record(now, host));
            if controller.follow(now) {
                lost.push((name.clone(), last.flatten()));
            }
        }
        for (name, last) in lost {
            // What keeps it from recording does not matter here any more.
            self.report_recording(&name, None);
            if let Some(record) = last {
                let id = RecordId(self.next_id());
                self.write(&name, id, record);
            }
        }
        self.leases = Some(leases);
        self.due = now.instant;
    }

    /// Where a controller has run, as far as this replica knows.
    pub(crate) fn history(&self, controller: &str) -> ControllerHistory {
        let Some(known) = self.controllers.get(controller).and_then(Entry::known) else {
            return ControllerHistory::Unknown;
        };
        // It does not decide before it has read the record.
        if matches!(known.part, Part::Elected { .. }) {
            return ControllerHistory::Unknown;
        }
        let ControllerStatus {
            stable, candidate, ..
        } = known.status();
        if stable.is_none() && candidate.is_none() {
            ControllerHistory::New
        } else {
            ControllerHistory::HasRun
        }
    }

    /// Whether a write to the record of a controller is under way, or a decision of this
    /// replica waits for one: another leader would not know it.
    pub(crate) fn is_recording(&self, controller: &str) -> bool {
        let known = self.controllers.get(controller).and_then(Entry::known);
        self.open_writes.values().any(|one| one == controller)
            || known.is_some_and(|known| known.leads() && !known.is_recorded())
    }

    /// A controller, of those that count, that this replica follows and could not run yet,
    /// because its modules are still being loaded for the first time.
    pub(crate) fn unprepared(&self, counts: impl Fn(&str) -> bool) -> Option<&str> {
        let unprepared = self.controllers.iter().find(|(name, entry)| {
            let known = entry.known();
            known.is_some_and(|one| !one.leads() && !one.loading.was_complete) && counts(name)
        });
        unprepared.map(|(name, _)| name.as_str())
    }

    /// Whether the data half has the revision of a controller that is recorded as stable.
    pub(crate) fn has_applied_stable(&self, controller: &str) -> bool {
        let known = self.controllers.get(controller).and_then(Entry::known);
        known.is_some_and(Controller::has_applied_stable)
    }

    /// The names of all declared controllers.
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.controllers.keys()
    }

    /// Reads the records of the controllers whose leases this replica holds by now, or
    /// whose record could not be read.
    pub(super) fn take_over(&mut self, now: Instant) {
        let Some(leases) = &self.leases else {
            return;
        };
        for (name, controller) in known(&mut self.controllers) {
            // A write of its own may still change the record.
            if self.open_writes.values().any(|one| one == name) {
                continue;
            }
            let reads = match controller.part {
                Part::Leader => false,
                Part::Follower => leases.contains(name),
                Part::Elected { retry_at, .. } => retry_at.is_some_and(|at| at <= now),
            };
            if reads && Mutant::SkipRecord.is_active() {
                controller.part = Part::Leader;
            } else if reads {
                self.last_id += 1;
                let id = RecordId(self.last_id);
                controller.part = Part::Elected {
                    read: id,
                    retry_at: None,
                };
                let owner = Owner::of(name, controller.object.as_ref());
                let read = ControlEffect::ReadRecord { id, owner };
                self.outputs.push_back(read.into());
            }
        }
    }

    /// Handles the record of a controller whose lease this replica has got. Returns whether
    /// the read was for that.
    pub(super) fn handle_taken_over(
        &mut self,
        now: Now,
        id: RecordId,
        record: &StoredRecord,
    ) -> bool {
        let is_it =
            |one: &Controller<G>| matches!(one.part, Part::Elected { read, .. } if read == id);
        let Some((name, controller)) =
            known(&mut self.controllers).find(|(_, controller)| is_it(controller))
        else {
            return false;
        };
        let name = name.clone();
        match &record.status {
            // The spec that the record is about is not known here yet.
            Ok(status) if status.observed_generation > controller.generation() => {
                controller.part = Part::Elected {
                    read: id,
                    retry_at: Some(now.instant.after(READ_AGAIN)),
                };
            }
            Ok(status) => {
                controller.take_over(status.clone(), record.version.clone(), now);
                self.due = now.instant;
                self.report_recording(&name, None);
            }
            Err(error) => {
                controller.part = Part::Elected {
                    read: id,
                    retry_at: Some(now.instant.after(READ_AGAIN)),
                };
                self.report_unread(&name, error);
            }
        }
        true
    }
}

impl<G: Clone> Controller<G> {
    /// Whether this replica decides about the controller.
    pub(super) fn leads(&self) -> bool {
        self.part == Part::Leader
    }

    /// Whether the record holds what this replica has decided, but for counts and times.
    fn is_recorded(&self) -> bool {
        let recorded = self.recording.status();
        let decision = self.recording.decision();
        decision.is_some_and(|decision| decision.is_of(self.status()))
            && recorded.tripped == self.status().tripped
            && recorded.requests == self.status().requests
    }

    /// The last write before another replica leads: the counts, if the record lacks nothing else.
    fn last_record(&self, now: Now, host: Option<&HostIdentity>) -> Option<Record> {
        let leads = self.leads();
        leads.then(|| self.counts_record(now, host)).flatten()
    }

    /// Another replica decides from now on, about what is recorded. Returns whether this
    /// one did until now, or was about to.
    fn follow(&mut self, now: Now) -> bool {
        if self.part == Part::Follower {
            return false;
        }
        self.part = Part::Follower;
        if let Some(applied) = &mut self.applied {
            applied.leads = false;
        }
        let recorded = self.recording.status().clone();
        self.continue_from(recorded, None, now);
        true
    }

    /// Another replica has written the record although this one holds the lease: it reads the
    /// record before it decides again. `write` is the write that failed.
    pub(super) fn read_again(&mut self, now: Now, write: RecordId) {
        self.follow(now);
        self.part = Part::Elected {
            read: write,
            retry_at: Some(now.instant),
        };
    }
}
