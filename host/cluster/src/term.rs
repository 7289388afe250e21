//! Terms of leadership: until when this replica may send requests for a controller.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use davit_core::election::LeaseTerm;
use davit_core::request::RequestError;
use davit_core::time::Instant;
use tokio::sync::watch;
use tokio::time::timeout_at;

use crate::clock::Clock;

/// A request is not sent, or only a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this replica does not lead the controller any more")]
pub(crate) struct TermOver;

/// The term of one controller. It changes while requests are sent.
#[derive(Clone, Debug)]
pub struct Term(Option<Limit>);

#[derive(Clone, Debug)]
struct Limit {
    clock: Clock,
    /// None while another replica leads.
    until: watch::Receiver<Option<Instant>>,
    /// How long a request may take that was sent at the end of the term.
    grace: Duration,
}

impl Term {
    /// There are no other replicas.
    #[must_use]
    pub fn unlimited() -> Self {
        Self(None)
    }

    /// A term that ends at the last value of `until`; requests end `grace` later.
    #[must_use]
    pub fn new(clock: Clock, until: watch::Receiver<Option<Instant>>, grace: Duration) -> Self {
        Self(Some(Limit {
            clock,
            until,
            grace,
        }))
    }

    /// Whether requests may be sent now.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.0
            .as_ref()
            .is_none_or(|limit| limit.current().is_some())
    }

    /// Whether both are the term of the same controller.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => one.until.same_channel(&other.until),
            (None, None) => true,
            _ => false,
        }
    }

    /// Sends a request, if this replica leads. Another one may lead soon after the term: the
    /// request ends before. A term that is renewed meanwhile ends later, and so may a request to a
    /// server that takes longer for it, such as one with a slow webhook. Until a request ends, nobody
    /// else has led: they wait longer after the last renewal, and a lease passes only when no
    /// request is under way.
    pub async fn send(
        &self,
        request: impl Future<Output = Result<Bytes, RequestError>>,
    ) -> Result<Bytes, RequestError> {
        let Some(limit) = &self.0 else {
            return request.await;
        };
        let mut term = limit
            .current()
            .ok_or_else(|| RequestError::term_over(true))?;
        let mut request = pin!(request);
        loop {
            let deadline = limit.clock.deadline(term.ends());
            if let Ok(answer) = timeout_at(deadline, request.as_mut()).await {
                return answer;
            }
            term = limit
                .current()
                .ok_or_else(|| RequestError::term_over(false))?;
        }
    }

    /// Whether there are other replicas.
    pub(crate) fn is_limited(&self) -> bool {
        self.0.is_some()
    }
}

impl Limit {
    /// The term, if it is not over.
    fn current(&self) -> Option<LeaseTerm> {
        let until = *self.until.borrow();
        let grace = self.grace;
        Some(LeaseTerm { until, grace }).filter(|term| term.holds(self.clock.instant()))
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::join;
    use tokio::time::sleep_until;

    use super::*;

    fn seconds(seconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_secs(seconds))
    }

    async fn answered(after: Duration) -> Result<Bytes, RequestError> {
        tokio::time::sleep(after).await;
        Ok(Bytes::new())
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_sent_in_the_term_and_ends_soon_after_it() {
        let clock = Clock::start();
        let (sender, until) = watch::channel(Some(seconds(10)));
        let term = Term::new(clock, until, Duration::from_secs(3));
        let sent = term.send(answered(Duration::from_secs(9))).await;
        assert!(sent.is_ok() && term.holds());
        // The term is renewed while a request is under way: it may end later.
        let renewal = async {
            sleep_until(clock.deadline(seconds(11))).await;
            sender.send_replace(Some(seconds(20)));
        };
        let (sent, ()) = join!(term.send(answered(Duration::from_secs(12))), renewal);
        assert!(sent.is_ok());
        assert_eq!(clock.instant(), seconds(21));
        sender.send_replace(Some(seconds(30)));
        assert!(term.send(pending()).await.is_err());
        assert_eq!(clock.instant(), seconds(33));
        let Err(RequestError::NoAnswer(error)) = term.send(async { panic!("it is sent") }).await
        else {
            panic!("the term is over");
        };
        assert!(error.unsent && !term.holds());
    }

    #[tokio::test(start_paused = true)]
    async fn without_other_replicas_there_is_no_limit() {
        let term = Term::unlimited();
        assert!(term.send(answered(Duration::from_hours(1))).await.is_ok());
        assert!(term.holds() && !term.is_limited());
    }
}
