//! A report for people.

use davit_core::untrusted;
use serde_json::Value;

use super::report::{ExplainedObject, Report, RuleOutcome};

/// The report's text.
pub(super) fn text(report: &Report, shows_all: bool) -> String {
    let mut lines = vec![heading(report)];
    for object in &report.explained {
        lines.push(String::new());
        lines.push(name_of(object));
        lines.extend(object.rules.iter().flat_map(outcome));
        if object.rules.is_empty() {
            lines.push("  no rule is about it".to_owned());
        }
    }
    if report.unmatched > 0 && !shows_all {
        lines.push(String::new());
        let number = counted(report.unmatched, "object");
        lines.push(format!("{number} that no rule matches (--all shows why)"));
    }
    lines.join("\n")
}

fn heading(report: &Report) -> String {
    let of = match report.controller.as_str() {
        "" => "rules".to_owned(),
        name => format!("Controller {}", safe(name)),
    };
    format!(
        "{of} at {}: {}, {}",
        report.now,
        counted(report.objects, "object"),
        counted(report.acts, "act")
    )
}

/// `1 object`, `2 objects`
pub(super) fn counted(number: usize, noun: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{s}")
}

fn name_of(object: &ExplainedObject) -> String {
    let namespace = match object.namespace.as_str() {
        "" => String::new(),
        namespace => format!("{namespace}/"),
    };
    safe(&format!("{} {namespace}{}", object.kind, object.name))
}

fn outcome(outcome: &RuleOutcome) -> Vec<String> {
    let rule = safe(&outcome.rule);
    let reason = safe(&outcome.reason);
    if outcome.steps.is_empty() {
        // A rule that selects an object does not wait for the end of that.
        let waits = ["not", "spared"].contains(&outcome.verdict);
        let mut lines = vec![match outcome.changes_at.as_ref().filter(|_| waits) {
            Some(time) => format!("  {rule}: waits until {time}: {reason}"),
            None => format!("  {rule}: {}{reason}", prefix(outcome.verdict)),
        }];
        lines.extend(outcome.values.iter().map(|(name, value)| {
            // A value in quotes is escaped already.
            format!("      {} is {}", safe(name), safe(value))
        }));
        return lines;
    }
    let mut lines = vec![format!("  {rule}: ACTS: {reason}")];
    lines.extend(
        outcome
            .steps
            .iter()
            .map(|step| format!("      {}", in_words(step))),
    );
    lines
}

fn prefix(outcome: &str) -> &'static str {
    match outcome {
        "not-matched" => "does not match: ",
        _ => "",
    }
}

/// A step on one line: `delete`, `patch {"metadata":…}`.
fn in_words(step: &Value) -> String {
    let entry = step.as_object().and_then(|it| it.iter().next());
    let Some((name, options)) = entry else {
        return String::new();
    };
    let is_plain = options.as_object().is_some_and(serde_json::Map::is_empty);
    if is_plain {
        return name.clone();
    }
    safe(&format!("{name} {options}"))
}

/// Text of a cluster or a file: no character controls the terminal.
fn safe(text: &str) -> String {
    untrusted::line(text, usize::MAX)
}
