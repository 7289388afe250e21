//! What the taints of its node mean for a pod.

use std::time::Duration;

use davit_guest::toleration::{Taint, matching_tolerations};

use crate::Config;
use crate::view::PodSpec;

/// What the taints of its node mean for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate<'a> {
    /// It does not tolerate one of the taints.
    LeavesNow,
    /// It tolerates each of these taints for a limited time. If the list is
    /// empty, it may stay forever.
    MayStay(Vec<TimedTaint<'a>>),
}

/// A taint that a pod tolerates for a limited time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimedTaint<'a> {
    pub(crate) taint: &'a Taint,
    pub(crate) time: Duration,
}

impl<'a> Fate<'a> {
    /// The fate of a pod on a node with these `NoExecute` taints.
    pub(crate) fn of(config: &Config, taints: &'a [Taint], pod: &PodSpec) -> Self {
        let comparisons = config.toleration_comparison_operators;
        let Some(used) = matching_tolerations(taints, &pod.tolerations, comparisons) else {
            return Self::LeavesNow;
        };
        let bounds = taints.iter().zip(used);
        let bounds = bounds.filter_map(|(taint, toleration)| {
            let time = toleration.time()?;
            Some(TimedTaint { taint, time })
        });
        Self::MayStay(bounds.collect())
    }
}
