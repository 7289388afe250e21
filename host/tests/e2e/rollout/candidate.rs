//! A candidate beside the stable revision, from its decisions to its promotion or
//! rollback. The core's tests cover every transition; these cover the guests, the gate
//! and the API server.

use std::time::Duration;

use davit_core::api::CandidateStatus;
use davit_core::control::Requests;
use davit_core::control::requests::promote_step;
use tokio::time::sleep;

use super::{declared, podgc};
use crate::bench::journals::{FAILED_CALL, explain_skips};
use crate::bench::{Bench, odd_guest, on_the_sim};

/// Deletes none of the pods of these tests.
const LENIENT: &str = "{terminatedPodThreshold: 100, quarantine: 24h, period: 1s}";
/// Keeps two finished pods.
const STRICT: &str = "{terminatedPodThreshold: 2, quarantine: 24h, period: 1s}";

async fn failed_pods(bench: &Bench, count: usize) {
    for number in 0..count {
        bench.pod(&format!("p-{number:02}"), "", "Failed").await;
    }
}

#[test]
fn a_shadow_deletes_nothing_until_it_is_promoted() {
    on_the_sim(|bench| async move {
        failed_pods(&bench, 10).await;
        let steps = "{steps: [shadow until promoted, weight 100 until promoted]}";
        let host = declared(&bench, &podgc(LENIENT, steps)).await;
        host.declare(&podgc(STRICT, steps), 2).await;
        let candidate = host
            .until_candidate(|candidate| candidate.comparison.only_candidate == 8)
            .await;
        assert_eq!((candidate.step, candidate.weight), (1, 0));
        assert_eq!(candidate.waits_for, "waiting for an operator to promote it");
        assert_eq!(bench.pods().await.len(), 10, "a shadow writes nothing");
        let disagreements = host.host.handle().disagreements("podgc").await.unwrap();
        assert_eq!(disagreements.last.len(), 8);
        let plan = &disagreements.last[0].candidate.as_ref().unwrap().plan;
        assert_eq!(plan.reason, "terminated");
        assert!(disagreements.last.iter().all(|one| one.stable.is_none()));

        let promote = |candidate: &CandidateStatus| Requests {
            promote: Some(promote_step(candidate)),
            ..Requests::default()
        };
        host.request(&podgc(STRICT, steps), 2, promote(&candidate))
            .await;
        bench.until_left(&["p-08", "p-09"]).await;
        let second = host.until_candidate(|candidate| candidate.step == 2).await;
        assert_eq!(second.weight, 100);
        // The same request has no effect on the next step.
        sleep(Duration::from_secs(60)).await;
        assert_eq!(host.status().await.candidate.unwrap().step, 2);
        host.request(&podgc(STRICT, steps), 2, promote(&second))
            .await;
        let status = host.until_status(|status| status.candidate.is_none()).await;
        assert_eq!(status.stable.unwrap().revision, candidate.revision);
        assert_eq!(status.rejected, None);
    });
}

/// A controller whose guest traps.
fn trapping(rollout: &str) -> String {
    format!(
        "controllers:\n\
         - name: podgc\n  module: {{file: {}}}\n  mode: Enforce\n  \
           config: {{reconcile: trap}}\n  rollout: {rollout}\n",
        odd_guest().display()
    )
}

#[test]
fn a_candidate_that_traps_is_rolled_back() {
    explain_skips(FAILED_CALL);
    on_the_sim(|bench| async move {
        bench.pod("a", "", "Running").await;
        let rollout = "{steps: [shadow 10m]}";
        let host = declared(&bench, &podgc(LENIENT, rollout)).await;
        let first = host.until_status(|status| status.stable.is_some()).await;
        host.declare(&trapping(rollout), 2).await;
        let status = host.until_status(|status| status.rejected.is_some()).await;
        assert_eq!((status.candidate, status.stable), (None, first.stable));
        let reason = status.rejected.unwrap().reason;
        assert!(reason.contains("calls failed (limit 0)"), "{reason}");
        assert!(reason.contains("trap"), "{reason}");
    });
}
