//! How soon after a taint its first pod is marked, on the machine's own clock.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use davit_sim::Sim;
use davit_sim::fault::Match;
use http::Request;
use kube::client::Body;
use tokio::time::sleep;
use tower::service_fn;

use crate::bench::{Bench, PATIENCE, Running, in_real_time};
use crate::cluster::{KEY, pod, taint, taint_eviction};

const NODES: usize = 60;
const PODS: usize = 20;

/// From the taint's request to that for the first pod's condition.
const AT_MOST: Duration = Duration::from_millis(50);
/// One of so many rounds has to be that fast: the machine that runs the tests
/// may have other things to do in any of them, but a controller that is too slow
/// is so in all.
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
        let mut host = Running::start(watched(bench.sim(), &marked));
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

/// A client of the API server in memory that takes note of it.
fn watched(sim: &Sim, marked: &FirstMark) -> kube::Client {
    let (sim, marked) = (sim.clone(), Arc::clone(marked));
    let service = service_fn(move |request: Request<Body>| {
        let path = request.uri().path();
        if path.contains("/pods/") && path.ends_with("/status") {
            marked.lock().unwrap().get_or_insert_with(Instant::now);
        }
        let sim = sim.clone();
        async move { sim.call(request).await }
    });
    kube::Client::new(service, "default")
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
