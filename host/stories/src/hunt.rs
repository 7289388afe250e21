//! The proof that the stories find bugs: each mutant of the core has to fail one.

use std::ops::Range;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use davit_core::mutant::Mutant;

use crate::plot::Size;
use crate::{run, run_seed};

/// A seed for each mutant whose story failed with it once. The hunt tries these seeds
/// first. If a story has changed since then, the hunt searches all seeds.
const HINTS: [(Mutant, u64); Mutant::ALL.len()] = [
    (Mutant::DropExpectations, 0),
    (Mutant::DeleteByName, 289),
    (Mutant::PatchByName, 929),
    (Mutant::RepeatWrites, 3),
    (Mutant::IgnoreLeadership, 5),
    (Mutant::WithdrawNothing, 59),
    (Mutant::IgnoreOwnership, 0),
    (Mutant::SpendNothing, 3),
    (Mutant::KeepUnlistedObjects, 5),
    (Mutant::StopAtFirstPage, 285),
    (Mutant::SkipGaps, 0),
    (Mutant::ForgetFailures, 14),
    (Mutant::ForgetFailedCalls, 9),
    (Mutant::ForgetVoidCalls, 64),
    (Mutant::ForgetDryRuns, 26),
    (Mutant::ForgetReset, 3),
    (Mutant::ForgetResync, 6),
    (Mutant::ForgetLeftPlans, 162),
    (Mutant::ActUnrecorded, 0),
    (Mutant::CountFailedRecords, 68),
    (Mutant::RecordStatusFirst, 0),
    (Mutant::ForgetTrips, 47),
    (Mutant::ForgetRejections, 74),
    (Mutant::KeepRolledBack, 47),
    (Mutant::AnswerTwice, 2),
    (Mutant::RunUngranted, 46),
    (Mutant::IgnoreGrant, 280),
    (Mutant::IgnoreDenials, 0),
    (Mutant::LeadForever, 0),
    (Mutant::AcquireEarly, 0),
    (Mutant::SkipRecord, 0),
];

/// The number of hosts of the stories that can show a mutant.
fn hosts(mutant: Mutant) -> usize {
    match mutant {
        Mutant::LeadForever | Mutant::AcquireEarly | Mutant::SkipRecord => 2,
        _ => 1,
    }
}

/// Searches for a seed that fails with each mutant of these names; without names, with
/// each mutant.
pub(crate) fn hunt(names: &[String], seeds: &Range<u64>, size: Size) -> Result<ExitCode> {
    let is_meant = |mutant: &Mutant| names.is_empty() || names.contains(&format!("{mutant:?}"));
    let (mut found, mut survivors) = (0, 0);
    for mutant in Mutant::ALL.into_iter().filter(is_meant) {
        Mutant::activate(Some(mutant));
        if let Some((seed, problem)) = first(mutant, seeds, size)? {
            found += 1;
            println!("{mutant:?}: seed {seed}: {problem}");
        } else {
            survivors += 1;
            println!("{mutant:?}: NOT FOUND");
        }
    }
    Mutant::activate(None);
    println!("{found} mutants found, {survivors} not");
    Ok(if survivors == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The first seed that fails with a mutant, and the first problem.
fn first(mutant: Mutant, seeds: &Range<u64>, size: Size) -> Result<Option<(u64, String)>> {
    let hints = HINTS.iter().filter(|(hinted, _)| *hinted == mutant);
    let hints = hints.map(|(_, seed)| *seed..*seed + 1);
    let size = Size {
        hosts: size.hosts.max(hosts(mutant)),
        ..size
    };
    for seeds in hints.chain([seeds.clone()]) {
        let (found, _) = run(&seeds, size, 1)?;
        if let Some((seed, problems)) = found.into_iter().next() {
            Mutant::activate(None);
            ensure!(
                run_seed(seed, size).0.is_empty(),
                "seed {seed} fails without a mutant"
            );
            let problem = problems.into_iter().next().unwrap_or_default();
            return Ok(Some((seed, problem)));
        }
    }
    Ok(None)
}
