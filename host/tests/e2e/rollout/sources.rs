//! Modules and configurations that cannot be had or used: what runs goes on.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use davit::records::Records;
use davit_core::api::encode_config;
use davit_core::api::{ControllerStatus, RevisionStatus};
use davit_core::control::requests::{abandon, abort};
use davit_core::control::{Activation, Owner, Record, Requests};
use davit_core::revision::RevisionIdentity;
use tokio::time::sleep;

use super::{condition, declared, declared_to, podgc, remembering};
use crate::bench::{Bench, Running, Setup, builtin_guest, on_the_sim};

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
        // What is mended is taken on.
        host.declare(&podgc(EAGER, "{}"), 3).await;
        let mended = host
            .until_status(|status| condition(status, type_).0 == "True")
            .await;
        assert_eq!(mended.summary, "Running");
        assert_eq!(condition(&mended, "Ready").0, "True");
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
    refused(
        &module,
        "{}",
        "Compiled",
        "NotWasm",
        &["it is not WebAssembly"],
    );
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
    let words = ["digest pins", digest.as_str()];
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

/// Another module that does the same.
fn another_podgc() -> Vec<u8> {
    let mut wasm = std::fs::read(builtin_guest("podgc")).unwrap();
    // A custom section without content.
    wasm.extend([0, 3, 2, b'a', b'b']);
    wasm
}

/// A Davit with built-in guests and a cache of its own.
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

    /// From now on it comes with this module.
    fn ship(&self, podgc: &[u8]) {
        let file = self.directory.path().join("guests/podgc.wasm");
        std::fs::write(file, podgc).unwrap();
    }

    fn start(&self, bench: &Bench, is_cached: bool) -> Running {
        let path = self.directory.path();
        let setup = Setup {
            guests: Some(path.join("guests")),
            cache: is_cached.then(|| path.join("cache")),
            ..remembering(&self.records)
        };
        Running::start_with(bench.client(), setup)
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

/// An image that ran, stable, and comes with another guest by now; with the
/// revision that was stable.
async fn updated(bench: &Bench, is_cached: bool) -> (Image, RevisionStatus) {
    let image = Image::new();
    let before = image.run(bench, is_cached, &config()).await;
    image.ship(&another_podgc());
    (image, before)
}

/// Its image comes with another guest, and what was kept went with the pod.
#[test]
fn an_update_of_davit_updates_its_guests() {
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

/// The former guest is kept: the update is a change like any other.
#[test]
fn an_updated_guest_is_tried_if_it_can_be() {
    on_the_sim(|bench| async move {
        let (image, before) = updated(&bench, true).await;
        let host = declared_to(image.start(&bench, true), &config(), 1).await;
        let candidate = host.until_candidate(|one| one.step == 1).await;
        assert_ne!(candidate.digest, before.digest);
        assert_eq!(host.status().await.stable, Some(before));
    });
}

/// A module of an earlier interface lies in the cache, and an earlier Davit ran it:
/// this one cannot.
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
    image.records.write(&owner, activation).await.unwrap();
    let status = ControllerStatus {
        stable: Some(before.clone()),
        ..ControllerStatus::default()
    };
    let status = Record::Status(Box::new(status));
    image.records.write(&owner, status).await.unwrap();
    (image, before)
}

/// What an earlier Davit kept is no reason to run nothing.
#[test]
fn a_kept_guest_that_this_davit_cannot_run_is_updated() {
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

/// Somebody asks for more than the update.
#[test]
fn a_kept_guest_that_this_davit_cannot_run_is_named() {
    on_the_sim(|bench| async move {
        let (image, before) = outdated(&bench).await;
        let host = image.start(&bench, true);
        let other = podgc("{quarantine: 2s, period: 1s}", STEPS);
        host.declare(&other, 2).await;
        let status = host.until_status(|status| status.lost.is_some()).await;
        let (is, reason, message) = condition(&status, "Ready");
        assert_eq!((is.as_str(), reason.as_str()), ("False", "StableLost"));
        for part in [before.digest.as_str(), "this Davit cannot run"] {
            assert!(message.contains(part), "{part}: {message}");
        }
    });
}

/// It was tried beside the former one, and taken back: without the former one it
/// is no better.
#[test]
fn an_updated_guest_that_was_taken_back_stays_so() {
    on_the_sim(|bench| async move {
        let (image, before) = updated(&bench, true).await;
        let host = declared_to(image.start(&bench, true), &config(), 1).await;
        let candidate = host.until_candidate(|one| one.step == 1).await;
        let asked = Requests {
            abort: Some(abort(&candidate)),
            ..Requests::default()
        };
        host.request(&config(), 1, asked.clone()).await;
        host.until_status(|status| status.rejected.is_some()).await;
        host.host.stop().await;

        let host = image.start(&bench, false);
        host.request(&config(), 1, asked).await;
        let status = host.until_status(|status| status.lost.is_some()).await;
        assert_eq!(status.stable.as_ref(), Some(&before));
        sleep(Duration::from_secs(300)).await;
        let status = host.status().await;
        assert_eq!(status.stable, Some(before));
        assert_eq!(status.lost.unwrap().ready, Some(candidate.revision));
    });
}

/// Somebody has asked for more than the update: an operator has to say whether
/// that may take over untried.
#[test]
fn a_lost_revision_is_given_up_by_an_operator() {
    on_the_sim(|bench| async move {
        let (image, before) = updated(&bench, false).await;
        let host = image.start(&bench, false);
        let other = podgc("{quarantine: 2s, period: 1s}", STEPS);
        host.declare(&other, 2).await;
        let is_ready = |status: &ControllerStatus| {
            let lost = status.lost.as_ref();
            lost.is_some_and(|lost| lost.ready.is_some())
        };
        let status = host.until_status(is_ready).await;
        let lost = status.lost.clone().unwrap();
        let ready = lost.ready.clone().unwrap();
        let (is, reason, message) = condition(&status, "Degraded");
        assert_eq!((is.as_str(), reason.as_str()), ("True", "StableLost"));
        for part in [&before.digest, &ready, "davit promote --full podgc"] {
            assert!(message.contains(part), "{part}: {message}");
        }
        assert!(!message.contains("change the digest"), "{message}");
        bench.pod("orphan", "missing", "Running").await;
        sleep(Duration::from_secs(300)).await;
        assert!(host.health.is_ready(), "the other controllers run");
        let status = host.status().await;
        assert_eq!(status.stable.as_ref(), Some(&before));
        assert_eq!(status.lost.as_ref(), Some(&lost), "the same loss");
        assert_eq!(bench.pods().await.len(), 1, "nothing runs");

        let asked = Requests {
            abandon: Some(abandon(&before, &lost)),
            ..Requests::default()
        };
        host.request(&other, 2, asked).await;
        bench.until_left(&[]).await;
        let status = host.status().await;
        assert_eq!(status.stable.unwrap().revision, ready);
        assert_eq!(status.lost, None);
    });
}

/// A rollback has pinned a digest, and another source is named beside it.
#[test]
fn a_pin_does_not_hide_another_source() {
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
        assert_eq!(reason, "OtherDigest");
        let other = davit_core::digest::ModuleDigest::of(&another_podgc());
        for digest in [stable.digest.clone(), format!("sha256:{other}")] {
            assert!(message.contains(&digest), "{message}");
        }
        assert_eq!(status.stable.as_ref(), Some(&stable));
        bench.pod("orphan", "missing", "Running").await;
        bench.until_left(&[]).await;

        // The same after a restart: what ran goes on, and the spec is refused.
        host.host.stop().await;
        let host = declared_to(image.start(&bench, true), &pinned(&named), 3).await;
        bench.pod("orphan", "missing", "Running").await;
        bench.until_left(&[]).await;
        let status = host.until_status(refused).await;
        assert_eq!(status.stable, Some(stable));
    });
}

/// A pinned file that is replaced while it runs, taken away and brought back.
#[test]
fn a_pinned_file_that_changes_is_noticed() {
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
        std::fs::write(&file, another_podgc()).unwrap();
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

const CANDIDATE: &str = "{steps: [weight 100 until promoted]}";

/// A host that tried an eager candidate, whose source goes away with it.
async fn trying(bench: &Bench, image: &Image, config: &str, file: &Path) {
    let lenient = podgc("{quarantine: 24h, period: 1s}", CANDIDATE);
    let host = declared_to(image.start(bench, true), &lenient, 1).await;
    host.declare(config, 2).await;
    host.until_candidate(|one| one.step == 1).await;
    host.host.stop().await;
    std::fs::remove_file(file).unwrap();
}

/// The candidate goes on after a restart without its source, unless the spec
/// has replaced it meanwhile.
#[test]
fn a_candidate_that_was_replaced_meanwhile_gets_no_share() {
    on_the_sim(|bench| async move {
        let image = Image::new();
        let file = image.directory.path().join("mine.wasm");
        std::fs::copy(builtin_guest("podgc"), &file).unwrap();
        let config = |quarantine: &str| {
            let module = format!("{{file: {}}}", file.display());
            let config = format!("{{quarantine: {quarantine}, period: 1s}}");
            format!("{}  rollout: {CANDIDATE}\n", with(&module, &config))
        };
        trying(&bench, &image, &config("1s"), &file).await;
        // While no host was there, another was asked for, which cannot be had.
        let host = declared_to(image.start(&bench, true), &config("2s"), 3).await;
        bench.pod("orphan", "missing", "Running").await;
        sleep(Duration::from_secs(300)).await;
        assert_eq!(bench.pods().await.len(), 1);
        assert!(host.status().await.candidate.is_some());
        // It is asked for again.
        host.declare(&config("1s"), 4).await;
        bench.until_left(&[]).await;
    });
}
