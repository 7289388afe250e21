//! Requests of operators: annotations of the Controller.
//!
//! A request names the state that it is about: the step of one rollout, or one
//! rejection. It is in force only in that state, so it may arrive twice or late, and
//! need not be removed. It names times because a revision can be rolled out again: a
//! request about an earlier rollout must not decide the next one.
//!
//! A value may end with `#` and any text. The text distinguishes the request from an
//! earlier one with the same subject, so that each gets an answer.

use std::collections::BTreeMap;

use crate::api::{CandidateStatus, ControllerStatus, LostStatus, RejectedStatus, RevisionStatus};
use crate::rollout::progress::Request;
use crate::times;

/// `REVISION@SINCE/STEP` or `REVISION@SINCE/all`: the candidate of that rollout may
/// leave that step, counted from 1, or is promoted.
pub const PROMOTE: &str = "davit.dev/promote";
/// `REVISION@SINCE`: the candidate of that rollout is rolled back.
pub const ABORT: &str = "davit.dev/abort";
/// `REVISION@SINCE`: the stable revision of that name that is lost since then is
/// abandoned, and the revision that the spec describes replaces it.
pub const ABANDON: &str = "davit.dev/abandon";
/// `REVISION@TIME`: the revision that was rejected then is rolled out once more.
pub const RETRY: &str = "davit.dev/retry";
/// `TIME`: resets the guardrails that had tripped by then, and clears queues and notes.
pub const RESET: &str = "davit.dev/reset";
/// `REVISION@GENERATION`: the revision of that name, which the spec of that
/// generation describes, replaces the stable one without steps.
pub const SWAP: &str = "davit.dev/swap";

/// The values of the annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// [`PROMOTE`]
    pub promote: Option<String>,
    /// [`ABORT`]
    pub abort: Option<String>,
    /// [`ABANDON`]
    pub abandon: Option<String>,
    /// [`RETRY`]
    pub retry: Option<String>,
    /// [`RESET`]
    pub reset: Option<String>,
    /// [`SWAP`]
    pub swap: Option<String>,
}

/// The kinds of requests, one for each annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// [`PROMOTE`]
    Promote,
    /// [`ABORT`]
    Abort,
    /// [`ABANDON`]
    Abandon,
    /// [`RETRY`]
    Retry,
    /// [`RESET`]
    Reset,
    /// [`SWAP`]
    Swap,
}

impl RequestKind {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::Promote,
        Self::Abort,
        Self::Abandon,
        Self::Retry,
        Self::Reset,
        Self::Swap,
    ];

    /// The annotation.
    #[must_use]
    pub fn annotation(self) -> &'static str {
        match self {
            Self::Promote => PROMOTE,
            Self::Abort => ABORT,
            Self::Abandon => ABANDON,
            Self::Retry => RETRY,
            Self::Reset => RESET,
            Self::Swap => SWAP,
        }
    }

    /// The annotation without its prefix, as in `status.requests`.
    #[must_use]
    pub fn name(self) -> &'static str {
        let annotation = self.annotation();
        annotation
            .rsplit_once('/')
            .map_or(annotation, |(_, name)| name)
    }

    /// The form of its value.
    pub(super) fn form(self) -> &'static str {
        match self {
            Self::Promote => "REVISION@SINCE/STEP or REVISION@SINCE/all",
            Self::Abort | Self::Abandon => "REVISION@SINCE",
            Self::Retry => "REVISION@TIME",
            Self::Reset => "TIME",
            Self::Swap => "REVISION@GENERATION",
        }
    }

    /// Whether a subject has this form.
    pub(super) fn is_well_formed(self, subject: &str) -> bool {
        let is_time = |text: &str| times::read(text).is_some();
        let named = |text: &str, fits: &dyn Fn(&str) -> bool| {
            let parts = text.split_once('@');
            parts.is_some_and(|(revision, rest)| !revision.is_empty() && fits(rest))
        };
        match self {
            Self::Promote => subject.rsplit_once('/').is_some_and(|(rollout, step)| {
                named(rollout, &is_time) && (step == "all" || step.parse::<u32>().is_ok())
            }),
            Self::Abort | Self::Abandon | Self::Retry => named(subject, &is_time),
            Self::Reset => is_time(subject),
            Self::Swap => named(subject, &|text| text.parse::<i64>().is_ok()),
        }
    }
}

/// The subject of a request: its value without `#` and what follows.
#[must_use]
pub fn subject(value: &str) -> &str {
    value.split_once('#').map_or(value, |(subject, _)| subject)
}

/// Whether a request has this subject. Most kinds of requests are not made at all: only
/// one that is made needs the text.
fn says<T: AsRef<str>>(value: Option<&String>, wanted: impl FnOnce() -> T) -> bool {
    value.is_some_and(|value| subject(value) == wanted().as_ref())
}

impl Requests {
    /// The value of a kind of request.
    #[must_use]
    pub fn get(&self, kind: RequestKind) -> Option<&str> {
        let value = match kind {
            RequestKind::Promote => &self.promote,
            RequestKind::Abort => &self.abort,
            RequestKind::Abandon => &self.abandon,
            RequestKind::Retry => &self.retry,
            RequestKind::Reset => &self.reset,
            RequestKind::Swap => &self.swap,
        };
        value.as_deref()
    }

    /// Removes a kind of request.
    pub(super) fn clear(&mut self, kind: RequestKind) {
        let value = match kind {
            RequestKind::Promote => &mut self.promote,
            RequestKind::Abort => &mut self.abort,
            RequestKind::Abandon => &mut self.abandon,
            RequestKind::Retry => &mut self.retry,
            RequestKind::Reset => &mut self.reset,
            RequestKind::Swap => &mut self.swap,
        };
        *value = None;
    }

    /// Reads an object's annotations.
    #[must_use]
    pub fn read(annotations: &BTreeMap<String, String>) -> Self {
        let value = |name: &str| annotations.get(name).cloned();
        Self {
            promote: value(PROMOTE),
            abort: value(ABORT),
            abandon: value(ABANDON),
            retry: value(RETRY),
            reset: value(RESET),
            swap: value(SWAP),
        }
    }

    /// The request that names this candidate in its present step.
    #[must_use]
    pub fn of(&self, candidate: &CandidateStatus) -> Option<Request> {
        if says(self.abort.as_ref(), || abort(candidate)) {
            return Some(Request::Abort);
        }
        let promote = self.promote.as_ref();
        if says(promote, || promote_fully(candidate)) {
            Some(Request::PromoteFully)
        } else if says(promote, || promote_step(candidate)) {
            Some(Request::Promote)
        } else {
            None
        }
    }

    /// Whether a request retries the rejected revision.
    #[must_use]
    pub fn retries(&self, rejected: &RejectedStatus) -> bool {
        says(self.retry.as_ref(), || retry(rejected))
    }

    /// Whether a request abandons the lost stable revision.
    #[must_use]
    pub fn abandons(&self, status: &ControllerStatus) -> bool {
        let (stable, lost) = (status.stable.as_ref(), status.lost.as_ref());
        stable
            .zip(lost)
            .is_some_and(|(stable, lost)| says(self.abandon.as_ref(), || abandon(stable, lost)))
    }

    /// Whether a request swaps in this revision, which the spec of this generation
    /// describes.
    #[must_use]
    pub fn swaps(&self, revision: &str, generation: Option<i64>) -> bool {
        generation.is_some_and(|generation| says(self.swap.as_ref(), || swap(revision, generation)))
    }

    /// Whether a request resets the controller: its tripped guardrails, its queues and
    /// its notes. It names [`reset`], so that it resets no trip that its author has not
    /// seen.
    #[must_use]
    pub fn resets(&self, status: &ControllerStatus) -> bool {
        let named = reset(status);
        named.is_some_and(|named| says(self.reset.as_ref(), || named))
    }
}

/// The value of [`PROMOTE`] that ends a candidate's present step.
#[must_use]
pub fn promote_step(candidate: &CandidateStatus) -> String {
    format!("{}/{}", rollout_name(candidate), candidate.step)
}

/// The value of [`PROMOTE`] that promotes a candidate.
#[must_use]
pub fn promote_fully(candidate: &CandidateStatus) -> String {
    format!("{}/all", rollout_name(candidate))
}

/// The value of [`ABORT`] that rolls a candidate back.
#[must_use]
pub fn abort(candidate: &CandidateStatus) -> String {
    rollout_name(candidate)
}

/// The value of [`ABANDON`] that abandons a lost stable revision.
#[must_use]
pub fn abandon(stable: &RevisionStatus, lost: &LostStatus) -> String {
    format!("{}@{}", stable.revision, lost.since)
}

/// The value of [`SWAP`] that lets a revision replace the stable one without steps.
#[must_use]
pub fn swap(revision: &str, generation: i64) -> String {
    format!("{revision}@{generation}")
}

/// The value of [`RESET`] that resets a controller: the time of the last trip; if no
/// guardrail is tripped, the time since which the stable revision is stable.
#[must_use]
pub fn reset(status: &ControllerStatus) -> Option<&str> {
    let since = || Some(status.stable.as_ref()?.since.as_str());
    status.last_trip().or_else(since)
}

/// The name of a rollout: no two have the same.
pub(super) fn rollout_name(candidate: &CandidateStatus) -> String {
    format!("{}@{}", candidate.revision, candidate.since)
}

/// The value of [`RETRY`] that rolls a rejected revision out once more.
#[must_use]
pub fn retry(rejected: &RejectedStatus) -> String {
    format!("{}@{}", rejected.revision, rejected.at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::TrippedStatus;

    const MORNING: &str = "2026-11-20T08:00:00.000Z";
    const NOON: &str = "2026-11-20T12:00:00.000Z";

    fn candidate(revision: &str, since: &str, step: u32) -> CandidateStatus {
        CandidateStatus {
            revision: revision.into(),
            since: since.into(),
            step,
            ..CandidateStatus::default()
        }
    }

    fn request(name: &str, value: &str) -> Requests {
        Requests::read(&[(name.to_owned(), value.to_owned())].into())
    }

    #[test]
    fn a_promotion_holds_for_one_step_of_one_rollout() {
        let requests = request(PROMOTE, "abc@2026-11-20T08:00:00.000Z/2");
        let this = candidate("abc", MORNING, 2);
        assert_eq!(requests.of(&this), Some(Request::Promote));
        assert_eq!(promote_step(&this), requests.promote.clone().unwrap());
        for other in [
            candidate("abc", MORNING, 1),
            candidate("abc", MORNING, 3),
            candidate("abd", MORNING, 2),
            candidate("abc", NOON, 2),
        ] {
            assert_eq!(requests.of(&other), None, "{other:?}");
        }
        let requests = request(PROMOTE, "abc@2026-11-20T08:00:00.000Z/all");
        let last = candidate("abc", MORNING, 7);
        assert_eq!(requests.of(&last), Some(Request::PromoteFully));
        assert_eq!(requests.of(&candidate("abd", MORNING, 7)), None);
        assert_eq!(requests.of(&candidate("abc", NOON, 7)), None);
    }

    #[test]
    fn an_abort_holds_for_one_rollout() {
        let requests = request(ABORT, "abc@2026-11-20T08:00:00.000Z");
        let this = candidate("abc", MORNING, 1);
        assert_eq!(requests.of(&this), Some(Request::Abort));
        assert_eq!(requests.of(&candidate("abc", NOON, 1)), None);
        // An abort has priority over a promotion.
        let both = Requests {
            promote: Some(promote_fully(&this)),
            ..requests
        };
        assert_eq!(both.of(&this), Some(Request::Abort));
    }

    #[test]
    fn an_abandon_names_one_loss_of_one_revision() {
        let lost = |revision: &str, since: &str| ControllerStatus {
            stable: Some(RevisionStatus {
                revision: revision.into(),
                ..RevisionStatus::default()
            }),
            lost: Some(LostStatus {
                since: since.into(),
                ..LostStatus::default()
            }),
            ..ControllerStatus::default()
        };
        let requests = request(ABANDON, "abc@2026-11-20T08:00:00.000Z");
        assert!(requests.abandons(&lost("abc", MORNING)));
        assert!(!requests.abandons(&lost("abc", NOON)));
        assert!(!requests.abandons(&lost("abd", MORNING)));
        let found = ControllerStatus {
            lost: None,
            ..lost("abc", MORNING)
        };
        assert!(!requests.abandons(&found));
        assert!(!Requests::default().abandons(&found));
    }

    #[test]
    fn a_retry_holds_for_one_rejection() {
        let rejected = |at: &str| RejectedStatus {
            revision: "abc".into(),
            at: at.into(),
            ..RejectedStatus::default()
        };
        let requests = request(RETRY, "abc@2026-11-20T10:00:00Z");
        assert!(requests.retries(&rejected("2026-11-20T10:00:00Z")));
        assert!(!requests.retries(&rejected("2026-11-20T10:00:01Z")));
    }

    #[test]
    fn a_reset_names_the_last_trip() {
        let tripped = |since: &[&str]| ControllerStatus {
            tripped: since.iter().map(|since| tripped_since(since)).collect(),
            ..ControllerStatus::default()
        };
        let (ten, eleven) = ("2026-11-20T10:00:00.000Z", "2026-11-20T11:00:00.000Z");
        let requests = request(RESET, ten);
        assert!(requests.resets(&tripped(&[ten])));
        assert!(!requests.resets(&tripped(&[eleven])));
        assert!(!requests.resets(&tripped(&[ten, eleven])));
        assert!(request(RESET, eleven).resets(&tripped(&[eleven, ten])));
        assert!(!Requests::default().resets(&tripped(&[])));
        // Without a trip, it names the stable revision's time.
        let stable = |tripped_at: &[&str]| ControllerStatus {
            stable: Some(RevisionStatus {
                since: ten.into(),
                ..RevisionStatus::default()
            }),
            ..tripped(tripped_at)
        };
        assert!(requests.resets(&stable(&[])));
        assert!(!requests.resets(&stable(&[eleven])));
    }

    fn tripped_since(since: &str) -> TrippedStatus {
        TrippedStatus {
            since: since.into(),
            ..TrippedStatus::default()
        }
    }
}
