//! Changes of the configuration while the host runs.

use std::time::Duration;

use davit::loader::ControllerLoadError;
use davit_sim::fault::Match;
use tokio::time::sleep;

use crate::bench::{RunningHost, builtin_guest, on_the_sim, parse, podgc};

/// Why a host refuses a configuration.
pub(crate) async fn refused(host: &RunningHost, config: &str) -> String {
    let controllers = parse(config).controllers.unwrap();
    let error: ControllerLoadError = host.host.apply(&controllers).await.unwrap_err();
    format!("{:#}", anyhow::Error::new(error))
}

#[test]
fn a_threshold_changes_without_a_restart() {
    on_the_sim(|bench| async move {
        for number in 0..6 {
            bench.pod(&format!("p-{number}"), "", "Succeeded").await;
        }
        let config = |threshold| format!("{{terminatedPodThreshold: {threshold}, period: 1h}}");
        let mut host = bench.host(&podgc("Enforce", &config(4))).await;
        bench.until_left(&["p-2", "p-3", "p-4", "p-5"]).await;
        let lists = bench.sim().count(&Match::new("list", "pods"));
        host.apply(&podgc("Enforce", &config(1))).await;
        host.started().await;
        bench.until_left(&["p-5"]).await;
        // The watches continued: the test's own list is the only new one.
        let watches = bench.sim().count(&Match::new("watch", "pods"));
        assert_eq!(watches, 1, "{lists} lists before");
    });
}

#[test]
fn a_dry_run_is_switched_to_enforce_and_back() {
    on_the_sim(|bench| async move {
        let config = "{terminatedPodThreshold: 1, period: 1h}";
        for number in 0..3 {
            bench.pod(&format!("p-{number}"), "", "Failed").await;
        }
        let host = bench.host(&podgc("DryRun", config)).await;
        sleep(Duration::from_secs(5)).await;
        assert_eq!(bench.pods().await.len(), 3);
        host.apply(&podgc("Enforce", config)).await;
        bench.until_left(&["p-2"]).await;
        host.apply(&podgc("DryRun", config)).await;
        bench.pod("p-3", "", "Failed").await;
        sleep(Duration::from_secs(7200)).await;
        assert_eq!(bench.pods().await.len(), 2);
    });
}

/// The quarantine is the controller's, not the revision's: a change of the
/// configuration does not start it again.
#[test]
fn a_swap_keeps_timers() {
    on_the_sim(|bench| async move {
        bench.pod("orphan", "missing", "Running").await;
        let host = bench.host(&podgc("Enforce", "{}")).await;
        sleep(Duration::from_secs(30)).await;
        host.apply(&podgc("Enforce", "{maxParallelDeletes: 7}"))
            .await;
        sleep(Duration::from_millis(9_800)).await;
        bench.until_left(&["orphan"]).await;
        sleep(Duration::from_millis(400)).await;
        assert!(bench.pods().await.is_empty());
    });
}

#[test]
fn an_invalid_configuration_changes_nothing_and_the_log_names_the_error() {
    on_the_sim(|bench| async move {
        let host = bench
            .host(&podgc("Enforce", "{terminatedPodThreshold: 1, period: 1s}"))
            .await;
        let unknown = refused(&host, &podgc("Enforce", "{treshold: 1}")).await;
        assert!(unknown.contains("podgc"), "{unknown}");
        assert!(unknown.contains("treshold"), "{unknown}");
        let invalid = refused(&host, &podgc("Enforce", "{period: 0s}")).await;
        assert!(invalid.contains("period"), "{invalid}");
        let missing = "controllers: [{name: x, module: {builtin: nothing}}]";
        let missing = refused(&host, missing).await;
        assert!(missing.contains("nothing.wasm"), "{missing}");
        let digest = "0123456789abcdef".repeat(4);
        let pinned = "controllers: [{name: x, module: {builtin: podgc, digest: \"sha256:";
        let other = refused(&host, &format!("{pinned}{digest}\"}}}}]")).await;
        assert!(other.contains("digest pins"), "{other}");
        // The first configuration still runs.
        for name in ["a", "b"] {
            bench.pod(name, "", "Failed").await;
        }
        bench.until_left(&["b"]).await;
    });
}

/// A module that cannot be loaded affects only its own controller.
#[test]
fn an_unavailable_source_delays_no_other_controller() {
    on_the_sim(|bench| async move {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("mine.wasm");
        let eager = "{terminatedPodThreshold: 1, period: 1s}";
        let both = |mode: &str, module: &str| {
            format!(
                "{}- name: other\n  module: {module}\n  mode: DryRun\n",
                podgc(mode, eager)
            )
        };
        let away = format!("{{file: {}}}", file.display());
        let mut host = bench.host(&podgc("Enforce", eager)).await;
        host.apply(&both("Disabled", &away)).await;
        for name in ["a", "b"] {
            bench.pod(name, "", "Failed").await;
        }
        sleep(Duration::from_secs(10)).await;
        assert_eq!(bench.pods().await.len(), 2, "it is disabled");

        // The controller starts as soon as its module is available.
        std::fs::copy(builtin_guest("podgc"), &file).unwrap();
        host.started().await;
        // The same while it runs, and its next module is unavailable.
        let gone = directory.path().join("gone.wasm");
        host.apply(&both("Enforce", &format!("{{file: {}}}", gone.display())))
            .await;
        bench.until_left(&["b"]).await;
    });
}

#[test]
fn a_removed_controller_stops_and_its_watches_with_it() {
    on_the_sim(|bench| async move {
        let config = "{terminatedPodThreshold: 1, period: 1s}";
        let host = bench.host(&podgc("Enforce", config)).await;
        sleep(Duration::from_secs(2)).await;
        assert!(bench.sim().open_watches() > 0);
        host.apply("controllers: []").await;
        sleep(Duration::from_secs(2)).await;
        assert_eq!(bench.sim().open_watches(), 0);
        for name in ["a", "b"] {
            bench.pod(name, "", "Failed").await;
        }
        sleep(Duration::from_secs(10)).await;
        assert_eq!(bench.pods().await.len(), 2);
    });
}

/// Two controllers of one guest share the streams and the bytes.
#[test]
fn two_controllers_share_their_streams() {
    on_the_sim(|bench| async move {
        let two = "controllers:\n\
            - {name: one, module: {builtin: podgc}, mode: DryRun}\n\
            - {name: two, module: {builtin: podgc}, mode: Enforce}\n";
        let mut host = bench.host(two).await;
        host.started().await;
        bench.pod("orphan", "missing", "Running").await;
        bench.until_left(&[]).await;
        // Pods and nodes, once each.
        assert_eq!(bench.sim().open_watches(), 2);
    });
}

#[test]
fn a_guardrail_limits_whatever_the_guest_decides() {
    on_the_sim(|bench| async move {
        for number in 0..10 {
            bench.pod(&format!("p-{number}"), "", "Failed").await;
        }
        let config = "controllers:\n\
            - name: podgc\n  module: {builtin: podgc}\n  mode: Enforce\n  \
              config: {terminatedPodThreshold: 1, period: 1s}\n  \
              guardrails: {deletesPerMinute: 3}\n";
        let _host = bench.host(config).await;
        sleep(Duration::from_secs(290)).await;
        assert_eq!(bench.pods().await.len(), 7, "for the whole cooldown");
        sleep(Duration::from_secs(20)).await;
        assert_eq!(bench.pods().await.len(), 4);
    });
}
