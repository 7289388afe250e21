//! Modules and configurations that cannot be had or used: what runs goes on.

use std::sync::Arc;
use std::time::Duration;

use davit::rollout::Records;
use tokio::time::sleep;

use super::{condition, declared, declared_to, podgc, remembering};
use crate::bench::{Running, Setup, builtin_guest, on_the_sim};

const EAGER: &str = "{quarantine: 1s, period: 1s}";

/// PodGC with this module and configuration.
fn with(module: &str, config: &str) -> String {
    format!(
        "controllers:\n\
         - name: podgc\n  module: {module}\n  mode: Enforce\n  config: {config}\n"
    )
}

/// What cannot be used never replaces what runs; the condition says why.
fn refused(module: &str, config: &str, type_: &str, reason: &str, words: &[&str]) {
    let broken = with(module, config);
    on_the_sim(|bench| async move {
        let host = declared(&bench, &podgc(EAGER, "{}")).await;
        let before = host.until_status(|status| status.stable.is_some()).await;
        host.declare(&broken, 2).await;
        let status = host
            .until_status(|status| {
                let mut conditions = status.conditions.iter();
                conditions.any(|one| one.type_ == type_ && one.status == "False")
            })
            .await;
        let (_, found, message) = condition(&status, type_);
        assert_eq!(found, reason, "{message}");
        for word in words {
            assert!(message.contains(word), "{word}: {message}");
        }
        assert_eq!(status.stable, before.stable);
        assert!(status.summary.contains(words[0]), "{}", status.summary);
        bench.pod("orphan", "missing", "Running").await;
        bench.until_left(&[]).await;
        // What is mended is taken on.
        host.declare(&podgc(EAGER, "{}"), 3).await;
        let mended = host
            .until_status(|status| condition(status, type_).0 == "True")
            .await;
        assert_eq!(mended.summary, "running");
    });
}

#[test]
fn a_file_that_is_not_there() {
    let words = ["/not/there.wasm", "cannot be read"];
    refused(
        "{file: /not/there.wasm}",
        "{}",
        "Resolved",
        "NotFound",
        &words,
    );
}

#[test]
fn a_module_that_is_no_wasm() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), b"#!/bin/sh\n").unwrap();
    let module = format!("{{file: {}}}", file.path().display());
    refused(&module, "{}", "Compiled", "NotWasm", &["does not compile"]);
}

#[test]
fn a_configuration_that_the_guest_refuses() {
    let module = "{builtin: podgc}";
    let words = ["terminatedPodThreshold"];
    refused(
        module,
        "{terminatedPodThreshold: many}",
        "Configured",
        "Refused",
        &words,
    );
}

#[test]
fn another_digest_than_the_pinned_one() {
    let digest = "0123456789abcdef".repeat(4);
    let module = format!("{{builtin: podgc, digest: \"sha256:{digest}\"}}");
    let words = ["is wanted", digest.as_str()];
    refused(&module, "{}", "Verified", "OtherDigest", &words);
}

#[test]
fn a_registry_that_does_not_answer() {
    let module = "{oci: {reference: \"127.0.0.1:1/guests/podgc:1\", insecure: true}}";
    refused(
        module,
        "{}",
        "Resolved",
        "NotFound",
        &["127.0.0.1:1/guests/podgc:1"],
    );
}

/// The file is gone when the host starts again: the module is kept.
#[test]
fn a_restart_while_the_source_is_away() {
    on_the_sim(|bench| async move {
        let directory = tempfile::tempdir().unwrap();
        let (file, cache) = (
            directory.path().join("mine.wasm"),
            directory.path().join("cache"),
        );
        std::fs::copy(builtin_guest("podgc"), &file).unwrap();
        let config = with(&format!("{{file: {}}}", file.display()), EAGER);
        let records = Arc::new(Records::memory());
        let start = || {
            let setup = Setup {
                cache: Some(cache.clone()),
                ..remembering(&records)
            };
            Running::start_with(bench.client(), setup)
        };
        let host = declared_to(start(), &config, 1).await;
        let before = host.until_status(|status| status.stable.is_some()).await;
        host.host.stop().await;
        std::fs::remove_file(&file).unwrap();

        let host = declared_to(start(), &config, 1).await;
        bench.pod("orphan", "missing", "Running").await;
        bench.until_left(&[]).await;
        let status = host
            .until_status(|one| condition(one, "Resolved").0 == "False")
            .await;
        assert_eq!(status.stable, before.stable);

        // It comes back with other content: that is another revision.
        let mut other = std::fs::read(builtin_guest("podgc")).unwrap();
        // A custom section without content: another module that does the same.
        other.extend([0, 3, 2, b'a', b'b']);
        std::fs::write(&file, other).unwrap();
        let after = host
            .until_status(|status| status.stable != before.stable)
            .await;
        assert_ne!(after.stable.unwrap().digest, before.stable.unwrap().digest);
    });
}

/// A file that is replaced is another revision, and goes through the rollout.
#[test]
fn a_file_that_changes_is_a_candidate() {
    on_the_sim(|bench| async move {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("mine.wasm");
        std::fs::copy(builtin_guest("podgc"), &file).unwrap();
        let module = format!("{{file: {}}}", file.display());
        let config = format!(
            "{}  rollout: {{steps: [shadow 1h]}}\n",
            with(&module, EAGER)
        );
        let host = declared(&bench, &config).await;
        sleep(Duration::from_secs(30)).await;
        assert_eq!(host.status().await.candidate, None);
        std::fs::copy(builtin_guest("garbage-collector"), &file).unwrap();
        // Its configuration is no longer one that the guest knows.
        let status = host
            .until_status(|one| condition(one, "Configured").0 == "False")
            .await;
        assert!(status.candidate.is_none());
        std::fs::copy(builtin_guest("podgc"), &file).unwrap();
        let status = host
            .until_status(|one| condition(one, "Configured").0 == "True")
            .await;
        assert!(status.candidate.is_none());
    });
}

/// A spec that is taken back ends the rollout, also while its source is away.
#[test]
fn the_former_spec_ends_a_rollout_while_its_source_is_away() {
    on_the_sim(|bench| async move {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("mine.wasm");
        std::fs::copy(builtin_guest("podgc"), &file).unwrap();
        let former = with(&format!("{{file: {}}}", file.display()), EAGER);
        let host = declared(&bench, &former).await;
        let before = host.until_status(|status| status.stable.is_some()).await;
        let other = "{quarantine: 24h, period: 1s}";
        let candidate = podgc(other, "{steps: [weight 100 until promoted]}");
        host.declare(&candidate, 2).await;
        host.until_candidate(|one| one.step == 1).await;
        std::fs::remove_file(&file).unwrap();
        host.declare(&former, 3).await;
        let after = host.until_status(|status| status.candidate.is_none()).await;
        assert_eq!((after.stable, after.rejected), (before.stable, None));
        // The stable revision has its work back, and it is the eager one.
        bench.pod("orphan", "missing", "Running").await;
        bench.until_left(&[]).await;
    });
}

/// What cannot be used is refused for as long as it lies there, and no longer.
#[test]
fn a_file_that_cannot_be_used_until_it_changes() {
    on_the_sim(|bench| async move {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("mine.wasm");
        std::fs::write(&file, b"no wasm").unwrap();
        let host = bench.host_without_controllers();
        let module = format!("{{file: {}}}", file.display());
        host.declare(&with(&module, EAGER), 1).await;
        let compiled = |is: &'static str| {
            host.until_status(move |status| {
                let mut conditions = status.conditions.iter();
                conditions.any(|one| one.type_ == "Compiled" && one.status == is)
            })
        };
        compiled("False").await;
        sleep(Duration::from_secs(60)).await;
        assert_eq!(condition(&host.status().await, "Compiled").0, "False");
        // Away for a while, and the same again.
        std::fs::rename(&file, directory.path().join("away")).unwrap();
        host.until_status(|status| condition(status, "Resolved").0 == "False")
            .await;
        std::fs::rename(directory.path().join("away"), &file).unwrap();
        compiled("False").await;
        std::fs::copy(builtin_guest("podgc"), &file).unwrap();
        compiled("True").await;
    });
}
