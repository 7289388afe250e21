//! The guardrails and limits of a spec.

use std::str::FromStr;
use std::time::Duration;

use crate::bounds::{Bounds, MIB};
use crate::budget::{Cooldown, Guardrails};
use crate::revision::CallLimits;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::duration::{HumanDuration, starting_with};
use super::error::{SpecError, out_of_range};
use super::strict::{expected_text, percent, text};

/// The most instances of a guest, and so of its calls at once.
pub const MOST_INSTANCES: u32 = 16;

/// The shortest cooldown. A guardrail counts over 60 seconds: after a shorter cooldown
/// it would trip again immediately.
const LEAST_COOLDOWN: Duration = Duration::from_secs(10);

/// Limits on the writes of the controller. When a plan would exceed a limit, the
/// guardrail trips: it defers plans for the cooldown.
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
    /// How long a tripped guardrail defers plans: a duration of at least `10s`,
    /// or `until reset` for until an operator runs `davit reset`. The default is `5m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cooldown: Option<CooldownConfig>,
}

/// How long a tripped guardrail defers plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(into = "String")]
#[schemars(with = "String", extend("pattern" = cooldown_pattern()))]
pub struct CooldownConfig(pub Cooldown);

/// The pattern of a cooldown in the custom resource: at least [`LEAST_COOLDOWN`], of which a schema
/// can count only the digits.
fn cooldown_pattern() -> String {
    let durations = starting_with([
        "0*[1-9][0-9]*h",
        "0*[1-9][0-9]*m",
        "0*[1-9][0-9]+s",
        "0*[1-9][0-9]{4,}ms",
    ]);
    format!("^({UNTIL_RESET}|{durations})$")
}

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

/// The resources that one call of the guest may use, and the most that the host keeps for
/// the guest. A change of `memoryMib`, `callMillis` or `instances` is another revision;
/// any other limit applies immediately. A call that would exceed a limit fails with the name
/// of the limit, unless the limit says otherwise.
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
    /// The most notes (up to 10,000,000).
    #[schemars(range(min = 0, max = MOST_THINGS))]
    pub notes: u32,
    /// The size of all notes with their keys, in MiB (up to 1024).
    #[schemars(range(min = 0, max = 1024))]
    pub note_mib: u32,
    /// The most queue items (up to 10,000,000). Keys that the guest's triggers enqueue
    /// count, and are enqueued beyond the limit too.
    #[schemars(range(min = 0, max = MOST_THINGS))]
    pub queue_items: u32,
    /// The size of the queue items, in MiB (up to 1024): keys, groups, and the failures
    /// of the last attempts.
    #[schemars(range(min = 0, max = 1024))]
    pub queue_mib: u32,
    /// The most groups of queues: those with a rate of their own, and those with items
    /// (up to 10,000,000).
    #[schemars(range(min = 0, max = MOST_THINGS))]
    pub rate_groups: u32,
    /// The most series of the metrics that the guest declares: combinations of the
    /// values of labels (up to 10,000,000).
    #[schemars(range(min = 0, max = MOST_THINGS))]
    pub metric_series: u32,
    /// The size of the plans that are kept to compare a candidate with the stable
    /// revision, in MiB (1 to 1024), for each of the two. Beyond it, the oldest are
    /// dropped and count as `unknown`.
    #[schemars(range(min = 1, max = 1024))]
    pub compared_mib: u32,
    /// The size of the plans that are decided and have not ended, in MiB (1 to 1024).
    /// Beyond it, the guest is not called until some have ended.
    #[schemars(range(min = 1, max = 1024))]
    pub plan_mib: u32,
    /// The size of the objects that the calls in flight have read live, in MiB (1 to
    /// 1024).
    #[schemars(range(min = 1, max = 1024))]
    pub live_read_mib: u32,
    /// The size of the guest's text in the log in 60 seconds, in KiB (up to 1,048,576).
    /// Beyond it, lines are dropped, except those about writes to the cluster.
    #[schemars(range(min = 0, max = MOST_LOG_KIB))]
    pub log_kib_per_minute: u32,
}

/// The highest limit of a number.
const MOST_THINGS: u32 = 10_000_000;
/// The highest limit of a size in MiB.
const MOST_MIB: u32 = 1024;
/// The highest limit of the log.
const MOST_LOG_KIB: u32 = 1 << 20;

impl Default for LimitConfig {
    fn default() -> Self {
        Self {
            memory_mib: 64,
            call_millis: 1000,
            instances: 4,
            notes: 200_000,
            note_mib: 32,
            queue_items: 500_000,
            queue_mib: 64,
            rate_groups: 10_000,
            metric_series: 10_000,
            compared_mib: 64,
            plan_mib: 64,
            live_read_mib: 64,
            log_kib_per_minute: 65_536,
        }
    }
}

impl From<LimitConfig> for Bounds {
    fn from(config: LimitConfig) -> Self {
        let mib = |mib: u32| mib as usize * MIB;
        Self {
            notes: config.notes as usize,
            note_bytes: mib(config.note_mib),
            queue_items: config.queue_items as usize,
            queue_bytes: mib(config.queue_mib),
            rate_groups: config.rate_groups as usize,
            metric_series: config.metric_series as usize,
            compared_bytes: mib(config.compared_mib),
            plan_bytes: mib(config.plan_mib),
            live_read_bytes: mib(config.live_read_mib),
            log_bytes: config.log_kib_per_minute as usize * 1024,
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
        let numbers = [
            ("limits.notes", self.notes, 0, MOST_THINGS),
            ("limits.noteMib", self.note_mib, 0, MOST_MIB),
            ("limits.queueItems", self.queue_items, 0, MOST_THINGS),
            ("limits.queueMib", self.queue_mib, 0, MOST_MIB),
            ("limits.rateGroups", self.rate_groups, 0, MOST_THINGS),
            ("limits.metricSeries", self.metric_series, 0, MOST_THINGS),
            ("limits.comparedMib", self.compared_mib, 1, MOST_MIB),
            ("limits.planMib", self.plan_mib, 1, MOST_MIB),
            ("limits.liveReadMib", self.live_read_mib, 1, MOST_MIB),
            (
                "limits.logKibPerMinute",
                self.log_kib_per_minute,
                0,
                MOST_LOG_KIB,
            ),
        ];
        for (field, found, least, most) in numbers {
            if !(least..=most).contains(&found) {
                return Err(SpecError::new(field, out_of_range(found, least, most)));
            }
        }
        Ok(())
    }

    /// Whether two revisions with these limits are the same: the other limits belong to
    /// the controller.
    #[must_use]
    pub fn is_same_revision(self, other: Self) -> bool {
        CallLimits::from(self) == CallLimits::from(other)
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
    fn the_limits_of_a_spec_without_any_are_the_default_bounds() {
        assert_eq!(Bounds::from(LimitConfig::default()), Bounds::default());
        LimitConfig::default().check().unwrap();
    }

    #[test]
    fn a_limit_out_of_range_is_refused_by_its_name() {
        let config = LimitConfig {
            plan_mib: 0,
            ..LimitConfig::default()
        };
        assert_eq!(
            config.check().unwrap_err().to_string(),
            "limits.planMib: expected a number from 1 to 1024, found 0"
        );
    }

    #[test]
    fn only_the_limits_of_a_call_make_another_revision() {
        let limits = LimitConfig::default();
        let other = LimitConfig { notes: 7, ..limits };
        assert!(limits.is_same_revision(other));
        let other = LimitConfig {
            instances: 7,
            ..limits
        };
        assert!(!limits.is_same_revision(other));
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
