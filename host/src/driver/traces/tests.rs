//! What a host without a collector does.

use std::path::{Path, PathBuf};
use std::time::Duration;

use davit_core::trust::TrustPolicy;
use davit_engine::{Engine, EngineConfig};
use davit_sim::Sim;
use kube::client::Body;
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::spans;
use crate::config;
use crate::host::{Host, HostOptions};
use crate::metrics::HostMetrics;
use crate::modules::{Modules, ModulesOptions};
use crate::traces::SpanQueue;

const PODGC: &str = "controllers: [{name: podgc, module: {builtin: podgc}, mode: Enforce, \
    config: {terminatedPodThreshold: 1, period: 1s}}]";

/// The test's only thread runs the host, and counts its spans.
#[tokio::test]
async fn without_a_collector_no_span_is_made() {
    let made = spans::made();
    delete_a_pod(None).await;
    assert_eq!(spans::made(), made);

    let metrics = HostMetrics::new().unwrap();
    let (queue, waiting) = SpanQueue::unsent(metrics.traces.clone());
    delete_a_pod(Some(queue)).await;
    // The trace itself, and its spans.
    assert!(spans::made() > made + waiting.len() && !waiting.is_empty());
}

/// PodGC reads a pod from the cache, and its plan is executed.
async fn delete_a_pod(traces: Option<SpanQueue>) {
    let sim = crate::sim::start().unwrap();
    for name in ["first", "second"] {
        let spec = json!({"containers": [{"name": "main", "image": "example.com/main"}]});
        let metadata = json!({"name": name, "namespace": "default"});
        let status = json!({"phase": "Failed"});
        sim.create(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": metadata, "spec": spec, "status": status,
        }))
        .unwrap();
    }
    let host = Host::start(options(client(&sim), traces));
    let parsed = config::parse(Path::new("davit.yaml"), PODGC).unwrap();
    let applied = host.apply(&parsed.controllers.unwrap()).await.unwrap();
    applied.recorded().await;
    let deleted = async {
        while sim.list("v1", "Pod", "default").unwrap().len() > 1 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(60), deleted).await.unwrap();
    host.stop().await;
}

fn client(sim: &Sim) -> kube::Client {
    let sim = sim.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let sim = sim.clone();
        async move { sim.call(request).await }
    });
    kube::Client::new(service, "davit-system")
}

fn options(client: kube::Client, traces: Option<SpanQueue>) -> HostOptions {
    let modules = ModulesOptions {
        guests: Some(target().join("wasm32-wasip2/guest")),
        ..ModulesOptions::default()
    };
    let engine = EngineConfig {
        cache_dir: Some(target().join("tmp/modules")),
        ..EngineConfig::default()
    };
    let engine = Engine::new(engine).unwrap();
    let modules = Modules::new(modules).unwrap();
    let metrics = HostMetrics::new().unwrap();
    HostOptions {
        traces,
        trust: TrustPolicy {
            files: true,
            ..TrustPolicy::default()
        },
        seed: 7,
        ..HostOptions::new(client, engine, modules, metrics.into())
    }
}

/// The test's program is in `debug/deps/` below it.
fn target() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.ancestors().nth(3).unwrap().to_owned()
}
