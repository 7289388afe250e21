//! Reading the records of controllers that were declared: each continues from its record.

use super::controller::Controller;
use super::{
    Control, ControlEffect, ControlSettings, DeclaredController, Entry, READ_AGAIN, Report,
};
use crate::record::{Owner, RecordId, StoredRecord};
use crate::time::{Instant, Now};

impl<G: Clone> Control<G> {
    pub(super) fn handle_record_read(&mut self, now: Now, id: RecordId, record: StoredRecord) {
        if self.handle_taken_over(now, id, &record) {
            return;
        }
        let is_it =
            |entry: &Entry<G>| matches!(entry, Entry::ReadingRecord(pending) if pending.id == id);
        let mut controllers = self.controllers.iter();
        let Some((name, _)) = controllers.find(|(_, entry)| is_it(entry)) else {
            return;
        };
        let name = name.clone();
        let Some(Entry::ReadingRecord(mut pending)) = self.controllers.remove(&name) else {
            return;
        };
        if let Err(error) = &record.status
            && pending.declared.declaration.status.is_none()
        {
            // What is unknown is not absent: without its record, a controller might run
            // what was rolled back.
            let former = pending.failure.as_ref();
            if former.is_none_or(|(former, _)| former != error) {
                self.report_unread(&name, error);
            }
            pending.failure = Some((error.clone(), now.instant.after(READ_AGAIN)));
            self.controllers.insert(name, Entry::ReadingRecord(pending));
            return;
        }
        if pending.failure.is_some() {
            self.report_recording(&name, None);
        }
        let DeclaredController {
            mut declaration,
            loaded,
        } = pending.declared;
        let was_read = record.status.is_ok();
        let status = record.status.unwrap_or_else(|error| {
            let controller = name.clone();
            self.report(Report::Unreadable { controller, error });
            declaration.status.take().unwrap_or_default()
        });
        if let Some(entry) = self.files.get_mut(&name) {
            match record.paused {
                Some(Ok(paused)) => entry.restore(paused),
                Some(Err(error)) => {
                    entry.restore(true);
                    let controller = name.clone();
                    let report = Report::PauseUnreadable { controller, error };
                    self.outputs.push_back(ControlEffect::Report(report).into());
                }
                None => {}
            }
            declaration = entry.declaration(&name);
        }
        let object = declaration.object.clone();
        let ControlSettings {
            namespace, trust, ..
        } = &self.settings;
        let mut controller = Controller::restore(
            &name,
            object,
            namespace,
            status,
            record.version,
            *trust,
            now,
        );
        if self.leases.is_some() {
            controller.await_lease();
        }
        if !was_read {
            // Another host may have recorded something else since.
            controller.recording.doubt();
        }
        controller.declare(declaration, loaded, now.instant);
        self.controllers
            .insert(name, Entry::Restored(Box::new(controller)));
        self.due = now.instant;
    }

    /// Reports that a record cannot be read.
    pub(super) fn report_unread(&mut self, name: &str, error: &str) {
        self.report(Report::Unread {
            controller: name.to_owned(),
            error: error.to_owned(),
        });
        self.report_recording(name, Some(error.to_owned()));
    }

    /// Reads the records again whose pause is over.
    pub(super) fn read_what_is_due(&mut self, now: Instant) {
        for (name, entry) in &mut self.controllers {
            if let Entry::ReadingRecord(pending) = entry
                && let Some((_, at)) = &mut pending.failure
                && *at <= now
            {
                *at = Instant::FAR_FUTURE;
                self.last_id += 1;
                pending.id = RecordId(self.last_id);
                let object = pending.declared.declaration.object.as_ref();
                let read = ControlEffect::ReadRecord {
                    id: pending.id,
                    owner: Owner::of(name, object),
                };
                self.outputs.push_back(read.into());
            }
        }
    }
}
