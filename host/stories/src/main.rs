//! Random stories of the five controllers on the real machine, simulated on
//! virtual time: `cargo xtask simulate --seeds 0..500`.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a story that cannot continue has failed; JSON values index to null"
)]

mod action;
mod batch;
mod cluster;
mod event;
mod fate;
mod guests;
#[cfg(feature = "mutants")]
mod hunt;
mod operators;
mod panics;
mod plot;
mod problem;
mod replica;
mod shrink;
mod step;
mod story;
#[cfg(test)]
mod two_days;
mod undo;

use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::Parser;
#[cfg(feature = "mutants")]
use davit_core::mutant::Mutant;

use tikv_jemallocator::Jemalloc;

use batch::FailedStory;
use plot::{Plot, Size};
use problem::Problem;

/// A story allocates small values for a third of its time: this allocator saves half of
/// that.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Explains the lines of a trace.
const LEGEND: &str = "\
The first column is the time since the start of the story, in milliseconds.
  STEP ...                         the next step of the story
  > CONTROLLER METHOD URI CODE     a request for a controller, and the server's status code
                                   (0: the server never read the request)
  METHOD URI CODE                  a list or watch of the host
  CONTROLLER (REVISION) executes   the gate admitted this plan
  VIOLATION: ...                   the host broke a rule
  PANIC: ...                       the host panicked, and the story ended
Every other line says what the host, the network or the records do.
";

/// Runs random stories, each from its seed, and checks the cluster at the end of each.
///
/// A story is a simulated cluster in which users, operators and faults do what the seed
/// draws, while the host runs the five controllers.
#[derive(Parser)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is an option of the command line"
)]
struct Arguments {
    /// The seeds of the stories, `FIRST..END`.
    #[arg(long, value_parser = range, default_value = "0..500")]
    seeds: Range<u64>,
    /// Runs the story of one seed and prints every line of its trace.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// With --seed: runs only the steps that the story needs to fail.
    #[arg(long, requires = "seed")]
    shrunk: bool,
    /// The number of steps of a story.
    #[arg(long, default_value_t = Size::default().steps)]
    steps: usize,
    /// The number of hosts. Several elect a leader for each controller.
    #[arg(long, default_value_t = Size::default().hosts, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=8))]
    hosts: usize,
    /// Leaves out the replay. Without this, every call of a guest is made again from the hosts'
    /// journals, and the story fails if a guest decides otherwise.
    #[arg(long)]
    no_replay: bool,
    /// Activates one mutant of the core after the other, or those of these names, and
    /// searches for a seed whose story fails with it. With --seed: activates the mutant of
    /// this name.
    #[cfg(feature = "mutants")]
    #[arg(long, num_args = 0.., value_name = "NAME", value_parser = mutant)]
    mutants: Option<Vec<Mutant>>,
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
            replays: !self.no_replay,
        }
    }
}

fn range(text: &str) -> Result<Range<u64>> {
    let (first, end) = text.split_once("..").context("not FIRST..END")?;
    Ok(first.parse()?..end.parse()?)
}

#[cfg(feature = "mutants")]
fn mutant(name: &str) -> Result<Mutant> {
    let mut all = Mutant::ALL.into_iter();
    let mutant = all.find(|mutant| format!("{mutant:?}") == name);
    mutant.context("no mutant has this name")
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    if let Some(seed) = arguments.seed {
        #[cfg(feature = "mutants")]
        hunt::activate(arguments.mutants.as_deref())?;
        return Ok(show(seed, &arguments));
    }
    #[cfg(feature = "mutants")]
    if let Some(mutants) = &arguments.mutants {
        return hunt::hunt(mutants, &arguments.seeds, arguments.size());
    }
    let started = Instant::now();
    let (failed, counts) = batch::run(&arguments.seeds, arguments.size(), usize::MAX)?;
    let seconds = started.elapsed().as_secs_f64();
    let count = arguments.seeds.end - arguments.seeds.start;
    if arguments.counts {
        print!("{counts}");
    }
    println!("{count} stories in {seconds:.1} s, {} failed", failed.len());
    if !arguments.no_replay {
        println!("{}", counts.replays);
    }
    let Some(first) = failed.first() else {
        return Ok(ExitCode::SUCCESS);
    };
    for FailedStory { seed, problems } in &failed {
        for problem in problems.iter().take(1) {
            println!("seed {seed}: {problem}");
        }
    }
    print_failure(first, &arguments);
    Ok(ExitCode::FAILURE)
}

/// Prints the problems and the steps of a story, and how to repeat it.
fn print_failure(failed: &FailedStory, arguments: &Arguments) {
    let FailedStory { seed, problems } = failed;
    println!("\nThe story of seed {seed} failed:");
    print_problems(problems);
    let mut plot = Plot::draw(*seed, arguments.size());
    if arguments.whole {
        println!("\nIts steps, and how long the simulated cluster runs after each:");
    } else {
        plot = shortened(plot, problems);
        println!(
            "\nThe steps without which it does not fail, and how long the simulated cluster \
             runs after each:"
        );
    }
    for (number, step) in plot.steps.iter().enumerate() {
        println!("{:>4}. {step}", number + 1);
    }
    let command = arguments.size().command(*seed);
    println!("\nTo see every request, decision and fault: {command}");
    println!("The same of these steps alone: {command} --shrunk");
}

/// The steps of a failed story without which it does not fail.
fn shortened(plot: Plot, problems: &[Problem]) -> Plot {
    match problems.first() {
        Some(problem) => shrink::shrink(&plot, problem),
        None => plot,
    }
}

fn print_problems(problems: &[Problem]) {
    for problem in problems {
        println!("  - {problem}");
    }
}

/// Runs the story of one seed and prints its trace.
fn show(seed: u64, arguments: &Arguments) -> ExitCode {
    let mut plot = Plot::draw(seed, arguments.size());
    if arguments.shrunk {
        let problems = story::run(&plot, false).problems;
        plot = shortened(plot, &problems);
    }
    let ending = story::run(&plot, true);
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
    if ending.problems.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_command_repeats_the_story() {
        for options in [
            "",
            "--steps 20",
            "--hosts 2",
            "--steps 7 --hosts 3 --whole",
            "--no-replay",
        ] {
            let words = ["davit-stories"]
                .into_iter()
                .chain(options.split_whitespace());
            let run = Arguments::parse_from(words);
            let command = run.size().command(9);
            let words = command.strip_prefix("cargo xtask ").unwrap();
            let again = Arguments::parse_from(words.split(' '));
            assert_eq!(again.seed, Some(9));
            assert_eq!(again.size(), run.size(), "{command}");
        }
    }

    #[test]
    fn stories_are_replayed_unless_it_is_left_out() {
        let size = |options: &[&str]| {
            let words = ["davit-stories"].iter().chain(options);
            Arguments::parse_from(words).size()
        };
        assert!(size(&[]).replays);
        assert_eq!(size(&[]), Size::default());
        assert!(!size(&["--no-replay"]).replays);
    }
}
