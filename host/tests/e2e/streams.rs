//! Shared streams: the needs of one controller do not delay another.

use std::time::Duration;

use davit::host::Report;
use davit_sim::fault::{Action, Fault, FaultTiming, Match};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::bench::{RunningHost, on_the_sim, podgc, text};

const PODGC: &str = "{terminatedPodThreshold: 0, period: 500ms, quarantine: 1s}";

/// How long a list of pods takes.
const LIST: Duration = Duration::from_secs(60);

/// How long PodGC takes for a change: passes, a quarantine and two writes.
const SOON: Duration = Duration::from_secs(5);

fn started(running: &mut RunningHost, name: &str) -> bool {
    let mut reports = running.work_reports().into_iter();
    reports.any(|report| matches!(report, Report::Started { controller, .. } if controller == name))
}

/// Another controller reads fields of the pods that no controller has read before, so
/// they are listed again. Until the list is complete PodGC observes changes as before,
/// and afterwards both do.
#[test]
fn a_controller_that_needs_more_fields_delays_no_other() {
    on_the_sim(|mut bench| async move {
        let node = bench.node("a").await;
        bench.pod("stays", &node, "Running").await;
        let mut host = bench.host(&podgc("Enforce", PODGC)).await;
        for verb in ["list", "watch"] {
            bench.sim().add_fault(Fault {
                matches: Match::new(verb, "pods"),
                when: FaultTiming::Always,
                action: Action::Delay(LIST),
            });
        }
        let begun = Instant::now();
        let second =
            "- name: taint-eviction\n  module: {builtin: taint-eviction}\n  mode: Enforce\n";
        let both = podgc("Enforce", PODGC) + second;
        host.apply(&both).await;
        sleep(Duration::from_secs(1)).await;
        bench.pod("orphan", "missing", "Running").await;
        sleep(SOON).await;
        assert_eq!(bench.get_pod("orphan").await, Value::Null);
        assert!(begun.elapsed() < LIST);
        assert!(!started(&mut host, "taint-eviction"));
        // In the middle of the list, and observed by one stream only.
        bench.pod("evicted", &node, "Running").await;
        let deadline = begun + 3 * LIST;
        while !started(&mut host, "taint-eviction") {
            assert!(Instant::now() < deadline, "the controller does not start");
            sleep(Duration::from_secs(1)).await;
        }
        let taint = json!({"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}});
        let path = format!("/api/v1/nodes/{node}");
        bench.must("PATCH", &path, &taint).await;
        bench.pod("late", "missing", "Running").await;
        sleep(SOON).await;
        assert_eq!(bench.get_pod("late").await, Value::Null);
        for name in ["stays", "evicted"] {
            let pod = bench.get_pod(name).await;
            assert_ne!(text(&pod, "/metadata/deletionTimestamp"), "", "{name}");
        }
        host.host.stop().await;
    });
}
