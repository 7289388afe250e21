//! What the host tells of its work: to the log, to the metrics, and to whoever
//! listens.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use davit_cluster::write::Decision;
use davit_core::controller::Outcome;
use davit_core::gate::Ruling;
use davit_core::plan::{Plan, QueueKey};
use davit_core::rollout::Role;
use davit_core::time::Instant;
use tokio::sync::mpsc;

/// How long the same word about the same target is not repeated in the log.
const REPEAT_AFTER: Duration = Duration::from_mins(10);
/// How many such words are remembered.
const REMEMBERED: usize = 10_000;

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Report {
    /// A controller has what it waited for and begins.
    Started {
        /// The controller.
        controller: String,
    },
    /// The gate ruled on a plan.
    Ruled {
        /// The controller.
        controller: String,
        /// The part of the revision that decided it.
        role: Role,
        /// The item the plan was decided for.
        item: QueueKey,
        /// The plan.
        plan: Arc<Plan>,
        /// The ruling.
        ruling: Ruling,
    },
    /// A plan was carried out, or failed.
    Carried {
        /// The controller.
        controller: String,
        /// What decided it.
        decision: Decision,
        /// The plan.
        plan: Arc<Plan>,
        /// What became of it.
        outcome: Outcome,
    },
}

/// Writes reports to the log and passes them on.
#[derive(Debug, Default)]
pub(super) struct Reporter {
    listener: Option<mpsc::UnboundedSender<Report>>,
    /// When a ruling on a target was last written to the log.
    written: HashMap<(String, String, &'static str), Instant>,
}

impl Reporter {
    pub(super) fn new(listener: Option<mpsc::UnboundedSender<Report>>) -> Self {
        Self {
            listener,
            written: HashMap::new(),
        }
    }

    pub(super) fn tell(&mut self, report: Report, now: Instant) {
        match &report {
            Report::Started { controller } => {
                tracing::info!(controller, "the controller begins");
            }
            Report::Ruled {
                controller,
                role,
                plan,
                ruling,
                ..
            } => self.log_ruling(controller, *role, plan, ruling, now),
            Report::Carried {
                controller,
                decision,
                plan,
                outcome,
            } => log_outcome(controller, decision, plan, outcome),
        }
        if let Some(listener) = &self.listener {
            // Nobody listening any more is no reason to stop.
            let _ = listener.send(report);
        }
    }

    /// A controller that only shows its plans shows them at every pass: the
    /// log has each once.
    fn log_ruling(
        &mut self,
        controller: &str,
        role: Role,
        plan: &Plan,
        ruling: &Ruling,
        now: Instant,
    ) {
        let (target, reason, message) = (&plan.target, &plan.reason, &plan.message);
        let part = role.as_str();
        let is_news = self.is_news(controller, plan, ruling, now);
        match ruling {
            // Its end is told.
            Ruling::Admit => {}
            Ruling::Show if is_news => {
                tracing::info!(
                    controller, part, %target, reason, message,
                    "dry run: would be carried out"
                );
            }
            Ruling::Refuse(_) if is_news => {
                tracing::warn!(controller, part, %target, reason, message, "{ruling}");
            }
            Ruling::Show | Ruling::Refuse(_) | Ruling::Wait(_) => {
                tracing::debug!(controller, part, %target, reason, message, "{ruling}");
            }
        }
    }

    /// Whether a ruling has not been told for a while. Admissions and waits
    /// never are, and are not remembered.
    fn is_news(&mut self, controller: &str, plan: &Plan, ruling: &Ruling, now: Instant) -> bool {
        if matches!(ruling, Ruling::Admit | Ruling::Wait(_)) {
            return false;
        }
        if self.written.len() >= REMEMBERED {
            self.written.retain(|_, at| now.since(*at) < REPEAT_AFTER);
            if self.written.len() >= REMEMBERED {
                self.written.clear();
            }
        }
        let word = (
            controller.to_owned(),
            format!("{} {}", plan.target, plan.reason),
            ruling.as_str(),
        );
        let last = self.written.insert(word, now);
        last.is_none_or(|at| now.since(at) >= REPEAT_AFTER)
    }
}

fn log_outcome(controller: &str, decision: &Decision, plan: &Plan, outcome: &Outcome) {
    let (target, reason, message) = (&plan.target, &plan.reason, &plan.message);
    let Decision { revision, id } = decision;
    match &outcome.failed {
        None => tracing::info!(
            controller, revision, decision = id, %target, reason, message,
            "carried out"
        ),
        Some((_, failure)) if failure.class.means_gone() => {
            tracing::info!(
                controller, revision, decision = id, %target, reason, message,
                "was gone already"
            );
        }
        Some((step, failure)) => {
            tracing::warn!(
                controller, revision, decision = id, %target, reason, message,
                step, class = %failure.class,
                "failed, and is tried again if that can help: {}", failure.message
            );
        }
    }
}
