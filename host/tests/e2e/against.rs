//! A dry run beside the cluster's own controller, which the test plays.

use std::time::Duration;

use davit::commands::diff::cluster::in_words;
use davit::http::cluster_comparison::Page;
use serde_json::json;
use tokio::time::sleep;

use crate::bench::{Bench, RunningHost, on_the_sim, podgc};

/// A pass every half second, a second of quarantine.
const HASTY: &str = "{terminatedPodThreshold: 0, period: 500ms, quarantine: 1s}\n  \
                     compareWith: Cluster";

/// kube-controller-manager's PodGC marks an orphaned pod and deletes it.
async fn collect(bench: &Bench, pod: &str) {
    let path = format!("/api/v1/namespaces/{}/pods/{pod}", bench.namespace);
    let status = json!({"phase": "Failed", "conditions": [{
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByPodGC",
        "message": "PodGC: node no longer exists",
        "lastTransitionTime": "2026-11-20T10:00:00Z",
    }]});
    let patch = json!({"status": status});
    bench.must("PATCH", &format!("{path}/status"), &patch).await;
    let options = json!({"gracePeriodSeconds": 0});
    bench.must("DELETE", &path, &options).await;
}

async fn page(host: &RunningHost) -> Page {
    let found = host.host.handle().cluster_comparison("podgc").await;
    let (found, counts) = found.expect("it is compared");
    Page::new(&found, counts)
}

#[test]
fn a_dry_run_is_compared_with_what_the_cluster_deletes() {
    on_the_sim(|mut bench| async move {
        let node = bench.node("a").await;
        bench.pod("alive", &node, "Running").await;
        let host = bench.host(&podgc("DryRun", HASTY)).await;
        sleep(Duration::from_secs(5)).await;
        // Davit plans to delete these after the quarantine.
        for pod in ["earlier", "davit", "user"] {
            bench.pod(pod, "missing", "Running").await;
        }
        sleep(Duration::from_secs(5)).await;
        collect(&bench, "earlier").await;
        bench.delete_pod("user").await;
        // Davit has no time to decide on these two before they are gone.
        bench.pod("later", "gone", "Running").await;
        collect(&bench, "later").await;
        collect(&bench, "alive").await;
        sleep(Duration::from_secs(20)).await;
        let counts = page(&host).await.counts.unwrap();
        assert_eq!((counts.agree, counts.earlier, counts.later), (2, 1, 1));
        assert_eq!(counts.other_actor, 1, "the user is not PodGC");
        assert_eq!((counts.only_davit, counts.only_cluster), (0, 0));

        // The windows of the others end.
        sleep(Duration::from_mins(6)).await;
        let page = page(&host).await;
        let counts = page.counts.clone().unwrap();
        assert_eq!((counts.agree, counts.other_actor), (2, 1));
        assert_eq!((counts.only_davit, counts.only_cluster), (1, 1));
        assert_eq!((counts.unknown, page.pending), (0, 0));
        let last = page.last.iter();
        let mut last: Vec<(&str, &str)> = last
            .map(|one| (one.target.name.as_str(), one.result.as_str()))
            .collect();
        last.sort_unstable();
        assert_eq!(last, [("alive", "only-cluster"), ("davit", "only-davit")]);
        let words = in_words("podgc", &page, 10);
        for part in [
            "against pod-garbage-collector-controller\n2 agree (1 earlier, 1 later, 0 untimed",
            "1 only-davit, 1 only-cluster",
            "1 deleted by others, 0 unknown",
            "  pod-garbage-collector-controller: phase Failed, DisruptionTarget DeletionByPodGC",
            "  davit: orphaned",
        ] {
            assert!(words.contains(part), "{part}: {words}");
        }
        let series = r#"davit_cluster_comparison{controller="podgc",result="agree"}"#;
        assert!((host.metric(series) - 2.0).abs() < f64::EPSILON);
        assert_eq!(bench.pods().await.len(), 2, "a dry run deletes nothing");
        host.assert_every_call_answered();
    });
}
