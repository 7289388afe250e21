//! The copies of modules beside a journal.

use std::fs;
use std::path::Path;
use std::time::Duration;

use davit::loader::Loader;
use davit::metrics::HostMetrics;
use davit_core::api::ControllerSpec;
use davit_engine::{Engine, EngineConfig};
use serde_json::json;
use tempfile::tempdir;

use super::{digest, module, modules, podgc};

fn copies(journal: &Path) -> Vec<String> {
    let entries = fs::read_dir(journal.join("modules")).into_iter().flatten();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| !name.starts_with('.')).collect()
}

#[tokio::test]
async fn what_cannot_be_a_guest_is_not_copied() {
    let directory = tempdir().unwrap();
    let (file, journal) = (
        directory.path().join("a.wasm"),
        directory.path().join("journal"),
    );
    let metrics = HostMetrics::new().unwrap();
    let modules = modules(&directory.path().join("cache"), None)
        .with_copies(Some(&journal), &metrics.journal);
    let loader = Loader::new(Engine::new(EngineConfig::default()).unwrap(), modules);
    let spec = ControllerSpec::of(module(json!({"file": file})));
    for number in 0..6 {
        fs::write(&file, vec![number; 1 << 20]).unwrap();
        loader.load(&spec).await.err().unwrap();
    }
    fs::write(&file, podgc()).unwrap();
    let loaded = loader.load(&spec).await.unwrap();
    let name = format!("{}.wasm", loaded.identity.digest());
    assert_eq!(
        format!("sha256:{}", loaded.identity.digest()),
        digest(&podgc())
    );
    let mut found = copies(&journal);
    for _ in 0..1000 {
        if found.contains(&name) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        found = copies(&journal);
    }
    assert_eq!(found, [name]);
}
