//! The lines of the log.
//!
//! Each line about a plan has a message of the host and the same fields, whatever the
//! result of the plan. Text of a guest is in fields, on one line and bounded. The core
//! decides which reports are logged; this module decides how.

use davit_core::controller::Outcome;
use davit_core::failure::FailureClass;
use davit_core::gate::{Ruling, WaitReason};
use davit_core::machine::Report;
use davit_core::plan::{Plan, Step};
use davit_core::rollout::Role;
use davit_core::throttle::SuppressedCount;
use davit_core::untrusted::{self, MOST_LOGGED};
use davit_core::watch::Condition;

use super::decision::{DecisionName, DecisionNames};

/// Logs a report.
pub(super) fn log(report: &Report, names: &DecisionNames) {
    match report {
        Report::Removed { controller } => tracing::info!(controller, "controller stopped"),
        Report::Started {
            controller,
            account,
            ..
        } => {
            let account = account.as_ref().map(ToString::to_string);
            let account = account.as_deref().unwrap_or("Davit's own");
            tracing::info!(controller, account, "controller started");
        }
        Report::Promoted {
            controller,
            revision,
            ..
        } => tracing::info!(controller, %revision, "promoted"),
        Report::CandidateStarted {
            controller,
            revision,
            weight,
        } => tracing::info!(controller, %revision, weight, "candidate started"),
        Report::Paused { controller, role } => {
            let role = role.as_str();
            tracing::error!(
                controller,
                role,
                "the controller pauses: a watched resource is not served any more"
            );
        }
        Report::NotServed { guest, resource } => {
            let data = |text: &str| untrusted::line(text, MOST_LOGGED);
            let (guest, resource) = (data(guest), data(&resource.to_string()));
            tracing::warn!(
                guest,
                resource,
                "waiting for a resource that the API server does not serve"
            );
        }
        Report::Ruled {
            controller,
            role,
            revision,
            dry_run,
            decision,
            plan,
            ruling,
            is_news,
            ..
        } => {
            // A resync may rule on thousands of plans.
            if *is_news || tracing::enabled!(tracing::Level::DEBUG) {
                let name = names.name(*decision);
                let line = Line::of(controller, revision, *dry_run, &name, plan);
                log_ruling(&line, *role, ruling, *is_news);
            }
        }
        Report::Executed {
            controller,
            revision,
            decision,
            plan,
            outcome,
            warning,
            is_news,
            ..
        } if *is_news || outcome.failed.is_some() => {
            let name = names.name(*decision);
            let line = Line::of(controller, revision, false, &name, plan);
            log_outcome(&line, plan, outcome, *warning);
        }
        Report::Called { .. }
        | Report::CircuitOpened { .. }
        | Report::ReadForbidden { .. }
        | Report::Retried { .. } => log_guest(report, names),
        Report::Stream { .. }
        | Report::ListRefused { .. }
        | Report::DiscoveryFailed { .. }
        | Report::DiscoveryIncomplete { .. } => log_cluster(report),
        Report::Measured { .. }
        | Report::Dequeued { .. }
        | Report::Reconciled { .. }
        | Report::SyncError { .. }
        | Report::Executed { .. }
        | Report::SeriesDropped { .. }
        | Report::State(_) => {}
        Report::LogExceeded { controller, most } => tracing::warn!(
            controller,
            limit = most,
            "the guest's text exceeded limits.logKibPerMinute: lines are dropped for up to a \
             minute, except those about writes"
        ),
    }
}

fn log_guest(report: &Report, names: &DecisionNames) {
    let data = |text: &str| untrusted::line(text, MOST_LOGGED);
    match report {
        Report::Called {
            controller,
            role,
            failure: Some(failure),
            warning: Some(suppressed),
            ..
        } => {
            let (role, kind) = (role.as_str(), failure.kind.as_str());
            let error = data(&failure.message);
            let guest_message = data(&failure.guest_message);
            tracing::warn!(
                controller,
                role,
                kind,
                error,
                guest_message,
                "a call of the guest failed{suppressed}"
            );
        }
        Report::CircuitOpened {
            controller,
            role,
            pause,
            reason,
        } => {
            let (role, kind) = (role.as_str(), reason.kind.as_str());
            let error = data(&reason.message);
            let guest_message = data(&reason.guest_message);
            tracing::error!(
                controller,
                role,
                ?pause,
                kind,
                error,
                guest_message,
                "circuit open: the host does not call the guest for a while"
            );
        }
        Report::ReadForbidden {
            controller,
            failure,
            suppressed,
        } => {
            let error = data(&failure.message);
            tracing::warn!(controller, error, "a live read is forbidden{suppressed}");
        }
        Report::Retried {
            controller,
            role,
            item,
            decision,
            reason,
        } if tracing::enabled!(tracing::Level::DEBUG) => {
            let name = names.name(*decision);
            let (decision, trace_id) = (name.as_str(), name.ids().trace_text());
            let (role, queue) = (role.as_str(), data(&item.queue));
            let (key, guest_message) = (data(&item.key), data(reason));
            tracing::debug!(
                controller,
                role,
                queue,
                key,
                decision,
                trace_id,
                guest_message,
                "will retry the item"
            );
        }
        _ => {}
    }
}

fn log_cluster(report: &Report) {
    match report {
        Report::Stream {
            resource,
            condition,
            warning,
            ..
        } => match (condition, warning) {
            (Condition::Synced, _) => tracing::debug!(resource, "watched"),
            (Condition::NotServed, _) => {
                tracing::warn!(resource, "the API server does not serve it");
            }
            (Condition::Interrupted { reason }, Some(suppressed)) => {
                tracing::warn!(resource, "the watch was interrupted: {reason}{suppressed}");
            }
            (Condition::Interrupted { reason }, None) => {
                tracing::debug!(resource, "the watch was interrupted: {reason}");
            }
        },
        Report::ListRefused { reason } => tracing::error!("a list is not stored: {reason}"),
        Report::DiscoveryFailed {
            failure,
            warning: Some(suppressed),
        } => tracing::warn!("discovery failed: {failure}{suppressed}"),
        Report::DiscoveryFailed {
            failure,
            warning: None,
        } => tracing::debug!("discovery failed: {failure}"),
        Report::DiscoveryIncomplete { failed, suppressed } => {
            tracing::warn!(
                ?failed,
                "discovery is incomplete: some group versions did not answer{suppressed}"
            );
        }
        _ => {}
    }
}

/// The fields that every line about a plan has.
struct Line<'a> {
    controller: &'a str,
    revision: &'a str,
    dry_run: bool,
    decision: &'a str,
    trace_id: String,
    action: String,
    api_version: String,
    kind: String,
    namespace: String,
    name: String,
    uid: String,
    guest_reason: String,
    guest_message: String,
}

impl<'a> Line<'a> {
    fn of(
        controller: &'a str,
        revision: &'a str,
        dry_run: bool,
        decision: &'a DecisionName,
        plan: &Plan,
    ) -> Self {
        let data = |text: &str| untrusted::line(text, MOST_LOGGED);
        let target = &plan.target;
        Self {
            controller,
            revision,
            dry_run,
            decision: decision.as_str(),
            trace_id: decision.ids().trace_text(),
            action: action(plan),
            api_version: data(&target.api_version),
            kind: data(&target.kind),
            namespace: data(&target.namespace),
            name: data(&target.name),
            uid: data(&target.uid),
            guest_reason: data(&plan.reason),
            guest_message: data(&plan.message),
        }
    }
}

/// Writes a line about a plan: level, fields, additional fields, message.
macro_rules! log {
    ($level:ident, $line:expr, { $($more:tt)* }, $($message:tt)+) => {{
        let Line {
            controller,
            revision,
            dry_run,
            decision,
            trace_id,
            action,
            api_version,
            kind,
            namespace,
            name,
            uid,
            guest_reason,
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
            guest_reason,
            guest_message,
            controller,
            revision,
            decision,
            trace_id,
            $($more)*
            $($message)+
        )
    }};
}

fn log_ruling(line: &Line<'_>, role: Role, ruling: &Ruling, is_news: bool) {
    let role = role.as_str();
    // The text contains a kind or a permission that the guest chose.
    let because = untrusted::line(&ruling.to_string(), MOST_LOGGED);
    let ruled = ruling.as_str();
    match ruling {
        // The outcome is logged.
        Ruling::Admit => {}
        Ruling::DryRun if is_news => {
            log!(info, line, { role, }, "dry run: would {}", line.action);
        }
        Ruling::Refuse(_) if is_news => {
            log!(warn, line, { role, ruling = ruled, because, }, "refused: {}", line.action);
        }
        Ruling::Wait(WaitReason::NotServed) if is_news => {
            log!(warn, line, { role, ruling = ruled, because, }, "waits: {}", line.action);
        }
        Ruling::DryRun | Ruling::Refuse(_) | Ruling::Wait(_) => {
            log!(debug, line, { role, ruling = ruled, because, }, "not executed: {}", line.action);
        }
    }
}

fn log_outcome(line: &Line<'_>, plan: &Plan, outcome: &Outcome, warning: Option<SuppressedCount>) {
    let Some((step, failure)) = &outcome.failed else {
        log!(info, line, {}, "executed: {}", line.action);
        return;
    };
    if failure.class.means_gone() {
        log!(info, line, {}, "the target was gone: {}", line.action);
        return;
    }
    let failed = plan.steps.get(*step as usize).map_or("none", Step::verb);
    let class = failure.class.as_str();
    let error = untrusted::line(&failure.message, MOST_LOGGED);
    let then = match failure.class {
        FailureClass::RefusedByGate => "",
        _ => "; will retry",
    };
    if let Some(suppressed) = warning {
        log!(
            warn,
            line,
            { step, failed, class, error, },
            "failed: {}{then}{suppressed}",
            line.action
        );
    } else {
        log!(
            debug,
            line,
            { step, failed, class, error, },
            "failed: {}{then}",
            line.action
        );
    }
}

/// The effect of a plan on its target, in order: `patch+delete`. Events count only in a
/// plan without other steps.
pub(super) fn action(plan: &Plan) -> String {
    let does = |step: &&Step| !matches!(step, Step::Event(_));
    let mut verbs: Vec<&str> = plan.steps.iter().filter(does).map(Step::verb).collect();
    verbs.dedup();
    match (verbs.as_slice(), plan.steps.first()) {
        ([], None) => "nothing".to_owned(),
        ([], Some(_)) => "event".to_owned(),
        (verbs, _) => verbs.join("+"),
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
    fn an_action_names_the_steps_on_the_target() {
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
}
