//! Stopping: plans that have started are finished, and no other plan starts.

use std::time::Duration;

use davit_sim::fault::{Action, Fault, FaultTiming, Match};
use tokio::time::{Instant, sleep};

use crate::bench::{on_the_sim, podgc};

#[test]
fn a_stop_lets_started_plans_end() {
    on_the_sim(|bench| async move {
        for number in 0..50 {
            let name = format!("p-{number:02}");
            bench.pod(&name, "missing", "Running").await;
        }
        bench.sim().add_fault(Fault {
            matches: Match::new("patch", "pods"),
            when: FaultTiming::Always,
            action: Action::Delay(Duration::from_secs(2)),
        });
        let config = "{quarantine: 1s, period: 1s, maxParallelDeletes: 5}";
        let running = bench.host(&podgc("Enforce", config)).await;
        // In the middle of the second five patches.
        sleep(Duration::from_secs(4)).await;
        let begun = Instant::now();
        running.host.stop().await;
        // The other plans would take half a minute. The thread of the journal is not on virtual
        // time: the 5 s for it pass at once.
        assert!(begun.elapsed() < Duration::from_secs(10));
        let left = bench.pods().await;
        assert!((1..50).contains(&left.len()), "{}", left.len());
        // Every marked pod is deleted too: no plan was left incomplete.
        for name in &left {
            let pod = bench.get_pod(name).await;
            assert_eq!(pod["status"]["phase"], "Running", "{name}");
        }
        sleep(Duration::from_secs(60)).await;
        assert_eq!(bench.pods().await, left);
    });
}

/// The next host finishes the work of the first one.
#[test]
fn the_next_host_finishes_what_the_first_left() {
    on_the_sim(|bench| async move {
        for number in 0..20 {
            bench
                .pod(&format!("p-{number:02}"), "missing", "Running")
                .await;
        }
        bench.sim().add_fault(Fault {
            matches: Match::new("delete", "pods"),
            when: FaultTiming::First(10),
            action: Action::CloseBefore,
        });
        let config = podgc("Enforce", "{quarantine: 1s, period: 1s}");
        let first = bench.host(&config).await;
        sleep(Duration::from_millis(1_200)).await;
        first.host.stop().await;
        let _second = bench.host(&config).await;
        bench.until_left(&[]).await;
    });
}
