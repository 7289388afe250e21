//! Requests of operators, and the host's answers.

use std::time::Duration;

use davit::commands::answer::NoAnswer;
use davit::commands::requests;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::cluster::{Cluster, spec};
use crate::program::Site;

const STEPS: [&str; 2] = ["shadow until promoted", "weight 50 until promoted"];
const AT: &str = "2026-11-20T10:00:00.000Z";

/// A Controller with a candidate, whose host has ended.
fn without_host() -> Site {
    let site = Site::new();
    site.podgc(1, &STEPS);
    let revision =
        json!({"revision": "aaaa", "digest": "sha256:1", "configHash": "1", "since": AT});
    let candidate = json!({
        "revision": "bbbb", "digest": "sha256:1", "configHash": "2", "since": AT,
        "step": 1, "steps": 2, "stepText": "shadow until promoted", "weight": 0,
        "elapsedSeconds": 0, "waitsFor": "", "comparison": {},
    });
    let tripped = json!([{"guardrail": "deletesPerMinute", "limit": 5, "since": AT}]);
    site.change_status(&json!({
        "stable": revision, "candidate": candidate, "tripped": tripped,
    }));
    site
}

#[test]
fn a_request_that_no_host_answers_is_not_reported_as_done() {
    let site = without_host();
    for arguments in [
        ["promote", "podgc"].as_slice(),
        &["promote", "--full", "podgc"],
        &["abort", "podgc"],
        &["reset", "podgc"],
        &["pause", "podgc"],
        &["resume", "podgc"],
        &["stop", "podgc"],
        &["start", "--all"],
    ] {
        let output = site.davit(&[arguments, &["--wait=1s"]].concat());
        assert_eq!(output.code, 3, "{arguments:?}: {output:?}");
        assert_eq!(output.out, "", "{arguments:?}");
        assert!(
            output
                .err
                .contains("requested, no host has answered within 1s"),
            "{arguments:?}: {output:?}"
        );
        assert!(output.err.contains("podgc"), "{output:?}");
    }
}

#[test]
fn stop_disables_every_controller_without_a_host_and_start_restores_their_modes() {
    let site = Site::new();
    site.podgc(1, &STEPS);
    site.change(json!({"spec": {"mode": "Enforce"}}));
    let output = site.davit(&["stop", "--all", "--wait=1s"]);
    assert_eq!(output.code, 3, "{output:?}");
    assert!(output.err.contains("--replicas=0"), "{output:?}");
    assert_eq!(site.get()["spec"]["mode"], "Disabled");
    // A second stop does not forget the former mode.
    site.must(&["stop", "podgc", "--wait=0"]);
    site.must(&["start", "--all", "--wait=0"]);
    let controller = site.get();
    assert_eq!(controller["spec"]["mode"], "Enforce");
    let annotations = &controller["metadata"]["annotations"];
    assert!(annotations["davit.dev/stopped-mode"].is_null());
    let output = site.davit(&["start", "podgc"]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.err.contains("has not stopped it"), "{output:?}");
    let output = site.davit(&["stop", "podgc", "gone"]);
    assert_eq!(output.code, 1, "{output:?}");
    let refusal = "no controller is changed: the Controller gone ";
    assert!(output.err.contains(refusal), "{output:?}");
    assert_eq!(
        site.get()["spec"]["mode"],
        "Enforce",
        "nothing is half done"
    );
    let output = site.davit(&["stop"]);
    assert_eq!(output.code, 2, "{output:?}");
}

#[test]
fn a_host_confirms_a_stop() {
    let (site, _host) = Site::with_host(&STEPS);
    let out = site.must(&["stop", "--all"]);
    assert!(out.contains("podgc: Disabled (was "), "{out}");
    site.until("it is disabled", |status| status["summary"] == "Disabled");
    let out = site.must(&["start", "podgc"]);
    assert!(out.contains("again"), "{out}");
}

#[test]
fn with_wait_0_the_command_reports_the_request_and_succeeds() {
    let site = without_host();
    let output = site.davit(&["abort", "podgc", "--wait=0"]);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.out.contains("requested"), "{output:?}");
    let annotation = site.get()["metadata"]["annotations"]["davit.dev/abort"].clone();
    let annotation = annotation.as_str().unwrap().to_owned();
    assert!(
        annotation.starts_with(&format!("bbbb@{AT}")),
        "{annotation}"
    );
}

#[test]
fn promote_pause_resume_abort_and_retry_take_effect_and_stale_requests_do_not() {
    let (site, _host) = Site::with_host(&STEPS);
    let candidate = site.start_rollout(2);

    let out = site.must(&["promote", "podgc"]);
    assert!(out.contains("step 2 of 2"), "{out}");
    assert_eq!(site.get()["status"]["candidate"]["step"], 2);

    // The host refuses a request about a former step.
    let since = site.get()["status"]["candidate"]["since"].clone();
    let stale = format!("{candidate}@{}/1", since.as_str().unwrap());
    let annotations = json!({"davit.dev/promote": stale});
    site.change(json!({"metadata": {"annotations": annotations}}));
    let status = site.until("it is refused", |status| {
        answer(status, "promote")["value"] == json!(stale)
    });
    let refused = answer(&status, "promote");
    assert_eq!(refused["result"], "Refused", "{refused}");
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("step 2"), "{message}");
    assert_eq!(status["candidate"]["step"], 2);

    let out = site.must(&["pause", "podgc"]);
    assert!(out.contains("paused"), "{out}");
    site.must(&["resume", "podgc"]);

    let out = site.must(&["abort", "podgc"]);
    assert!(out.contains(&candidate), "{out}");
    assert_eq!(
        site.get()["status"]["rejected"]["revision"],
        json!(candidate)
    );

    // Only a retry starts the rollout of a rejected revision again.
    let output = site.davit(&["resume", "podgc"]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.err.contains("davit retry podgc"), "{output:?}");
    let out = site.must(&["retry", "podgc"]);
    assert!(out.contains("step 1 of 2"), "{out}");
    assert_eq!(
        site.get()["status"]["candidate"]["revision"],
        json!(candidate)
    );

    let out = site.must(&["promote", "--full", "podgc"]);
    assert!(out.contains("stable"), "{out}");
    assert_eq!(site.get()["status"]["stable"]["revision"], json!(candidate));
}

/// A repeated request is another request: the former answer is not its answer.
#[test]
fn a_former_answer_does_not_answer_a_new_request() {
    let site = without_host();
    let output = site.davit(&["abort", "podgc", "--wait=0"]);
    assert_eq!(output.code, 0, "{output:?}");
    let requested = &site.get()["metadata"]["annotations"]["davit.dev/abort"];
    site.change_status(&json!({"requests": [{
        "request": "abort", "value": requested, "result": "Done", "message": "done before", "at": AT,
    }]}));
    let output = site.davit(&["abort", "podgc", "--wait=1s"]);
    assert_eq!(output.code, 3, "{output:?}");
}

#[test]
fn a_rollback_with_now_makes_the_revision_stable_without_steps() {
    let (site, _host) = Site::with_host(&STEPS);
    let first = site.get()["status"]["stable"]["revision"].clone();
    let second = site.start_rollout(2);
    site.must(&["promote", "--full", "podgc"]);

    let out = site.must(&["rollback", "podgc"]);
    assert!(out.contains("number 1 again"), "{out}");
    site.until("the rollout starts", |status| {
        status["candidate"]["revision"] == first
    });
    let out = site.must(&["rollback", "podgc", "--to=3", "--now"]);
    assert!(out.contains("is the stable revision"), "{out}");
    let status = site.get()["status"].clone();
    assert_eq!(status["stable"]["revision"], first);
    assert_eq!(status["candidate"], Value::Null);

    // Each further rollback is a request of its own.
    let out = site.must(&["rollback", "podgc", "--now"]);
    assert!(out.contains(&second), "{out}");
    assert_eq!(site.get()["status"]["stable"]["revision"], json!(second));
    assert_eq!(site.get()["status"]["candidate"], Value::Null);
}

/// Aborts against a simulated host, which changes the Controller after the request.
async fn abort_against(then: impl Fn(&str) -> Value + Send + 'static) -> anyhow::Result<String> {
    let cluster = Cluster::new();
    cluster.create("podgc", spec(1)).await.unwrap();
    let candidate = json!({
        "revision": "bbbb", "digest": "sha256:1", "configHash": "2", "since": AT,
        "step": 1, "steps": 2, "stepText": "shadow until promoted", "weight": 0,
        "elapsedSeconds": 0, "waitsFor": "", "comparison": {},
    });
    cluster.change("podgc", json!({"status": {"candidate": candidate}}));
    let client = cluster.client.clone();
    let host = async {
        loop {
            let annotation = &cluster.get("podgc")["metadata"]["annotations"]["davit.dev/abort"];
            if let Some(value) = annotation.as_str() {
                cluster.change("podgc", then(value));
                break;
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    let requested = requests::abort(&client, "podgc", Duration::from_secs(2));
    tokio::join!(requested, host).0
}

fn answered(value: &str, result: &str, message: &str) -> Value {
    json!({"status": {"requests": [{
        "request": "abort", "value": value, "result": result, "message": message, "at": AT,
    }]}})
}

#[tokio::test]
async fn a_refused_request_is_an_error_with_the_reason() {
    let refuse = |value: &str| answered(value, "Refused", "the candidate is cccc");
    let error = abort_against(refuse).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "podgc: the host refused to roll the candidate bbbb back: the candidate is cccc; davit \
         get podgc shows the rollout"
    );
    assert!(error.downcast_ref::<NoAnswer>().is_none());
}

#[tokio::test]
async fn a_pending_request_is_not_reported_as_done() {
    let wait = |value: &str| answered(value, "Pending", "the module is away");
    let error = abort_against(wait).await.unwrap_err();
    assert!(error.downcast_ref::<NoAnswer>().is_some(), "{error}");
    assert!(error.to_string().contains("the module is away"), "{error}");
}

/// Two operators make the same request: one annotation remains, and one answer.
#[tokio::test]
async fn the_answer_to_the_same_request_of_another_operator_is_the_answer() {
    let other = |value: &str| {
        let (subject, _) = value.split_once('#').unwrap();
        let theirs = format!("{subject}#theirs");
        let mut change = answered(&theirs, "Done", "it was rolled back");
        change["metadata"] = json!({"annotations": {"davit.dev/abort": theirs}});
        change
    };
    assert_eq!(
        abort_against(other).await.unwrap(),
        "podgc: it was rolled back"
    );
}

/// Another operator replaced the request with a different one.
#[tokio::test]
async fn a_replaced_request_is_not_reported_as_done() {
    let other = |_: &str| {
        let theirs = format!("dddd@{AT}#theirs");
        let mut change = answered(&theirs, "Done", "it was rolled back");
        change["metadata"] = json!({"annotations": {"davit.dev/abort": theirs}});
        change
    };
    let error = abort_against(other).await.unwrap_err();
    assert!(error.downcast_ref::<NoAnswer>().is_some(), "{error}");
    assert!(error.to_string().contains("somebody else"), "{error}");
}

fn answer(status: &Value, request: &str) -> Value {
    let all = status["requests"].as_array().cloned().unwrap_or_default();
    let found = all.into_iter().find(|one| one["request"] == request);
    found.unwrap_or_default()
}
