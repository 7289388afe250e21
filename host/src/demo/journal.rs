//! The journal of the demo's host, and two policies tested on it before one of them runs.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser as _;
use davit_core::backtest::{Difference, Report, Threshold};
use tempfile::TempDir;
use tokio::time::{Duration, Instant};

use super::{PATIENCE, Story};
use crate::cli::{Arguments, Command, GuestArguments, JournalArguments};
use crate::commands::backtest;
use crate::config::JournalConfig;
use crate::health::Health;
use crate::journal::Journal;
use crate::journal_settings;
use crate::metrics::HostMetrics;
use crate::run;

/// The most pods that an operator lets a new policy delete beyond those of the old one.
const MOST: &str = "only-candidate>3";
/// The journal is written within a second, and read again until it has everything.
const PERIOD: Duration = Duration::from_millis(200);

/// The directory of the demo's journal, which ends with the demo.
pub(super) struct Archive {
    place: TempDir,
    guests: GuestArguments,
}

impl Archive {
    /// A directory that is empty.
    pub(super) fn new(guests: &GuestArguments) -> Result<Self> {
        Ok(Self {
            place: tempfile::tempdir().context("the demo needs a directory for its journal")?,
            guests: guests.clone(),
        })
    }

    fn journal(&self) -> PathBuf {
        self.place.path().join("journal")
    }

    /// The journal, to be written.
    pub(super) fn open(&self, metrics: &HostMetrics, health: &Arc<Health>) -> Result<Journal> {
        let arguments = JournalArguments {
            journal: Some(self.journal()),
            ..JournalArguments::default()
        };
        let settings = journal_settings::settings(&arguments, &JournalConfig::default())?;
        let journal = run::open_journal(settings, None, metrics, health)?;
        journal.context("the demo has a journal")
    }

    /// What PodGC would have deleted with this threshold.
    async fn backtest(&self, threshold: u32) -> Result<Report> {
        let config = self.place.path().join("config.yaml");
        let text = format!("{{terminatedPodThreshold: {threshold}, period: 1s, quarantine: 1s}}");
        std::fs::write(&config, text).context("the configuration to test")?;
        let command = ["davit", "backtest", "--controller", "podgc"].map(PathBuf::from);
        let mut command = command.to_vec();
        command.extend([self.journal(), "--config".into(), config]);
        // The engine has its defaults, as the demo does.
        let GuestArguments {
            directory, cache, ..
        } = &self.guests;
        for (flag, value) in [("--guests", directory), ("--cache", cache)] {
            let pair = value.iter().flat_map(|value| [flag.into(), value.clone()]);
            command.extend(pair);
        }
        match Arguments::try_parse_from(command)?.command {
            Command::Backtest(arguments) => Box::pin(backtest::report(*arguments)).await,
            _ => bail!("that is no backtest"),
        }
    }
}

impl Story {
    /// Two thresholds are tested on what happened so far; the stricter one deletes too much.
    pub(super) async fn choose_a_threshold(&mut self) -> Result<()> {
        self.screen.chapter(
            "Which threshold is next? All of this was recorded: two are tested on the journal",
        );
        let limit: Threshold = MOST.parse()?;
        let bad = self.test_threshold(2).await?;
        ensure!(limit.is_exceeded(&bad), "a threshold of 2 is not too low");
        self.screen
            .failure(&format!("--fail-if '{MOST}' exits 1: 2 is too low"));
        let good = self.test_threshold(5).await?;
        ensure!(!limit.is_exceeded(&good), "a threshold of 5 is too low");
        let expected = (9..=11).map(|number| format!("batch-{number:02}"));
        let pods: BTreeSet<String> = only_candidate(&good).collect();
        ensure!(
            pods == expected.collect(),
            "5 would have deleted {pods:?} besides"
        );
        self.pause().await;
        Ok(())
    }

    /// Prints what PodGC would have deleted with a threshold.
    async fn test_threshold(&mut self, threshold: u32) -> Result<Report> {
        self.screen.action(&format!(
            "$ davit backtest journal --controller podgc --config threshold-{threshold}.yaml"
        ));
        let recorded = self.deleted.values().sum::<usize>() as u64;
        let deadline = Instant::now() + PATIENCE;
        let report = loop {
            let report = self.archive.backtest(threshold).await?;
            if report.recorded.deletions == recorded {
                break report;
            }
            let found = report.recorded.deletions;
            ensure!(
                Instant::now() < deadline,
                "the journal has {found} of {recorded} deletions"
            );
            self.listen_until(Instant::now() + PERIOD).await?;
        };
        let agreement = &report.agreement;
        self.screen.action(&format!(
            "it would have deleted {} pods: {} of the {recorded} that were deleted, and {} more",
            report.candidate.deletions, agreement.agree, agreement.only_candidate
        ));
        let surprises = report.surprising.iter();
        let surprises = surprises.filter(|one| one.difference == Difference::OnlyCandidate);
        let mut surprises: Vec<_> = surprises.collect();
        surprises.sort_by(|one, other| one.object.cmp(&other.object));
        for surprise in surprises {
            self.screen.surprise(surprise);
        }
        Ok(report)
    }
}

/// The names of the pods that only the policy under test deletes.
fn only_candidate(report: &Report) -> impl Iterator<Item = String> {
    let surprises = report.surprising.iter();
    let surprises = surprises.filter(|one| one.difference == Difference::OnlyCandidate);
    surprises.filter_map(|one| {
        let name = one.object.split(['/', ' ']).nth(3)?;
        Some(name.to_owned())
    })
}
