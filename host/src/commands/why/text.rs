//! The decisions about an object, for a person.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use davit_core::object::ObjectRef;
use davit_core::untrusted::line;
use serde_json::{Map, Value};

use super::ObjectStory;
use super::requests::{NOT_SENT, OK, PreparedRequest, ReportedRequest};
use super::story::{Related, ReportedDecision, ReportedPlan, Revision, Saw};
use crate::commands::journal::{LONGEST, LONGEST_FIELDS, ReportedRead};

/// All objects, a paragraph for each decision.
pub(super) fn text(objects: &[ObjectStory]) -> String {
    let mut parts = Vec::new();
    for object in objects {
        parts.push(heading(object));
        // The last revision of each controller in each role.
        let mut former = BTreeMap::new();
        for one in &object.decisions {
            let before = former.insert((&one.controller, one.revision.role), &one.revision);
            parts.push(reported(one, before));
        }
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

/// `former` is the revision of the same controller that decided before in the same role.
fn reported(reported: &ReportedDecision, former: Option<&Revision>) -> String {
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
    configuration(&mut text, revision, former);
    if let Some(item) = &reported.item {
        let due = format!("{} {} ({})", item.queue, item.key, item.reason);
        let _ = write!(text, "\n  due: {}", line(&due, LONGEST));
        if item.attempt > 0 {
            let _ = write!(text, ", after {} failed attempts", item.attempt);
        }
    }
    add(&mut text, &saw(&reported.saw));
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
            add(&mut text, &saw(last));
        }
    }
    text
}

/// The configuration, unless the former revision had the same, and what is other in it.
fn configuration(text: &mut String, revision: &Revision, former: Option<&Revision>) {
    let Some(config) = &revision.config else {
        return;
    };
    let former = former.and_then(|it| Some((&it.name, it.config.as_ref()?)));
    if former.is_some_and(|(_, before)| before == config) {
        return;
    }
    let _ = write!(text, "\n  config: {}", json(config));
    if let Some((name, before)) = former {
        let mut changes = Vec::new();
        changed("", before, config, &mut changes);
        let changes = format!("changed since {name}: {}", changes.join("; "));
        let _ = write!(text, "\n  {}", line(&changes, LONGEST_FIELDS));
    }
}

/// The fields in which two configurations differ, as `path: before, now after`.
fn changed(path: &str, before: &Value, after: &Value, changes: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            for name in names {
                let path = match path {
                    "" => name.clone(),
                    path => format!("{path}.{name}"),
                };
                let value =
                    |fields: &Map<String, Value>| fields.get(name).cloned().unwrap_or_default();
                changed(&path, &value(before), &value(after), changes);
            }
        }
        (before, after) if before != after => {
            let text = |value: &Value| match value {
                Value::Null => "not set".to_owned(),
                value => value.to_string(),
            };
            changes.push(format!("{path}: {}, now {}", text(before), text(after)));
        }
        _ => {}
    }
}

fn add(text: &mut String, lines: &[String]) {
    for one in lines {
        let _ = write!(text, "\n  {one}");
    }
}

/// What the guest saw, in lines.
pub(super) fn saw(saw: &Saw) -> Vec<String> {
    if let Some(why) = &saw.unknown {
        return vec![format!("saw: not known: {}", line(why, LONGEST))];
    }
    let mut lines = Vec::new();
    if saw.object.is_empty() {
        lines.push("saw: its watches did not have the object".to_owned());
    }
    let watches = saw.object.iter();
    lines.extend(watches.map(|(watch, fields)| {
        let watch = line(watch, LONGEST);
        format!("saw in {watch}: {}", json(fields))
    }));
    lines.extend(saw.related.iter().map(related));
    lines.extend(saw.live_reads.iter().map(read_live));
    lines
}

fn related(related: &Related) -> String {
    let name = line(&format!("{} {}", related.kind, related.name), LONGEST);
    let fields = related.fields.as_ref().map(json);
    let fields = fields.unwrap_or_else(|| "not in its watches".to_owned());
    format!("{} {name}: {fields}", related.relation)
}

/// A live read, in a line.
pub(in crate::commands) fn read_live(read: &ReportedRead) -> String {
    format!("read live: {}", read.text())
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
        if let Some(left) = &execution.left {
            let _ = write!(text, "; {left}");
        }
        for one in &execution.requests {
            request(text, one);
        }
    }
}

fn request(text: &mut String, request: &ReportedRequest) {
    let PreparedRequest { method, uri, body } = &request.request;
    let uri = line(uri, 2 * LONGEST);
    let _ = match request.answer {
        answer @ (OK | NOT_SENT) => write!(text, "\n      {method} {uri}: {answer}"),
        class => write!(text, "\n      {method} {uri}: the step failed ({class})"),
    };
    if !body.is_null() {
        let _ = write!(text, "\n        {}", json(body));
    }
}

fn json(fields: &Value) -> String {
    line(&fields.to_string(), LONGEST_FIELDS)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn revision(name: &str, config: Value) -> Revision {
        Revision {
            name: name.to_owned(),
            config: Some(config),
            ..Revision::default()
        }
    }

    /// What is printed of the configuration of the last of two revisions.
    fn printed(before: Value, after: Value) -> String {
        let mut text = String::new();
        let former = revision("a1", before);
        configuration(&mut text, &revision("b2", after), Some(&former));
        text
    }

    #[test]
    fn a_changed_configuration_is_printed_with_its_changes() {
        let before = json!({"threshold": 12, "quarantine": "40s", "rules": {"a": [1], "b": 2}});
        let after = json!({"threshold": 6, "period": "20s", "rules": {"a": [1, 3], "b": 2}});
        let expected = "changed since a1: period: not set, now \"20s\"; quarantine: \"40s\", now \
                        not set; rules.a: [1], now [1,3]; threshold: 12, now 6";
        let text = printed(before.clone(), after);
        assert!(text.starts_with("\n  config: {"), "{text}");
        assert!(text.ends_with(&format!("\n  {expected}")), "{text}");
        assert_eq!(printed(before.clone(), before), "");
    }
}
