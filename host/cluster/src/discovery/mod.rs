//! Discovery: the resources that the API server serves.

#[cfg(test)]
mod tests;

use davit_core::failure::Failure;
use davit_core::mapping::Discovery;
use davit_core::request::ParallelAction;
use davit_core::request::discovery::DiscoveryAttempt;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

use crate::api::Api;

/// Requests the served resources. Its requests wait for no turn: they are few, and the host
/// acts on nothing before it knows what is served.
pub async fn discover(api: &Api) -> Result<Discovery, Failure> {
    let mut attempt = DiscoveryAttempt::start();
    let mut under_way = FuturesUnordered::new();
    loop {
        match attempt.poll() {
            ParallelAction::Send(number, request) => {
                under_way.push(async move { (number, api.send(&request).await) });
            }
            ParallelAction::Wait => {
                if let Some((number, answer)) = under_way.next().await {
                    attempt.handle(number, answer.as_deref());
                }
            }
            ParallelAction::Done(result) => return result,
        }
    }
}
