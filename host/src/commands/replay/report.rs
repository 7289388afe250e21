//! What a replay found, as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use davit_core::journal::{RecordedCall, SnapshotReads};
use davit_core::machine::ReadRequest;
use davit_core::notes::Notes;
use davit_core::plan::Decision;
use davit_core::untrusted::line;
use jiff::Timestamp;

use crate::commands::journal::{LONGEST, decision};

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
    /// What the two answers are.
    pub(super) titles: [String; 2],
    pub(super) recorded: String,
    pub(super) replayed: String,
    /// What the guest read then.
    pub(super) saw: String,
    /// What the guest reads now.
    pub(super) sees: String,
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
    fn text(&self) -> String {
        let call = &self.call;
        let at = Timestamp::from_millisecond(call.now.wall.0).unwrap_or_default();
        let mut text = format!(
            "first difference: call {}-{} of {} at {at}\n  revision {} ({}), module sha256:{}",
            call.id.controller.0,
            call.id.number,
            line(&call.controller, LONGEST),
            line(&call.revision.name, LONGEST),
            call.role.as_str(),
            call.revision.module
        );
        let difference = &self.difference;
        let _ = write!(text, "\n  {}", line(difference, LONGEST));
        for (position, item) in call.items.iter().enumerate() {
            let reason = call.reasons.get(position).map_or("page", |it| it.as_str());
            let (queue, key) = (line(&item.queue, LONGEST), line(&item.key, LONGEST));
            let _ = write!(text, "\n  item {position}: {queue} {key} ({reason})");
        }
        let [first, second] = &self.titles;
        for (title, decisions, reads) in [
            (first, &self.recorded, &self.saw),
            (second, &self.replayed, &self.sees),
        ] {
            let _ = write!(text, "\n  {title}:\n    {decisions}\n    it read {reads}");
        }
        if call.is_stripped {
            text.push_str(
                "\n  The cache had Secrets. The journal does not have their data, so the guest \
                 may decide otherwise.",
            );
        }
        text
    }
}

/// Decisions as text, for a person.
pub(super) fn decisions(decisions: &[Decision]) -> String {
    let each = decisions.iter().map(decision);
    each.collect::<Vec<_>>().join("\n    ")
}

/// What a guest read besides the cache when it was recorded. Where it read that something does
/// not exist, nothing is named.
pub(super) fn recorded_reads(call: &RecordedCall) -> String {
    let live = call.live.iter().map(|it| read(&it.request));
    text(notes(&call.notes).chain(live))
}

/// What a guest read of its queues and notes.
pub(super) fn reads(reads: &SnapshotReads) -> String {
    let present = reads.notes.iter();
    let present = present.filter_map(|(key, value)| Some((key.as_str(), value.as_ref()?.len())));
    text(present.map(note))
}

fn notes(notes: &Notes) -> impl Iterator<Item = String> {
    notes.iter().map(|(key, value)| note((key, value.len())))
}

fn note((key, bytes): (&str, usize)) -> String {
    format!("note {} ({bytes} bytes)", line(key, LONGEST))
}

fn text(parts: impl Iterator<Item = String>) -> String {
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() {
        "the cache".to_owned()
    } else {
        format!("the cache, {}", parts.join(", "))
    }
}

/// A live read.
pub(super) fn read(request: &ReadRequest) -> String {
    let text = match request {
        ReadRequest::Get(requests) => {
            let targets = requests.iter().map(|it| it.target.to_string());
            format!("get {}", targets.collect::<Vec<_>>().join(", "))
        }
        ReadRequest::List(request) => format!(
            "list {} namespace={:?} labels={:?} fields={:?}",
            request.resource, request.namespace, request.label_selector, request.field_selector
        ),
    };
    line(&text, LONGEST)
}
