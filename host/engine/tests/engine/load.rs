//! Which modules are loaded, and from where.

use std::fs;
use std::path::{Path, PathBuf};

use davit_engine::{Engine, EngineConfig, Guest, LoadError, WorldError, WorldVersion};

use crate::artifacts;
use crate::harness::{Config, ask, engine, limits};

async fn refused(wasm: Vec<u8>) -> LoadError {
    engine().load(wasm).await.err().unwrap()
}

#[tokio::test]
async fn a_guest_is_loaded_with_its_version() {
    let module = crate::harness::odd_module().await;
    assert_eq!(module.world(), WorldVersion::V0_1_0);
    assert_eq!(module.digest().to_string().len(), 64);
}

#[tokio::test]
async fn a_guest_that_imports_files_is_refused() {
    let error = refused(artifacts::guest("fixture-imports-files")).await;
    let LoadError::World(WorldError::Import { name }) = &error else {
        panic!("{error}");
    };
    assert!(name.starts_with("wasi:filesystem/"), "{name}");
    assert!(
        error.to_string().contains("guests have no files"),
        "{error}"
    );
}

#[tokio::test]
async fn a_guest_that_imports_sockets_is_refused() {
    let error = refused(artifacts::guest("fixture-imports-sockets")).await;
    let LoadError::World(WorldError::Import { name }) = &error else {
        panic!("{error}");
    };
    assert!(name.starts_with("wasi:sockets/"), "{name}");
    assert!(
        error.to_string().contains("guests have no network"),
        "{error}"
    );
}

#[tokio::test]
async fn a_guest_of_another_version_is_refused() {
    let error = refused(artifacts::guest("fixture-other-version")).await;
    assert_eq!(
        error.to_string(),
        "the module cannot be a guest: it was built for davit:controller 0.99.0; this host runs \
         0.1.0"
    );
}

#[tokio::test]
async fn a_file_that_is_not_a_component_is_refused() {
    let core_module = b"\0asm\x01\0\0\0".to_vec();
    let empty_component = b"\0asm\x0d\0\x01\0".to_vec();
    let mut torn = artifacts::guest("fixture-odd");
    torn.truncate(torn.len() / 2);
    for wasm in [core_module, b"#!/bin/sh".to_vec(), Vec::new(), torn] {
        let error = refused(wasm).await;
        assert!(matches!(error, LoadError::Compile(_)), "{error}");
    }
    let error = refused(empty_component).await;
    assert!(
        matches!(error, LoadError::World(WorldError::NoGuest)),
        "{error}"
    );
}

#[tokio::test]
async fn a_module_that_is_too_large_is_not_compiled() {
    let engine = Engine::new(EngineConfig {
        max_module: 100,
        ..EngineConfig::default()
    })
    .unwrap();
    let error = engine.load(vec![0; 101]).await.err().unwrap();
    assert!(
        matches!(
            error,
            LoadError::TooLarge {
                size: 101,
                limit: 100
            }
        ),
        "{error}"
    );
}

fn engine_with(cache: &Path) -> Engine {
    Engine::new(EngineConfig {
        cache_dir: Some(cache.to_owned()),
        ..EngineConfig::default()
    })
    .unwrap()
}

/// The one compiled guest in the cache.
fn artifact(cache: &Path) -> PathBuf {
    let paths = fs::read_dir(cache).unwrap().map(|it| it.unwrap().path());
    let mut compiled: Vec<_> = paths.filter(|it| !it.ends_with(".key")).collect();
    assert_eq!(compiled.len(), 1, "{compiled:?}");
    compiled.remove(0)
}

/// As controllers of one module do.
#[tokio::test]
async fn a_module_that_is_in_use_is_shared() {
    let cache = tempfile::tempdir().unwrap();
    let engine = engine_with(cache.path());
    let wasm = artifacts::guest("fixture-odd");
    let (one, other) = tokio::join!(engine.load(wasm.clone()), engine.load(wasm.clone()));
    let (one, other) = (one.unwrap(), other.unwrap());
    // Whoever loads it alone has to compile it, because its machine code is gone.
    let path = artifact(cache.path());
    fs::remove_file(&path).unwrap();
    drop(one);
    engine.load(wasm.clone()).await.unwrap();
    assert!(!path.exists(), "it was compiled although it is in use");
    drop(other);
    engine.load(wasm).await.unwrap();
    assert!(path.exists(), "nobody used it");
}

/// Loads the odd guest with a new engine and checks that it works.
async fn use_cache(cache: &Path) {
    let engine = engine_with(cache);
    let module = engine.load(artifacts::guest("fixture-odd")).await.unwrap();
    let guest = Guest::new(&module, Config::default().bytes(), limits())
        .await
        .unwrap();
    assert_eq!(ask(&guest, "count").await.unwrap(), "1");
}

/// The identity of a file: it is replaced by another, never changed.
fn inode(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(path).unwrap().ino()
}

#[tokio::test]
async fn a_compiled_guest_is_used_again() {
    let cache = tempfile::tempdir().unwrap();
    use_cache(cache.path()).await;
    let path = artifact(cache.path());
    let first = inode(&path);
    use_cache(cache.path()).await;
    assert_eq!(inode(&artifact(cache.path())), first);
}

#[tokio::test]
async fn a_corrupt_file_is_compiled_again() {
    let cache = tempfile::tempdir().unwrap();
    use_cache(cache.path()).await;
    let path = artifact(cache.path());
    let whole = fs::read(&path).unwrap();

    let mut flipped = whole.clone();
    *flipped.last_mut().unwrap() ^= 1;
    let torn = whole[..whole.len() / 2].to_vec();
    for spoilt in [flipped, torn, Vec::new(), b"something else".to_vec()] {
        fs::write(&path, spoilt).unwrap();
        use_cache(cache.path()).await;
        assert!(fs::read(&path).unwrap() == whole, "it was put right");
    }
}

#[tokio::test]
async fn a_cache_that_others_can_write_to_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let cache = tempfile::tempdir().unwrap();
    fs::set_permissions(cache.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let refused = Engine::new(EngineConfig {
        cache_dir: Some(cache.path().to_owned()),
        ..EngineConfig::default()
    });
    let error = refused.err().unwrap();
    assert!(error.to_string().contains("others may write"), "{error}");
}
