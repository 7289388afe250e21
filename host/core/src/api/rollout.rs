//! How a new revision replaces the stable one.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::rollout::cohort::Cohort;
use crate::rollout::progress::{Analysis, Step};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::duration::{self, HumanDuration};
use super::error::{SpecError, is_default, out_of_range};
use super::strict::{expected_text, percent, text};

/// How a new revision replaces the stable one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct RolloutConfig {
    /// The steps of a rollout, such as `shadow 10m`, `weight 10 for 10m` or
    /// `weight 50 until promoted`. Without steps, a new revision replaces the stable
    /// one immediately.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub steps: Vec<StepConfig>,
    /// Pauses the rollout: the candidate stays in its step until an operator resumes.
    #[serde(skip_serializing_if = "is_default")]
    pub paused: bool,
    /// How targets are divided between the two revisions.
    #[serde(skip_serializing_if = "is_default")]
    pub cohort: Cohort,
    /// The limits that the candidate must keep, and the evidence that a promotion needs.
    #[serde(skip_serializing_if = "is_default")]
    pub analysis: AnalysisConfig,
}

/// The pattern of a step in the custom resource.
fn pattern() -> String {
    let duration = duration::expression();
    format!("^(shadow|weight (100|[1-9]?[0-9])) (until promoted|(for )?({duration}))$")
}

/// One step: `shadow 10m`, `weight 10 for 10m`, `weight 50 until promoted`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(into = "String")]
#[schemars(with = "String", extend("pattern" = pattern()))]
pub struct StepConfig(pub Step);

/// The limits that a candidate must keep in each step, and the evidence that a
/// promotion needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct AnalysisConfig {
    /// The number of compared targets that a step needs to end. With fewer, the
    /// analysis is inconclusive, and the step lasts longer.
    pub min_decisions: u64,
    /// The most failed calls of the guest: traps, exceeded limits, invalid answers.
    pub max_failed_calls: u64,
    /// The most disagreements, in percent (0 to 100) of the compared targets. If
    /// absent, any number is allowed.
    #[serde(
        deserialize_with = "percent::<_, 0>",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(range(max = 100))]
    pub max_disagreement_percent: Option<u8>,
    /// The most plans that the gate refuses, or that the API server refuses as
    /// forbidden or invalid.
    pub max_refused_writes: u64,
    /// The longest duration of 95 of 100 calls, in milliseconds. If absent, any
    /// duration is allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_call_millis: Option<u64>,
    /// How long a target on which one revision has decided waits for the decision of
    /// the other, such as `1m`. Choose it longer than the difference of their timers.
    /// The default is twice the longest period of the guest's ticks, and at least
    /// `30s`.
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

    /// The steps.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        self.steps.iter().map(|step| step.0).collect()
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
