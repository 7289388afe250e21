//! Text of a guest, cut where it enters the core.
//!
//! Everything that a guest says is one line of bounded length from there on. A text that
//! is too long is cut and ends with `…`; it fails nothing.

use crate::plan::{Command, Decision, Measure, Plan, Step, Verdict};
use crate::untrusted::{self, shorten};

/// The longest reason of a plan, in bytes.
pub const REASON: usize = 128;
/// The longest message of a plan or reason of a retry, in bytes.
pub const MESSAGE: usize = 1024;
/// The longest value of a metric's label, in bytes.
pub const LABEL: usize = 128;

/// Cuts every text of a decision that only people read.
pub fn cut(decision: &mut Decision) {
    if let Verdict::Retry { reason } = &mut decision.verdict {
        shorten(reason, MESSAGE);
    }
    decision.plans.iter_mut().for_each(cut_plan);
    for command in &mut decision.commands {
        if let Command::Measure(measure) = command {
            cut_labels(measure);
        }
    }
}

fn cut_plan(plan: &mut Plan) {
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
