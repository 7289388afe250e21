//! Text of a guest, cut where it enters the core.
//!
//! Everything that a guest says is one line of bounded length from there on. A text that
//! is too long is cut and ends with `…`; it fails nothing.

use crate::plan::{Command, Measure, Plan, Step, Verdict};
use crate::untrusted::{self, shorten};

/// The longest reason of a plan, in bytes.
pub const REASON: usize = 128;
/// The longest message of a plan or reason of a retry, in bytes.
pub const MESSAGE: usize = 1024;
/// The longest value of a metric's label, in bytes.
pub const LABEL: usize = 128;

/// Cuts the texts of a verdict that only people read.
pub fn cut_verdict(verdict: &mut Verdict) {
    if let Verdict::Retry { reason } = verdict {
        shorten(reason, MESSAGE);
    }
}

/// Cuts the texts of a command that only people read.
pub fn cut_command(command: &mut Command) {
    if let Command::Measure(measure) = command {
        cut_labels(measure);
    }
}

/// Cuts the texts of a plan that only people read.
pub fn cut_plan(plan: &mut Plan) {
    shorten(&mut plan.reason, REASON);
    shorten(&mut plan.message, MESSAGE);
    for step in &mut plan.steps {
        if let Step::Event(event) = step {
            event.cut();
        }
    }
    for measure in &mut plan.measures {
        cut_labels(&mut measure.measure);
    }
}

fn cut_labels(measure: &mut Measure) {
    for label in &mut measure.labels {
        // `region:\0:zone` is how Kubernetes names a zone.
        untrusted::cut(label, LABEL);
    }
}
