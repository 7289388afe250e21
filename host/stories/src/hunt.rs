//! The proof that the stories find bugs: each mutant of the core has to fail one.

use std::ops::Range;
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use davit_core::mutant::Mutant;

use crate::batch::{run, run_seed};
use crate::plot::Size;
use crate::problem::Problem;

/// A seed for each mutant whose story failed with it once. The hunt tries these seeds
/// first. If a story has changed since then, the hunt searches all seeds, and prints this
/// table again: `cargo test -p davit-stories --features mutants mutant -- --nocapture`.
const HINTS: [(Mutant, u64); Mutant::ALL.len()] = [
    (Mutant::DropExpectations, 0),
    (Mutant::DeleteByName, 87),
    (Mutant::PatchByName, 1377),
    (Mutant::RepeatWrites, 3),
    (Mutant::IgnoreLeadership, 5),
    (Mutant::WithdrawNothing, 60),
    (Mutant::IgnoreOwnership, 8),
    (Mutant::SpendNothing, 3),
    (Mutant::KeepUnlistedObjects, 5),
    (Mutant::StopAtFirstPage, 104),
    (Mutant::SkipGaps, 5),
    (Mutant::ForgetFailures, 14),
    (Mutant::ForgetFailedCalls, 5),
    (Mutant::ForgetVoidCalls, 64),
    (Mutant::ForgetDryRuns, 26),
    (Mutant::ForgetReset, 13),
    (Mutant::ForgetResync, 21),
    (Mutant::ForgetLeftPlans, 582),
    (Mutant::ActUnrecorded, 0),
    (Mutant::CountFailedRecords, 23),
    (Mutant::RecordStatusFirst, 0),
    (Mutant::ForgetTrips, 979),
    (Mutant::ForgetRejections, 180),
    (Mutant::KeepRolledBack, 16),
    (Mutant::AnswerTwice, 2),
    (Mutant::RunUngranted, 46),
    (Mutant::IgnoreGrant, 291),
    (Mutant::IgnoreDenials, 18),
    (Mutant::LeadForever, 2),
    (Mutant::AcquireEarly, 0),
    (Mutant::SkipRecord, 0),
    (Mutant::ReplaceStatus, 9),
    (Mutant::SkipCopies, 2),
    (Mutant::CountFailedCopies, 6),
];

/// The number of hosts of the stories that can show a mutant.
fn hosts(mutant: Mutant) -> usize {
    match mutant {
        Mutant::LeadForever | Mutant::AcquireEarly | Mutant::SkipRecord | Mutant::ReplaceStatus => {
            2
        }
        _ => 1,
    }
}

/// Activates the mutant of a single story.
pub(crate) fn activate(mutants: Option<&[Mutant]>) -> Result<()> {
    match mutants {
        None => {}
        Some([mutant]) => Mutant::activate(Some(*mutant)),
        Some(_) => bail!("a single story has one mutant: give its name, --mutants NAME"),
    }
    Ok(())
}

/// Searches for a seed that fails with each of these mutants; with each mutant, if there
/// are none.
pub(crate) fn hunt(mutants: &[Mutant], seeds: &Range<u64>, size: Size) -> Result<ExitCode> {
    let is_meant = |mutant: &Mutant| mutants.is_empty() || mutants.contains(mutant);
    let (mut found, mut survivors) = (Vec::new(), 0);
    for mutant in Mutant::ALL.into_iter().filter(is_meant) {
        let size = Size {
            hosts: size.hosts.max(hosts(mutant)),
            ..size
        };
        Mutant::activate(Some(mutant));
        if let Some((seed, problem)) = first(mutant, seeds, size)? {
            found.push((mutant, seed));
            println!("{mutant:?}: seed {seed}: {problem}");
            println!("  {} --mutants {mutant:?}", size.command(seed));
        } else {
            survivors += 1;
            println!("{mutant:?}: NOT FOUND");
        }
    }
    Mutant::activate(None);
    println!("{} mutants found, {survivors} not", found.len());
    if found.iter().any(|one| !HINTS.contains(one)) {
        print_hints(&found);
    }
    Ok(if survivors == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Prints the table of hints with the seeds that were found.
fn print_hints(found: &[(Mutant, u64)]) {
    println!("The stories have changed. The hints for the next hunt:");
    for (mutant, hint) in HINTS {
        let seed = found.iter().find(|(one, _)| *one == mutant);
        let seed = seed.map_or(hint, |(_, seed)| *seed);
        println!("    (Mutant::{mutant:?}, {seed}),");
    }
}

/// The first seed that fails with a mutant, and the first problem.
fn first(mutant: Mutant, seeds: &Range<u64>, size: Size) -> Result<Option<(u64, Problem)>> {
    let hints = HINTS.iter().filter(|(hinted, _)| *hinted == mutant);
    let hints = hints.map(|(_, seed)| *seed..*seed + 1);
    for seeds in hints.chain([seeds.clone()]) {
        let (found, _) = run(&seeds, size, 1)?;
        if let Some(failed) = found.into_iter().next() {
            let seed = failed.seed;
            Mutant::activate(None);
            ensure!(
                run_seed(seed, size).problems.is_empty(),
                "seed {seed} fails without a mutant"
            );
            let problem = failed.problems.into_iter().next();
            return Ok(problem.map(|problem| (seed, problem)));
        }
    }
    Ok(None)
}
