//! The limit of the requests under way at once: as many as the API server answers
//! without delaying them.
//!
//! The limit falls when answers take clearly longer than is usual for their kind, or
//! when the server reports that it is overloaded. It rises while answers take about the
//! usual time and the limit is used. Each change follows a whole round of requests that
//! were sent after the previous change.
//!
//! The usual time is a valid measure only if the host itself does not slow the server
//! down: it is measured on requests that were sent while few were under way. Under
//! load, the limit drops to its floor for a new measurement from time to time, and when
//! most answers are of kinds that were never measured. The median of a measurement
//! counts, because answers of one kind differ. Before the first measurement, the
//! fastest answer counts.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::time::Instant;

/// The least and the most requests under way.
pub(super) const FLOOR: usize = 8;
pub(super) const CEILING: usize = 128;
/// An answer within twice the usual time of its kind, or within this much more, is near
/// the usual: such a short wait keeps the server busy.
const NEAR_FACTOR: u32 = 2;
const NEAR: Duration = Duration::from_millis(10);
/// The least number of answers in a round.
const SHORTEST_ROUND: usize = 10;
/// The number of answers of a measurement.
const PROBE: usize = 2 * FLOOR;
/// The most answers that a measurement waits for, if they are of other kinds.
const LONGEST_PROBE: usize = 8 * PROBE;
/// The shortest pause between two measurements, and its minimum as a multiple of the
/// measurement's time; less for kinds that were never measured. A measurement that was
/// made while the server hardly answered must not count for hours.
const PROBE_PAUSE: Duration = Duration::from_secs(30);
const LONGEST_PROBE_PAUSE: Duration = Duration::from_mins(5);
const PROBE_SHARE: u32 = 20;
const NEW_KINDS_SHARE: u32 = 4;
/// The most kinds of requests that are distinguished.
const MOST_KINDS: usize = 1_000;

/// Learns how many requests may be under way at once.
#[derive(Debug)]
pub(super) struct Limit {
    allowed: f64,
    /// The usual time of answers of each kind.
    usual: BTreeMap<Box<str>, UsualTime>,
    /// Requests that were sent earlier are not part of the round.
    round_started: Instant,
    /// The times of the answers, as multiples of the longest time that is near the
    /// usual.
    round: Vec<f64>,
    /// The answers in this round whose kind was never measured.
    unmeasured: usize,
    /// Whether the limit was used in this round.
    used: bool,
    probe: Option<Probe>,
    /// The next measurement, and the earliest one.
    next_probe: Instant,
    no_probe_before: Instant,
}

/// The usual time of answers of a kind.
#[derive(Clone, Copy, Debug)]
struct UsualTime {
    time: Duration,
    /// Whether it is the median of a measurement; otherwise it is the fastest answer so
    /// far.
    is_measured: bool,
}

/// A measurement of the usual time.
#[derive(Debug)]
struct Probe {
    started: Instant,
    /// Whether it measures kinds that were never measured.
    is_for_new_kinds: bool,
    answers: usize,
    of_its_kinds: usize,
    times: BTreeMap<Box<str>, Vec<Duration>>,
}

impl Limit {
    /// Starts at the ceiling: the first round shows whether that is too much.
    pub(super) fn new() -> Self {
        Self {
            allowed: as_f64(CEILING),
            usual: BTreeMap::new(),
            round_started: Instant::ZERO,
            round: Vec::new(),
            unmeasured: 0,
            used: false,
            probe: None,
            next_probe: Instant::ZERO.after(PROBE_PAUSE),
            no_probe_before: Instant::ZERO,
        }
    }

    /// How many requests may be under way now.
    pub(super) fn allowed(&self) -> usize {
        if self.probe.is_some() {
            return FLOOR;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it lies between floor and ceiling"
        )]
        let whole = self.allowed as usize;
        whole
    }

    /// Counts a request that was sent, with this many under way. Returns whether its
    /// answer is a measure: whether few are under way.
    pub(super) fn sent(&mut self, under_way: usize) -> bool {
        // One controller alone gets half of the limit.
        self.used |= 2 * under_way >= self.allowed();
        under_way <= FLOOR
    }

    /// Counts an answer of the server to a request that was sent at that time.
    pub(super) fn answered(&mut self, kind: &str, sent: Instant, is_measure: bool, now: Instant) {
        let took = now.since(sent);
        let is_known = self.usual.contains_key(kind);
        if let Some(probe) = &mut self.probe {
            if sent >= probe.started && probe.takes(kind, is_known, took) {
                self.end_probe(now);
            }
            return;
        }
        let usual = (is_measure || is_known).then(|| self.usual(kind, took));
        if sent < self.round_started {
            return;
        }
        if let Some(near) = usual.map(near) {
            self.take(took.as_secs_f64() / near.as_secs_f64(), now);
            return;
        }
        self.unmeasured += 1;
        if self.unmeasured >= self.round_length() && now >= self.no_probe_before {
            self.start_probe(true, now);
        }
    }

    /// Counts an overloaded server: it refused a request that was sent at that time, or
    /// did not answer it in time. It counts as a very late answer: one of many servers
    /// behind the API server must not slow down all requests.
    pub(super) fn overloaded(&mut self, sent: Instant, now: Instant) {
        if self.probe.is_none() && sent >= self.round_started {
            self.take(f64::INFINITY, now);
        }
    }

    fn take(&mut self, ratio: f64, now: Instant) {
        self.round.push(ratio);
        if self.round.len() >= self.round_length() {
            self.end_round(now);
        }
    }

    /// The number of answers in a round. Requests that were sent before the last change
    /// show nothing about it, and are not part of the round.
    fn round_length(&self) -> usize {
        SHORTEST_ROUND.max(self.allowed() / 2)
    }

    fn end_round(&mut self, now: Instant) {
        let used = self.used;
        self.round.sort_unstable_by(f64::total_cmp);
        // A few slow answers, of a webhook for instance, prove nothing.
        let median = self.round.get(self.round.len() / 2).copied();
        let median = median.unwrap_or_default();
        if median > 1.0 {
            self.change((1.0 / median).max(0.5), now);
        } else if used {
            self.change(1.0 + 1.0 / self.allowed.sqrt(), now);
        } else {
            self.change(1.0, now);
        }
        if used && now >= self.next_probe {
            self.start_probe(false, now);
        }
    }

    fn start_probe(&mut self, is_for_new_kinds: bool, now: Instant) {
        self.probe = Some(Probe {
            started: now,
            is_for_new_kinds,
            answers: 0,
            of_its_kinds: 0,
            times: BTreeMap::new(),
        });
    }

    fn change(&mut self, factor: f64, now: Instant) {
        self.allowed = (self.allowed * factor).clamp(as_f64(FLOOR), as_f64(CEILING));
        self.round.clear();
        self.unmeasured = 0;
        self.round_started = now;
        self.used = false;
    }

    fn end_probe(&mut self, now: Instant) {
        let Some(probe) = self.probe.take() else {
            return;
        };
        let took = now.since(probe.started);
        let pause = |share| (took * share).min(LONGEST_PROBE_PAUSE);
        self.no_probe_before = now.after(pause(NEW_KINDS_SHARE));
        self.next_probe = now.after(PROBE_PAUSE.max(pause(PROBE_SHARE)));
        for (kind, mut times) in probe.times {
            times.sort_unstable();
            if let Some(time) = times.get(times.len() / 2) {
                let usual = UsualTime {
                    time: *time,
                    is_measured: true,
                };
                self.remember(&kind, usual);
            }
        }
        self.change(1.0, now);
    }

    /// The usual time of answers of a kind, including one more answer.
    fn usual(&mut self, kind: &str, took: Duration) -> Duration {
        match self.usual.get_mut(kind) {
            Some(known) if known.is_measured => known.time,
            Some(known) => {
                known.time = took.min(known.time);
                known.time
            }
            None => {
                let is_measured = false;
                self.remember(
                    kind,
                    UsualTime {
                        time: took,
                        is_measured,
                    },
                );
                took
            }
        }
    }

    fn remember(&mut self, kind: &str, usual: UsualTime) {
        if self.usual.len() >= MOST_KINDS && !self.usual.contains_key(kind) {
            self.usual.clear();
        }
        self.usual.insert(kind.into(), usual);
    }
}

impl Probe {
    /// Takes an answer, and returns whether it was the last.
    fn takes(&mut self, kind: &str, is_known: bool, took: Duration) -> bool {
        self.times.entry(kind.into()).or_default().push(took);
        self.answers += 1;
        self.of_its_kinds += usize::from(!(self.is_for_new_kinds && is_known));
        self.of_its_kinds >= PROBE || self.answers >= LONGEST_PROBE
    }
}

fn near(usual: Duration) -> Duration {
    (usual * NEAR_FACTOR).max(usual + NEAR)
}

#[expect(clippy::cast_precision_loss, reason = "a number of requests")]
fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);
    const SECOND: Duration = Duration::from_secs(1);

    /// A server that answers `at_once` requests at once, each in `each`; the others
    /// wait. As many requests are under way as the limit allows.
    struct ModelServer {
        limit: Limit,
        now: Instant,
        at_once: usize,
        each: Duration,
        /// One in so many takes only this long.
        fast: Option<(usize, Duration)>,
        sent: usize,
        /// When each of its workers is free again.
        places: Vec<Instant>,
        /// The requests under way: when each will be answered, when it was sent, and
        /// whether it is a measure.
        under_way: Vec<(Instant, Instant, bool)>,
        answered: usize,
    }

    impl ModelServer {
        fn new(at_once: usize, each: Duration) -> Self {
            Self {
                limit: Limit::new(),
                now: Instant::ZERO,
                at_once,
                each,
                fast: None,
                sent: 0,
                places: vec![Instant::ZERO; at_once],
                under_way: Vec::new(),
                answered: 0,
            }
        }

        fn change(&mut self, at_once: usize, each: Duration) {
            self.places.resize(at_once, self.now);
            (self.at_once, self.each) = (at_once, each);
        }

        /// Keeps this many requests under way, or as many as the limit allows, for a
        /// while.
        fn run(&mut self, wanted: usize, duration: Duration) {
            let end = self.now.after(duration);
            while self.now < end {
                while self.under_way.len() < wanted.min(self.limit.allowed()) {
                    let place = self.places.iter_mut().min().unwrap();
                    self.sent += 1;
                    let fast = self
                        .fast
                        .filter(|(one_in, _)| self.sent.is_multiple_of(*one_in));
                    let each = fast.map_or(self.each, |(_, each)| each);
                    *place = self.now.max(*place).after(each);
                    let is_measure = self.limit.sent(self.under_way.len() + 1);
                    self.under_way.push((*place, self.now, is_measure));
                }
                let next = self.under_way.iter().enumerate().min_by_key(|(_, it)| it.0);
                let (position, &(at, sent, is_measure)) = next.unwrap();
                self.under_way.swap_remove(position);
                self.now = at;
                self.answered += 1;
                self.limit.answered("get", sent, is_measure, self.now);
            }
        }
    }

    #[test]
    fn a_server_with_few_places_is_kept_busy_and_not_flooded() {
        for (at_once, millis) in [(1, 20), (8, 10), (20, 5), (40, 50)] {
            let each = Duration::from_millis(millis);
            let mut served = ModelServer::new(at_once, each);
            served.run(1_000, Duration::from_secs(10));
            let mut allowed = Vec::new();
            let before = served.answered;
            for _ in 0..100 {
                served.run(1_000, Duration::from_millis(50));
                allowed.push(served.limit.allowed());
            }
            // A request waits for at most one other request, or 10 ms.
            let waiting = (near(each).as_secs_f64() / each.as_secs_f64()).ceil();
            let most = (2.0 * waiting * as_f64(at_once)).max(as_f64(2 * FLOOR));
            let highest = *allowed.iter().max().unwrap();
            assert!(as_f64(highest) <= most, "{at_once} places: {allowed:?}");
            let possible = 5.0 / each.as_secs_f64() * as_f64(at_once);
            let answered = as_f64(served.answered - before);
            assert!(answered > 0.95 * possible, "{answered} of {possible}");
        }
    }

    #[test]
    fn a_server_that_answers_all_requests_at_once_gets_the_maximum() {
        let mut served = ModelServer::new(CEILING, Duration::from_secs(30));
        served.run(1_000, Duration::from_mins(30));
        assert!(served.limit.allowed > 127.0, "{:?}", served.limit);
    }

    #[test]
    fn it_rises_again_once_the_server_is_faster() {
        let mut served = ModelServer::new(4, 20 * MILLISECOND);
        served.run(1_000, Duration::from_secs(5));
        assert!(served.limit.allowed() <= 16, "{}", served.limit.allowed());
        served.change(200, 20 * MILLISECOND);
        served.run(1_000, Duration::from_secs(5));
        assert_eq!(served.limit.allowed(), CEILING);
    }

    /// The server is slower, but not because of the host: the former usual time is no
    /// measure any more.
    #[test]
    fn a_server_that_became_slower_is_measured_again() {
        let mut served = ModelServer::new(200, 5 * MILLISECOND);
        served.run(1_000, Duration::from_secs(5));
        served.change(200, 100 * MILLISECOND);
        served.run(1_000, Duration::from_secs(10));
        assert_eq!(
            served.limit.allowed(),
            FLOOR,
            "fast and slow answers are indistinguishable"
        );
        served.run(1_000, Duration::from_secs(60));
        assert!(served.limit.allowed > 127.0, "{:?}", served.limit);
    }

    /// Without the measurement, the queue that the limit itself causes would become the
    /// measure.
    #[test]
    fn the_limit_does_not_creep_up_under_load() {
        let mut served = ModelServer::new(8, 20 * MILLISECOND);
        served.run(1_000, Duration::from_mins(30));
        assert!(served.limit.allowed() <= 32, "{}", served.limit.allowed());
    }

    /// Some answers of a kind are fast by nature, and most are not: the deletion of an
    /// object that is already deleted, for instance.
    #[test]
    fn answers_that_differ_by_nature_are_no_overload() {
        for fast in [2, 5, 10] {
            let mut served = ModelServer::new(CEILING, 40 * MILLISECOND);
            served.fast = Some((fast, 5 * MILLISECOND));
            served.run(1_000, Duration::from_mins(2));
            assert!(
                served.limit.allowed > 64.0,
                "1 in {fast}: {:?}",
                served.limit
            );
        }
    }

    /// A measurement that was made while the server hardly answered counts for minutes
    /// only.
    #[test]
    fn a_measurement_of_a_failing_server_is_soon_repeated() {
        let mut served = ModelServer::new(200, 120 * SECOND);
        served.run(1_000, Duration::from_mins(30));
        served.change(200, 5 * MILLISECOND);
        served.run(1_000, SECOND);
        served.places.truncate(8);
        served.change(8, 20 * MILLISECOND);
        served.run(1_000, Duration::from_mins(10));
        assert!(served.limit.allowed() <= 32, "{:?}", served.limit);
    }

    #[test]
    fn an_unused_limit_does_not_rise() {
        let mut served = ModelServer::new(200, 20 * MILLISECOND);
        served.limit.allowed = 20.0;
        served.run(5, Duration::from_secs(20));
        assert_eq!(served.limit.allowed(), 20);
        served.run(10, Duration::from_secs(20));
        assert!(served.limit.allowed() > 20);
    }

    #[test]
    fn an_overload_halves_it_once_for_all_requests_that_were_under_way() {
        let mut limit = Limit::new();
        for _ in 0..CEILING {
            limit.overloaded(at(0), at(1));
        }
        assert_eq!(limit.allowed(), CEILING / 2);
        for number in 0..1_000 {
            limit.overloaded(at(2 + number), at(2 + number));
        }
        assert_eq!(limit.allowed(), FLOOR);
    }

    /// One of the servers behind the API server refuses every request.
    #[test]
    fn a_refused_minority_does_not_lower_the_limit() {
        let mut limit = Limit::new();
        for number in 0..2_000 {
            limit.sent(CEILING);
            limit.answered("get", at(number), true, at(number + 3));
            limit.answered("get", at(number), true, at(number + 3));
            limit.overloaded(at(number), at(number + 3));
        }
        assert_eq!(limit.allowed(), CEILING);
    }

    /// A webhook makes some requests slow, and lists are slow by nature.
    #[test]
    fn slow_kinds_and_a_few_slow_answers_are_no_overload() {
        let mut limit = Limit::new();
        let mut now = Instant::ZERO;
        for round in 0..2_000_u32 {
            let sent = now;
            now = now.after(MILLISECOND);
            limit.sent(CEILING);
            limit.answered("get", sent, true, now);
            let slow = if round % 3 == 0 { 800 } else { 4 };
            limit.answered("delete", sent, true, sent.after(slow * MILLISECOND));
            limit.answered("list", sent, true, sent.after(700 * MILLISECOND));
        }
        assert_eq!(limit.allowed(), CEILING);
    }

    /// The first answers wait for other requests of the host.
    #[test]
    fn a_new_kind_under_load_is_measured_first() {
        let mut served = ModelServer::new(8, 10 * MILLISECOND);
        let limit = &mut served.limit;
        for number in 1..=64 {
            limit.sent(64);
            let slow = at(80 + number);
            limit.answered("patch", at(number), false, slow);
        }
        assert!(limit.probe.is_some());
        assert_eq!(limit.allowed(), FLOOR);
        // Requests of other kinds are sent before it.
        limit.usual("get", MILLISECOND);
        for number in 0..2 * PROBE as u64 {
            let sent = at(150 + number);
            limit.answered("get", sent, true, sent.after(MILLISECOND));
        }
        assert!(limit.probe.is_some());
        for number in 0..PROBE as u64 {
            let sent = at(200 + number);
            limit.answered("patch", sent, true, sent.after(10 * MILLISECOND));
        }
        assert!(limit.probe.is_none());
        assert_eq!(limit.usual["patch"].time, 10 * MILLISECOND);
        assert_eq!(limit.allowed(), CEILING);
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO.after(Duration::from_millis(millis))
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut limit = Limit::new();
        for number in 0..3_000 {
            limit.answered(&number.to_string(), Instant::ZERO, true, Instant::ZERO);
        }
        assert!(limit.usual.len() <= MOST_KINDS);
    }
}
