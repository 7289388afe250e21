//! What the host keeps for one revision, as counts.

use super::{Bound, BoundExceeded, Bounds};
use crate::plan::Command;

/// What the host keeps for one revision. Each part counts itself when it changes, so a
/// ledger costs no scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Notes.
    pub notes: usize,
    /// Bytes of notes, with their keys.
    pub note_bytes: usize,
    /// Queue items.
    pub queue_items: usize,
    /// Bytes of queue items.
    pub queue_bytes: usize,
    /// Groups of queues.
    pub rate_groups: usize,
    /// Series of metrics.
    pub metric_series: usize,
}

impl Ledger {
    /// Whether the host may keep what `after` counts, if it keeps this now. What does not
    /// grow is never refused: an operator may have lowered a bound, and the cluster may
    /// have enqueued more keys than a guest may.
    pub fn admit(&self, after: &Self, bounds: &Bounds) -> Result<(), BoundExceeded> {
        let (before, after, most) = (self.values(), after.values(), Self::most(bounds).values());
        for (((bound, before), (_, after)), (_, most)) in before.into_iter().zip(after).zip(most) {
            if after > before && after > most {
                return Err(BoundExceeded {
                    bound,
                    wanted: after,
                    most,
                });
            }
        }
        Ok(())
    }

    /// What the host keeps if all of this is added.
    #[must_use]
    pub const fn plus(&self, added: &Self) -> Self {
        Self {
            notes: self.notes + added.notes,
            note_bytes: self.note_bytes + added.note_bytes,
            queue_items: self.queue_items + added.queue_items,
            queue_bytes: self.queue_bytes + added.queue_bytes,
            rate_groups: self.rate_groups + added.rate_groups,
            metric_series: self.metric_series + added.metric_series,
        }
    }

    /// What is kept, by bound, and the most of it.
    #[must_use]
    pub fn uses(&self, bounds: &Bounds) -> [(Bound, usize, usize); 6] {
        let mut most = Self::most(bounds).values().into_iter();
        let with_most = |(bound, used)| {
            let most = most.next().map_or(0, |(_, most)| most);
            (bound, used, most)
        };
        self.values().map(with_most)
    }

    /// Adds a command of an answer, as if it named nothing that is kept already.
    pub fn add_command(&mut self, command: &Command) {
        match command {
            Command::Enqueue(enqueue) => {
                self.queue_items += 1;
                self.queue_bytes += enqueue.item.key.len() + 2 * enqueue.group.len();
                self.rate_groups += usize::from(!enqueue.group.is_empty());
            }
            Command::SetRate { group, .. } => {
                self.rate_groups += 1;
                self.queue_bytes += group.len();
            }
            Command::SetNote {
                key,
                value: Some(value),
            } => {
                self.notes += 1;
                self.note_bytes += key.len() + value.len();
            }
            Command::Measure(_) => self.metric_series += 1,
            Command::SetNote { value: None, .. } | Command::Cancel(_) => {}
        }
    }

    /// The most of each.
    const fn most(bounds: &Bounds) -> Self {
        Self {
            notes: bounds.notes,
            note_bytes: bounds.note_bytes,
            queue_items: bounds.queue_items,
            queue_bytes: bounds.queue_bytes,
            rate_groups: bounds.rate_groups,
            metric_series: bounds.metric_series,
        }
    }

    const fn values(&self) -> [(Bound, usize); 6] {
        [
            (Bound::Notes, self.notes),
            (Bound::NoteBytes, self.note_bytes),
            (Bound::QueueItems, self.queue_items),
            (Bound::QueueBytes, self.queue_bytes),
            (Bound::RateGroups, self.rate_groups),
            (Bound::MetricSeries, self.metric_series),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_grows_is_refused() {
        let bounds = Bounds {
            notes: 2,
            queue_items: 2,
            ..Bounds::default()
        };
        let kept = |notes, queue_items| Ledger {
            notes,
            queue_items,
            ..Ledger::default()
        };
        assert_eq!(kept(0, 0).admit(&kept(2, 2), &bounds), Ok(()));
        // The cluster enqueued more than a guest may; that is not the notes' fault.
        assert_eq!(kept(0, 9).admit(&kept(1, 9), &bounds), Ok(()));
        assert_eq!(kept(5, 0).admit(&kept(4, 0), &bounds), Ok(()));
        let exceeded = kept(2, 9).admit(&kept(2, 10), &bounds).unwrap_err();
        assert_eq!(exceeded.bound, Bound::QueueItems);
        assert_eq!(
            exceeded.to_string(),
            "queueItems: the host would keep 10 queue items, and the limit is 2: fix the guest, \
             or raise limits.queueItems"
        );
    }
}
