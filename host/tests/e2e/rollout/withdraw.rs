//! Plans that have not started are withdrawn when an operator stops a controller, and
//! when the host stops.

use std::time::Duration;

use davit_sim::fault::{Action, Fault, FaultTiming, Match};
use tokio::time::sleep;

use super::{declared, podgc};
use crate::bench::{Bench, on_the_sim};

const ALL: &str = "{terminatedPodThreshold: 1, quarantine: 24h, period: 1s, \
                    maxParallelDeletes: 400}";

/// Three hundred failed pods; a webhook delays every deletion by half a minute.
async fn slow_deletions(bench: &Bench) {
    for number in 0..300 {
        bench.pod(&format!("p-{number:03}"), "", "Failed").await;
    }
    bench.sim().add_fault(Fault {
        matches: Match::new("delete", "pods"),
        when: FaultTiming::Always,
        action: Action::Delay(Duration::from_secs(30)),
    });
}

#[test]
fn plans_that_have_not_started_are_withdrawn_when_their_controller_is_disabled() {
    on_the_sim(|bench| async move {
        slow_deletions(&bench).await;
        let enforce = podgc(ALL, "{}");
        let host = declared(&bench, &enforce).await;
        sleep(Duration::from_secs(5)).await;
        let disabled = enforce.replace("mode: Enforce", "mode: Disabled");
        host.declare(&disabled, 2).await;
        sleep(Duration::from_secs(3600)).await;
        let left = bench.pods().await.len();
        // A controller has at most 64 plans in execution.
        assert_eq!(left, 300 - 64);
        // They are decided again.
        host.declare(&enforce, 3).await;
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(bench.pods().await.len(), 1);
    });
}

/// The next host decides about the others again.
#[test]
fn a_host_that_stops_waits_only_for_plans_that_have_started() {
    on_the_sim(|bench| async move {
        slow_deletions(&bench).await;
        let host = declared(&bench, &podgc(ALL, "{}")).await;
        sleep(Duration::from_secs(5)).await;
        let begun = tokio::time::Instant::now();
        host.host.stop().await;
        assert!(begun.elapsed() < Duration::from_secs(31));
        assert_eq!(bench.pods().await.len(), 300 - 64);
    });
}
