//! The proof that the stories find faults: each mutant of the core has to fail one.

use std::ops::Range;
use std::process::ExitCode;

use anyhow::Result;
use davit_core::mutant::Mutant;

use crate::run;

/// Seeds that have shown a mutant before. They are tried first; a story that has changed
/// since costs a search, and nothing else.
const HINTS: [(Mutant, u64); 16] = [
    (Mutant::RepeatWrites, 2),
    (Mutant::IgnoreLeadership, 0),
    (Mutant::IgnoreOwnership, 8),
    (Mutant::SpendNothing, 11),
    (Mutant::KeepUnlistedObjects, 0),
    (Mutant::StopAtFirstPage, 29),
    (Mutant::ForgetFailedCalls, 0),
    (Mutant::ForgetDryRuns, 21),
    (Mutant::ForgetResync, 7),
    (Mutant::ActUnrecorded, 2),
    (Mutant::CountFailedRecords, 8),
    (Mutant::RecordStatusFirst, 0),
    (Mutant::ForgetTrips, 39),
    (Mutant::ForgetRejections, 39),
    (Mutant::KeepRolledBack, 3),
    (Mutant::AnswerTwice, 8),
];

/// The mutants that the stories are known to find.
pub(crate) fn known() -> Vec<String> {
    let known = HINTS.iter().map(|(mutant, _)| format!("{mutant:?}"));
    known.collect()
}

/// Looks for a seed that shows each mutant of these names, or each one there is.
pub(crate) fn hunt(names: &[String], seeds: &Range<u64>, steps: usize) -> Result<ExitCode> {
    let is_meant = |mutant: &Mutant| names.is_empty() || names.contains(&format!("{mutant:?}"));
    let (mut found, mut survivors) = (0, 0);
    for mutant in Mutant::ALL.into_iter().filter(is_meant) {
        Mutant::activate(Some(mutant));
        if let Some((seed, problem)) = first(mutant, seeds, steps)? {
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

/// The first seed that shows a mutant, and how.
fn first(mutant: Mutant, seeds: &Range<u64>, steps: usize) -> Result<Option<(u64, String)>> {
    let hints = HINTS.iter().filter(|(hinted, _)| *hinted == mutant);
    let hints = hints.map(|(_, seed)| *seed..*seed + 1);
    for seeds in hints.chain([seeds.clone()]) {
        let found = run(&seeds, steps, 1)?;
        if let Some((seed, problems)) = found.into_iter().next() {
            let problem = problems.into_iter().next().unwrap_or_default();
            return Ok(Some((seed, problem)));
        }
    }
    Ok(None)
}
