mod undo;

use super::*;
use crate::mapping::ServedResource;
use crate::object::ApiResource;
use crate::plan::DeleteOptions;
use crate::request::Method;
use crate::request::call::CallAction;

/// A permit is a number: the tests see which one ends.
type Execution = PlanExecution<u32>;
type Action = PlanAction<u32>;

fn at(seconds: u64) -> Instant {
    Instant::ZERO.after(Duration::from_secs(seconds))
}

fn pod(uid: &str) -> ObjectRef {
    ObjectRef {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        namespace: "shop".to_owned(),
        name: "a".to_owned(),
        uid: uid.to_owned(),
    }
}

fn event() -> Step {
    Step::Event(Event {
        event_type: "Normal".to_owned(),
        reason: "Deleted".to_owned(),
        message: String::new(),
        component: "podgc".to_owned(),
    })
}

fn plan(uid: &str, steps: Vec<Step>) -> Plan {
    Plan {
        target: pod(uid),
        reason: "orphaned".to_owned(),
        message: String::new(),
        steps,
        measures: Vec::new(),
        when_cancelled: None,
    }
}

fn execution(uid: &str, steps: Vec<Step>) -> Execution {
    let mapping = Mapping::new([ServedResource {
        resource: ApiResource::new("", "v1", "pods"),
        kind: "Pod".into(),
        namespaced: true,
        verbs: vec!["delete".into()],
        preferred: true,
    }]);
    let sender = Sender::new("podgc", None);
    PlanExecution::new(Arc::new(plan(uid, steps)), Arc::new(mapping), sender)
}

/// A plan that records an event and deletes its target.
fn deletion() -> Execution {
    execution("uid", vec![event(), Step::Delete(DeleteOptions::default())])
}

fn ended(action: Action) -> (u32, FailureClass) {
    let PlanAction::Done(outcome) = action else {
        panic!("{action:?} is not the end");
    };
    assert_eq!(outcome.written, None);
    let (position, failure) = outcome.failed.unwrap();
    assert!(failure.message.contains("Pod shop/a"), "{failure}");
    (position, failure.class)
}

#[test]
fn a_plan_starts_at_its_turn_and_its_first_request_needs_no_other_one() {
    let mut execution = deletion();
    let PlanAction::Wait(turn) = execution.proceed() else {
        panic!("it waits for no turn");
    };
    assert_eq!(turn, Sender::new("podgc", None).beginning(""));
    assert!(execution.is_waiting());
    assert!(matches!(
        execution.handle_turn(Ok(7)),
        PlanAction::CheckTerm
    ));
    assert!(!execution.is_waiting());
    assert_eq!(execution.took(at(5)), Duration::ZERO);
    let next = execution.handle_term(at(5), true);
    assert!(matches!(next, PlanAction::Record(_)));
    let PlanAction::Send(request) = execution.proceed() else {
        panic!("it sends nothing");
    };
    assert_eq!(request.method, Method::Delete);
    let mut call = execution.call::<()>(&request);
    assert!(matches!(call.proceed(), CallAction::CheckTerm));
    let mut next = execution.call::<()>(&request);
    assert!(matches!(next.proceed(), CallAction::Wait(_)));
    let body = br#"{"kind": "Status", "details": {"uid": "uid"}}"#;
    let PlanAction::Done(outcome) = execution.handle_answer(Ok(body)) else {
        panic!("it is not done");
    };
    assert!(outcome.written.is_some() && outcome.failed.is_none());
    assert_eq!(execution.took(at(8)), Duration::from_secs(3));
}

#[test]
fn a_plan_is_withdrawn_until_it_starts() {
    let mut execution = deletion();
    execution.proceed();
    assert_eq!(ended(execution.withdraw()), (0, FailureClass::Conflict));
    // A turn that comes too late starts nothing.
    let late = execution.handle_turn(Ok(7));
    assert!(matches!(late, PlanAction::EndTurn(7)));
    assert_eq!(ended(execution.proceed()), (0, FailureClass::Conflict));

    let mut execution = deletion();
    execution.handle_turn(Ok(7));
    assert!(matches!(execution.withdraw(), PlanAction::EndTurn(7)));
    assert_eq!(ended(execution.proceed()), (0, FailureClass::Conflict));

    let mut execution = deletion();
    execution.handle_turn(Ok(7));
    execution.handle_term(at(5), true);
    assert!(matches!(execution.withdraw(), PlanAction::Send(_)));
}

/// Its turn ends, although nothing was sent.
#[test]
fn a_plan_does_not_start_after_the_term() {
    let mut execution = deletion();
    execution.handle_turn(Ok(7));
    let next = execution.handle_term(at(5), false);
    assert!(matches!(next, PlanAction::EndTurn(7)));
    assert_eq!(ended(execution.proceed()), (0, FailureClass::Conflict));
    assert_eq!(execution.took(at(9)), Duration::ZERO);
}

#[test]
fn a_plan_that_sends_nothing_needs_no_turn_but_the_term() {
    let events = || execution("uid", vec![event(), event()]);
    let mut execution = events();
    assert!(matches!(execution.proceed(), PlanAction::CheckTerm));
    let next = execution.handle_term(at(5), false);
    assert_eq!(ended(next), (0, FailureClass::Conflict));

    let mut execution = events();
    let next = execution.handle_term(at(5), true);
    assert!(matches!(next, PlanAction::Record(_)));
    assert!(matches!(execution.proceed(), PlanAction::Record(_)));
    let PlanAction::Done(outcome) = execution.proceed() else {
        panic!("it is not done");
    };
    assert!(outcome.written.is_none() && outcome.failed.is_none());
}

/// The position is that of the first step that sends a request.
#[test]
fn a_plan_that_would_have_to_wait_too_long_ends() {
    let mut execution = deletion();
    execution.proceed();
    let left = Duration::from_secs(30);
    let next = execution.handle_turn(Err(left));
    assert_eq!(ended(next), (1, FailureClass::Throttled));
}

#[test]
fn a_turn_in_which_no_request_can_be_built_ends() {
    let mut execution = execution("", vec![Step::Delete(DeleteOptions::default())]);
    execution.proceed();
    execution.handle_turn(Ok(7));
    let next = execution.handle_term(at(5), true);
    assert!(matches!(next, PlanAction::EndTurn(7)));
    assert_eq!(ended(execution.proceed()), (0, FailureClass::Invalid));
}

/// The request may have been executed: only a failure without an answer says so.
#[test]
fn a_plan_that_broke_off_is_decided_again() {
    let outcome = broken_off(&plan("uid", Vec::new()), "a bug");
    let failed = PlanAction::Done(outcome);
    assert_eq!(ended(failed), (0, FailureClass::Timeout));
}

/// The same as its execution sends, where nothing is read before.
#[test]
fn the_writes_of_a_plan_are_those_that_its_execution_sends() {
    let mut execution = deletion();
    let (plan, mapping) = (Arc::clone(execution.plan()), Arc::clone(&execution.mapping));
    execution.handle_turn(Ok(7));
    execution.handle_term(at(0), true);
    let PlanAction::Send(sent) = execution.proceed() else {
        panic!("it sends nothing");
    };
    let [None, Some(Ok(write))] = &*writes(&plan, &mapping, "podgc") else {
        panic!("an event and a deletion");
    };
    assert_eq!(*write, sent);
    // Without the resource, there is no path.
    let unmapped = writes(&plan, &Mapping::new([]), "podgc");
    let failures = unmapped.into_iter().flatten();
    let classes: Vec<FailureClass> = failures.map(|it| it.unwrap_err().class).collect();
    assert_eq!(classes, [FailureClass::Unmappable]);
}
