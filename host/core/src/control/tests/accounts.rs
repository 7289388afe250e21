//! What the account of a controller may read, and what runs with it.

use serde_json::json;

use super::bench::Bench;
use super::revisions::{identity, name_of, spec};
use crate::api::{ControllerSpec, UndoConfig};
use crate::record::ControllerRecord;

const SHADOW: &[&str] = &["shadow 10s", "weight 10 for 10s"];

/// A revision that watches these resources, of a controller with an account.
fn guest(watches: &[&str]) -> ControllerSpec {
    let mut spec = spec(1, SHADOW);
    spec.config["watches"] = json!(watches);
    let all = json!({"reads": [{"group": "*", "resource": "*"}]});
    spec.permissions = Some(serde_json::from_value(all).unwrap());
    spec.service_account_name = Some("gc".to_owned());
    spec
}

fn authorized(bench: &Bench) -> (String, String) {
    let (status, reason, _) = bench.condition("Authorized");
    (status, reason)
}

fn is(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

#[test]
fn without_an_account_nothing_is_reviewed() {
    let mut first = guest(&["pods"]);
    first.service_account_name = None;
    let mut bench = Bench::running(first);
    bench.pass(600);
    assert!(bench.reviewed.is_empty());
    let (status, reason, message) = bench.condition("Authorized");
    assert_eq!((&*status, &*reason), ("True", "OwnAccount"));
    assert!(message.contains("Davit's own permissions"), "{message}");
}

#[test]
fn a_revision_starts_once_its_account_may_open_its_watches() {
    let first = guest(&["pods"]);
    let mut bench = Bench::start(first.clone(), ControllerRecord::default());
    while bench.reviews.is_empty() {
        assert!(bench.execute_one());
        bench.look();
    }
    assert_eq!(bench.reviewed, ["list pods", "watch pods"]);
    bench.look();
    assert_eq!(bench.runs(), None);
    assert_eq!(authorized(&bench), is("Unknown", "NotReviewed"));
    bench.answer_review();
    bench.look();
    assert_eq!(bench.runs(), None, "only one of two is known");
    bench.settle();
    assert_eq!(bench.runs(), Some((name_of(&first), None)));
    let (status, reason, message) = bench.condition("Authorized");
    assert_eq!((&*status, &*reason), ("True", "Reviewed"));
    assert_eq!(
        message,
        "the ServiceAccount davit/gc may list pods, watch pods"
    );
    let account = bench.running[0].account.as_ref().unwrap();
    assert_eq!(account.user(), "system:serviceaccount:davit:gc");
    assert!(bench.reasons.is_empty(), "{:?}", bench.reasons);
}

#[test]
fn without_an_answer_a_revision_does_not_start() {
    let first = guest(&["pods"]);
    let mut bench = Bench::start(first.clone(), ControllerRecord::default());
    bench.no_reviews = Some("the server answered 500");
    bench.pass(600);
    assert_eq!(bench.runs(), None);
    assert_eq!(authorized(&bench), is("Unknown", "NotReviewed"));
    let (status, reason, message) = bench.condition("Ready");
    assert_eq!((&*status, &*reason), ("False", "NotReviewed"));
    assert_eq!(
        message,
        "nothing runs: the API server has not said yet what the ServiceAccount davit/gc may \
         read: the server answered 500"
    );
    // Two permissions, and pauses of up to a minute.
    let attempts = bench.reviewed.len();
    assert!((20..50).contains(&attempts), "{attempts}");
    bench.no_reviews = None;
    bench.pass(61);
    assert_eq!(bench.runs(), Some((name_of(&first), None)));
    assert_eq!(bench.reasons, ["NotReviewed", "Authorized"]);
}

#[test]
fn a_denied_revision_says_what_is_missing_and_runs_once_it_is_granted() {
    let first = guest(&["pods", "nodes"]);
    let mut bench = Bench::start(first.clone(), ControllerRecord::default());
    bench.denied = ["watch nodes", "list pods"].into();
    bench.pass(30);
    assert_eq!(bench.runs(), None);
    let (status, reason, message) = bench.condition("Authorized");
    assert_eq!((&*status, &*reason), ("False", "NotAuthorized"));
    let expected = format!(
        "the ServiceAccount davit/gc may not do what {} needs (bind a role with it to the \
         account): watch nodes, list pods; no role allows it",
        name_of(&first)
    );
    assert_eq!(message, expected);
    let (status, reason, message) = bench.condition("Ready");
    assert_eq!((&*status, &*reason), ("False", "NotAuthorized"));
    assert_eq!(message, format!("nothing runs: {expected}"));
    assert_eq!(bench.status().summary, "NotAuthorized: watch nodes");
    assert_eq!(bench.reasons, ["NotAuthorized"], "reported once");
    bench.denied.clear();
    bench.pass(31);
    assert_eq!(bench.runs(), Some((name_of(&first), None)));
    assert_eq!(authorized(&bench), is("True", "Reviewed"));
    assert_eq!(bench.reasons, ["NotAuthorized", "Authorized"]);
}

/// Before anything is recorded.
#[test]
fn a_permission_that_is_withdrawn_stops_what_runs() {
    let first = guest(&["pods"]);
    let mut bench = Bench::running(first.clone());
    bench.denied = ["watch pods"].into();
    bench.is_recording = false;
    bench.pass(300);
    assert_eq!(bench.runs(), None);
    bench.is_recording = true;
    bench.pass(1);
    assert_eq!(authorized(&bench), is("False", "NotAuthorized"));
    assert_eq!(
        bench.stable(),
        name_of(&first),
        "it stays the stable revision"
    );
    bench.denied.clear();
    bench.pass(31);
    assert_eq!(bench.runs(), Some((name_of(&first), None)));
}

#[test]
fn a_refused_request_hastens_the_review() {
    let mut bench = Bench::running(guest(&["pods"]));
    bench.pass(20);
    bench.denied = ["watch pods"].into();
    bench.forbidden = 1;
    bench.pass(1);
    assert_eq!(bench.runs(), None);

    let mut bench = Bench::running(guest(&["pods"]));
    for count in 1..=100 {
        bench.forbidden = count;
        bench.pass(1);
    }
    let reviews = bench.reviewed.len();
    assert!(
        (18..=24).contains(&reviews),
        "{reviews} in 100 s, of two permissions"
    );
}

#[test]
fn an_api_server_that_cannot_be_asked_stops_nothing_that_was_allowed() {
    let first = guest(&["pods"]);
    let mut bench = Bench::running(first.clone());
    bench.no_reviews = Some("the server answered 429");
    bench.pass(3600);
    assert_eq!(bench.runs(), Some((name_of(&first), None)));
    let (status, reason, message) = bench.condition("Authorized");
    assert_eq!((&*status, &*reason), ("True", "NotReviewed"));
    assert_eq!(
        message,
        "the ServiceAccount davit/gc may list pods, watch pods, as the API server last said; the \
         server answered 429"
    );
    assert_eq!(bench.condition("Ready").0, "True");
    // Nor is what was denied allowed.
    bench.no_reviews = None;
    bench.denied = ["list pods"].into();
    bench.pass(61);
    assert_eq!(bench.runs(), None);
    bench.no_reviews = Some("the server answered 429");
    bench.pass(600);
    assert_eq!(bench.runs(), None);
    assert_eq!(authorized(&bench), is("False", "NotAuthorized"));
}

#[test]
fn a_permission_is_reviewed_once_for_all_revisions_and_every_five_minutes() {
    let first = guest(&["pods"]);
    let mut bench = Bench::running(first.clone());
    let second = {
        let mut second = guest(&["pods", "nodes"]);
        second.rollout.steps = vec!["shadow until promoted".parse().unwrap()];
        second
    };
    bench.change(second.clone());
    bench.settle();
    let shadow = (name_of(&second), 0);
    assert_eq!(bench.runs(), Some((name_of(&first), Some(shadow))));
    assert_eq!(
        bench.reviewed,
        ["list pods", "watch pods", "list nodes", "watch nodes"]
    );
    bench.pass(3600);
    let reviews = bench.reviewed.len();
    assert!((4 * 13..=4 * 16).contains(&reviews), "{reviews} in an hour");
}

/// A shadow reads too.
#[test]
fn a_candidate_whose_account_may_not_read_is_not_even_a_shadow() {
    let first = guest(&["pods"]);
    let mut bench = Bench::running(first.clone());
    bench.denied = ["list configmaps", "watch configmaps"].into();
    let second = guest(&["pods", "configmaps"]);
    bench.change(second.clone());
    bench.pass(60);
    assert_eq!(bench.runs(), Some((name_of(&first), None)));
    assert_eq!(bench.status().candidate, None);
    let (.., message) = bench.condition("Ready");
    let continues = format!("the revision {} continues: ", name_of(&first));
    assert!(message.starts_with(&continues), "{message}");
    bench.denied.clear();
    bench.pass(31);
    let shadow = (name_of(&second), 0);
    assert_eq!(bench.runs(), Some((name_of(&first), Some(shadow.clone()))));

    bench.denied = ["watch configmaps"].into();
    bench.forbidden = 1;
    bench.pass(11);
    assert_eq!(bench.runs(), Some((name_of(&first), None)));
    assert_eq!(
        bench.candidate().waits_for,
        "the controller's ServiceAccount may not do what it needs"
    );
}

#[test]
fn an_account_needs_to_read_what_is_kept_before_its_deletion() {
    let mut first = writer();
    let undo = json!({"kinds": [{"resource": "pods"}, {"resource": "nodes"}]});
    first.undo = serde_json::from_value(undo).unwrap();
    let mut bench = Bench::start(first.clone(), ControllerRecord::default());
    bench.denied = ["get pods"].into();
    bench.pass(30);
    assert_eq!(bench.runs(), None);
    let (status, reason, message) = bench.condition("Authorized");
    assert_eq!((&*status, &*reason), ("False", "NotAuthorized"));
    assert!(
        message.contains("bind a role with it to the account): get pods"),
        "{message}"
    );
    assert!(
        !bench.reviewed.contains(&"get nodes".to_owned()),
        "it deletes no nodes"
    );
    // Without undo, nothing else is needed.
    first.undo = UndoConfig::default();
    bench.change(first.clone());
    bench.pass(31);
    assert_eq!(bench.runs(), Some((name_of(&first), None)));
}

/// Without it nothing is deleted: that it is not known yet is no reason to stop.
#[test]
fn a_controller_that_runs_continues_while_nobody_knows_whether_copies_may_be_kept() {
    let mut first = writer();
    let mut bench = Bench::running(first.clone());
    let undo = json!({"kinds": [{"resource": "pods"}]});
    first.undo = serde_json::from_value(undo).unwrap();
    bench.no_reviews = Some("the server answered 429");
    bench.change(first.clone());
    bench.pass(120);
    assert_eq!(bench.runs(), Some((name_of(&first), None)));
    assert_eq!(bench.stops, 0);
    assert_eq!(authorized(&bench), is("Unknown", "NotReviewed"));
    // Another account is another matter.
    first.service_account_name = Some("other".to_owned());
    bench.change(first.clone());
    bench.pass(1);
    assert_eq!(bench.runs(), None);
    first.service_account_name = Some("gc".to_owned());
    (bench.no_reviews, bench.denied) = (None, ["get pods"].into());
    bench.change(first);
    bench.pass(61);
    assert_eq!(bench.runs(), None, "it is denied");
}

/// The next revision is stable, and waits for its record.
#[test]
fn what_runs_until_a_record_is_written_continues_while_nobody_knows_about_copies() {
    let mut first = writer();
    first.rollout.steps.clear();
    let mut bench = Bench::running(first.clone());
    let mut second = first.clone();
    second.config["other"] = json!(true);
    bench.is_recording = false;
    bench.change(second.clone());
    bench.pass(2);
    assert_eq!(bench.stable(), name_of(&second));
    bench.no_reviews = Some("the server answered 429");
    let undo = json!({"kinds": [{"resource": "pods"}]});
    second.undo = serde_json::from_value(undo).unwrap();
    bench.change(second);
    bench.pass(30);
    assert_eq!(bench.runs(), Some((name_of(&first), None)));
    assert_eq!(bench.stops, 0);
}

/// The spec describes both revisions, and only the module differs.
#[test]
fn a_rollout_of_a_moved_tag_waits_for_its_account() {
    let mut first = guest(&["pods"]);
    first.rollout.steps = vec!["shadow until promoted".parse().unwrap()];
    let mut bench = Bench::running(first.clone());
    bench.replaced = 1;
    bench.pass(65);
    let before = bench.candidate();
    (bench.denied, bench.forbidden) = (["watch pods"].into(), 1);
    bench.pass(61);
    assert_eq!(bench.runs(), None);
    assert_eq!(bench.candidate().since, before.since);
    bench.denied.clear();
    bench.pass(61);
    let candidate = Some((before.revision.clone(), 0));
    assert_eq!(bench.runs(), Some((name_of(&first), candidate)));
    assert_eq!(bench.candidate().since, before.since);
}

/// A guest that reads live or writes, as the account.
fn writer() -> ControllerSpec {
    let mut spec = guest(&["pods"]);
    spec.config["writes"] = json!(true);
    let all = json!({
        "reads": [{"group": "*", "resource": "*"}],
        "writes": [
            {"verb": "delete", "resource": "pods"},
            {"verb": "create", "resource": "events"},
        ],
    });
    spec.permissions = Some(serde_json::from_value(all).unwrap());
    spec
}

#[test]
fn a_revision_that_writes_runs_once_the_host_may_impersonate_its_account() {
    let first = writer();
    let mut bench = Bench::start(first.clone(), ControllerRecord::default());
    bench.denied = ["impersonate davit/gc"].into();
    bench.pass(30);
    let impersonation = format!(
        "Davit may not impersonate the ServiceAccount davit/gc, as which {} reads live and \
         writes (bind a role with the verb impersonate on the account to Davit's own \
         ServiceAccount); no role allows it",
        name_of(&first)
    );
    assert_eq!(bench.runs(), None);
    let (status, reason, message) = bench.condition("Authorized");
    assert_eq!((&*status, &*reason), ("False", "NotAuthorized"));
    assert_eq!(message, impersonation);
    assert_eq!(
        bench.status().summary,
        "NotAuthorized: impersonate davit/gc"
    );
    bench.denied.clear();
    bench.pass(31);
    assert_eq!(bench.runs(), Some((name_of(&first), None)));
    let (.., message) = bench.condition("Authorized");
    assert_eq!(
        message,
        "Davit may impersonate davit/gc; the ServiceAccount davit/gc may list pods, watch pods"
    );

    // Events are the host's own.
    let mut events = writer();
    events.config["writes"] = json!("events");
    let mut other = Bench::start(events.clone(), ControllerRecord::default());
    other.denied = ["impersonate davit/gc"].into();
    other.pass(30);
    assert_eq!(other.runs(), Some((name_of(&events), None)));

    // Withdrawn under way, with a permission of the account itself.
    bench.denied = ["impersonate davit/gc", "list pods"].into();
    bench.forbidden = 1;
    bench.pass(11);
    assert_eq!(bench.runs(), None);
    let (.., message) = bench.condition("Authorized");
    let expected = format!(
        "; the ServiceAccount davit/gc may not do what {} needs (bind a role with it to the \
         account): list pods; no role allows it",
        name_of(&first)
    );
    assert!(message.ends_with(&expected), "{message}");
}

/// Writes are not reviewed: an account may have them in some namespaces only.
#[test]
fn a_controller_whose_writes_are_refused_is_not_ready() {
    let mut bench = Bench::running(writer());
    bench.pass(2);
    assert_eq!(bench.condition("Ready").0, "True");
    bench.refused = Some("delete v1 Pod a/b: cannot delete resource \"pods\"");
    bench.pass(2);
    let (status, reason, message) = bench.condition("Ready");
    assert_eq!((&*status, &*reason), ("False", "Forbidden"));
    assert!(message.contains("cannot delete resource"), "{message}");
    assert_eq!(bench.reasons, ["Forbidden"]);
    bench.refused = None;
    bench.pass(2);
    assert_eq!(bench.condition("Ready").0, "True");
    assert_eq!(bench.reasons, ["Forbidden", "Permitted"]);
}

#[test]
fn another_account_is_reviewed_before_anything_runs_as_it() {
    let first = guest(&["pods"]);
    let mut bench = Bench::running(first.clone());
    let mut other = first.clone();
    other.service_account_name = Some("other".to_owned());
    bench.change(other);
    bench.look();
    assert_eq!(bench.runs(), None);
    bench.settle();
    assert_eq!(bench.runs(), Some((name_of(&first), None)));
    assert_eq!(bench.running[0].account.as_ref().unwrap().name, "other");
    bench.change({
        let mut own = first.clone();
        own.service_account_name = None;
        own
    });
    bench.settle();
    assert_eq!(bench.running[0].account, None);
    assert_eq!(authorized(&bench), is("True", "OwnAccount"));
}

/// The next revision waits for its watches: the replaced one runs until then.
#[test]
fn a_replaced_revision_that_still_runs_is_reviewed_and_stops_when_it_is_denied() {
    let running = |first: &ControllerSpec, second: &ControllerSpec| {
        let mut bench = Bench::running(first.clone());
        bench.former_stable = Some(identity(first));
        bench.change(second.clone());
        bench.pass(30);
        assert_eq!(bench.stops, 0);
        bench
    };
    let first = guest(&["nodes"]);
    let mut second = guest(&["pods"]);
    second.rollout.steps.clear();
    let mut bench = running(&first, &second);
    bench.denied = ["list nodes"].into();
    bench.pass(300);
    assert_eq!((bench.stops, &bench.former_stable), (1, &None));
    assert_eq!(bench.runs(), Some((name_of(&second), None)));
    bench.reviewed.clear();
    bench.pass(600);
    assert!(!bench.reviewed.iter().any(|one| one.contains("nodes")));

    // Its watches were reviewed for another account.
    let mut bench = running(&first, &second);
    let mut other = second.clone();
    other.service_account_name = Some("other".to_owned());
    bench.change(other);
    bench.look();
    assert_eq!((bench.stops, &bench.former_stable), (1, &None));
    bench.settle();
    assert_eq!(bench.runs(), Some((name_of(&second), None)));
}
