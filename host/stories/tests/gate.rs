//! The stories that every change has to pass, run by the program itself.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot continue has failed"
)]

use std::process::Command;

/// Runs the program. Returns whether it succeeded, and what it printed.
fn output(arguments: &[&str]) -> (bool, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_davit-stories"));
    let output = program.args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("{text}");
    (output.status.success(), text)
}

/// Runs the program, which fails if a story does. Returns what it printed.
fn run(arguments: &[&str]) -> String {
    let (succeeds, text) = output(arguments);
    assert!(succeeds, "{arguments:?}: {text}");
    text
}

/// The faults that did not occur, as `--counts` prints them.
fn missing_faults(counts: &str) -> Vec<&str> {
    let faults = counts.lines().filter_map(|line| {
        let (count, fault) = line.trim_start().split_once(" fault ")?;
        Some((count.parse::<u64>().unwrap(), fault))
    });
    let faults: Vec<(u64, &str)> = faults.collect();
    assert!(!faults.is_empty(), "{counts}");
    let missing = faults.into_iter().filter(|(count, _)| *count == 0);
    missing.map(|(_, fault)| fault).collect()
}

/// How many calls were made again from the journals of the hosts.
fn calls_made_again(text: &str) -> u64 {
    let mut counts = text
        .lines()
        .filter_map(|line| line.split_once(" calls made again "));
    let (count, _) = counts.next().unwrap_or_else(|| panic!("no replay: {text}"));
    count.parse().unwrap()
}

/// And every decision is the same again when it is made from the journal of its host.
#[test]
fn five_hundred_stories_end_as_they_should_and_have_every_fault() {
    let text = run(&["--seeds", "0..500", "--counts"]);
    assert_eq!(missing_faults(&text), [""; 0]);
    assert!(calls_made_again(&text) > 100_000, "{text}");
}

/// Several hosts elect a leader for each controller.
#[test]
fn stories_with_several_hosts_end_as_they_should_and_have_every_fault() {
    let text = run(&["--hosts", "2", "--seeds", "0..80", "--counts"]);
    assert_eq!(missing_faults(&text), [""; 0]);
    assert!(calls_made_again(&text) > 10_000, "{text}");
    run(&["--hosts", "3", "--seeds", "0..40"]);
}

/// Short ones, because most of the time of a story passes at its start and its end. They find each
/// mutant of the replicas; `cargo xtask simulate` runs thousands of them.
#[test]
fn short_stories_with_several_hosts_end_as_they_should() {
    run(&["--hosts", "2", "--steps", "20", "--seeds", "80..480"]);
    run(&["--hosts", "3", "--steps", "20", "--seeds", "1600..1700"]);
}

#[test]
fn a_fault_that_does_not_occur_is_missing() {
    let text = run(&["--seeds", "0..1", "--steps", "0", "--counts"]);
    let missing = missing_faults(&text);
    assert!(missing.contains(&"Reboot"), "{missing:?}");
    assert!(!missing.contains(&"Suspension"), "{missing:?}");
}

#[test]
fn a_replay_may_be_left_out() {
    let text = run(&["--seeds", "0..1", "--steps", "0", "--no-replay"]);
    assert!(!text.contains("calls made again"), "{text}");
}

/// The trace of a seed has all of its steps, also if it fails.
#[cfg(feature = "mutants")]
#[test]
fn a_seed_with_a_mutant_repeats_the_failure_of_the_whole_story() {
    let steps = |text: &str| text.lines().filter(|line| line.contains(" STEP ")).count();
    let (succeeds, whole) = output(&["--seed", "2"]);
    assert!(succeeds, "{whole}");
    let failing = ["--seed", "2", "--mutants", "DropExpectations"];
    let (succeeds, text) = output(&failing);
    assert!(!succeeds, "{text}");
    assert_eq!(steps(&text), steps(&whole));
    let (succeeds, shrunk) = output(&[&failing[..], &["--shrunk"]].concat());
    assert!(!succeeds, "{shrunk}");
    assert!(steps(&shrunk) < steps(&whole), "{shrunk}");
}

/// The stories still find the faults that were put into the core on purpose: their own checks do,
/// without the replay.
#[cfg(feature = "mutants")]
#[test]
fn the_stories_find_every_mutant() {
    run(&["--seeds", "0..2000", "--no-replay", "--mutants"]);
}
