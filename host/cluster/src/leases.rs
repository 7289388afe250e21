//! Leases of leader election.

use std::panic::resume_unwind;

use davit_core::election::{LeaseAnswer, LeaseRequest, LeaseRequestId, LeaseTiming};
use davit_core::request::{NoAnswer, RequestError, lease};
use tokio::time::timeout;

use crate::api::Api;

/// Executes a request of leader election, without waiting for a turn: renewals of leases are
/// few, and come before everything else. Without an answer in time, it failed for the election, and the
/// server may still execute it until about the next attempt: to drop the request would end its stream
/// or its connection, by which an API server stops what it has not done yet. What is executed later would
/// renew the lease for a replica that cannot lead, and keep others from it.
pub async fn execute(
    api: &Api,
    namespace: &str,
    request: &LeaseRequest,
    timing: &LeaseTiming,
) -> (LeaseRequestId, LeaseAnswer) {
    let sent = lease::request(namespace, request);
    let api = api.clone();
    let (patience, end) = (timing.patience(), timing.second_attempt());
    let silence = || Err(RequestError::NoAnswer(NoAnswer::silence(patience)));
    let sending = tokio::spawn(async move { timeout(end, api.send(&sent)).await });
    let answer = match timeout(patience, sending).await {
        Ok(Ok(Ok(answer))) => answer,
        Ok(Err(ended)) => match ended.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(_) => silence(),
        },
        Ok(Ok(Err(_))) | Err(_) => silence(),
    };
    let answer = lease::answer(namespace, request, answer.as_deref());
    (request.id(), answer)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use bytes::Bytes;
    use davit_core::election::Elections;
    use davit_core::time::{Now, Wall};
    use http::{Request, Response};
    use http_body_util::Full;
    use kube::client::Body;
    use tokio::time::sleep;

    use super::*;
    use crate::clock::Clock;

    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_is_executed_until_the_next_attempt() {
        assert!(is_executed(Duration::from_millis(3900)).await);
        assert!(!is_executed(Duration::from_millis(4100)).await);
    }

    /// Whether a server executes a request for leases that takes so long.
    async fn is_executed(latency: Duration) -> bool {
        let executed = Arc::new(AtomicBool::new(false));
        let by_server = Arc::clone(&executed);
        // As an API server, it stops when nobody waits any more.
        let server = tower::service_fn(move |_: Request<Body>| {
            let executed = Arc::clone(&by_server);
            async move {
                sleep(latency).await;
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
        let (_, answer) = execute(&api, "davit", &request, &timing).await;
        assert!(matches!(answer, LeaseAnswer::Read(Err(_))), "{answer:?}");
        assert!(!executed.load(Ordering::Relaxed));
        sleep(latency).await;
        executed.load(Ordering::Relaxed)
    }
}
