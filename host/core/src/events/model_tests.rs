//! Drives the recorder with random events, answers and waits, and compares its requests,
//! its counts and its next wake with those of a small model.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use serde_json::Value;

use super::tests::{broken, event, pod, refused};
use super::*;
use crate::request::Method;
use crate::time::Wall;

const CAPACITY: usize = 6;
const FLUSH: u64 = 5;

#[derive(Clone, Copy, Debug)]
enum Move {
    Record { object: usize, message: usize },
    Answer { which: usize, answer: Answer },
    Wait(u64),
    Flush,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Success,
    /// 404.
    NotFound,
    /// 409.
    Exists,
    /// No answer, or 429.
    Silence(bool),
    /// 403, or 500.
    Refusal(bool),
}

/// The events that share a count: an object and a message; none for an aggregate.
type Series = (usize, Option<usize>);

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    series: Series,
    /// The message of the last occurrence.
    message: usize,
    count: u64,
    is_known: bool,
    attempts: u32,
    is_resent: bool,
    due: u64,
}

/// What the correlation knows of one object.
#[derive(Debug)]
struct Source {
    messages: BTreeSet<usize>,
    last: u64,
    /// In seconds: an event costs 300.
    tokens: u64,
    filled: u64,
}

/// Times are in seconds.
#[derive(Debug, Default)]
struct Model {
    now: u64,
    sources: BTreeMap<usize, Source>,
    counts: BTreeMap<Series, u64>,
    lines: BTreeMap<usize, VecDeque<Entry>>,
    sending: BTreeMap<usize, Entry>,
    flush: Option<u64>,
    stats: EventStats,
}

impl Model {
    fn waiting(&self) -> usize {
        self.lines.values().map(VecDeque::len).sum()
    }

    fn record(&mut self, object: usize, message: usize) {
        let source = self.sources.entry(object).or_insert(Source {
            messages: BTreeSet::new(),
            last: self.now,
            tokens: 25 * 300,
            filled: self.now,
        });
        if self.now - source.last > 600 {
            source.messages.clear();
        }
        source.last = self.now;
        let is_own = source.messages.contains(&message) || source.messages.len() < 10;
        if is_own {
            source.messages.insert(message);
        }
        let series = (object, is_own.then_some(message));
        let count = self.counts.entry(series).or_default();
        *count += 1;
        source.tokens = (source.tokens + self.now - source.filled).min(25 * 300);
        source.filled = self.now;
        if source.tokens < 300 {
            self.stats.suppressed += 1;
            return;
        }
        source.tokens -= 300;
        let count = *count;
        let is_full = self.waiting() >= CAPACITY;
        let line = self.lines.entry(object).or_default();
        if let Some(same) = line.iter_mut().find(|entry| entry.series == series) {
            (same.count, same.message) = (count, message);
            self.stats.merged += 1;
        } else if is_full {
            self.stats.dropped += 1;
        } else {
            line.push_back(Entry {
                series,
                message,
                count,
                is_known: count > 1,
                attempts: 0,
                is_resent: false,
                due: 0,
            });
        }
    }

    fn most(&self) -> usize {
        if self.flush.is_some() { 64 } else { 8 }
    }

    /// The objects whose next event does not wait for an answer, and when it is due.
    fn due(&self) -> impl Iterator<Item = (usize, u64)> {
        let lines = self.lines.iter();
        let free = lines.filter(|(object, _)| !self.sending.contains_key(object));
        free.filter_map(|(object, line)| Some((*object, line.front()?.due)))
    }

    fn end_flush(&mut self) {
        let count = self.waiting() + self.sending.len();
        if self
            .flush
            .is_some_and(|until| count == 0 || until <= self.now)
        {
            self.flush = None;
            self.lines.clear();
            self.sending.clear();
            self.stats.dropped += count as u64;
        }
    }

    /// The next event of the object is sent.
    fn send(&mut self, object: usize) -> Entry {
        assert!(self.sending.len() < self.most(), "too many at once");
        assert!(!self.sending.contains_key(&object), "two of one object");
        let entry = self.lines.get_mut(&object).unwrap().pop_front().unwrap();
        assert!(entry.due <= self.now, "too early");
        self.sending.insert(object, entry.clone());
        entry
    }

    fn answer(&mut self, object: usize, answer: Answer) {
        let Some(mut entry) = self.sending.remove(&object) else {
            return;
        };
        let mismatch = match answer {
            Answer::NotFound => entry.is_known,
            Answer::Exists => !entry.is_known,
            _ => false,
        };
        match answer {
            Answer::Success => self.stats.sent += 1,
            _ if mismatch && !entry.is_resent => {
                (entry.is_known, entry.is_resent) = (!entry.is_known, true);
                entry.due = self.now;
                self.lines.entry(object).or_default().push_front(entry);
            }
            Answer::Silence(_) if entry.attempts < 11 => {
                (entry.attempts, entry.due) = (entry.attempts + 1, self.now + 10);
                entry.is_resent = false;
                self.lines.entry(object).or_default().push_front(entry);
            }
            _ => self.stats.failed += 1,
        }
    }

    fn next_wake(&self) -> Option<u64> {
        let may_send = self.sending.len() < self.most();
        let retry = self.due().map(|(_, at)| at).filter(|_| may_send).min();
        retry.into_iter().chain(self.flush).min()
    }
}

#[derive(Debug, Default)]
struct Fixture {
    recorder: Recorder,
    model: Model,
    /// The requests without an answer, and the objects of their events.
    under_way: Vec<(SendId, usize)>,
    /// The series of each name.
    names: BTreeMap<String, Series>,
    recorded: u64,
}

impl Fixture {
    fn now(&self) -> Now {
        let instant = Instant::ZERO.after(Duration::from_secs(self.model.now));
        let wall = i64::try_from(self.model.now).unwrap() * 1000;
        Now {
            instant,
            wall: Wall(wall),
        }
    }

    fn go(&mut self, step: Move) {
        let now = self.now();
        match step {
            Move::Record { object, message } => {
                let mut involved = pod();
                involved.name = object.to_string();
                involved.uid = object.to_string();
                let occurrence = Occurrence {
                    involved,
                    event: event(&message.to_string()),
                    decision: None,
                };
                self.recorder.record(occurrence, now);
                self.model.record(object, message);
                self.recorded += 1;
            }
            Move::Answer { which, answer } if !self.under_way.is_empty() => {
                let (id, object) = self.under_way.remove(which % self.under_way.len());
                self.answer(id, answer);
                self.model.answer(object, answer);
            }
            Move::Answer { .. } => {}
            Move::Wait(seconds) => self.model.now += seconds,
            Move::Flush => {
                self.recorder.flush(Duration::from_secs(FLUSH), now.instant);
                self.model.flush = Some(self.model.now + FLUSH);
            }
        }
        self.poll();
        self.check();
    }

    fn answer(&mut self, id: SendId, answer: Answer) {
        let error = match answer {
            Answer::Success => None,
            Answer::NotFound => Some(refused(404, "NotFound")),
            Answer::Exists => Some(refused(409, "AlreadyExists")),
            Answer::Silence(true) => Some(broken()),
            Answer::Silence(false) => Some(refused(429, "TooManyRequests")),
            Answer::Refusal(true) => Some(refused(403, "Forbidden")),
            Answer::Refusal(false) => Some(refused(500, "InternalError")),
        };
        let answer = error.as_ref().map_or(Ok(b"{}".as_slice()), Err);
        self.recorder.handle(id, answer, self.now().instant);
    }

    fn poll(&mut self) {
        let was_flushing = self.model.flush.is_some();
        self.model.end_flush();
        if was_flushing && self.model.flush.is_none() {
            self.under_way.clear();
        }
        while let Some(effect) = self.recorder.poll(self.now().instant) {
            if let Effect::Send { id, request } = effect {
                let object = self.sent(&request);
                self.under_way.push((id, object));
            }
        }
    }

    /// Compares a request with the next event of its object.
    fn sent(&mut self, request: &Request) -> usize {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let name = match request.method {
            Method::Post => body["metadata"]["name"].as_str().unwrap(),
            _ => request.uri.rsplit('/').next().unwrap(),
        };
        let object = name.split('.').next().unwrap().parse().unwrap();
        let entry = self.model.send(object);
        assert_eq!(request.method == Method::Patch, entry.is_known, "{entry:?}");
        assert_eq!(body["count"], entry.count, "{entry:?}");
        let prefix = match entry.series.1 {
            Some(_) => "",
            None => "(combined from similar events): ",
        };
        assert_eq!(body["message"], format!("{prefix}{}", entry.message));
        let before = self.names.insert(name.to_owned(), entry.series);
        assert!(before.is_none_or(|before| before == entry.series), "{name}");
        object
    }

    fn check(&self) {
        let model = &self.model;
        let waiting = (model.waiting() + model.sending.len()) as u64;
        let stats = self.recorder.stats();
        assert_eq!(
            stats,
            EventStats {
                waiting,
                ..model.stats
            }
        );
        let ended = stats.sent + stats.merged + stats.suppressed + stats.failed + stats.dropped;
        assert_eq!(ended + stats.waiting, self.recorded);
        assert_eq!(self.recorder.is_empty(), waiting == 0);
        assert_eq!(self.recorder.is_flushing(), model.flush.is_some());
        // Whatever could be sent was sent.
        if model.sending.len() < model.most() {
            assert!(model.due().all(|(_, at)| at > model.now), "{model:?}");
        }
        let wake = model.next_wake().map(Duration::from_secs);
        let wake = wake.map(|wake| Instant::ZERO.after(wake));
        assert_eq!(self.recorder.next_wake(), wake);
    }

    /// A server that answers gets everything.
    fn settle(&mut self) {
        for _ in 0..10 * CAPACITY {
            while !self.under_way.is_empty() {
                let answer = Answer::Success;
                self.go(Move::Answer { which: 0, answer });
            }
            self.go(Move::Wait(10));
        }
        assert!(self.recorder.is_empty());
        assert_eq!(self.recorder.stats().waiting, 0);
    }
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let answer = prop_oneof![
        4 => Just(Answer::Success),
        2 => Just(Answer::NotFound),
        2 => Just(Answer::Exists),
        4 => any::<bool>().prop_map(Answer::Silence),
        1 => any::<bool>().prop_map(Answer::Refusal),
    ];
    let object = prop_oneof![3 => 0..2_usize, 2 => 0..20_usize];
    let wait = prop_oneof![20 => 0..12_u64, 1 => 250..700_u64];
    let next = prop_oneof![
        40 => (object, 0..13_usize).prop_map(|(object, message)| Move::Record { object, message }),
        30 => (any::<usize>(), answer).prop_map(|(which, answer)| Move::Answer { which, answer }),
        8 => wait.prop_map(Move::Wait),
        1 => Just(Move::Flush),
    ];
    prop::collection::vec(next, 0..250)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn the_recorder_behaves_like_the_model(moves in moves()) {
        let mut fixture = Fixture {
            recorder: Recorder::bounded(CAPACITY),
            ..Fixture::default()
        };
        for step in moves {
            fixture.go(step);
        }
        fixture.settle();
    }
}
