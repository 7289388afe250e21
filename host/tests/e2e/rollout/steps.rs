//! The steps of a rollout, and a host that goes on where another stopped.

use std::sync::Arc;
use std::time::Duration;

use davit::rollout::declared::{abort, promote_fully, retry};
use davit::rollout::{Records, Requests};
use davit::status::ControllerStatus;
use tokio::time::sleep;

use super::{declared, podgc, resumed};
use crate::bench::on_the_sim;

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
            "inconclusive: 0 targets were compared, and it takes 10"
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
        assert_eq!(held.waits_for, "what the spec describes by now");
        // It is asked for again, and goes on.
        host.declare(&podgc(OTHER, THREE), 4).await;
        host.until_candidate(|one| one.step == 2).await;
    });
}
