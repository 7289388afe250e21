//! Correlates events before they are sent, by the rules of client-go's
//! `EventCorrelator`: it counts repetitions, aggregates similar events and filters
//! spam. `kubectl describe` then shows what people are used to.

use std::collections::BTreeSet;
use std::time::Duration;

use super::lru::Lru;
use crate::bucket::Bucket;
use crate::manifest::Rate;
use crate::object::ObjectRef;
use crate::plan::Event;
use crate::request::event::{CorrelatedEvent, Decision};
use crate::time::{Instant, Now, Wall};

/// How many keys each table keeps.
const CAPACITY: usize = 4096;
/// How many different messages of otherwise equal events are events of their own.
const MOST_MESSAGES: usize = 10;
/// After a pause of this length, an aggregate starts again.
const AGGREGATION_INTERVAL: Duration = Duration::from_mins(10);
/// The prefix of an aggregate's message.
const AGGREGATE_PREFIX: &str = "(combined from similar events): ";
/// The rate of events from one source about one object: a burst of 25, then one every
/// five minutes.
const SPAM: Rate = Rate {
    per_second: 1.0 / 300.0,
    burst: 25,
};

/// The rate of events from the guests of one controller, so that no guest fills the queue
/// of all.
const OF_CONTROLLER: Rate = Rate {
    per_second: 50.0,
    burst: 2_500,
};

/// An event as the recorder gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occurrence {
    /// The object that it is about.
    pub involved: ObjectRef,
    /// The type, the reason and the message.
    pub event: Event,
    /// The decision that caused it, if one did.
    pub decision: Option<Decision>,
}

/// Keeps what it needs to know of recent events.
#[derive(Debug)]
pub(super) struct Correlator {
    aggregates: Lru<AggregateKey, Aggregate>,
    series: Lru<SeriesKey, Option<Series>>,
    spam: Lru<SpamKey, Option<Bucket>>,
    controllers: Lru<String, Option<Bucket>>,
    names: Names,
}

/// Events that differ only in their message.
type AggregateKey = (SpamKey, String);
/// Events of one type from one source about one object.
type SpamKey = (String, ObjectRef, String);
/// Events that share one Event object with a count. An aggregate has no message here.
type SeriesKey = (AggregateKey, Option<String>);

#[derive(Debug, Default)]
struct Aggregate {
    messages: BTreeSet<String>,
    last: Option<Instant>,
}

/// Names events like client-go: the involved object's name with the time in
/// nanoseconds.
#[derive(Debug, Default)]
struct Names {
    /// The time in the last name. Another event has a later one, even if the clock stands
    /// still or jumps back: the API server would refuse it, or mix it up with the first.
    last: u64,
}

#[derive(Debug)]
struct Series {
    name: String,
    count: u32,
    first: Wall,
}

impl Default for Correlator {
    fn default() -> Self {
        Self {
            aggregates: Lru::new(CAPACITY),
            series: Lru::new(CAPACITY),
            spam: Lru::new(CAPACITY),
            controllers: Lru::new(CAPACITY),
            names: Names::default(),
        }
    }
}

impl Correlator {
    /// Returns the event to send for an occurrence; none if the spam filter drops it, or
    /// the rate of its controller does. If the count is above 1, the API server may have
    /// the event.
    pub(super) fn correlate(
        &mut self,
        occurrence: Occurrence,
        now: Now,
    ) -> Option<CorrelatedEvent> {
        let Occurrence {
            involved,
            mut event,
            decision,
        } = occurrence;
        if let Some(decision) = &decision
            && !take(
                self.controllers.entry(decision.controller.clone()),
                OF_CONTROLLER,
                now.instant,
            )
        {
            return None;
        }
        let spam: SpamKey = (
            event.component.clone(),
            involved.clone(),
            event.event_type.clone(),
        );
        let aggregate: AggregateKey = (spam.clone(), event.reason.clone());
        let aggregated = self.aggregates(aggregate.clone(), &event.message, now.instant);
        let message = (!aggregated).then(|| event.message.clone());
        if aggregated {
            event.message.insert_str(0, AGGREGATE_PREFIX);
        }
        let series = self
            .series
            .entry((aggregate, message))
            .get_or_insert_with(|| Series {
                name: self.names.name(&involved, now),
                count: 0,
                first: now.wall,
            });
        series.count = series.count.saturating_add(1);
        let correlated = CorrelatedEvent {
            name: series.name.clone(),
            involved,
            event,
            decision,
            count: series.count,
            first: series.first,
            last: now.wall,
        };
        take(self.spam.entry(spam), SPAM, now.instant).then_some(correlated)
    }

    /// Whether the event belongs to an aggregate, because there are too many different
    /// messages.
    fn aggregates(&mut self, key: AggregateKey, message: &str, now: Instant) -> bool {
        let aggregate = self.aggregates.entry(key);
        if aggregate
            .last
            .is_some_and(|last| now.since(last) > AGGREGATION_INTERVAL)
        {
            aggregate.messages.clear();
        }
        aggregate.last = Some(now);
        if aggregate.messages.contains(message) {
            return false;
        }
        if aggregate.messages.len() < MOST_MESSAGES {
            aggregate.messages.insert(message.to_owned());
            return false;
        }
        true
    }
}

impl Names {
    fn name(&mut self, involved: &ObjectRef, now: Now) -> String {
        const MILLISECOND: u64 = 1_000_000;
        let millis = u64::try_from(now.wall.0).unwrap_or_default();
        // The wall clock shows whole milliseconds.
        let fraction = now.instant.as_nanos() % MILLISECOND;
        let nanos = millis.saturating_mul(MILLISECOND).saturating_add(fraction);
        self.last = nanos.max(self.last.saturating_add(1));
        format!("{}.{:x}", involved.name, self.last)
    }
}

/// Takes a token, if there is one.
fn take(bucket: &mut Option<Bucket>, rate: Rate, now: Instant) -> bool {
    let bucket = bucket.get_or_insert_with(|| Bucket::full(Some(rate)));
    let has_token = bucket.next_token() <= now;
    if has_token {
        bucket.take(now);
    }
    has_token
}

#[cfg(test)]
mod tests {
    use super::*;

    fn occurrence(message: &str) -> Occurrence {
        Occurrence {
            involved: ObjectRef {
                api_version: "v1".into(),
                kind: "Pod".into(),
                namespace: "ns".into(),
                name: "p".into(),
                uid: "u-1".into(),
            },
            event: Event {
                event_type: "Normal".into(),
                reason: "TaintManagerEviction".into(),
                message: message.into(),
                component: "taint-eviction-controller".into(),
            },
            decision: None,
        }
    }

    fn correlate(
        correlator: &mut Correlator,
        occurrence: Occurrence,
        at: Wall,
    ) -> Option<CorrelatedEvent> {
        let since = u64::try_from(at.0).unwrap();
        let instant = Instant::ZERO.after(Duration::from_millis(since));
        correlator.correlate(occurrence, Now { instant, wall: at })
    }

    fn at(second: i64) -> Wall {
        Wall((1_700_000_000 + second) * 1000)
    }

    #[test]
    fn a_controller_with_too_many_events_does_not_take_the_place_of_others() {
        let mut correlator = Correlator::default();
        let mut is_sent = |controller: &str, number: usize, second| {
            let mut occurrence = occurrence("m");
            occurrence.involved.uid = number.to_string();
            occurrence.decision = Some(Decision {
                controller: controller.to_owned(),
                revision: "r".to_owned(),
                id: "1".to_owned(),
            });
            correlate(&mut correlator, occurrence, at(second)).is_some()
        };
        let sent = (0..3000).filter(|number| is_sent("a", *number, 0)).count();
        assert_eq!(sent, 2500);
        assert!(is_sent("b", 1, 0), "another controller");
        let sent = (0..3000).filter(|number| is_sent("a", *number, 1)).count();
        assert_eq!(sent, 50, "a second later");
    }

    #[test]
    fn a_repetition_raises_the_count_of_the_first() {
        let mut correlator = Correlator::default();
        let first = correlate(&mut correlator, occurrence("m"), at(0)).unwrap();
        let second = correlate(&mut correlator, occurrence("m"), at(5)).unwrap();
        assert_eq!(first.name, "p.17979cfe362a0000");
        assert_eq!(
            second,
            CorrelatedEvent {
                count: 2,
                last: at(5),
                ..first
            }
        );
    }

    /// Two events of one plan are recorded at the same time.
    #[test]
    fn events_of_the_same_moment_have_names_of_their_own() {
        let mut correlator = Correlator::default();
        let mut name = |message: &str, at| {
            let event = correlate(&mut correlator, occurrence(message), at);
            event.unwrap().name
        };
        assert_eq!(name("m", at(0)), "p.17979cfe362a0000");
        assert_eq!(name("another", at(0)), "p.17979cfe362a0001");
        // The wall clock jumps back.
        assert_eq!(name("a third", at(-1)), "p.17979cfe362a0002");
        assert_eq!(name("a fourth", at(1)), "p.17979cfe71c4ca00");
    }

    #[test]
    fn another_object_of_that_name_has_a_count_of_its_own() {
        let mut correlator = Correlator::default();
        correlate(&mut correlator, occurrence("m"), at(0)).unwrap();
        let mut other = occurrence("m");
        other.involved.uid = "u-2".into();
        assert_eq!(correlate(&mut correlator, other, at(1)).unwrap().count, 1);
    }

    #[test]
    fn many_similar_events_are_aggregated() {
        let mut correlator = Correlator::default();
        for number in 0..10 {
            let message = format!("message {number}");
            let sent = correlate(&mut correlator, occurrence(&message), at(number));
            assert_eq!(sent.unwrap().event.message, message);
        }
        let eleventh = correlate(&mut correlator, occurrence("11"), at(10)).unwrap();
        assert_eq!(eleventh.event.message, "(combined from similar events): 11");
        assert_eq!(eleventh.count, 1);
        let twelfth = correlate(&mut correlator, occurrence("12"), at(11)).unwrap();
        assert_eq!((&twelfth.name, twelfth.count), (&eleventh.name, 2));
        assert_eq!(twelfth.event.message, "(combined from similar events): 12");
        // An event with a message of its own keeps its own count.
        let old = correlate(&mut correlator, occurrence("message 3"), at(12)).unwrap();
        assert_eq!((old.event.message.as_str(), old.count), ("message 3", 2));
    }

    #[test]
    fn after_a_pause_messages_are_events_of_their_own_again() {
        let mut correlator = Correlator::default();
        for number in 0..11 {
            correlate(&mut correlator, occurrence(&number.to_string()), at(0));
        }
        let still = correlate(&mut correlator, occurrence("a"), at(600)).unwrap();
        assert!(still.event.message.starts_with(AGGREGATE_PREFIX));
        let apart = correlate(&mut correlator, occurrence("b"), at(1201)).unwrap();
        assert_eq!(apart.event.message, "b");
    }

    #[test]
    fn the_spam_filter_drops_events_of_one_object_and_type_only() {
        let mut correlator = Correlator::default();
        let mut passed = 0;
        for _ in 0..100 {
            passed += u32::from(correlate(&mut correlator, occurrence("m"), at(0)).is_some());
        }
        assert_eq!(passed, 25);
        let mut warning = occurrence("m");
        warning.event.event_type = "Warning".into();
        assert!(correlate(&mut correlator, warning, at(0)).is_some());
        assert!(correlate(&mut correlator, occurrence("m"), at(299)).is_none());
        let next = correlate(&mut correlator, occurrence("m"), at(301)).unwrap();
        assert_eq!(next.count, 102, "a dropped event counts too");
    }
}
