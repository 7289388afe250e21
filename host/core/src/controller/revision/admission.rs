//! What an answer would make the host keep, before any of it is executed.

use std::collections::{BTreeMap, BTreeSet};

use super::Revision;
use crate::bounds::{Bound, BoundExceeded, Bounds, Ledger, Series};
use crate::controller::exchange::CallId;
use crate::plan::{Command, Decision, Measure};

impl<G: Clone> Revision<G> {
    /// What the host keeps for this revision.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        let queues = self.queues.usage();
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
        self.calls.values().map(|call| call.live_read_bytes).sum()
    }

    /// A call has read bytes live. Beyond the bound, it must not get them.
    pub(in crate::controller) fn handle_live_read(
        &mut self,
        id: CallId,
        bytes: usize,
        most: usize,
    ) -> Result<(), BoundExceeded> {
        let wanted = self.live_read_bytes() + bytes;
        let Some(called) = self.calls.get_mut(&id) else {
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

    /// Whether the bounds allow the host to keep what this answer adds.
    pub(super) fn admit(&self, answer: &[Decision], bounds: &Bounds) -> Result<(), BoundExceeded> {
        let before = self.ledger();
        // Most answers are far from every bound.
        if before.admit(&most_after(&before, answer), bounds).is_ok() {
            return Ok(());
        }
        before.admit(&self.after(before, answer), bounds)
    }

    /// What the host would keep after this answer. A cancelled item does not make room
    /// for another of the same answer.
    fn after(&self, mut ledger: Ledger, answer: &[Decision]) -> Ledger {
        let mut items = BTreeSet::new();
        let mut groups = BTreeSet::new();
        let mut notes = BTreeMap::new();
        for command in commands(answer) {
            match command {
                Command::Enqueue(enqueue) => {
                    let item = &enqueue.item;
                    if !self.queues.is_pending(item) && items.insert(item) {
                        ledger.queue_items += 1;
                        ledger.queue_bytes += item.key.len();
                    }
                    ledger.queue_bytes += enqueue.group.len();
                    groups.insert((item.queue.as_str(), enqueue.group.as_str()));
                }
                Command::SetRate { queue, group, .. } => {
                    groups.insert((queue.as_str(), group.as_str()));
                }
                Command::SetNote { key, value } => {
                    let kept = || self.notes.get(key).map(|value| value.len());
                    let before = notes.entry(key.as_str()).or_insert_with(kept);
                    let after = value.as_ref().map(Vec::len);
                    let bytes = |value: Option<usize>| value.map_or(0, |it| key.len() + it);
                    ledger.notes =
                        ledger.notes + usize::from(after.is_some()) - usize::from(before.is_some());
                    ledger.note_bytes = ledger.note_bytes + bytes(after) - bytes(*before);
                    *before = after;
                }
                Command::Cancel(_) | Command::Measure(_) => {}
            }
        }
        // The group without a name is that of the items that name none.
        groups.retain(|(queue, group)| !group.is_empty() && !self.queues.has_group(queue, group));
        ledger.rate_groups += groups.len();
        ledger.queue_bytes += groups.iter().map(|(_, group)| group.len()).sum::<usize>();
        let mut series = Series::default();
        let new = measures(answer).filter(|measure| !self.series.has(measure));
        new.for_each(|measure| series.add(measure));
        ledger.metric_series += series.len();
        ledger
    }

    /// Counts the series of an answer.
    pub(super) fn name_series(&mut self, answer: &[Decision]) {
        for measure in measures(answer) {
            self.series.add(measure);
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

/// The most that the host could keep after an answer: as if all of it were new.
fn most_after(before: &Ledger, answer: &[Decision]) -> Ledger {
    let mut most = *before;
    for command in commands(answer) {
        match command {
            Command::Enqueue(enqueue) => {
                most.queue_items += 1;
                most.queue_bytes += enqueue.item.key.len() + 2 * enqueue.group.len();
                most.rate_groups += usize::from(!enqueue.group.is_empty());
            }
            Command::SetRate { group, .. } => {
                most.rate_groups += 1;
                most.queue_bytes += group.len();
            }
            Command::SetNote {
                key,
                value: Some(value),
            } => {
                most.notes += 1;
                most.note_bytes += key.len() + value.len();
            }
            Command::SetNote { value: None, .. } | Command::Cancel(_) | Command::Measure(_) => {}
        }
    }
    most.metric_series += measures(answer).count();
    most
}

fn commands(answer: &[Decision]) -> impl Iterator<Item = &Command> {
    answer.iter().flat_map(|decision| &decision.commands)
}

/// Every measure that an answer may record.
fn measures(answer: &[Decision]) -> impl Iterator<Item = &Measure> {
    let of_commands = commands(answer).filter_map(|command| match command {
        Command::Measure(measure) => Some(measure),
        _ => None,
    });
    let plans = answer.iter().flat_map(|decision| &decision.plans);
    let of_plans = plans.flat_map(|plan| plan.measures.iter().map(|it| &it.measure));
    of_commands.chain(of_plans)
}
