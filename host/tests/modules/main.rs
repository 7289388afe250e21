//! Modules from every source, against Debian's `docker-registry` on loopback
//! and the API server in memory, where the host has the roles in `deploy/`. Without
//! `docker-registry` its tests say so and pass.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod bomb;
mod cluster;
mod compile;
mod copies;
#[path = "../e2e/deploy.rs"]
#[allow(dead_code, reason = "it serves the tests of the host too")]
mod deploy;
#[path = "../roles/cluster.rs"]
#[allow(dead_code, reason = "it serves the tests of the roles too")]
mod deployed;
mod files;
#[path = "../e2e/host.rs"]
mod host;
mod hostile;
mod memory;
mod oci;
mod program;
mod registry;
mod server;
mod signed;
mod signer;
mod strange;

use std::path::Path;

use davit::modules::{Modules, ModulesOptions};
use davit_core::api::ModuleConfig;
use davit_core::digest::ModuleDigest;
use davit_core::load::ModuleSearch;
use serde_json::Value;

/// The smallest component: a header.
const WASM: &[u8] = b"\0asm\x0d\0\x01\0";
/// Another component: with an empty custom section.
const OTHER_WASM: &[u8] = b"\0asm\x0d\0\x01\0\0\x01\0";

fn modules(cache: &Path, client: Option<kube::Client>) -> Modules {
    let options = ModulesOptions {
        guests: None,
        cache: Some(cache.to_owned()),
        client,
    };
    Modules::new(options).unwrap()
}

fn module(value: Value) -> ModuleConfig {
    serde_json::from_value(value).unwrap()
}

/// PodGC, as it ships.
fn podgc() -> Vec<u8> {
    deployed::module("podgc.wasm").0
}

fn digest(wasm: &[u8]) -> String {
    format!("sha256:{}", ModuleDigest::of(wasm))
}

/// A module that was found.
#[derive(Debug)]
struct FetchedModule {
    wasm: Vec<u8>,
    digest: ModuleDigest,
    /// Its source, as text.
    origin: String,
    /// Why it was recalled from the module cache: its source cannot be read.
    unavailable: Option<String>,
}

async fn find(modules: &Modules, search: ModuleSearch) -> Result<FetchedModule, String> {
    let origin = search.module().source.to_string();
    let found = modules.find(search, |_| None::<Vec<u8>>).await;
    let (found, wasm) = found.map_err(|error| error.message)?;
    Ok(FetchedModule {
        wasm,
        digest: found.digest,
        origin,
        unavailable: found.away,
    })
}

async fn fetch(modules: &Modules, value: Value) -> Result<FetchedModule, String> {
    find(modules, ModuleSearch::of_spec(&module(value))).await
}

/// The module of a recorded revision.
async fn recall(modules: &Modules, module: &ModuleConfig) -> Result<FetchedModule, String> {
    find(modules, ModuleSearch::of_record(module)).await
}

/// The error of a module that cannot be loaded, with its causes.
async fn refusal(modules: &Modules, value: Value) -> String {
    fetch(modules, value).await.unwrap_err()
}
