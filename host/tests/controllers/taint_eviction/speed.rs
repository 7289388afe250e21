//! How soon after a taint its pods are marked: the first, on the machine's own
//! clock, and all of them, on a server that answers few requests at once.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use davit_sim::Sim;
use davit_sim::fault::Match;
use http::{Method, Request};
use kube::client::Body;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tower::service_fn;

use super::cluster::{KEY, pod, taint, taint_eviction, until_resynced};
use crate::bench::{Bench, PATIENCE, RunningHost, deploy, in_real_time, on_the_sim};

const NODES: usize = 60;
const PODS: usize = 20;

/// From the request with the taint to the request with the first pod's condition.
const AT_MOST: Duration = Duration::from_millis(50);
/// One of this many rounds must be that fast: the machine may be busy in any of them,
/// but a slow controller is slow in all.
const ROUNDS: usize = 10;

#[test]
fn a_taint_marks_its_first_pod_at_once_and_reads_no_other_nodes_pods() {
    in_real_time(|mut bench| async move {
        let mut nodes = Vec::new();
        for number in 0..NODES {
            let node = bench.node(&format!("n-{number}")).await;
            for pod_number in 0..PODS {
                pod(&bench, &format!("p-{number}-{pod_number}"), &node, &[]).await;
            }
            nodes.push(node);
        }
        let marked = FirstMark::default();
        let mut host = RunningHost::start(watched(bench.sim(), &marked));
        host.apply(&taint_eviction("Enforce", "{}")).await;
        host.started().await;
        let mut left = NODES * PODS;
        let mut took = Vec::new();
        for (number, node) in nodes.iter().take(ROUNDS).enumerate() {
            // Of the round before.
            marked.lock().unwrap().take();
            bench.sim().clear_log();
            let begun = Instant::now();
            taint(&bench, node, &[KEY]).await;
            let marked = first(&marked).await;
            took.push(marked.duration_since(begun));
            left -= PODS;
            until_left(&bench, left).await;
            assert_only_of_node(bench.sim(), number);
        }
        host.host.stop().await;
        let best = took.iter().min().unwrap();
        assert!(*best <= AT_MOST, "{took:?}");
    });
}

/// When the first pod's status was patched.
type FirstMark = Arc<Mutex<Option<Instant>>>;

/// A client of the API server in memory that records this time.
fn watched(sim: &Sim, marked: &FirstMark) -> kube::Client {
    let (served, marked) = (sim.clone(), Arc::clone(marked));
    let service = service_fn(move |request: Request<Body>| {
        let path = request.uri().path();
        if path.contains("/pods/") && path.ends_with("/status") {
            marked.lock().unwrap().get_or_insert_with(Instant::now);
        }
        let sim = served.clone();
        async move { sim.call(request).await }
    });
    deploy::davit_through(sim, service)
}

async fn first(marked: &FirstMark) -> Instant {
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < PATIENCE, "no pod is marked");
        if let Some(at) = marked.lock().unwrap().take() {
            return at;
        }
        sleep(Duration::from_millis(1)).await;
    }
}

async fn until_left(bench: &Bench, count: usize) {
    let pods = || bench.sim().list("v1", "Pod", &bench.namespace).unwrap();
    while pods().len() > count {
        sleep(Duration::from_millis(20)).await;
    }
}

/// No pod is read, and no other node's pods are written.
#[track_caller]
fn assert_only_of_node(sim: &Sim, number: usize) {
    for verb in ["get", "list", "watch"] {
        assert_eq!(sim.count(&Match::new(verb, "pods")), 0, "{verb}");
    }
    let own = format!("p-{number}-");
    let log = sim.log();
    let about_pods = log.iter().filter(|it| it.work.resource == "pods");
    let names: Vec<&str> = about_pods.map(|it| it.work.name.as_str()).collect();
    assert_eq!(names.len(), 2 * PODS);
    assert!(names.iter().all(|name| name.starts_with(&own)), "{names:?}");
    // Once in each of the calls that the timers of its pods are spread over.
    let reads = sim.count(&Match::new("get", "nodes"));
    assert!((1..=4).contains(&reads), "{reads}");
}

/// The server of the next test answers this many requests at once.
const AT_ONCE: usize = 8;
/// Each request takes this long: 800 requests a second.
const EACH: Duration = Duration::from_millis(10);
/// Pods of each node.
const FEWER_PODS: usize = 18;

/// 1,080 pods on 60 nodes take 60 reads, 2,160 writes and 1,080 events. The server
/// needs 2.8 s for reads and writes, and 4.1 s for everything.
#[test]
fn events_wait_while_pods_are_marked_and_deleted() {
    on_the_sim(|mut bench| async move {
        let mut nodes = Vec::new();
        for number in 0..NODES {
            let node = bench.node(&format!("n-{number}")).await;
            for pod_number in 0..FEWER_PODS {
                pod(&bench, &format!("p-{number}-{pod_number}"), &node, &[]).await;
            }
            nodes.push(node);
        }
        let times = Times::default();
        let client = limited(bench.sim(), &times);
        let mut host = RunningHost::start(client.clone());
        host.apply(&taint_eviction("Enforce", "{}")).await;
        host.started().await;
        until_resynced().await;
        let begun = tokio::time::Instant::now();
        for node in &nodes {
            taint(&bench, node, &[KEY]).await;
        }
        // Requests of another user at the same time.
        let mut others = Vec::new();
        for _ in 0..10 {
            sleep(Duration::from_millis(150)).await;
            let asked = tokio::time::Instant::now();
            let request = Request::get("/api/v1/nodes?limit=1").body(Body::empty());
            client.send(request.unwrap()).await.unwrap();
            others.push(asked.elapsed());
        }
        bench.until_left(&[]).await;
        let seconds = |at: &Option<tokio::time::Instant>| {
            let at = at.expect("it was never answered");
            at.duration_since(begun).as_secs_f64()
        };
        let (marked, deleted) = {
            let times = times.lock().unwrap();
            let (first, last) = (times.marked.first(), times.marked.last());
            let marked = (seconds(&first.copied()), seconds(&last.copied()));
            (marked, seconds(&times.deleted.last().copied()))
        };
        println!(
            "first pod marked after {:.3} s, last after {:.3} s, last deleted after {deleted:.3} s; \
             others waited {others:?}",
            marked.0, marked.1
        );
        assert!(marked.0 < 0.1, "first pod marked after {} s", marked.0);
        assert!(marked.1 < 3.0, "last pod marked after {} s", marked.1);
        assert!(deleted < 3.0, "last pod deleted after {deleted} s");
        others.sort_unstable();
        let median = others[others.len() / 2];
        // The limit of requests under way falls when half of the answers take longer
        // than three times EACH, so other requests wait about that long; without the
        // limit, 160 ms.
        assert!(median < 6 * EACH, "others wait {others:?} for an answer");
        // No event is lost, although most are not sent yet.
        let events = Match::new("create", "events");
        let sent = bench.sim().count(&events);
        assert!(
            sent < NODES * FEWER_PODS / 10,
            "{sent} events went before writes"
        );
        host.host.stop().await;
        assert_eq!(bench.sim().count(&events), NODES * FEWER_PODS);
    });
}

/// When requests were answered.
type Times = Arc<Mutex<AnswerTimes>>;

#[derive(Default)]
struct AnswerTimes {
    marked: Vec<tokio::time::Instant>,
    deleted: Vec<tokio::time::Instant>,
}

/// A client of a server that answers [`AT_ONCE`] requests at once; others wait. Watches
/// do not count.
fn limited(sim: &Sim, times: &Times) -> kube::Client {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let (served, times) = (sim.clone(), Arc::clone(times));
    let service = service_fn(move |request: Request<Body>| {
        let (sim, times, places) = (served.clone(), Arc::clone(&times), Arc::clone(&places));
        async move {
            let uri = request.uri();
            let is_watch = uri
                .query()
                .is_some_and(|query| query.contains("watch=true"));
            let is_mark = uri.path().contains("/pods/") && uri.path().ends_with("/status");
            let is_delete = request.method() == Method::DELETE;
            if is_watch {
                return sim.call(request).await;
            }
            let _place = places.acquire_owned().await;
            sleep(EACH).await;
            let answer = sim.call(request).await;
            let (now, mut times) = (tokio::time::Instant::now(), times.lock().unwrap());
            if is_mark {
                times.marked.push(now);
            } else if is_delete {
                times.deleted.push(now);
            }
            answer
        }
    });
    deploy::davit_through(sim, service)
}
