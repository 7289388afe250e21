//! Which targets are a candidate's, when that changes.

use std::time::Duration;

use davit_sim::fault::{Action, Fault, Match, Refusal, When};
use serde_json::json;
use tokio::time::sleep;

use super::{declared, podgc};
use crate::bench::{Bench, on_the_sim};

/// Deletes none of the pods of these tests.
const LENIENT: &str = "{quarantine: 24h, period: 1s}";
/// Deletes pods whose node has been gone for half a minute.
const EAGER: &str = "{quarantine: 30s, period: 1s}";

async fn orphan(bench: &Bench, name: &str, node: &str, tier: &str) {
    let status = json!({"phase": "Running"});
    bench
        .pod_with(name, node, &status, |pod| {
            pod["metadata"]["labels"] = json!({"tier": tier});
        })
        .await;
}

/// A candidate that does harm outside of a cohort may not go on doing so until
/// the labels of every pod are listed.
#[test]
fn a_narrower_cohort_holds_at_once() {
    on_the_sim(|bench| async move {
        let rollout = |cohort: &str| {
            format!("{{steps: [weight 100 until promoted], cohort: {{matchLabels: {cohort}}}}}")
        };
        let host = declared(&bench, &podgc(LENIENT, &rollout("{}"))).await;
        host.declare(&podgc(EAGER, &rollout("{}")), 2).await;
        orphan(&bench, "first", "lost", "web").await;
        bench.until_left(&[]).await;

        for (name, tier) in [("batch", "batch"), ("web", "web")] {
            orphan(&bench, name, "lost-too", tier).await;
        }
        sleep(Duration::from_secs(5)).await;
        let faults = ["list", "watch"].map(|verb| {
            bench.sim().add_fault(Fault {
                matches: Match::new(verb, "pods"),
                when: When::Always,
                action: Action::Refuse(Refusal::Unavailable),
            })
        });
        host.declare(&podgc(EAGER, &rollout("{tier: batch}")), 3)
            .await;
        sleep(Duration::from_secs(60)).await;
        for fault in faults {
            bench.sim().heal(fault);
        }
        let pods = bench.pods().await;
        assert_eq!(pods.len(), 2, "{pods:?}");
        bench.until_left(&["web"]).await;
        sleep(Duration::from_secs(120)).await;
        bench.until_left(&["web"]).await;
    });
}
