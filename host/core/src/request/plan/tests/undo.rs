//! Deletions whose targets are kept before.

use serde_json::{Value, json};

use super::*;
use crate::object::ApiResource;
use crate::plan::{Patch, PatchKind};
use crate::refusal::ErrorResponse;
use crate::request::NoAnswer;
use crate::undo::{MOST_KEPT_BYTES, UndoKind};

fn undo(resource: &str, has_journal: bool) -> Undo {
    let kinds = vec![UndoKind {
        group: String::new(),
        resource: resource.to_owned(),
    }];
    let rules = UndoRules {
        kinds,
        keep_for: Duration::from_secs(60),
    };
    Undo {
        rules: Arc::new(rules),
        has_journal,
    }
}

fn delete() -> Step {
    Step::Delete(DeleteOptions::default())
}

/// A plan that has started, and its first request.
fn started(steps: Vec<Step>, undo: Undo) -> (Execution, Action) {
    let mut execution = execution("uid", steps).with_undo(Some(undo));
    execution.handle_turn(Ok(7));
    let next = execution.handle_term(at(5), true);
    if let PlanAction::Send(request) = &next {
        // The first request has the plan's turn.
        execution.call::<()>(request);
    }
    (execution, next)
}

/// Pods are kept.
fn deletion_of_kept() -> (Execution, Action) {
    started(vec![delete()], undo("pods", true))
}

fn found(uid: &str, version: &str) -> Vec<u8> {
    let metadata = json!({"name": "a", "uid": uid, "resourceVersion": version});
    json!({"kind": "Pod", "metadata": metadata, "spec": {"nodeName": "n"}})
        .to_string()
        .into_bytes()
}

fn refused(code: u16, message: &str) -> RequestError {
    let body = json!({"kind": "Status", "message": message, "details": {"name": "a"}});
    let body = body.to_string();
    RequestError::Refused(Box::new(ErrorResponse::read(code, None, body.as_bytes())))
}

fn sent(action: Action) -> Request {
    match action {
        PlanAction::Send(request) => request,
        other => panic!("{other:?} sends nothing"),
    }
}

fn kept(action: Action) -> KeptObject {
    match action {
        PlanAction::Keep(object) => *object,
        other => panic!("{other:?} keeps nothing"),
    }
}

fn preconditions(request: &Request) -> Value {
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    let options = body.get("deleteOptions").unwrap_or(&body);
    options["preconditions"].clone()
}

#[test]
fn an_object_is_read_and_kept_before_it_is_deleted_in_the_version_that_was_kept() {
    for step in [delete(), Step::Evict(DeleteOptions::default())] {
        let (mut execution, next) = started(vec![step], undo("pods", true));
        let read = sent(next);
        assert_eq!(read.method, Method::Get);
        assert_eq!(read.uri, "/api/v1/namespaces/shop/pods/a");
        assert_eq!(read.accept, "application/json", "the whole object");
        let object = kept(execution.handle_answer(Ok(&found("uid", "41"))));
        assert_eq!(object.object, found("uid", "41"));
        assert_eq!(object.resource, ApiResource::new("", "v1", "pods"));
        assert_eq!(object.keep_for, Duration::from_secs(60));
        let deletion = sent(execution.handle_kept(Ok(())));
        assert_ne!(deletion.method, Method::Get);
        let expected = json!({"uid": "uid", "resourceVersion": "41"});
        assert_eq!(preconditions(&deletion), expected);
        let PlanAction::Done(outcome) = execution.handle_answer(Ok(b"{\"kind\": \"Status\"}"))
        else {
            panic!("it is not done");
        };
        assert!(outcome.failed.is_none());
    }
}

#[test]
fn a_deletion_of_another_kind_needs_no_other_request() {
    let (_, next) = started(vec![delete()], undo("configmaps", true));
    assert_eq!(sent(next).method, Method::Delete);
    // Nor does it need a journal.
    let (_, next) = started(vec![delete()], undo("configmaps", false));
    assert_eq!(sent(next).method, Method::Delete);
}

#[test]
fn an_object_that_is_not_kept_is_not_deleted() {
    for why in [
        NotKept::Stopped,
        NotKept::Failed("no space left on device".to_owned()),
        NotKept::Silent(Duration::from_secs(10)),
    ] {
        let (mut execution, _) = deletion_of_kept();
        kept(execution.handle_answer(Ok(&found("uid", "41"))));
        let PlanAction::Done(outcome) = execution.handle_kept(Err(why.clone())) else {
            panic!("it is not done");
        };
        let (position, failure) = outcome.failed.unwrap();
        assert_eq!((position, failure.class), (0, FailureClass::NotKept));
        assert!(failure.message.contains(&why.to_string()), "{failure}");
    }
}

/// Not even the steps before the deletion are executed.
#[test]
fn a_plan_that_deletes_what_is_kept_sends_nothing_without_a_journal() {
    let patch = Step::Patch(Patch {
        kind: PatchKind::Merge,
        subresource: String::new(),
        body: vec![0x80],
    });
    let (mut execution, next) = started(vec![patch, delete()], undo("pods", false));
    assert!(matches!(next, PlanAction::EndTurn(7)));
    assert_eq!(ended(execution.proceed()), (1, FailureClass::NotKept));
}

#[test]
fn an_object_that_cannot_be_read_is_not_deleted() {
    let lost = RequestError::NoAnswer(NoAnswer::silence(Duration::from_secs(30)));
    for (error, class) in [
        (lost, FailureClass::Timeout),
        (refused(404, "not found"), FailureClass::NotFound),
        (refused(403, "no"), FailureClass::Forbidden),
        (refused(500, "no"), FailureClass::Server),
    ] {
        let (mut execution, _) = deletion_of_kept();
        assert_eq!(ended(execution.handle_answer(Err(&error))), (0, class));
    }
    let (mut execution, _) = deletion_of_kept();
    let next = execution.handle_answer(Ok(b"<html>"));
    assert_eq!(ended(next), (0, FailureClass::Timeout));
}

#[test]
fn another_object_of_the_name_is_neither_kept_nor_deleted() {
    let (mut execution, _) = deletion_of_kept();
    let next = execution.handle_answer(Ok(&found("other", "41")));
    assert_eq!(ended(next), (0, FailureClass::UidMismatch));
}

/// It was recreated between the read and the deletion.
#[test]
fn another_object_of_the_name_is_not_deleted_after_the_read() {
    let (mut execution, _) = deletion_of_kept();
    execution.handle_answer(Ok(&found("uid", "41")));
    let deletion = sent(execution.handle_kept(Ok(())));
    assert_eq!(preconditions(&deletion)["uid"], "uid");
    let gone = refused(404, "not found");
    assert_eq!(
        ended(execution.handle_answer(Err(&gone))),
        (0, FailureClass::NotFound)
    );
}

#[test]
fn an_object_that_has_changed_since_it_was_kept_is_kept_again() {
    let (mut execution, next) = deletion_of_kept();
    let changed = refused(
        409,
        "Precondition failed: ResourceVersion in precondition: 1",
    );
    let mut next = next;
    for version in ["41", "42", "43", "44"] {
        assert_eq!(sent(next).method, Method::Get);
        kept(execution.handle_answer(Ok(&found("uid", version))));
        let deletion = sent(execution.handle_kept(Ok(())));
        assert_eq!(preconditions(&deletion)["resourceVersion"], version);
        next = execution.handle_answer(Err(&changed));
    }
    let PlanAction::Done(outcome) = next else {
        panic!("not forever");
    };
    let (_, failure) = outcome.failed.unwrap();
    assert_eq!(failure.class, FailureClass::NotKept);
    assert!(failure.message.contains("each of 4 copies"), "{failure}");
}

#[test]
fn an_object_in_another_version_than_the_guest_decided_about_is_not_deleted() {
    let options = DeleteOptions {
        resource_version: "40".to_owned(),
        ..DeleteOptions::default()
    };
    let step = || Step::Delete(options.clone());
    let (mut execution, _) = started(vec![step()], undo("pods", true));
    let next = execution.handle_answer(Ok(&found("uid", "41")));
    assert_eq!(ended(next), (0, FailureClass::Conflict));

    let (mut execution, _) = started(vec![step()], undo("pods", true));
    kept(execution.handle_answer(Ok(&found("uid", "40"))));
    let deletion = sent(execution.handle_kept(Ok(())));
    assert_eq!(preconditions(&deletion)["resourceVersion"], "40");
    let changed = refused(409, "the object has been modified");
    let next = execution.handle_answer(Err(&changed));
    assert_eq!(ended(next), (0, FailureClass::Conflict));
}

#[test]
fn an_object_that_is_too_large_for_the_journal_is_not_deleted() {
    let metadata = json!({"uid": "uid", "resourceVersion": "1"});
    let object = json!({"metadata": metadata, "data": "x".repeat(MOST_KEPT_BYTES)});
    let (mut execution, _) = deletion_of_kept();
    let next = execution.handle_answer(Ok(object.to_string().as_bytes()));
    assert_eq!(ended(next), (0, FailureClass::NotKept));
}

/// An entry of the journal has 2 MiB at most, whatever the names in it.
#[test]
fn the_largest_kept_object_fits_into_an_entry() {
    use crate::controller::{CallId, ControllerId, DecisionId};
    use crate::journal::{Entry, KeptEntry, Record, encode};
    let long = "x".repeat(512);
    let target = ObjectRef {
        api_version: long.clone(),
        kind: long.clone(),
        namespace: long.clone(),
        name: long.clone(),
        uid: long.clone(),
    };
    let kept = KeptEntry {
        controller: long.clone(),
        revision: long.as_str().into(),
        decision: DecisionId {
            call: CallId {
                controller: ControllerId(u64::MAX),
                number: u64::MAX,
            },
            position: u32::MAX,
        },
        reason: long.repeat(8),
        target,
        resource: ApiResource::new(&long, &long, &long),
        keep_for: Duration::MAX,
        object: vec![b'x'; MOST_KEPT_BYTES],
    };
    let record = Record {
        now: crate::time::Now::default(),
        entry: Entry::Kept(Box::new(kept)),
    };
    assert!(encode(&record).payload.len() + 1024 < 2 << 20);
}

/// The mode is Disabled or `DryRun` by now, the term has ended, or the controller is gone.
#[test]
fn a_plan_that_is_withdrawn_while_it_waits_for_its_copy_deletes_nothing() {
    let (mut execution, _) = deletion_of_kept();
    kept(execution.handle_answer(Ok(&found("uid", "41"))));
    assert_eq!(ended(execution.withdraw()), (0, FailureClass::Conflict));
    // A copy that comes too late deletes nothing.
    let late = execution.handle_kept(Ok(()));
    assert_eq!(ended(late), (0, FailureClass::Conflict));
}

#[test]
fn a_plan_that_is_withdrawn_while_it_reads_its_target_keeps_and_deletes_nothing() {
    let (mut execution, _) = deletion_of_kept();
    execution.note_withdrawal();
    let next = execution.handle_answer(Ok(&found("uid", "41")));
    assert_eq!(ended(next), (0, FailureClass::Conflict));
}

/// A deletion that waits for its turn is not sent; one that was refused is not tried with another
/// copy.
#[test]
fn a_plan_that_is_withdrawn_before_its_deletion_is_sent_deletes_nothing() {
    let unsent = RequestError::term_over(true);
    let changed = refused(409, "the object has been modified");
    for answer in [unsent, changed] {
        let (mut execution, _) = deletion_of_kept();
        kept(execution.handle_answer(Ok(&found("uid", "41"))));
        sent(execution.handle_kept(Ok(())));
        assert!(execution.may_send());
        execution.note_withdrawal();
        assert!(!execution.may_send());
        let next = execution.handle_answer(Err(&answer));
        assert_eq!(ended(next), (0, FailureClass::Conflict));
    }
}

#[test]
fn a_deletion_that_was_sent_before_the_withdrawal_has_its_own_outcome() {
    let (mut execution, _) = deletion_of_kept();
    kept(execution.handle_answer(Ok(&found("uid", "41"))));
    sent(execution.handle_kept(Ok(())));
    execution.note_withdrawal();
    let PlanAction::Done(outcome) = execution.handle_answer(Ok(b"{\"kind\": \"Status\"}")) else {
        panic!("it is not done");
    };
    assert!(outcome.failed.is_none() && outcome.written.is_some());
}

/// A lost lease ends the request: nobody knows whether it took effect.
#[test]
fn a_deletion_that_was_sent_before_the_withdrawal_fails_as_it_did() {
    let lost = RequestError::NoAnswer(NoAnswer::silence(Duration::from_secs(30)));
    for (error, class) in [
        (lost, FailureClass::Timeout),
        (RequestError::term_over(false), FailureClass::Timeout),
        (refused(404, "not found"), FailureClass::NotFound),
        (refused(403, "no"), FailureClass::Forbidden),
    ] {
        let (mut execution, _) = deletion_of_kept();
        kept(execution.handle_answer(Ok(&found("uid", "41"))));
        sent(execution.handle_kept(Ok(())));
        execution.note_withdrawal();
        assert_eq!(ended(execution.handle_answer(Err(&error))), (0, class));
    }
}

#[test]
fn a_plan_that_has_started_and_keeps_nothing_is_not_withdrawn() {
    let (mut execution, next) = started(vec![delete()], undo("configmaps", true));
    assert_eq!(sent(next).method, Method::Delete);
    execution.note_withdrawal();
    assert!(execution.may_send() && !execution.can_be_withdrawn());
}
