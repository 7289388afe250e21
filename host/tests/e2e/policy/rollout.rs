//! One set of rules replaces another, step by step.

use std::collections::BTreeSet;
use std::time::Duration;

use davit_core::api::{CandidateStatus, ControllerStatus};
use davit_core::control::Requests;
use davit_core::control::requests::{abort, promote_fully, promote_step, swap};
use davit_core::object::ObjectRef;
use davit_core::rollout::Role;
use davit_core::rollout::cohort::Share;
use davit_core::rollout::compare::Disagreement;
use davit_core::store::Store;
use davit_sim::fault::{Action, Fault, FaultTiming, Match};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    NAME, failed_at, failed_for, failed_pod, failed_pods, lately, policy, until, until_left,
    yesterday,
};
use crate::bench::{Bench, RunningHost, on_the_sim};
use crate::rollout::declared;

/// The rules in force: a day.
fn stable() -> Value {
    failed_for("24h")
}

/// The next ones: an hour, and an annotation spares a pod.
fn next() -> Value {
    let mut rules = failed_for("1h");
    rules[0]["unless"] = json!("object.metadata.annotations['keep'] == 'true'");
    rules
}

fn enforced(rules: &Value, rollout: &Value) -> String {
    policy("Enforce", rules, &json!({"rollout": rollout}))
}

fn steps() -> Value {
    json!({"steps": ["shadow until promoted", "weight 50 until promoted"]})
}

async fn until_candidate(
    host: &RunningHost,
    fits: impl Fn(&CandidateStatus) -> bool,
) -> CandidateStatus {
    let fits = |status: &ControllerStatus| status.candidate.as_ref().is_some_and(&fits);
    until(host, fits).await.candidate.unwrap()
}

/// Promotes the candidate to its next step.
async fn promote(host: &RunningHost, config: &str, generation: i64, candidate: &CandidateStatus) {
    let requests = Requests {
        promote: Some(promote_step(candidate)),
        ..Requests::default()
    };
    host.request(config, generation, requests).await;
}

/// Those of these pods that the candidate does not own at half of the weight.
fn of_the_stable_revision(pods: &[(String, String)]) -> BTreeSet<String> {
    let share = Share {
        weight: 50,
        ..Share::default()
    };
    let snapshot = Store::default().snapshot();
    let is_stables = |(uid, _): &&(String, String)| {
        let target = ObjectRef {
            uid: uid.clone(),
            ..ObjectRef::default()
        };
        share.owner(&target, &snapshot) == Role::Stable
    };
    let names: BTreeSet<String> = pods
        .iter()
        .filter(is_stables)
        .map(|(_, name)| name.clone())
        .collect();
    assert!(
        (1..pods.len()).contains(&names.len()),
        "each revision owns some: {names:?}"
    );
    names
}

/// The stable revision deletes what failed a day ago, and 20 pods are left that failed
/// later: the next rules are a shadow.
async fn shadowed(bench: &Bench, config: &str) -> (RunningHost, Vec<(String, String)>) {
    let pods = failed_pods(bench, "p", 20, &lately()).await;
    failed_pods(bench, "old", 2, &yesterday()).await;
    let host = declared(bench, &enforced(&stable(), &steps())).await;
    let left: BTreeSet<String> = pods.iter().map(|(_, name)| name.clone()).collect();
    until_left(bench, &left).await;
    host.declare(config, 2).await;
    until_candidate(&host, |candidate| candidate.comparison.only_candidate == 20).await;
    assert_eq!(bench.pods().await, left, "a shadow deletes nothing");
    (host, pods)
}

#[test]
fn other_rules_are_compared_get_a_share_and_are_promoted_and_returned() {
    on_the_sim(|bench| async move {
        let config = enforced(&next(), &steps());
        let (host, pods) = shadowed(&bench, &config).await;

        // Both delete one pod, and only the rules in force another. A webhook delays deletions,
        // so that both revisions see them.
        let webhook = bench.sim().add_fault(Fault {
            matches: Match::new("delete", "pods"),
            when: FaultTiming::Always,
            action: Action::Delay(Duration::from_secs(2)),
        });
        let keep = |pod: &mut Value| pod["metadata"]["annotations"] = json!({"keep": "true"});
        failed_pod(&bench, "both", &yesterday()).await;
        bench
            .pod_with("spared", "", &failed_at(&yesterday()), keep)
            .await;
        let all = |candidate: &CandidateStatus| {
            let found = &candidate.comparison;
            (found.agree, found.only_stable, found.only_candidate) == (1, 1, 20)
        };
        let candidate = until_candidate(&host, all).await;
        assert_eq!(candidate.comparison.disagree, 21);
        assert_eq!(candidate.comparison.unknown, 0);
        bench.sim().heal(webhook);
        let found = host.host.handle().disagreements(NAME).await.unwrap();
        assert_eq!(found.last.len(), 21);
        let of = |name: &str| {
            let mut all = found.last.iter();
            let is_about = |one: &&Disagreement| {
                let side = one.candidate.as_ref().or(one.stable.as_ref()).unwrap();
                side.plan.target.name == name
            };
            all.find(is_about).unwrap()
        };
        let example = of("p-07");
        assert!(example.stable.is_none(), "{example:?}");
        let plan = &example.candidate.as_ref().unwrap().plan;
        assert_eq!(
            (&*plan.reason, &*plan.message),
            ("failed", "failed for more than 1h")
        );
        let example = of("spared");
        assert!(example.candidate.is_none(), "{example:?}");
        let plan = &example.stable.as_ref().unwrap().plan;
        assert_eq!(plan.message, "failed for more than 24h");

        // Half of the pods are decided by the next rules alone.
        promote(&host, &config, 2, &candidate).await;
        let left = of_the_stable_revision(&pods);
        until_left(&bench, &left).await;
        sleep(Duration::from_mins(15)).await;
        assert_eq!(
            bench.pods().await,
            left,
            "the others belong to the stable rules"
        );

        let first = host.status_of(NAME).await.stable.unwrap().revision;
        let second = until_candidate(&host, |candidate| candidate.step == 2).await;
        assert_eq!(second.weight, 50);
        let requests = Requests {
            promote: Some(promote_fully(&second)),
            ..Requests::default()
        };
        host.request(&config, 2, requests).await;
        bench.until_left(&[]).await;
        let status = until(&host, |status| status.candidate.is_none()).await;
        assert_eq!(status.stable.unwrap().revision, candidate.revision);

        // The operator returns to the former rules.
        let former = enforced(&stable(), &steps());
        let requests = Requests {
            swap: Some(swap(&first, 3)),
            ..Requests::default()
        };
        host.request(&former, 3, requests).await;
        let returned = |status: &ControllerStatus| {
            let stable = status.stable.as_ref();
            stable.is_some_and(|stable| stable.revision == first)
        };
        until(&host, returned).await;
        failed_pod(&bench, "lately", &lately()).await;
        failed_pod(&bench, "old", &yesterday()).await;
        bench.until_left(&["lately"]).await;
        sleep(Duration::from_mins(15)).await;
        bench.until_left(&["lately"]).await;
        host.assert_every_call_answered();
    });
}

#[test]
fn rules_that_are_aborted_decide_nothing_any_more() {
    on_the_sim(|bench| async move {
        let config = enforced(&next(), &steps());
        let (host, pods) = shadowed(&bench, &config).await;
        let shadow = host.status_of(NAME).await.candidate.unwrap();
        promote(&host, &config, 2, &shadow).await;
        let mut left = of_the_stable_revision(&pods);
        until_left(&bench, &left).await;

        let candidate = until_candidate(&host, |candidate| candidate.step == 2).await;
        let requests = Requests {
            abort: Some(abort(&candidate)),
            ..Requests::default()
        };
        host.request(&config, 2, requests).await;
        let status = until(&host, |status| status.rejected.is_some()).await;
        assert_eq!(status.candidate, None);
        assert_eq!(status.rejected.unwrap().revision, candidate.revision);
        // Half of these would belong to the candidate.
        let more = failed_pods(&bench, "more", 20, &lately()).await;
        of_the_stable_revision(&more);
        left.extend(more.into_iter().map(|(_, name)| name));
        failed_pod(&bench, "old", &yesterday()).await;
        until_left(&bench, &left).await;
        sleep(Duration::from_mins(15)).await;
        assert_eq!(bench.pods().await, left);
        host.assert_every_call_answered();
    });
}

#[test]
fn rules_that_disagree_too_much_are_rolled_back_by_the_host() {
    on_the_sim(|bench| async move {
        let pods = failed_pods(&bench, "p", 20, &lately()).await;
        let all: BTreeSet<String> = pods.into_iter().map(|(_, name)| name).collect();
        let rollout = json!({
            "steps": ["shadow 10m"], "analysis": {"maxDisagreementPercent": 20},
        });
        let host = declared(&bench, &enforced(&stable(), &rollout)).await;
        let first = until(&host, |status| status.stable.is_some()).await;
        host.declare(&enforced(&next(), &rollout), 2).await;
        let status = until(&host, |status| status.rejected.is_some()).await;
        assert_eq!((status.candidate, status.stable), (None, first.stable));
        let reason = status.rejected.unwrap().reason;
        assert!(reason.contains("(limit 20 %)"), "{reason}");
        sleep(Duration::from_mins(30)).await;
        assert_eq!(bench.pods().await, all);
        host.assert_every_call_answered();
    });
}

/// Keeps the newest failed pods.
fn newest(count: usize) -> Value {
    json!([{
        "name": "surplus",
        "match": {"resource": "pods"},
        "when": "object.status.phase == 'Failed'",
        "keep": {"newest": count, "by": "finishedAt(object)"},
        "do": {"delete": {}},
    }])
}

/// What is decided about a group is one item with many targets: each of them has its owner.
#[test]
fn a_share_of_a_group_is_decided_by_the_next_rules() {
    on_the_sim(|bench| async move {
        let mut pods = Vec::new();
        for number in 0..20 {
            let (name, time) = (
                format!("p-{number:02}"),
                format!("2026-11-20T08:{number:02}:00Z"),
            );
            pods.push((failed_pod(&bench, &name, &time).await, name));
        }
        let rollout = json!({"steps": ["weight 50 until promoted"]});
        let host = declared(&bench, &enforced(&newest(18), &rollout)).await;
        let names = |pods: &[(String, String)]| -> BTreeSet<String> {
            pods.iter().map(|(_, name)| name.clone()).collect()
        };
        until_left(&bench, &names(&pods[2..])).await;
        let config = enforced(&newest(4), &rollout);
        host.declare(&config, 2).await;
        let mut left = of_the_stable_revision(&pods[2..16]);
        left.extend(names(&pods[16..]));
        until_left(&bench, &left).await;
        sleep(Duration::from_mins(15)).await;
        assert_eq!(bench.pods().await, left);
        let candidate = host.status_of(NAME).await.candidate.unwrap();
        promote(&host, &config, 2, &candidate).await;
        until_left(&bench, &names(&pods[16..])).await;
        sleep(Duration::from_mins(15)).await;
        assert_eq!(bench.pods().await, names(&pods[16..]));
        host.assert_every_call_answered();
    });
}
