//! What the machine gives to a journal, if there is one.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Machine;
use super::compared::ComparedController;
use super::exchange::Call;
use super::hosted::HostedController;
use super::report::Report;
use crate::api::ControllerSpec;
use crate::circuit::CallFailure;
use crate::controller::{CallId, Controller, Revision};
use crate::journal::{
    AnswerCopy, CallEntry, CandidateEntry, ControllerEntry, Entry, ExecutionEntry, JournalItem,
    RecordedCall, Recorder, RevisionEntry, RulingEntry, StreamEntry,
};
use crate::plan::Decision;
use crate::time::Now;

impl<G: Clone> Machine<G> {
    /// Starts the journal, with a keyframe. [`Self::take_journal`] takes it.
    pub fn start_journal(&mut self, now: Now) {
        if self.outbox.journal.is_none() {
            self.outbox.journal = Some(Box::new(Recorder::default()));
            self.store.start_log();
            self.set_journal_time(now);
            self.note_controllers();
            self.note_keyframe(true);
        }
    }

    /// Adds a keyframe to the journal: reading may start there. Does nothing without a
    /// journal.
    pub fn add_keyframe(&mut self, now: Now) {
        self.set_journal_time(now);
        // A reader that knows the entries before it reads no keyframe.
        self.store.release_renewals();
        self.note_changes();
        self.note_keyframe(false);
    }

    /// Takes the journal's entries since they were last taken. Call it after
    /// [`Self::poll`] has returned none.
    pub fn take_journal(&mut self) -> Vec<JournalItem> {
        let journal = self.outbox.journal.as_mut();
        journal.map(|journal| journal.take()).unwrap_or_default()
    }

    /// Whether there is a journal.
    pub(crate) const fn has_journal(&self) -> bool {
        self.outbox.journal.is_some()
    }

    /// The specs as they are now.
    pub(crate) fn note_specs(&mut self, now: Now, specs: BTreeMap<String, ControllerSpec>) {
        self.set_journal_time(now);
        if let Some(journal) = &mut self.outbox.journal {
            journal.note_specs(specs);
        }
    }

    pub(super) fn set_journal_time(&mut self, now: Now) {
        if let Some(journal) = &mut self.outbox.journal {
            journal.set_time(now);
        }
    }

    /// Adds what changed in the cache. It comes before everything that is decided from it.
    pub(super) fn note_changes(&mut self) {
        if let Some(journal) = &mut self.outbox.journal {
            let released = self.store.take_released();
            journal.note_changes(self.store.take_log(), released);
        }
    }

    /// Adds what changed about the controllers.
    pub(super) fn note_controllers(&mut self) {
        if let Some(journal) = &mut self.outbox.journal {
            let present = self.controllers.iter();
            let present = present.map(|(name, hosted)| controller_entry(name, hosted));
            journal.note_controllers(present.collect());
        }
    }

    /// Adds a call, after what of the cache is held for it. `reads_held` says whether it reads
    /// that.
    pub(super) fn note_call(&mut self, call: &mut Call<G>, reads_held: bool) {
        let Some(journal) = &mut self.outbox.journal else {
            return;
        };
        let hosted = self.controllers.get(&*call.controller);
        let compared = hosted.and_then(|hosted| hosted.compared.as_ref());
        let held = compared.filter(|_| reads_held).into_iter();
        let held = held.flat_map(ComparedController::held);
        journal.note_held(&call.controller, held, |it| self.store.recorded(it));
        call.is_recorded = true;
        journal.note_unlisted(&call.unlisted);
        let entry = CallEntry {
            id: call.id,
            controller: call.controller.clone(),
            revision: call.revision.clone(),
            role: call.role,
            items: call.items.clone(),
            reasons: call.reasons.clone(),
            continues: call.continues,
        };
        journal.note_call(entry, &call.snapshot);
    }

    /// Adds the end of a call.
    pub(super) fn note_answer(
        &mut self,
        call: CallId,
        result: &Result<Vec<Decision>, CallFailure>,
        copy: Option<Box<AnswerCopy>>,
        took: Duration,
    ) {
        let Some(journal) = &mut self.outbox.journal else {
            return;
        };
        let mut running = self
            .controllers
            .values()
            .filter_map(|one| one.controller.as_ref());
        let is_void = !running.any(|controller| controller.caller(call).is_some());
        journal.note_answer(call, is_void, result, copy, took);
    }

    fn note_keyframe(&mut self, is_start: bool) {
        let mapping = self.mapping.clone();
        if let Some(journal) = &mut self.outbox.journal {
            journal.note_keyframe(self.store.keyframe(), mapping, is_start);
        }
    }
}

impl<G> Call<G> {
    /// A call of a journal, into a guest that is loaded again.
    #[must_use]
    pub fn again(recorded: RecordedCall, guest: G) -> Self {
        Self {
            id: recorded.id,
            controller: recorded.controller,
            revision: recorded.revision.name,
            role: recorded.role,
            guest,
            now: recorded.now,
            items: recorded.items,
            reasons: recorded.reasons,
            continues: recorded.continues,
            snapshot: recorded.snapshot,
            views: recorded.revision.views,
            pending: recorded.pending,
            notes: recorded.notes,
            grant: recorded.grant,
            mapping: recorded.mapping,
            unlisted: recorded.unlisted,
            log_bytes: usize::MAX,
            is_recorded: false,
        }
    }
}

fn controller_entry<G: Clone>(name: &str, hosted: &HostedController<G>) -> ControllerEntry {
    let controller = hosted.controller.as_ref();
    let candidate = controller.and_then(|controller| {
        Some(CandidateEntry {
            revision: revision_entry(controller.candidate()?),
            weight: controller.weight()?.into(),
            step: controller.step()?,
        })
    });
    ControllerEntry {
        name: name.to_owned(),
        id: controller.map(Controller::id),
        leads: hosted.leads,
        mode: hosted.settings.mode,
        account: hosted.account.clone(),
        grant: hosted.settings.grant.clone(),
        stable: controller.map(|controller| revision_entry(controller.stable())),
        candidate,
    }
}

fn revision_entry<G: Clone>(revision: &Revision<G>) -> RevisionEntry {
    let identity = revision.identity();
    RevisionEntry {
        name: revision.name().clone(),
        module: identity.digest(),
        config: identity.config().clone(),
        limits: identity.limits(),
        views: revision.views_by_name().clone(),
    }
}

/// The entry of a report; none if the journal does not have its kind.
pub(super) fn entry_of(report: &Report) -> Option<Entry> {
    Some(match report {
        Report::Called {
            call,
            failure: Some(failure),
            ..
        } => Entry::Failure {
            call: *call,
            failure: Box::new(failure.clone()),
        },
        Report::Ruled {
            controller,
            role,
            revision,
            item,
            decision,
            plan,
            ruling,
            ..
        } => Entry::Ruling(Box::new(RulingEntry {
            controller: controller.clone(),
            revision: revision.clone(),
            role: *role,
            item: item.clone(),
            decision: *decision,
            target: plan.target.clone(),
            reason: plan.reason.clone(),
            ruling: ruling.clone(),
        })),
        Report::Executed {
            controller,
            revision,
            decision,
            plan,
            outcome,
            took,
            ..
        } => Entry::Execution(Box::new(ExecutionEntry {
            controller: controller.clone(),
            revision: revision.clone(),
            decision: *decision,
            target: plan.target.clone(),
            reason: plan.reason.clone(),
            outcome: outcome.clone(),
            took: *took,
        })),
        Report::Stream {
            resource,
            condition,
            is_current,
            ..
        } => Entry::Stream(Box::new(StreamEntry {
            resource: resource.clone(),
            condition: condition.clone(),
            is_current: *is_current,
        })),
        _ => return None,
    })
}
