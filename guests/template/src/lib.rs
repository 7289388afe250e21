//! Deletes terminated pods above a threshold, the oldest first, as Kubernetes'
//! pod garbage collector does. It keeps the failed pods of some namespaces for a
//! while, so that somebody can inspect them.

use std::time::Duration;

use davit_guest::{
    ConfigError, Context, Controller, Decision, DeleteOptions, Index, IndexName, Manifest, Object,
    Plan, QueueName, QueueSpec, Reason, Retry, Time, View, Watch, WatchName, WorkItem, resources,
};
use serde::Deserialize;

/// The queue of the periodic pass. It has one key.
const PASSES: QueueName = QueueName::new("passes");
/// The phases of pods that have ended.
const TERMINATED: [&str; 2] = ["Succeeded", "Failed"];
const PODS: WatchName<Pod> = WatchName::new("pods");
/// Pods by their phase.
const BY_PHASE: IndexName<Pod> = IndexName::new("phase");
/// Why a pod is deleted.
const ABOVE_THRESHOLD: Reason = Reason::new("terminated");

/// What an operator can configure.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
#[serde(default, rename_all = "camelCase")]
pub struct Config {
    /// How many terminated pods the cluster keeps before the oldest are deleted. Failed pods
    /// that are kept for a while do not count. 0 keeps all.
    #[cfg_attr(test, schemars(range(min = 0, max = u32::MAX)))]
    pub terminated_pod_threshold: u32,
    /// The namespaces whose failed pods are kept for a while.
    pub keep_failed_in: Vec<String>,
    /// How long these pods are kept after they failed.
    #[cfg_attr(
        test,
        schemars(with = "String", extend("pattern" = davit_guest::duration::PATTERN))
    )]
    #[serde(with = "davit_guest::duration")]
    pub keep_failed_for: Duration,
    /// The pause between two passes over the cluster, more than 0s.
    #[cfg_attr(
        test,
        schemars(with = "String", extend("pattern" = davit_guest::duration::PATTERN))
    )]
    #[serde(with = "davit_guest::duration")]
    pub period: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            terminated_pod_threshold: 12_500,
            keep_failed_in: Vec::new(),
            keep_failed_for: Duration::from_secs(24 * 3600),
            period: Duration::from_secs(20),
        }
    }
}

/// The fields that the guest reads of a pod. The host caches only these fields.
/// An update outside of them triggers no reconcile.
#[derive(Debug, Default, View)]
struct Pod {
    #[view(path = "metadata.creationTimestamp")]
    creation_timestamp: Option<Time>,
    status: PodStatus,
}

#[derive(Debug, Default, View)]
struct PodStatus {
    phase: String,
    reason: String,
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Default, View)]
struct ContainerStatus {
    #[view(path = "state.terminated.finishedAt")]
    finished_at: Option<Time>,
}

/// The policy.
#[derive(Debug)]
pub struct Policy {
    config: Config,
}

davit_guest::export!(Policy);

impl Controller for Policy {
    type Config = Config;

    fn new(config: Config) -> Result<Self, ConfigError> {
        if config.period.is_zero() {
            return Err(ConfigError::new("period", "it must be more than 0s"));
        }
        Ok(Self { config })
    }

    fn manifest(&self) -> Manifest {
        let summary = "Deletes terminated pods above a threshold, but keeps failed ones of some \
                       namespaces for a while.";
        let by_phase = Index::new(BY_PHASE, "status.phase");
        Manifest::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), summary)
            .watch(Watch::of(PODS, resources::PODS).index(by_phase))
            .queue(QueueSpec::new(PASSES))
            .tick(PASSES, "cluster", self.config.period)
            .deletes(resources::PODS)
            .config_schema(include_str!("../config.schema.json"))
    }

    fn reconcile(&self, cx: &Context<'_>, _: &WorkItem) -> Result<Decision, Retry> {
        let pods = cx.watch(PODS);
        let threshold = self.config.terminated_pod_threshold as usize;
        // Counting copies no object, so it comes first.
        let counts = TERMINATED.map(|phase| pods.index_count(BY_PHASE, phase) as usize);
        if threshold == 0 || counts.iter().sum::<usize>() <= threshold {
            return Ok(Decision::done());
        }
        let mut candidates: Vec<Object<Pod>> = TERMINATED
            .iter()
            .flat_map(|phase| pods.by_index(BY_PHASE, phase))
            .filter(|pod| !self.is_kept(cx, pod))
            .collect();
        let count = candidates.len();
        candidates.sort_by(|one, other| age(one).cmp(&age(other)));
        let plans = candidates
            .into_iter()
            .take(count.saturating_sub(threshold))
            .map(|pod| {
                let message = format!("{count} terminated pods, the threshold is {threshold}");
                Plan::new(pod.reference, ABOVE_THRESHOLD, message).delete(DeleteOptions::force())
            });
        Ok(Decision::done().plans(plans))
    }
}

impl Policy {
    /// Whether a failed pod is still kept for its namespace.
    fn is_kept(&self, cx: &Context<'_>, pod: &Object<Pod>) -> bool {
        let namespace = &pod.reference.namespace;
        pod.view.status.phase == "Failed"
            && self.config.keep_failed_in.contains(namespace)
            && failed_at(&pod.view)
                .is_some_and(|at| cx.since(at.into()) < self.config.keep_failed_for)
    }
}

/// When the last container ended. For a pod whose containers never ran, the
/// creation time is the best known time.
fn failed_at(pod: &Pod) -> Option<Time> {
    let containers = pod.status.container_statuses.iter();
    let ends = containers.filter_map(|it| it.finished_at);
    ends.max().or(pod.creation_timestamp)
}

/// The order in which pods are deleted: evicted pods first, then by age. Names
/// and uid break ties, so that the same cluster always leads to the same plans.
fn age(pod: &Object<Pod>) -> impl Ord + '_ {
    let status = &pod.view.status;
    let evicted = status.phase == "Failed" && status.reason == "Evicted";
    (
        !evicted,
        pod.view.creation_timestamp,
        pod.reference.name.as_str(),
        pod.reference.namespace.as_str(),
        pod.reference.uid.as_str(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_schema_is_current() {
        davit_guest::testing::assert_config_schema_is_current::<Config>(
            env!("CARGO_MANIFEST_DIR"),
            env!("CARGO_PKG_NAME"),
        );
    }
}
