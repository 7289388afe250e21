//! What the host tells of its work: to the log, to the metrics, and to whoever
//! listens.
//!
//! A line of the log about a plan has a message of the host's own, and the same
//! fields whatever becomes of the plan. What the guest chose is in fields, on
//! one line and bounded.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use davit_cluster::write::Decision;
use davit_core::controller::Outcome;
use davit_core::failure::{Failure, FailureClass};
use davit_core::gate::{Ruling, Waiting};
use davit_core::plan::{PatchKind, Plan, QueueKey, Step};
use davit_core::rollout::Role;
use davit_core::throttle::{Suppressed, Throttle};
use davit_core::time::Instant;
use davit_core::untrusted::{self, MOST_LOGGED};
use tokio::sync::mpsc;

/// How long the same word about the same target is not repeated in the log.
const REPEAT_AFTER: Duration = Duration::from_mins(10);
/// How many such words are remembered: a pass of a guest that only shows what
/// it would do may name as many targets as the cluster has.
const REMEMBERED: usize = 200_000;

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Report {
    /// A controller has what it waited for and starts.
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
        /// The name of that revision.
        revision: Arc<str>,
        /// Whether the controller's mode is `DryRun`.
        dry_run: bool,
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
    /// When a ruling on a target was last written to the log, by a hash of both:
    /// there may be many.
    written: HashMap<u64, Instant>,
    /// Failures of plans that are the API server's.
    troubles: Throttle<(String, FailureClass)>,
}

impl Reporter {
    pub(super) fn new(listener: Option<mpsc::UnboundedSender<Report>>) -> Self {
        Self {
            listener,
            written: HashMap::new(),
            troubles: Throttle::default(),
        }
    }

    pub(super) fn tell(&mut self, report: Report, now: Instant) {
        match &report {
            Report::Started { controller } => {
                tracing::info!(controller, "controller started");
            }
            Report::Ruled {
                controller,
                role,
                revision,
                dry_run,
                plan,
                ruling,
                ..
            } => {
                let is_news = self.is_news(controller, plan, ruling, now);
                // A pass may show thousands that nobody reads.
                if is_news || tracing::enabled!(tracing::Level::DEBUG) {
                    let line = Line::of(controller, revision, *dry_run, plan);
                    log_ruling(&line, *role, ruling, is_news);
                }
            }
            Report::Carried {
                controller,
                decision,
                plan,
                outcome,
            } => {
                let line = Line::of(controller, &decision.revision, false, plan);
                let failed = outcome.failed.as_ref();
                let warns = failed.and_then(|(step, failure)| {
                    let is_loud = !is_first_of_its_kind(plan, *step, failure);
                    is_loud.then(|| self.warns(controller, failure, now))?
                });
                log_outcome(&line, &decision.id, plan, outcome, warns);
            }
        }
        if let Some(listener) = &self.listener {
            // Nobody listening any more is no reason to stop.
            let _ = listener.send(report);
        }
    }

    /// Whether a failed plan is worth a warning. What is wrong with the API server
    /// is not told again for every target.
    fn warns(&mut self, controller: &str, failure: &Failure, now: Instant) -> Option<Suppressed> {
        match failure.class {
            FailureClass::Timeout | FailureClass::Throttled | FailureClass::Server => {
                let cause = (controller.to_owned(), failure.class);
                self.troubles.admit(cause, now)
            }
            _ => Some(Suppressed(0)),
        }
    }

    /// Whether a ruling has not been told for a while. Admissions never are, and
    /// of waits only those for a kind. A controller that only shows its plans
    /// shows them at every pass: the log has each once.
    fn is_news(&mut self, controller: &str, plan: &Plan, ruling: &Ruling, now: Instant) -> bool {
        match ruling {
            Ruling::Admit => return false,
            Ruling::Wait(waiting) if *waiting != Waiting::NotServed => return false,
            Ruling::Wait(_) | Ruling::Show | Ruling::Refuse(_) => {}
        }
        if self.written.len() >= REMEMBERED {
            self.written.retain(|_, at| now.since(*at) < REPEAT_AFTER);
            if self.written.len() >= REMEMBERED {
                self.written.clear();
            }
        }
        let mut word = DefaultHasher::new();
        (controller, &plan.target, &plan.reason, ruling.as_str()).hash(&mut word);
        let last = self.written.insert(word.finish(), now);
        last.is_none_or(|at| now.since(at) >= REPEAT_AFTER)
    }
}

/// The fields that every line about a plan has.
struct Line<'a> {
    controller: &'a str,
    revision: &'a str,
    dry_run: bool,
    action: String,
    api_version: String,
    kind: String,
    namespace: String,
    name: String,
    uid: String,
    reason: String,
    guest_message: String,
}

impl<'a> Line<'a> {
    fn of(controller: &'a str, revision: &'a str, dry_run: bool, plan: &Plan) -> Self {
        let data = |text: &str| untrusted::line(text, MOST_LOGGED);
        let target = &plan.target;
        Self {
            controller,
            revision,
            dry_run,
            action: action(plan),
            api_version: data(&target.api_version),
            kind: data(&target.kind),
            namespace: data(&target.namespace),
            name: data(&target.name),
            uid: data(&target.uid),
            reason: data(&plan.reason),
            guest_message: data(&plan.message),
        }
    }
}

/// Writes a line about a plan: its level, its fields, more fields, its message.
macro_rules! log {
    ($level:ident, $line:expr, { $($more:tt)* }, $($message:tt)+) => {{
        let Line {
            controller,
            revision,
            dry_run,
            action,
            api_version,
            kind,
            namespace,
            name,
            uid,
            reason,
            guest_message,
        } = $line;
        tracing::$level!(
            action,
            dry_run,
            api_version,
            kind,
            namespace,
            name,
            uid,
            reason,
            guest_message,
            controller,
            revision,
            $($more)*
            $($message)+
        )
    }};
}

fn log_ruling(line: &Line<'_>, role: Role, ruling: &Ruling, is_news: bool) {
    let part = role.as_str();
    // The guest named the kind or the permission that this is about.
    let because = untrusted::line(&ruling.to_string(), MOST_LOGGED);
    let ruled = ruling.as_str();
    match ruling {
        // Its end is told.
        Ruling::Admit => {}
        Ruling::Show if is_news => {
            log!(info, line, { part, }, "dry run: would {}", line.action);
        }
        Ruling::Refuse(_) if is_news => {
            log!(warn, line, { part, ruling = ruled, because, }, "refused: {}", line.action);
        }
        Ruling::Wait(Waiting::NotServed) if is_news => {
            log!(warn, line, { part, ruling = ruled, because, }, "waits: {}", line.action);
        }
        Ruling::Show | Ruling::Refuse(_) | Ruling::Wait(_) => {
            log!(debug, line, { part, ruling = ruled, because, }, "not carried out: {}", line.action);
        }
    }
}

/// Whether what failed is a strategic merge patch of a kind that takes none, as
/// custom resources do not. The guest learns of it and sends a merge patch: the
/// first of each kind is no reason to warn.
fn is_first_of_its_kind(plan: &Plan, step: u32, failure: &Failure) -> bool {
    let patch = plan.steps.get(step as usize);
    let is_strategic =
        matches!(patch, Some(Step::Patch(patch)) if patch.kind == PatchKind::StrategicMerge);
    is_strategic && failure.class == FailureClass::UnsupportedMedia
}

fn log_outcome(
    line: &Line<'_>,
    decision: &str,
    plan: &Plan,
    outcome: &Outcome,
    warns: Option<Suppressed>,
) {
    let Some((step, failure)) = &outcome.failed else {
        log!(info, line, { decision, }, "carried out: {}", line.action);
        return;
    };
    if failure.class.means_gone() {
        log!(info, line, { decision, }, "the target was gone: {}", line.action);
        return;
    }
    let failed = plan.steps.get(*step as usize).map_or("none", verb);
    let class = failure.class.as_str();
    let error = untrusted::line(&failure.message, MOST_LOGGED);
    let then = match failure.class {
        FailureClass::RefusedByGate => "",
        _ => "; will retry",
    };
    if let Some(left_out) = warns {
        log!(
            warn,
            line,
            { decision, step, failed, class, error, },
            "failed: {}{then}{left_out}",
            line.action
        );
    } else {
        log!(
            debug,
            line,
            { decision, step, failed, class, error, },
            "failed: {}{then}",
            line.action
        );
    }
}

/// What a plan does to its target, in order: `patch+delete`. Events tell of it
/// and do nothing, so they count only where there is nothing else.
fn action(plan: &Plan) -> String {
    let does = |step: &&Step| !matches!(step, Step::Event(_));
    let mut verbs: Vec<&str> = plan.steps.iter().filter(does).map(verb).collect();
    verbs.dedup();
    match (verbs.as_slice(), plan.steps.first()) {
        ([], None) => "nothing".to_owned(),
        ([], Some(_)) => "event".to_owned(),
        (verbs, _) => verbs.join("+"),
    }
}

const fn verb(step: &Step) -> &'static str {
    match step {
        Step::Patch(_) => "patch",
        Step::Delete(_) => "delete",
        Step::Evict(_) => "evict",
        Step::Create(_) => "create",
        Step::Event(_) => "event",
    }
}

#[cfg(test)]
mod tests {
    use davit_core::object::ObjectRef;
    use davit_core::plan::{DeleteOptions, Event, Patch, PatchKind};

    use super::*;

    fn acts(steps: Vec<Step>) -> String {
        action(&Plan {
            target: ObjectRef::default(),
            reason: String::new(),
            message: String::new(),
            steps,
            measures: vec![],
            when_cancelled: None,
        })
    }

    #[test]
    fn an_action_names_what_is_done_to_the_target() {
        let patch = Step::Patch(Patch {
            kind: PatchKind::Merge,
            subresource: "status".to_owned(),
            body: vec![0x80],
        });
        let event = Step::Event(Event {
            event_type: "Normal".to_owned(),
            reason: "Gone".to_owned(),
            message: String::new(),
            component: "test".to_owned(),
        });
        let delete = Step::Delete(DeleteOptions::default());
        let evict = Step::Evict(DeleteOptions::default());
        assert_eq!(acts(vec![delete.clone()]), "delete");
        assert_eq!(acts(vec![evict]), "evict");
        assert_eq!(
            acts(vec![event.clone(), patch.clone(), delete]),
            "patch+delete"
        );
        assert_eq!(acts(vec![patch.clone(), patch]), "patch");
        assert_eq!(acts(vec![event]), "event");
        assert_eq!(acts(vec![]), "nothing");
    }

    fn failed(step: Step, class: FailureClass) -> (Plan, Failure) {
        let plan = Plan {
            target: ObjectRef::default(),
            reason: String::new(),
            message: String::new(),
            steps: vec![step],
            measures: vec![],
            when_cancelled: None,
        };
        (plan, Failure::new(class, "refused"))
    }

    /// Custom resources take no strategic merge patch, and there is no other patch
    /// to try where a merge patch is not understood.
    #[test]
    fn a_strategic_merge_patch_that_is_not_understood_is_no_warning() {
        let patch = |kind| {
            Step::Patch(Patch {
                kind,
                subresource: String::new(),
                body: vec![0x80],
            })
        };
        for (kind, class, quiet) in [
            (
                PatchKind::StrategicMerge,
                FailureClass::UnsupportedMedia,
                true,
            ),
            (PatchKind::StrategicMerge, FailureClass::Invalid, false),
            (PatchKind::Merge, FailureClass::UnsupportedMedia, false),
        ] {
            let (plan, failure) = failed(patch(kind), class);
            assert_eq!(is_first_of_its_kind(&plan, 0, &failure), quiet, "{kind:?}");
        }
    }

    #[test]
    fn what_is_wrong_with_the_server_is_not_told_for_every_target() {
        let mut reporter = Reporter::new(None);
        let mut warned = |class, millis| {
            let now = Instant::from_nanos(millis * 1_000_000);
            let (_, failure) = failed(Step::Delete(DeleteOptions::default()), class);
            reporter.warns("a", &failure, now).is_some()
        };
        let count = |warned: &mut dyn FnMut(FailureClass, u64) -> bool, class| {
            (0..1_000)
                .filter(|number| warned(class, 9 * number))
                .count()
        };
        assert_eq!(count(&mut warned, FailureClass::Timeout), 1);
        assert_eq!(count(&mut warned, FailureClass::Throttled), 1);
        assert_eq!(count(&mut warned, FailureClass::Invalid), 1_000);
    }
}
