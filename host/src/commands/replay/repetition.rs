//! `davit inspect --determinism`: makes the recorded calls of a module several times, and
//! compares the answers with each other.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use davit_cluster::api::chain;
use davit_core::controller::CallId;
use davit_core::digest::ModuleDigest;
use davit_core::journal::{ControllerEntry, RecordedCall, SnapshotReads, difference};
use davit_core::rollout::Role;
use davit_journal::Query;

use super::guests::Guests;
use super::report::{self, FirstDifference, Side};
use super::{RepeatedCall, Session, decide};
use crate::cli::{EngineArguments, GuestArguments};
use crate::commands::journal::RefusedJournal;
use crate::commands::journal::open;
use crate::commands::print;

/// How the calls of a module are repeated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repetition {
    module: ModuleDigest,
    /// At least 2.
    runs: u32,
}

/// Makes each recorded call of a module so many times. Fails if two answers to a call differ,
/// or if the journal has no call of the module.
pub(crate) async fn repeat(
    module: &Path,
    journal: &Path,
    runs: u32,
    engine: EngineArguments,
) -> Result<()> {
    let refused = || RefusedJournal("the calls cannot be repeated".to_owned());
    let reader = open(journal).with_context(refused)?;
    let sources = GuestArguments {
        directory: None,
        cache: None,
        engine,
    };
    let guests = Guests::new(journal, &[module.to_owned()], &sources).with_context(refused)?;
    let digest = guests.named().next();
    let mut session = Session::new(&reader, guests, None);
    session.repetition = digest.map(|module| Repetition { module, runs });
    let mut modules = BTreeSet::new();
    for entry in reader.entries(&Query::new(i64::MIN, i64::MAX)) {
        session.entry(entry).await.with_context(refused)?;
        modules.extend(session.modules());
    }
    session.end_repetition(&modules)
}

impl Session {
    /// Whether a call may be one of the module whose calls are repeated.
    pub(super) fn may_be_repeated(&self, call: CallId) -> bool {
        let Some(repetition) = self.repetition else {
            return true;
        };
        let mut all = self.follower.state().controllers().values();
        let controller = all.find(|one| one.id == Some(call.controller));
        controller.is_none_or(|one| modules_of(one).any(|module| module == repetition.module))
    }

    /// The modules of the revisions that run by now.
    fn modules(&self) -> impl Iterator<Item = ModuleDigest> {
        let controllers = self.follower.state().controllers().values();
        controllers.flat_map(|one| modules_of(one))
    }

    /// Makes a call several times. The first instance answers all calls of the journal; the
    /// last run of each call has an instance of its own, which remembers nothing.
    pub(super) async fn repeat_often(
        &mut self,
        call: RecordedCall,
        reads: SnapshotReads,
        repetition: Repetition,
    ) -> Result<()> {
        let Repetition { module, runs } = repetition;
        if call.revision.module != module {
            return Ok(());
        }
        if call.result.is_err() {
            let why = "the call failed when it was recorded";
            self.report.skip(why.to_owned());
            return Ok(());
        }
        let (controller, revision) = (call.controller.clone(), call.revision.clone());
        let missing = || RefusedJournal("the module is missing".to_owned());
        let guest = self.guests.get(&controller, &revision).await?;
        let guest = guest.with_context(missing)?;
        let first = decide(&call, &guest).await;
        if let Some(mismatch) = &first.mismatch {
            if call.is_stripped {
                let why = "the guest reads otherwise without the data of Secrets";
                self.report.skip(why.to_owned());
                return Ok(());
            }
            let difference = mismatch.clone();
            let sides = [Side::recorded(&call, reads), side(1, first)];
            self.report.different(&controller, || FirstDifference {
                call,
                difference,
                sides,
            });
            return Ok(());
        }
        for run in 2..=runs {
            let guest = if run == runs {
                let fresh = self.guests.start(&controller, &revision).await?;
                fresh.with_context(missing)?
            } else {
                guest.clone()
            };
            let again = decide(&call, &guest).await;
            if let Some(difference) = compare(&first, &again, run) {
                let sides = [side(1, first), side(run, again)];
                self.report.different(&controller, || FirstDifference {
                    call,
                    difference,
                    sides,
                });
                return Ok(());
            }
        }
        self.report.same(&controller);
        Ok(())
    }

    /// Prints what was found.
    fn end_repetition(self, modules: &BTreeSet<ModuleDigest>) -> Result<()> {
        let Some(Repetition { module, runs }) = self.repetition else {
            return Ok(());
        };
        if self.report.call_count() == 0 {
            let others: Vec<String> = modules.iter().map(|one| format!("sha256:{one}")).collect();
            let others = match others.join(", ") {
                none if none.is_empty() => "none".to_owned(),
                others => others,
            };
            bail!(RefusedJournal(format!(
                "the journal has no call of sha256:{module} that can be made again; modules of \
                 the journal: {others}"
            )));
        }
        print::out(&format!("{runs} runs of each call\n{}", self.report.text()))?;
        let different = self.report.difference_count();
        if different > 0 {
            bail!("{different} calls have different answers to the same reads");
        }
        if let Some(problem) = self.report.problem() {
            bail!(RefusedJournal(format!(
                "a part of the journal cannot be replayed: {problem}"
            )));
        }
        Ok(())
    }
}

fn modules_of(controller: &ControllerEntry) -> impl Iterator<Item = ModuleDigest> {
    let revisions = Role::ALL.into_iter();
    let revisions = revisions.filter_map(|role| controller.revision(role));
    revisions.map(|revision| revision.module)
}

/// The first difference between two runs.
fn compare(first: &RepeatedCall, again: &RepeatedCall, run: u32) -> Option<String> {
    if let Some(mismatch) = &again.mismatch {
        return Some(format!("run {run}: {mismatch}"));
    }
    match (&first.result, &again.result) {
        (Ok(one), Ok(other)) => difference(one, other).map(|found| {
            let (item, part) = (found.item, found.part);
            let (one, other) = (found.recorded, found.replayed);
            format!("item {item}: {part} differs: run 1 {one}, run {run} {other}")
        }),
        (Err(one), Err(other)) if chain(one) == chain(other) => None,
        (Ok(_), Err(error)) => Some(format!("run {run} fails: {}", chain(error))),
        (Err(error), Ok(_)) => Some(format!("run 1 fails: {}", chain(error))),
        (Err(one), Err(other)) => {
            let (one, other) = (chain(one), chain(other));
            Some(format!("run 1 fails: {one}; run {run} fails: {other}"))
        }
    }
}

fn side(run: u32, call: RepeatedCall) -> Side {
    let decisions = match &call.result {
        Ok(decisions) => report::decisions(decisions),
        Err(error) => format!("the call fails: {}", chain(error)),
    };
    Side {
        title: format!("run {run}"),
        decisions,
        reads: call.reads,
    }
}
