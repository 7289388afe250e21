//! What becomes of an event before it is sent: repetitions are counted, similar
//! events are drawn together, and floods are dropped. The rules are those of
//! client-go's event correlator, so that `kubectl describe` shows what people
//! are used to.

use std::collections::BTreeSet;
use std::time::Duration;

use davit_core::bucket::Bucket;
use davit_core::manifest::Rate;
use davit_core::object::ObjectRef;
use davit_core::plan::Event;
use davit_core::time::Instant;
use jiff::Timestamp;

use super::Decision;
use super::lru::Lru;

/// How many sources, objects and messages are remembered.
const REMEMBERED: usize = 4096;
/// How many different messages of otherwise equal events are shown apart.
const MOST_APART: usize = 10;
/// Similar events further apart than this have nothing to do with each other.
const SIMILAR_WITHIN: Duration = Duration::from_mins(10);
/// What stands before the message of events that were drawn together.
const COMBINED: &str = "(combined from similar events): ";
/// How many events of one source about one object are sent: 25 at once, then one every
/// five minutes.
const SPAM: Rate = Rate {
    per_second: 1.0 / 300.0,
    burst: 25,
};

/// An event that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occurrence {
    /// The object that it is about.
    pub involved: ObjectRef,
    /// What is told.
    pub event: Event,
    /// What decided on it, if anything did.
    pub decision: Option<Decision>,
}

/// What is to be sent for an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorrelatedEvent {
    /// The name of the Event object, in the involved object's namespace.
    pub name: String,
    /// The object that it is about.
    pub involved: ObjectRef,
    /// What is told, with the message as it is to be shown.
    pub event: Event,
    /// What decided on it last, if anything did.
    pub decision: Option<Decision>,
    /// How often it happened so far.
    pub count: u32,
    /// When it first happened.
    pub first: Timestamp,
    /// When it last happened.
    pub last: Timestamp,
}

/// Remembers the events of the last while.
#[derive(Debug)]
pub struct Correlator {
    similar: Lru<Similar, SimilarEvents>,
    told: Lru<SeriesKey, Option<Series>>,
    spam: Lru<Spam, Option<Bucket>>,
}

/// Events that differ in their message only.
type Similar = (Spam, String);
/// Events from one source about one object, of one type.
type Spam = (String, ObjectRef, String);
/// Events that are shown as one, with a count.
type SeriesKey = (Similar, Option<String>);

#[derive(Debug, Default)]
struct SimilarEvents {
    messages: BTreeSet<String>,
    last: Option<Timestamp>,
}

#[derive(Debug)]
struct Series {
    name: String,
    count: u32,
    first: Timestamp,
}

impl Default for Correlator {
    fn default() -> Self {
        Self {
            similar: Lru::new(REMEMBERED),
            told: Lru::new(REMEMBERED),
            spam: Lru::new(REMEMBERED),
        }
    }
}

impl Correlator {
    /// What to send for an event that happens now; none if too many came before. With a
    /// count above 1 the event of that name was sent before and is to be patched.
    /// Events show the wall clock's time, `at`; their rate is measured on the other.
    pub fn correlate(
        &mut self,
        occurrence: Occurrence,
        at: Timestamp,
        now: Instant,
    ) -> Option<CorrelatedEvent> {
        let Occurrence {
            involved,
            mut event,
            decision,
        } = occurrence;
        let spam: Spam = (
            event.component.clone(),
            involved.clone(),
            event.event_type.clone(),
        );
        let similar: Similar = (spam.clone(), event.reason.clone());
        let combined = self.is_combined(similar.clone(), &event.message, at);
        let message = (!combined).then(|| event.message.clone());
        if combined {
            event.message.insert_str(0, COMBINED);
        }
        let shown = self.told.entry((similar, message)).get_or_insert(Series {
            name: event_name(&involved, at),
            count: 0,
            first: at,
        });
        shown.count = shown.count.saturating_add(1);
        let correlated = CorrelatedEvent {
            name: shown.name.clone(),
            involved,
            event,
            decision,
            count: shown.count,
            first: shown.first,
            last: at,
        };
        self.may_pass(spam, now).then_some(correlated)
    }

    /// Whether so many different messages came that this one is not shown by
    /// itself any more.
    fn is_combined(&mut self, key: Similar, message: &str, now: Timestamp) -> bool {
        let similar = self.similar.entry(key);
        if similar
            .last
            .is_some_and(|last| since(last, now) > SIMILAR_WITHIN)
        {
            similar.messages.clear();
        }
        similar.last = Some(now);
        if similar.messages.contains(message) {
            return false;
        }
        if similar.messages.len() < MOST_APART {
            similar.messages.insert(message.to_owned());
            return false;
        }
        true
    }

    fn may_pass(&mut self, key: Spam, now: Instant) -> bool {
        let bucket = self.spam.entry(key);
        let bucket = bucket.get_or_insert_with(|| Bucket::full(Some(SPAM)));
        let passes = bucket.next_token() <= now;
        if passes {
            bucket.take(now);
        }
        passes
    }
}

/// The involved object's name with the time in it, as client-go names events.
fn event_name(involved: &ObjectRef, now: Timestamp) -> String {
    format!("{}.{:x}", involved.name, now.as_nanosecond())
}

fn since(earlier: Timestamp, now: Timestamp) -> Duration {
    now.duration_since(earlier).try_into().unwrap_or_default()
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
        at: Timestamp,
    ) -> Option<CorrelatedEvent> {
        let now = u64::try_from(at.as_second()).unwrap();
        let now = Instant::ZERO.after(Duration::from_secs(now));
        correlator.correlate(occurrence, at, now)
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
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

    #[test]
    fn another_object_of_that_name_starts_again() {
        let mut correlator = Correlator::default();
        correlate(&mut correlator, occurrence("m"), at(0)).unwrap();
        let mut other = occurrence("m");
        other.involved.uid = "u-2".into();
        assert_eq!(correlate(&mut correlator, other, at(1)).unwrap().count, 1);
    }

    #[test]
    fn many_similar_events_are_drawn_together() {
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
        // One that was shown by itself keeps its own count.
        let old = correlate(&mut correlator, occurrence("message 3"), at(12)).unwrap();
        assert_eq!((old.event.message.as_str(), old.count), ("message 3", 2));
    }

    #[test]
    fn after_a_quiet_while_messages_are_shown_apart_again() {
        let mut correlator = Correlator::default();
        for number in 0..11 {
            correlate(&mut correlator, occurrence(&number.to_string()), at(0));
        }
        let still = correlate(&mut correlator, occurrence("a"), at(600)).unwrap();
        assert!(still.event.message.starts_with(COMBINED));
        let apart = correlate(&mut correlator, occurrence("b"), at(1201)).unwrap();
        assert_eq!(apart.event.message, "b");
    }

    #[test]
    fn a_flood_is_cut_off_for_one_object_and_type_only() {
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
        assert_eq!(next.count, 102, "what was dropped is counted too");
    }
}
