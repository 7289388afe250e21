//! Leases of leader election.

use std::time::Duration;

use davit_core::election::{LeaseAnswer, LeaseRequest, LeaseRequestId};
use davit_core::request::{NoAnswer, RequestError, lease};
use tokio::time::timeout;

use crate::api::Api;

/// Executes a request of leader election, without waiting for a turn: renewals of leases are
/// few, and come before everything else. Without an answer in this time, it failed.
pub async fn execute(
    api: &Api,
    namespace: &str,
    request: &LeaseRequest,
    within: Duration,
) -> (LeaseRequestId, LeaseAnswer) {
    let sent = lease::request(namespace, request);
    let answer = match timeout(within, api.send(&sent)).await {
        Ok(answer) => answer,
        Err(_) => Err(RequestError::NoAnswer(NoAnswer::silence(within))),
    };
    let answer = lease::answer(namespace, request, answer.as_deref());
    (request.id(), answer)
}
