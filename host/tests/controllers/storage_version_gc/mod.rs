//! The `StorageVersion` garbage collector end to end: the component in the host
//! against the API server in memory, on virtual time.

mod conformance;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use davit::host::Report;
use davit_sim::fault::{Action, Fault, FaultTiming, Match, Refusal, WatchFault};
use davit_sim::model::{DeleteOptions, DeletionKind};
use davit_sim::{RequestInfo, Sim};
use http::Request;
use http_body_util::{BodyExt as _, Full};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tower::service_fn;

use crate::bench::{Bench, PATIENCE, RunningHost, break_requests, deploy, on_the_sim, text};

const API: &str = "internal.apiserver.k8s.io/v1alpha1";
const GROUP: &str = "internal.apiserver.k8s.io";

fn config(mode: &str) -> String {
    format!(
        "controllers:\n- name: svgc\n  module: {{builtin: storage-version-gc}}\n  mode: {mode}\n"
    )
}

/// The lease of an API server.
fn hold(sim: &Sim, server: &str) {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "name": server, "namespace": "kube-system",
            "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"},
        },
        "spec": {"holderIdentity": server, "leaseDurationSeconds": 3600},
    });
    sim.create(lease).unwrap();
}

fn let_go(sim: &Sim, server: &str) {
    let options = DeleteOptions::default();
    let kind = "coordination.k8s.io/v1";
    sim.delete(kind, "Lease", "kube-system", server, &options)
        .unwrap();
}

fn entries(of: &[(&str, &str)]) -> Value {
    let entry = |(server, version): &(&str, &str)| {
        json!({
            "apiServerID": server, "encodingVersion": version,
            "decodableVersions": [version], "servedVersions": [version],
        })
    };
    of.iter().map(entry).collect()
}

/// A storage version with these entries; returns its uid.
fn store(sim: &Sim, name: &str, of: &[(&str, &str)]) -> String {
    let version = json!({
        "apiVersion": API, "kind": "StorageVersion", "metadata": {"name": name}, "spec": {},
        "status": {"storageVersions": entries(of)},
    });
    text(&sim.create(version).unwrap(), "/metadata/uid")
}

/// A starting API server adds its entry.
fn set_entries(sim: &Sim, name: &str, of: &[(&str, &str)]) {
    let version = json!({
        "apiVersion": API, "kind": "StorageVersion", "metadata": {"name": name},
        "status": {"storageVersions": entries(of)},
    });
    sim.apply(version).unwrap();
}

/// A storage version's status; null if it is gone.
fn status(sim: &Sim, name: &str) -> Value {
    let version = sim.get(API, "StorageVersion", "", name);
    version.map_or(Value::Null, |version| version["status"].clone())
}

/// The ids of a storage version's entries; none if it is gone.
fn servers(sim: &Sim, name: &str) -> Option<Vec<String>> {
    let status = status(sim, name);
    let entries = status.get("storageVersions")?.as_array()?.iter();
    Some(entries.map(|it| text(it, "/apiServerID")).collect())
}

/// Waits until a storage version has entries of exactly these servers; none if it must
/// be gone.
async fn until(sim: &Sim, name: &str, expected: Option<&[&str]>) {
    let expected = expected.map(|ids| ids.iter().map(ToString::to_string).collect());
    let deadline = Instant::now() + PATIENCE;
    while servers(sim, name) != expected {
        let found = servers(sim, name);
        assert!(
            Instant::now() < deadline,
            "{name}: {found:?}, not {expected:?}"
        );
        sleep(Duration::from_millis(100)).await;
    }
}

/// The number of requests in the log that are not reads.
fn writes(sim: &Sim) -> usize {
    let reads = |work: &RequestInfo| matches!(&*work.verb, "get" | "list" | "watch");
    let of_group = |work: &RequestInfo| work.resource == "storageversions";
    let log = sim.log();
    let written = log
        .iter()
        .filter(|it| of_group(&it.work) && !reads(&it.work));
    written.count()
}

/// With both preconditions.
#[test]
fn sv_23_the_deletion_carries_uid_and_resource_version() {
    on_the_sim(|bench| async move {
        let sim = bench.sim();
        hold(sim, "one");
        let uid = store(sim, "group.resource", &[("one", "v1")]);
        let version = sim
            .get(API, "StorageVersion", "", "group.resource")
            .unwrap();
        let _host = bench.host(&config("Enforce")).await;
        sleep(Duration::from_secs(5)).await;
        let_go(sim, "one");
        until(sim, "group.resource", None).await;
        let log = sim.log();
        let deletion = log.iter().find(|it| it.work.verb == "delete").unwrap();
        let body: Value = serde_json::from_slice(&deletion.body).unwrap();
        assert_eq!(
            body["preconditions"],
            json!({"uid": uid, "resourceVersion": version["metadata"]["resourceVersion"]})
        );
        assert_eq!(writes(sim), 1);
    });
}

/// With the API server's own answers: no answer about a lease except 404 removes an
/// entry.
#[test]
fn sv_30_a_lease_that_cannot_be_read_keeps_its_entries() {
    let trouble = [
        Action::Refuse(Refusal::InternalError),
        Action::Refuse(Refusal::Unavailable),
        Action::Refuse(Refusal::TooManyRequests(1)),
        Action::CloseBefore,
        Action::CutBody(10),
    ];
    for action in trouble {
        on_the_sim(|bench| async move {
            let sim = bench.sim();
            hold(sim, "one");
            store(sim, "group.resource", &[("one", "v1")]);
            let _host = bench.host(&config("Enforce")).await;
            sleep(Duration::from_secs(5)).await;
            let fault = sim.add_fault(Fault {
                matches: Match::new("get", "leases"),
                when: FaultTiming::Always,
                action: action.clone(),
            });
            let_go(sim, "one");
            sleep(Duration::from_mins(1)).await;
            assert_eq!(
                servers(sim, "group.resource").unwrap(),
                ["one"],
                "{action:?}"
            );
            sim.heal(fault);
            until(sim, "group.resource", None).await;
        });
    }
}

/// An API server adds itself while the deletion is on its way.
#[test]
fn sv_31_an_entry_added_before_the_deletion_survives() {
    on_the_sim(|bench| async move {
        let sim = bench.sim();
        hold(sim, "one");
        store(sim, "group.resource", &[("one", "v1")]);
        let mut host = bench.host(&config("Enforce")).await;
        sim.add_fault(Fault {
            matches: Match::new("delete", "storageversions"),
            when: FaultTiming::First(1),
            action: Action::Delay(Duration::from_secs(5)),
        });
        let_go(sim, "one");
        sleep(Duration::from_secs(2)).await;
        hold(sim, "two");
        set_entries(sim, "group.resource", &[("one", "v1"), ("two", "v2")]);
        until(sim, "group.resource", Some(&["two"])).await;
        sleep(Duration::from_secs(30)).await;
        assert_eq!(servers(sim, "group.resource").unwrap(), ["two"]);
        let conflict = host.work_reports().into_iter().any(|report| match report {
            Report::Executed { outcome, .. } => {
                let failed = outcome.failed.map(|(_, failure)| failure.class.to_string());
                failed.is_some_and(|class| class == "conflict")
            }
            _ => false,
        });
        assert!(conflict, "the deletion was to be refused");
    });
}

#[test]
fn a_dry_run_writes_nothing() {
    on_the_sim(|bench| async move {
        let sim = bench.sim();
        store(sim, "group.resource", &[("nobody", "v1")]);
        let _host = bench.host(&config("DryRun")).await;
        sleep(Duration::from_mins(1)).await;
        assert_eq!(servers(sim, "group.resource").unwrap(), ["nobody"]);
        assert_eq!(writes(sim), 0);
    });
}

/// API servers start and stop while writes fail in every way and watches break: in the
/// end exactly the entries of the remaining servers are left.
#[test]
fn whatever_fails_entries_with_a_valid_id_are_kept() {
    on_the_sim(|bench| async move {
        let sim = bench.sim();
        let all = ["a", "b", "c", "d", "e", "f"];
        for server in all {
            hold(sim, server);
        }
        let mut uids = Vec::new();
        for number in 0..30 {
            let version = |server| (server, if number % 2 == 0 { "v1" } else { "v2" });
            let of: Vec<_> = all.map(version).into();
            uids.push((store(sim, &format!("g.mixed{number}"), &of), false));
            uids.push((store(sim, &format!("g.doomed{number}"), &of[..4]), true));
        }
        failing_writes(sim);
        let host = bench.host(&config("Enforce")).await;
        let troubles = [
            WatchFault::Abort,
            WatchFault::Expire,
            WatchFault::Silence,
            WatchFault::Delay(Duration::from_secs(3)),
        ];
        for (server, trouble) in all.iter().zip(troubles) {
            for resource in ["leases", "storageversions"] {
                sim.disturb(&Match::new("watch", resource), trouble);
            }
            let_go(sim, server);
            sleep(Duration::from_millis(1_500)).await;
        }
        sleep(Duration::from_mins(5)).await;
        sim.heal_all();
        sleep(Duration::from_secs(330)).await;
        for number in 0..30 {
            let name = format!("g.mixed{number}");
            assert_eq!(servers(sim, &name).unwrap(), ["e", "f"], "{name}");
            let common = if number % 2 == 0 { "v1" } else { "v2" };
            assert_eq!(status(sim, &name)["commonEncodingVersion"], common);
            assert_eq!(servers(sim, &format!("g.doomed{number}")), None);
        }
        for (uid, doomed) in uids {
            let steps = sim.deletions_of(&uid);
            let requested = steps.iter().filter(|it| it.kind == DeletionKind::Requested);
            assert_eq!(requested.count(), usize::from(doomed));
        }
        host.host.stop().await;
    });
}

fn failing_writes(sim: &Sim) {
    for verb in ["patch", "delete"] {
        break_requests(sim, &Match::new(verb, "storageversions"));
    }
    sim.add_fault(Fault {
        matches: Match::new("get", "leases"),
        when: FaultTiming::Every(3),
        action: Action::Refuse(Refusal::InternalError),
    });
}

/// While the alpha API is not served the controller runs, is healthy and does nothing;
/// when the API appears, it starts its work.
#[test]
fn the_controller_waits_for_an_api_that_is_not_served() {
    on_the_sim(|bench: Bench| async move {
        let sim = bench.sim();
        let served = Arc::new(AtomicBool::new(false));
        store(sim, "group.resource", &[("nobody", "v1")]);
        let mut host = host_behind(&bench, Arc::clone(&served));
        host.apply(&config("Enforce")).await;
        host.started().await;
        sleep(Duration::from_mins(5)).await;
        let reads = sim.count(&Match {
            resource: "storageversions".to_owned(),
            ..Match::default()
        });
        assert_eq!(reads, 0, "nobody serves it");
        let reports = host.work_reports();
        assert!(
            reports.is_empty(),
            "nothing to do, and nothing wrong: {reports:?}"
        );
        served.store(true, Ordering::Relaxed);
        until(sim, "group.resource", None).await;
    });
}

/// A host whose API server serves the group of storage versions only while configured
/// to.
fn host_behind(bench: &Bench, served: Arc<AtomicBool>) -> RunningHost {
    let sim = bench.sim().clone();
    let service = service_fn(move |request: Request<Body>| {
        let (sim, served) = (sim.clone(), Arc::clone(&served));
        async move {
            let discovery = request.uri().path() == "/apis";
            let response = sim.call(request).await?;
            let (parts, body) = response.into_parts();
            if !discovery || served.load(Ordering::Relaxed) {
                return Ok(http::Response::from_parts(parts, body.boxed_unsync()));
            }
            let bytes = body.collect().await?.to_bytes();
            let mut groups: Value = serde_json::from_slice(&bytes).unwrap();
            let items = groups["items"]
                .as_array_mut()
                .expect("aggregated discovery");
            items.retain(|group| group["metadata"]["name"] != GROUP);
            let body = Full::from(serde_json::to_vec(&groups).unwrap());
            let body = body.map_err(|never| match never {}).boxed_unsync();
            Ok::<_, davit_sim::ConnectionClosed>(http::Response::from_parts(parts, body))
        }
    });
    RunningHost::start(deploy::davit_through(bench.sim(), service))
}
