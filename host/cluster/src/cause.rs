//! Why the API server did not answer.

use std::error::Error;
use std::io;

use davit_core::failure::chain;
use davit_core::request::{Cause, NoAnswer};

use crate::term::TermOver;

/// The request cannot be encoded.
pub(crate) fn unsendable(error: &(dyn Error + 'static)) -> NoAnswer {
    NoAnswer {
        cause: Cause::Unsendable,
        unsent: true,
        detail: chain(error),
    }
}

/// There was no head of an answer.
pub(crate) fn no_answer(error: &(dyn Error + 'static)) -> NoAnswer {
    if causes(error).any(<dyn std::error::Error + 'static>::is::<TermOver>) {
        return term_over(error);
    }
    let unsent = causes(error).any(is_about_connecting);
    describe(error, unsent)
}

/// The connection broke during the answer.
pub(crate) fn broken_off(error: &(dyn Error + 'static)) -> NoAnswer {
    let detail = format!("the answer broke off: {}", chain(error));
    NoAnswer {
        detail,
        ..describe(error, false)
    }
}

/// The host did not send the request, or only a part of it. That shows nothing about the
/// server.
fn term_over(error: &(dyn Error + 'static)) -> NoAnswer {
    let hyper = |error: &(dyn Error + 'static)| {
        let error = error.downcast_ref::<hyper::Error>();
        error.is_some_and(hyper::Error::is_user)
    };
    NoAnswer {
        cause: Cause::Unsendable,
        // Its own body failed. A connection breaks also for another request.
        unsent: causes(error).any(hyper),
        detail: innermost(error),
    }
}

fn describe(error: &(dyn Error + 'static), unsent: bool) -> NoAnswer {
    let cause = cause(error, unsent);
    let says_all = matches!(cause, Cause::Refused | Cause::Reset);
    NoAnswer {
        cause,
        unsent,
        detail: if says_all {
            String::new()
        } else {
            innermost(error)
        },
    }
}

fn cause(error: &(dyn Error + 'static), unsent: bool) -> Cause {
    let mut all = causes(error);
    all.find_map(|error| {
        if error.is::<rustls::Error>() {
            return Some(Cause::Tls);
        }
        // Hyper's connector has no other sign of this error.
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

/// An error and its causes. An I/O error hides the one that it contains.
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
