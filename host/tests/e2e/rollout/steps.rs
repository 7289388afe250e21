//! The steps of a rollout, and a host that goes on where another stopped.

use std::sync::Arc;
use std::time::Duration;

use davit::records::Records;
use davit_core::api::ControllerStatus;
use davit_core::api::SpecError;
use davit_core::control::requests::{abort, promote_fully, retry};
use davit_core::control::{Owner, Requests};
use davit_sim::fault::{Action, Fault, Match, When};
use tokio::time::sleep;

use super::{condition, declared, podgc, remembering, resumed};
use crate::bench::{Running, on_the_sim};

const LENIENT: &str = "{terminatedPodThreshold: 100, quarantine: 24h, period: 1s}";
const OTHER: &str = "{terminatedPodThreshold: 90, quarantine: 24h, period: 1s}";

#[test]
fn a_step_without_decisions_is_inconclusive() {
    on_the_sim(|bench| async move {
        let rollout = "{steps: [shadow 1m]}";
        let host = declared(&bench, &podgc(LENIENT, rollout)).await;
        host.declare(&podgc(OTHER, rollout), 2).await;
        sleep(Duration::from_secs(3600)).await;
        let candidate = host.status().await.candidate.unwrap();
        assert_eq!(candidate.step, 1);
        assert_eq!(
            candidate.waits_for,
            "inconclusive: 0 of 10 targets compared"
        );
    });
}

#[test]
fn without_steps_another_revision_takes_over_at_once() {
    on_the_sim(|bench| async move {
        for number in 0..4 {
            bench.pod(&format!("p-{number}"), "", "Failed").await;
        }
        let host = declared(&bench, &podgc(LENIENT, "{}")).await;
        let first = host.until_status(|status| status.stable.is_some()).await;
        let strict = "{terminatedPodThreshold: 1, quarantine: 24h, period: 1s}";
        host.declare(&podgc(strict, "{}"), 2).await;
        bench.until_left(&["p-3"]).await;
        let second = host.status().await;
        assert_ne!(
            second.stable.unwrap().revision,
            first.stable.unwrap().revision
        );
        assert_eq!(second.candidate, None);
    });
}

const THREE: &str = "{steps: [shadow 2m, weight 10 for 2m, weight 50 for 2m], \
                     analysis: {minDecisions: 0}}";

#[test]
fn a_restart_in_the_middle_of_a_step() {
    on_the_sim(|bench| async move {
        let records = Arc::new(Records::memory());
        let host = resumed(&bench, &records, &podgc(LENIENT, THREE), 1).await;
        host.declare(&podgc(OTHER, THREE), 2).await;
        let stable = host.until_candidate(|one| one.step == 1).await.revision;
        host.until_candidate(|one| one.step == 2 && one.elapsed_seconds >= 50)
            .await;
        host.host.stop().await;
        // Nobody watches for an hour: that is no time of the step.
        sleep(Duration::from_secs(3600)).await;
        let host = resumed(&bench, &records, &podgc(OTHER, THREE), 2).await;
        sleep(Duration::from_secs(20)).await;
        let candidate = host.status().await.candidate.unwrap();
        assert_eq!((candidate.step, &candidate.revision), (2, &stable));
        assert!(
            (50..=90).contains(&candidate.elapsed_seconds),
            "{candidate:?}"
        );
        sleep(Duration::from_secs(25)).await;
        assert_eq!(
            host.status().await.candidate.unwrap().step,
            2,
            "not too early"
        );
        host.until_candidate(|one| one.step == 3).await;
        host.host.stop().await;
        let host = resumed(&bench, &records, &podgc(OTHER, THREE), 2).await;
        let status = host.until_status(|status| status.candidate.is_none()).await;
        assert_eq!(status.stable.unwrap().revision, stable);
    });
}

#[test]
fn a_pause_stops_the_time_of_a_step() {
    on_the_sim(|bench| async move {
        let paused = THREE.replace("{steps", "{paused: true, steps");
        let host = declared(&bench, &podgc(LENIENT, THREE)).await;
        host.declare(&podgc(OTHER, &paused), 2).await;
        sleep(Duration::from_secs(600)).await;
        let candidate = host.status().await.candidate.unwrap();
        assert_eq!((candidate.step, candidate.elapsed_seconds), (1, 0));
        assert_eq!(candidate.waits_for, "paused by an operator");
        host.declare(&podgc(OTHER, THREE), 3).await;
        host.until_candidate(|one| one.step == 2).await;
    });
}

#[test]
fn the_former_spec_ends_a_rollout() {
    on_the_sim(|bench| async move {
        let host = declared(&bench, &podgc(LENIENT, THREE)).await;
        let before = host.until_status(|status| status.stable.is_some()).await;
        host.declare(&podgc(OTHER, THREE), 2).await;
        host.until_candidate(|one| one.step == 1).await;
        host.declare(&podgc(LENIENT, THREE), 3).await;
        let after = host.until_status(|status| status.candidate.is_none()).await;
        assert_eq!((after.stable, after.rejected), (before.stable, None));
    });
}

/// Keeps one finished pod.
const STRICT: &str = "{terminatedPodThreshold: 1, quarantine: 24h, period: 1s}";

/// Between two looks at a spec, what the former one described is no answer to
/// the present one.
#[test]
fn the_former_spec_without_steps_ends_a_rollout_too() {
    on_the_sim(|bench| async move {
        for number in 0..4 {
            bench.pod(&format!("p-{number}"), "", "Failed").await;
        }
        let host = declared(&bench, &podgc(LENIENT, THREE)).await;
        let before = host.until_status(|status| status.stable.is_some()).await;
        host.declare(&podgc(STRICT, THREE), 2).await;
        host.until_candidate(|one| one.step == 1).await;
        host.declare(&podgc(LENIENT, "{}"), 3).await;
        assert_eq!(host.status().await.stable, before.stable);
        let after = host.until_status(|status| status.candidate.is_none()).await;
        assert_eq!((after.stable, after.rejected), (before.stable, None));
        assert_eq!(bench.pods().await.len(), 4);
    });
}

/// Annotations stay: what was asked of one trial says nothing of the next one.
#[test]
fn what_was_asked_of_a_trial_says_nothing_of_the_next_one() {
    on_the_sim(|bench| async move {
        let steps = "{steps: [shadow until promoted, weight 50 until promoted]}";
        let other = podgc(OTHER, steps);
        let host = declared(&bench, &podgc(LENIENT, steps)).await;
        host.declare(&other, 2).await;
        let first = host.until_candidate(|one| one.step == 1).await;
        let mut asked = Requests {
            abort: Some(abort(&first)),
            ..Requests::default()
        };
        host.request(&other, 2, asked.clone()).await;
        let status = host.until_status(|status| status.rejected.is_some()).await;
        asked.retry = Some(retry(&status.rejected.unwrap()));
        host.request(&other, 2, asked.clone()).await;
        let second = host.until_candidate(|one| one.step == 1).await;
        assert_eq!(second.revision, first.revision);
        assert_ne!(second.since, first.since);
        sleep(Duration::from_secs(60)).await;
        assert_eq!(host.status().await.candidate.unwrap().since, second.since);

        asked.promote = Some(promote_fully(&second));
        host.request(&other, 2, asked.clone()).await;
        host.until_status(|status| status.candidate.is_none()).await;
        host.request(&podgc(LENIENT, "{}"), 3, asked.clone()).await;
        let is_other = |status: &ControllerStatus| {
            status.stable.as_ref().map(|stable| &stable.revision) == Some(&second.revision)
        };
        host.until_status(|status| !is_other(status)).await;
        host.request(&other, 4, asked).await;
        host.until_candidate(|one| one.step == 1).await;
        sleep(Duration::from_secs(60)).await;
        let status = host.status().await;
        assert!(!is_other(&status));
        assert_eq!(status.candidate.unwrap().step, 1);
    });
}

/// What the spec describes by now cannot be had: the candidate that it
/// described before stays as it is, and gets no further.
#[test]
fn a_candidate_that_is_not_asked_for_any_more_gets_no_further() {
    on_the_sim(|bench| async move {
        let host = declared(&bench, &podgc(LENIENT, THREE)).await;
        let before = host.until_status(|status| status.stable.is_some()).await;
        host.declare(&podgc(OTHER, THREE), 2).await;
        let candidate = host.until_candidate(|one| one.step == 1).await;
        let broken = podgc(LENIENT, THREE).replace("{builtin: podgc}", "{file: /not/there.wasm}");
        let promote = Requests {
            promote: Some(promote_fully(&candidate)),
            ..Requests::default()
        };
        host.request(&broken, 3, promote).await;
        sleep(Duration::from_secs(3600)).await;
        let status = host.status().await;
        assert_eq!(status.stable, before.stable);
        let held = status.candidate.unwrap();
        assert_eq!((held.revision, held.step), (candidate.revision, 1));
        assert_eq!(
            held.waits_for,
            "the host is loading the revision that the spec describes"
        );
        // It is asked for again, and goes on.
        host.declare(&podgc(OTHER, THREE), 4).await;
        host.until_candidate(|one| one.step == 2).await;
    });
}

/// How a controller may run is said by its spec alone: former ones say what it
/// was made of.
#[test]
fn nothing_runs_after_a_restart_with_a_spec_that_makes_no_sense() {
    on_the_sim(|bench| async move {
        let eager = |rollout: &str| podgc("{quarantine: 1s, period: 1s}", rollout);
        let disabled = eager(THREE).replace("Enforce", "Disabled");
        let records = Arc::new(Records::memory());
        let host = resumed(&bench, &records, &eager(THREE), 1).await;
        let before = host.until_status(|status| status.stable.is_some()).await;
        host.declare(&disabled, 2).await;
        let other = disabled.replace("1s, period", "2s, period");
        host.declare(&other, 3).await;
        let candidate = host.until_candidate(|one| one.step == 1).await;
        host.host.stop().await;

        let host = Running::start_with(bench.client(), remembering(&records));
        let nonsense = SpecError {
            field: "mode".into(),
            reason: "unknown variant `Sometimes`".into(),
        };
        host.declare_nonsense(nonsense, 4).await;
        bench.pod("orphan", "missing", "Running").await;
        let status = host
            .until_status(|one| condition(one, "Configured").1 == "InvalidSpec")
            .await;
        let message = condition(&status, "Configured").2;
        assert!(message.contains("Sometimes"), "{message}");
        assert!(message.contains("nothing runs until"), "{message}");
        sleep(Duration::from_secs(600)).await;
        assert_eq!(bench.pods().await.len(), 1);
        let status = host.status().await;
        assert_eq!(status.stable, before.stable);
        assert_eq!(status.candidate, Some(candidate.clone()));
        // It makes sense again, and everything goes on.
        host.declare(&other.replace("Disabled", "Enforce"), 5).await;
        bench.until_left(&[]).await;
        let again = host.until_candidate(|one| one.step == 2).await;
        assert_eq!(again.since, candidate.since);
    });
}

/// A revision that is to take over still waits for its watches: a candidate is
/// not judged beside the one that it replaces.
#[test]
fn a_candidate_is_judged_beside_the_stable_revision_alone() {
    on_the_sim(|bench| async move {
        let away = bench.sim().add_fault(Fault {
            matches: Match::new("", "leases"),
            when: When::Always,
            action: Action::CloseBefore,
        });
        let host = declared(&bench, &podgc(LENIENT, "{}")).await;
        let first = host.until_status(|status| status.stable.is_some()).await;
        let waiting = podgc("{}", "{}").replace("builtin: podgc", "builtin: storage-version-gc");
        host.declare(&waiting, 2).await;
        let second = host.until_status(|one| one.stable != first.stable).await;
        host.declare(&podgc(OTHER, THREE), 3).await;
        host.until_candidate(|one| one.step == 1).await;
        sleep(Duration::from_secs(1200)).await;
        let status = host.status().await;
        assert_eq!(status.stable, second.stable);
        let candidate = status.candidate.unwrap();
        assert_eq!((candidate.step, candidate.elapsed_seconds), (1, 0));
        bench.sim().heal(away);
        host.until_candidate(|one| one.step == 2).await;
    });
}

/// A candidate without steps takes over, if nobody and nothing says no.
#[test]
fn taking_the_steps_away_passes_over_no_abort_and_no_pause() {
    on_the_sim(|bench| async move {
        let paused = "{paused: true}";
        let steps = "{steps: [weight 30 until promoted]}";
        let host = declared(&bench, &podgc(LENIENT, steps)).await;
        let before = host.until_status(|status| status.stable.is_some()).await;
        host.declare(&podgc(OTHER, steps), 2).await;
        let candidate = host.until_candidate(|one| one.step == 1).await;
        host.declare(&podgc(OTHER, paused), 3).await;
        let held = host
            .until_candidate(|one| one.waits_for == "paused by an operator")
            .await;
        assert_eq!((held.step, held.weight), (1, 30), "it keeps its share");
        let asked = Requests {
            abort: Some(abort(&candidate)),
            ..Requests::default()
        };
        host.request(&podgc(OTHER, "{}"), 4, asked).await;
        let status = host.until_status(|status| status.candidate.is_none()).await;
        assert_eq!(status.stable, before.stable);
        assert_eq!(
            status.rejected.unwrap().reason,
            "an operator aborted the rollout"
        );

        host.declare(&podgc(STRICT, steps), 5).await;
        let candidate = host.until_candidate(|one| one.step == 1).await;
        host.declare(&podgc(STRICT, "{}"), 6).await;
        let status = host.until_status(|status| status.candidate.is_none()).await;
        let stable = status.stable.unwrap();
        assert_eq!(stable.revision, candidate.revision);

        // A rollback knows which of them were ever stable.
        let history = host.records.history(&Owner::named("podgc")).await.unwrap();
        let since: Vec<_> = history.into_iter().map(|kept| kept.stable_since).collect();
        assert_eq!(
            since,
            [Some(stable.since), None, Some(before.stable.unwrap().since)]
        );
    });
}
