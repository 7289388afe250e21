//! A host of a test, with parts that most tests leave as they are.

use std::path::Path;
use std::sync::Arc;

use davit::config::ClientConfig;
use davit::health::Health;
use davit::host::HostOptions;
use davit::metrics::HostMetrics;
use davit::modules::{Modules, ModulesOptions};
use davit::records::Records;
use davit_core::trust::TrustPolicy;
use davit_core::watch;
use davit_engine::{Engine, EngineConfig};

/// The options of a host whose configuration file lists its controllers.
pub(crate) fn options(client: kube::Client) -> HostOptions {
    let modules = ModulesOptions {
        client: Some(client.clone()),
        ..ModulesOptions::default()
    };
    HostOptions {
        client,
        rates: ClientConfig::default(),
        watch: watch::Settings::default(),
        engine: engine(),
        modules: Modules::new(modules).unwrap(),
        metrics: Arc::new(HostMetrics::new().unwrap()),
        records: Arc::new(Records::memory()),
        health: Arc::new(Health::default()),
        listener: None,
        traces: None,
        journal: None,
        trust: TrustPolicy {
            files: true,
            ..TrustPolicy::default()
        },
        leases: None,
        seed: 7,
    }
}

/// An engine that stores compiled guests for the next test.
pub(crate) fn engine() -> Engine {
    Engine::new(EngineConfig {
        cache_dir: Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("modules")),
        // For guests that carry an interpreter.
        core_instances: 64,
        ..EngineConfig::default()
    })
    .unwrap()
}
