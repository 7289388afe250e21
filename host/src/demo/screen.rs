//! The demo's output: one line for each step of the story and each executed plan.

use std::time::Instant;

use davit_core::backtest::Surprise;
use davit_core::controller::Outcome;
use davit_core::plan::{Plan, Step};

use crate::telemetry::has_colour;

/// The terminal.
pub(super) struct Screen {
    started: Instant,
    colour: bool,
}

const BOLD: &str = "1";
const DIM: &str = "2";
const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";
const CYAN: &str = "36";

/// Whether a plan deletes its target.
pub(super) fn deletes(plan: &Plan) -> bool {
    let ends = |step: &Step| matches!(step, Step::Delete(_) | Step::Evict(_));
    plan.steps.iter().any(ends)
}

impl Screen {
    pub(super) fn new() -> Self {
        let colour = has_colour(&std::io::stdout());
        Self {
            started: Instant::now(),
            colour,
        }
    }

    pub(super) fn title(&self, text: &str) {
        println!("{}", self.paint(BOLD, text));
    }

    pub(super) fn chapter(&self, text: &str) {
        let time = self.time();
        println!("\n{time}  {}", self.paint(CYAN, text));
    }

    pub(super) fn action(&self, text: &str) {
        println!("{}  {text}", self.time());
    }

    /// An executed plan, with its reason.
    pub(super) fn outcome(&self, plan: &Plan, outcome: &Outcome) {
        let target = format!("{} {}", plan.target.kind, plan.target.name);
        let (colour, what) = match &outcome.failed {
            None if deletes(plan) => (GREEN, "deleted".to_owned()),
            None => (GREEN, "changed".to_owned()),
            Some((_, failure)) if failure.class.means_gone() => (DIM, "gone already".to_owned()),
            Some((_, failure)) => (RED, format!("failed: {failure}")),
        };
        println!(
            "{}    {} {:<15} {target:<24} {}",
            self.time(),
            self.paint(colour, &format!("{what:<12}")),
            plan.reason,
            self.paint(DIM, &plan.message)
        );
    }

    /// A plan on whose target the revisions disagree.
    pub(super) fn disagreement(&self, result: &str, plan: &Plan) {
        let target = format!("{} {}", plan.target.kind, plan.target.name);
        println!(
            "{}    {} {:<15} {target:<24} {}",
            self.time(),
            self.paint(YELLOW, &format!("{result:<12}")),
            plan.reason,
            self.paint(DIM, &plan.message)
        );
    }

    /// An object that only a policy under test deletes.
    pub(super) fn surprise(&self, surprise: &Surprise) {
        let target: Vec<&str> = surprise.object.split(' ').skip(1).take(2).collect();
        println!(
            "{}    {} {:<15} {:<24} {}",
            self.time(),
            self.paint(YELLOW, &format!("{:<12}", surprise.difference.as_str())),
            surprise.reason,
            target.join(" "),
            self.paint(DIM, &surprise.message)
        );
    }

    /// A failure, with its reason.
    pub(super) fn failure(&self, text: &str) {
        println!("{}  {}", self.time(), self.paint(RED, text));
    }

    pub(super) fn row(&self, reason: &str, deleted: usize, expected: usize) {
        let colour = if deleted == expected { GREEN } else { RED };
        let count = self.paint(colour, &format!("{deleted:>3}"));
        println!("          {reason:<16}{count}   expected {expected:>2}");
    }

    pub(super) fn problem(&self, text: &str) {
        println!("          {}", self.paint(RED, text));
    }

    pub(super) fn success(&self, text: &str) {
        println!("\n{}  {}", self.time(), self.paint(GREEN, text));
    }

    fn time(&self) -> String {
        let seconds = self.started.elapsed().as_secs_f64();
        self.paint(YELLOW, &format!("{seconds:>6.2}s"))
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}
