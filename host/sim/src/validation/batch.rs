//! Jobs and cron jobs.

use serde_json::{Value, json};

use super::at::FieldLocation;
use super::{go, metadata, pod, selector};
use crate::object::Object;
use crate::selector::LabelSelector;
use crate::status::FieldError;

/// A job.
pub(super) fn job(job: &Object, errors: &mut Vec<FieldError>) {
    let spec = FieldLocation::field(job, "spec");
    job_spec(&spec, errors);
    let chosen = spec.child("selector");
    if chosen.is_set() {
        selector::label_selector(&chosen, errors);
    } else {
        errors.push(chosen.required(""));
    }
    let labels = spec.child("template").child("metadata").child("labels");
    let selects = LabelSelector::from_json(Some(chosen.value).filter(|value| !value.is_null()));
    if !selects.matches(&selector::label_values(labels.value)) {
        errors.push(labels.invalid("`selector` does not match template `labels`"));
    }
}

fn job_spec(spec: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    for counter in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
    ] {
        spec.child(counter).not_negative(errors);
    }
    let mode = spec.child("completionMode");
    match mode.text() {
        "" | "NonIndexed" => {}
        "Indexed" => {
            if !spec.child("completions").is_set() {
                let completions = spec.child("completions");
                errors.push(completions.required("when completion mode is Indexed"));
            }
        }
        _ => errors.push(mode.not_supported(&["Indexed", "NonIndexed"])),
    }
    let template = spec.child("template");
    pod::template(&template, errors);
    let restart = template.child("spec").child("restartPolicy");
    match restart.text() {
        "OnFailure" | "Never" => {}
        "Always" => errors.push(restart.required("valid values: \"OnFailure\", \"Never\"")),
        _ => errors.push(restart.not_supported(&["OnFailure", "Never"])),
    }
}

/// What may not change in a job.
pub(super) fn job_update(new: &Object, old: &Object, errors: &mut Vec<FieldError>) {
    let field = |job: &Object, name: &str| job.at(&["spec", name]).cloned().unwrap_or_default();
    let parallelism = FieldLocation::field(new, "spec").child("parallelism");
    let elastic = new.text(&["spec", "completionMode"]) == "Indexed"
        && field(new, "completions") == *parallelism.value;
    if !elastic {
        let (new, old) = (field(new, "completions"), field(old, "completions"));
        metadata::immutable("spec.completions", &new, &old, errors);
    }
    let (chosen, before) = (field(new, "selector"), field(old, "selector"));
    if chosen != before {
        let printed = go::selector(&chosen);
        errors.push(FieldError::invalid_printed(
            "spec.selector",
            &printed,
            "field is immutable",
        ));
    }
    // The template of a suspended job may change until the job starts.
    let movable = old.at(&["spec", "suspend"]) == Some(&json!(true))
        && old.at(&["status", "startTime"]).is_none_or(Value::is_null);
    if field(new, "template") != field(old, "template") && !movable {
        let template = FieldLocation::field(new, "spec").child("template");
        errors.push(template.invalid("field is immutable"));
    }
    let (mode, before) = (field(new, "completionMode"), field(old, "completionMode"));
    metadata::immutable("spec.completionMode", &mode, &before, errors);
}

/// The counters of a job's status.
pub(super) fn job_status(job: &Object, errors: &mut Vec<FieldError>) {
    let status = FieldLocation::field(job, "status");
    for counter in ["active", "succeeded", "failed", "ready", "terminating"] {
        status.child(counter).not_negative(errors);
    }
}

/// A cron job.
pub(super) fn cron_job(cron_job: &Object, errors: &mut Vec<FieldError>) {
    const NAME_LIMIT: usize = 52;
    let spec = FieldLocation::field(cron_job, "spec");
    let schedule = spec.child("schedule");
    if schedule.is_empty() {
        errors.push(schedule.required(""));
    } else if let Some(problem) = schedule_problem(schedule.text()) {
        errors.push(schedule.invalid(problem));
    }
    spec.child("startingDeadlineSeconds").not_negative(errors);
    spec.child("concurrencyPolicy")
        .one_of(&["Allow", "Forbid", "Replace"], errors);
    let template = spec.child("jobTemplate").child("spec");
    job_spec(&template, errors);
    if template.child("selector").is_set() {
        let chosen = template.child("selector");
        errors.push(FieldError::invalid_printed(
            chosen.path(),
            &go::selector(chosen.value),
            "`selector` will be auto-generated",
        ));
    }
    for history in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        spec.child(history).not_negative(errors);
    }
    let name = &cron_job.metadata.name;
    if name.len() > NAME_LIMIT {
        errors.push(FieldError::invalid(
            "metadata.name",
            &json!(name),
            format!("must be no more than {NAME_LIMIT} characters"),
        ));
    }
}

/// Checks the number of fields, not their values.
fn schedule_problem(schedule: &str) -> Option<String> {
    let mut fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields
        .first()
        .is_some_and(|first| first.starts_with("TZ=") || first.starts_with("CRON_TZ="))
    {
        fields.remove(0);
    }
    match fields.as_slice() {
        [one] if one.starts_with('@') => {
            let known = [
                "@yearly",
                "@annually",
                "@monthly",
                "@weekly",
                "@daily",
                "@midnight",
                "@hourly",
            ];
            (!known.contains(one)).then(|| format!("unrecognized descriptor: {one}"))
        }
        ["@every", _] => None,
        fields if fields.len() == 5 => None,
        fields => Some(format!(
            "expected exactly 5 fields, found {}: [{}]",
            fields.len(),
            fields.join(" ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_have_five_fields() {
        assert_eq!(schedule_problem("*/5 * * * *"), None);
        assert_eq!(schedule_problem("CRON_TZ=UTC 0 0 * * *"), None);
        assert_eq!(schedule_problem("@daily"), None);
        assert_eq!(
            schedule_problem("often"),
            Some("expected exactly 5 fields, found 1: [often]".to_owned())
        );
    }
}
