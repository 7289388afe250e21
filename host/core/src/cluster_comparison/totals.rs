//! The results of a comparison.

use std::time::Duration;

use super::Delays;
use super::actor::Actor;
use crate::object::ObjectRef;
use crate::time::Instant;

/// The number of targets by result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Both delete it.
    pub agree: u64,
    /// Only the controller would delete it.
    pub only_davit: u64,
    /// Only the cluster's controller has deleted it.
    pub only_cluster: u64,
    /// The controller would delete it, and somebody else has.
    pub other: u64,
    /// What cannot be compared: nobody knows who deleted it, or what the controller would have
    /// decided.
    pub unknown: u64,
    /// Those that may have counted already, before a restart or a takeover.
    pub interrupted: u64,
    /// Those that both delete and whose delay is unknown, because the watch had a gap.
    pub untimed: u64,
    /// How much later than the cluster the controller decides on what both delete.
    pub delays: Delays,
}

impl Totals {
    /// Adds the results of another host.
    pub fn merge(&mut self, other: &Self) {
        self.agree += other.agree;
        self.only_davit += other.only_davit;
        self.only_cluster += other.only_cluster;
        self.other += other.other;
        self.unknown += other.unknown;
        self.interrupted += other.interrupted;
        self.untimed += other.untimed;
        self.delays.merge(&other.delays);
    }

    /// The number of targets.
    #[must_use]
    pub const fn targets(&self) -> u64 {
        let Self {
            agree,
            only_davit,
            only_cluster,
            other,
            unknown,
            interrupted,
            untimed: _,
            delays: _,
        } = self;
        *agree + *only_davit + *only_cluster + *other + *unknown + *interrupted
    }

    /// What was counted since there were these.
    #[must_use]
    pub fn since(&self, former: &Self) -> Self {
        Self {
            agree: self.agree.saturating_sub(former.agree),
            only_davit: self.only_davit.saturating_sub(former.only_davit),
            only_cluster: self.only_cluster.saturating_sub(former.only_cluster),
            other: self.other.saturating_sub(former.other),
            unknown: self.unknown.saturating_sub(former.unknown),
            interrupted: self.interrupted.saturating_sub(former.interrupted),
            untimed: self.untimed.saturating_sub(former.untimed),
            delays: self.delays.since(&former.delays),
        }
    }
}

/// What only one side deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Only the controller would.
    OnlyDavit,
    /// Only the cluster's controller has.
    OnlyCluster,
}

impl Difference {
    /// The word used in metrics and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OnlyDavit => "only-davit",
            Self::OnlyCluster => "only-cluster",
        }
    }
}

/// A target that only one side deletes.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Which side.
    pub difference: Difference,
    /// The object.
    pub object: ObjectRef,
    /// When that side first deleted it.
    pub at: Instant,
    /// The reason of the controller's plan, if it has one.
    pub reason: Option<String>,
    /// Who deleted it.
    pub actor: Option<Actor>,
    /// What the API showed of the object's end.
    pub saw: Option<String>,
    /// How much earlier the deletion may have been.
    pub gap: Option<Duration>,
}
