//! Quorum reads.

#[cfg(test)]
mod tests;

use davit_core::failure::Failure;
use davit_core::mapping::Mapping;
use davit_core::object::ObjectRecord;
use davit_core::plan::{GetRequest, ListRequest};
use davit_core::request::ParallelAction;
use davit_core::request::read::{Listing, ObjectReads, ReadAction};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

use crate::api::Api;

/// Reads objects, in parallel; one result for each request, in its order. Once they have
/// more than `most_bytes`, the others are not read.
pub async fn get(
    api: &Api,
    mapping: &Mapping,
    requests: &[GetRequest],
    most_bytes: usize,
) -> Vec<Result<ObjectRecord, Failure>> {
    let mut reads = ObjectReads::start(mapping, requests, most_bytes);
    let mut under_way = FuturesUnordered::new();
    loop {
        match reads.poll() {
            ParallelAction::Send(number, request) => {
                under_way.push(async move { (number, api.read(&request).await) });
            }
            ParallelAction::Wait => {
                if let Some((number, answer)) = under_way.next().await {
                    reads.handle(number, answer.as_deref(), api.clock().instant());
                }
            }
            ParallelAction::Done(answers) => return answers,
        }
    }
}

/// Lists a resource completely, unless it has more than `most_bytes`.
pub async fn list(
    api: &Api,
    mapping: &Mapping,
    request: &ListRequest,
    most_bytes: usize,
) -> Result<Vec<ObjectRecord>, Failure> {
    let (mut listing, mut page) = Listing::start(mapping, request, most_bytes)?;
    loop {
        let answer = api.read(&page).await;
        match listing.handle(answer.as_deref(), api.clock().instant()) {
            ReadAction::Send(request) => page = request,
            ReadAction::Done(result) => return result,
        }
    }
}
