//! The last chapter: one of two replicas is killed in the middle of its evictions.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use davit_sim::fault::Fault;

use super::Story;
use super::fleet::Fleet;

const REASON: &str = "not-tolerated";
const NODE: &str = "node-2";
/// How long the API server takes for each write to a pod: long enough to kill a replica in
/// between.
const SLOW: [&str; 2] = ["patch pods delay=20ms", "delete pods delay=20ms"];
/// How many pods more the tainted node has.
const PODS: u32 = 20;
/// How many are deleted before the holder is killed.
const BEFORE: usize = 8;

impl Story {
    /// The holder of a Lease is killed in the middle of its evictions.
    pub(super) async fn kill_the_holder(&mut self, mut fleet: Fleet) -> Result<()> {
        self.screen.chapter(
            "Two replicas of Davit run taint eviction, with a Lease of 2 s; the one that leads is \
             killed",
        );
        // From now on, the controllers of this process do not run.
        self.controllers.clear();
        self.apply().await?;
        self.until("a replica leads", |_| fleet.is_ready()).await?;
        for fault in SLOW {
            self.cluster.sim().add_fault(fault.parse::<Fault>()?);
        }
        self.cluster.create_jobs(NODE, PODS)?;
        let pods = self.cluster.pods_of(NODE)?;
        self.screen.action(&format!(
            "{NODE} gets a NoExecute taint, which none of its {} pods tolerates",
            pods.len()
        ));
        let tainted = self.cluster.sim().uptime();
        self.cluster.taint(NODE)?;
        self.until_leaving(&pods, BEFORE).await?;
        let former = fleet.holder().context("nobody leads")?;
        fleet.kill(former)?;
        let at = self.cluster.sim().uptime();
        let left = pods.len() - self.cluster.leaving(&pods)?;
        self.screen.failure(&format!(
            "kill -9 {former}, which leads: {left} pods are left"
        ));
        self.until("another replica leads", |_| {
            let holder = fleet.holder();
            let has_another = holder.is_some_and(|holder| holder != former);
            Ok(has_another && fleet.first_write(at).is_some())
        })
        .await?;
        let holder = fleet.holder().context("nobody leads")?;
        let took = fleet.first_write(at).unwrap_or(at).saturating_sub(at);
        self.screen.action(&format!(
            "{holder} leads and evicts {:.1} s later",
            took.as_secs_f64()
        ));
        self.until_gone(REASON, pods).await?;
        let deleted = fleet.deletions(tainted);
        *self.deleted.entry(REASON.to_owned()).or_default() += deleted;
        self.screen
            .action(&format!("the API server has served {deleted} deletions"));
        Ok(())
    }

    /// Waits until so many of these pods are terminating or gone.
    async fn until_leaving(&mut self, pods: &BTreeSet<String>, number: usize) -> Result<()> {
        self.until("pods of the node are deleted", |story| {
            Ok(story.cluster.leaving(pods)? >= number)
        })
        .await
    }
}
