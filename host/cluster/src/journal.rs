//! The requests that were sent for one plan or one live read, with their times: what a
//! trace shows of them.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use davit_core::request::{Method, Request, RequestError};
use davit_core::time::Instant;
use davit_core::untrusted;
use http::StatusCode;

/// The most requests that a journal stores. Later ones are counted.
const MOST_REQUESTS: usize = 64;
/// The longest path that a journal stores, in bytes.
const LONGEST_PATH: usize = 512;

/// One request that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentRequest {
    /// The method.
    pub method: Method,
    /// The path, without the query.
    pub path: String,
    /// The start of the request's wait for its turn.
    pub asked: Instant,
    /// When it was sent.
    pub sent: Instant,
    /// When its answer was complete, or there was none.
    pub answered: Instant,
    /// The status code of the answer; none without an answer.
    pub code: Option<u16>,
    /// Why there was no answer.
    pub failure: Option<String>,
}

/// The requests of one [`Api`](crate::api::Api), in their order. Copies share it.
#[derive(Clone, Debug, Default)]
pub struct RequestJournal(Arc<Mutex<Content>>);

#[derive(Debug, Default)]
struct Content {
    requests: Vec<SentRequest>,
    left_out: usize,
}

/// The times of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestTimes {
    pub(crate) asked: Instant,
    pub(crate) sent: Instant,
    pub(crate) answered: Instant,
}

impl RequestJournal {
    pub(crate) fn add(
        &self,
        request: &Request,
        times: RequestTimes,
        answer: &Result<(StatusCode, Bytes), RequestError>,
    ) {
        let mut content = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if content.requests.len() >= MOST_REQUESTS {
            content.left_out += 1;
            return;
        }
        let (code, failure) = match answer {
            Ok((code, _)) => (Some(code.as_u16()), None),
            Err(RequestError::Refused(refusal)) => (Some(refusal.code), None),
            Err(RequestError::NoAnswer(reason)) => (None, Some(reason.to_string())),
            Err(RequestError::Paused(_)) => (None, Some("not sent".to_owned())),
        };
        let path = request.uri.split('?').next().unwrap_or_default();
        content.requests.push(SentRequest {
            method: request.method,
            path: untrusted::line(path, LONGEST_PATH),
            asked: times.asked,
            sent: times.sent,
            answered: times.answered,
            code,
            failure,
        });
    }

    /// The requests so far, and how many of them the journal does not have.
    #[must_use]
    pub fn take(&self) -> (Vec<SentRequest>, usize) {
        let mut content = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Content { requests, left_out } = std::mem::take(&mut *content);
        (requests, left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_bounded_and_counts_the_rest() {
        let journal = RequestJournal::default();
        let at = |seconds: u64| Instant::from_nanos(1_000_000_000 * seconds);
        let times = RequestTimes {
            asked: at(1),
            sent: at(2),
            answered: at(3),
        };
        let long = format!("/api/v1/{}?watch=1", "x".repeat(10_000));
        let request = Request::get(long, "");
        for _ in 0..MOST_REQUESTS + 3 {
            journal.add(&request, times, &Ok((StatusCode::OK, Bytes::new())));
        }
        let (requests, left_out) = journal.take();
        assert_eq!((requests.len(), left_out), (MOST_REQUESTS, 3));
        assert_eq!(requests[0].code, Some(200));
        assert!(requests[0].path.len() <= LONGEST_PATH + untrusted::ELLIPSIS);
        assert_eq!(journal.take(), (vec![], 0));
    }
}
