//! The queue of events to send. Events of one object are sent one after the other,
//! because a repetition patches the event before it. A repetition of an event that is
//! still in the queue replaces it: the event is sent once, with the later count.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use davit_core::object::ObjectRef;
use davit_core::time::Instant;

use super::correlate::CorrelatedEvent;

/// The most events in the queue.
pub(super) const CAPACITY: usize = 10_000;
/// How often an event is sent while the server cannot be reached.
const MOST_ATTEMPTS: u32 = 12;
/// The pause before a retry.
pub(super) const RETRY_PAUSE: Duration = Duration::from_secs(10);

/// An event in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct QueuedEvent {
    pub(super) event: CorrelatedEvent,
    /// Whether the API server may have it already.
    pub(super) is_known: bool,
    attempts: u32,
}

/// The queue has no room for another event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BacklogFull;

/// The events in the queue, and the objects of the events that are being sent.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    objects: HashMap<ObjectRef, ObjectQueue>,
    /// Objects whose next event can be sent, in the order of arrival.
    ready: VecDeque<ObjectRef>,
    /// Objects whose next event is retried at that time.
    backing_off: BTreeSet<(Instant, ObjectRef)>,
    waiting: usize,
    sending: usize,
}

#[derive(Debug, Default)]
struct ObjectQueue {
    events: VecDeque<QueuedEvent>,
    /// Whether one of its events is being sent or backs off, or the object is in `ready`.
    is_queued: bool,
}

impl Backlog {
    /// Adds an event.
    pub(super) fn push(&mut self, event: CorrelatedEvent) -> Result<(), BacklogFull> {
        let line = self.objects.get_mut(&event.involved);
        let same = line.and_then(|line| {
            let mut events = line.events.iter_mut();
            events.find(|waiting| waiting.event.name == event.name)
        });
        if let Some(waiting) = same {
            waiting.event = event;
            return Ok(());
        }
        if self.waiting >= CAPACITY {
            return Err(BacklogFull);
        }
        let object = event.involved.clone();
        let line = self.objects.entry(object.clone()).or_default();
        line.events.push_back(QueuedEvent {
            is_known: event.count > 1,
            event,
            attempts: 0,
        });
        self.waiting += 1;
        if !std::mem::replace(&mut line.is_queued, true) {
            self.ready.push_back(object);
        }
        Ok(())
    }

    /// The next event to send. The caller reports its end with `done` or `retry`.
    pub(super) fn take(&mut self, now: Instant) -> Option<QueuedEvent> {
        while let Some((at, _)) = self.backing_off.first()
            && *at <= now
            && let Some((_, object)) = self.backing_off.pop_first()
        {
            self.ready.push_back(object);
        }
        let object = self.ready.pop_front()?;
        let next = self.objects.get_mut(&object)?.events.pop_front()?;
        self.waiting -= 1;
        self.sending += 1;
        Some(next)
    }

    /// An event was sent or dropped.
    pub(super) fn done(&mut self, object: &ObjectRef) {
        self.sending -= 1;
        if let Some(line) = self.objects.get_mut(object) {
            if line.events.is_empty() {
                self.objects.remove(object);
            } else {
                self.ready.push_back(object.clone());
            }
        }
    }

    /// The server could not be reached: the event is retried after a pause. Returns the
    /// event instead if that was its last attempt.
    pub(super) fn retry(&mut self, mut event: QueuedEvent, now: Instant) -> Option<QueuedEvent> {
        let object = event.event.involved.clone();
        event.attempts += 1;
        if event.attempts >= MOST_ATTEMPTS {
            self.done(&object);
            return Some(event);
        }
        self.sending -= 1;
        self.waiting += 1;
        if let Some(line) = self.objects.get_mut(&object) {
            line.events.push_front(event);
            self.backing_off.insert((now.after(RETRY_PAUSE), object));
        }
        None
    }

    /// When the next retry is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.backing_off.first().map(|(at, _)| *at)
    }

    /// How many events are not sent yet.
    pub(super) fn len(&self) -> usize {
        self.waiting + self.sending
    }

    pub(super) fn sending(&self) -> usize {
        self.sending
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::events::tests::event;
    use crate::testing::pod;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_secs(seconds))
    }

    fn about(object: &str, name: &str, count: u32) -> CorrelatedEvent {
        CorrelatedEvent {
            name: name.into(),
            involved: ObjectRef {
                name: object.into(),
                ..pod()
            },
            event: event("m"),
            decision: None,
            count,
            first: Timestamp::UNIX_EPOCH,
            last: Timestamp::UNIX_EPOCH,
        }
    }

    fn taken(backlog: &mut Backlog, now: Instant) -> Vec<(String, u32, bool)> {
        let all = std::iter::from_fn(|| backlog.take(now));
        all.map(|it| (it.event.name, it.event.count, it.is_known))
            .collect()
    }

    #[test]
    fn a_repetition_of_a_queued_event_replaces_it() {
        let mut backlog = Backlog::default();
        backlog.push(about("p", "p.1", 1)).unwrap();
        backlog.push(about("p", "p.1", 2)).unwrap();
        backlog.push(about("q", "q.1", 3)).unwrap();
        backlog.push(about("p", "p.1", 3)).unwrap();
        assert_eq!(backlog.len(), 2);
        // It was never created, and so it is created with its count.
        let expected = [("p.1".into(), 3, false), ("q.1".into(), 3, true)];
        assert_eq!(taken(&mut backlog, at(0)), expected);
        // An event that is being sent does not change any more.
        backlog.push(about("p", "p.1", 4)).unwrap();
        assert_eq!(taken(&mut backlog, at(0)), []);
        backlog.done(&about("p", "", 1).involved);
        assert_eq!(taken(&mut backlog, at(0)), [("p.1".into(), 4, true)]);
    }

    #[test]
    fn events_of_one_object_are_sent_one_after_the_other() {
        let mut backlog = Backlog::default();
        backlog.push(about("p", "p.1", 1)).unwrap();
        backlog.push(about("p", "p.2", 1)).unwrap();
        backlog.push(about("q", "q.1", 1)).unwrap();
        let names = |taken: Vec<(String, u32, bool)>| {
            let names = taken.into_iter().map(|it| it.0);
            names.collect::<Vec<_>>()
        };
        assert_eq!(names(taken(&mut backlog, at(0))), ["p.1", "q.1"]);
        backlog.done(&about("p", "", 1).involved);
        assert_eq!(names(taken(&mut backlog, at(0))), ["p.2"]);
        backlog.done(&about("p", "", 1).involved);
        backlog.done(&about("q", "", 1).involved);
        assert_eq!(backlog.len(), 0);
        assert!(backlog.objects.is_empty());
    }

    #[test]
    fn an_event_is_retried_for_two_minutes_while_the_server_is_unreachable() {
        let mut backlog = Backlog::default();
        backlog.push(about("p", "p.1", 1)).unwrap();
        backlog.push(about("p", "p.2", 1)).unwrap();
        let mut tries = 0;
        let last = loop {
            let now = at(10 * tries);
            let event = backlog.take(now).unwrap();
            assert_eq!(event.event.name, "p.1");
            tries += 1;
            if let Some(last) = backlog.retry(event, now) {
                break last;
            }
            assert_eq!(backlog.poll_timeout(), Some(at(10 * tries)));
            assert_eq!(backlog.take(at(10 * tries - 1)), None);
        };
        assert_eq!((last.event.name.as_str(), tries), ("p.1", 12));
        assert_eq!(backlog.take(at(120)).unwrap().event.name, "p.2");
    }

    #[test]
    fn the_queue_is_bounded_and_takes_repetitions_when_full() {
        let mut backlog = Backlog::default();
        for number in 0..CAPACITY {
            backlog.push(about(&number.to_string(), "e", 1)).unwrap();
        }
        assert_eq!(backlog.push(about("one more", "e", 1)), Err(BacklogFull));
        backlog.push(about("7", "e", 2)).unwrap();
        assert_eq!(backlog.len(), CAPACITY);
    }
}
