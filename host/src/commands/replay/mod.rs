//! `davit replay`: makes the decisions of a journal again, and compares them.

mod ending;
pub(super) mod guests;
mod live;
mod reads;
mod repetition;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use davit_cluster::api::chain;
use davit_core::controller::CallId;
use davit_core::journal::{
    Entry as JournalEntry, RecordedCall, ReplayOutcome, SnapshotReads, compare, decode,
};
use davit_core::machine;
use davit_core::plan::Decision;
use davit_engine::{CallError, Guest};
use davit_journal::{Entry, Error, Part, Query, Reader};

use super::journal::{Follower, open};
use crate::cli::ReplayArguments;
use crate::commands::journal::RefusedJournal;
use guests::Guests;
use live::RecordedReads;
use reads::{GuestReads, snapshot_reads};
use repetition::Repetition;
use report::{FirstDifference, Report, Side};

pub(crate) use repetition::repeat;

/// `davit replay`
pub async fn replay(arguments: ReplayArguments) -> Result<()> {
    let refused = || RefusedJournal("the journal cannot be replayed".to_owned());
    let reader = open(&arguments.journal).with_context(refused)?;
    let guests = Guests::new(&arguments.journal, &arguments.module, &arguments.guests);
    let guests = guests.with_context(refused)?;
    let (from, to) = arguments.span.micros();
    let mut session = Session::new(&reader, guests, arguments.controller);
    for entry in reader.entries(&Query::new(from, to)) {
        session.entry(entry).await.with_context(refused)?;
    }
    session.end()
}

/// A replay under way.
struct Session {
    follower: Follower,
    guests: Guests,
    controller: Option<String>,
    /// None if each call is made once, and compared with the recorded one.
    repetition: Option<Repetition>,
    /// The controllers of the entries that were read.
    controllers: BTreeSet<String>,
    /// The calls that were not made again, by the reason.
    skipped: BTreeMap<String, u64>,
    report: Report,
}

impl Session {
    fn new(reader: &Reader, guests: Guests, controller: Option<String>) -> Self {
        Self {
            follower: Follower::new(reader),
            guests,
            controller,
            repetition: None,
            controllers: BTreeSet::new(),
            skipped: BTreeMap::new(),
            report: Report::default(),
        }
    }

    async fn entry(&mut self, entry: Result<Entry, Error>) -> Result<()> {
        let entry = match entry {
            Ok(entry) => entry,
            Err(Error::Damage(damage)) => {
                self.lose(damage.to_string());
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let record = decode(&entry.payload)?;
        if let JournalEntry::Controller(controller) = &record.entry {
            self.controllers.insert(controller.name.clone());
        }
        let reads = snapshot_reads(&record.entry);
        match self.follower.handle(entry.segment, record) {
            Ok(Some(outcome)) if entry.part == Part::Span => self.outcome(outcome, reads).await?,
            Ok(_) => {}
            Err(error) => self.lose(format!("segment {}: {error}", entry.segment)),
        }
        Ok(())
    }

    /// Entries are missing: the calls up to the next keyframe are not made again.
    fn lose(&mut self, problem: String) {
        self.follower.lose();
        self.report.damaged(problem);
    }

    /// A call is not made again, for this reason.
    fn skip(&mut self, why: &str) {
        *self.skipped.entry(why.to_owned()).or_default() += 1;
        self.report.skip(why.to_owned());
    }

    /// Takes a call that ended, and what its guest read of its queues and notes.
    async fn outcome(&mut self, outcome: ReplayOutcome, reads: SnapshotReads) -> Result<()> {
        match outcome {
            ReplayOutcome::Skip { call, why } => {
                if self.is_wanted(self.controller_of(call)) && self.may_be_repeated(call) {
                    self.skip(&why.to_string());
                }
            }
            ReplayOutcome::Call(call) if self.is_wanted(Some(&call.controller)) => {
                match self.repetition {
                    None => self.repeat(*call, reads).await?,
                    Some(repetition) => self.repeat_often(*call, reads, repetition).await?,
                }
            }
            ReplayOutcome::Call(_) => {}
        }
        Ok(())
    }

    /// Whether the calls of a controller are made again. A call whose controller is not known
    /// may be one of them.
    fn is_wanted(&self, controller: Option<&str>) -> bool {
        let wanted = self.controller.as_deref();
        wanted.is_none_or(|wanted| controller.is_none_or(|one| one == wanted))
    }

    fn controller_of(&self, call: CallId) -> Option<&str> {
        let mut all = self.follower.state().controllers().values();
        let controller = all.find(|one| one.id == Some(call.controller))?;
        Some(&controller.name)
    }

    async fn repeat(&mut self, call: RecordedCall, reads: SnapshotReads) -> Result<()> {
        let Ok(recorded) = call.result.clone() else {
            self.skip("the call failed when it was recorded");
            return Ok(());
        };
        let guest = self.guests.get(&call.controller, &call.revision).await?;
        // Once a module is missing, the others that are missing are looked for.
        let Some(guest) = guest.filter(|_| self.guests.missing().is_none()) else {
            return Ok(());
        };
        let again = decide(&call, &guest).await;
        let (text, difference) = match &again.result {
            Ok(decisions) => (
                report::decisions(decisions),
                compare(&recorded, decisions).map(|difference| difference.to_string()),
            ),
            Err(error) => {
                let failure = format!("the call fails now: {}", chain(error));
                (failure.clone(), Some(failure))
            }
        };
        let controller = Arc::clone(&call.controller);
        match again.mismatch.or(difference) {
            None => self.report.same(&controller),
            Some(difference) => self.report.different(&controller, move || {
                let now = Side {
                    title: "now".to_owned(),
                    decisions: text,
                    reads: again.reads,
                };
                FirstDifference {
                    difference,
                    sides: [Side::recorded(&call, reads), now],
                    call,
                }
            }),
        }
        Ok(())
    }
}

/// A call that was made again.
struct RepeatedCall {
    result: Result<Vec<Decision>, CallError>,
    reads: GuestReads,
    /// The first live read that the recorded call did not make.
    mismatch: Option<String>,
}

async fn decide(recorded: &RecordedCall, guest: &Guest) -> RepeatedCall {
    let live = Arc::new(RecordedReads::new(recorded.live.clone()));
    let reads: Arc<Mutex<SnapshotReads>> = Arc::default();
    let call = machine::Call::again(recorded.clone(), guest);
    let (guest, call) = davit_engine::Call::of(call, Arc::clone(&live) as _);
    let call = davit_engine::Call {
        reads: Some(Arc::clone(&reads)),
        ..call
    };
    let result = guest.reconcile(call).await;
    let mut reads = reads.lock().unwrap_or_else(PoisonError::into_inner);
    RepeatedCall {
        result,
        reads: GuestReads {
            snapshot: std::mem::take(&mut reads),
            live: live.take_made(),
        },
        mismatch: live.mismatch(),
    }
}
