//! Two revisions of `PodGC`, each tried beside the one that runs.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail};
use davit_core::rollout::compare::Disagreement;
use tokio::time::{Duration, Instant};

use super::chapters::podgc;
use super::{PATIENCE, Story};
use crate::rollout::Owner;
use davit_core::api::{CandidateStatus, ControllerStatus};

const PODGC: &str = "podgc";
/// How often a rollout is looked at.
const LOOK: Duration = Duration::from_millis(50);

impl Story {
    /// A stricter revision is tried, and takes over.
    pub(super) async fn promote_a_canary(&mut self) -> Result<()> {
        self.screen.chapter(
            "A threshold of 8 is tried beside the 12 that runs: a shadow first, then with half \
             of the pods",
        );
        let rollout = "{steps: [shadow 2s, weight 50 for 1s], \
                       analysis: {minDecisions: 4, window: 200ms}}";
        let before = self.stable().await?;
        self.try_beside(8, rollout).await?;
        let after = self.follow().await?;
        let stable = after.stable.context("no revision of PodGC is stable")?;
        if stable.revision == before {
            bail!("the candidate did not take over: {}", after.summary);
        }
        let revision = &stable.revision;
        self.screen
            .action(&format!("{revision} has taken the place of {before}"));
        let pods = (5..=8).map(|number| format!("batch-{number:02}"));
        self.until_gone("terminated", pods.collect()).await
    }

    /// A revision that goes too far is taken back, and nothing was deleted.
    pub(super) async fn roll_a_canary_back(&mut self) -> Result<()> {
        self.screen.chapter(
            "A threshold of 1 is tried the same way, and may disagree on a quarter at most",
        );
        let rollout = "{steps: [shadow 10s, weight 50 for 10s], \
                       analysis: {minDecisions: 4, maxDisagreementPercent: 25, window: 200ms}}";
        let before = self.stable().await?;
        self.try_beside(1, rollout).await?;
        let after = self.follow().await?;
        let rejected = after.rejected.context("the candidate was not taken back")?;
        self.screen.failure(&format!(
            "{} was taken back in step {}: {}",
            rejected.revision, rejected.step, rejected.reason
        ));
        let stable = self.stable().await?;
        if stable != before {
            bail!("{stable} runs instead of {before}");
        }
        self.screen
            .action(&format!("{before} runs as before, and no pod was deleted"));
        self.pause().await;
        Ok(())
    }

    /// Applies another threshold as an operator does, with a rollout.
    async fn try_beside(&mut self, threshold: u32, rollout: &str) -> Result<()> {
        let controller = format!("{}  rollout: {rollout}\n", podgc(threshold));
        self.controllers = vec![controller];
        self.apply().await
    }

    /// Tells how a rollout goes on until it has come to its end; returns the
    /// status that this left behind.
    async fn follow(&mut self) -> Result<ControllerStatus> {
        let deadline = Instant::now() + PATIENCE;
        let mut step = 0;
        let mut told = BTreeSet::new();
        loop {
            let status = self.status().await?;
            let Some(candidate) = &status.candidate else {
                return Ok(status);
            };
            if candidate.step != step {
                step = candidate.step;
                self.screen.action(&describe(candidate));
            }
            self.tell_disagreements(&mut told).await;
            if Instant::now() > deadline {
                bail!("the rollout does not end: {}", status.summary);
            }
            self.listen_until(Instant::now() + LOOK).await?;
        }
    }

    /// Tells of each target on which the revisions do not agree, once.
    async fn tell_disagreements(&mut self, told: &mut BTreeSet<String>) {
        let Some(found) = self.host.handle().disagreements(PODGC).await else {
            return;
        };
        let oldest_first = found.last.iter().rev();
        for Disagreement {
            verdict,
            stable,
            candidate,
            ..
        } in oldest_first
        {
            if let Some(side) = candidate.as_ref().or(stable.as_ref())
                && told.insert(side.plan.target.uid.clone())
            {
                self.screen.disagreement(verdict.as_str(), &side.plan);
            }
        }
    }

    async fn stable(&self) -> Result<String> {
        let stable = self.status().await?.stable;
        let stable = stable.context("no revision of PodGC is stable")?;
        Ok(stable.revision)
    }

    /// What is written down of PodGC.
    async fn status(&self) -> Result<ControllerStatus> {
        Ok(self.records.load(Owner::named(PODGC)).await?)
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
