//! What an answer would make the host keep, before any of it is executed.

use std::collections::{BTreeMap, BTreeSet};

use super::Revision;
use crate::bounds::{Bound, BoundExceeded, Bounds, Ledger, Series, text};
use crate::controller::exchange::CallId;
use crate::plan::{Command, Enqueue, Measure, Plan, QueueKey};

/// A part of an answer.
pub(super) enum Part<'a> {
    Command(&'a mut Command),
    Plan(&'a mut Plan),
}

/// What an answer would make the host keep. Texts are cut first.
#[derive(Debug)]
pub(super) enum Count {
    /// What it adds if all of it is new. Most answers are far from every bound even so.
    AsIfNew(Ledger),
    /// What the host would keep.
    Exact(Box<ExactCount>),
}

impl Default for Count {
    fn default() -> Self {
        Self::AsIfNew(Ledger::default())
    }
}

/// An exact count, and what it has counted already.
#[derive(Debug)]
pub(super) struct ExactCount {
    before: Ledger,
    after: Ledger,
    items: BTreeSet<QueueKey>,
    groups: BTreeSet<(String, String)>,
    /// The size of each note after the answer; none if it is deleted.
    notes: BTreeMap<String, Option<usize>>,
    series: Series,
}

impl ExactCount {
    fn new(before: Ledger) -> Self {
        Self {
            before,
            after: before,
            items: BTreeSet::new(),
            groups: BTreeSet::new(),
            notes: BTreeMap::new(),
            series: Series::default(),
        }
    }
}

impl<G: Clone> Revision<G> {
    /// What the host keeps for this revision.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        let queues = self.items.queues().usage();
        Ledger {
            notes: self.notes.len(),
            note_bytes: self.note_bytes,
            queue_items: queues.items,
            queue_bytes: queues.bytes + queues.group_bytes,
            rate_groups: queues.groups,
            metric_series: self.series.len(),
        }
    }

    /// The bytes of objects that the calls in flight have read live.
    pub(in crate::controller) fn live_read_bytes(&self) -> usize {
        self.items.calls().map(|call| call.live_read_bytes).sum()
    }

    /// A call has read bytes live. Beyond the bound, it must not get them; nor beyond the room
    /// that the read had, even if other calls have ended since: such a list is not complete.
    pub(in crate::controller) fn handle_live_read(
        &mut self,
        id: CallId,
        bytes: usize,
        room: usize,
        most: usize,
    ) -> Result<(), BoundExceeded> {
        let had_read = self.live_read_bytes().max(most.saturating_sub(room));
        let wanted = had_read.saturating_add(bytes);
        let Some(called) = self.items.call_mut(id) else {
            return Ok(());
        };
        if wanted <= most {
            called.live_read_bytes += bytes;
            return Ok(());
        }
        let bound = Bound::LiveReadBytes;
        let exceeded = BoundExceeded {
            bound,
            wanted,
            most,
        };
        called.exceeded = Some(exceeded);
        Err(exceeded)
    }

    /// Adds a part of an answer to its count.
    pub(super) fn count_part(&self, count: &mut Count, part: Part<'_>) {
        match (count, part) {
            (Count::AsIfNew(added), Part::Command(command)) => {
                text::cut_command(command);
                added.add_command(command);
            }
            (Count::AsIfNew(added), Part::Plan(plan)) => {
                text::cut_plan(plan);
                added.metric_series += plan.measures.len();
            }
            (Count::Exact(count), Part::Command(command)) => self.count_command(count, command),
            (Count::Exact(count), Part::Plan(plan)) => {
                let measures = plan.measures.iter().map(|it| &it.measure);
                measures.for_each(|measure| self.count_measure(count, measure));
            }
        }
    }

    /// Whether the bounds allow the host to keep what an answer adds. Returns another count
    /// if this one is not exact enough to decide.
    pub(super) fn admit(
        &self,
        count: Count,
        bounds: &Bounds,
    ) -> Result<Option<Count>, BoundExceeded> {
        match count {
            Count::AsIfNew(added) => {
                let before = self.ledger();
                Ok(match before.admit(&before.plus(&added), bounds) {
                    Ok(()) => None,
                    Err(_) => Some(Count::Exact(Box::new(ExactCount::new(before)))),
                })
            }
            Count::Exact(count) => count.before.admit(&count.after, bounds).map(|()| None),
        }
    }

    /// Whether the rest of an answer cannot change that it exceeds a bound: a later note may
    /// delete an earlier one, but nothing else becomes less.
    pub(super) fn is_refused(count: &Count, bounds: &Bounds) -> bool {
        let Count::Exact(count) = count else {
            return false;
        };
        let without_notes = |ledger: &Ledger| Ledger {
            notes: 0,
            note_bytes: 0,
            ..*ledger
        };
        let before = without_notes(&count.before);
        before.admit(&without_notes(&count.after), bounds).is_err()
    }

    /// A cancelled item does not make room for another of the same answer.
    fn count_command(&self, count: &mut ExactCount, command: &Command) {
        match command {
            Command::Enqueue(Enqueue { item, group, .. }) => {
                if !self.items.queues().is_pending(item) && count.items.insert(item.clone()) {
                    count.after.queue_items += 1;
                    count.after.queue_bytes += item.key.len();
                }
                count.after.queue_bytes += group.len();
                self.count_group(count, &item.queue, group);
            }
            Command::SetRate { queue, group, .. } => self.count_group(count, queue, group),
            Command::SetNote { key, value } => {
                let kept = || self.notes.get(key).map(|value| value.len());
                let before = count.notes.entry(key.clone()).or_insert_with(kept);
                let after = value.as_ref().map(Vec::len);
                let bytes = |value: Option<usize>| value.map_or(0, |it| key.len() + it);
                let ledger = &mut count.after;
                ledger.notes =
                    ledger.notes + usize::from(after.is_some()) - usize::from(before.is_some());
                ledger.note_bytes = ledger.note_bytes + bytes(after) - bytes(*before);
                *before = after;
            }
            Command::Measure(measure) => self.count_measure(count, measure),
            Command::Cancel(_) => {}
        }
    }

    fn count_group(&self, count: &mut ExactCount, queue: &str, group: &str) {
        // The group without a name is that of the items that name none.
        if group.is_empty() || self.items.queues().has_group(queue, group) {
            return;
        }
        if count.groups.insert((queue.to_owned(), group.to_owned())) {
            count.after.rate_groups += 1;
            count.after.queue_bytes += group.len();
        }
    }

    fn count_measure(&self, count: &mut ExactCount, measure: &Measure) {
        if !self.series.has(measure) && !count.series.has(measure) {
            count.series.add(measure);
            count.after.metric_series += 1;
        }
    }

    /// Writes a note, or deletes it.
    pub(super) fn set_note(&mut self, key: String, value: Option<Vec<u8>>) {
        let bytes = key.len();
        let before = match value {
            Some(value) => {
                self.note_bytes += bytes + value.len();
                self.notes.insert(key, value.into())
            }
            None => self.notes.remove(&key),
        };
        if let Some(before) = before {
            self.note_bytes -= bytes + before.len();
        }
    }
}
