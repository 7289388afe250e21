//! The health of one revision of a guest: whether it may be called.
//!
//! A call can fail without a decision: a trap, an endless loop, a malformed
//! answer. That costs the guest its call and its items a retry. When
//! [`HealthConfig::failures`] calls in a row fail, the revision is put in
//! quarantine: no calls. When the quarantine ends, one call is let through, the
//! probe. If it succeeds the revision is healthy again, if it fails the next
//! quarantine is twice as long. Health that lasts makes up for it:
//! every [`HealthConfig::decay`] halves what the next quarantine would be.
//!
//! An item whose decision always traps must not do that to others.
//! [`after_failed_call`] has the items of a failed call looked at one by one,
//! so that only the bad one goes on failing: the calls in between succeed, and
//! the revision stays healthy.

use std::fmt;
use std::time::Duration;

use crate::queue::Finish;
use crate::time::Instant;

/// In what way a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallFailureKind {
    /// The guest could not be instantiated, or refused its configuration.
    Start,
    /// It trapped: a panic, an out-of-bounds access, a name that its manifest
    /// does not declare.
    Trap,
    /// It computed longer than it may.
    Timeout,
    /// It asked for more memory than it may have.
    Memory,
    /// Its answer does not fit the question, or cannot be read.
    Malformed,
    /// It answered with more than the host takes.
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

    /// Whether the items of the call may have brought it about.
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
#[error("{kind}: {message}")]
pub struct CallFailure {
    /// In what way.
    pub kind: CallFailureKind,
    /// What happened, for a log.
    pub message: String,
}

impl CallFailure {
    /// A failed call.
    #[must_use]
    pub fn new(kind: CallFailureKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { kind, message }
    }
}

/// What becomes of each item of a failed call that was about `items` of them.
///
/// Of several, each comes again right away in a call of its own, and does so
/// until it is done. A single one is retried after its queue's back-off. A
/// guest that does not start says nothing about its items: they stay as they
/// are.
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

/// When a revision is put in quarantine, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthConfig {
    /// So many failed calls in a row. At least 1.
    pub failures: u32,
    /// The first quarantine; it doubles with each failed probe.
    pub quarantine_initial: Duration,
    /// The longest quarantine.
    pub quarantine_max: Duration,
    /// How long a revision must be healthy without a break for its next
    /// quarantine to be half as long.
    pub decay: Duration,
}

impl Default for HealthConfig {
    /// 5 failures, 5 seconds to 5 minutes, halved every 10 minutes.
    fn default() -> Self {
        Self {
            failures: 5,
            quarantine_initial: Duration::from_secs(5),
            quarantine_max: Duration::from_mins(5),
            decay: Duration::from_mins(10),
        }
    }
}

/// Whether a revision may be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Yes.
    Healthy,
    /// No.
    Quarantined {
        /// The next call is a probe, and not before that.
        until: Instant,
        /// The failure that did it.
        reason: CallFailure,
    },
    /// No: whether it may again depends on the call that is under way.
    Probing {
        /// The failure that led to its last quarantine.
        reason: CallFailure,
    },
}

/// Leave for one call; it is given back with what became of the call.
#[derive(Debug)]
#[must_use = "a probe that is not given back keeps the revision from being called"]
pub struct Permit {
    probe: bool,
}

/// The health of one revision.
#[derive(Debug)]
pub struct Health {
    config: HealthConfig,
    state: State,
    failures_in_a_row: u32,
    /// How often the next quarantine is doubled.
    doublings: u32,
    /// When its last probe succeeded.
    healthy_since: Instant,
}

impl Default for Health {
    fn default() -> Self {
        Self::new(HealthConfig::default())
    }
}

impl Health {
    /// A healthy revision.
    #[must_use]
    pub const fn new(config: HealthConfig) -> Self {
        Self {
            config,
            state: State::Healthy,
            failures_in_a_row: 0,
            doublings: 0,
            // There is nothing to be made up for yet.
            healthy_since: Instant::ZERO,
        }
    }

    /// Whether it may be called.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// How many calls have failed since the last one that succeeded.
    #[must_use]
    pub const fn failures_in_a_row(&self) -> u32 {
        self.failures_in_a_row
    }

    /// From when on [`Self::begin`] lets a call through, not before `now`;
    /// none while a probe is under way.
    #[must_use]
    pub fn opens_at(&self, now: Instant) -> Option<Instant> {
        match self.state {
            State::Healthy => Some(now),
            State::Quarantined { until, .. } => Some(until.max(now)),
            State::Probing { .. } => None,
        }
    }

    /// Asks for leave to call the guest. After a quarantine the first call to
    /// ask is the probe.
    pub fn begin(&mut self, now: Instant) -> Option<Permit> {
        match &self.state {
            State::Healthy => Some(Permit { probe: false }),
            State::Quarantined { until, reason } if *until <= now => {
                self.state = State::Probing {
                    reason: reason.clone(),
                };
                Some(Permit { probe: true })
            }
            State::Quarantined { .. } | State::Probing { .. } => None,
        }
    }

    /// The guest gave its decisions.
    #[expect(clippy::needless_pass_by_value, reason = "a permit is used up")]
    pub fn succeeded(&mut self, now: Instant, permit: Permit) {
        if permit.probe {
            self.state = State::Healthy;
            self.healthy_since = now;
        }
        if self.state == State::Healthy {
            self.failures_in_a_row = 0;
        }
    }

    /// The call failed. One that was let through before a quarantine and ends
    /// during it says nothing new.
    #[expect(clippy::needless_pass_by_value, reason = "a permit is used up")]
    pub fn failed(&mut self, now: Instant, permit: Permit, failure: CallFailure) {
        if !permit.probe && self.state != State::Healthy {
            return;
        }
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        if permit.probe {
            self.quarantine(now, failure);
        } else if self.failures_in_a_row >= self.config.failures {
            self.decay(now);
            self.quarantine(now, failure);
        }
    }

    /// The call was given up for a reason that is not the guest's: a shutdown,
    /// a swap. If it was the probe, the next call is.
    #[expect(clippy::needless_pass_by_value, reason = "a permit is used up")]
    pub fn abandoned(&mut self, now: Instant, permit: Permit) {
        if let (true, State::Probing { reason }) = (permit.probe, &self.state) {
            self.state = State::Quarantined {
                until: now,
                reason: reason.clone(),
            };
        }
    }

    fn quarantine(&mut self, now: Instant, reason: CallFailure) {
        let factor = 2_u32.checked_pow(self.doublings).unwrap_or(u32::MAX);
        let pause = self.config.quarantine_initial.saturating_mul(factor);
        if pause < self.config.quarantine_max {
            self.doublings += 1;
        }
        self.state = State::Quarantined {
            until: now.after(pause.min(self.config.quarantine_max)),
            reason,
        };
    }

    fn decay(&mut self, now: Instant) {
        let healthy = now.since(self.healthy_since).as_nanos();
        let halvings = healthy
            .checked_div(self.config.decay.as_nanos())
            .unwrap_or(u128::MAX);
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

    fn healthy() -> (Health, Instant) {
        let now = Instant::ZERO.after(SECOND * 100);
        (Health::default(), now)
    }

    fn fail(health: &mut Health, now: Instant) {
        let permit = health.begin(now).unwrap();
        health.failed(now, permit, trap());
    }

    fn succeed(health: &mut Health, now: Instant) {
        let permit = health.begin(now).unwrap();
        health.succeeded(now, permit);
    }

    fn fall_ill(health: &mut Health, now: Instant) -> Duration {
        for _ in 0..5 {
            assert_eq!(health.state(), &State::Healthy);
            fail(health, now);
        }
        pause(health, now)
    }

    fn pause(health: &Health, now: Instant) -> Duration {
        match health.state() {
            State::Quarantined { until, reason } => {
                assert_eq!(reason, &trap());
                until.since(now)
            }
            state => panic!("{state:?}"),
        }
    }

    #[test]
    fn only_failures_in_a_row_count() {
        let (mut health, now) = healthy();
        for _ in 0..20 {
            for _ in 0..4 {
                fail(&mut health, now);
            }
            assert_eq!(health.failures_in_a_row(), 4);
            succeed(&mut health, now);
            assert_eq!(health.failures_in_a_row(), 0);
        }
        assert_eq!(fall_ill(&mut health, now), SECOND * 5);
    }

    #[test]
    fn a_quarantine_lets_one_probe_through_when_it_ends() {
        let (mut health, now) = healthy();
        fall_ill(&mut health, now);
        let end = now.after(SECOND * 5);
        assert_eq!(health.opens_at(now), Some(end));
        assert!(health.begin(now.after(SECOND * 4)).is_none());
        let probe = health.begin(end).unwrap();
        assert_eq!(health.state(), &State::Probing { reason: trap() });
        assert!(health.begin(end).is_none(), "one probe at a time");
        assert_eq!(health.opens_at(end), None);
        health.succeeded(end, probe);
        assert_eq!(health.state(), &State::Healthy);
        assert_eq!(health.opens_at(end), Some(end));
        assert_eq!(health.failures_in_a_row(), 0);
    }

    #[test]
    fn failed_probes_double_the_quarantine_up_to_its_limit() {
        let (mut health, mut now) = healthy();
        let mut pauses = vec![fall_ill(&mut health, now).as_secs()];
        for _ in 0..8 {
            now = health.opens_at(now).unwrap();
            fail(&mut health, now);
            pauses.push(pause(&health, now).as_secs());
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
    }

    #[test]
    fn a_relapse_continues_and_lasting_health_halves() {
        let (mut health, mut now) = healthy();
        fall_ill(&mut health, now);
        for _ in 0..3 {
            now = health.opens_at(now).unwrap();
            fail(&mut health, now);
        }
        now = health.opens_at(now).unwrap();
        succeed(&mut health, now);
        assert_eq!(fall_ill(&mut health, now), SECOND * 80, "a relapse");
        now = health.opens_at(now).unwrap();
        succeed(&mut health, now);
        now = now.after(SECOND * 1250);
        assert_eq!(fall_ill(&mut health, now), SECOND * 40, "two halvings");
        now = health.opens_at(now).unwrap();
        succeed(&mut health, now);
        now = now.after(SECOND * 100_000);
        assert_eq!(fall_ill(&mut health, now), SECOND * 5, "all is forgotten");
    }

    #[test]
    fn calls_from_before_a_quarantine_say_nothing_during_it() {
        let (mut health, now) = healthy();
        let good = health.begin(now).unwrap();
        let bad = health.begin(now).unwrap();
        fall_ill(&mut health, now);
        let later = now.after(SECOND);
        health.succeeded(later, good);
        health.failed(later, bad, trap());
        assert_eq!(pause(&health, now), SECOND * 5);
    }

    #[test]
    fn an_abandoned_probe_is_followed_by_another() {
        let (mut health, now) = healthy();
        fall_ill(&mut health, now);
        let end = now.after(SECOND * 5);
        let probe = health.begin(end).unwrap();
        health.abandoned(end, probe);
        assert_eq!(health.opens_at(end), Some(end));
        succeed(&mut health, end);
        let call = health.begin(end).unwrap();
        health.abandoned(end, call);
        assert_eq!(health.state(), &State::Healthy);
    }

    #[test]
    fn a_configuration_of_extremes_does_not_overflow() {
        let now = Instant::ZERO;
        let mut health = Health::new(HealthConfig {
            failures: 1,
            quarantine_initial: Duration::MAX,
            quarantine_max: Duration::MAX,
            decay: Duration::ZERO,
        });
        fail(&mut health, now);
        assert_eq!(health.opens_at(now), Some(Instant::FAR_FUTURE));
        fail(&mut health, Instant::FAR_FUTURE);
    }

    #[test]
    fn items_of_a_failed_call_are_looked_at_one_by_one() {
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
