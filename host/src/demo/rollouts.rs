//! Two rollouts of `PodGC`: one candidate is promoted, one is rolled back.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail};
use davit_core::rollout::compare::Disagreement;
use tokio::time::{Duration, Instant};

use super::chapters::podgc;
use super::{PATIENCE, Story};
use davit_core::api::{CandidateStatus, ControllerStatus};
use davit_core::record::Owner;

const PODGC: &str = "podgc";
/// How often the rollout's status is read.
const PERIOD: Duration = Duration::from_millis(50);

impl Story {
    /// A stricter candidate is promoted.
    pub(super) async fn promote_a_canary(&mut self) -> Result<()> {
        self.screen.chapter(
            "A candidate with a threshold of 8 runs beside the stable 12: as a shadow, then with \
             half of the pods",
        );
        let rollout = "{steps: [shadow 2s, weight 50 for 1s], \
                       analysis: {minDecisions: 4, window: 200ms}}";
        let before = self.stable().await?;
        self.start_rollout(8, rollout).await?;
        let after = self.finish_rollout().await?;
        let stable = after.stable.context("no revision of PodGC is stable")?;
        if stable.revision == before {
            bail!("the candidate was not promoted: {}", after.summary);
        }
        let revision = &stable.revision;
        self.screen
            .action(&format!("{revision} is promoted and replaces {before}"));
        let pods = (5..=8).map(|number| format!("batch-{number:02}"));
        self.until_gone("terminated", pods.collect()).await
    }

    /// A candidate that disagrees too often is rolled back, and deletes nothing.
    pub(super) async fn roll_a_canary_back(&mut self) -> Result<()> {
        self.screen.chapter(
            "A candidate with a threshold of 1 may disagree with the stable revision on 25 % of \
             the pods",
        );
        let rollout = "{steps: [shadow 10s, weight 50 for 10s], \
                       analysis: {minDecisions: 4, maxDisagreementPercent: 25, window: 200ms}}";
        let before = self.stable().await?;
        self.start_rollout(1, rollout).await?;
        let after = self.finish_rollout().await?;
        let rejected = after
            .rejected
            .context("the candidate was not rolled back")?;
        self.screen.failure(&format!(
            "{} is rolled back in step {}: {}",
            rejected.revision, rejected.step, rejected.reason
        ));
        let stable = self.stable().await?;
        if stable != before {
            bail!("{stable} runs instead of {before}");
        }
        self.screen
            .action(&format!("{before} still runs, and no pod was deleted"));
        self.pause().await;
        Ok(())
    }

    /// Applies another threshold as an operator does, with a rollout.
    async fn start_rollout(&mut self, threshold: u32, rollout: &str) -> Result<()> {
        let controller = format!("{}  rollout: {rollout}\n", podgc(threshold));
        self.controllers = vec![controller];
        self.apply().await
    }

    /// Prints the progress of a rollout until its end; returns the status after it.
    async fn finish_rollout(&mut self) -> Result<ControllerStatus> {
        let deadline = Instant::now() + PATIENCE;
        let mut step = 0;
        let mut printed = BTreeSet::new();
        loop {
            let status = self.status().await?;
            let Some(candidate) = &status.candidate else {
                return Ok(status);
            };
            if candidate.step != step {
                step = candidate.step;
                self.screen.action(&describe(candidate));
            }
            self.print_disagreements(&mut printed).await;
            if Instant::now() > deadline {
                bail!("the rollout does not end: {}", status.summary);
            }
            self.listen_until(Instant::now() + PERIOD).await?;
        }
    }

    /// Prints each target on which the revisions disagree, once.
    async fn print_disagreements(&mut self, printed: &mut BTreeSet<String>) {
        let Some(found) = self.host.handle().disagreements(PODGC).await else {
            return;
        };
        let oldest_first = found.last.iter().rev();
        for Disagreement {
            agreement,
            stable,
            candidate,
            ..
        } in oldest_first
        {
            if let Some(side) = candidate.as_ref().or(stable.as_ref())
                && printed.insert(side.plan.target.uid.clone())
            {
                self.screen.disagreement(agreement.as_str(), &side.plan);
            }
        }
    }

    async fn stable(&self) -> Result<String> {
        let stable = self.status().await?.stable;
        let stable = stable.context("no revision of PodGC is stable")?;
        Ok(stable.revision)
    }

    /// The recorded status of PodGC.
    async fn status(&self) -> Result<ControllerStatus> {
        Ok(self.records.status(&Owner::named(PODGC)).await?)
    }
}

fn describe(candidate: &CandidateStatus) -> String {
    let CandidateStatus {
        revision,
        step,
        steps,
        step_text,
        ..
    } = candidate;
    format!("{revision}: step {step} of {steps}, {step_text}")
}
