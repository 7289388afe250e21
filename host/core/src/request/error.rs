//! The errors of requests: their causes, their failure classes, and whether the request
//! may be sent again.

use std::fmt;
use std::time::Duration;

use super::Method;
use crate::failure::{Failure, FailureClass};
use crate::mutant::Mutant;
use crate::refusal::ErrorResponse;
use crate::traffic::{LoadSignal, PATIENCE};
use crate::watch::Interruption;

/// How often the host sends a refused request again.
const MOST_REPEATS: u32 = 5;
/// The longest pause that holds for other requests than the refused one.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// Why a request did not succeed.
#[derive(Clone, Debug)]
pub enum RequestError {
    /// The server refused it.
    Refused(Box<ErrorResponse>),
    /// There was no answer.
    NoAnswer(NoAnswer),
    /// It was not sent: the server asked for a pause that ends this much later.
    Paused(Duration),
}

/// A request without a complete answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoAnswer {
    /// What went wrong.
    pub cause: Cause,
    /// Whether the request certainly did not reach the server, because there was no
    /// connection.
    pub unsent: bool,
    /// The error of a library; empty if the cause says the same.
    pub detail: String,
}

/// Why there was no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// No server listens at the address.
    Refused,
    /// The connection broke.
    Reset,
    /// No answer within the time for it.
    TimedOut,
    /// The server's name has no address.
    Dns,
    /// The server and the host do not agree on the encryption, or on the server's
    /// identity.
    Tls,
    /// The request cannot be sent.
    Unsendable,
    /// Anything else.
    Other,
}

impl RequestError {
    /// The failure of an attempt: `get v1 Pod ns/name`.
    #[must_use]
    pub fn failure(&self, attempt: &dyn fmt::Display) -> Failure {
        match self {
            Self::Refused(refused) => Failure {
                class: refused.class(),
                message: format!("{attempt}: {}", refused.describe()),
                retry_after: refused.retry_after,
            },
            Self::NoAnswer(reason) => {
                Failure::new(FailureClass::Timeout, format!("{attempt}: {reason}"))
            }
            Self::Paused(left) => Failure {
                class: FailureClass::Throttled,
                message: format!(
                    "{attempt}: not sent: the API server asked requests like this one to wait, \
                     for another {left:?}"
                ),
                retry_after: Some(*left),
            },
        }
    }

    /// This replica leads the controller no longer.
    #[must_use]
    pub fn term_over(unsent: bool) -> Self {
        Self::NoAnswer(NoAnswer {
            cause: Cause::Other,
            unsent,
            detail: "this replica does not lead the controller any more".to_owned(),
        })
    }

    /// The request has ended before, and somebody else has its result.
    pub(super) fn over() -> Self {
        Self::NoAnswer(NoAnswer::strange("the request is over"))
    }

    /// Whether the object does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused(refused) if refused.class() == FailureClass::NotFound)
    }

    /// The status code of a refusal.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused(refused) => Some(refused.code),
            Self::NoAnswer(_) | Self::Paused(_) => None,
        }
    }

    /// Whether the request certainly did not reach the server.
    #[must_use]
    pub fn is_unsent(&self) -> bool {
        match self {
            Self::Refused(_) => false,
            Self::NoAnswer(reason) => reason.unsent,
            Self::Paused(_) => true,
        }
    }

    /// What the end of a request shows about the server's load.
    #[must_use]
    pub fn ended<T>(sent: &Result<T, Self>) -> LoadSignal {
        match sent {
            Err(Self::Refused(refused)) if is_overload(refused) => LoadSignal::Overloaded,
            Ok(_) | Err(Self::Refused(_)) => LoadSignal::Answered,
            Err(Self::NoAnswer(reason)) if reason.cause == Cause::TimedOut => {
                LoadSignal::Overloaded
            }
            Err(Self::NoAnswer(_) | Self::Paused(_)) => LoadSignal::Unknown,
        }
    }

    /// How long requests like this one have to wait because of this answer; none if the
    /// answer is not about the server's load.
    #[must_use]
    pub fn overload_pause(&self) -> Option<Duration> {
        let Self::Refused(refused) = self else {
            return None;
        };
        let overload = matches!(refused.code, 429 | 503) && !refused.is_disruption_budget();
        let pause = refused.retry_after?;
        (overload && pause <= LONGEST_PAUSE).then_some(pause)
    }
}

impl From<RequestError> for Interruption {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Refused(refused) => Self::Refused((*refused).into()),
            RequestError::NoAnswer(reason) => Self::Lost(reason.to_string()),
            // A watch does not wait for a turn.
            RequestError::Paused(left) => Self::Lost(format!("paused for {left:?}")),
        }
    }
}

fn is_overload(refused: &ErrorResponse) -> bool {
    matches!(refused.code, 429 | 503 | 504) && !refused.is_disruption_budget()
}

/// How often a request was sent again, and whether it may be sent once more: only if
/// the server certainly did not execute it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repeats(u32);

impl Repeats {
    /// Whether a request that ended like this may be sent again, after the pause that
    /// the server asked for. If so, counts it.
    pub fn may_repeat(&mut self, method: Method, error: &RequestError) -> bool {
        let may = match error {
            RequestError::Refused(refused) => {
                let not_executed = refused.code == 429 || method == Method::Get;
                error
                    .overload_pause()
                    .is_some_and(|pause| not_executed && pause <= PATIENCE && self.0 < MOST_REPEATS)
            }
            // Another server may listen at the address, or this one again.
            RequestError::NoAnswer(reason) => {
                (reason.unsent || Mutant::RepeatWrites.is_active()) && self.0 == 0
            }
            RequestError::Paused(_) => false,
        };
        self.0 += u32::from(may);
        may
    }
}

impl NoAnswer {
    /// The server did not answer in time.
    #[must_use]
    pub fn silence(waited: Duration) -> Self {
        Self {
            cause: Cause::TimedOut,
            unsent: false,
            detail: format!("no answer within {waited:?}"),
        }
    }

    /// A malformed answer.
    #[must_use]
    pub fn strange(detail: &str) -> Self {
        Self {
            cause: Cause::Other,
            unsent: false,
            detail: detail.to_owned(),
        }
    }
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cause)?;
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        Ok(())
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "connection refused",
            Self::Reset => "connection reset",
            Self::TimedOut => "timed out",
            Self::Dns => "no address for the server's name",
            Self::Tls => "TLS",
            Self::Unsendable => "not sent",
            Self::Other => "no answer",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, retry_after: Option<u64>) -> RequestError {
        let pause = retry_after.map(Duration::from_secs);
        RequestError::Refused(Box::new(ErrorResponse::read(code, pause, b"")))
    }

    fn no_answer(unsent: bool) -> RequestError {
        RequestError::NoAnswer(NoAnswer {
            cause: Cause::Reset,
            unsent,
            detail: String::new(),
        })
    }

    #[test]
    fn a_write_is_repeated_only_if_it_was_certainly_not_executed() {
        for (error, write, read) in [
            (refused(429, Some(1)), true, true),
            (refused(429, None), false, false),
            (refused(429, Some(50)), false, false),
            (refused(503, Some(1)), false, true),
            (refused(500, Some(1)), false, false),
            (refused(409, Some(1)), false, false),
            (no_answer(true), true, true),
            (no_answer(false), false, false),
            (RequestError::Paused(Duration::ZERO), false, false),
        ] {
            let may = |method| Repeats::default().may_repeat(method, &error);
            for method in [Method::Post, Method::Patch, Method::Delete] {
                assert_eq!(may(method), write, "{method} after {error:?}");
            }
            assert_eq!(may(Method::Get), read, "GET after {error:?}");
        }
    }

    #[test]
    fn repeats_come_to_an_end() {
        let mut repeats = Repeats::default();
        let throttled = refused(429, Some(1));
        let mut again = || repeats.may_repeat(Method::Delete, &throttled);
        assert_eq!((0..9).filter(|_| again()).count(), 5);
        let mut repeats = Repeats::default();
        assert!(repeats.may_repeat(Method::Delete, &no_answer(true)));
        assert!(!repeats.may_repeat(Method::Delete, &no_answer(true)));
    }
}
