//! Entries as lines for a person.

use davit_core::journal::{AnswerEntry, CallEntry, ControllerEntry, Entry, RevisionEntry};
use davit_core::object::Uid;
use davit_core::plan::{Decision, Plan, Step};
use davit_core::store::StateChange;
use davit_core::untrusted::line;

use super::json::{self, EntryLine};

/// The longest text of a guest or of the cluster in a line, in bytes.
pub(in crate::commands) const LONGEST: usize = 512;

/// The line of an entry.
pub(super) fn entry(shown: &EntryLine<'_>, entry: &Entry) -> String {
    let controller = shown
        .controller
        .map(|name| format!(" {}", line(name, LONGEST)));
    let controller = controller.unwrap_or_default();
    let details = line(&details(entry), 4 * LONGEST);
    let text = format!(
        "{} {:<10}{controller} {details}",
        shown.time,
        json::kind(entry)
    );
    text.trim_end().to_owned()
}

fn details(entry: &Entry) -> String {
    match entry {
        Entry::Keyframe { is_start: true } => "the host started".to_owned(),
        Entry::Keyframe { .. }
        | Entry::KeyframeEnd
        | Entry::Removed { .. }
        | Entry::Mapping(_)
        | Entry::Spec { .. } => String::new(),
        Entry::Cache(change) => cache(change),
        Entry::Unlisted(unlisted) => {
            let count: usize = unlisted.values().map(Vec::len).sum();
            format!("{count} resources")
        }
        Entry::Controller(controller) => revisions(controller),
        Entry::Call(call) => call_text(call),
        Entry::Answer(answer) => answer_text(answer),
        Entry::Failure { call, failure } => format!("{}: {failure}", json::call_name(*call)),
        Entry::Ruling(ruling) => {
            let (target, reason, ruling) = (&ruling.target, &ruling.reason, &ruling.ruling);
            format!("{reason} {target}: {ruling}")
        }
        Entry::Execution(execution) => {
            let (target, reason, took) = (&execution.target, &execution.reason, execution.took);
            let result = json::execution_result(execution);
            format!("{reason} {target}: {result} in {took:.1?}")
        }
        Entry::Held(held) => {
            let name = |uid: &Uid| format!(" ({uid})");
            let holds = held
                .holds
                .iter()
                .map(|it| format!(" {}{}", it.key(), name(it.uid())));
            let releases = held.releases.iter().map(name);
            let changes = [
                ("holds", holds.collect::<String>()),
                ("releases", releases.collect()),
            ];
            let changes = changes.into_iter().filter(|(_, which)| !which.is_empty());
            let changes = changes.map(|(what, which)| format!("{what}{which}"));
            changes.collect::<Vec<_>>().join(", ")
        }
        Entry::Kept(kept) => {
            let (target, reason, bytes) = (&kept.target, &kept.reason, kept.object.len());
            format!("{reason} {target}: {bytes} bytes")
        }
        Entry::Lost(lost) => format!("{}, {} bytes: too large", lost.what, lost.bytes),
        Entry::Stream(stream) => {
            format!("{} {}", stream.resource, json::condition(&stream.condition))
        }
    }
}

fn cache(change: &StateChange) -> String {
    let name = json::change_name(change);
    match change {
        StateChange::AddSegment { spec, .. } => format!("{name} {}", spec.resource),
        StateChange::Put { object, .. } => {
            let (key, uid, version) = (object.key(), object.uid(), object.version());
            format!("{name} {key} ({uid}) at {version}")
        }
        StateChange::Renew(renewals) => format!("{name} {} objects", renewals.renewed.len()),
        StateChange::Remove { uid, .. } => format!("{name} ({uid})"),
        _ => name.to_owned(),
    }
}

fn revisions(controller: &ControllerEntry) -> String {
    let revision = |role: &str, it: &RevisionEntry| format!("{role} {}", it.name);
    let stable = controller.stable.iter().map(|it| revision("stable", it));
    let candidate = controller.candidate.iter();
    let candidate = candidate.map(|it| revision("candidate", &it.revision));
    let all: Vec<String> = stable.chain(candidate).collect();
    if all.is_empty() {
        "starting".to_owned()
    } else {
        all.join(", ")
    }
}

fn call_text(call: &CallEntry) -> String {
    let items = call.items.iter().enumerate().map(|(position, item)| {
        let reason = call.reasons.get(position).map_or("page", |it| it.as_str());
        format!("{} {} ({reason})", item.queue, item.key)
    });
    let items: Vec<String> = items.collect();
    format!("{}: {}", json::call_name(call.id), items.join(", "))
}

fn answer_text(answer: &AnswerEntry) -> String {
    let result = match &answer.result {
        Ok(decisions) => decisions
            .iter()
            .map(decision)
            .collect::<Vec<_>>()
            .join(" | "),
        Err(failure) => format!("failed: {failure}"),
    };
    let (call, took) = (json::call_name(answer.call), answer.took);
    let late = if answer.is_void { ", too late" } else { "" };
    format!("{call} in {took:.1?}{late}: {result}")
}

/// A decision in one line.
pub(in crate::commands) fn decision(decision: &Decision) -> String {
    let plans = decision.plans.iter().map(plan);
    let commands = decision.commands.iter().map(json::command);
    let verdict = json::verdict(&decision.verdict);
    let parts: Vec<String> = plans.chain(commands).chain([verdict]).collect();
    line(&parts.join("; "), 4 * LONGEST)
}

fn plan(plan: &Plan) -> String {
    let steps: Vec<&str> = plan.steps.iter().map(Step::verb).collect();
    let (target, reason) = (&plan.target, &plan.reason);
    format!("{} {target} ({reason})", steps.join("+"))
}
