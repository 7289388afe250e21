//! The memory of the container that the host runs in.

use davit::loader::Loader;
use davit_core::api::ControllerSpec;
use davit_engine::{Engine, EngineConfig};
use serde_json::json;
use tempfile::tempdir;

use super::{module, modules};

#[tokio::test]
async fn a_revision_that_does_not_fit_into_the_container_is_refused() {
    let directory = tempdir().unwrap();
    let engine = Engine::new(EngineConfig::default()).unwrap();
    // 500 MiB: 128 for the host, and 256 for one revision.
    let modules = modules(directory.path(), None);
    let loader = Loader::new(engine, modules).within(Some(500 << 20));
    let spec = |memory_mib, instances| {
        let mut spec = ControllerSpec::of(module(json!({"builtin": "podgc"})));
        spec.limits.memory_mib = memory_mib;
        spec.limits.instances = instances;
        spec
    };
    let first = loader.load(&spec(64, 4)).await.unwrap();
    let refused = loader.load(&spec(32, 4)).await.err().unwrap();
    let error = refused.in_spec().to_string();
    assert!(
        error.starts_with("limits: 4 instances of 32 MiB do not fit into the container"),
        "{error}"
    );
    assert!(
        error.contains("raise the memory limit of the container"),
        "{error}"
    );
    // The same revision needs nothing more, and a smaller one fits.
    loader.load(&spec(64, 4)).await.unwrap();
    loader.load(&spec(29, 4)).await.unwrap();
    // What ran before is not refused after a restart.
    let mut recorded = spec(32, 4);
    recorded.module.digest = Some(first.identity.digest());
    loader.load_recorded(&recorded).await.unwrap();
    drop(first);
    loader.load(&spec(64, 5)).await.unwrap();
}
