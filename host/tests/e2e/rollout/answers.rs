//! What becomes of requests: each is answered once, and the answer holds.

use std::sync::Arc;
use std::time::Duration;

use davit::records::Records;
use davit_core::api::{ControllerStatus, RequestResult, RequestStatus};
use davit_core::control::requests::{abort, promote_fully, promote_step, retry, swap};
use davit_core::control::{Owner, Record, Requests};
use tokio::time::sleep;

use super::{declared, podgc, remembering, resumed};
use crate::bench::{Running, on_the_sim};

const LENIENT: &str = "{terminatedPodThreshold: 100, quarantine: 24h, period: 1s}";
const STRICT: &str = "{terminatedPodThreshold: 2, quarantine: 24h, period: 1s}";
const BY_HAND: &str = "{steps: [shadow until promoted, weight 100 until promoted]}";

fn answer(status: &ControllerStatus, request: &str) -> Option<RequestStatus> {
    let mut answers = status.requests.iter();
    answers.find(|one| one.request == request).cloned()
}

fn promote(value: String) -> Requests {
    Requests {
        promote: Some(value),
        ..Requests::default()
    }
}

impl Running {
    async fn until_answered(&self, request: &str, value: &str) -> RequestStatus {
        let status = self.until_status(|status| {
            answer(status, request).is_some_and(|answer| answer.value == value)
        });
        answer(&status.await, request).unwrap()
    }
}

/// An operator who was told no is not surprised by a late yes.
#[test]
fn a_refused_request_stays_without_effect() {
    on_the_sim(|bench| async move {
        let steps = "{steps: [shadow 5m, shadow until promoted, weight 100 until promoted], \
                     analysis: {minDecisions: 0}}";
        let host = declared(&bench, &podgc(LENIENT, steps)).await;
        host.declare(&podgc(STRICT, steps), 2).await;
        let first = host.until_candidate(|candidate| candidate.step == 1).await;
        let next = promote_step(&davit_core::api::CandidateStatus {
            step: 2,
            ..first.clone()
        });
        let config = podgc(STRICT, steps);
        host.request(&config, 2, promote(next.clone())).await;
        let refused = host.until_answered("promote", &next).await;
        assert_eq!(refused.result, RequestResult::Refused);
        assert!(refused.message.contains("step 1 of 3"), "{refused:?}");

        host.until_candidate(|candidate| candidate.step == 2).await;
        sleep(Duration::from_secs(60)).await;
        let status = host.status().await;
        assert_eq!(status.candidate.unwrap().step, 2);
        assert_eq!(status.requests, [refused]);

        // Asked once more, it is another request, and fits.
        let again = format!("{next}#again");
        host.request(&config, 2, promote(again.clone())).await;
        let done = host.until_answered("promote", &again).await;
        assert_eq!(done.result, RequestResult::Done);
        assert!(done.message.contains("step 3 of 3"), "{done:?}");
        assert_eq!(host.status().await.candidate.unwrap().step, 3);

        // Whoever takes the annotation away has read the answer.
        host.declare(&config, 2).await;
        host.until_status(|status| status.requests.is_empty()).await;
    });
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    on_the_sim(|bench| async move {
        let config = podgc(LENIENT, "{}");
        let host = declared(&bench, &config).await;
        let all = Requests {
            promote: Some("yes".into()),
            abort: Some("now".into()),
            abandon: Some("aaaa@then".into()),
            retry: Some("aaaa@2026-11-20T10:00:00.000Z".into()),
            reset: Some("2026-11-20T10:00:00.000Z".into()),
            swap: Some("aaaa@7".into()),
        };
        host.request(&config, 1, all).await;
        let status = host.until_status(|status| status.requests.len() == 6).await;
        for (request, part) in [
            (
                "promote",
                "has to be REVISION@SINCE/STEP or REVISION@SINCE/all",
            ),
            ("abort", "has to be REVISION@SINCE"),
            ("abandon", "has to be REVISION@SINCE"),
            ("retry", "no revision is rejected"),
            ("reset", "no guardrail is tripped"),
            ("swap", "generation 1, not 7"),
        ] {
            let answer = answer(&status, request).unwrap();
            assert_eq!(answer.result, RequestResult::Refused, "{answer:?}");
            assert!(answer.message.contains(part), "{answer:?}");
        }
    });
}

/// The host ends after an abort, and the annotation is still there: the next
/// host does not answer it anew.
#[test]
fn an_answer_outlives_the_host() {
    on_the_sim(|bench| async move {
        let records = Arc::new(Records::memory());
        let host = resumed(&bench, &records, &podgc(LENIENT, BY_HAND), 1).await;
        let config = podgc(STRICT, BY_HAND);
        host.declare(&config, 2).await;
        let candidate = host.until_candidate(|candidate| candidate.step == 1).await;
        let value = abort(&candidate);
        let request = Requests {
            abort: Some(value.clone()),
            ..Requests::default()
        };
        host.request(&config, 2, request.clone()).await;
        let done = host.until_answered("abort", &value).await;
        assert_eq!(done.result, RequestResult::Done);
        let rejected = host.status().await.rejected.unwrap();
        assert_eq!(rejected.revision, candidate.revision);
        host.host.stop().await;

        let host = Running::start_with(bench.client(), remembering(&records));
        let again = Requests {
            retry: Some(retry(&rejected)),
            ..request
        };
        host.request(&config, 2, again).await;
        host.until_candidate(|candidate| candidate.step == 1).await;
        let tried = host.until_answered("retry", &retry(&rejected)).await;
        assert_eq!(tried.result, RequestResult::Done);
        assert!(tried.message.contains("step 1 of 2"), "{tried:?}");
        // The former abort is not about this trial.
        sleep(Duration::from_secs(10)).await;
        let status = host.status().await;
        assert_eq!(
            status.candidate.as_ref().unwrap().revision,
            candidate.revision
        );
        assert_eq!(answer(&status, "abort"), Some(done));
    });
}

/// What the host cannot do yet stays asked for.
#[test]
fn a_request_waits_for_what_the_spec_describes() {
    on_the_sim(|bench| async move {
        let host = declared(&bench, &podgc(LENIENT, BY_HAND)).await;
        let config = podgc(STRICT, BY_HAND);
        host.declare(&config, 2).await;
        let candidate = host.until_candidate(|candidate| candidate.step == 1).await;
        // The module cannot be fetched any more: what is tried is not what the
        // spec describes.
        let away = config.replace("builtin: podgc", "builtin: nothing");
        let value = promote_fully(&candidate);
        host.request(&away, 3, promote(value.clone())).await;
        let pending = host.until_answered("promote", &value).await;
        assert_eq!(pending.result, RequestResult::Pending);
        let pending = host
            .until_status(|status| {
                answer(status, "promote").is_some_and(|one| one.message.contains("nothing"))
            })
            .await;
        assert!(pending.candidate.is_some());
        host.request(&config, 4, promote(value.clone())).await;
        let done = host
            .until_status(|status| {
                answer(status, "promote").is_some_and(|one| one.result == RequestResult::Done)
            })
            .await;
        assert_eq!(done.stable.unwrap().revision, candidate.revision);
    });
}

/// A rollback without steps: for that spec alone, and also for what was
/// rejected before.
#[test]
fn a_swap_leaves_the_steps_out() {
    on_the_sim(|bench| async move {
        let host = declared(&bench, &podgc(LENIENT, BY_HAND)).await;
        let config = podgc(STRICT, BY_HAND);
        host.declare(&config, 2).await;
        let candidate = host.until_candidate(|candidate| candidate.step == 1).await;
        let revision = &candidate.revision;
        let request = |value: &str| Requests {
            swap: Some(value.to_owned()),
            ..Requests::default()
        };
        let former = swap(revision, 1);
        host.request(&config, 2, request(&former)).await;
        let refused = host.until_answered("swap", &former).await;
        assert_eq!(refused.result, RequestResult::Refused);
        assert!(host.status().await.candidate.is_some());

        let taken_back = Requests {
            abort: Some(abort(&candidate)),
            ..Requests::default()
        };
        host.request(&config, 2, taken_back).await;
        host.until_status(|status| status.rejected.is_some()).await;
        let value = swap(revision, 2);
        host.request(&config, 2, request(&value)).await;
        let done = host.until_answered("swap", &value).await;
        assert_eq!(done.result, RequestResult::Done, "{done:?}");
        let status = host.status().await;
        assert_eq!(&status.stable.as_ref().unwrap().revision, revision);
        assert_eq!((status.candidate, status.rejected), (None, None));

        // The next change of the spec goes through the steps again.
        host.request(&podgc(LENIENT, BY_HAND), 3, request(&value))
            .await;
        host.until_candidate(|candidate| candidate.step == 1).await;
        let status = host.status().await;
        assert_eq!(status.requests, [done], "what is done stays done");
    });
}

/// What resets a trip is not in the status: a host that ends right after its
/// answer leaves the reset to the next one.
#[test]
fn a_reset_is_repeated_by_the_next_host() {
    on_the_sim(|bench| async move {
        for number in 0..7 {
            bench.pod(&format!("p-{number:02}"), "", "Failed").await;
        }
        let guardrails = "{deletesPerMinute: 3, cooldown: until reset}";
        let config = podgc(STRICT, &format!("{{}}\n  guardrails: {guardrails}"));
        let records = Arc::new(Records::memory());
        let host = resumed(&bench, &records, &config, 1).await;
        let status = host.until_status(|status| !status.tripped.is_empty()).await;
        let value = status.last_trip().unwrap().to_owned();
        host.host.stop().await;
        assert_eq!(bench.pods().await.len(), 4);

        let mut crashed = records.status(&Owner::named("podgc")).await.unwrap();
        assert_eq!(crashed.last_trip(), Some(value.as_str()));
        crashed.requests = vec![RequestStatus {
            request: "reset".into(),
            value: value.clone(),
            result: RequestResult::Done,
            message: "the tripped guardrails were reset: deletesPerMinute".into(),
            at: "2026-11-20T10:00:00Z".into(),
        }];
        let crashed = Record::Status(Box::new(crashed));
        let owner = Owner::named("podgc");
        records.write(&owner, crashed).await.unwrap();
        let host = resumed(&bench, &records, &config, 1).await;
        let request = Requests {
            reset: Some(value),
            ..Requests::default()
        };
        host.request(&config, 1, request).await;
        bench.until_left(&["p-05", "p-06"]).await;
    });
}
