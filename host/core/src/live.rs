//! Live reads: what a guest asks the API server for during a call, and the answers.

use std::time::Duration;

use crate::failure::{Failure, FailureClass};
use crate::object::ObjectRecord;
use crate::plan::{GetRequest, ListRequest};

/// Identifies one live read. The driver chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadId(pub u64);

/// A live read of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadRequest {
    /// Objects by name.
    Get(Vec<GetRequest>),
    /// A resource.
    List(ListRequest),
}

impl ReadRequest {
    /// The answer if each read has failed like this.
    #[must_use]
    pub fn failed(&self, failure: &Failure) -> ReadAnswer {
        match self {
            Self::Get(requests) => ReadAnswer::Get(vec![Err(failure.clone()); requests.len()]),
            Self::List(_) => ReadAnswer::List(Err(failure.clone())),
        }
    }
}

/// The answer to a live read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadAnswer {
    /// One result for each object, in their order.
    Get(Vec<Result<ObjectRecord, Failure>>),
    /// The objects of a resource.
    List(Result<Vec<ObjectRecord>, Failure>),
}

impl ReadAnswer {
    /// The bytes of the objects.
    pub(crate) fn bytes(&self) -> usize {
        let bytes = |object: &ObjectRecord| object.data.len();
        match self {
            Self::Get(results) => results.iter().flatten().map(bytes).sum(),
            Self::List(result) => result.iter().flatten().map(bytes).sum(),
        }
    }

    /// The answer without its objects: each read has failed like this.
    pub(crate) fn refused(self, failure: &Failure) -> Self {
        match self {
            Self::Get(results) => Self::Get(vec![Err(failure.clone()); results.len()]),
            Self::List(_) => Self::List(Err(failure.clone())),
        }
    }

    /// For how long the API server throttles this read; none if it does not.
    pub(crate) fn throttled_for(&self) -> Option<Duration> {
        let pause = |failure: &Failure| {
            let is_throttled = failure.class == FailureClass::Throttled;
            failure.retry_after.filter(|_| is_throttled)
        };
        match self {
            Self::Get(results) => {
                let failures = results.iter().filter_map(|result| result.as_ref().err());
                failures.filter_map(pause).max()
            }
            Self::List(result) => result.as_ref().err().and_then(pause),
        }
    }
}
