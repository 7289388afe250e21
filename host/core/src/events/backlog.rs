//! The queue of events to send. Events of one object are sent one after the other,
//! because a repetition patches the event before it. A repetition of an event that is
//! still in the queue replaces it: the event is sent once, with the later count.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::object::ObjectRef;
use crate::request::event::CorrelatedEvent;
use crate::time::Instant;

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
    /// Whether this attempt has sent both requests.
    is_resent: bool,
}

/// What happened to an event that was added.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Push {
    /// It waits.
    Queued,
    /// It replaced the event that it repeats, which was not sent yet.
    Merged,
}

/// The events in the queue, and the objects of the events that are being sent.
#[derive(Debug)]
pub(super) struct Backlog {
    /// The most events in the queue.
    capacity: usize,
    objects: BTreeMap<ObjectRef, ObjectQueue>,
    /// Objects whose next event can be sent, in the order of arrival.
    ready: VecDeque<ObjectRef>,
    /// Objects whose next event is retried at that time.
    backing_off: BTreeSet<(Instant, ObjectRef)>,
    waiting: usize,
}

#[derive(Debug, Default)]
struct ObjectQueue {
    events: VecDeque<QueuedEvent>,
    /// Whether one of its events is being sent or backs off, or the object is in `ready`.
    is_queued: bool,
}

impl Backlog {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            objects: BTreeMap::new(),
            ready: VecDeque::new(),
            backing_off: BTreeSet::new(),
            waiting: 0,
        }
    }

    /// Adds an event. Returns it instead if the queue has no room for another one.
    pub(super) fn push(&mut self, event: CorrelatedEvent) -> Result<Push, Box<CorrelatedEvent>> {
        let line = self.objects.get_mut(&event.involved);
        let same = line.and_then(|line| {
            let mut events = line.events.iter_mut();
            events.find(|waiting| waiting.event.name == event.name)
        });
        if let Some(waiting) = same {
            waiting.event = event;
            return Ok(Push::Merged);
        }
        if self.waiting >= self.capacity {
            return Err(event.into());
        }
        let object = event.involved.clone();
        let line = self.objects.entry(object.clone()).or_default();
        line.events.push_back(QueuedEvent {
            is_known: event.count > 1,
            event,
            attempts: 0,
            is_resent: false,
        });
        self.waiting += 1;
        if !std::mem::replace(&mut line.is_queued, true) {
            self.ready.push_back(object);
        }
        Ok(Push::Queued)
    }

    /// The next event to send. The caller reports its end with `done`, `resend` or
    /// `retry`.
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
        Some(next)
    }

    /// An event was sent or dropped.
    pub(super) fn done(&mut self, object: &ObjectRef) {
        if let Some(line) = self.objects.get_mut(object) {
            if line.events.is_empty() {
                self.objects.remove(object);
            } else {
                self.ready.push_back(object.clone());
            }
        }
    }

    /// The event is sent next, with the other request. Returns the event instead if both
    /// were sent.
    pub(super) fn resend(&mut self, mut event: QueuedEvent) -> Option<QueuedEvent> {
        if std::mem::replace(&mut event.is_resent, true) {
            self.done(&event.event.involved);
            return Some(event);
        }
        event.is_known = !event.is_known;
        self.ready.push_front(event.event.involved.clone());
        self.put_back(event);
        None
    }

    /// The server could not be reached: the event is retried after a pause. Returns the
    /// event instead if that was its last attempt.
    pub(super) fn retry(&mut self, mut event: QueuedEvent, now: Instant) -> Option<QueuedEvent> {
        event.attempts += 1;
        event.is_resent = false;
        if event.attempts >= MOST_ATTEMPTS {
            self.done(&event.event.involved);
            return Some(event);
        }
        let object = event.event.involved.clone();
        self.backing_off.insert((now.after(RETRY_PAUSE), object));
        self.put_back(event);
        None
    }

    fn put_back(&mut self, event: QueuedEvent) {
        self.waiting += 1;
        let line = self.objects.entry(event.event.involved.clone());
        line.or_default().events.push_front(event);
    }

    /// Drops all events.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.capacity);
    }

    /// When the next retry is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.backing_off.first().map(|(at, _)| *at)
    }

    /// How many events wait, without those that are being sent.
    pub(super) fn len(&self) -> usize {
        self.waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::tests::{event, pod};
    use crate::time::Wall;

    const CAPACITY: usize = 10_000;

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
            first: Wall(0),
            last: Wall(0),
        }
    }

    fn taken(backlog: &mut Backlog, now: Instant) -> Vec<(String, u32, bool)> {
        let all = std::iter::from_fn(|| backlog.take(now));
        all.map(|it| (it.event.name, it.event.count, it.is_known))
            .collect()
    }

    #[test]
    fn a_repetition_of_a_queued_event_replaces_it() {
        let mut backlog = Backlog::new(CAPACITY);
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
        let mut backlog = Backlog::new(CAPACITY);
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
        let mut backlog = Backlog::new(CAPACITY);
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
        let mut backlog = Backlog::new(CAPACITY);
        for number in 0..CAPACITY {
            backlog.push(about(&number.to_string(), "e", 1)).unwrap();
        }
        assert!(backlog.push(about("one more", "e", 1)).is_err());
        assert_eq!(backlog.push(about("7", "e", 2)), Ok(Push::Merged));
        assert_eq!(backlog.len(), CAPACITY);
    }
}
