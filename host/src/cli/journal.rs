//! The arguments about the journal.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use davit_core::api::HumanDuration;
use davit_core::backtest::Threshold;
use jiff::Timestamp;

use super::{ClusterArguments, GuestArguments, NamespaceArgument, PortArguments, duration};
use crate::config::JOURNAL_MIB;

/// The journal of a host.
#[derive(Debug, Default, Args)]
pub struct JournalArguments {
    /// Directory that gets the journal: what this host sees and decides, so that davit
    /// replay can make each decision again. One host at a time records in it.
    #[arg(long, value_name = "DIR")]
    pub journal: Option<PathBuf>,
    /// After this time, entries of the journal may be removed [default: 168h]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub journal_max_age: Option<Duration>,
    /// Largest size of the journal, in MiB: the oldest segments are removed [default: 1024]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(JOURNAL_MIB))]
    pub journal_max_mib: Option<u64>,
    /// How often the journal starts a segment, with the whole state at its start
    /// [default: 6h]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub journal_segment_age: Option<Duration>,
    /// How long entries that were written may wait until the disk has them; the end of the
    /// machine may lose as much [default: 1s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub journal_sync: Option<Duration>,
    /// File that names resources and fields. The journal has them too, so that a later guest
    /// may read more than those that run.
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
}

/// `davit record`
#[derive(Debug, Args)]
pub struct RecordArguments {
    #[command(flatten)]
    pub(crate) journal: JournalArguments,
    #[command(flatten)]
    pub(crate) cluster: ClusterArguments,
    #[command(flatten)]
    pub(crate) ports: PortArguments,
    #[command(flatten)]
    pub(crate) namespace: NamespaceArgument,
}

/// `davit journal`
#[derive(Debug, Args)]
pub struct JournalToolArguments {
    /// What to do.
    #[command(subcommand)]
    pub command: JournalCommand,
}

/// The commands about a journal.
#[derive(Debug, Subcommand)]
pub enum JournalCommand {
    /// Shows the segments, and what is recorded in them.
    Info(JournalInfoArguments),
    /// Prints the entries.
    Cat(JournalCatArguments),
    /// Reads everything and reports each damage.
    Verify(JournalVerifyArguments),
    /// Copies the segments of a span into another directory.
    Cut(JournalCutArguments),
    /// Writes the decisions into a Parquet file.
    Export(JournalExportArguments),
}

/// `davit journal info`
#[derive(Debug, Args)]
pub struct JournalInfoArguments {
    /// Directory of the journal, or one of its segments.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Output format.
    #[arg(long, short, value_enum, default_value = "text", value_name = "FORMAT")]
    pub output: EntryFormat,
}

/// `davit journal verify`
#[derive(Debug, Args)]
pub struct JournalVerifyArguments {
    /// Directory of the journal, or one of its segments.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Output format.
    #[arg(long, short, value_enum, default_value = "text", value_name = "FORMAT")]
    pub output: EntryFormat,
}

/// A span of a journal.
#[derive(Clone, Copy, Debug, Args)]
pub struct SpanArguments {
    /// Start: a time such as 2026-11-25T08:00:00Z, or how long ago, such as 2h
    /// [default: the start of the journal]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub from: Option<Timestamp>,
    /// End, in the same form [default: the end of the journal]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub to: Option<Timestamp>,
}

impl SpanArguments {
    /// Both ends, in microseconds since the Unix epoch.
    #[must_use]
    pub fn micros(&self) -> (i64, i64) {
        let micros = |time: Timestamp| time.as_microsecond();
        (
            self.from.map_or(i64::MIN, micros),
            self.to.map_or(i64::MAX, micros),
        )
    }
}

/// `davit journal cat`
#[derive(Debug, Args)]
pub struct JournalCatArguments {
    /// Directory of the journal, or one of its segments.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    #[command(flatten)]
    pub(crate) span: SpanArguments,
    /// Only the entries about this controller.
    #[arg(long, value_name = "NAME")]
    pub controller: Option<String>,
    /// Only the entries about the object with this uid.
    #[arg(long, value_name = "UID")]
    pub uid: Option<String>,
    /// Output format.
    #[arg(long, short, value_enum, default_value = "text", value_name = "FORMAT")]
    pub output: EntryFormat,
}

/// The form of entries, and of what is found about a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EntryFormat {
    /// For a person.
    Text,
    /// A JSON object in each line.
    Json,
}

/// `davit journal cut`
#[derive(Debug, Args)]
pub struct JournalCutArguments {
    /// Directory of the journal.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    #[command(flatten)]
    pub(crate) span: SpanArguments,
    /// Directory that gets the segments, and the modules that they name.
    #[arg(long, short, value_name = "DIR")]
    pub output: PathBuf,
    /// Directory of the built-in guests [default: beside this program]
    #[arg(long, env = "DAVIT_GUESTS", value_name = "DIR")]
    pub guests: Option<PathBuf>,
    /// Directory that caches fetched guests [default: no cache]
    #[arg(long, env = "DAVIT_CACHE", value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// Format of what the command prints.
    #[arg(long, value_enum, default_value = "text", value_name = "FORMAT")]
    pub format: EntryFormat,
}

/// `davit journal export`
#[derive(Debug, Args)]
pub struct JournalExportArguments {
    /// Directory of the journal, or one of its segments.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// A row for each plan of a decision, and for each decision without plans.
    #[arg(long, required = true)]
    pub decisions: bool,
    #[command(flatten)]
    pub(crate) span: SpanArguments,
    /// Only the decisions of this controller.
    #[arg(long, value_name = "NAME")]
    pub controller: Option<String>,
    /// The Parquet file.
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,
}

/// `davit replay`
#[derive(Debug, Args)]
pub struct ReplayArguments {
    /// Directory of the journal, or one of its segments.
    #[arg(value_name = "DIR")]
    pub journal: PathBuf,
    #[command(flatten)]
    pub(crate) span: SpanArguments,
    /// Only the decisions of this controller.
    #[arg(long, value_name = "NAME")]
    pub controller: Option<String>,
    /// A module of the journal, if neither the module cache nor the built-in guests have
    /// it; may be repeated.
    #[arg(long, value_name = "FILE")]
    pub module: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) guests: GuestArguments,
}

/// `davit backtest`
#[derive(Debug, Args)]
pub struct BacktestArguments {
    /// Directory of the journal, or one of its segments.
    #[arg(value_name = "DIR")]
    pub journal: PathBuf,
    #[command(flatten)]
    pub(crate) span: SpanArguments,
    /// The recorded controller that the policy is compared with; with the journal of davit
    /// record, the name of the policy.
    #[arg(long, value_name = "NAME")]
    pub controller: String,
    /// Another module than the recorded one, or the recorded one, if neither the module cache
    /// nor the built-in guests have it.
    #[arg(long, value_name = "FILE", conflicts_with = "spec")]
    pub module: Option<PathBuf>,
    /// Another configuration of the guest (YAML or JSON): what a Controller has in
    /// spec.config.
    #[arg(long, value_name = "FILE", conflicts_with = "spec")]
    pub config: Option<PathBuf>,
    /// Manifest of a Controller: its module, configuration, permissions, guardrails and
    /// limits.
    #[arg(long, value_name = "FILE")]
    pub spec: Option<PathBuf>,
    /// What the policy is compared with.
    #[arg(long, value_enum, default_value = "recorded", value_name = "WHAT")]
    pub against: BacktestAgainst,
    /// Only note what the policy decides: nothing that it deletes disappears for it.
    #[arg(long, conflicts_with = "keep")]
    pub open_loop: bool,
    /// Objects that the other side deleted, and the policy did not, stay.
    #[arg(long, conflicts_with = "tolerance")]
    pub keep: bool,
    /// How long they stay otherwise, so that a policy whose pass is a little later decides about
    /// them too; 0s for not at all. With --against cluster five minutes at
    /// least, unless it is 0s.
    #[arg(long, default_value = "1m", value_name = "DURATION")]
    pub tolerance: HumanDuration,
    /// Output format.
    #[arg(long, short, value_enum, default_value = "text", value_name = "FORMAT")]
    pub output: BacktestFormat,
    /// Exit 1 if a metric is above this number, as in only-candidate>0; may be repeated.
    /// Metrics: deletes, deletes-per-minute, only-candidate, only-recorded, only-cluster, by-others,
    /// unknown, guardrail-trips, regret, failed-calls, undecided, missing-seconds. Operators: > and
    /// >=.
    #[arg(long, value_name = "EXPR")]
    pub fail_if: Vec<Threshold>,
    /// Exit 0 also if parts of the journal cannot be read, which the report then lacks.
    #[arg(long)]
    pub allow_damage: bool,
    #[command(flatten)]
    pub(crate) guests: GuestArguments,
}

/// What a backtest compares a policy with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BacktestAgainst {
    /// The deletions that the recorded controller executed.
    Recorded,
    /// The deletions of the controller of Kubernetes that the guest replaces, as far as the
    /// recorded objects show who deleted them. With --spec, it needs no recorded controller.
    Cluster,
}

/// The form of a backtest's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BacktestFormat {
    /// For a person.
    Text,
    /// A JSON object.
    Json,
    /// A page for a browser, which needs nothing else.
    Html,
}

/// A time, or how long ago it was.
pub(super) fn time(text: &str) -> Result<Timestamp, String> {
    if let Ok(HumanDuration(ago)) = text.parse() {
        let time = Timestamp::now().checked_sub(ago);
        return time.map_err(|_| format!("\"{text}\" ago is no time"));
    }
    text.parse().map_err(|_| {
        format!("\"{text}\" is neither a time such as 2026-11-25T08:00:00Z nor a span such as 2h")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_moment_or_a_span_back() {
        let moment = time("2026-11-25T09:00:00+01:00").unwrap();
        assert_eq!(moment.to_string(), "2026-11-25T08:00:00Z");
        let ago = Timestamp::now().duration_since(time("2h").unwrap());
        assert!((7_199..7_205).contains(&ago.as_secs()), "{ago}");
        for text in ["", "yesterday", "2026", "-2h"] {
            let error = time(text).unwrap_err();
            assert!(error.contains("a span such as 2h"), "{error}");
        }
    }
}
