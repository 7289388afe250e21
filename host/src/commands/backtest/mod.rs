//! `davit backtest`: what another policy would have done on the history of a journal.

mod counts;
mod guest;
mod html;
mod policy;
mod text;

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use davit_core::backtest::{Backtest, BacktestSettings, Report, Threshold};
use davit_core::journal::decode;
use davit_core::untrusted;
use davit_engine::Guest;
use davit_journal::{Entry, Error, Part, Query, Reader};

use super::journal::{LONGEST, SegmentOrder, open};
use super::print;
use crate::cli::{BacktestArguments, BacktestFormat};
use crate::journal::SegmentOrigin;
use policy::PolicySource;

/// Why a backtest was not made. The program exits with another code than after an exceeded
/// threshold.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct RefusedBacktest(String);

/// `davit backtest`
pub async fn backtest(arguments: BacktestArguments) -> Result<()> {
    let refused = || RefusedBacktest("the backtest cannot be made".to_owned());
    let thresholds = arguments.fail_if.clone();
    let format = arguments.output;
    let report = run(arguments).await.with_context(refused)?;
    let text = match format {
        BacktestFormat::Text => text::text(&report),
        BacktestFormat::Html => html::html(&report),
        BacktestFormat::Json => {
            serde_json::to_string_pretty(&report).context("cannot be written as JSON")?
        }
    };
    print::out(&text).with_context(refused)?;
    let exceeded = thresholds.iter().filter(|one| one.is_exceeded(&report));
    let exceeded: Vec<String> = exceeded.map(|one| described(*one, &report)).collect();
    if exceeded.is_empty() {
        return Ok(());
    }
    bail!("thresholds are exceeded: {}", exceeded.join("; "))
}

fn described(threshold: Threshold, report: &Report) -> String {
    let value = threshold.metric().value(report);
    format!("{threshold} (it is {value})")
}

async fn run(arguments: BacktestArguments) -> Result<Report> {
    let reader = open(&arguments.journal)?;
    let mut session = Session::new(&reader, &arguments)?;
    let (from, to) = arguments.span.micros();
    for entry in reader.entries(&Query::new(from, to)) {
        session.entry(entry).await?;
    }
    session.finish()
}

/// A backtest under way.
struct Session {
    backtest: Backtest<Arc<Guest>>,
    source: Option<PolicySource>,
    controller: String,
    /// Whether no controller ran while the journal was recorded.
    is_profile_only: bool,
    order: SegmentOrder,
}

impl Session {
    fn new(reader: &Reader, arguments: &BacktestArguments) -> Result<Self> {
        Ok(Self {
            backtest: Backtest::new(BacktestSettings {
                controller: arguments.controller.clone(),
                open_loop: arguments.open_loop,
                keeps: arguments.keep,
            }),
            source: Some(PolicySource::new(arguments)?),
            controller: arguments.controller.clone(),
            is_profile_only: is_profile_only(reader),
            order: SegmentOrder::new(reader),
        })
    }

    async fn entry(&mut self, entry: Result<Entry, Error>) -> Result<()> {
        let entry = match entry {
            Ok(entry) => entry,
            Err(Error::Damage(_)) => {
                self.backtest.lose();
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        if self.order.enter(entry.segment) {
            self.backtest.lose();
        }
        let record = decode(&entry.payload)?;
        if entry.part == Part::Span {
            self.start().await?;
        }
        self.backtest.offer(record);
        while let Some(call) = self.backtest.poll()? {
            let id = call.id;
            let result = guest::decide(*call, &mut self.backtest).await?;
            self.backtest.answer(id, result);
        }
        Ok(())
    }

    /// Starts the policy as soon as the recorded controller runs, or, if none was recorded, as
    /// soon as the state is known.
    async fn start(&mut self) -> Result<()> {
        if self.is_profile_only {
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
            if self.is_profile_only {
                bail!("the journal has no entry behind a keyframe in this span");
            }
            if known.contains(&controller.as_str()) {
                bail!("{controller} does not run in this span: no revision is recorded in it");
            }
            let known = match untrusted::line(&known.join(", "), LONGEST) {
                none if none.is_empty() => "none".to_owned(),
                known => known,
            };
            bail!("the journal has no controller {controller} in this span, only: {known}");
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
