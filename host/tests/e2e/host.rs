//! A host of a test, with parts that most tests leave as they are.

use std::path::Path;

use davit::host::HostOptions;
use davit::metrics::HostMetrics;
use davit::modules::{Modules, ModulesOptions};
use davit_core::trust::TrustPolicy;
use davit_engine::{Engine, EngineConfig};

/// The options of a host whose configuration file lists its controllers.
pub(crate) fn options(client: kube::Client) -> HostOptions {
    let modules = ModulesOptions {
        client: Some(client.clone()),
        ..ModulesOptions::default()
    };
    let modules = Modules::new(modules).unwrap();
    let metrics = HostMetrics::new().unwrap();
    HostOptions {
        trust: TrustPolicy {
            files: true,
            ..TrustPolicy::default()
        },
        seed: 7,
        ..HostOptions::new(client, engine(), modules, metrics.into())
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
