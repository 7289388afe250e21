//! `davit backtest`: what another policy would have done on the history of a journal.

mod counts;
mod guest;
mod html;
mod policy;
mod span;
#[cfg(test)]
mod testing;
mod text;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use davit_core::backtest::{
    Against, Backtest, BacktestSettings, LiveAnswers, Refusal, Report, Threshold,
};
use davit_core::untrusted;
use davit_engine::Guest;
use davit_journal::{Part, Query, Reader};

use super::journal::{Decoded, DecodedEntries, open, unknown_controller};
use super::print;
use crate::cli::{BacktestAgainst, BacktestArguments, BacktestFormat};
use crate::journal::SegmentOrigin;
use policy::PolicySource;

/// Why a backtest was not made, or not over the whole span. The program exits with another code
/// than after an exceeded threshold.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct RefusedBacktest(String);

/// `davit backtest`
pub async fn backtest(arguments: BacktestArguments) -> Result<()> {
    let refused = || RefusedBacktest("the backtest cannot be made".to_owned());
    let thresholds = arguments.fail_if.clone();
    check(&thresholds, against(&arguments)).with_context(refused)?;
    let (format, allow_damage) = (arguments.output, arguments.allow_damage);
    let report = report(arguments).await.with_context(refused)?;
    let text = match format {
        BacktestFormat::Text => text::text(&report),
        BacktestFormat::Html => html::html(&report),
        BacktestFormat::Json => {
            let text = serde_json::to_string_pretty(&report);
            untrusted::json(text.context("cannot be written as JSON")?)
        }
    };
    print::out(&text).with_context(refused)?;
    judge(&report, &thresholds, allow_damage)
}

/// What the policy is compared with.
const fn against(arguments: &BacktestArguments) -> Against {
    match arguments.against {
        BacktestAgainst::Recorded => Against::Recorded,
        BacktestAgainst::Cluster => Against::Cluster,
    }
}

/// Fails for a threshold that no such report can exceed.
fn check(thresholds: &[Threshold], against: Against) -> Result<()> {
    let other = thresholds.iter().find(|one| !one.metric().is_of(against));
    match other {
        None => Ok(()),
        Some(threshold) => bail!(
            "--fail-if {threshold}: the report compares with --against {}, and does not have it",
            against.as_str()
        ),
    }
}

/// The errors of a report that was made: an exceeded threshold, or else one that nobody can judge
/// by this journal, or damage of the journal.
fn judge(report: &Report, thresholds: &[Threshold], allow_damage: bool) -> Result<()> {
    let exceeded = thresholds.iter().filter(|one| one.is_exceeded(report));
    let exceeded: Vec<String> = exceeded.map(|one| described(*one, report)).collect();
    if !exceeded.is_empty() {
        bail!("thresholds are exceeded: {}", exceeded.join("; "))
    }
    let open = thresholds.iter().filter(|one| one.is_unknown(report));
    let open: Vec<String> = open.map(|one| uncertain(*one, report)).collect();
    if !open.is_empty() {
        bail!(RefusedBacktest(format!(
            "the journal does not say whether thresholds are exceeded: {}. The notes of the report \
             say what the journal lacks: record it with --profile, or leave the threshold out",
            open.join("; ")
        )));
    }
    if report.damaged_parts > 0 && !allow_damage {
        let first = report.damage.first().map_or("", String::as_str);
        bail!(RefusedBacktest(format!(
            "the report lacks parts of the journal that cannot be read: {}, the first: {first}; \
             --allow-damage accepts it",
            report.damaged_parts
        )));
    }
    Ok(())
}

fn described(threshold: Threshold, report: &Report) -> String {
    let value = threshold.metric().value(report);
    format!("{threshold} (it is {value})")
}

fn uncertain(threshold: Threshold, report: &Report) -> String {
    let metric = threshold.metric();
    let least = metric.value(report);
    match metric.unknown(report) {
        u64::MAX => format!("{threshold} (it is {least} as far as the journal shows it)"),
        unknown => {
            let most = least.saturating_add(unknown);
            format!("{threshold} (it is {least} at least, and {most} at most)")
        }
    }
}

/// The report of a backtest.
pub(crate) async fn report(arguments: BacktestArguments) -> Result<Report> {
    let began = Instant::now();
    let reader = open(&arguments.journal)?;
    let report = attempt(&reader, &arguments, None, began).await;
    let refusal = report.as_ref().err();
    let refusal = refusal.and_then(|error| error.downcast_ref::<Refusal>());
    if !matches!(refusal, Some(Refusal::Read { .. })) {
        return report;
    }
    // The guest reads live what no recorded list has, or does not have yet: the recorded answers
    // may serve.
    let answers = answers(&reader, &arguments)?;
    attempt(&reader, &arguments, Some(answers), began).await
}

async fn attempt(
    reader: &Reader,
    arguments: &BacktestArguments,
    answers: Option<LiveAnswers>,
    began: Instant,
) -> Result<Report> {
    let mut session = Session::new(reader, arguments)?;
    if let Some(answers) = answers {
        session.backtest.answer_from(answers);
    }
    session.backtest.ask(span::asked(reader, &arguments.span));
    let (from, to) = arguments.span.micros();
    let mut entries = DecodedEntries::read_for_backtest(reader, Query::new(from, to))?;
    for entry in entries.by_ref() {
        session.entry(entry?).await?;
    }
    let (took, in_guest) = (began.elapsed(), session.in_guest);
    let report = session.finish()?;
    log_time(&report, took, entries.waited(), in_guest);
    Ok(report)
}

/// Says where the time went: for who waits for a backtest, and for the bench.
fn log_time(report: &Report, took: Duration, waited: Duration, in_guest: Duration) {
    let rest = took.saturating_sub(waited).saturating_sub(in_guest);
    tracing::info!(
        entries = report.activity.entries,
        calls = report.activity.calls,
        took = took.as_secs_f64(),
        journal = waited.as_secs_f64(),
        guest = in_guest.as_secs_f64(),
        machine = rest.as_secs_f64(),
        "seconds that the backtest took: all, waiting for the journal's reader, in calls of the \
         guest, and in the recorded state and the policy's machine"
    );
}

/// The live reads of the recorded controller.
fn answers(reader: &Reader, arguments: &BacktestArguments) -> Result<LiveAnswers> {
    let mut answers = LiveAnswers::of(&arguments.controller);
    let (from, to) = arguments.span.micros();
    for entry in DecodedEntries::read(reader, Query::new(from, to))? {
        match entry? {
            Decoded::Entry(entry) => {
                if entry.is_after_gap {
                    answers.restart();
                }
                answers.note(entry.record);
            }
            // The backtest itself reports it.
            Decoded::Damage(_) => {}
        }
    }
    Ok(answers)
}

/// A backtest under way.
struct Session {
    backtest: Backtest<Arc<Guest>>,
    source: Option<PolicySource>,
    controller: String,
    /// The time of the guest's calls.
    in_guest: Duration,
    /// Whether the policy needs no recorded controller: none ran while the journal was recorded, or
    /// a manifest is compared with the cluster.
    is_alone: bool,
}

impl Session {
    fn new(reader: &Reader, arguments: &BacktestArguments) -> Result<Self> {
        Ok(Self {
            backtest: Backtest::new(BacktestSettings {
                controller: arguments.controller.clone(),
                open_loop: arguments.open_loop,
                tolerance: if arguments.keep {
                    Duration::MAX
                } else {
                    arguments.tolerance.0
                },
                against: against(arguments),
            }),
            source: Some(PolicySource::new(arguments)?),
            controller: arguments.controller.clone(),
            in_guest: Duration::ZERO,
            is_alone: is_profile_only(reader)
                || (arguments.spec.is_some() && against(arguments) == Against::Cluster),
        })
    }

    async fn entry(&mut self, entry: Decoded) -> Result<()> {
        let entry = match entry {
            Decoded::Entry(entry) => *entry,
            Decoded::Damage(damage) => {
                self.backtest.lose_damaged(damage.to_string());
                return Ok(());
            }
        };
        if entry.is_after_gap {
            self.backtest.lose();
        }
        if entry.part == Part::Span {
            self.start().await?;
        }
        let place = entry.place;
        self.backtest.offer(entry.record);
        loop {
            let call = match self.backtest.poll() {
                Ok(Some(call)) => call,
                Ok(None) => return Ok(()),
                Err(error @ (Refusal::History(_) | Refusal::Leap { .. })) => {
                    return Err(error).with_context(|| place.to_string());
                }
                Err(error) => return Err(error.into()),
            };
            let id = call.id;
            let began = Instant::now();
            let result = guest::decide(*call, &mut self.backtest).await?;
            self.in_guest += began.elapsed();
            self.backtest.answer(id, result);
        }
    }

    /// Starts the policy as soon as the recorded controller runs, or, if it needs none, as soon as
    /// the state is known.
    async fn start(&mut self) -> Result<()> {
        if self.is_alone {
            if self.backtest.is_complete()
                && let Some(source) = self.source.take()
            {
                let desired = source.load_alone(&self.controller).await?;
                self.backtest.start(desired);
            }
            return Ok(());
        }
        let runs = self.backtest.is_complete()
            && self
                .backtest
                .controller()
                .is_some_and(|one| one.stable.is_some());
        if runs && let Some(source) = self.source.take() {
            let controller = self.backtest.controller().cloned();
            let spec = self.backtest.spec().cloned();
            if let Some(controller) = controller {
                let desired = source.load(&controller, spec.as_deref()).await?;
                self.backtest.start(desired);
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Report> {
        if self.source.is_some() {
            let known: Vec<&str> = self.backtest.controllers().collect();
            if !self.backtest.is_complete() {
                bail!("the journal has no keyframe in this span that can be read");
            }
            let controller = &self.controller;
            if self.is_alone {
                bail!("the journal has no entry behind a keyframe in this span");
            }
            if known.contains(&controller.as_str()) {
                bail!("{controller} does not run in this span: no revision is recorded in it");
            }
            let unknown = unknown_controller(controller, known);
            bail!("{unknown}; a policy of --spec needs none with --against cluster");
        }
        Ok(self.backtest.finish()?)
    }
}

/// Whether `davit record` recorded all of a journal: it has no controllers.
fn is_profile_only(reader: &Reader) -> bool {
    let segments = reader.segments();
    let mut origins = segments
        .iter()
        .map(|one| SegmentOrigin::read(&one.metadata));
    !segments.is_empty() && origins.all(|origin| origin.profile_only)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use davit_core::backtest::RegretReport;
    use davit_core::journal::Entry;
    use davit_core::object::Uid;
    use davit_core::store::StateChange;

    use super::*;
    use crate::cli::{Arguments, Command};
    use crate::commands::journal::testing::journal;

    /// What is wrong with a backtest of podgc over these entries.
    async fn refusal(entries: Vec<(u32, Entry)>, arguments: &[&str]) -> String {
        let directory = journal(entries);
        let path = directory.path().to_str().unwrap();
        let first = ["davit", "backtest", path, "--controller", "podgc"];
        let command = Arguments::try_parse_from(first.iter().chain(arguments));
        let Command::Backtest(arguments) = command.unwrap().command else {
            panic!("a backtest");
        };
        format!("{:#}", report(*arguments).await.unwrap_err())
    }

    #[test]
    fn a_threshold_of_the_other_comparison_is_refused() {
        let only_cluster = "only-cluster>0".parse().unwrap();
        assert!(check(&[only_cluster], Against::Cluster).is_ok());
        let error = check(&[only_cluster], Against::Recorded).unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with("--fail-if only-cluster>0: "), "{error}");
        let only_recorded = "only-recorded>0".parse().unwrap();
        assert!(check(&[only_recorded], Against::Cluster).is_err());
    }

    #[test]
    fn a_threshold_that_nobody_can_judge_is_no_success() {
        let mut report = testing::report(Against::Recorded);
        report.candidate.regret = RegretReport {
            nodes_back: None,
            recreated: Some(2),
            known: 2,
            unknown: 3,
        };
        let judged = |text: &str| judge(&report, &[text.parse().unwrap()], true);
        for threshold in ["regret>2", "regret>=5"] {
            let error = judged(threshold).unwrap_err();
            assert!(error.is::<RefusedBacktest>(), "it exits 2: {error}");
            let error = error.to_string();
            let bounds = format!("{threshold} (it is 2 at least, and 5 at most)");
            assert!(error.contains(&bounds), "{error}");
        }
        let exceeded = judged("regret>1").unwrap_err();
        assert!(!exceeded.is::<RefusedBacktest>(), "it exits 1: {exceeded}");
        assert!(judged("regret>5").is_ok());
        // An exceeded threshold is exceeded, whatever another one is.
        let both = ["regret>2".parse().unwrap(), "regret>1".parse().unwrap()];
        let error = judge(&report, &both, true).unwrap_err();
        assert!(!error.is::<RefusedBacktest>(), "{error}");
    }

    #[test]
    fn thresholds_need_to_know_who_deleted_an_object() {
        let mut report = testing::report(Against::Cluster);
        report.agreement.only_cluster = Some(0);
        for (is_complete, judged) in [(true, true), (false, false)] {
            report.agreement.is_attribution_complete = Some(is_complete);
            for threshold in ["only-cluster>0", "only-candidate>0", "by-others>3"] {
                let result = judge(&report, &[threshold.parse().unwrap()], true);
                assert_eq!(result.is_ok(), judged, "{threshold}");
                let Err(error) = result else { continue };
                assert!(error.is::<RefusedBacktest>(), "it exits 2: {error}");
                let part = format!("{threshold} (it is 0 as far as the journal shows it)");
                assert!(error.to_string().contains(&part), "{error}");
            }
            assert!(judge(&report, &["unknown>0".parse().unwrap()], true).is_ok());
        }
    }

    #[tokio::test]
    async fn changes_that_do_not_fit_are_refused_with_their_segment_and_time() {
        let remove = StateChange::Remove {
            slot: 7,
            uid: Uid::new("a"),
        };
        let entries = vec![
            (10, Entry::Keyframe { is_start: true }),
            (10, Entry::KeyframeEnd),
            (12, Entry::Cache(remove)),
        ];
        let error = refusal(entries, &[]).await;
        let place = "segment 1, 1970-01-01T00:00:12.000Z: the journal's changes";
        assert!(error.starts_with(place), "{error}");
    }
}
