//! The demo's output: one line for each step of the story and each executed plan.

use std::time::Instant;

use davit_core::backtest::Surprise;
use davit_core::controller::Outcome;
use davit_core::plan::Plan;

use crate::commands::print;
use crate::terminal::{BOLD, CYAN, DIM, GREEN, RED, Terminal, YELLOW};

/// Prints a line, if anybody reads: without a reader, the story continues.
fn line(text: &str) {
    let _ = print::out(text);
}

/// The terminal.
pub(super) struct Screen {
    started: Instant,
    terminal: Terminal,
}

impl Screen {
    pub(super) fn new() -> Self {
        Self {
            started: Instant::now(),
            terminal: Terminal::new(),
        }
    }

    pub(super) fn title(&self, text: &str) {
        line(&self.terminal.paint(BOLD, text));
    }

    pub(super) fn chapter(&self, text: &str) {
        let time = self.time();
        line(&format!("\n{time}  {}", self.terminal.paint(CYAN, text)));
    }

    pub(super) fn action(&self, text: &str) {
        line(&format!("{}  {text}", self.time()));
    }

    /// An executed plan, with its reason.
    pub(super) fn outcome(&self, plan: &Plan, outcome: &Outcome) {
        let target = format!("{} {}", plan.target.kind, plan.target.name);
        let (colour, what) = match &outcome.failed {
            None if plan.deletes() => (GREEN, "deleted".to_owned()),
            None => (GREEN, "changed".to_owned()),
            Some((_, failure)) if failure.class.means_gone() => (DIM, "gone already".to_owned()),
            Some((_, failure)) => (RED, format!("failed: {failure}")),
        };
        line(&format!(
            "{}    {} {:<15} {target:<24} {}",
            self.time(),
            self.terminal.paint(colour, &format!("{what:<12}")),
            plan.reason,
            self.terminal.paint(DIM, &plan.message)
        ));
    }

    /// A plan on whose target the revisions disagree.
    pub(super) fn disagreement(&self, result: &str, plan: &Plan) {
        let target = format!("{} {}", plan.target.kind, plan.target.name);
        line(&format!(
            "{}    {} {:<15} {target:<24} {}",
            self.time(),
            self.terminal.paint(YELLOW, &format!("{result:<12}")),
            plan.reason,
            self.terminal.paint(DIM, &plan.message)
        ));
    }

    /// An object that only a policy under test deletes.
    pub(super) fn surprise(&self, surprise: &Surprise) {
        let target: Vec<&str> = surprise.object.split(' ').skip(1).take(2).collect();
        line(&format!(
            "{}    {} {:<15} {:<24} {}",
            self.time(),
            self.terminal
                .paint(YELLOW, &format!("{:<12}", surprise.difference.as_str())),
            surprise.reason,
            target.join(" "),
            self.terminal.paint(DIM, &surprise.message)
        ));
    }

    /// A failure, with its reason.
    pub(super) fn failure(&self, text: &str) {
        line(&format!(
            "{}  {}",
            self.time(),
            self.terminal.paint(RED, text)
        ));
    }

    pub(super) fn row(&self, reason: &str, deleted: usize, expected: usize) {
        let colour = if deleted == expected { GREEN } else { RED };
        let count = self.terminal.paint(colour, &format!("{deleted:>3}"));
        line(&format!(
            "          {reason:<16}{count}   expected {expected:>2}"
        ));
    }

    pub(super) fn problem(&self, text: &str) {
        line(&format!("          {}", self.terminal.paint(RED, text)));
    }

    pub(super) fn success(&self, text: &str) {
        line(&format!(
            "\n{}  {}",
            self.time(),
            self.terminal.paint(GREEN, text)
        ));
    }

    fn time(&self) -> String {
        let seconds = self.started.elapsed().as_secs_f64();
        self.terminal.paint(YELLOW, &format!("{seconds:>6.2}s"))
    }
}
