//! What a candidate does to the cluster, and what takes it back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use davit::records::Records;
use davit_core::api::{CandidateStatus, RejectedStatus};
use davit_core::control::Requests;
use davit_core::control::requests::{abort, promote_step, retry};
use davit_core::object::ObjectRef;
use davit_core::rollout::Role;
use davit_core::rollout::cohort::{Cohort, Share, Unit};
use davit_core::store::Store;
use serde_json::json;
use tokio::time::sleep;

use super::{condition, declared, podgc, resumed};
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

/// A shadow with a stricter policy shows what it would delete, and deletes it
/// only once it is promoted.
#[test]
fn a_shadow_with_a_stricter_podgc() {
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
        // The same request says nothing about the next step.
        sleep(Duration::from_secs(60)).await;
        assert_eq!(host.status().await.candidate.unwrap().step, 2);
        host.request(&podgc(STRICT, steps), 2, promote(&second))
            .await;
        let status = host.until_status(|status| status.candidate.is_none()).await;
        assert_eq!(status.stable.unwrap().revision, candidate.revision);
        assert_eq!(status.rejected, None);
    });
}

/// Too long a window shows nothing for as long; made shorter, it holds for what
/// waits already.
#[test]
fn a_window_that_is_made_shorter() {
    on_the_sim(|bench| async move {
        failed_pods(&bench, 10).await;
        let rollout = |window: &str| {
            format!("{{steps: [shadow until promoted], analysis: {{window: {window}}}}}")
        };
        let host = declared(&bench, &podgc(LENIENT, "{}")).await;
        host.declare(&podgc(STRICT, &rollout("24h")), 2).await;
        sleep(Duration::from_secs(300)).await;
        let candidate = host.status().await.candidate.unwrap();
        assert_eq!(candidate.comparison.only_candidate, 0);
        host.declare(&podgc(STRICT, &rollout("10s")), 3).await;
        host.until_candidate(|one| one.comparison.only_candidate == 8)
            .await;
    });
}

/// A candidate with 30 % of the namespaces collects what is in these, and
/// nothing else; taken back, it collects nothing more.
#[test]
fn thirty_percent_by_namespace() {
    on_the_sim(|bench| async move {
        let names: Vec<String> = (0..40).map(|number| format!("team-{number}")).collect();
        for name in &names {
            let namespace = json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name},
            });
            bench.must("POST", "/api/v1/namespaces", &namespace).await;
        }
        let orphans = async |round: u32| {
            for name in &names {
                for number in 0..2 {
                    let status = json!({"phase": "Running"});
                    let pod = format!("orphan-{round}-{number}");
                    let elsewhere = |pod: &mut serde_json::Value| {
                        pod["metadata"]["namespace"] = json!(name);
                    };
                    bench.pod_with(&pod, "missing", &status, elsewhere).await;
                }
            }
        };
        let left = async || {
            let list = bench.must("GET", "/api/v1/pods", &json!(null)).await;
            let items = list["items"].as_array().unwrap().iter();
            let namespaces = items.map(|pod| pod["metadata"]["namespace"].as_str().unwrap());
            namespaces.map(str::to_owned).collect::<Vec<String>>()
        };
        let share = Share {
            cohort: Cohort {
                unit: Unit::Namespace,
                ..Cohort::default()
            },
            weight: 30,
        };
        let nothing = Store::default().snapshot();
        let owned = |name: &&String| {
            let namespace = ObjectRef {
                kind: "Namespace".into(),
                name: (*name).clone(),
                ..ObjectRef::default()
            };
            share.owner(&namespace, &nothing) == Role::Candidate
        };
        let owned: BTreeSet<&String> = names.iter().filter(owned).collect();
        assert!((6..=18).contains(&owned.len()), "{}", owned.len());

        orphans(1).await;
        let rollout = "{steps: [weight 30 until promoted], cohort: {by: Namespace}}";
        let host = declared(&bench, &podgc(LENIENT, rollout)).await;
        let eager = "{terminatedPodThreshold: 100, quarantine: 1s, period: 1s}";
        host.declare(&podgc(eager, rollout), 2).await;
        host.until_candidate(|candidate| candidate.comparison.only_candidate == 80)
            .await;
        let namespaces = left().await;
        assert_eq!(namespaces.len(), 80 - 2 * owned.len());
        assert!(namespaces.iter().all(|name| !owned.contains(name)));

        let candidate = host.status().await.candidate.unwrap();
        let abort = Requests {
            abort: Some(abort(&candidate)),
            ..Requests::default()
        };
        host.request(&podgc(eager, rollout), 2, abort).await;
        let status = host.until_status(|status| status.candidate.is_none()).await;
        assert_eq!(
            status.rejected.unwrap().reason,
            "an operator aborted the rollout"
        );
        orphans(2).await;
        sleep(Duration::from_secs(120)).await;
        assert_eq!(left().await.len(), 80 - 2 * owned.len() + 80);
    });
}

/// Takes a candidate back by itself; returns why.
async fn taken_back(bench: &Bench, stable: &str, candidate: &str) -> String {
    let host = declared(bench, stable).await;
    let first = host.until_status(|status| status.stable.is_some()).await;
    host.declare(candidate, 2).await;
    let status = host.until_status(|status| status.rejected.is_some()).await;
    assert_eq!(status.candidate, None);
    assert_eq!(status.stable, first.stable, "the stable revision goes on");
    let rejected = status.rejected.clone().unwrap();
    let (is, reason, message) = condition(&status, "Progressing");
    assert_eq!((is.as_str(), reason.as_str()), ("False", "RolledBack"));
    assert!(message.contains(&rejected.reason), "{message}");
    // It is not tried again by itself.
    sleep(Duration::from_secs(300)).await;
    assert_eq!(host.status().await.rejected, Some(rejected.clone()));
    // And what it was to replace still does its work.
    let retry = Requests {
        retry: Some(retry(&rejected)),
        ..Requests::default()
    };
    host.request(candidate, 2, retry).await;
    let tried = host
        .until_status(|status| {
            let again = |again: &RejectedStatus| again.at != rejected.at;
            status.candidate.is_some() || status.rejected.as_ref().is_some_and(again)
        })
        .await;
    assert_ne!(
        tried.rejected,
        Some(rejected.clone()),
        "an operator wants it again"
    );
    rejected.reason
}

/// A controller that traps.
fn trapping(rollout: &str) -> String {
    format!(
        "controllers:\n\
         - name: podgc\n  module: {{file: {}}}\n  mode: Enforce\n  \
           config: {{reconcile: trap}}\n  rollout: {rollout}\n",
        odd_guest().display()
    )
}

/// Many restarts may not make a bad candidate a good one.
#[test]
fn what_a_candidate_did_is_counted_over_restarts() {
    on_the_sim(|bench| async move {
        bench.pod("a", "", "Running").await;
        let lenient = "{steps: [shadow 10h], analysis: {maxFailedCalls: 1000}}";
        let records = Arc::new(Records::memory());
        let host = resumed(&bench, &records, &podgc(LENIENT, lenient), 1).await;
        host.declare(&trapping(lenient), 2).await;
        let before = host.until_candidate(|one| one.failed_calls >= 10).await;
        host.host.stop().await;
        let host = resumed(&bench, &records, &trapping(lenient), 2).await;
        let more = |one: &CandidateStatus| one.failed_calls != before.failed_calls;
        let after = host.until_candidate(more).await;
        assert!(
            after.failed_calls > before.failed_calls,
            "{before:?} {after:?}"
        );
        let most = before.failed_calls;
        let strict = format!("{{steps: [shadow 10h], analysis: {{maxFailedCalls: {most}}}}}");
        host.declare(&trapping(&strict), 3).await;
        let status = host.until_status(|status| status.rejected.is_some()).await;
        let reason = status.rejected.unwrap().reason;
        let expected = format!("calls failed (limit {most})");
        assert!(reason.contains(&expected), "{reason}");
    });
}

#[test]
fn a_candidate_that_traps_is_taken_back() {
    on_the_sim(|bench| async move {
        bench.pod("a", "", "Running").await;
        let rollout = "{steps: [shadow 10m]}";
        let candidate = trapping(rollout);
        let reason = taken_back(&bench, &podgc(LENIENT, rollout), &candidate).await;
        assert!(reason.contains("calls failed (limit 0)"), "{reason}");
        assert!(reason.contains("trap"), "{reason}");
    });
}

#[test]
fn a_candidate_that_disagrees_too_much_is_taken_back() {
    on_the_sim(|bench| async move {
        failed_pods(&bench, 10).await;
        let rollout = "{steps: [shadow 10m], \
             analysis: {minDecisions: 5, maxDisagreementPercent: 20}}";
        let (stable, candidate) = (podgc(LENIENT, rollout), podgc(STRICT, rollout));
        let reason = taken_back(&bench, &stable, &candidate).await;
        assert_eq!(
            reason,
            "the revisions disagree on 8 of 8 targets (limit 20 %)"
        );
        assert_eq!(bench.pods().await.len(), 10);
    });
}

#[test]
fn a_candidate_that_deletes_too_much_is_taken_back() {
    on_the_sim(|bench| async move {
        failed_pods(&bench, 20).await;
        let rollout = "{steps: [weight 50 for 10m]}\n  guardrails: {deletesPerMinute: 4}";
        let (stable, candidate) = (podgc(LENIENT, rollout), podgc(STRICT, rollout));
        let reason = taken_back(&bench, &stable, &candidate).await;
        assert!(
            reason.contains("the candidate's share of the guardrail deletesPerMinute has tripped"),
            "{reason}"
        );
        // Its part of the four, and again when it was tried once more.
        let left = bench.pods().await.len();
        assert!((16..=18).contains(&left), "{left}");
    });
}
