//! A dry run of rules beside somebody who deletes pods too.

use std::time::Duration;

use davit::commands::diff::cluster::in_words;
use davit::http::cluster_comparison::Page;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{NAME, failed_for, failed_pod, lately, policy, yesterday};
use crate::bench::{Bench, RunningHost, on_the_sim};

/// Deletes pods that failed a day ago, and those with a label. While there is a node, the second
/// rule waits.
fn policy_of(proof: &str) -> String {
    let mut rules = failed_for("24h");
    let marked = json!({
        "name": "marked",
        "match": {"resource": "pods"},
        "when": "object.metadata.labels['example.com/ends'] == 'true'",
        "hold": "counts.nodes > 0",
        "proof": proof,
        "do": {"delete": {}},
    });
    rules.as_array_mut().unwrap().push(marked);
    let config = json!({"rules": rules, "counts": {"nodes": {"resource": "nodes"}}});
    policy(
        "DryRun",
        &rules,
        &json!({"config": config, "compareWith": "Cluster"}),
    )
}

/// A running pod that the second rule is about.
async fn marked_pod(bench: &Bench, name: &str) {
    let mark = |pod: &mut Value| pod["metadata"]["labels"] = json!({"example.com/ends": "true"});
    let running = json!({"phase": "Running"});
    bench.pod_with(name, "", &running, mark).await;
}

async fn page(host: &RunningHost) -> Page {
    let found = host.host.handle().cluster_comparison(NAME).await;
    let (found, counts) = found.expect("it is compared");
    Page::new(&found, counts)
}

/// Davit plans to delete `earlier` and `davit`. The rule waits with `later` until a node is gone,
/// and `later` is deleted before. Nobody but the test wants `cluster` to go.
async fn story(bench: &mut Bench, proof: &str) -> RunningHost {
    let host = bench.host(&policy_of(proof)).await;
    sleep(Duration::from_secs(5)).await;
    for name in ["earlier", "davit"] {
        marked_pod(bench, name).await;
    }
    bench.pod("cluster", "", "Running").await;
    failed_pod(bench, "ended", &lately()).await;
    failed_pod(bench, "old", &yesterday()).await;
    sleep(Duration::from_secs(5)).await;
    let node = bench.node("a").await;
    sleep(Duration::from_secs(5)).await;
    marked_pod(bench, "later").await;
    sleep(Duration::from_secs(5)).await;
    for pod in ["earlier", "later", "cluster", "ended", "old"] {
        bench.delete_pod(pod).await;
    }
    sleep(Duration::from_secs(20)).await;
    bench.delete_node(&node).await;
    sleep(Duration::from_mins(2)).await;
    host
}

#[test]
fn a_dry_run_of_rules_is_compared_with_what_others_delete() {
    on_the_sim(|mut bench| async move {
        let host = story(&mut bench, "cache").await;
        let counts = page(&host).await.counts.unwrap();
        assert_eq!((counts.agree, counts.earlier, counts.later), (3, 2, 1));
        assert_eq!((counts.only_davit, counts.only_cluster), (0, 0));

        // The windows of the others end. Anybody may delete a pod that has ended.
        sleep(Duration::from_mins(6)).await;
        let page = page(&host).await;
        let counts = page.counts.clone().unwrap();
        assert_eq!((counts.agree, counts.other_actor), (3, 0));
        assert_eq!((counts.only_davit, counts.only_cluster), (1, 1));
        assert_eq!((counts.unknown, page.pending), (1, 0));
        let last = page.last.iter();
        let mut last: Vec<(&str, &str)> = last
            .map(|one| (one.target.name.as_str(), one.result.as_str()))
            .collect();
        last.sort_unstable();
        assert_eq!(last, [("cluster", "only-cluster"), ("davit", "only-davit")]);
        let words = in_words(NAME, &page, 10);
        for part in ["3 agree (2 earlier, 1 later", "  davit: marked"] {
            assert!(words.contains(part), "{part}: {words}");
        }
        let series = format!("davit_cluster_comparison{{controller=\"{NAME}\",result=\"agree\"}}");
        assert!((host.metric(&series) - 3.0).abs() < f64::EPSILON);
        bench.until_left(&["davit"]).await;
        host.assert_every_call_answered();
    });
}

/// The API server does not have the pod any more.
#[test]
fn what_others_delete_before_a_live_proof_is_unknown() {
    on_the_sim(|mut bench| async move {
        let host = story(&mut bench, "live").await;
        sleep(Duration::from_mins(6)).await;
        let counts = page(&host).await.counts.unwrap();
        assert_eq!((counts.agree, counts.earlier, counts.unknown), (2, 2, 2));
        assert_eq!((counts.only_davit, counts.only_cluster), (1, 1));
        bench.until_left(&["davit"]).await;
        host.assert_every_call_answered();
    });
}
