//! The five guests, compiled natively, and configurations that change no decision.

use std::sync::Arc;

use davit_core::api::encode_config;
use davit_core::grant::Permissions;
use davit_core::manifest::Permission;
use davit_guest::Controller;
use davit_simulation::DescribeResult;
use serde_json::{Value, json};

use davit_guest::testing::Native;

/// A configuration that no guest accepts.
pub(crate) const WRONG: u8 = u8::MAX;

/// How many pods that have ended the pod garbage collector leaves.
pub(crate) const MOST_ENDED_PODS: usize = 2;

/// One of the configurations of a controller.
pub(crate) fn config(name: &str, number: u8) -> Value {
    if number == WRONG {
        return json!({"wrong": true});
    }
    let parallel = 10 + u32::from(number);
    match name {
        "podgc" => json!({
            "terminatedPodThreshold": MOST_ENDED_PODS,
            "period": "5s",
            "quarantine": "10s",
            "maxParallelDeletes": parallel,
        }),
        "node-eviction" => json!({
            "podEvictionTimeout": "60s",
            "nodeEvictionRate": 1,
            "largeClusterSizeThreshold": 40 + parallel,
        }),
        "garbage-collector" => json!({"concurrentSyncs": parallel}),
        "taint-eviction" => json!({"maxParallelEvictions": parallel}),
        _ => json!({}),
    }
}

/// The configuration with which a guest declares more than with the others.
const GREEDY: u8 = 2;

/// Describes a guest with a configuration.
pub(crate) fn describe(program: &str, config: &[u8]) -> DescribeResult {
    let (native, mut manifest) = describe_native(program, config)?;
    let greedy = encode_config(&self::config(program, GREEDY));
    if greedy.is_ok_and(|greedy| greedy == config) && program != "storage-version-gc" {
        manifest
            .permissions
            .push(Permission::new("get", "", "secrets"));
    }
    Ok((native, manifest))
}

/// What a guest declares with its first configuration.
pub(crate) fn first_permissions(program: &str) -> Permissions {
    let config = encode_config(&config(program, 0)).unwrap_or_default();
    let described = describe(program, &config);
    described.map_or_else(
        |_| Permissions::default(),
        |(_, manifest)| Permissions::declared_by(&manifest),
    )
}

fn describe_native(program: &str, config: &[u8]) -> DescribeResult {
    match program {
        "podgc" => described::<podgc::PodGc>(config),
        "garbage-collector" => described::<garbage_collector::GarbageCollector>(config),
        "taint-eviction" => described::<taint_eviction::TaintEviction>(config),
        "storage-version-gc" => described::<storage_version_gc::StorageVersionGc>(config),
        "node-eviction" => described::<node_eviction::NodeEviction>(config),
        other => Err(format!("no guest is called {other}")),
    }
}

fn described<C: Controller + 'static>(config: &[u8]) -> DescribeResult {
    let native = Native::<C>::describe(config)?;
    let manifest = native.manifest().clone();
    Ok((Arc::new(native), manifest))
}
