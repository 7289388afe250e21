//! The commands, and the objects in the API server afterwards.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use davit::cli::Format;
use davit::commands::diff::{self, Server};
use davit::commands::history::{self, Rollback};
use davit::commands::requests;
use davit::http::disagreements::Page;
use davit::records::Records;
use davit_cluster::term::Term;
use davit_core::api::ControllerSpec;
use davit_core::api::ControllerStatus;
use davit_core::control::Requests;
use davit_core::record::{Activation, Owner, Record};
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;

use crate::cluster::{Cluster, DIGEST, NAMESPACE, spec};
use crate::deploy;

const AT: &str = "2026-11-20T10:00:00.000Z";

/// For a cluster without a host.
pub(crate) const NO_WAIT: Duration = Duration::ZERO;

/// The subject of a request, without the suffix that makes it unique.
fn subject(value: Option<&str>) -> &str {
    davit_core::control::requests::subject(value.unwrap())
}

pub(crate) fn error(result: Result<String>) -> String {
    format!("{:#}", result.unwrap_err())
}

pub(crate) fn candidate(revision: &str, step: u32) -> Value {
    json!({
        "revision": revision, "digest": DIGEST, "configHash": "2", "since": AT,
        "step": step, "steps": 3, "stepText": "weight 10 for 10m", "weight": 10,
        "elapsedSeconds": 180, "waitsFor": "", "comparison": {},
    })
}

fn stable(revision: &str) -> Value {
    json!({"revision": revision, "digest": DIGEST, "configHash": "1", "since": AT})
}

fn rejected(revision: &str) -> Value {
    json!({"revision": revision, "at": AT, "step": 1, "reason": "3 calls failed"})
}

/// A Controller with this status.
pub(crate) async fn controller(status: Value) -> Cluster {
    let cluster = Cluster::new();
    cluster.create("podgc", spec(1)).await.unwrap();
    cluster.change("podgc", json!({"status": status}));
    cluster
}

fn requests_of(cluster: &Cluster) -> Requests {
    let annotations = &cluster.get("podgc")["metadata"]["annotations"];
    Requests::read(&serde_json::from_value(annotations.clone()).unwrap_or_default())
}

#[tokio::test]
async fn a_promotion_names_the_step_that_the_command_read() {
    let cluster = controller(json!({"candidate": candidate("bbbb", 2)})).await;
    let printed = requests::promote(&cluster.client, "podgc", false, NO_WAIT)
        .await
        .unwrap();
    assert_eq!(
        printed,
        "podgc: requested to promote the candidate bbbb from step 2 of 3 (weight 10 for 10m); the \
         host has not answered yet"
    );
    assert_eq!(
        subject(requests_of(&cluster).promote.as_deref()),
        "bbbb@2026-11-20T10:00:00.000Z/2"
    );
    let printed = requests::promote(&cluster.client, "podgc", true, NO_WAIT)
        .await
        .unwrap();
    assert!(
        printed.contains("promote the candidate bbbb to the stable revision"),
        "{printed}"
    );
    assert_eq!(
        subject(requests_of(&cluster).promote.as_deref()),
        "bbbb@2026-11-20T10:00:00.000Z/all"
    );
    let printed = requests::abort(&cluster.client, "podgc", NO_WAIT)
        .await
        .unwrap();
    assert!(
        printed.contains("roll the candidate bbbb back"),
        "{printed}"
    );
    assert_eq!(
        subject(requests_of(&cluster).abort.as_deref()),
        "bbbb@2026-11-20T10:00:00.000Z"
    );
}

#[tokio::test]
async fn without_a_candidate_promote_and_abort_fail() {
    let cluster = controller(json!({"rejected": rejected("bbbb")})).await;
    let client = &cluster.client;
    for result in [
        requests::promote(client, "podgc", false, NO_WAIT).await,
        requests::abort(client, "podgc", NO_WAIT).await,
    ] {
        assert_eq!(
            error(result),
            format!(
                "podgc has no candidate: the last one, bbbb, was rejected at {AT}: 3 calls failed"
            )
        );
    }
    assert_eq!(requests_of(&cluster), Requests::default());
    let error = error(requests::abort(client, "podgcs", NO_WAIT).await);
    assert!(
        error.contains(
            "the Controller podgcs cannot be read: controllers.davit.dev \"podgcs\" not found"
        ),
        "{error}"
    );
}

/// Also during a rollout: nothing runs, so there is nothing to compare.
#[tokio::test]
async fn a_full_promotion_abandons_a_lost_stable_revision_for_the_one_that_is_ready() {
    let lost = json!({"since": AT, "reason": "its module is not cached", "ready": "bbbb"});
    let status = json!({
        "stable": stable("aaaa"), "lost": lost, "candidate": candidate("bbbb", 2),
    });
    let cluster = controller(status).await;
    let client = &cluster.client;
    let printed = error(requests::promote(client, "podgc", false, NO_WAIT).await);
    assert_eq!(
        printed,
        "the stable revision aaaa of podgc is lost, and nothing runs: its module is not cached; davit \
         promote --full podgc abandons it for bbbb, which the spec describes"
    );
    assert_eq!(requests_of(&cluster), Requests::default());
    let printed = requests::promote(client, "podgc", true, NO_WAIT)
        .await
        .unwrap();
    assert!(
        printed.contains("abandon the lost stable revision aaaa for bbbb"),
        "{printed}"
    );
    let status = &cluster.get("podgc")["status"];
    let status: ControllerStatus = serde_json::from_value(status.clone()).unwrap();
    assert!(requests_of(&cluster).abandons(&status));
    assert_eq!(requests_of(&cluster).promote, None);

    cluster.change("podgc", json!({"status": {"lost": {"ready": null}}}));
    let printed = error(requests::promote(client, "podgc", true, NO_WAIT).await);
    assert!(printed.contains("cannot be loaded either"), "{printed}");
}

#[tokio::test]
async fn pausing_and_resuming_leave_the_spec_as_it_was() {
    let cluster = controller(json!({"candidate": candidate("bbbb", 1)})).await;
    let client = &cluster.client;
    let before = cluster.get("podgc")["spec"].clone();
    let printed = requests::pause(client, "podgc", NO_WAIT).await.unwrap();
    assert!(
        printed.contains("keep the candidate bbbb in step 1"),
        "{printed}"
    );
    let paused = cluster.get("podgc")["spec"].clone();
    assert_eq!(paused["rollout"]["paused"], true);
    requests::pause(client, "podgc", NO_WAIT).await.unwrap();
    assert_eq!(cluster.get("podgc")["spec"], paused, "it is paused already");
    requests::resume(client, "podgc", NO_WAIT).await.unwrap();
    let read = |spec: &Value| ControllerSpec::read(spec).unwrap();
    assert_eq!(read(&cluster.get("podgc")["spec"]), read(&before));
    let generation = cluster.get("podgc")["metadata"]["generation"].clone();
    requests::resume(client, "podgc", NO_WAIT).await.unwrap();
    assert_eq!(cluster.get("podgc")["metadata"]["generation"], generation);
}

#[tokio::test]
async fn only_a_retry_starts_the_rollout_of_a_rejected_revision_again() {
    let cluster = controller(json!({"rejected": rejected("bbbb")})).await;
    let client = &cluster.client;
    requests::pause(client, "podgc", NO_WAIT).await.unwrap();
    requests::resume(client, "podgc", NO_WAIT).await.unwrap();
    assert_eq!(requests_of(&cluster), Requests::default());
    let printed = error(requests::resume(client, "podgc", NO_WAIT).await);
    for part in ["not paused", "bbbb", "3 calls failed", "davit retry podgc"] {
        assert!(printed.contains(part), "{printed}");
    }
    let printed = requests::retry(client, "podgc", NO_WAIT).await.unwrap();
    assert!(
        printed.contains("start the rollout of bbbb again"),
        "{printed}"
    );
    let status: ControllerStatus =
        serde_json::from_value(cluster.get("podgc")["status"].clone()).unwrap();
    assert!(requests_of(&cluster).retries(&status.rejected.unwrap()));
    cluster.change("podgc", json!({"status": {"rejected": null}}));
    let printed = error(requests::retry(client, "podgc", NO_WAIT).await);
    assert!(printed.contains("there is nothing to retry"), "{printed}");
}

#[tokio::test]
async fn a_reset_names_the_last_trip_and_reports_every_tripped_guardrail() {
    let before = "2026-11-19T00:00:00.000Z";
    let tripped = json!([
        {"guardrail": "writesPerMinute", "limit": 10, "since": AT},
        {"guardrail": "deletesPerMinute", "limit": 5, "since": before},
    ]);
    let cluster = controller(json!({"tripped": tripped})).await;
    let printed = requests::reset(&cluster.client, "podgc", NO_WAIT)
        .await
        .unwrap();
    for part in ["writesPerMinute", "deletesPerMinute", AT, before] {
        assert!(printed.contains(part), "{printed}");
    }
    assert_eq!(subject(requests_of(&cluster).reset.as_deref()), AT);
    cluster.change("podgc", json!({"status": {"tripped": null}}));
    let error = error(requests::reset(&cluster.client, "podgc", NO_WAIT).await);
    assert_eq!(
        error,
        "no revision of podgc is stable yet: there is nothing to reset"
    );
    // Without a trip, it clears queues and notes.
    let stable = json!({"revision": "aaaa", "digest": "", "configHash": "", "since": before});
    cluster.change("podgc", json!({"status": {"stable": stable}}));
    let printed = requests::reset(&cluster.client, "podgc", NO_WAIT)
        .await
        .unwrap();
    assert!(printed.contains("clear the queues and notes"), "{printed}");
    assert_eq!(subject(requests_of(&cluster).reset.as_deref()), before);
}

/// A Controller whose specs "a", "b", "c" with the thresholds 1, 2, 3 were stable, and
/// whose spec has this threshold now.
async fn with_history(status: Value, asks_for: u32) -> Cluster {
    with_stable(status, asks_for, &["a", "b", "c"]).await
}

/// The same; only these specs were stable.
async fn with_stable(status: Value, asks_for: u32, were_stable: &[&str]) -> Cluster {
    let cluster = Cluster::new();
    let mut changed = spec(asks_for);
    changed["mode"] = json!("Enforce");
    changed["config"]["period"] = json!("1m");
    changed["guardrails"] = json!({"deletesPerMinute": 7});
    cluster.create("podgc", changed).await.unwrap();
    let records = Records::cluster(cluster.davit.clone(), NAMESPACE);
    for (threshold, revision) in [(1, "a"), (2, "b"), (3, "c")] {
        let mut kept = spec(threshold);
        if threshold == asks_for {
            kept["config"]["period"] = json!("1m");
        }
        let kept = ControllerSpec::read(&kept).unwrap();
        let since = format!("2026-11-20T10:00:0{threshold}.000Z");
        let since = were_stable.contains(&revision).then_some(since.as_str());
        let activation = Record::Revision(Box::new(Activation {
            revision: revision.into(),
            spec: kept,
            at: since.map_or("2026-11-20T10:00:00Z", |since| since).into(),
            stable_since: since.map(str::to_owned),
        }));
        records
            .write(&Owner::named("podgc"), activation, Term::unlimited())
            .await
            .unwrap();
    }
    cluster.change("podgc", json!({"status": status}));
    cluster
}

#[tokio::test]
async fn history_lists_the_recorded_specs_with_their_states() {
    let status = json!({"stable": stable("b"), "candidate": candidate("c", 1)});
    let cluster = with_stable(status, 3, &["a", "b"]).await;
    let shown = history::HistoryOptions::default();
    let table = history::history(&cluster.client, NAMESPACE, "podgc", &shown)
        .await
        .unwrap();
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines[0].join(" "),
        "NUMBER REVISION MODULE ACTIVE SINCE STABLE SINCE STATE"
    );
    let facts = |line: usize| {
        (
            lines[line][0],
            lines[line][1],
            lines[line][2],
            lines[line][4],
            lines[line].get(5).copied(),
        )
    };
    let digest = "sha256:9f86d081884c";
    let (first, second) = ("2026-11-20T10:00:01.000Z", "2026-11-20T10:00:02.000Z");
    assert_eq!(facts(1), ("3", "c", digest, "never", Some("candidate")));
    assert_eq!(facts(2), ("2", "b", digest, second, Some("stable")));
    assert_eq!(facts(3), ("1", "a", digest, first, None));
    let error = error(history::history(&cluster.client, "default", "podgc", &shown).await);
    assert!(
        error.contains("in the namespace default") && error.contains("--namespace"),
        "{error}"
    );
}

fn back(to: Option<i64>) -> Rollback {
    Rollback {
        to,
        ..Rollback::default()
    }
}

#[tokio::test]
async fn history_prints_json_one_spec_and_the_difference_of_two() {
    let status = json!({"stable": stable("b"), "candidate": candidate("c", 1)});
    let cluster = with_stable(status, 3, &["a", "b"]).await;
    let shown = async |revision, diff, format| {
        let shown = history::HistoryOptions {
            revision,
            diff,
            format,
        };
        history::history(&cluster.client, NAMESPACE, "podgc", &shown).await
    };
    let all = shown(None, None, Some(Format::Json)).await.unwrap();
    let all: Value = serde_json::from_str(&all).unwrap();
    assert_eq!(all["controller"], "podgc");
    let fact = |index: usize, field: &str| all["history"][index][field].clone();
    assert_eq!(fact(0, "number"), 3);
    assert_eq!(fact(0, "state"), "candidate");
    assert_eq!(fact(0, "stableSince"), Value::Null);
    assert_eq!(fact(1, "state"), "stable");
    assert_eq!(fact(2, "spec")["config"]["terminatedPodThreshold"], 1);

    let one = shown(Some(2), None, None).await.unwrap();
    let one: Value = serde_saphyr::from_str(&one).unwrap();
    assert_eq!(one["spec"]["config"]["terminatedPodThreshold"], 2);
    let diff = shown(Some(1), Some(3), None).await.unwrap();
    for line in [
        "--- number 1 (a)",
        "+++ number 3 (c)",
        "-  terminatedPodThreshold: 1",
        "+  terminatedPodThreshold: 3",
        "+  period: 1m",
    ] {
        assert!(diff.lines().any(|one| one == line), "{line}: {diff}");
    }
    let same = shown(Some(1), Some(1), None).await.unwrap();
    assert!(same.contains("the same spec"), "{same}");
    let error = error(shown(Some(1), Some(9), None).await);
    assert!(error.contains("the number 9"), "{error}");
}

/// The configuration of the spec after a rollback.
async fn rolled_back(cluster: &Cluster, to: Option<i64>) -> Value {
    let printed = history::rollback(&cluster.client, NAMESPACE, "podgc", &back(to)).await;
    println!("{}", printed.unwrap());
    let spec = cluster.get("podgc")["spec"].clone();
    assert_eq!(
        spec["mode"], "Enforce",
        "a rollback restores the fields of a revision only"
    );
    assert_eq!(spec["guardrails"]["deletesPerMinute"], 7);
    assert_eq!(spec["module"]["digest"], DIGEST);
    spec["config"].clone()
}

#[tokio::test]
async fn a_rollback_brings_back_the_spec_before_a_candidate() {
    let status = json!({"stable": stable("b"), "candidate": candidate("c", 1)});
    let cluster = with_history(status, 3).await;
    assert_eq!(
        rolled_back(&cluster, None).await,
        json!({"terminatedPodThreshold": 2})
    );
}

#[tokio::test]
async fn a_rollback_brings_back_the_spec_before_a_rejected_one() {
    let status = json!({"stable": stable("b"), "rejected": rejected("c")});
    let cluster = with_history(status, 3).await;
    assert_eq!(
        rolled_back(&cluster, None).await,
        json!({"terminatedPodThreshold": 2})
    );
}

/// Another module under the same tag was rolled back: the spec describes any module of
/// the tag.
#[tokio::test]
async fn a_rollback_pins_the_stable_module_if_its_source_holds_another() {
    let status = json!({"stable": stable("b"), "rejected": rejected("d")});
    let cluster = with_history(status, 2).await;
    let unpinned = json!({"spec": {"module": {"digest": null}}});
    cluster.change("podgc", unpinned);
    assert_eq!(
        rolled_back(&cluster, None).await["terminatedPodThreshold"],
        2
    );
}

#[tokio::test]
async fn a_rollback_skips_revisions_that_were_never_stable() {
    let cluster = with_stable(json!({"stable": stable("c")}), 3, &["a", "c"]).await;
    assert_eq!(
        rolled_back(&cluster, None).await,
        json!({"terminatedPodThreshold": 1})
    );
    let cluster = with_stable(json!({"stable": stable("c")}), 3, &["c"]).await;
    let error = error(history::rollback(&cluster.client, NAMESPACE, "podgc", &back(None)).await);
    assert!(error.contains("--to names one of them"), "{error}");
}

#[tokio::test]
async fn a_rollback_restores_the_revision_that_was_stable_before() {
    let cluster = with_stable(json!({"stable": stable("b")}), 2, &["a", "b"]).await;
    assert_eq!(
        rolled_back(&cluster, None).await,
        json!({"terminatedPodThreshold": 1})
    );
    assert_eq!(
        rolled_back(&cluster, Some(3)).await,
        json!({"terminatedPodThreshold": 3})
    );
    let generation = || cluster.get("podgc")["metadata"]["generation"].clone();
    let before = generation();
    history::rollback(&cluster.client, NAMESPACE, "podgc", &back(Some(3)))
        .await
        .unwrap();
    assert_eq!(generation(), before);
    let error = error(history::rollback(&cluster.client, NAMESPACE, "podgc", &back(Some(9))).await);
    assert_eq!(
        error,
        "no spec of podgc with the number 9 is recorded, only 3, 2, 1"
    );
}

/// A client whose every PUT follows a change by another user.
fn disturbed(cluster: &Cluster, change: impl Fn(u32) -> Value + Send + Sync + 'static) -> Client {
    let (sim, change) = (cluster.sim.0.clone(), Arc::new(change));
    let count = Arc::new(Mutex::new(0));
    let service = service_fn(move |request: Request<Body>| {
        let (sim, change, count) = (sim.clone(), Arc::clone(&change), Arc::clone(&count));
        async move {
            if request.method() == http::Method::PUT {
                let mut count = count.lock().unwrap();
                *count += 1;
                let changed = change(*count);
                if changed.is_object() {
                    deploy::change(&sim, "podgc", changed);
                }
            }
            sim.call(request).await
        }
    });
    deploy::administrator_through(service)
}

#[tokio::test]
async fn a_rollback_does_not_undo_another_operators_change() {
    let cluster = with_stable(json!({"stable": stable("b")}), 2, &["a", "b"]).await;
    let client = disturbed(&cluster, |_| json!({"spec": {"mode": "Disabled"}}));
    let error = error(history::rollback(&client, NAMESPACE, "podgc", &back(None)).await);
    assert!(
        error.contains("somebody else changed the spec meanwhile"),
        "{error}"
    );
    let spec = cluster.get("podgc")["spec"].clone();
    assert_eq!(spec["mode"], "Disabled");
    assert_eq!(spec["config"]["terminatedPodThreshold"], 2);

    // A status write of the host is no conflict.
    let cluster = with_stable(json!({"stable": stable("b")}), 2, &["a", "b"]).await;
    let client = disturbed(&cluster, |count| match count {
        1 | 2 => json!({"status": {"summary": format!("{count}")}}),
        _ => Value::Null,
    });
    history::rollback(&client, NAMESPACE, "podgc", &back(None))
        .await
        .unwrap();
    assert_eq!(
        cluster.get("podgc")["spec"]["config"]["terminatedPodThreshold"],
        1
    );
}

#[tokio::test]
async fn diff_reaches_the_host_through_the_api_server() {
    let service = service_fn(|request: Request<Body>| async move {
        let home = "/api/v1/namespaces/davit-system/";
        let token = request.headers().get("x-davit-authorization");
        let is_viewer = token.is_some_and(|token| token == "Bearer of-the-viewer");
        let response = match request.uri().path().strip_prefix(home) {
            Some("serviceaccounts/davit-viewer/token") => {
                let token = json!({
                    "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                    "metadata": {}, "spec": {"audiences": []},
                    "status": {"token": "of-the-viewer", "expirationTimestamp": AT},
                });
                Response::new(Body::from(token.to_string().into_bytes()))
            }
            Some("services/davit:http/proxy/controllers/podgc/disagreements") if is_viewer => {
                let page = json!({
                    "stable": "aaaa",
                    "candidate": "bbbb",
                    "step": {
                        "number": 1, "of": 2, "text": "shadow for 1m", "elapsedSeconds": 20,
                        "leftSeconds": 40, "waitsFor": "", "decisions": 99, "minDecisions": 10,
                    },
                    "countedSince": AT,
                    "counts": {"agree": 97, "disagree": 2, "onlyStable": 2},
                    "pending": 4,
                    "disagreements": [
                        {
                            "at": AT, "result": "only-stable",
                            "target": {
                                "apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "p1",
                            },
                            "stable": {
                                "at": AT, "queue": "orphaned", "key": "n1", "reason": "orphaned",
                                "message": "its node is gone", "steps": [{"step": "delete"}],
                            },
                        },
                        {
                            "at": AT, "result": "only-stable",
                            "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
                        },
                    ],
                });
                Response::new(Body::from(page.to_string().into_bytes()))
            }
            _ => Response::builder()
                .status(404)
                .body(Body::from(b"the controller has no candidate\n".to_vec()))
                .unwrap(),
        };
        Ok::<_, Infallible>(response)
    });
    let client = Client::new(service, "default");
    let server = || Server::Service(&client, NAMESPACE);
    let page: Page = diff::fetch(server(), "podgc").await.unwrap();
    assert_eq!(
        diff::in_words("podgc", &page, 1),
        format!(
            "podgc: stable aaaa, candidate bbbb\nstep 1 of 2 (shadow for 1m): 20s elapsed, 40s \
             left, 99 of 10 decisions\n97 agree, 2 disagree (2 only-stable, 0 only-candidate, 0 \
             different), 0 unknown, 4 pending, since {AT}\n\n{AT}  only-stable  v1 Pod shop/p1\n  \
             stable: orphaned: its node is gone (queue orphaned, key n1)\n    1. delete\n  \
             candidate: nothing\n\nand 1 more: --last NUMBER shows more\n"
        )
    );
    let error = format!("{:#}", diff::fetch(server(), "other").await.unwrap_err());
    assert!(error.contains("the controller has no candidate"), "{error}");
    assert!(
        error.contains("the Service davit of the namespace davit-system"),
        "{error}"
    );
    assert!(diff::fetch(server(), "../x").await.is_err());
}
