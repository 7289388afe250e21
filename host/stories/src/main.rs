//! Random stories of the five controllers on the real machine, simulated on
//! virtual time: `cargo xtask simulate --seeds 0..500`.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a story that cannot go on has failed; JSON values index to null"
)]

mod action;
mod cluster;
mod fate;
mod guests;
#[cfg(feature = "mutants")]
mod hunt;
mod operators;
mod shrink;
mod step;
mod story;

use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};
use clap::Parser;
use davit_simulation::Dice;

use step::Step;

/// Tells random stories, each from its seed, and checks how they end.
#[derive(Parser)]
struct Arguments {
    /// The seeds, `FIRST..END`.
    #[arg(long, value_parser = range, default_value = "0..500")]
    seeds: Range<u64>,
    /// One seed: prints everything that happens.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// How many steps a story has.
    #[arg(long, default_value_t = 80)]
    steps: usize,
    /// Gives the core one fault after the other, or those of these names, and
    /// looks for a seed that shows it.
    #[cfg(feature = "mutants")]
    #[arg(long, num_args = 0.., value_name = "NAME")]
    mutants: Option<Vec<String>>,
    /// Prints a failing story as it was drawn.
    #[arg(long)]
    whole: bool,
}

fn range(text: &str) -> Result<Range<u64>> {
    let (first, end) = text.split_once("..").context("not FIRST..END")?;
    Ok(first.parse()?..end.parse()?)
}

fn main() -> Result<ExitCode> {
    // A guest that panics is a call that traps.
    std::panic::set_hook(Box::new(|_| {}));
    let arguments = Arguments::parse();
    if let Some(seed) = arguments.seed {
        return show(seed, &arguments);
    }
    #[cfg(feature = "mutants")]
    if let Some(names) = &arguments.mutants {
        return hunt::hunt(names, &arguments.seeds, arguments.steps);
    }
    let started = Instant::now();
    let failed = run(&arguments.seeds, arguments.steps, usize::MAX)?;
    let seconds = started.elapsed().as_secs_f64();
    let count = arguments.seeds.end - arguments.seeds.start;
    println!("{count} stories in {seconds:.1} s, {} failed", failed.len());
    let Some((seed, problems)) = failed.first() else {
        return Ok(ExitCode::SUCCESS);
    };
    for (seed, problems) in &failed {
        println!(
            "seed {seed}: {}",
            problems.first().map_or("", String::as_str)
        );
    }
    println!("\nseed {seed}: {problems:#?}");
    let mut steps = drawn(*seed, arguments.steps);
    if !arguments.whole {
        steps = shrink::shrink(*seed, &steps);
    }
    println!("the story, as short as it fails:");
    for step in &steps {
        println!("  {:?}, then {:?}", step.event, step.pause);
    }
    println!("cargo xtask simulate --seed {seed} tells it whole");
    Ok(ExitCode::FAILURE)
}

fn drawn(seed: u64, steps: usize) -> Vec<Step> {
    step::draw(&mut Dice::new(seed), steps)
}

/// Tells one story with everything that happens.
fn show(seed: u64, arguments: &Arguments) -> Result<ExitCode> {
    let mut steps = drawn(seed, arguments.steps);
    let ending = story::tell(seed, &steps, false).map_err(|error| anyhow!(error))?;
    let failed = !ending.problems.is_empty();
    if failed && !arguments.whole {
        steps = shrink::shrink(seed, &steps);
    }
    let ending = story::tell(seed, &steps, true).map_err(|error| anyhow!(error))?;
    for line in &ending.trace {
        println!("{line}");
    }
    println!(
        "seed {seed}: {} plans, hash {:016x}, {:#?}",
        ending.executed, ending.hash, ending.problems
    );
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Tells all stories, on every processor, until so many failed. Returns the seeds
/// that failed.
fn run(seeds: &Range<u64>, steps: usize, enough: usize) -> Result<Vec<(u64, Vec<String>)>> {
    let next = AtomicU64::new(seeds.start);
    let failed = Mutex::new(Vec::new());
    let threads = thread::available_parallelism()?.get();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let problems = tell(seed, steps);
                    if !problems.is_empty() {
                        let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                        failed.push((seed, problems));
                        if failed.len() >= enough {
                            next.store(seeds.end, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.sort();
    Ok(failed)
}

fn tell(seed: u64, steps: usize) -> Vec<String> {
    let steps = drawn(seed, steps);
    let told = std::panic::catch_unwind(|| story::tell(seed, &steps, false));
    match told {
        Ok(Ok(ending)) => ending.problems,
        Ok(Err(error)) => vec![error],
        Err(_) => vec!["it panics".to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(seed: u64) -> u64 {
        let ending = story::tell(seed, &drawn(seed, 80), false).unwrap();
        assert_eq!(ending.problems, Vec::<String>::new());
        ending.hash
    }

    #[test]
    fn a_seed_tells_the_same_story_to_the_byte() {
        let other = hash(3);
        for seed in [1, 2] {
            let first = hash(seed);
            assert_eq!(first, hash(seed));
            assert_ne!(first, other);
        }
    }

    /// What is reported of a failing story can be found by reading it.
    #[test]
    fn a_trace_holds_every_line_that_the_hash_covers() {
        let steps = drawn(1, 20);
        let kept = story::tell(1, &steps, true).unwrap();
        let dropped = story::tell(1, &steps, false).unwrap();
        assert_eq!(kept.hash, dropped.hash);
        assert!(dropped.trace.is_empty());
        let is_step = |line: &&String| line.contains("STEP");
        assert_eq!(kept.trace.iter().filter(is_step).count(), steps.len());
    }
}
