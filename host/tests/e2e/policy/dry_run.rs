//! A dry run shows what the rules would delete, and `Enforce` deletes that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use davit::host::Report;
use davit_core::gate::Ruling;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{NAME, failed_at, failed_for, failed_pod, lately, policy, yesterday};
use crate::bench::{RunningHost, accepted_deletions, deploy, on_the_sim};
use crate::rollout::condition;

/// The pods that the dry run has planned to delete, by uid, with reason and message.
fn planned(host: &mut RunningHost) -> BTreeMap<String, (String, String)> {
    let reports = host.work_reports().into_iter();
    let plans = reports.filter_map(|report| match report {
        Report::Ruled { plan, ruling, .. } => {
            assert_eq!(ruling, Ruling::DryRun);
            assert!(plan.deletes(), "{plan:?}");
            let uid = plan.target.uid.clone();
            Some((uid, (plan.reason.clone(), plan.message.clone())))
        }
        Report::Executed { plan, .. } => panic!("a dry run executes nothing: {plan:?}"),
        _ => None,
    });
    plans.collect()
}

#[test]
fn a_dry_run_of_rules_writes_nothing_and_enforce_deletes_what_it_planned() {
    on_the_sim(|bench| async move {
        let mut rules = failed_for("1h");
        rules[0]["unless"] = json!("object.metadata.annotations['keep'] == 'true'");
        let mut expected = BTreeSet::from([
            failed_pod(&bench, "old", &yesterday()).await,
            failed_pod(&bench, "lately", &lately()).await,
        ]);
        let late = bench.pod("late", "", "Running").await;
        let keep = |pod: &mut Value| pod["metadata"]["annotations"] = json!({"keep": "true"});
        let kept = bench
            .pod_with("kept", "", &failed_at(&yesterday()), keep)
            .await;
        let running = bench.pod("running", "", "Running").await;
        let all = bench.pods().await;

        let mut host = bench.host(&policy("DryRun", &rules, &json!({}))).await;
        sleep(Duration::from_secs(10)).await;
        let shown = planned(&mut host);
        assert_eq!(shown.keys().cloned().collect::<BTreeSet<_>>(), expected);
        let said = ("failed".to_owned(), "failed for more than 1h".to_owned());
        assert!(shown.values().all(|plan| *plan == said), "{shown:?}");

        // Another pod fails while the dry run lasts.
        let path = format!("/api/v1/namespaces/{}/pods/late/status", bench.namespace);
        let failed = json!({"status": failed_at(&lately())});
        bench.must("PATCH", &path, &failed).await;
        bench.sim().clear_log();
        sleep(Duration::from_mins(30)).await;
        let shown = planned(&mut host);
        expected.insert(late);
        assert_eq!(shown.keys().cloned().collect::<BTreeSet<_>>(), expected);
        let series = format!(
            "davit_plans_total{{controller=\"{NAME}\",role=\"stable\",ruling=\"dry-run\"}}"
        );
        assert!(host.metric(&series) >= 3.0);
        let status = host.status_of(NAME).await;
        assert_eq!(condition(&status, "Ready").1, "DryRun");
        assert_eq!(bench.pods().await, all);
        let requests = deploy::requests(bench.sim()).into_iter();
        let writes: Vec<_> = requests.filter(|served| served.method != "GET").collect();
        assert!(writes.is_empty(), "{writes:?}");

        host.apply(&policy("Enforce", &rules, &json!({}))).await;
        bench.until_left(&["kept", "running"]).await;
        // Nothing follows.
        sleep(Duration::from_mins(15)).await;
        bench.until_left(&["kept", "running"]).await;
        for uid in &expected {
            assert_eq!(accepted_deletions(bench.sim(), uid), 1);
        }
        for uid in [kept, running] {
            assert_eq!(accepted_deletions(bench.sim(), &uid), 0);
        }
        // What was planned is what is deleted: the object and its version are preconditions.
        let deletions = bench.sim().log().into_iter();
        let deletions = deletions.filter(|served| served.method == "DELETE");
        let mut uids = BTreeSet::new();
        for deletion in deletions {
            let body: Value = serde_json::from_slice(&deletion.body).unwrap();
            let preconditions = &body["preconditions"];
            assert!(preconditions["resourceVersion"].is_string(), "{body}");
            uids.insert(preconditions["uid"].as_str().unwrap().to_owned());
        }
        assert_eq!(uids, expected);
        host.assert_every_call_answered();
    });
}
