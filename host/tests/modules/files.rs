//! Files, the module cache, and probes.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use davit::modules::{Modules, ModulesOptions};
use serde_json::{Value, json};
use tempfile::tempdir;
use tokio::time::timeout;

use crate::{OTHER_WASM, WASM, digest, fetch, module, modules, recall, refusal};

#[tokio::test]
async fn a_module_whose_file_is_gone_is_loaded_from_the_cache_by_its_digest() {
    let directory = tempdir().unwrap();
    let (file, cache) = (
        directory.path().join("a.wasm"),
        directory.path().join("cache"),
    );
    fs::write(&file, WASM).unwrap();
    let source = json!({"file": file});
    let fetched = fetch(&modules(&cache, None), source.clone()).await.unwrap();
    assert_eq!(fetched.wasm, WASM);
    assert_eq!(format!("sha256:{}", fetched.digest), digest(WASM));
    assert_eq!(fetched.origin, format!("the file {}", file.display()));

    fs::remove_file(&file).unwrap();
    let restarted: Modules = modules(&cache, None);
    let error = refusal(&restarted, source.clone()).await;
    let start = format!("the module {} cannot be read: No such file", file.display());
    assert!(error.starts_with(&start), "{error}");
    let pinned = json!({"file": file, "digest": digest(WASM)});
    assert_eq!(fetch(&restarted, pinned).await.unwrap().wasm, WASM);
    let other = json!({"file": file, "digest": digest(OTHER_WASM)});
    refusal(&restarted, other).await;
}

#[tokio::test]
async fn a_file_that_is_not_the_pinned_module_is_refused_and_not_cached() {
    let directory = tempdir().unwrap();
    let (file, cache) = (
        directory.path().join("a.wasm"),
        directory.path().join("cache"),
    );
    fs::write(&file, OTHER_WASM).unwrap();
    let modules = modules(&cache, None);
    let error = refusal(&modules, json!({"file": file, "digest": digest(WASM)})).await;
    assert_eq!(
        error,
        format!(
            "the file {} is the module {}, and digest pins {}: change digest if the source's \
             module should run",
            file.display(),
            digest(OTHER_WASM),
            digest(WASM)
        )
    );
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 0);
    fs::write(&file, WASM).unwrap();
    let right = fetch(&modules, json!({"file": file, "digest": digest(WASM)})).await;
    assert_eq!(right.unwrap().wasm, WASM);
}

/// The module cache has the pinned module, and the spec names another source, or the
/// source has changed: the pin must not hide that.
#[tokio::test]
async fn the_cache_does_not_hide_a_source_that_holds_another_module() {
    let directory = tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let (first, second) = (path("first.wasm"), path("second.wasm"));
    fs::write(&first, WASM).unwrap();
    fs::write(&second, OTHER_WASM).unwrap();
    let options = || ModulesOptions {
        guests: Some(directory.path().to_owned()),
        cache: Some(path("cache")),
        client: None,
    };
    let modules = Modules::new(options()).unwrap();
    let pinned = |mut source: Value| {
        source["digest"] = json!(digest(WASM));
        source
    };
    let fetched = fetch(&modules, pinned(json!({"file": first}))).await;
    assert_eq!(fetched.unwrap().unavailable, None);
    fs::write(&first, OTHER_WASM).unwrap();
    let restarted = Modules::new(options()).unwrap();
    for source in [
        json!({"file": first}),
        json!({"file": second}),
        json!({"builtin": "second"}),
    ] {
        let error = refusal(&restarted, pinned(source.clone())).await;
        for wasm in [WASM, OTHER_WASM] {
            assert!(error.contains(&digest(wasm)), "{source}: {error}");
        }
        // The record names the former revision.
        let recorded = module(pinned(source));
        assert_eq!(recall(&restarted, &recorded).await.unwrap().wasm, WASM);
    }
    // No such guest is shipped: that source is not unavailable, but wrong.
    let misspelt = refusal(&restarted, pinned(json!({"builtin": "secnod"}))).await;
    assert!(misspelt.contains("secnod.wasm"), "{misspelt}");
    fs::remove_file(&first).unwrap();
    let away = fetch(&restarted, pinned(json!({"file": first}))).await;
    let away = away.unwrap();
    assert_eq!(away.wasm, WASM);
    assert!(
        away.unavailable
            .unwrap()
            .contains("first.wasm cannot be read")
    );
}

/// A mounted `ConfigMap` changes by a link.
#[tokio::test]
async fn a_probe_distinguishes_a_changed_file_from_an_unchanged_one() {
    let directory = tempdir().unwrap();
    let link = directory.path().join("current");
    for (name, wasm) in [("one", WASM), ("two", OTHER_WASM)] {
        fs::create_dir(directory.path().join(name)).unwrap();
        fs::write(directory.path().join(name).join("a.wasm"), wasm).unwrap();
    }
    std::os::unix::fs::symlink("one", &link).unwrap();
    let modules = modules(&directory.path().join("cache"), None);
    let source = module(json!({"file": link.join("a.wasm")})).source;
    let first = modules.probe(&source).await.unwrap();
    assert_eq!(modules.probe(&source).await.unwrap(), first);
    fs::remove_file(&link).unwrap();
    modules.probe(&source).await.unwrap_err();
    std::os::unix::fs::symlink("two", &link).unwrap();
    let second = modules.probe(&source).await.unwrap();
    assert_ne!(second, first);
    // Written in place, of the same length.
    fs::write(link.join("a.wasm"), [7; 11]).unwrap();
    let third = modules.probe(&source).await.unwrap();
    assert_ne!(third, second);
    // Replaced by a file of the same length and time.
    let (new, old) = (link.join("new"), link.join("a.wasm"));
    fs::write(&new, [8; 11]).unwrap();
    let file = fs::File::options().append(true).open(&new).unwrap();
    let time = fs::metadata(&old).unwrap().modified().unwrap();
    file.set_modified(time).unwrap();
    fs::rename(&new, &old).unwrap();
    assert_ne!(modules.probe(&source).await.unwrap(), third);
}

#[tokio::test]
async fn a_file_larger_than_any_module_is_not_read_completely() {
    let directory = tempdir().unwrap();
    let file = directory.path().join("large.wasm");
    fs::File::create(&file).unwrap().set_len(1 << 40).unwrap();
    let modules = modules(directory.path(), None);
    let error = refusal(&modules, json!({"file": file})).await;
    assert!(
        error.ends_with("it has more than 33554432 bytes, the largest module that Davit loads"),
        "{error}"
    );
}

/// Reading a pipe waits for a writer, and a device may have no end.
#[tokio::test]
async fn a_file_that_is_not_regular_is_not_opened() {
    let directory = tempdir().unwrap();
    let pipe = directory.path().join("pipe.wasm");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let modules = modules(directory.path(), None);
    for path in [pipe.as_path(), Path::new("/dev/zero"), directory.path()] {
        let source = json!({"file": path});
        let error = timeout(Duration::from_secs(5), refusal(&modules, source.clone())).await;
        let words = format!("the module {} cannot be read: it is no", path.display());
        assert!(error.unwrap().starts_with(&words));
        modules.probe(&module(source).source).await.unwrap_err();
    }
}

/// The error does not call it the module.
#[tokio::test]
async fn a_missing_certificate_file_is_named_as_such() {
    let directory = tempdir().unwrap();
    let (modules, missing) = (
        modules(directory.path(), None),
        directory.path().join("ca.pem"),
    );
    let source = json!({"oci": {"reference": "127.0.0.1:1/a:1", "caCert": {"file": missing}}});
    let error = refusal(&modules, source).await;
    let words = format!("the caCert.file {} cannot be read: No", missing.display());
    assert!(error.starts_with(&words), "{error}");
}
