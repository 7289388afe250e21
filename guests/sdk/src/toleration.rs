//! Taints and tolerations: which pods stay on a tainted node, and for how long
//! (staging/src/k8s.io/api/core/v1/toleration.go and
//! pkg/apis/core/v1/helper/helpers.go).

use std::time::Duration;

use crate::{Time, View};

/// The effect of a taint that evicts pods that are already there.
pub const NO_EXECUTE: &str = "NoExecute";

/// A taint of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, View)]
pub struct Taint {
    /// `node.kubernetes.io/unreachable`, …
    pub key: String,
    /// Often empty.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// When the taint was added, according to whoever added it.
    pub time_added: Option<Time>,
}

/// A pod's toleration of taints.
#[derive(Clone, Debug, Default, PartialEq, Eq, View)]
pub struct Toleration {
    /// Empty for every key.
    pub key: String,
    /// `Exists`, `Equal`, `Lt` or `Gt`; empty is `Equal`.
    pub operator: String,
    /// What the taint's value is compared with.
    pub value: String,
    /// Empty for every effect.
    pub effect: String,
    /// How long the taint is tolerated; forever if absent, not at all if 0 or
    /// less.
    pub toleration_seconds: Option<i64>,
}

impl Toleration {
    /// How long it tolerates a taint; none for forever.
    #[must_use]
    pub fn time(&self) -> Option<Duration> {
        let seconds = u64::try_from(self.toleration_seconds?).unwrap_or(0);
        Some(Duration::from_secs(seconds))
    }

    /// Whether it tolerates a taint. The operators `Lt` and `Gt` compare the
    /// taint's value with the toleration's (less, greater). They match only if
    /// `comparisons` is set (the feature gate
    /// `TaintTolerationComparisonOperators`).
    ///
    /// As in Kubernetes, an empty key with the operator `Equal` matches any
    /// key, but compares the values.
    #[must_use]
    pub fn tolerates(&self, taint: &Taint, comparisons: bool) -> bool {
        let fits = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        if !fits(&self.effect, &taint.effect) || !fits(&self.key, &taint.key) {
            return false;
        }
        match self.operator.as_str() {
            "" | "Equal" => self.value == taint.value,
            "Exists" => true,
            "Lt" if comparisons => compared(&self.value, &taint.value, |own, its| its < own),
            "Gt" if comparisons => compared(&self.value, &taint.value, |own, its| its > own),
            _ => false,
        }
    }
}

/// For each taint, in order, the first toleration that tolerates it; none if no
/// toleration tolerates one of the taints.
///
/// Only the first counts: a later toleration of the same taint makes the time
/// neither longer nor shorter.
#[must_use]
pub fn matching_tolerations<'a>(
    taints: &[Taint],
    tolerations: &'a [Toleration],
    comparisons: bool,
) -> Option<Vec<&'a Toleration>> {
    let first = |taint| {
        let mut tolerations = tolerations.iter();
        tolerations.find(|toleration| toleration.tolerates(taint, comparisons))
    };
    taints.iter().map(first).collect()
}

fn compared(own: &str, its: &str, holds: impl Fn(i64, i64) -> bool) -> bool {
    match (strict_decimal(own), strict_decimal(its)) {
        (Some(own), Some(its)) => holds(own, its),
        _ => false,
    }
}

/// A number without leading zeros, a plus sign or spaces.
fn strict_decimal(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_canonical = text == "0" || !digits.starts_with('0');
    // `parse` takes a plus sign.
    let has_digits_only = digits.bytes().all(|byte| byte.is_ascii_digit());
    (is_canonical && has_digits_only)
        .then(|| text.parse().ok())
        .flatten()
}

#[cfg(test)]
mod tests;
