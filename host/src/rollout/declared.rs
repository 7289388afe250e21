//! What operators declare: a Controller as the cluster has it, and what its
//! annotations ask for.
//!
//! A request says what it is about, not what happened: which candidate may
//! leave which step, which rejection is forgiven. So it holds for exactly as
//! long as that is how things are, may be seen twice or late, and need never
//! be taken away again.

use std::collections::BTreeMap;

use davit_core::object::ObjectRef;
use davit_core::rollout::progress::Request;

use crate::spec::{ControllerSpec, SpecError};
use crate::status::{CandidateStatus, ControllerStatus, RejectedStatus};

/// `REVISION@STEP` or `REVISION@all`: the candidate of that name may leave that
/// step, counted from 1, or take over.
pub const PROMOTE: &str = "davit.dev/promote";
/// `REVISION`: the candidate of that name is taken back.
pub const ABORT: &str = "davit.dev/abort";
/// `REVISION@TIME`: the revision that was rejected then is tried once more.
pub const RETRY: &str = "davit.dev/retry";
/// `TIME`: guardrails that had tripped by then hold nothing back any more.
pub const RELEASE: &str = "davit.dev/release";

/// A controller as an operator wants it.
#[derive(Clone, Debug, PartialEq)]
pub struct Declared {
    /// Its name: a DNS label.
    pub name: String,
    /// The generation of its spec; none for one of a configuration file.
    pub generation: Option<i64>,
    /// The object that events are about; none for one of a configuration file.
    pub object: Option<ObjectRef>,
    /// What its status says, as far as it can be read.
    pub status: Option<ControllerStatus>,
    /// What its spec says, or what is wrong with it.
    pub spec: Result<ControllerSpec, SpecError>,
    /// What its annotations ask for.
    pub requests: Requests,
}

/// What annotations ask for, as they are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// [`PROMOTE`]
    pub promote: Option<String>,
    /// [`ABORT`]
    pub abort: Option<String>,
    /// [`RETRY`]
    pub retry: Option<String>,
    /// [`RELEASE`]
    pub release: Option<String>,
}

impl Requests {
    /// Reads an object's annotations.
    #[must_use]
    pub fn read(annotations: &BTreeMap<String, String>) -> Self {
        let value = |name: &str| annotations.get(name).cloned();
        Self {
            promote: value(PROMOTE),
            abort: value(ABORT),
            retry: value(RETRY),
            release: value(RELEASE),
        }
    }

    /// What is asked of this candidate in its present step.
    #[must_use]
    pub fn of(&self, candidate: &CandidateStatus) -> Option<Request> {
        let CandidateStatus { revision, step, .. } = candidate;
        if self.abort.as_ref() == Some(revision) {
            return Some(Request::Abort);
        }
        let promote = self.promote.as_ref()?;
        if *promote == promote_fully(revision) {
            Some(Request::PromoteFully)
        } else if *promote == promote_step(revision, *step) {
            Some(Request::Promote)
        } else {
            None
        }
    }

    /// Whether the rejected revision is to be tried once more.
    #[must_use]
    pub fn retries(&self, rejected: &RejectedStatus) -> bool {
        self.retry == Some(retry(rejected))
    }

    /// Whether the guardrails are to hold nothing back any more. Whoever asked
    /// has seen them all.
    #[must_use]
    pub fn releases(&self, status: &ControllerStatus) -> bool {
        let last = status.last_trip();
        last.is_some() && self.release.as_deref() == last
    }
}

/// The value of [`PROMOTE`] that lets a candidate leave a step.
#[must_use]
pub fn promote_step(revision: &str, step: u32) -> String {
    format!("{revision}@{step}")
}

/// The value of [`PROMOTE`] that lets a candidate take over.
#[must_use]
pub fn promote_fully(revision: &str) -> String {
    format!("{revision}@all")
}

/// The value of [`RETRY`] that forgives a rejection.
#[must_use]
pub fn retry(rejected: &RejectedStatus) -> String {
    format!("{}@{}", rejected.revision, rejected.at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::TrippedStatus;

    fn candidate(revision: &str, step: u32) -> CandidateStatus {
        CandidateStatus {
            revision: revision.into(),
            step,
            ..CandidateStatus::default()
        }
    }

    fn asked(name: &str, value: &str) -> Requests {
        Requests::read(&[(name.to_owned(), value.to_owned())].into())
    }

    #[test]
    fn a_promotion_holds_for_one_step_of_one_candidate() {
        let asks = asked(PROMOTE, &promote_step("abc", 2));
        assert_eq!(asks.of(&candidate("abc", 2)), Some(Request::Promote));
        for other in [
            candidate("abc", 1),
            candidate("abc", 3),
            candidate("abd", 2),
        ] {
            assert_eq!(asks.of(&other), None, "{other:?}");
        }
        let asks = asked(PROMOTE, &promote_fully("abc"));
        assert_eq!(asks.of(&candidate("abc", 7)), Some(Request::PromoteFully));
        assert_eq!(asks.of(&candidate("abd", 7)), None);
    }

    #[test]
    fn taking_back_comes_before_promoting() {
        let asks = Requests {
            promote: Some(promote_fully("abc")),
            abort: Some("abc".into()),
            ..Requests::default()
        };
        assert_eq!(asks.of(&candidate("abc", 1)), Some(Request::Abort));
    }

    #[test]
    fn what_is_forgiven_is_named() {
        let rejected = |at: &str| RejectedStatus {
            revision: "abc".into(),
            at: at.into(),
            ..RejectedStatus::default()
        };
        let asks = asked(RETRY, "abc@2026-11-20T10:00:00Z");
        assert!(asks.retries(&rejected("2026-11-20T10:00:00Z")));
        assert!(!asks.retries(&rejected("2026-11-20T10:00:01Z")));
    }

    #[test]
    fn who_releases_has_seen_every_trip() {
        let tripped = |since: &[&str]| ControllerStatus {
            tripped: since.iter().map(|since| tripped_since(since)).collect(),
            ..ControllerStatus::default()
        };
        let (ten, eleven) = ("2026-11-20T10:00:00.000Z", "2026-11-20T11:00:00.000Z");
        let asks = asked(RELEASE, ten);
        assert!(asks.releases(&tripped(&[ten])));
        assert!(!asks.releases(&tripped(&[eleven])));
        assert!(!asks.releases(&tripped(&[ten, eleven])));
        assert!(asked(RELEASE, eleven).releases(&tripped(&[eleven, ten])));
        assert!(!Requests::default().releases(&tripped(&[])));
    }

    fn tripped_since(since: &str) -> TrippedStatus {
        TrippedStatus {
            since: since.into(),
            ..TrippedStatus::default()
        }
    }
}
