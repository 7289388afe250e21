//! The resync: enqueues every key that the triggers can name.

use std::collections::VecDeque;
use std::time::Duration;

use super::trigger::TriggerContext;
use crate::manifest::{Trigger, TriggerKey};
use crate::store::{View, ViewId};
use crate::time::Instant;

/// The keys of one page: few enough to be reconciled without delaying fresh events.
const PAGE: usize = 64;
/// How many pages without a key are read at once: a trigger may be about few objects.
const EMPTY_PAGES: usize = 16;
/// A resync rests this many times as long as its calls take.
const REST: u32 = 3;
/// The longest rest after one call: a long call waits for I/O, not for a processor.
const LONGEST_REST: Duration = Duration::from_millis(20);

/// How fast a resync goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pace {
    /// At full speed: the controller has just started.
    Brisk,
    /// With about a quarter of a processor, so that fresh changes do not wait.
    #[default]
    Easy,
}

/// A resync enqueues the keys a page at a time: all keys of a large cluster at once
/// would delay fresh events.
#[derive(Clone, Debug, Default)]
pub(super) struct Resync {
    left: VecDeque<(ViewId, Trigger)>,
    cursor: Cursor,
    pace: Pace,
    rests_until: Instant,
    /// Whether the resync waits until its last page is dequeued.
    is_crowded: bool,
}

#[derive(Clone, Debug, Default)]
enum Cursor {
    #[default]
    Start,
    At(u64),
    After(String),
}

impl Resync {
    /// Starts again from the first key.
    pub(super) fn start(&mut self, pace: Pace, triggers: impl Iterator<Item = (ViewId, Trigger)>) {
        self.left = triggers.collect();
        self.cursor = Cursor::Start;
        self.pace = pace;
    }

    /// A call over keys of the resync took this long.
    pub(super) fn call_took(&mut self, now: Instant, took: Duration) {
        if self.pace == Pace::Easy {
            let rest = took.saturating_mul(REST).min(LONGEST_REST);
            self.rests_until = self.rests_until.max(now).after(rest);
        }
    }

    /// When the next page is due, if nothing else happens.
    pub(super) fn due_at(&self, now: Instant) -> Option<Instant> {
        let is_unfinished = !self.left.is_empty() && !self.is_crowded;
        is_unfinished.then(|| self.rests_until.max(now))
    }

    /// The next keys and their queue. None at the end, during a rest, and while keys of
    /// a list are still pending: more would only lengthen the queues.
    pub(super) fn next(
        &mut self,
        now: Instant,
        is_crowded: bool,
        context: TriggerContext<'_>,
    ) -> Option<(String, Vec<String>)> {
        self.is_crowded = is_crowded;
        if is_crowded || now < self.rests_until {
            return None;
        }
        let (view, trigger) = self.left.front()?;
        let queue = trigger.queue.clone();
        let view = context.snapshot.view(*view);
        let (keys, cursor) = view.map_or_else(Default::default, |view| {
            page(trigger, &view, &self.cursor, context)
        });
        if cursor.is_none() {
            self.left.pop_front();
        }
        self.cursor = cursor.unwrap_or_default();
        Some((queue, keys))
    }
}

/// A page of objects: the keys of those that a trigger is about, and where the next one is.
fn own_keys(
    trigger: &Trigger,
    view: &View<'_>,
    cursor: u64,
    context: TriggerContext<'_>,
) -> (Vec<String>, Option<u64>) {
    let page = view.scan(cursor, PAGE);
    let keys = page.items.iter().filter_map(|entry| {
        let key = match trigger.key {
            TriggerKey::OwnUid => entry.object.uid().to_string(),
            _ => view.key_of(entry.object).into_owned(),
        };
        let objects = [None, Some(entry.object)];
        context
            .is_about(trigger, view, objects, &key)
            .then_some(key)
    });
    (keys.collect(), page.next)
}

fn page(
    trigger: &Trigger,
    view: &View<'_>,
    from: &Cursor,
    context: TriggerContext<'_>,
) -> (Vec<String>, Option<Cursor>) {
    let cursor = match from {
        Cursor::At(at) => *at,
        Cursor::Start | Cursor::After(_) => 0,
    };
    match &trigger.key {
        TriggerKey::OwnKey | TriggerKey::OwnUid => {
            let mut found = own_keys(trigger, view, cursor, context);
            for _ in 1..EMPTY_PAGES {
                let (keys, Some(next)) = &found else {
                    break;
                };
                if !keys.is_empty() {
                    break;
                }
                found = own_keys(trigger, view, *next, context);
            }
            let (keys, next) = found;
            (keys, next.map(Cursor::At))
        }
        TriggerKey::Constant(_) if view.is_empty() => (Vec::new(), None),
        TriggerKey::Constant(key) => (vec![key.clone()], None),
        TriggerKey::Index(index) => {
            let Some(index) = view.index(index) else {
                return (Vec::new(), None);
            };
            let after = match from {
                Cursor::After(value) => Some(value.as_str()),
                Cursor::Start | Cursor::At(_) => None,
            };
            let values = index.values(after, PAGE).into_iter();
            let values: Vec<String> = values.map(|(value, _)| value.to_owned()).collect();
            let full = values.len() == PAGE;
            let next = values.last().filter(|_| full).cloned();
            (values, next.map(Cursor::After))
        }
    }
}
