//! Numbers of a report that a threshold may limit.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::report::{Against, Report};

/// A number of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// What the candidate deletes.
    Deletes,
    /// The deletions in the candidate's worst minute.
    DeletesPerMinute,
    /// The objects that only the candidate deletes.
    OnlyCandidate,
    /// The objects that only the recorded controller deleted.
    OnlyRecorded,
    /// The objects that only the cluster's controllers deleted.
    OnlyCluster,
    /// The objects that the candidate deletes, and somebody else than the cluster's controller.
    ByOthers,
    /// The objects of which the journal does not say whether, or by whom, they were deleted.
    Unknown,
    /// The trips of guardrails.
    GuardrailTrips,
    /// The candidate's deletions that history shows to have been unnecessary.
    Regret,
    /// The calls that failed.
    FailedCalls,
    /// The items that the candidate could not decide.
    Undecided,
    /// The seconds of the span that the journal does not have.
    MissingSeconds,
}

impl Metric {
    /// Every metric.
    pub const ALL: [Self; 12] = [
        Self::Deletes,
        Self::DeletesPerMinute,
        Self::OnlyCandidate,
        Self::OnlyRecorded,
        Self::OnlyCluster,
        Self::ByOthers,
        Self::Unknown,
        Self::GuardrailTrips,
        Self::Regret,
        Self::FailedCalls,
        Self::Undecided,
        Self::MissingSeconds,
    ];

    /// Its name in a threshold.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deletes => "deletes",
            Self::DeletesPerMinute => "deletes-per-minute",
            Self::OnlyCandidate => "only-candidate",
            Self::OnlyRecorded => "only-recorded",
            Self::OnlyCluster => "only-cluster",
            Self::ByOthers => "by-others",
            Self::Unknown => "unknown",
            Self::GuardrailTrips => "guardrail-trips",
            Self::Regret => "regret",
            Self::FailedCalls => "failed-calls",
            Self::Undecided => "undecided",
            Self::MissingSeconds => "missing-seconds",
        }
    }

    /// Whether a report has it that compares a policy with this.
    #[must_use]
    pub fn is_of(self, against: Against) -> bool {
        match self {
            Self::OnlyRecorded => against == Against::Recorded,
            Self::OnlyCluster | Self::ByOthers => against == Against::Cluster,
            _ => true,
        }
    }

    /// Its value in a report, as far as the journal says it.
    #[must_use]
    pub fn value(self, report: &Report) -> u64 {
        let candidate = &report.candidate;
        match self {
            Self::Deletes => candidate.deletions,
            Self::DeletesPerMinute => candidate.deletes_per_minute,
            Self::OnlyCandidate => report.agreement.only_candidate,
            Self::OnlyRecorded => report.agreement.only_recorded,
            Self::OnlyCluster => report.agreement.only_cluster.unwrap_or_default(),
            Self::ByOthers => report.agreement.by_others,
            Self::Unknown => report.agreement.unknown,
            Self::GuardrailTrips => report.guardrail_trip_count,
            Self::Regret => candidate.regret.known,
            Self::FailedCalls => report.activity.failed_calls,
            Self::Undecided => report.undecided.items,
            Self::MissingSeconds => whole_seconds(report.span.missing_seconds),
        }
    }

    /// How much greater its value may be, because the journal does not say it; [`u64::MAX`] if
    /// nothing limits it.
    #[must_use]
    pub fn unknown(self, report: &Report) -> u64 {
        let is_attributed = report.agreement.is_attribution_complete != Some(false);
        match self {
            Self::Regret => report.candidate.regret.unknown,
            Self::OnlyCandidate | Self::OnlyCluster | Self::ByOthers if !is_attributed => u64::MAX,
            _ => 0,
        }
    }
}

/// Seconds, rounded up: a part of a second is more than nothing.
fn whole_seconds(seconds: f64) -> u64 {
    let time = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    time.as_secs()
        .saturating_add(u64::from(time.subsec_nanos() > 0))
}

/// A limit of a metric: `only-candidate>0`, `deletes-per-minute>=100`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    metric: Metric,
    /// Whether the number itself exceeds it too.
    is_inclusive: bool,
    number: u64,
}

/// A text that is no threshold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is not a threshold such as only-candidate>0: the metrics are {metrics}, the operators \
     > and >=",
    metrics = Metric::ALL.map(Metric::as_str).join(", ")
)]
pub struct ThresholdError(String);

impl Threshold {
    /// Whether a report exceeds it.
    #[must_use]
    pub fn is_exceeded(self, report: &Report) -> bool {
        self.is_below(self.metric.value(report))
    }

    /// Whether nobody knows if a report exceeds it: the journal does not say enough.
    #[must_use]
    pub fn is_unknown(self, report: &Report) -> bool {
        let value = self.metric.value(report);
        let most = value.saturating_add(self.metric.unknown(report));
        !self.is_below(value) && self.is_below(most)
    }

    const fn is_below(self, value: u64) -> bool {
        value > self.number || (self.is_inclusive && value == self.number)
    }

    /// Its metric.
    #[must_use]
    pub const fn metric(self) -> Metric {
        self.metric
    }
}

impl FromStr for Threshold {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, ThresholdError> {
        let error = || ThresholdError(text.chars().take(100).collect());
        let (name, number) = text.split_once('>').ok_or_else(error)?;
        let rest = number.strip_prefix('=');
        let metric = Metric::ALL
            .into_iter()
            .find(|metric| metric.as_str() == name.trim());
        Ok(Self {
            metric: metric.ok_or_else(error)?,
            is_inclusive: rest.is_some(),
            number: rest.unwrap_or(number).trim().parse().map_err(|_| error())?,
        })
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operator = if self.is_inclusive { ">=" } else { ">" };
        write!(f, "{}{operator}{}", self.metric.as_str(), self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_second_is_a_second() {
        for (seconds, whole) in [
            (0.0, 0),
            (0.001, 1),
            (5.0, 5),
            (5.5, 6),
            (f64::MAX, u64::MAX),
        ] {
            assert_eq!(whole_seconds(seconds), whole, "{seconds}");
        }
    }

    #[test]
    fn a_threshold_is_written_as_it_is_read() {
        for text in ["only-candidate>0", "deletes-per-minute>=100", "regret>5"] {
            assert_eq!(text.parse::<Threshold>().unwrap().to_string(), text);
        }
        assert!(" deletes > 3 ".parse::<Threshold>().is_ok());
        for text in [
            "",
            "deletes",
            "deletes<3",
            "deletes>x",
            "pods>3",
            "deletes>-1",
        ] {
            let error = text.parse::<Threshold>().unwrap_err().to_string();
            assert!(error.contains("only-candidate"), "{error}");
        }
    }
}
