//! Random stories of the five controllers on the real machine, simulated on
//! virtual time: `cargo xtask simulate --seeds 0..500`.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a story that cannot continue has failed; JSON values index to null"
)]

mod action;
mod cluster;
mod event;
mod fate;
mod guests;
#[cfg(feature = "mutants")]
mod hunt;
mod operators;
mod plot;
mod replica;
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

use plot::{Plot, Size};
use story::Counts;

/// A story allocates small values for a third of its time: this allocator saves half of
/// that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Explains the lines of a trace.
const LEGEND: &str = "\
The first column is the time since the start of the story, in milliseconds.
  STEP ...                         the next step of the story
  > CONTROLLER METHOD URI CODE     a request for a controller, and the server's status code
                                   (0: the server never read the request)
  METHOD URI CODE                  a list or watch of the host
  CONTROLLER (REVISION) executes   the gate admitted this plan
  VIOLATION: ...                   the host broke a rule
Every other line says what the host, the network or the records do.
";

/// Runs random stories, each from its seed, and checks the cluster at the end of each.
///
/// A story is a simulated cluster in which users, operators and faults do what the seed
/// draws, while the host runs the five controllers.
#[derive(Parser)]
struct Arguments {
    /// The seeds of the stories, `FIRST..END`.
    #[arg(long, value_parser = range, default_value = "0..500")]
    seeds: Range<u64>,
    /// Runs the story of one seed and prints every line of its trace.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// The number of steps of a story.
    #[arg(long, default_value_t = 80)]
    steps: usize,
    /// The number of hosts. Several elect a leader for each controller.
    #[arg(long, default_value_t = 1, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=8))]
    hosts: usize,
    /// Activates one mutant of the core after the other, or those of these names, and
    /// searches for a seed whose story fails with it.
    #[cfg(feature = "mutants")]
    #[arg(long, num_args = 0.., value_name = "NAME")]
    mutants: Option<Vec<String>>,
    /// Prints all steps of a failing story, not only those that it needs to fail.
    #[arg(long)]
    whole: bool,
    /// Prints how often each kind of step, fault and plan occurred.
    #[arg(long)]
    counts: bool,
}

impl Arguments {
    fn size(&self) -> Size {
        Size {
            steps: self.steps,
            hosts: self.hosts,
        }
    }

    /// The options of another run of one of these stories.
    fn options(&self) -> String {
        match self.hosts {
            1 => String::new(),
            hosts => format!(" --hosts {hosts}"),
        }
    }
}

fn range(text: &str) -> Result<Range<u64>> {
    let (first, end) = text.split_once("..").context("not FIRST..END")?;
    Ok(first.parse()?..end.parse()?)
}

fn main() -> Result<ExitCode> {
    // A panic of a guest is a trap of its call, and no error of this program.
    std::panic::set_hook(Box::new(|_| {}));
    let arguments = Arguments::parse();
    if let Some(seed) = arguments.seed {
        return show(seed, &arguments);
    }
    #[cfg(feature = "mutants")]
    if let Some(names) = &arguments.mutants {
        return hunt::hunt(names, &arguments.seeds, arguments.size());
    }
    let started = Instant::now();
    let (failed, counts) = run(&arguments.seeds, arguments.size(), usize::MAX)?;
    let seconds = started.elapsed().as_secs_f64();
    let count = arguments.seeds.end - arguments.seeds.start;
    if arguments.counts {
        print!("{counts}");
    }
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
    println!("\nThe story of seed {seed} failed:");
    print_problems(problems);
    let mut plot = Plot::draw(*seed, arguments.size());
    if arguments.whole {
        println!("\nIts steps, and how long the simulated cluster runs after each:");
    } else {
        plot = shrink::shrink(&plot);
        println!(
            "\nThe steps without which it does not fail, and how long the simulated cluster \
             runs after each:"
        );
    }
    for (number, step) in plot.steps.iter().enumerate() {
        println!("{:>4}. {step}", number + 1);
    }
    println!(
        "\nTo see every request, decision and fault: cargo xtask simulate --seed {seed}{}",
        arguments.options()
    );
    Ok(ExitCode::FAILURE)
}

fn print_problems(problems: &[String]) {
    for problem in problems {
        println!("  - {problem}");
    }
}

/// Runs the story of one seed and prints its trace.
fn show(seed: u64, arguments: &Arguments) -> Result<ExitCode> {
    let mut plot = Plot::draw(seed, arguments.size());
    let ending = story::run(&plot, false).map_err(|error| anyhow!(error))?;
    let failed = !ending.problems.is_empty();
    if failed && !arguments.whole {
        plot = shrink::shrink(&plot);
    }
    let ending = story::run(&plot, true).map_err(|error| anyhow!(error))?;
    println!("{LEGEND}");
    for line in &ending.trace {
        println!("{line}");
    }
    println!(
        "seed {seed}: {} problems, {} plans executed, hash of the trace {:016x}",
        ending.problems.len(),
        ending.executed,
        ending.hash
    );
    print_problems(&ending.problems);
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// The seed of a failed story, and its problems.
type Failed = (u64, Vec<String>);

/// Runs the stories of all seeds, on every processor, until `enough` of them failed.
/// Returns the seeds of failed stories, with their problems, and how often everything
/// happened.
fn run(seeds: &Range<u64>, size: Size, enough: usize) -> Result<(Vec<Failed>, Counts)> {
    let next = AtomicU64::new(seeds.start);
    let failed = Mutex::new(Vec::new());
    let counts = Mutex::new(Counts::default());
    let threads = thread::available_parallelism()?.get();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let (problems, counted) = run_seed(seed, size);
                    let mut all = counts.lock().unwrap_or_else(PoisonError::into_inner);
                    all.add(&counted);
                    drop(all);
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
    let counts = counts.into_inner();
    Ok((failed, counts.unwrap_or_else(PoisonError::into_inner)))
}

/// Runs the story of a seed. Returns what is wrong, and how often everything happened.
fn run_seed(seed: u64, size: Size) -> (Vec<String>, Counts) {
    let plot = Plot::draw(seed, size);
    match std::panic::catch_unwind(|| story::run(&plot, false)) {
        Ok(Ok(ending)) => (ending.problems, ending.counts),
        Ok(Err(error)) => (vec![error], Counts::default()),
        Err(_) => (vec!["the story panicked".to_owned()], Counts::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size {
        steps: 80,
        hosts: 1,
    };

    fn hash(seed: u64) -> u64 {
        let ending = story::run(&Plot::draw(seed, SIZE), false).unwrap();
        assert_eq!(ending.problems, Vec::<String>::new());
        ending.hash
    }

    #[test]
    fn a_seed_gives_the_same_trace_to_the_byte() {
        let other = hash(3);
        for seed in [1, 2] {
            let first = hash(seed);
            assert_eq!(first, hash(seed));
            assert_ne!(first, other);
        }
    }

    #[test]
    fn a_trace_holds_every_line_that_the_hash_covers() {
        let plot = Plot::draw(1, Size { steps: 20, ..SIZE });
        let kept = story::run(&plot, true).unwrap();
        let dropped = story::run(&plot, false).unwrap();
        assert_eq!(kept.hash, dropped.hash);
        assert!(dropped.trace.is_empty());
        let is_step = |line: &&String| line.contains("STEP");
        assert_eq!(kept.trace.iter().filter(is_step).count(), plot.steps.len());
    }
}
