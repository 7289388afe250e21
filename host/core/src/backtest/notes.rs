//! What is special about a journal and a policy: the notes of a report.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::Missing;
use super::regret::UnknownRegret;
use super::report::{Activity, UndecidedReport};
use crate::object::ObjectRef;

/// What the notes of the report are made of.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) restarts: u64,
    pub(super) losses: u64,
    /// The names of the recorded revisions.
    pub(super) revisions: BTreeSet<String>,
    pub(super) has_not_led: bool,
    pub(super) was_not_enforced: bool,
    pub(super) pending_items: u64,
    /// The objects whose deletion the recorded controller has asked for without an answer.
    pub(super) unanswered: u64,
    /// The kinds of the targets of plans that no recorded list has, as far as they are listed.
    unrecorded_kinds: BTreeSet<String>,
}

/// How many kinds without a recorded list are named.
const MOST_KINDS: usize = 10;

impl Notes {
    /// A plan has a target of a kind that no recorded list has.
    pub(super) fn unrecorded_kind(&mut self, target: &ObjectRef) {
        if self.unrecorded_kinds.len() < MOST_KINDS {
            let kind = format!("{} {}", target.api_version, target.kind);
            self.unrecorded_kinds.insert(kind);
        }
    }

    /// The notes, for a person. `dry_runs` counts the objects whose recorded deletion was a dry
    /// run.
    pub(super) fn texts(
        &self,
        open_loop: bool,
        activity: &Activity,
        dry_runs: u64,
        missing: &Missing,
        undecided: &UndecidedReport,
    ) -> Vec<String> {
        let Self {
            restarts,
            losses,
            revisions,
            has_not_led,
            was_not_enforced,
            pending_items,
            unanswered: _,
            unrecorded_kinds: _,
        } = self;
        let mut notes = Vec::new();
        let mut note = |holds: bool, text: String| {
            if holds {
                notes.push(text);
            }
        };
        note(
            *restarts > 0,
            format!(
                "another host, or the same one after a gap, continued the journal {restarts} times"
            ),
        );
        note(
            *losses > 0,
            format!("parts of the journal are missing: {losses}"),
        );
        note(missing.millis() >= 1_000, of_missing(missing));
        note(
            missing.damaged_parts > 0,
            format!(
                "parts of the journal cannot be read: {}; the first: {}",
                missing.damaged_parts,
                missing.damage.first().map_or("", String::as_str)
            ),
        );
        note(
            revisions.len() > 1,
            format!(
                "the recorded controller had several revisions: {}",
                revisions.iter().cloned().collect::<Vec<_>>().join(", ")
            ),
        );
        note(
            *has_not_led,
            "the recording host did not lead the controller all the time: what another host \
             executed is not in this journal"
                .to_owned(),
        );
        note(
            *was_not_enforced,
            format!(
                "the recorded controller was not enforced all the time: for {dry_runs} objects, \
                 its deletion was a dry run"
            ),
        );
        note(
            open_loop,
            "in an open loop, objects that the policy deletes stay, and guardrails do not trip"
                .to_owned(),
        );
        for (holds, text) in self.of_activity(activity) {
            note(holds, text);
        }
        note(
            undecided.reads > 0,
            format!(
                "not decidable: {}{} items at the end, {} of them moot by then; {} decided late; \
                 {} live reads failed, because the journal has no answer to them: {}",
                if undecided.is_cut { "more than " } else { "" },
                undecided.items,
                undecided.moot_items,
                undecided.late_items,
                undecided.reads,
                undecided.first_reads.join("; ")
            ),
        );
        note(
            *pending_items > 0,
            format!(
                "time ends with the last entry, when {pending_items} items of the policy wait for \
                 a later time: what they would decide then is not counted"
            ),
        );
        notes
    }

    /// What was not modelled, and what was answered otherwise or not at all: whether it holds, and
    /// the note.
    fn of_activity(&self, activity: &Activity) -> [(bool, String); 4] {
        let kinds: Vec<&str> = self.unrecorded_kinds.iter().map(String::as_str).collect();
        let unanswered = self.unanswered;
        [
            (
                unanswered > 0,
                format!(
                    "the recorded controller asked for {unanswered} deletions of which the journal \
                     has no answer, or one of 5xx: what went at that time counts as unknown"
                ),
            ),
            (
                activity.unmodelled_patches > 0,
                format!(
                    "patches that could not be applied: {}",
                    activity.unmodelled_patches
                ),
            ),
            (
                activity.unrecorded_targets > 0,
                format!(
                    "not modelled: {} plans about kinds that no recorded list has: {}. A deletion \
                     that only one side has of them counts as unknown",
                    activity.unrecorded_targets,
                    kinds.join(", ")
                ),
            ),
            (
                activity.recorded_reads > 0,
                format!(
                    "live reads that got a recorded answer to the same read, of up to a minute \
                     before: {}",
                    activity.recorded_reads
                ),
            ),
        ]
    }
}

/// What the journal does not have of the span.
fn of_missing(missing: &Missing) -> String {
    let mut text = format!(
        "the journal has nothing about {} seconds of the span",
        missing.millis() / 1_000
    );
    let ends = missing.before.saturating_add(missing.after);
    if ends > 0 {
        let parts = [missing.before, missing.after].map(|millis| millis / 1_000);
        let [before, after] = parts;
        let _ = write!(
            text,
            ": {before} of them before the policy starts, {after} after the last entry"
        );
    }
    text
}

/// The deletions of both sides of which nobody knows whether they were unnecessary.
pub(super) fn of_regret(unknown: &[UnknownRegret; 2]) -> Option<String> {
    let [candidate, other] = unknown;
    let lacks: BTreeSet<String> = unknown
        .iter()
        .flat_map(|side| &side.lacks)
        .map(ToString::to_string)
        .collect();
    let is_known = candidate.deletions == 0 && other.deletions == 0;
    (!is_known).then(|| {
        format!(
            "regret is not known: the journal does not say whether {} deletions of the candidate, \
             and {} of the other side, were unnecessary. It lacks: {}",
            candidate.deletions,
            other.deletions,
            lacks.into_iter().collect::<Vec<_>>().join("; ")
        )
    })
}
