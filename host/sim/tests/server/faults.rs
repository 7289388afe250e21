//! Faults: their effects on requests and on watches, and their repeatability.

use std::time::Duration;

use davit_sim::fault::{Action, Fault, FaultTiming, Match, Refusal, WatchFault};
use davit_sim::{ConnectionClosed, Sim};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::support::{call, config_map, send, sim, watch};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn fault(sim: &Sim, verb: &str, when: FaultTiming, action: Action) {
    sim.add_fault(Fault {
        matches: Match::new(verb, "configmaps"),
        when,
        action,
    });
}

#[tokio::test(start_paused = true)]
async fn refusals_have_no_effect_and_say_when_to_retry() {
    let sim = sim();
    for (refusal, code, reason) in [
        (Refusal::Forbidden, 403, "Forbidden"),
        (Refusal::Conflict, 409, "Conflict"),
        (Refusal::Invalid, 422, "Invalid"),
        (Refusal::TooManyRequests(7), 429, "TooManyRequests"),
        (Refusal::InternalError, 500, "InternalError"),
        (Refusal::Unavailable, 503, "ServiceUnavailable"),
    ] {
        fault(&sim, "create", FaultTiming::Nth(1), Action::Refuse(refusal));
        let (status, body) = call(&sim, "POST", MAPS, Some(config_map("a"))).await;
        assert_eq!((status, body["reason"].as_str()), (code, Some(reason)));
        sim.heal_all();
    }
    fault(
        &sim,
        "create",
        FaultTiming::Always,
        Action::Refuse(Refusal::TooManyRequests(7)),
    );
    let response = send(&sim, "POST", MAPS, "application/json", b"{}".to_vec())
        .await
        .unwrap();
    assert_eq!(response.headers()["retry-after"], "7");
    assert!(sim.list("v1", "ConfigMap", "").unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_busy_server_takes_one_request_at_a_time() {
    let sim = sim();
    let second = Duration::from_secs(1);
    fault(&sim, "create", FaultTiming::Always, Action::Busy(second));
    let start = Instant::now();
    let all = ["a", "b", "c"].map(|name| {
        let sim = sim.clone();
        async move {
            let (status, _) = call(&sim, "POST", MAPS, Some(config_map(name))).await;
            (status, start.elapsed())
        }
    });
    let mut all = futures::future::join_all(all).await;
    all.sort_unstable();
    assert_eq!(all, [1, 2, 3].map(|turn| (201, turn * second)));
    // Others do not wait, and nobody waits for what is over.
    call(&sim, "GET", MAPS, None).await;
    assert_eq!(start.elapsed(), 3 * second);
    tokio::time::sleep(second).await;
    call(&sim, "POST", MAPS, Some(config_map("d"))).await;
    assert_eq!(start.elapsed(), 5 * second);
}

/// The body of the API server's validating admission, from its source.
#[tokio::test(start_paused = true)]
async fn an_invalid_request_is_answered_as_an_admission_policy_denies_it() {
    const WHY: &str = "ValidatingAdmissionPolicy 'fault' with binding 'fault' denied request: failed expression: false";
    let sim = sim();
    sim.create(config_map("a")).unwrap();
    let fault = Fault {
        matches: Match::default(),
        when: FaultTiming::Always,
        action: Action::Refuse(Refusal::Invalid),
    };
    sim.add_fault(fault);
    let (code, body) = call(&sim, "DELETE", &format!("{MAPS}/a"), None).await;
    assert_eq!(code, 422);
    let message = format!("configmaps \"a\" is forbidden: {WHY}");
    let details = json!({"name": "a", "kind": "configmaps", "causes": [{"message": WHY}]});
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": "Invalid", "details": details, "code": 422,
    });
    assert_eq!(body, status);
    assert_eq!(sim.list("v1", "ConfigMap", "").unwrap().len(), 1);

    let lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/b";
    let (_, body) = call(&sim, "DELETE", lease, None).await;
    assert_eq!(body["details"]["group"], "coordination.k8s.io");
    let message = format!("leases.coordination.k8s.io \"b\" is forbidden: {WHY}");
    assert_eq!(body["message"], message);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_leaves_its_effect_and_a_lost_request_none() {
    let sim = sim();
    let post = |name: &str| {
        let body = config_map(name).to_string().into_bytes();
        let sim = sim.clone();
        async move { send(&sim, "POST", MAPS, "application/json", body).await }
    };
    fault(&sim, "create", FaultTiming::Nth(1), Action::CloseBefore);
    fault(&sim, "create", FaultTiming::Nth(2), Action::CloseAfter);
    assert_eq!(post("a").await.err(), Some(ConnectionClosed));
    assert_eq!(post("b").await.err(), Some(ConnectionClosed));
    let names: Vec<Value> = sim
        .list("v1", "ConfigMap", "")
        .unwrap()
        .iter()
        .map(|map| map["metadata"]["name"].clone())
        .collect();
    assert_eq!(names, ["b"]);
    let statuses: Vec<u16> = sim.log().iter().map(|served| served.status).collect();
    assert_eq!(statuses, [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_cut_body_breaks_off_and_latency_takes_its_time() {
    let sim = sim();
    sim.create(config_map("a")).unwrap();
    fault(&sim, "get", FaultTiming::Always, Action::CutBody(10));
    fault(
        &sim,
        "get",
        FaultTiming::Always,
        Action::Delay(Duration::from_secs(3)),
    );
    let start = Instant::now();
    let response = send(&sim, "GET", &format!("{MAPS}/a"), "", Vec::new())
        .await
        .unwrap();
    assert_eq!(start.elapsed(), Duration::from_secs(3));
    let mut body = response.into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(first.len(), 10);
    assert_eq!(body.frame().await.unwrap().err(), Some(ConnectionClosed));
}

#[tokio::test(start_paused = true)]
async fn watches_end_break_and_fall_silent() {
    let sim = sim();
    let path = format!("{MAPS}?watch=true");
    let disturb = |fault| sim.disturb(&Match::new("watch", "configmaps"), fault);

    let mut ended = watch(&sim, &path).await;
    assert_eq!(disturb(WatchFault::End), 1);
    assert!(ended.next().await.is_none());
    drop(ended);

    let mut broken = watch(&sim, &path).await;
    disturb(WatchFault::Abort);
    assert_eq!(broken.next().await, Some(Err(ConnectionClosed)));
    drop(broken);

    let mut silent = watch(&sim, &path).await;
    disturb(WatchFault::Silence);
    sim.create(config_map("a")).unwrap();
    let hour = Duration::from_hours(1);
    assert!(timeout(hour, silent.next()).await.is_err());
    assert_eq!(sim.open_watches(), 1);
    drop(silent);
    assert_eq!(sim.open_watches(), 0);
}

/// From a client's view, which always waits for the next event.
#[tokio::test(start_paused = true)]
async fn a_watch_that_is_waited_on_is_disturbed() {
    let sim = sim();
    for (fault, end) in [
        (WatchFault::End, None),
        (WatchFault::Abort, Some(Err(ConnectionClosed))),
    ] {
        let mut watch = watch(&sim, &format!("{MAPS}?watch=true")).await;
        let waiting = tokio::spawn(async move { watch.next().await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!waiting.is_finished());
        let open = sim.disturb(&Match::new("watch", "configmaps"), fault);
        assert_eq!(open, 1);
        let last = timeout(Duration::from_secs(1), waiting).await;
        assert_eq!(last.expect("it ends immediately").unwrap(), end);
    }
}

#[tokio::test(start_paused = true)]
async fn after_an_expiry_the_old_version_is_gone() {
    let sim = sim();
    let created = sim.create(config_map("a")).unwrap();
    let version = created["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{MAPS}?watch=true&resourceVersion={version}");
    let mut open = watch(&sim, &path).await;
    sim.create(config_map("b")).unwrap();
    sim.disturb(&Match::new("watch", "configmaps"), WatchFault::Expire);
    assert!(open.next().await.is_none());
    let mut resumed = watch(&sim, &path).await;
    let error = resumed.next().await.unwrap().unwrap();
    assert_eq!(error["type"], "ERROR");
    assert_eq!(error["object"]["code"], 410);
    assert!(resumed.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_planned_fault_waits_for_its_event() {
    let sim = sim();
    fault(
        &sim,
        "watch",
        FaultTiming::Nth(1),
        Action::Watch(2, WatchFault::Abort),
    );
    let mut lines = watch(&sim, &format!("{MAPS}?watch=true")).await;
    for name in ["a", "b", "c"] {
        sim.create(config_map(name)).unwrap();
    }
    assert_eq!(lines.event().await.1, "a");
    assert_eq!(lines.event().await.1, "b");
    assert_eq!(lines.next().await, Some(Err(ConnectionClosed)));
    let mut again = watch(&sim, &format!("{MAPS}?watch=true")).await;
    assert_eq!(again.event().await.1, "a");
}

#[tokio::test(start_paused = true)]
async fn delayed_events_come_late_and_starved_watches_get_no_bookmarks() {
    let sim = sim();
    let path = format!("{MAPS}?watch=true&allowWatchBookmarks=true");
    let matches = Match::new("watch", "configmaps");
    let mut lines = watch(&sim, &path).await;
    assert_eq!(lines.event().await.0, "BOOKMARK");
    sim.disturb(&matches, WatchFault::NoBookmarks);
    assert!(
        timeout(Duration::from_mins(10), lines.next())
            .await
            .is_err()
    );
    sim.disturb(&matches, WatchFault::Delay(Duration::from_secs(5)));
    sim.create(config_map("late")).unwrap();
    let start = Instant::now();
    assert_eq!(lines.event().await, ("ADDED".to_owned(), "late".to_owned()));
    assert_eq!(start.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn chance_repeats_with_the_seed() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let sim = sim();
        fault(
            &sim,
            "list",
            FaultTiming::Chance(0.5),
            Action::Refuse(Refusal::Unavailable),
        );
        let mut run = Vec::new();
        for _ in 0..32 {
            run.push(call(&sim, "GET", MAPS, None).await.0);
        }
        assert!(run.contains(&200) && run.contains(&503));
        runs.push(run);
    }
    assert_eq!(runs[0], runs[1]);
}
