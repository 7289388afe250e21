//! The compiler is a child process: a module that takes it too much costs nothing else.

use std::time::{Duration, Instant};

use davit_guest::testing::Pod;
use serde_json::json;

use crate::bomb::bomb;
use crate::cluster::Cluster;

const NAME: &str = "podgc";

#[test]
fn a_module_that_is_too_large_to_compile_stops_nothing_and_delays_no_restart() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bomb.wasm");
    std::fs::write(&file, bomb()).unwrap();
    let cluster = Cluster::new();
    cluster.add(NAME, &json!({"terminatedPodThreshold": 1, "period": "1s"}));
    let davit = cluster.run();
    cluster.until("PodGC runs", |_| cluster.is(NAME, "Synced", "True"));
    let spec = json!({
        "module": {"builtin": null, "file": file},
        "config": null,
        "rollout": null,
    });
    cluster.change(NAME, json!({"spec": spec}));
    cluster.until("the module is refused", |_| {
        cluster.condition(NAME, "Verified")["reason"] == "TooLarge"
    });
    end_two_pods(&cluster, "before");

    // SIGKILL. The next host compiles the module again, and runs the stable one meanwhile.
    drop(davit);
    let begin = Instant::now();
    let _davit = cluster.run();
    cluster.until("PodGC runs again", |_| {
        cluster.used().contains("watch pods")
    });
    let took = begin.elapsed();
    println!("the stable revision runs after {took:?}");
    assert!(took < LONGEST, "{took:?}");
    end_two_pods(&cluster, "after");
}

/// Two pods end; PodGC deletes all that have ended but one.
fn end_two_pods(cluster: &Cluster, name: &str) {
    let names = [format!("{name}-a"), format!("{name}-b")];
    for name in &names {
        let pod = Pod::new(name).phase("Succeeded");
        cluster.sim.create(pod.into()).unwrap();
    }
    cluster.until("PodGC works", |sim| {
        let is_left = |name: &&String| sim.get("v1", "Pod", "default", name).is_ok();
        names.iter().filter(is_left).count() < 2
    });
}

/// 0.15 s were measured on a busy machine.
const LONGEST: Duration = Duration::from_secs(1);
