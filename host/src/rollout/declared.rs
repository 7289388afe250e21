//! What operators declare: a Controller as the cluster has it, and what its
//! annotations ask for.
//!
//! A request says what it is about, not what happened: which trial may leave
//! which step, which rejection is forgiven. So it holds for exactly as long as
//! that is how things are, may be seen twice or late, and need never be taken
//! away again. A revision alone would not do: it can be tried again, and a
//! request about its former trial would decide the next one. Hence the times.

use std::collections::BTreeMap;

use davit_core::object::ObjectRef;
use davit_core::rollout::progress::Request;
use jiff::Timestamp;

use super::text::shortened;
use crate::spec::{ControllerSpec, SpecError};
use crate::status::{
    CandidateStatus, ControllerStatus, LostStatus, RejectedStatus, RevisionStatus,
};

/// `REVISION@SINCE/STEP` or `REVISION@SINCE/all`: the candidate of that name
/// that is tried since then may leave that step, counted from 1, or take over.
pub const PROMOTE: &str = "davit.dev/promote";
/// `REVISION@SINCE`: the candidate of that name that is tried since then is
/// taken back.
pub const ABORT: &str = "davit.dev/abort";
/// `REVISION@SINCE`: the stable revision of that name that is lost since then is
/// given up, and what the spec describes takes over.
pub const GIVE_UP: &str = "davit.dev/give-up";
/// `REVISION@TIME`: the revision that was rejected then is tried once more.
pub const RETRY: &str = "davit.dev/retry";
/// `TIME`: guardrails that had tripped by then hold nothing back any more.
pub const RELEASE: &str = "davit.dev/release";

/// How much of a value is quoted.
const LONGEST_QUOTE: usize = 80;

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
    /// [`GIVE_UP`]
    pub give_up: Option<String>,
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
            give_up: value(GIVE_UP),
            retry: value(RETRY),
            release: value(RELEASE),
        }
    }

    /// What is wrong with annotations that can never ask for anything.
    pub(super) fn malformed(&self) -> Vec<String> {
        let named = [
            (ABORT, &self.abort),
            (GIVE_UP, &self.give_up),
            (RETRY, &self.retry),
        ];
        let step = "REVISION@TIME/STEP or REVISION@TIME/all";
        let promote = malformed(PROMOTE, self.promote.as_deref(), is_promotion, step);
        let release = malformed(RELEASE, self.release.as_deref(), is_time, "TIME");
        let named = named
            .into_iter()
            .map(|(name, value)| malformed(name, value.as_deref(), is_named, "REVISION@TIME"));
        named.chain([promote, release]).flatten().collect()
    }

    /// What is asked of this candidate in its present step.
    #[must_use]
    pub fn of(&self, candidate: &CandidateStatus) -> Option<Request> {
        if self.abort == Some(abort(candidate)) {
            return Some(Request::Abort);
        }
        let promote = self.promote.as_ref()?;
        if *promote == promote_fully(candidate) {
            Some(Request::PromoteFully)
        } else if *promote == promote_step(candidate) {
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

    /// Whether the stable revision is given up, which is lost.
    #[must_use]
    pub fn gives_up(&self, status: &ControllerStatus) -> bool {
        let (stable, lost) = (status.stable.as_ref(), status.lost.as_ref());
        let named = stable.zip(lost).map(|(stable, lost)| give_up(stable, lost));
        named.is_some() && self.give_up == named
    }

    /// Whether the guardrails are to hold nothing back any more. Whoever asked
    /// has seen them all.
    #[must_use]
    pub fn releases(&self, status: &ControllerStatus) -> bool {
        let last = status.last_trip();
        last.is_some() && self.release.as_deref() == last
    }
}

/// What is said of an annotation that is not of its form.
fn malformed(
    name: &str,
    value: Option<&str>,
    is_of_form: fn(&str) -> bool,
    form: &str,
) -> Option<String> {
    let value = value.filter(|value| !is_of_form(value))?;
    let value = shortened(value, LONGEST_QUOTE);
    Some(format!(
        "the annotation {name} is ignored: \"{value}\" is not of the form {form}, with revision \
         and time as the status has them"
    ))
}

fn is_promotion(value: &str) -> bool {
    let is_step = |step: &str| step == "all" || step.parse::<u32>().is_ok_and(|step| step > 0);
    let parts = value.rsplit_once('/');
    parts.is_some_and(|(trial, step)| is_named(trial) && is_step(step))
}

fn is_named(value: &str) -> bool {
    let is_revision = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_hexdigit());
    let parts = value.split_once('@');
    parts.is_some_and(|(revision, time)| is_revision(revision) && is_time(time))
}

fn is_time(value: &str) -> bool {
    value.parse::<Timestamp>().is_ok()
}

/// The value of [`PROMOTE`] that lets a candidate leave its present step.
#[must_use]
pub fn promote_step(candidate: &CandidateStatus) -> String {
    format!("{}/{}", trial(candidate), candidate.step)
}

/// The value of [`PROMOTE`] that lets a candidate take over.
#[must_use]
pub fn promote_fully(candidate: &CandidateStatus) -> String {
    format!("{}/all", trial(candidate))
}

/// The value of [`ABORT`] that takes a candidate back.
#[must_use]
pub fn abort(candidate: &CandidateStatus) -> String {
    trial(candidate)
}

/// The value of [`GIVE_UP`] that gives a lost stable revision up.
#[must_use]
pub fn give_up(stable: &RevisionStatus, lost: &LostStatus) -> String {
    format!("{}@{}", stable.revision, lost.since)
}

/// No two trials have the same name.
fn trial(candidate: &CandidateStatus) -> String {
    format!("{}@{}", candidate.revision, candidate.since)
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

    fn asked(name: &str, value: &str) -> Requests {
        Requests::read(&[(name.to_owned(), value.to_owned())].into())
    }

    #[test]
    fn a_promotion_holds_for_one_step_of_one_trial() {
        let asks = asked(PROMOTE, "abc@2026-11-20T08:00:00.000Z/2");
        let this = candidate("abc", MORNING, 2);
        assert_eq!(asks.of(&this), Some(Request::Promote));
        assert_eq!(promote_step(&this), asks.promote.clone().unwrap());
        for other in [
            candidate("abc", MORNING, 1),
            candidate("abc", MORNING, 3),
            candidate("abd", MORNING, 2),
            candidate("abc", NOON, 2),
        ] {
            assert_eq!(asks.of(&other), None, "{other:?}");
        }
        let asks = asked(PROMOTE, "abc@2026-11-20T08:00:00.000Z/all");
        let last = candidate("abc", MORNING, 7);
        assert_eq!(asks.of(&last), Some(Request::PromoteFully));
        assert_eq!(asks.of(&candidate("abd", MORNING, 7)), None);
        assert_eq!(asks.of(&candidate("abc", NOON, 7)), None);
    }

    #[test]
    fn what_can_never_ask_for_anything_is_named() {
        for (name, good) in [
            (PROMOTE, format!("abc@{NOON}/2")),
            (PROMOTE, format!("abc@{NOON}/all")),
            (ABORT, format!("abc@{NOON}")),
            (GIVE_UP, format!("abc@{NOON}")),
            (RETRY, format!("abc@{NOON}")),
            (RELEASE, NOON.to_owned()),
        ] {
            assert!(asked(name, &good).malformed().is_empty(), "{name}: {good}");
            let spoilt = ["", "true", "abc", "@", &good[1..], &format!("{good}x")];
            for bad in spoilt.into_iter().filter(|bad| !bad.starts_with("bc@")) {
                let [message] = &asked(name, bad).malformed()[..] else {
                    panic!("{name}: {bad}");
                };
                assert!(message.contains(name) && message.contains(bad), "{message}");
            }
        }
        for bad in [
            "abc@2026-11-20T08:00:00.000Z/0",
            "abc@2026-11-20T08:00:00.000Z",
        ] {
            assert_eq!(asked(PROMOTE, bad).malformed().len(), 1);
        }
    }

    #[test]
    fn an_abort_holds_for_one_trial() {
        let asks = asked(ABORT, "abc@2026-11-20T08:00:00.000Z");
        let this = candidate("abc", MORNING, 1);
        assert_eq!(asks.of(&this), Some(Request::Abort));
        assert_eq!(asks.of(&candidate("abc", NOON, 1)), None);
        // It comes before a promotion.
        let both = Requests {
            promote: Some(promote_fully(&this)),
            ..asks
        };
        assert_eq!(both.of(&this), Some(Request::Abort));
    }

    #[test]
    fn what_is_given_up_is_one_loss_of_one_revision() {
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
        let asks = asked(GIVE_UP, "abc@2026-11-20T08:00:00.000Z");
        assert!(asks.gives_up(&lost("abc", MORNING)));
        assert!(!asks.gives_up(&lost("abc", NOON)));
        assert!(!asks.gives_up(&lost("abd", MORNING)));
        let found = ControllerStatus {
            lost: None,
            ..lost("abc", MORNING)
        };
        assert!(!asks.gives_up(&found));
        assert!(!Requests::default().gives_up(&found));
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
