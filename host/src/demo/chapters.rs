//! The chapters. PodGC runs from the first one; each later controller is added while
//! the others run.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use super::Story;

impl Story {
    pub(super) async fn start_podgc(&mut self) -> Result<()> {
        self.screen
            .chapter("Six nodes with four running pods each appear");
        self.cluster.populate()?;
        self.screen.action(
            "PodGC starts: threshold 12, a pass every second, and it waits 1 s for a missing \
             node before it deletes the node's pods",
        );
        self.run(podgc(12)).await?;
        self.screen
            .action("PodGC is synced and has nothing to delete");
        self.pause().await;
        Ok(())
    }

    pub(super) async fn remove_a_node(&mut self) -> Result<()> {
        self.screen
            .chapter("node-6 is deleted, and its kubelet is gone");
        let pods = self.cluster.remove_node("node-6")?;
        self.screen.action(&format!(
            "{} pods are bound to a missing node: PodGC waits 1 s, confirms with a live read that \
             the node is gone, then deletes them",
            pods.len()
        ));
        self.until_gone("orphaned", pods).await
    }

    pub(super) async fn finish_pods(&mut self) -> Result<()> {
        self.screen
            .chapter("18 batch pods terminate: 12 succeed, 4 fail, 2 are evicted");
        self.cluster.finish_pods("batch")?;
        self.screen
            .action("6 more than the threshold of 12: PodGC deletes the evicted pods first, then the oldest");
        let pods = [
            "batch-17", "batch-18", "batch-01", "batch-02", "batch-03", "batch-04",
        ];
        self.until_gone("terminated", pods.map(String::from).into())
            .await
    }

    pub(super) async fn lose_a_node(&mut self) -> Result<()> {
        self.screen
            .chapter("node-5 loses power; an operator adds the taint out-of-service");
        let pods = self.cluster.hang_node("node-5")?;
        self.screen.action(&format!(
            "its {} pods are terminating, and no kubelet ends them",
            pods.len()
        ));
        self.until_gone("out-of-service", pods).await
    }

    pub(super) async fn delete_an_unscheduled_pod(&mut self) -> Result<()> {
        self.screen
            .chapter("A pod with a finalizer is deleted before it is scheduled");
        let pod = self.cluster.strand_a_pod()?;
        self.screen
            .action("PodGC marks the pod Failed and deletes it; then its finalizer is removed");
        // Between the mark and the deletion, the pod would be gone already.
        self.until_deleted("unscheduled").await?;
        ensure!(self.cluster.is_failed(&pod)?, "{pod} is not marked Failed");
        self.cluster.remove_finalizers(&pod)?;
        self.until_gone("unscheduled", [pod].into()).await
    }

    pub(super) async fn change_the_threshold(&mut self) -> Result<()> {
        self.screen.chapter(
            "An operator lowers the threshold from 8 to 5 without steps; nothing restarts",
        );
        self.controllers.clear();
        self.run(podgc(5)).await?;
        let pods = (9..=11).map(|number| format!("batch-{number:02}"));
        self.until_gone("terminated", pods.collect()).await
    }

    /// The chapter of the 18 batch pods again: a policy deletes the same ones.
    pub(super) async fn write_the_threshold_as_a_policy(&mut self) -> Result<()> {
        self.screen.chapter(
            "The threshold of 12 again, as a policy of five lines: 18 other batch pods terminate",
        );
        self.controllers.clear();
        self.apply().await?;
        // A policy acts on each change, so it starts when all of them have terminated.
        self.cluster.finish_pods("again")?;
        for line in THRESHOLD_POLICY.lines() {
            self.screen.action(line);
        }
        let controller = format!(
            "- name: threshold\n  module: {{builtin: policy}}\n  mode: Enforce\n  \
             permissions: {POLICY_PERMISSIONS}\n  config:\n    rules:\n{}\n",
            indented(THRESHOLD_POLICY, 4)
        );
        self.run(controller).await?;
        let pods = [17, 18, 1, 2, 3, 4].map(|number| format!("again-{number:02}"));
        self.until_gone("terminated-by-policy", pods.into()).await
    }

    /// Owners are deleted with each propagation policy.
    pub(super) async fn delete_owners(&mut self) -> Result<()> {
        self.screen.chapter(
            "The garbage collector starts; ReplicaSets are deleted with each propagation policy",
        );
        self.run(controller("garbage-collector", "{}")).await?;
        let background = self.cluster.create_owner("shop")?;
        let foreground = self.cluster.create_owner("cart")?;
        let orphaned = self.cluster.create_owner("blog")?;
        self.pause().await;
        self.screen.action(
            "shop, background: the owner is gone immediately, the collector deletes its pods",
        );
        self.cluster.delete_owner("shop", "Background")?;
        self.until_gone("owners-gone", background).await?;
        self.screen
            .action("cart, foreground: the owner stays until its pods are gone");
        self.cluster.delete_owner("cart", "Foreground")?;
        self.until_gone("owners-gone", foreground).await?;
        self.screen
            .action("blog, orphan: the pods stay and lose their owner reference");
        self.cluster.delete_owner("blog", "Orphan")?;
        self.until(
            "the owners are gone, and the pods of blog have no owner",
            |story| {
                let cluster = &story.cluster;
                Ok(cluster.owners()?.is_empty() && cluster.are_free(&orphaned)?)
            },
        )
        .await
    }

    /// A node is tainted, and one of its pods may stay for a while.
    pub(super) async fn taint_a_node(&mut self) -> Result<()> {
        self.screen.chapter(
            "Taint eviction starts; node-4 gets a NoExecute taint, which web-44 tolerates for 1 s",
        );
        self.run(controller("taint-eviction", "{}")).await?;
        let pods = self.cluster.pods_of("node-4")?;
        self.cluster.taint("node-4")?;
        self.until_gone("not-tolerated", pods).await
    }

    /// An API server is gone, and StorageVersion GC removes its entries.
    pub(super) async fn lose_an_api_server(&mut self) -> Result<()> {
        self.screen
            .chapter("StorageVersion GC starts; one of two API servers never returns");
        self.run(controller("storage-version-gc", "{}")).await?;
        self.cluster.lose_api_server()?;
        self.until("the API servers agree on apps/v1", |story| {
            Ok(story.cluster.common_version()?.as_deref() == Some("apps/v1"))
        })
        .await?;
        self.screen.action(
            "its entry apps/v2 is removed; the remaining API server stores deployments as apps/v1",
        );
        Ok(())
    }

    /// One node of a zone of three stops its heartbeats.
    pub(super) async fn silence_a_node(&mut self) -> Result<()> {
        self.screen
            .chapter("Node eviction starts; node-3, one of three in its zone, sends no heartbeats");
        let config = "{nodeMonitorPeriod: 500ms, nodeMonitorGracePeriod: 2s, \
                      podEvictionTimeout: 1s, nodeEvictionRate: 1}";
        self.run(controller("node-eviction", config)).await?;
        let pods: BTreeSet<String> = self.cluster.pods_of("node-3")?;
        self.cluster.silence("node-3");
        self.until("the pods of node-3 are lost", |story| {
            story.cluster.are_lost(&pods)
        })
        .await?;
        self.screen
            .action("node-3 is back, and its kubelet ends the terminating pods");
        self.cluster.resume("node-3");
        self.until_gone("node-lost", pods).await
    }
}

/// `PodGC`'s threshold in the language of policies.
const THRESHOLD_POLICY: &str = "\
- name: terminated-by-policy
  match: {resource: pods}
  when: object.status.phase in ['Succeeded', 'Failed'] && object.metadata.name.startsWith('again-')
  keep: {newest: 12, by: \"object.status.reason == 'Evicted' ? timestamp('1970-01-01T00:00:00Z') : object.metadata.creationTimestamp\"}
  do: {delete: {gracePeriodSeconds: 0}}";

const POLICY_PERMISSIONS: &str =
    "{reads: [{resource: pods}], writes: [{resource: pods, verb: delete}]}";

/// The lines of a text behind so many spaces.
fn indented(text: &str, spaces: usize) -> String {
    let lines = text.lines().map(|line| format!("{:spaces$}{line}", ""));
    lines.collect::<Vec<String>>().join("\n")
}

/// PodGC with short periods and this threshold.
pub(super) fn podgc(threshold: u32) -> String {
    let config = format!("{{terminatedPodThreshold: {threshold}, period: 1s, quarantine: 1s}}");
    controller("podgc", &config)
}

/// A controller's entry of the configuration.
fn controller(name: &str, config: &str) -> String {
    format!("- name: {name}\n  module: {{builtin: {name}}}\n  mode: Enforce\n  config: {config}\n")
}
