//! The stories that every change has to pass, run by the program itself.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::Command;

/// Runs the program, which fails if a story does.
fn run(arguments: &[&str]) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_davit-stories"));
    let output = program.args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{arguments:?}: {text}");
    println!("{text}");
}

#[test]
fn five_hundred_stories_end_as_they_should() {
    run(&["--seeds", "0..500"]);
}

/// Several hosts elect a leader for each controller.
#[test]
fn stories_with_several_hosts_end_as_they_should() {
    run(&["--hosts", "2", "--seeds", "0..80"]);
    run(&["--hosts", "3", "--seeds", "0..40"]);
}

/// The stories still find the faults that were put into the core on purpose.
#[cfg(feature = "mutants")]
#[test]
fn the_stories_find_every_mutant() {
    run(&["--seeds", "0..2000", "--mutants"]);
}
