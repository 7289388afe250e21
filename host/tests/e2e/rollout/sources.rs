//! Modules and configurations that cannot be loaded: the running revision continues.

use std::sync::Arc;
use std::time::Duration;

use davit::records::Records;
use davit_cluster::term::Term;
use davit_core::api::encode_config;
use davit_core::api::{ControllerStatus, RevisionStatus};
use davit_core::record::{Activation, Owner, Record, StatusWrite};
use davit_core::revision::RevisionIdentity;
use tokio::time::sleep;

use super::{condition, declared, declared_to, podgc, remembering};
use crate::bench::{Bench, RunningHost, Setup, builtin_guest, on_the_sim};

const EAGER: &str = "{quarantine: 1s, period: 1s}";

/// PodGC with this module and configuration.
fn with(module: &str, config: &str) -> String {
    format!(
        "controllers:\n\
         - name: podgc\n  module: {module}\n  mode: Enforce\n  config: {config}\n"
    )
}

/// A revision that cannot be loaded never replaces the running one; a condition names
/// the reason.
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
        let part = if type_ == "Configured" {
            "configuration"
        } else {
            "module"
        };
        assert_eq!(status.summary, format!("{reason}: {part}"));
        let (is, why, message) = condition(&status, "Ready");
        assert_eq!((is.as_str(), why.as_str()), ("False", reason));
        assert!(message.contains("continues"), "{message}");
        assert_eq!(condition(&status, "Degraded").0, "True");
        assert_eq!(status.observed_generation, Some(2));
        bench.pod("orphan", "missing", "Running").await;
        bench.until_left(&[]).await;
        // The corrected spec is applied.
        host.declare(&podgc(EAGER, "{}"), 3).await;
        let corrected = host
            .until_status(|status| condition(status, type_).0 == "True")
            .await;
        assert_eq!(corrected.summary, "Running");
        assert_eq!(condition(&corrected, "Ready").0, "True");
    });
}

#[test]
fn a_file_that_does_not_exist_is_not_found() {
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
fn a_text_file_is_not_webassembly() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), b"#!/bin/sh\n").unwrap();
    let module = format!("{{file: {}}}", file.path().display());
    refused(
        &module,
        "{}",
        "Compiled",
        "NotWasm",
        &["it is not WebAssembly"],
    );
}

#[test]
fn a_configuration_that_the_guest_refuses_is_named() {
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
fn another_module_than_the_pinned_one_is_refused() {
    let digest = "0123456789abcdef".repeat(4);
    let module = format!("{{builtin: podgc, digest: \"sha256:{digest}\"}}");
    let words = ["digest pins", digest.as_str()];
    refused(&module, "{}", "Verified", "DigestMismatch", &words);
}

#[test]
fn a_registry_that_does_not_answer_is_not_found() {
    let module = "{oci: {reference: \"127.0.0.1:1/guests/podgc:1\", insecure: true}}";
    refused(
        module,
        "{}",
        "Resolved",
        "NotFound",
        &["127.0.0.1:1/guests/podgc:1"],
    );
}

/// Another module with the same behaviour.
fn another_podgc() -> Vec<u8> {
    let mut wasm = std::fs::read(builtin_guest("podgc")).unwrap();
    // An empty custom section.
    wasm.extend([0, 3, 2, b'a', b'b']);
    wasm
}

/// A version of Davit with its built-in guests and its cache.
struct Image {
    directory: tempfile::TempDir,
    records: Arc<Records>,
}

impl Image {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("guests")).unwrap();
        let image = Self {
            directory,
            records: Arc::new(Records::memory()),
        };
        image.ship(&std::fs::read(builtin_guest("podgc")).unwrap());
        image
    }

    /// From now on the image has this module.
    fn ship(&self, podgc: &[u8]) {
        let file = self.directory.path().join("guests/podgc.wasm");
        std::fs::write(file, podgc).unwrap();
    }

    fn start(&self, bench: &Bench, is_cached: bool) -> RunningHost {
        let path = self.directory.path();
        let setup = Setup {
            guests: Some(path.join("guests")),
            cache: is_cached.then(|| path.join("cache")),
            ..remembering(&self.records)
        };
        RunningHost::start_with(bench.client(), setup)
    }

    /// Runs a configuration until it is stable, and stops; returns the stable
    /// revision.
    async fn run(&self, bench: &Bench, is_cached: bool, config: &str) -> RevisionStatus {
        let host = declared_to(self.start(bench, is_cached), config, 1).await;
        let status = host.until_status(|status| status.stable.is_some()).await;
        host.host.stop().await;
        status.stable.unwrap()
    }
}

const STEPS: &str = "{steps: [shadow 1h]}";

fn config() -> String {
    podgc(EAGER, STEPS)
}

/// An image whose guest was stable and then replaced; with the revision that was
/// stable.
async fn updated(bench: &Bench, is_cached: bool) -> (Image, RevisionStatus) {
    let image = Image::new();
    let before = image.run(bench, is_cached, &config()).await;
    image.ship(&another_podgc());
    (image, before)
}

/// The cache was deleted with the former pod.
#[test]
fn an_update_of_davit_replaces_its_guests_without_a_rollout_if_the_former_ones_are_gone() {
    on_the_sim(|bench| async move {
        let (image, before) = updated(&bench, false).await;
        let host = declared_to(image.start(&bench, false), &config(), 1).await;
        let status = host.status().await;
        assert_ne!(status.stable.unwrap().digest, before.digest);
        assert_eq!((status.candidate, status.lost), (None, None));
        bench.pod("orphan", "missing", "Running").await;
        bench.until_left(&[]).await;
    });
}

#[test]
fn an_update_of_davit_is_rolled_out_if_the_former_guest_is_cached() {
    on_the_sim(|bench| async move {
        let (image, before) = updated(&bench, true).await;
        let host = declared_to(image.start(&bench, true), &config(), 1).await;
        let candidate = host.until_candidate(|one| one.step == 1).await;
        assert_ne!(candidate.digest, before.digest);
        assert_eq!(host.status().await.stable, Some(before));
    });
}

/// The cache has a module of an earlier interface, which an earlier Davit ran: this one
/// cannot.
async fn outdated(bench: &Bench) -> (Image, RevisionStatus) {
    let image = Image::new();
    let ran = image.run(bench, true, &config()).await;
    let owner = Owner::named("podgc");
    let wasm = std::fs::read(builtin_guest("fixture-other-version")).unwrap();
    let digest = davit_core::digest::ModuleDigest::of(&wasm);
    let cache = image.directory.path().join("cache");
    std::fs::write(cache.join(format!("{digest}.wasm")), wasm).unwrap();

    let mut spec = image.records.spec(&owner, &ran.revision).await.unwrap();
    let spec = spec.as_mut().unwrap();
    spec.module.digest = Some(digest);
    let identity = RevisionIdentity::new(
        digest,
        encode_config(&spec.config).unwrap().into(),
        spec.limits,
    );
    let before = RevisionStatus {
        revision: identity.to_string(),
        digest: format!("sha256:{digest}"),
        ..ran
    };
    let activation = Record::Revision(Box::new(Activation {
        revision: before.revision.clone(),
        spec: spec.clone(),
        at: "2026-11-20T10:00:00Z".into(),
        stable_since: Some(before.since.clone()),
    }));
    let term = Term::unlimited;
    let written = image.records.write(&owner, activation, term()).await;
    written.unwrap();
    let status = ControllerStatus {
        stable: Some(before.clone()),
        ..ControllerStatus::default()
    };
    let status = Record::Status(StatusWrite::any(status));
    let written = image.records.write(&owner, status, term()).await;
    written.unwrap();
    (image, before)
}

#[test]
fn a_cached_guest_that_this_davit_cannot_run_is_replaced() {
    on_the_sim(|bench| async move {
        let (image, before) = outdated(&bench).await;
        let host = declared_to(image.start(&bench, true), &config(), 1).await;
        bench.pod("orphan", "missing", "Running").await;
        bench.until_left(&[]).await;
        let status = host.status().await;
        assert_ne!(status.stable.unwrap().digest, before.digest);
        assert_eq!((status.candidate, status.lost), (None, None));
    });
}

#[test]
fn a_stable_guest_that_cannot_be_loaded_is_named_if_the_spec_has_changed() {
    for (is_cached, why) in [(true, "this Davit cannot run"), (false, "")] {
        on_the_sim(|bench| async move {
            let (image, before) = if is_cached {
                outdated(&bench).await
            } else {
                updated(&bench, false).await
            };
            let host = image.start(&bench, is_cached);
            let other = podgc("{quarantine: 2s, period: 1s}", STEPS);
            host.declare(&other, 2).await;
            let status = host.until_status(|status| status.lost.is_some()).await;
            let (is, reason, message) = condition(&status, "Ready");
            assert_eq!((is.as_str(), reason.as_str()), ("False", "StableLost"));
            for part in [before.digest.as_str(), why] {
                assert!(message.contains(part), "{part}: {message}");
            }
            assert!(!message.contains("change the digest"), "{message}");
            sleep(Duration::from_secs(60)).await;
            assert!(host.health.is_ready(), "other controllers run");
        });
    }
}

/// A rollback has pinned the digest, and an operator names another source.
#[test]
fn a_pinned_digest_does_not_hide_another_source() {
    on_the_sim(|bench| async move {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("mine.wasm");
        std::fs::write(&file, another_podgc()).unwrap();
        let image = Image::new();
        let host = declared_to(image.start(&bench, true), &podgc(EAGER, "{}"), 1).await;
        let stable = host.until_status(|status| status.stable.is_some()).await;
        let stable = stable.stable.unwrap();
        let pinned = |source: &str| {
            with(
                &format!("{{{source}, digest: \"{}\"}}", stable.digest),
                EAGER,
            )
        };
        host.declare(&pinned("builtin: podgc"), 2).await;
        let good = host.until_status(|status| condition(status, "Verified").0 == "True");
        good.await;
        let named = format!("file: {}", file.display());
        host.declare(&pinned(&named), 3).await;
        let refused = |status: &ControllerStatus| condition(status, "Verified").0 == "False";
        let status = host.until_status(refused).await;
        let (_, reason, message) = condition(&status, "Verified");
        assert_eq!(reason, "DigestMismatch");
        let other = davit_core::digest::ModuleDigest::of(&another_podgc());
        for digest in [stable.digest.clone(), format!("sha256:{other}")] {
            assert!(message.contains(&digest), "{message}");
        }
        assert_eq!(status.stable.as_ref(), Some(&stable));
        bench.pod("orphan", "missing", "Running").await;
        bench.until_left(&[]).await;

        // The same after a restart.
        host.host.stop().await;
        let host = declared_to(image.start(&bench, true), &pinned(&named), 3).await;
        bench.pod("orphan", "missing", "Running").await;
        bench.until_left(&[]).await;
        let status = host.until_status(refused).await;
        assert_eq!(status.stable, Some(stable));
    });
}

#[test]
fn a_pinned_file_that_changes_is_reported_and_changes_nothing() {
    on_the_sim(|bench| async move {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("mine.wasm");
        let podgc = std::fs::read(builtin_guest("podgc")).unwrap();
        std::fs::write(&file, &podgc).unwrap();
        let digest = davit_core::digest::ModuleDigest::of(&podgc);
        let module = format!("{{file: {}, digest: \"sha256:{digest}\"}}", file.display());
        let host = declared(&bench, &with(&module, EAGER)).await;
        let before = host.until_status(|status| status.stable.is_some()).await;
        let verified = |is: &'static str| {
            host.until_status(move |status| condition(status, "Verified").0 == is)
        };
        verified("True").await;
        std::fs::write(&file, another_podgc()).unwrap();
        let status = verified("False").await;
        assert_eq!(status.stable, before.stable);
        std::fs::remove_file(&file).unwrap();
        let status = verified("True").await;
        let (is, reason, message) = condition(&status, "Resolved");
        assert_eq!((is.as_str(), reason.as_str()), ("True", "Cached"));
        assert!(message.contains("mine.wasm cannot be read"), "{message}");
        std::fs::write(&file, &podgc).unwrap();
        let status = host
            .until_status(|status| condition(status, "Resolved").1 == "Resolved")
            .await;
        assert_eq!(status.stable, before.stable);
        bench.pod("orphan", "missing", "Running").await;
        bench.until_left(&[]).await;
    });
}

#[test]
fn the_cached_module_runs_after_a_restart_without_its_source() {
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
            RunningHost::start_with(bench.client(), setup)
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

        // The file returns with another content: that is another revision.
        std::fs::write(&file, another_podgc()).unwrap();
        let after = host
            .until_status(|status| status.stable != before.stable)
            .await;
        assert_ne!(after.stable.unwrap().digest, before.stable.unwrap().digest);
    });
}

#[test]
fn a_file_whose_guest_does_not_know_the_configuration_is_no_candidate() {
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

#[test]
fn a_file_that_does_not_compile_is_refused_until_it_changes() {
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
        // The same file again.
        std::fs::rename(&file, directory.path().join("away")).unwrap();
        host.until_status(|status| condition(status, "Resolved").0 == "False")
            .await;
        std::fs::rename(directory.path().join("away"), &file).unwrap();
        compiled("False").await;
        std::fs::copy(builtin_guest("podgc"), &file).unwrap();
        compiled("True").await;
    });
}
