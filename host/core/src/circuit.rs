//! The circuit breaker of one revision of a guest: whether it may be called.
//!
//! A call fails if it returns no valid decision: a trap, an exceeded limit, a malformed
//! answer. Its items are then retried. After `FAILURES` failed calls
//! in a row the circuit opens: the guest is not called. After a pause the circuit is
//! half-open: one call, the probe, tests the guest. If the probe succeeds, the circuit
//! closes; if it fails, the circuit opens again for twice as long. Each
//! `DECAY` that the circuit stays closed halves the next pause.
//!
//! One bad item must not open the circuit for all others. [`after_failed_call`] retries
//! the items of a failed call one by one, so that only the bad item continues to fail:
//! the calls in between succeed, and the circuit stays closed.

use std::fmt;
use std::time::Duration;

use crate::queue::Finish;
use crate::time::Instant;
use crate::untrusted::shorten;

/// The way in which a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallFailureKind {
    /// The guest could not be instantiated, or refused its configuration.
    Start,
    /// The guest trapped: a panic, an out-of-bounds access, a name that its manifest
    /// does not declare.
    Trap,
    /// The call exceeded its CPU time.
    Timeout,
    /// The guest exceeded its memory limit.
    Memory,
    /// The answer cannot be decoded, or does not match the call.
    Malformed,
    /// The answer is larger than the host accepts.
    Flood,
}

impl CallFailureKind {
    /// Every kind, in declaration order.
    pub const ALL: [Self; 6] = [
        Self::Start,
        Self::Trap,
        Self::Timeout,
        Self::Memory,
        Self::Malformed,
        Self::Flood,
    ];

    /// The name used in logs and as a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Trap => "trap",
            Self::Timeout => "timeout",
            Self::Memory => "memory",
            Self::Malformed => "malformed",
            Self::Flood => "flood",
        }
    }

    /// Whether an item of the call may have caused the failure.
    #[must_use]
    pub const fn may_be_the_items(self) -> bool {
        !matches!(self, Self::Start)
    }
}

impl fmt::Display for CallFailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A call that ended without decisions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {message}{}", quoted(guest_message))]
pub struct CallFailure {
    /// The way in which the call failed.
    pub kind: CallFailureKind,
    /// What happened, in the host's words.
    pub message: String,
    /// What the guest wrote before it failed, and the names of its functions; empty if
    /// there is nothing.
    pub guest_message: String,
}

impl CallFailure {
    /// A failed call. The message, which may quote the guest, is cut to one line of
    /// [`Self::LONGEST_MESSAGE`] bytes.
    #[must_use]
    pub fn new(kind: CallFailureKind, message: impl Into<String>) -> Self {
        let mut message = message.into();
        shorten(&mut message, Self::LONGEST_MESSAGE);
        Self {
            kind,
            message,
            guest_message: String::new(),
        }
    }

    /// The same failure with the guest's own words, cut like the message.
    #[must_use]
    pub fn saying(mut self, guest_message: impl Into<String>) -> Self {
        self.guest_message = guest_message.into();
        shorten(&mut self.guest_message, Self::LONGEST_MESSAGE);
        self
    }

    /// The longest message, in bytes.
    pub const LONGEST_MESSAGE: usize = 1024;
}

/// The guest's words after those of the host.
fn quoted(guest_message: &str) -> String {
    if guest_message.is_empty() {
        return String::new();
    }
    format!("; guest_message: \"{guest_message}\"")
}

/// What happens to each of the `items` items of a failed call.
///
/// If there are several, each is reconciled again immediately in a call of its own, until
/// it is done. A single item is retried after the back-off of its queue. If the guest
/// does not start, no item is to blame: they return to their queue unchanged.
#[must_use]
pub const fn after_failed_call(kind: CallFailureKind, items: usize) -> Finish {
    match (kind.may_be_the_items(), items) {
        (false, _) => Finish::PutBack,
        (true, 0 | 1) => Finish::Retry {
            failures: Vec::new(),
            retry_after: None,
        },
        (true, _) => Finish::PutBackAlone,
    }
}

/// The number of failed calls in a row that opens a circuit.
const FAILURES: u32 = 5;
/// The first pause; it doubles with each failed probe.
const PAUSE_INITIAL: Duration = Duration::from_secs(5);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_mins(5);
/// How long a circuit must stay closed to halve its next pause.
const DECAY: Duration = Duration::from_mins(10);

/// The state of a circuit: whether the host may call the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CircuitState {
    /// The host calls the guest.
    Closed,
    /// The host does not call the guest.
    Open {
        /// When the host makes the next call, the probe.
        until: Instant,
        /// The failure that opened the circuit.
        reason: CallFailure,
    },
    /// One call, the probe, is in flight. It decides whether the circuit closes.
    HalfOpen {
        /// The failure that opened the circuit.
        reason: CallFailure,
    },
}

/// The permission for one call. Return it with the result of the call.
#[derive(Debug)]
#[must_use = "a probe that is not returned keeps the circuit half-open"]
pub struct Permit {
    probe: bool,
}

/// The circuit breaker of one revision.
#[derive(Debug)]
pub struct CircuitBreaker {
    state: CircuitState,
    failures_in_a_row: u32,
    /// The number of times that the next pause is doubled.
    doublings: u32,
    /// When its last probe succeeded.
    closed_since: Instant,
}

impl Default for CircuitBreaker {
    /// A closed circuit.
    fn default() -> Self {
        Self {
            state: CircuitState::Closed,
            failures_in_a_row: 0,
            doublings: 0,
            // No pause to halve yet.
            closed_since: Instant::ZERO,
        }
    }
}

impl CircuitBreaker {
    /// Whether the host may call the guest.
    #[must_use]
    pub const fn state(&self) -> &CircuitState {
        &self.state
    }

    /// The number of failed calls since the last one that succeeded.
    #[must_use]
    pub const fn failures_in_a_row(&self) -> u32 {
        self.failures_in_a_row
    }

    /// The earliest time, not before `now`, at which [`Self::start`] permits a call;
    /// none while a probe is in flight.
    #[must_use]
    pub fn opens_at(&self, now: Instant) -> Option<Instant> {
        match self.state {
            CircuitState::Closed => Some(now),
            CircuitState::Open { until, .. } => Some(until.max(now)),
            CircuitState::HalfOpen { .. } => None,
        }
    }

    /// Permits a call, if the circuit allows one. After a pause, the first permitted
    /// call is the probe.
    pub fn start(&mut self, now: Instant) -> Option<Permit> {
        match &self.state {
            CircuitState::Closed => Some(Permit { probe: false }),
            CircuitState::Open { until, reason } if *until <= now => {
                self.state = CircuitState::HalfOpen {
                    reason: reason.clone(),
                };
                Some(Permit { probe: true })
            }
            CircuitState::Open { .. } | CircuitState::HalfOpen { .. } => None,
        }
    }

    /// The guest returned valid decisions.
    #[expect(clippy::needless_pass_by_value, reason = "a permit is for one call")]
    pub fn succeeded(&mut self, now: Instant, permit: Permit) {
        if permit.probe {
            self.state = CircuitState::Closed;
            self.closed_since = now;
        }
        if self.state == CircuitState::Closed {
            self.failures_in_a_row = 0;
        }
    }

    /// The call failed. A call that started before the circuit opened and ends while it
    /// is open does not count.
    #[expect(clippy::needless_pass_by_value, reason = "a permit is for one call")]
    pub fn failed(&mut self, now: Instant, permit: Permit, failure: CallFailure) {
        if !permit.probe && self.state != CircuitState::Closed {
            return;
        }
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        if permit.probe {
            self.open(now, failure);
        } else if self.failures_in_a_row >= FAILURES {
            self.decay(now);
            self.open(now, failure);
        }
    }

    /// The call was cancelled for a reason that is not the guest's: a shutdown or a
    /// swap. If it was the probe, the next call is the probe.
    #[expect(clippy::needless_pass_by_value, reason = "a permit is for one call")]
    pub fn abandoned(&mut self, now: Instant, permit: Permit) {
        if let (true, CircuitState::HalfOpen { reason }) = (permit.probe, &self.state) {
            self.state = CircuitState::Open {
                until: now,
                reason: reason.clone(),
            };
        }
    }

    fn open(&mut self, now: Instant, reason: CallFailure) {
        let factor = 2_u32.checked_pow(self.doublings).unwrap_or(u32::MAX);
        let pause = PAUSE_INITIAL.saturating_mul(factor);
        if pause < PAUSE_MAX {
            self.doublings += 1;
        }
        self.state = CircuitState::Open {
            until: now.after(pause.min(PAUSE_MAX)),
            reason,
        };
    }

    fn decay(&mut self, now: Instant) {
        let closed_for = now.since(self.closed_since).as_nanos();
        let halvings = closed_for / DECAY.as_nanos();
        let halvings = u32::try_from(halvings).unwrap_or(u32::MAX);
        self.doublings = self.doublings.saturating_sub(halvings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn trap() -> CallFailure {
        CallFailure::new(CallFailureKind::Trap, "unreachable")
    }

    fn closed() -> (CircuitBreaker, Instant) {
        let now = Instant::ZERO.after(SECOND * 100);
        (CircuitBreaker::default(), now)
    }

    fn fail(circuit: &mut CircuitBreaker, now: Instant) {
        let permit = circuit.start(now).unwrap();
        circuit.failed(now, permit, trap());
    }

    fn succeed(circuit: &mut CircuitBreaker, now: Instant) {
        let permit = circuit.start(now).unwrap();
        circuit.succeeded(now, permit);
    }

    fn trip(circuit: &mut CircuitBreaker, now: Instant) -> Duration {
        for _ in 0..5 {
            assert_eq!(circuit.state(), &CircuitState::Closed);
            fail(circuit, now);
        }
        pause(circuit, now)
    }

    fn pause(circuit: &CircuitBreaker, now: Instant) -> Duration {
        match circuit.state() {
            CircuitState::Open { until, reason } => {
                assert_eq!(reason, &trap());
                until.since(now)
            }
            state => panic!("{state:?}"),
        }
    }

    #[test]
    fn the_words_of_a_guest_are_apart_from_those_of_the_host() {
        let failure = trap().saying("panicked\nERROR all is well");
        assert_eq!(
            failure.to_string(),
            "trap: unreachable; guest_message: \"panicked\\nERROR all is well\""
        );
        assert_eq!(trap().to_string(), "trap: unreachable");
    }

    #[test]
    fn only_failures_in_a_row_count() {
        let (mut circuit, now) = closed();
        for _ in 0..20 {
            for _ in 0..4 {
                fail(&mut circuit, now);
            }
            assert_eq!(circuit.failures_in_a_row(), 4);
            succeed(&mut circuit, now);
            assert_eq!(circuit.failures_in_a_row(), 0);
        }
        assert_eq!(trip(&mut circuit, now), SECOND * 5);
    }

    #[test]
    fn an_open_circuit_admits_one_probe_when_its_pause_ends() {
        let (mut circuit, now) = closed();
        trip(&mut circuit, now);
        let end = now.after(SECOND * 5);
        assert_eq!(circuit.opens_at(now), Some(end));
        assert!(circuit.start(now.after(SECOND * 4)).is_none());
        let probe = circuit.start(end).unwrap();
        assert_eq!(circuit.state(), &CircuitState::HalfOpen { reason: trap() });
        assert!(circuit.start(end).is_none(), "one probe at a time");
        assert_eq!(circuit.opens_at(end), None);
        circuit.succeeded(end, probe);
        assert_eq!(circuit.state(), &CircuitState::Closed);
        assert_eq!(circuit.opens_at(end), Some(end));
        assert_eq!(circuit.failures_in_a_row(), 0);
    }

    #[test]
    fn failed_probes_double_the_pause_up_to_its_limit() {
        let (mut circuit, mut now) = closed();
        let mut pauses = vec![trip(&mut circuit, now).as_secs()];
        for _ in 0..8 {
            now = circuit.opens_at(now).unwrap();
            fail(&mut circuit, now);
            pauses.push(pause(&circuit, now).as_secs());
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
    }

    #[test]
    fn a_relapse_continues_and_a_circuit_that_stays_closed_halves() {
        let (mut circuit, mut now) = closed();
        trip(&mut circuit, now);
        for _ in 0..3 {
            now = circuit.opens_at(now).unwrap();
            fail(&mut circuit, now);
        }
        now = circuit.opens_at(now).unwrap();
        succeed(&mut circuit, now);
        assert_eq!(trip(&mut circuit, now), SECOND * 80, "a relapse");
        now = circuit.opens_at(now).unwrap();
        succeed(&mut circuit, now);
        now = now.after(SECOND * 1250);
        assert_eq!(trip(&mut circuit, now), SECOND * 40, "two halvings");
        now = circuit.opens_at(now).unwrap();
        succeed(&mut circuit, now);
        now = now.after(SECOND * 100_000);
        assert_eq!(trip(&mut circuit, now), SECOND * 5, "all is forgotten");
    }

    #[test]
    fn calls_that_started_before_the_circuit_opened_are_not_counted() {
        let (mut circuit, now) = closed();
        let good = circuit.start(now).unwrap();
        let bad = circuit.start(now).unwrap();
        trip(&mut circuit, now);
        let later = now.after(SECOND);
        circuit.succeeded(later, good);
        circuit.failed(later, bad, trap());
        assert_eq!(pause(&circuit, now), SECOND * 5);
    }

    #[test]
    fn an_abandoned_probe_is_followed_by_another() {
        let (mut circuit, now) = closed();
        trip(&mut circuit, now);
        let end = now.after(SECOND * 5);
        let probe = circuit.start(end).unwrap();
        circuit.abandoned(end, probe);
        assert_eq!(circuit.opens_at(end), Some(end));
        succeed(&mut circuit, end);
        let call = circuit.start(end).unwrap();
        circuit.abandoned(end, call);
        assert_eq!(circuit.state(), &CircuitState::Closed);
    }

    #[test]
    fn a_pause_at_the_end_of_time_does_not_overflow() {
        let (mut circuit, _) = closed();
        for _ in 0..FAILURES {
            fail(&mut circuit, Instant::FAR_FUTURE);
        }
        assert_eq!(circuit.opens_at(Instant::ZERO), Some(Instant::FAR_FUTURE));
        fail(&mut circuit, Instant::FAR_FUTURE);
    }

    #[test]
    fn items_of_a_failed_call_are_reconciled_one_by_one() {
        let retry = Finish::Retry {
            failures: Vec::new(),
            retry_after: None,
        };
        for kind in CallFailureKind::ALL {
            let (one, many) = (after_failed_call(kind, 1), after_failed_call(kind, 7));
            match kind {
                CallFailureKind::Start => {
                    assert_eq!((one, many), (Finish::PutBack, Finish::PutBack));
                }
                _ => assert_eq!((one, many), (retry.clone(), Finish::PutBackAlone), "{kind}"),
            }
        }
    }
}
