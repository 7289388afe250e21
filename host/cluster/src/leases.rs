//! Leases of leader election.

use std::panic::resume_unwind;
use std::time::Duration;

use davit_core::election::{LeaseAnswer, LeaseRequest, LeaseRequestId};
use davit_core::request::{NoAnswer, RequestError, lease};
use tokio::time::timeout;

use crate::api::Api;

/// Executes a request of leader election, without waiting for a turn: renewals of leases are
/// few, and come before everything else. Without an answer in this time, it failed for the election,
/// and the server may still execute it: to drop the request would end its stream or its connection, by
/// which an API server stops what it has not done yet.
pub async fn execute(
    api: &Api,
    namespace: &str,
    request: &LeaseRequest,
    within: Duration,
) -> (LeaseRequestId, LeaseAnswer) {
    let sent = lease::request(namespace, request);
    let api = api.clone();
    let sending = tokio::spawn(async move { api.send(&sent).await });
    let answer = match timeout(within, sending).await {
        Ok(answer) => answer.unwrap_or_else(|ended| resume_unwind(ended.into_panic())),
        Err(_) => Err(RequestError::NoAnswer(NoAnswer::silence(within))),
    };
    let answer = lease::answer(namespace, request, answer.as_deref());
    (request.id(), answer)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use bytes::Bytes;
    use davit_core::election::{Elections, LeaseTiming};
    use davit_core::time::{Now, Wall};
    use http::{Request, Response};
    use http_body_util::Full;
    use kube::client::Body;
    use tokio::time::sleep;

    use super::*;
    use crate::clock::Clock;

    #[tokio::test(start_paused = true)]
    async fn a_request_that_the_election_has_given_up_is_still_executed() {
        const LATENCY: Duration = Duration::from_secs(4);
        let executed = Arc::new(AtomicBool::new(false));
        let by_server = Arc::clone(&executed);
        // As an API server, it stops when nobody waits any more.
        let server = tower::service_fn(move |_: Request<Body>| {
            let executed = Arc::clone(&by_server);
            async move {
                sleep(LATENCY).await;
                executed.store(true, Ordering::Relaxed);
                Ok::<_, io::Error>(Response::new(Full::new(Bytes::from_static(b"{}"))))
            }
        });
        let client = kube::Client::new(server, "davit");
        let clock = Clock::start();
        let api = Api::new(client, clock, None);
        let timing = LeaseTiming::default();
        let now = Now {
            instant: clock.instant(),
            wall: Wall(0),
        };
        let mut elections = Elections::new("a", timing, now.instant);
        let request = elections.poll(now).unwrap();
        let (_, answer) = execute(&api, "davit", &request, timing.patience()).await;
        assert!(matches!(answer, LeaseAnswer::Read(Err(_))), "{answer:?}");
        assert!(!executed.load(Ordering::Relaxed));
        sleep(LATENCY).await;
        assert!(executed.load(Ordering::Relaxed));
    }
}
