//! The decisions about an object, for a person.

use std::fmt::Write as _;

use davit_core::object::ObjectRef;
use davit_core::untrusted::line;
use serde_json::Value;

use super::ObjectStory;
use super::story::{ReportedDecision, ReportedPlan, Saw};
use crate::commands::journal::LONGEST;

/// The longest fields of an object in a line, in bytes.
const LONGEST_FIELDS: usize = 8 * LONGEST;

/// All objects, a paragraph for each decision.
pub(super) fn text(objects: &[ObjectStory]) -> String {
    let mut parts = Vec::new();
    for object in objects {
        parts.push(heading(object));
        parts.extend(object.decisions.iter().map(reported));
    }
    parts.join("\n\n")
}

fn heading(story: &ObjectStory) -> String {
    let target = &story.object;
    let object = ObjectRef {
        api_version: target.api_version.clone(),
        kind: target.kind.clone(),
        namespace: target.namespace.clone(),
        name: target.name.clone(),
        uid: target.uid.clone(),
    };
    let mut text = line(&object.to_string(), LONGEST);
    let _ = write!(
        text,
        "\nin the journal from {} to {}",
        story.first, story.last
    );
    if let Some(left) = &story.left_cache {
        let _ = write!(text, ", left the cache at {left}");
    }
    if story.decisions.is_empty() {
        text.push_str("\nNo decision about it is recorded in this span.");
    }
    text
}

fn reported(reported: &ReportedDecision) -> String {
    let revision = &reported.revision;
    let mut text = format!(
        "{} {} revision {} ({})",
        reported.time,
        line(&reported.controller, LONGEST),
        line(&revision.name, LONGEST),
        revision.role
    );
    if !revision.module.is_empty() {
        let (module, configuration) = (&revision.module, &revision.configuration);
        let _ = write!(text, "\n  module {module}, configuration {configuration}");
    }
    if let Some(item) = &reported.item {
        let due = format!("{} {} ({})", item.queue, item.key, item.reason);
        let _ = write!(text, "\n  due: {}", line(&due, LONGEST));
        if item.attempt > 0 {
            let _ = write!(text, ", after {} failed attempts", item.attempt);
        }
    }
    saw(&mut text, &reported.saw);
    let content = &reported.content;
    if let Some(failure) = &content.failure {
        let _ = write!(text, "\n  the call failed: {}", line(failure, LONGEST));
    }
    for one in &content.plans {
        plan(&mut text, one);
    }
    for command in &content.commands {
        let _ = write!(text, "\n  command: {}", line(command, LONGEST));
    }
    if content.other_plans > 0 {
        let count = content.other_plans;
        let _ = write!(text, "\n  plans about other objects: {count}");
    }
    if let Some(verdict) = &content.verdict {
        let took = reported.took_millis;
        let _ = write!(
            text,
            "\n  verdict: {}, in {took} ms",
            line(verdict, LONGEST)
        );
    }
    if content.is_void {
        text.push_str("\n  The answer came too late and counted for nothing.");
    }
    if reported.count > 1 {
        let (count, last) = (reported.count, &reported.last_time);
        let _ = write!(text, "\n  the same {count} times, the last at {last}");
        if let Some(last) = &reported.last_saw {
            text.push_str("\n  The last time it");
            saw(&mut text, last);
        }
    }
    text
}

fn saw(text: &mut String, saw: &Saw) {
    if let Some(why) = &saw.unknown {
        let _ = write!(text, "\n  saw: not known: {}", line(why, LONGEST));
        return;
    }
    if saw.object.is_empty() {
        text.push_str("\n  saw: its watches did not have the object");
    }
    for (watch, fields) in &saw.object {
        let watch = line(watch, LONGEST);
        let _ = write!(text, "\n  saw in {watch}: {}", json(fields));
    }
    for one in &saw.related {
        let name = line(&format!("{} {}", one.kind, one.name), LONGEST);
        let fields = one.fields.as_ref().map(json);
        let fields = fields.unwrap_or_else(|| "not in its watches".to_owned());
        let _ = write!(text, "\n  {} {name}: {fields}", one.relation);
    }
    for read in &saw.live_reads {
        let _ = write!(text, "\n  read live: {}", line(read, LONGEST));
    }
}

fn plan(text: &mut String, plan: &ReportedPlan) {
    let (actions, reason, message) = (&plan.actions, &plan.reason, &plan.message);
    let decided = line(&format!("{actions} ({reason}): {message}"), 2 * LONGEST);
    let _ = write!(text, "\n  decided: {decided}");
    if let Some(ruling) = &plan.ruling {
        let message = line(&ruling.message, LONGEST);
        let _ = write!(text, "\n    ruling: {}: {message}", ruling.ruling);
    }
    if let Some(execution) = &plan.execution {
        let (result, took) = (execution.result, execution.took_millis);
        let _ = write!(text, "\n    executed: {result} in {took} ms");
        if let Some(message) = &execution.message {
            let _ = write!(text, ": {}", line(message, LONGEST));
        }
    }
}

fn json(fields: &Value) -> String {
    line(&fields.to_string(), LONGEST_FIELDS)
}
