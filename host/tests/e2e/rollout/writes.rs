//! Every write names its controller, revision and decision, and has the right user.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use davit::host::Report;
use davit_core::record::Owner;
use http::Request;
use kube::client::Body;
use serde_json::json;
use tokio::time::sleep;
use tower::service_fn;

use crate::bench::{Bench, RunningHost, deploy, on_the_sim, text};

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

/// A controller that patches, deletes and sends events: every kind of write.
fn taint_eviction(account: &str) -> String {
    format!(
        "controllers:\n\
         - name: evict\n  module: {{builtin: taint-eviction}}\n  mode: Enforce\n{account}"
    )
}

#[test]
fn every_write_names_its_controller_revision_and_decision() {
    on_the_sim(|mut bench| async move {
        tainted_pods(&mut bench, 2).await;
        bench.sim().clear_log();
        let mut host = bench.host(&taint_eviction("")).await;
        let events = bench.events(2).await;
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
        for report in host.work_reports() {
            if let Report::Executed {
                decision,
                revision: decided_by,
                ..
            } = report
            {
                assert_eq!(*decided_by, *revision);
                decisions.push(decision.to_string());
            }
        }
        let mut written: Vec<String> = Vec::new();
        for event in &events {
            assert_eq!(text(event, "/reason"), "TaintManagerEviction");
            let annotations = &event["metadata"]["annotations"];
            assert_eq!(annotations["davit.dev/revision"], json!(revision));
            // The annotation names the run of the host too.
            let name = text(annotations, "/davit.dev~1decision");
            let (run, decision) = name.split_once('-').unwrap();
            assert!(u64::from_str_radix(run, 16).is_ok(), "{name}");
            written.push(decision.to_owned());
        }
        decisions.sort();
        written.sort();
        assert_eq!(written, decisions, "each event names its own decision");
        written.dedup();
        assert_eq!(written.len(), 2);
    });
}

/// A request: its method, its path, and the user that it impersonates.
type WireRequest = (String, String, Option<String>);

/// A client for a host that logs its requests.
fn logging_client(bench: &Bench) -> (kube::Client, Arc<Mutex<Vec<WireRequest>>>) {
    let sent: Arc<Mutex<Vec<WireRequest>>> = Arc::default();
    let (client, log) = (bench.client(), Arc::clone(&sent));
    let service = service_fn(move |request: Request<Body>| {
        let user = request.headers().get("impersonate-user");
        let user = user.map(|user| user.to_str().unwrap().to_owned());
        let (method, path) = (request.method().to_string(), request.uri().to_string());
        log.lock().unwrap().push((method, path, user));
        let client = client.clone();
        async move { client.send(request).await }
    });
    (deploy::davit_through(bench.sim(), service), sent)
}

#[test]
fn a_controller_reads_live_and_writes_as_its_service_account_and_watches_as_davit() {
    on_the_sim(|mut bench| async move {
        tainted_pods(&mut bench, 2).await;
        let (client, sent) = logging_client(&bench);
        let mut host = RunningHost::start(client);
        let account = "  serviceAccountName: davit-taint-eviction\n";
        host.apply(&taint_eviction(account)).await;
        host.started().await;
        bench.events(2).await;
        sleep(Duration::from_secs(5)).await;
        let sent = sent.lock().unwrap();
        let of = |method: &str| {
            let all = sent.iter().filter(|one| one.0 == method);
            all.cloned().collect::<Vec<WireRequest>>()
        };
        let user = Some("system:serviceaccount:davit-system:davit-taint-eviction".to_owned());
        for method in ["PATCH", "DELETE"] {
            let requests = of(method);
            assert_eq!(requests.len(), 2, "{requests:?}");
            assert!(requests.iter().all(|one| one.2 == user), "{requests:?}");
        }
        let reads = of("GET");
        let is_watch = |one: &&WireRequest| one.1.contains("watch=");
        let watches: Vec<_> = reads.iter().filter(is_watch).collect();
        assert!(watches.len() >= 2, "{reads:?}");
        assert!(watches.iter().all(|one| one.2.is_none()), "{reads:?}");
        // Before an eviction, the node is read live.
        let live: Vec<_> = reads
            .iter()
            .filter(|one| one.1.contains("/nodes/"))
            .collect();
        assert!(!live.is_empty(), "{reads:?}");
        assert!(live.iter().all(|one| one.2 == user), "{reads:?}");
        // The host itself sends events, for every controller.
        let events = of("POST").into_iter();
        let events: Vec<_> = events.filter(|one| one.1.ends_with("/events")).collect();
        assert_eq!(events.len(), 2, "{events:?}");
        assert!(events.iter().all(|one| one.2.is_none()), "{events:?}");
    });
}
