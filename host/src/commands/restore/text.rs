//! The report for a person. Texts of the journal and the cluster are on one line each, without
//! control characters.

use anyhow::Result;
use davit_core::untrusted::line;

use super::{CopyReport, Report, RestoreResult};
use crate::cli::Format;
use crate::commands::print::{serialized, text_at};

/// The longest line of an object, in bytes.
const LONGEST: usize = 64 * 1024;

pub(super) fn text(report: &Report) -> Result<String> {
    let mut lines = vec![copy(&report.copy)];
    if !report.others.is_empty() {
        lines.push("Other copies (--uid UID or --at TIME chooses one of them):".to_owned());
        lines.extend(report.others.iter().map(|one| format!("  {}", copy(one))));
    }
    if let Some(damage) = &report.damage {
        lines.push(format!(
            "warning: a part of the journal cannot be read: {damage}"
        ));
    }
    lines.extend(
        report
            .skipped
            .iter()
            .map(|entry| format!("warning: skipped, because it cannot be read: {entry}")),
    );
    let named = report.skipped.len() as u64;
    if report.skipped_count > named {
        let more = report.skipped_count - named;
        lines.push(format!("warning: skipped: {more} more entries"));
    }
    lines.extend(report.notes.iter().cloned());
    lines.push(String::new());
    let object = serialized(&report.object, Format::Yaml)?;
    lines.extend(object.lines().map(ToOwned::to_owned));
    lines.push(String::new());
    lines.push(result(report));
    let lines = lines.iter().map(|one| line(one, LONGEST));
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

/// `2026-11-25T08:00:00.000Z v1 Pod default/web-0 (UID): kept before a deletion by podgc (…): orphaned`
fn copy(copy: &CopyReport) -> String {
    let CopyReport {
        kept_at,
        object,
        controller,
        revision,
        reason,
        being_deleted,
    } = copy;
    let key = match object.namespace.as_str() {
        "" => object.name.clone(),
        namespace => format!("{namespace}/{}", object.name),
    };
    let (version, kind, uid) = (&object.api_version, &object.kind, &object.uid);
    format!(
        "{kept_at} {version} {kind} {key} ({uid}): kept before a deletion by {controller} \
         ({revision}): {reason}{}",
        if *being_deleted {
            " (it was being deleted already)"
        } else {
            ""
        }
    )
}

fn result(report: &Report) -> String {
    let message = report.message.as_deref().unwrap_or_default();
    let answer = report.answer.as_ref();
    let uid = answer.map_or("", |answer| text_at(answer, "/metadata/uid"));
    match report.result {
        RestoreResult::DryRun => {
            "Dry run: the API server would create the object. --apply creates it.".to_owned()
        }
        RestoreResult::Created => format!("Created, with the uid {uid}."),
        RestoreResult::Refused => format!("Not created: {message}"),
        RestoreResult::Unknown => format!("Unknown whether it was created: {message}"),
        RestoreResult::NotAsked => {
            format!("No cluster was asked, and the references were not checked: {message}")
        }
    }
}
