//! The guardrails and limits of a spec.

use std::str::FromStr;
use std::time::Duration;

use crate::budget::{Cooldown, Guardrails};
use crate::revision::CallLimits;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::duration::HumanDuration;
use super::error::{SpecError, out_of_range};
use super::strict::{expected_text, percent, text};

/// The most instances of a guest. The engine reserves them for each revision that is
/// stable, a candidate or rejected: with this many, it has room for three revisions of
/// ten controllers each.
pub const MOST_INSTANCES: u32 = 16;

/// The shortest cooldown. A guardrail counts over 60 seconds: after a shorter cooldown
/// it would trip again at once.
const LEAST_COOLDOWN: Duration = Duration::from_secs(10);

/// Limits on the writes of the controller. When a plan would exceed a limit, the
/// guardrail trips: it holds plans back for the cooldown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct GuardrailConfig {
    /// The most writes in any 60 seconds: patches, creations, deletions and evictions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes_per_minute: Option<u32>,
    /// The most deletions and evictions in any 60 seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletes_per_minute: Option<u32>,
    /// The most deletions and evictions in any 60 seconds, in percent (1 to 100) of the
    /// objects of the target's kind that the controller watches. One is always allowed.
    #[serde(
        default,
        deserialize_with = "percent::<_, 1>",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(range(min = 1, max = 100))]
    pub deletes_percent_per_minute: Option<u8>,
    /// How long a tripped guardrail holds plans back: a duration of at least `10s`,
    /// or `until reset` for until an operator runs `davit reset`. The default is `5m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cooldown: Option<CooldownConfig>,
}

/// How long a tripped guardrail holds plans back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(into = "String")]
#[schemars(with = "String", extend("pattern" = "^(until reset|([0-9]+(h|m|s|ms))+)$"))]
pub struct CooldownConfig(pub Cooldown);

const UNTIL_RESET: &str = "until reset";

const COOLDOWN: &str = "a duration such as 30s, 10m or 1h30m, or \"until reset\"";

impl FromStr for CooldownConfig {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == UNTIL_RESET {
            return Ok(Self(Cooldown::UntilReset));
        }
        let duration: Result<HumanDuration, String> = text.parse();
        let duration = duration.map_err(|_| expected_text(COOLDOWN, text))?;
        Ok(Self(Cooldown::After(duration.0)))
    }
}

impl<'de> Deserialize<'de> for CooldownConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, COOLDOWN)
    }
}

impl From<CooldownConfig> for String {
    fn from(cooldown: CooldownConfig) -> Self {
        match cooldown.0 {
            Cooldown::UntilReset => UNTIL_RESET.to_owned(),
            Cooldown::After(pause) => HumanDuration(pause).to_string(),
        }
    }
}

impl GuardrailConfig {
    pub(super) fn check(&self) -> Result<(), SpecError> {
        if let Some(percent) = self.deletes_percent_per_minute
            && !(1..=100).contains(&percent)
        {
            let reason = out_of_range(percent, 1, 100);
            return Err(SpecError::new("guardrails.deletesPercentPerMinute", reason));
        }
        if let Some(CooldownConfig(Cooldown::After(pause))) = self.cooldown
            && pause < LEAST_COOLDOWN
        {
            let (pause, least) = (HumanDuration(pause), HumanDuration(LEAST_COOLDOWN));
            let reason = format!("expected {least} or more, or \"{UNTIL_RESET}\", found {pause}");
            return Err(SpecError::new("guardrails.cooldown", reason));
        }
        Ok(())
    }
}

impl From<&GuardrailConfig> for Guardrails {
    fn from(config: &GuardrailConfig) -> Self {
        Self {
            writes_per_minute: config.writes_per_minute,
            deletes_per_minute: config.deletes_per_minute,
            deletes_percent_per_minute: config.deletes_percent_per_minute,
            cooldown: config.cooldown.map_or_else(Cooldown::default, |own| own.0),
        }
    }
}

/// The resources that one call of the guest may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct LimitConfig {
    /// The memory of one instance, in MiB (1 to 1024).
    #[schemars(range(min = 1, max = 1024))]
    pub memory_mib: u32,
    /// The CPU time of one call, in milliseconds (10 to 60,000).
    #[schemars(range(min = 10, max = 60_000))]
    pub call_millis: u64,
    /// The most calls that run at the same time (1 to 16).
    #[schemars(range(min = 1, max = MOST_INSTANCES))]
    pub instances: u32,
}

impl Default for LimitConfig {
    fn default() -> Self {
        Self {
            memory_mib: 64,
            call_millis: 1000,
            instances: 4,
        }
    }
}

impl From<LimitConfig> for CallLimits {
    fn from(config: LimitConfig) -> Self {
        Self {
            memory_mib: config.memory_mib,
            call_millis: config.call_millis,
            instances: config.instances,
        }
    }
}

impl LimitConfig {
    pub(super) fn check(&self) -> Result<(), SpecError> {
        if !(1..=1024).contains(&self.memory_mib) {
            let reason = out_of_range(self.memory_mib, 1, 1024);
            return Err(SpecError::new("limits.memoryMib", reason));
        }
        if !(10..=60_000).contains(&self.call_millis) {
            let reason = out_of_range(self.call_millis, 10, 60_000);
            return Err(SpecError::new("limits.callMillis", reason));
        }
        if !(1..=MOST_INSTANCES).contains(&self.instances) {
            let reason = out_of_range(self.instances, 1, MOST_INSTANCES);
            return Err(SpecError::new("limits.instances", reason));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_are_limited() {
        let instances = |instances| LimitConfig {
            instances,
            ..LimitConfig::default()
        };
        instances(MOST_INSTANCES).check().unwrap();
        let error = instances(MOST_INSTANCES + 1).check().unwrap_err();
        assert_eq!(
            error.to_string(),
            "limits.instances: expected a number from 1 to 16, found 17"
        );
    }

    #[test]
    fn a_cooldown_lasts_at_least_ten_seconds() {
        let cooldown = |text: &str| GuardrailConfig {
            cooldown: Some(text.parse().unwrap()),
            ..GuardrailConfig::default()
        };
        for text in ["10s", "5m", UNTIL_RESET] {
            cooldown(text).check().unwrap();
        }
        for text in ["0s", "9s", "9999ms"] {
            let error = cooldown(text).check().unwrap_err().to_string();
            let expected = "guardrails.cooldown: expected 10s or more, or \"until reset\", found ";
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
