//! `davit replay`: makes the decisions of a journal again, and compares them.

pub(super) mod guests;
mod live;
mod repetition;
mod report;

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, bail};
use davit_cluster::api::chain;
use davit_core::controller::CallId;
use davit_core::journal::{RecordedCall, ReplayOutcome, SnapshotReads, compare, decode};
use davit_core::machine;
use davit_core::plan::Decision;
use davit_engine::{CallError, Guest};
use davit_journal::{Entry, Error, Part, Query, Reader};

use super::journal::{Follower, open};
use super::print;
use crate::cli::ReplayArguments;
use guests::Guests;
use live::RecordedReads;
use repetition::Repetition;
use report::{FirstDifference, Report};

pub(crate) use repetition::repeat;

/// Why a replay was not made, or not of everything. The program exits with another code than
/// after a difference.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct RefusedReplay(pub(super) String);

/// `davit replay`
pub async fn replay(arguments: ReplayArguments) -> Result<()> {
    let refused = || RefusedReplay("the journal cannot be replayed".to_owned());
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
    report: Report,
}

impl Session {
    fn new(reader: &Reader, guests: Guests, controller: Option<String>) -> Self {
        Self {
            follower: Follower::new(reader),
            guests,
            controller,
            repetition: None,
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
        match self.follower.handle(entry.segment, record) {
            Ok(Some(outcome)) if entry.part == Part::Span => self.outcome(outcome).await?,
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

    async fn outcome(&mut self, outcome: ReplayOutcome) -> Result<()> {
        match outcome {
            ReplayOutcome::Skip { call, why } => {
                if self.is_wanted(self.controller_of(call)) && self.may_be_repeated(call) {
                    self.report.skip(why.to_string());
                }
            }
            ReplayOutcome::Call(call) if self.is_wanted(Some(&call.controller)) => {
                match self.repetition {
                    None => self.repeat(*call).await?,
                    Some(repetition) => self.repeat_often(*call, repetition).await?,
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

    async fn repeat(&mut self, call: RecordedCall) -> Result<()> {
        let Ok(recorded) = call.result.clone() else {
            self.report
                .skip("the call failed when it was recorded".to_owned());
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
            Some(difference) => self.report.different(&controller, move || FirstDifference {
                difference,
                titles: ["recorded", "now"].map(str::to_owned),
                recorded: report::decisions(&recorded),
                replayed: text,
                saw: report::recorded_reads(&call),
                sees: report::reads(&again.reads),
                call,
            }),
        }
        Ok(())
    }

    /// Prints what was found.
    fn end(self) -> Result<()> {
        if let Some(missing) = self.guests.missing() {
            bail!(RefusedReplay(missing));
        }
        print::out(&self.report.text())?;
        let different = self.report.difference_count();
        if different > 0 {
            bail!("{different} calls have another decision than the recorded one");
        }
        if let Some(problem) = self.report.problem() {
            bail!(RefusedReplay(format!(
                "a part of the journal cannot be replayed: {problem}"
            )));
        }
        Ok(())
    }
}

/// A call that was made again.
struct RepeatedCall {
    result: Result<Vec<Decision>, CallError>,
    reads: SnapshotReads,
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
        reads: std::mem::take(&mut reads),
        mismatch: live.mismatch(),
    }
}
