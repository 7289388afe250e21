//! What the taints of its node mean for a pod.

use std::time::Duration;

use davit_guest::toleration::{Taint, matching_tolerations, min_toleration_time};

use crate::Config;
use crate::view::PodSpec;

/// What the taints of its node mean for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It may stay: there are no taints, or it tolerates them for ever.
    Stays,
    /// It may stay for so long.
    LeavesAfter(Duration),
    /// There is a taint that it does not tolerate.
    LeavesNow,
}

impl Fate {
    /// The fate of a pod on a node with these `NoExecute` taints.
    pub(crate) fn of(config: &Config, taints: &[Taint], pod: &PodSpec) -> Self {
        // Without a taint there would be no toleration in use, which is no time
        // at all.
        if taints.is_empty() {
            return Self::Stays;
        }
        let comparisons = config.toleration_comparison_operators;
        match matching_tolerations(taints, &pod.tolerations, comparisons) {
            None => Self::LeavesNow,
            Some(used) => min_toleration_time(&used).map_or(Self::Stays, Self::LeavesAfter),
        }
    }

    /// How long the pod may stay; none if for ever.
    pub(crate) fn time_left(self) -> Option<Duration> {
        match self {
            Self::Stays => None,
            Self::LeavesAfter(time) => Some(time),
            Self::LeavesNow => Some(Duration::ZERO),
        }
    }
}
