//! Quorum reads.

#[cfg(test)]
mod tests;

use davit_core::failure::Failure;
use davit_core::mapping::Mapping;
use davit_core::object::ObjectRecord;
use davit_core::plan::{GetRequest, ListRequest};
use davit_core::request::read::{self, Listing, Next};
use futures::StreamExt as _;

use crate::api::Api;

/// The number of concurrent reads in one batch.
const MOST_AT_ONCE: usize = 32;
/// Reads objects, in parallel; one result for each request, in its order.
pub async fn get(
    api: &Api,
    mapping: &Mapping,
    requests: &[GetRequest],
) -> Vec<Result<ObjectRecord, Failure>> {
    let reads: Vec<_> = requests
        .iter()
        .map(|request| get_one(api, mapping, request))
        .collect();
    futures::stream::iter(reads)
        .buffered(MOST_AT_ONCE)
        .collect()
        .await
}

async fn get_one(
    api: &Api,
    mapping: &Mapping,
    request: &GetRequest,
) -> Result<ObjectRecord, Failure> {
    let answer = api.read(&read::get(mapping, request)?).await;
    read::got(request, answer.as_deref(), api.clock().instant())
}

/// Lists a resource completely.
pub async fn list(
    api: &Api,
    mapping: &Mapping,
    request: &ListRequest,
) -> Result<Vec<ObjectRecord>, Failure> {
    let (mut listing, mut page) = Listing::start(mapping, request)?;
    loop {
        let answer = api.read(&page).await;
        match listing.handle(answer.as_deref(), api.clock().instant()) {
            Next::Send(request) => page = request,
            Next::Done(result) => return result,
        }
    }
}
