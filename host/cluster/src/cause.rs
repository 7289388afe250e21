//! Why the API server did not answer.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use crate::api::chain;

/// What went wrong on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// Nobody listens at the address.
    Refused,
    /// The connection broke.
    Reset,
    /// No answer within the time for it.
    TimedOut,
    /// The server's name leads to no address.
    Dns,
    /// The server and the host do not agree on how to encrypt, or on who the
    /// server is.
    Tls,
    /// The request was none that can be sent.
    Unsendable,
    /// Anything else.
    Other,
}

/// A request without a whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoAnswer {
    pub(crate) cause: Cause,
    /// Whether it certainly did not reach the server: there was no connection.
    pub(crate) unsent: bool,
    /// What a library says of it; empty if the cause says as much.
    detail: String,
}

impl NoAnswer {
    /// The server was silent for too long.
    pub(crate) fn silence(waited: Duration) -> Self {
        Self {
            cause: Cause::TimedOut,
            unsent: false,
            detail: format!("no answer within {waited:?}"),
        }
    }

    /// The request cannot be written down.
    pub(crate) fn unsendable(error: &(dyn Error + 'static)) -> Self {
        Self {
            cause: Cause::Unsendable,
            unsent: true,
            detail: chain(error),
        }
    }

    /// An answer that makes no sense.
    pub(crate) fn strange(detail: &str) -> Self {
        Self {
            cause: Cause::Other,
            unsent: false,
            detail: detail.to_owned(),
        }
    }

    /// There was no head of an answer.
    pub(crate) fn of(error: &(dyn Error + 'static)) -> Self {
        let unsent = causes(error).any(is_about_connecting);
        Self::new(error, unsent)
    }

    /// The answer broke off.
    pub(crate) fn broken_off(error: &(dyn Error + 'static)) -> Self {
        let detail = format!("the answer broke off: {}", chain(error));
        Self {
            detail,
            ..Self::new(error, false)
        }
    }

    fn new(error: &(dyn Error + 'static), unsent: bool) -> Self {
        let cause = cause(error, unsent);
        let says_all = matches!(cause, Cause::Refused | Cause::Reset);
        Self {
            cause,
            unsent,
            detail: if says_all {
                String::new()
            } else {
                innermost(error)
            },
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

fn cause(error: &(dyn Error + 'static), unsent: bool) -> Cause {
    let mut all = causes(error);
    all.find_map(|error| {
        if error.is::<rustls::Error>() {
            return Some(Cause::Tls);
        }
        // Hyper's connector has no other mark of it.
        if unsent && error.to_string() == "dns error" {
            return Some(Cause::Dns);
        }
        match error.downcast_ref::<io::Error>()?.kind() {
            io::ErrorKind::ConnectionRefused => Some(Cause::Refused),
            io::ErrorKind::TimedOut => Some(Cause::TimedOut),
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::NotConnected => Some(Cause::Reset),
            _ => None,
        }
    })
    .or_else(|| is_closed(error).then_some(Cause::Reset))
    .unwrap_or(Cause::Other)
}

/// Whether the server closed the connection before it answered.
fn is_closed(error: &(dyn Error + 'static)) -> bool {
    causes(error)
        .filter_map(|error| error.downcast_ref::<hyper::Error>())
        .any(|error| error.is_incomplete_message() || error.is_closed())
}

fn is_about_connecting(error: &(dyn Error + 'static)) -> bool {
    let error = error.downcast_ref::<hyper_util::client::legacy::Error>();
    error.is_some_and(hyper_util::client::legacy::Error::is_connect)
}

fn innermost(error: &(dyn Error + 'static)) -> String {
    causes(error)
        .last()
        .map(ToString::to_string)
        .unwrap_or_default()
}

/// An error and what is behind it. An error of I/O hides the one that it holds.
fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| behind(*error))
}

fn behind<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> {
    let io = error.downcast_ref::<io::Error>();
    match io.and_then(io::Error::get_ref) {
        Some(held) => Some(held),
        None => error.source(),
    }
}
