//! How another module or configuration takes over.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::rollout::cohort::{Cohort, Unit};
use crate::rollout::progress::{Analysis, Step};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::duration::HumanDuration;
use super::error::{SpecError, is_default, out_of_range};
use super::strict::{expected_text, percent, text};

/// How another module or configuration takes over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct RolloutConfig {
    /// What the candidate goes through, such as `shadow 10m`, `weight 10 for
    /// 10m`, `weight 50 until promoted`. Without steps it takes over at once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub steps: Vec<StepConfig>,
    /// Whether the present step goes on until an operator resumes.
    #[serde(skip_serializing_if = "is_default")]
    pub paused: bool,
    /// How targets are told apart.
    #[serde(skip_serializing_if = "is_default")]
    pub cohort: CohortConfig,
    /// What the candidate must hold to.
    #[serde(skip_serializing_if = "is_default")]
    pub analysis: AnalysisConfig,
}

/// How a step is written in the custom resource.
const PATTERN: &str =
    "^(shadow|weight (100|[1-9]?[0-9])) (until promoted|(for )?([0-9]+(h|m|s|ms))+)$";

/// One step: `shadow 10m`, `weight 10 for 10m`, `weight 50 until promoted`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(into = "String")]
#[schemars(with = "String", extend("pattern" = PATTERN))]
pub struct StepConfig(pub Step);

/// How targets are told apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct CohortConfig {
    /// What is never split between the revisions.
    pub by: UnitConfig,
    /// The only namespaces of which the candidate gets anything; all if empty.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub namespaces: BTreeSet<String>,
    /// The labels that a target needs for the candidate to get it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
}

/// What is never split between the revisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UnitConfig {
    /// Every object by itself.
    #[default]
    Uid,
    /// All objects of a namespace.
    Namespace,
    /// All objects that share their first owner.
    Owner,
    /// All pods of a node, and the node itself.
    Node,
}

/// What a candidate must hold to, in each step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct AnalysisConfig {
    /// Targets that must have been compared before a step can end well; fewer
    /// are inconclusive, and the step goes on.
    pub min_decisions: u64,
    /// Calls of the guest that may fail: trap, run too long, answer nonsense.
    pub max_failed_calls: u64,
    /// Of the targets compared, so many percent (0 to 100) may be disagreed
    /// on; any number if absent.
    #[serde(
        deserialize_with = "percent::<_, 0>",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(range(max = 100))]
    pub max_disagreement_percent: Option<u8>,
    /// Plans that may be refused: by the gate, or by the API server as
    /// forbidden or invalid.
    pub max_refused_writes: u64,
    /// The time, in milliseconds, that 95 of 100 calls must take at most; any
    /// time if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_call_millis: Option<u64>,
    /// How long a target on which one revision has decided waits for the
    /// other, such as `1m`; twice the longest period of the guest's ticks, and
    /// 30 s at least, if absent. It should cover the difference of their
    /// timers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<HumanDuration>,
}

impl Default for AnalysisConfig {
    fn default() -> Self {
        Self {
            min_decisions: 10,
            max_failed_calls: 0,
            max_disagreement_percent: None,
            max_refused_writes: 0,
            max_call_millis: None,
            window: None,
        }
    }
}

impl RolloutConfig {
    pub(super) fn check(&self) -> Result<(), SpecError> {
        if let Some(percent) = self.analysis.max_disagreement_percent
            && percent > 100
        {
            return Err(SpecError::new(
                "rollout.analysis.maxDisagreementPercent",
                out_of_range(percent, 0, 100),
            ));
        }
        Ok(())
    }

    /// The steps as the core knows them.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        self.steps.iter().map(|step| step.0).collect()
    }
}

impl From<&CohortConfig> for Cohort {
    fn from(config: &CohortConfig) -> Self {
        Self {
            unit: match config.by {
                UnitConfig::Uid => Unit::Uid,
                UnitConfig::Namespace => Unit::Namespace,
                UnitConfig::Owner => Unit::Owner,
                UnitConfig::Node => Unit::Node,
            },
            namespaces: config.namespaces.clone(),
            labels: config.match_labels.clone(),
        }
    }
}

impl From<&AnalysisConfig> for Analysis {
    fn from(config: &AnalysisConfig) -> Self {
        Self {
            min_decisions: config.min_decisions,
            max_failed_calls: config.max_failed_calls,
            max_disagreement_percent: config.max_disagreement_percent,
            max_refused_writes: config.max_refused_writes,
            max_call_latency: config.max_call_millis.map(Duration::from_millis),
        }
    }
}

const STEP: &str =
    "a step such as \"shadow 10m\", \"weight 10 for 10m\" or \"weight 50 until promoted\"";

impl FromStr for StepConfig {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || expected_text(STEP, text);
        let words: Vec<&str> = text.split_whitespace().collect();
        let (weight, rest) = match words.as_slice() {
            ["shadow", rest @ ..] => (0, rest),
            ["weight", weight, rest @ ..] => {
                let weight: u8 = weight.parse().map_err(|_| wrong())?;
                if weight > 100 {
                    return Err(expected_text("a weight from 0 to 100", text));
                }
                (weight, rest)
            }
            _ => return Err(wrong()),
        };
        let lasts = match rest {
            ["until", "promoted"] => None,
            ["for", lasts] | [lasts] => {
                let lasts: HumanDuration = lasts.parse().map_err(|_| wrong())?;
                Some(lasts.0)
            }
            _ => return Err(wrong()),
        };
        Ok(Self(Step { weight, lasts }))
    }
}

impl<'de> Deserialize<'de> for StepConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, STEP)
    }
}

impl From<StepConfig> for String {
    fn from(step: StepConfig) -> Self {
        step.to_string()
    }
}

impl fmt::Display for StepConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.weight {
            0 => f.write_str("shadow")?,
            weight => write!(f, "weight {weight}")?,
        }
        match self.0.lasts {
            None => f.write_str(" until promoted"),
            Some(lasts) => write!(f, " for {}", HumanDuration(lasts)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_written_as_sentences() {
        let minutes = |minutes: u64| Some(Duration::from_secs(60 * minutes));
        for (text, weight, lasts, written) in [
            ("shadow 10m", 0, minutes(10), "shadow for 10m"),
            ("shadow for 1h", 0, minutes(60), "shadow for 1h"),
            (
                "weight 10 for 90s",
                10,
                Some(Duration::from_secs(90)),
                "weight 10 for 1m30s",
            ),
            (
                "weight 50 until promoted",
                50,
                None,
                "weight 50 until promoted",
            ),
            ("weight 0 5m", 0, minutes(5), "shadow for 5m"),
        ] {
            let step: StepConfig = text.parse().unwrap();
            assert_eq!(step.0, Step { weight, lasts }, "{text}");
            assert_eq!(step.to_string(), written);
            assert_eq!(written.parse(), Ok(step));
        }
        for bad in [
            "",
            "shadow",
            "weight",
            "weight ten for 1m",
            "weight 10",
            "wait 10m",
            "shadow 10m now",
        ] {
            let error = bad.parse::<StepConfig>().unwrap_err();
            assert_eq!(error, format!("expected {STEP}, found \"{bad}\""));
        }
        let error = "weight 101 for 1m".parse::<StepConfig>().unwrap_err();
        assert_eq!(
            error,
            "expected a weight from 0 to 100, found \"weight 101 for 1m\""
        );
    }
}
