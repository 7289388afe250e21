//! Leases of leader election.

use std::time::Duration;

use davit_core::election::{LeaseAnswer, LeaseRequest, LeaseRequestId};
use davit_core::request::{NoAnswer, Request, RequestError, lease};
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
    let send = async |request: Request| match timeout(within, api.send(&request)).await {
        Ok(answer) => answer,
        Err(_) => Err(RequestError::NoAnswer(NoAnswer::silence(within))),
    };
    match request {
        LeaseRequest::Read(id) => {
            let answer = send(lease::read_all(namespace)).await;
            let all = lease::all(namespace, answer.as_deref());
            (*id, LeaseAnswer::Read(all.map_err(|error| error.message)))
        }
        LeaseRequest::Write(id, name, write) => {
            let answer = send(lease::write(namespace, name, write)).await;
            let written = lease::written(namespace, name, write, answer.as_deref());
            (*id, LeaseAnswer::Written(written))
        }
        LeaseRequest::Delete(id, name, version) => {
            // Another replica may have deleted it. If not, this one does in an hour.
            let _ = send(lease::delete(namespace, name, version)).await;
            (*id, LeaseAnswer::Deleted)
        }
    }
}
