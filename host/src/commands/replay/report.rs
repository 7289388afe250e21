//! What a replay found, as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use davit_core::journal::{RecordedCall, SnapshotReads};
use davit_core::plan::Decision;
use davit_core::untrusted::line;
use jiff::Timestamp;

use super::reads::{ComparedLines, GuestReads};
use crate::commands::journal::{LONGEST, decision};
use crate::commands::why::lines_of_key;

/// How many reads are listed at one place.
const MOST_READS: usize = 100;

/// What a replay found.
#[derive(Default)]
pub(super) struct Report {
    /// The calls that were made again, and how many of them have another decision, by
    /// controller.
    calls: BTreeMap<String, (u64, u64)>,
    /// The calls that were not made again, by the reason.
    skipped: BTreeMap<String, u64>,
    first: Option<Box<FirstDifference>>,
    /// The first part that cannot be read, and how many there are.
    damaged: Option<(String, u64)>,
}

/// The first call that has another decision now.
pub(super) struct FirstDifference {
    pub(super) call: RecordedCall,
    pub(super) difference: String,
    /// The two answers.
    pub(super) sides: [Side; 2],
}

/// One of two answers to a call.
pub(super) struct Side {
    pub(super) title: String,
    /// The decisions as text, or why there are none.
    pub(super) decisions: String,
    pub(super) reads: GuestReads,
}

impl Side {
    /// The recorded answer.
    pub(super) fn recorded(call: &RecordedCall, reads: SnapshotReads) -> Self {
        Self {
            title: "recorded".to_owned(),
            decisions: decisions(call.result.as_deref().unwrap_or_default()),
            reads: GuestReads::recorded(call, reads),
        }
    }
}

impl Report {
    pub(super) fn skip(&mut self, why: String) {
        *self.skipped.entry(why).or_default() += 1;
    }

    pub(super) fn damaged(&mut self, problem: String) {
        self.damaged.get_or_insert((problem, 0)).1 += 1;
    }

    pub(super) fn same(&mut self, controller: &str) {
        self.calls.entry(controller.to_owned()).or_default().0 += 1;
    }

    pub(super) fn different(
        &mut self,
        controller: &str,
        difference: impl FnOnce() -> FirstDifference,
    ) {
        let counts = self.calls.entry(controller.to_owned()).or_default();
        counts.0 += 1;
        counts.1 += 1;
        if self.first.is_none() {
            self.first = Some(Box::new(difference()));
        }
    }

    /// How many calls have another decision.
    pub(super) fn difference_count(&self) -> u64 {
        self.calls.values().map(|(_, different)| different).sum()
    }

    /// How many calls were made again.
    pub(super) fn call_count(&self) -> u64 {
        self.calls.values().map(|(calls, _)| calls).sum()
    }

    /// The first part of the journal that cannot be read; none if there is none.
    pub(super) fn problem(&self) -> Option<&str> {
        self.damaged.as_ref().map(|(problem, _)| problem.as_str())
    }

    pub(super) fn text(&self) -> String {
        let calls = self.call_count();
        let different = self.difference_count();
        let skipped: u64 = self.skipped.values().sum();
        let identical = calls - different;
        let mut lines = vec![format!(
            "{calls} calls: {identical} identical, {different} different, {skipped} skipped"
        )];
        for (controller, (calls, different)) in &self.calls {
            let identical = calls - different;
            lines.push(format!(
                "  {}: {identical} identical, {different} different",
                line(controller, LONGEST)
            ));
        }
        let skipped = self.skipped.iter();
        lines.extend(
            skipped.map(|(why, count)| format!("  skipped {count}: {}", line(why, LONGEST))),
        );
        if let Some((problem, count)) = &self.damaged {
            let problem = line(problem, LONGEST);
            lines.push(format!("  damaged parts: {count}, the first: {problem}"));
        }
        lines.extend(self.first.iter().map(|first| first.text()));
        lines.join("\n")
    }
}

impl FirstDifference {
    pub(super) fn text(&self) -> String {
        let mut text = self.heading();
        let difference = &self.difference;
        let _ = write!(text, "\n  {}", line(difference, LONGEST));
        self.items(&mut text);
        self.answers(&mut text);
        if self.call.is_stripped {
            text.push_str(
                "\n  The cache had Secrets. The journal does not have their data, so the guest \
                 may decide otherwise.",
            );
        }
        text
    }

    fn heading(&self) -> String {
        let call = &self.call;
        let at = Timestamp::from_millisecond(call.now.wall.0).unwrap_or_default();
        format!(
            "first difference: call {}-{} of {} at {at}\n  revision {} ({}), module sha256:{}",
            call.id.controller.0,
            call.id.number,
            line(&call.controller, LONGEST),
            line(&call.revision.name, LONGEST),
            call.role.as_str(),
            call.revision.module
        )
    }

    /// The items, with what the guest saw of the objects that they name.
    fn items(&self, text: &mut String) {
        let call = &self.call;
        for (position, item) in call.items.iter().enumerate() {
            let reason = call.reasons.get(position).map_or("page", |it| it.as_str());
            let (queue, key) = (line(&item.queue, LONGEST), line(&item.key, LONGEST));
            let _ = write!(text, "\n  item {position}: {queue} {key} ({reason})");
            indent(text, &lines_of_key(call, &item.key));
        }
    }

    /// Both answers, with what each of them read. What both read is listed once.
    fn answers(&self, text: &mut String) {
        let [first, second] = &self.sides;
        let lines = |side: &Side| side.reads.lines(self.call.now);
        let ComparedLines { both, only } = ComparedLines::new(lines(first), lines(second));
        if !both.is_empty() {
            text.push_str("\n  both:");
            indent(text, &both);
        }
        for (side, only) in self.sides.iter().zip(&only) {
            let (title, decisions) = (&side.title, &side.decisions);
            let _ = write!(text, "\n  {title}:\n    {decisions}");
            indent(text, only);
        }
    }
}

/// Adds lines, and how many more there are.
fn indent(text: &mut String, lines: &[String]) {
    for one in lines.iter().take(MOST_READS) {
        let _ = write!(text, "\n    {one}");
    }
    if let Some(others @ 1..) = lines.len().checked_sub(MOST_READS) {
        let _ = write!(text, "\n    and {others} more");
    }
}

/// Decisions as text, for a person.
pub(super) fn decisions(decisions: &[Decision]) -> String {
    let each = decisions.iter().map(decision);
    each.collect::<Vec<_>>().join("\n    ")
}

#[cfg(test)]
mod tests;
