//! Quorum reads.

#[cfg(test)]
mod tests;

use davit_core::failure::{Failure, FailureClass};
use davit_core::mapping::Mapping;
use davit_core::object::ObjectRecord;
use davit_core::plan::{GetRequest, ListRequest};
use davit_core::request::read::{self, Listing, ReadAction};
use futures::StreamExt as _;

use crate::api::Api;

/// The number of concurrent reads in one batch.
const MOST_AT_ONCE: usize = 32;

/// Reads objects, in parallel; one result for each request, in its order. Once they have
/// more than `most_bytes`, the others are not read: the machine refuses the answer.
pub async fn get(
    api: &Api,
    mapping: &Mapping,
    requests: &[GetRequest],
    most_bytes: usize,
) -> Vec<Result<ObjectRecord, Failure>> {
    let reads: Vec<_> = requests
        .iter()
        .map(|request| get_one(api, mapping, request))
        .collect();
    let mut reads = futures::stream::iter(reads).buffered(MOST_AT_ONCE);
    let (mut answers, mut bytes) = (Vec::with_capacity(requests.len()), 0);
    while bytes <= most_bytes
        && let Some(answer) = reads.next().await
    {
        bytes += answer.as_ref().map_or(0, |object| object.data.len());
        answers.push(answer);
    }
    let left_out = || {
        Err(Failure::new(
            FailureClass::Server,
            "not read: too many bytes",
        ))
    };
    answers.resize_with(requests.len(), left_out);
    answers
}

async fn get_one(
    api: &Api,
    mapping: &Mapping,
    request: &GetRequest,
) -> Result<ObjectRecord, Failure> {
    let answer = api.read(&read::get(mapping, request)?).await;
    read::got(request, answer.as_deref(), api.clock().instant())
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
