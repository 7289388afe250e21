//! Guardrails that are used up, and whose name stands on what is written.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use davit::host::Report;
use davit::records::Records;
use davit_core::api::{ControllerStatus, TrippedStatus};
use davit_core::control::{Owner, Requests};
use davit_core::gate::{Ruling, WaitReason};
use http::Request;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tower::service_fn;

use super::{condition, declared, podgc, resumed};
use crate::bench::{Bench, PATIENCE, Running, on_the_sim, text};

/// Keeps two finished pods.
const STRICT: &str = "{terminatedPodThreshold: 2, quarantine: 24h, period: 1s}";

/// PodGC with these guardrails.
fn guarded(guardrails: &str) -> String {
    podgc(STRICT, &format!("{{}}\n  guardrails: {guardrails}"))
}

async fn failed_pods(bench: &Bench, count: usize) {
    for number in 0..count {
        bench.pod(&format!("p-{number:02}"), "", "Failed").await;
    }
}

fn is_tripped(status: &ControllerStatus) -> bool {
    !status.tripped.is_empty()
}

/// The only guardrail that has tripped.
fn trip(status: &ControllerStatus) -> TrippedStatus {
    let [tripped] = status.tripped.as_slice() else {
        panic!("{:?}", status.tripped);
    };
    tripped.clone()
}

fn reset(since: &str) -> Requests {
    Requests {
        reset: Some(since.to_owned()),
        ..Requests::default()
    }
}

fn spent(host: &mut Running) -> usize {
    let told = host.told();
    let rulings = told.iter().filter_map(|report| match report {
        Report::Ruled { ruling, .. } => Some(ruling),
        _ => None,
    });
    let spent = |ruling: &&Ruling| matches!(ruling, Ruling::Wait(WaitReason::Tripped(_)));
    rulings.filter(spent).count()
}

#[test]
fn a_controller_that_deletes_too_much_waits_for_the_cooldown() {
    on_the_sim(|bench| async move {
        failed_pods(&bench, 7).await;
        let config = guarded("{deletesPerMinute: 3, cooldown: 10m}");
        let mut host = declared(&bench, &config).await;
        let status = host.until_status(is_tripped).await;
        let begun = Instant::now();
        let tripped = trip(&status);
        assert_eq!(
            (tripped.guardrail.as_str(), tripped.limit),
            ("deletesPerMinute", 3)
        );
        let [since, until] = [&tripped.since, tripped.until.as_ref().unwrap()]
            .map(|time| time.parse::<jiff::Timestamp>().unwrap());
        let seconds = until.as_second() - since.as_second();
        assert!((599..=601).contains(&seconds), "{tripped:?}");
        let (is, reason, message) = condition(&status, "Degraded");
        assert_eq!((is.as_str(), reason.as_str()), ("True", "GuardrailTripped"));
        for part in ["deletesPerMinute of 3 plans in 60 seconds", "davit reset"] {
            assert!(message.contains(part), "{message}");
        }
        assert_eq!(status.summary, "Guardrail: deletesPerMinute");
        assert_eq!(bench.pods().await.len(), 4);
        assert!(spent(&mut host) > 0, "plans wait");

        // Not until there is room for one more: for the whole cooldown.
        sleep(Duration::from_secs(590).saturating_sub(begun.elapsed())).await;
        assert_eq!(bench.pods().await.len(), 4);
        assert_eq!(trip(&host.status().await), tripped);
        bench.until_left(&["p-05", "p-06"]).await;
        let over = host.until_status(|status| !is_tripped(status)).await;
        let (is, reason, _) = condition(&over, "Degraded");
        assert_eq!((is.as_str(), reason.as_str()), ("False", "Healthy"));
        assert_eq!(over.summary, "Running");
    });
}

#[test]
fn an_operator_resets_what_waits_until_reset() {
    on_the_sim(|bench| async move {
        failed_pods(&bench, 9).await;
        let config = guarded("{deletesPerMinute: 3, cooldown: until reset}");
        let host = declared(&bench, &config).await;
        let first = trip(&host.until_status(is_tripped).await);
        assert_eq!(first.until, None);
        assert_eq!(bench.pods().await.len(), 6);
        // Of another trip than this one, it says nothing.
        host.request(&config, 1, reset("2026-11-20T09:00:00.000Z"))
            .await;
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(bench.pods().await.len(), 6);
        let status = host.status().await;
        assert_eq!(trip(&status), first);
        let (_, _, message) = condition(&status, "Degraded");
        assert!(message.contains("wait until it is reset"), "{message}");

        host.request(&config, 1, reset(&first.since)).await;
        let again =
            |status: &ControllerStatus| is_tripped(status) && trip(status).since != first.since;
        let second = trip(&host.until_status(again).await);
        // The request that reset the first one stands, and says nothing of
        // the second.
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(bench.pods().await.len(), 3);
        assert_eq!(trip(&host.status().await), second);
        host.request(&config, 1, reset(&second.since)).await;
        bench.until_left(&["p-07", "p-08"]).await;
        host.until_status(|status| !is_tripped(status)).await;
    });
}

/// A host that keeps being restarted may not be a way around its guardrails.
#[test]
fn a_trip_outlives_the_host_until_it_is_reset() {
    on_the_sim(|bench| async move {
        failed_pods(&bench, 9).await;
        let config = guarded("{deletesPerMinute: 3, cooldown: until reset}");
        let records = Arc::new(Records::memory());
        let mut host = resumed(&bench, &records, &config, 1).await;
        let first = trip(&host.until_status(is_tripped).await);
        for _ in 0..3 {
            host.host.stop().await;
            host = resumed(&bench, &records, &config, 1).await;
            sleep(Duration::from_secs(600)).await;
            assert_eq!(bench.pods().await.len(), 6);
            let status = host.status().await;
            assert_eq!(trip(&status), first);
            assert_eq!(condition(&status, "Degraded").1, "GuardrailTripped");
        }
        host.request(&config, 1, reset(&first.since)).await;
        let again =
            |status: &ControllerStatus| is_tripped(status) && trip(status).since != first.since;
        host.until_status(again).await;
        assert_eq!(bench.pods().await.len(), 3);
    });
}

#[test]
fn a_cooldown_goes_on_after_a_restart() {
    on_the_sim(|bench| async move {
        failed_pods(&bench, 7).await;
        let config = guarded("{deletesPerMinute: 3, cooldown: 10m}");
        let records = Arc::new(Records::memory());
        let host = resumed(&bench, &records, &config, 1).await;
        let tripped = trip(&host.until_status(is_tripped).await);
        host.host.stop().await;
        let host = resumed(&bench, &records, &config, 1).await;
        sleep(Duration::from_secs(580)).await;
        assert_eq!(bench.pods().await.len(), 4);
        assert_eq!(trip(&host.status().await), tripped);
        bench.until_left(&["p-05", "p-06"]).await;
    });
}

/// Another limit is another decision of the operator's.
#[test]
fn a_trip_of_another_limit_is_judged_anew_after_a_restart() {
    on_the_sim(|bench| async move {
        failed_pods(&bench, 7).await;
        let guardrails = |limit: u32| {
            guarded(&format!(
                "{{deletesPerMinute: {limit}, cooldown: until reset}}"
            ))
        };
        let records = Arc::new(Records::memory());
        let host = resumed(&bench, &records, &guardrails(3), 1).await;
        host.until_status(is_tripped).await;
        host.host.stop().await;
        let host = resumed(&bench, &records, &guardrails(30), 2).await;
        bench.until_left(&["p-05", "p-06"]).await;
        host.until_status(|status| !is_tripped(status)).await;
    });
}

#[test]
fn a_share_of_the_pods_that_are_watched() {
    on_the_sim(|bench| async move {
        failed_pods(&bench, 20).await;
        let config = guarded("{deletesPercentPerMinute: 50}");
        let host = declared(&bench, &config).await;
        let tripped = trip(&host.until_status(is_tripped).await);
        assert_eq!(
            (tripped.guardrail.as_str(), tripped.limit),
            ("deletesPercentPerMinute", 10)
        );
        sleep(Duration::from_secs(200)).await;
        assert_eq!(bench.pods().await.len(), 10);
        // Five minutes later, by default, a share of those that are left.
        sleep(Duration::from_secs(200)).await;
        assert_eq!(bench.pods().await.len(), 5);
    });
}

/// A node with a taint that no pod of it tolerates.
async fn tainted_pods(bench: &mut Bench, count: usize) {
    let node = bench.node("a").await;
    for number in 0..count {
        bench.pod(&format!("p-{number}"), &node, "Running").await;
    }
    let taint = json!({"spec": {"taints": [{"key": "example.com/leave", "effect": "NoExecute"}]}});
    let path = format!("/api/v1/nodes/{node}");
    bench.must("PATCH", &path, &taint).await;
}

/// Marks pods, deletes them and says so: every sort of write.
fn taint_eviction(account: &str) -> String {
    format!(
        "controllers:\n\
         - name: evict\n  module: {{builtin: taint-eviction}}\n  mode: Enforce\n{account}"
    )
}

#[test]
fn what_is_written_says_who_decided_it() {
    on_the_sim(|mut bench| async move {
        tainted_pods(&mut bench, 2).await;
        bench.sim().clear_log();
        let mut host = bench.host(&taint_eviction("")).await;
        let events = events(&bench, 2).await;
        let patches: Vec<String> = bench
            .sim()
            .log()
            .into_iter()
            .filter(|served| served.work.verb == "patch" && served.work.resource == "pods")
            .map(|served| served.path)
            .collect();
        assert_eq!(patches.len(), 2);
        for path in patches {
            assert!(path.ends_with("?fieldManager=davit%2Fevict"), "{path}");
        }
        let stable = host
            .records
            .status(&Owner::named("evict"))
            .await
            .unwrap()
            .stable;
        let revision = stable.unwrap().revision;
        // The event is a step of its plan, and may be there before the rest.
        sleep(Duration::from_secs(5)).await;
        let mut decisions: Vec<String> = Vec::new();
        for report in host.told() {
            if let Report::Executed {
                decision,
                revision: decided_by,
                ..
            } = report
            {
                assert_eq!(*decided_by, *revision);
                decisions.push(decision);
            }
        }
        let mut written: Vec<String> = Vec::new();
        for event in &events {
            assert_eq!(text(event, "/reason"), "TaintManagerEviction");
            let annotations = &event["metadata"]["annotations"];
            assert_eq!(annotations["davit.dev/revision"], json!(revision));
            written.push(text(annotations, "/davit.dev~1decision"));
        }
        decisions.sort();
        written.sort();
        assert_eq!(written, decisions, "each event names its own decision");
        written.dedup();
        assert_eq!(written.len(), 2);
    });
}

/// The events in the test's namespace, as soon as there are so many.
async fn events(bench: &Bench, count: usize) -> Vec<Value> {
    let deadline = Instant::now() + PATIENCE;
    let path = format!("/api/v1/namespaces/{}/events", bench.namespace);
    loop {
        let list = bench.must("GET", &path, &Value::Null).await;
        let events = list["items"].as_array().unwrap();
        if events.len() >= count {
            return events.clone();
        }
        assert!(Instant::now() < deadline, "{events:?}");
        sleep(Duration::from_millis(100)).await;
    }
}

/// A request: its method, its path, and the user it is made in the name of.
type Asked = (String, String, Option<String>);

/// A client in the namespace `davit` that writes down what it is asked for.
fn overheard(bench: &Bench) -> (kube::Client, Arc<Mutex<Vec<Asked>>>) {
    let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
    let (client, notes) = (bench.client(), Arc::clone(&asked));
    let service = service_fn(move |request: Request<Body>| {
        let user = request.headers().get("impersonate-user");
        let user = user.map(|user| user.to_str().unwrap().to_owned());
        let (method, path) = (request.method().to_string(), request.uri().to_string());
        notes.lock().unwrap().push((method, path, user));
        let client = client.clone();
        async move { client.send(request).await }
    });
    (kube::Client::new(service, "davit"), asked)
}

#[test]
fn a_controller_writes_as_its_service_account_and_reads_as_davit() {
    on_the_sim(|mut bench| async move {
        tainted_pods(&mut bench, 2).await;
        let (client, asked) = overheard(&bench);
        let mut host = Running::start(client);
        let account = "  serviceAccountName: evictions\n";
        host.apply(&taint_eviction(account)).await;
        host.started().await;
        events(&bench, 2).await;
        sleep(Duration::from_secs(5)).await;
        let asked = asked.lock().unwrap();
        let of = |method: &str| {
            let all = asked.iter().filter(|asked| asked.0 == method);
            all.cloned().collect::<Vec<Asked>>()
        };
        let user = Some("system:serviceaccount:davit:evictions".to_owned());
        for method in ["PATCH", "DELETE"] {
            let requests = of(method);
            assert_eq!(requests.len(), 2, "{requests:?}");
            assert!(requests.iter().all(|one| one.2 == user), "{requests:?}");
        }
        let reads = of("GET");
        let watches = |one: &&Asked| one.1.contains("watch=");
        assert!(reads.iter().filter(watches).count() >= 2, "{reads:?}");
        assert!(reads.iter().all(|one| one.2.is_none()), "{reads:?}");
        // Events are the host's, whoever they are about.
        let events = of("POST");
        assert_eq!(events.len(), 2, "{events:?}");
        assert!(events.iter().all(|one| one.2.is_none()), "{events:?}");
    });
}
