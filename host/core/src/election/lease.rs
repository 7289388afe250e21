//! Leases as the API server stores them, and their timing.

use std::fmt;
use std::time::Duration;

use super::ready::ReadyControllers;
use crate::time::Wall;

/// A Lease of `coordination.k8s.io/v1`, as far as leader election uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The identity of the replica that holds it; none if it is free.
    pub holder: Option<String>,
    /// For how long nobody else acquires it after a renewal. Whole seconds.
    pub duration: Duration,
    /// When the holder acquired it, for people: no replica trusts another one's clock.
    pub acquired: Wall,
    /// When the holder last renewed it, for people.
    pub renewed: Wall,
    /// How often the holder has changed.
    pub transitions: u32,
    /// In the lease of a replica: the controllers that it has loaded, and whose watches it
    /// has synced. It takes over their leases first.
    pub ready: ReadyControllers,
}

/// A Lease with its resource version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLease {
    /// The lease.
    pub lease: Lease,
    /// Its `metadata.resourceVersion`: it changes with every write.
    pub version: String,
}

/// A write to a Lease. It fails if anybody has written the Lease in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseWrite {
    /// Creates the Lease.
    Create(Lease),
    /// Replaces the Lease of that version.
    Replace {
        /// The lease.
        lease: Lease,
        /// The version that it replaces.
        version: String,
    },
}

impl LeaseWrite {
    /// The lease that is written.
    #[must_use]
    pub fn lease(&self) -> &Lease {
        match self {
            Self::Create(lease) | Self::Replace { lease, .. } => lease,
        }
    }
}

/// Why a write to a Lease failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseWriteError {
    /// Somebody has written, created or deleted the Lease in between. Nothing was
    /// written.
    Conflict,
    /// The API server refused it, or did not answer: it may have been written.
    Failed(String),
}

/// The timing of leases, in the terms of `kube-controller-manager --leader-elect-*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTiming {
    /// For how long nobody else acquires a lease after a renewal. Whole seconds.
    pub duration: Duration,
    /// How long after its last renewal a holder stops to write.
    pub renew_deadline: Duration,
    /// The pause between attempts, and between readings of all leases.
    pub retry_period: Duration,
}

impl Default for LeaseTiming {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// Why a timing is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseTimingError {
    /// The API server stores whole seconds.
    NotWholeSeconds,
    /// Requests that a holder has sent must end before the lease can pass on.
    NoGrace,
    /// A holder needs a second attempt to renew.
    NoRetry,
}

impl fmt::Display for LeaseTimingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotWholeSeconds => "the lease duration is not a whole number of seconds",
            Self::NoGrace => {
                "the renew deadline is longer than three quarters of the lease duration: requests \
                 that a replica has sent must end before another one acquires the lease"
            }
            Self::NoRetry => {
                "the renew deadline is shorter than three retry periods: a replica that renews a \
                 lease needs more than one attempt"
            }
        })
    }
}

impl std::error::Error for LeaseTimingError {}

impl LeaseTiming {
    /// Refuses a timing with which a lease could have two holders that write, or would be
    /// lost with one request.
    pub fn check(&self) -> Result<(), LeaseTimingError> {
        if self.duration.subsec_nanos() > 0 || self.duration.is_zero() {
            Err(LeaseTimingError::NotWholeSeconds)
        } else if self.renew_deadline * 4 > self.duration * 3 {
            Err(LeaseTimingError::NoGrace)
        } else if self.renew_deadline < self.retry_period * 3 {
            Err(LeaseTimingError::NoRetry)
        } else {
            Ok(())
        }
    }

    /// How often a holder renews: half of the renew deadline leaves time for a second
    /// attempt and a third.
    #[must_use]
    pub fn renew_interval(&self) -> Duration {
        self.renew_deadline / 2
    }

    /// How long a replica waits for the answer to a request for leases. Longer than the three seconds
    /// after which many a webhook that does not answer is left out.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.renew_interval() * 7 / 10
    }

    /// When a replica writes a lease again after an attempt without an answer: by then it has read
    /// whether that one was only slow, and there is time left until the renew deadline.
    #[must_use]
    pub fn second_attempt(&self) -> Duration {
        self.renew_interval() * 4 / 5
    }

    /// How often a replica reads all leases.
    #[must_use]
    pub fn read_interval(&self) -> Duration {
        self.retry_period / 2
    }

    /// How long a request may take that a holder has sent before its renew deadline. It
    /// ends before another replica acquires the lease, also if the clock of one of them is
    /// a tenth faster than that of the other.
    #[must_use]
    pub fn grace(&self) -> Duration {
        self.duration.saturating_sub(self.renew_deadline) * 3 / 5
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timing_leaves_time_to_retry_and_to_end_requests() {
        let seconds = Duration::from_secs;
        let check = |duration, renew, retry| {
            LeaseTiming {
                duration,
                renew_deadline: renew,
                retry_period: retry,
            }
            .check()
        };
        assert_eq!(LeaseTiming::default().check(), Ok(()));
        assert_eq!(
            check(Duration::from_millis(1500), seconds(1), seconds(0)),
            Err(LeaseTimingError::NotWholeSeconds)
        );
        assert_eq!(
            check(seconds(0), seconds(0), seconds(0)),
            Err(LeaseTimingError::NotWholeSeconds)
        );
        assert_eq!(
            check(seconds(15), seconds(12), seconds(2)),
            Err(LeaseTimingError::NoGrace)
        );
        assert_eq!(
            check(seconds(15), seconds(10), seconds(4)),
            Err(LeaseTimingError::NoRetry)
        );
    }

    /// The clock of the successor may be a tenth faster.
    #[test]
    fn requests_end_before_the_lease_can_pass_on() {
        let timing = LeaseTiming::default();
        let end = timing.renew_deadline + timing.grace();
        assert_eq!(end, Duration::from_secs(13));
        assert!(end * 11 / 10 < timing.duration);
    }
}
