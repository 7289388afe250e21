//! Calls, live reads and executions.

use super::*;
use crate::bounds::Bounds;
use crate::circuit::{CallFailure, CallFailureKind};
use crate::failure::{Failure, FailureClass};
use crate::object::{Kind, ObjectRecord};
use crate::plan::{GetRequest, ListRequest};

#[test]
fn a_guest_has_as_many_concurrent_calls_as_instances() {
    let mut bench = Bench::running(&["a", "b", "c", "d", "e", "f"]);
    assert_eq!(bench.calls.len(), 4);
    let call = bench.calls.pop_front().unwrap();
    bench.answer(&call, false);
    assert_eq!(bench.calls.len(), 4);
}

/// A controller that acts as this account, beside one pod.
fn running_as(name: &str) -> Bench {
    let mut one = desired("one", enforce());
    one.account = Some(account(name));
    let mut bench = Bench::new();
    bench.discover(&["pods"]);
    bench.apply(vec![one]);
    bench.list("pods", &["a"]);
    bench
}

#[test]
fn a_plan_is_executed_by_the_controllers_account() {
    let mut bench = running_as("gc");
    bench.answer_all(true);
    let execute = bench.executes.pop_front().unwrap();
    assert_eq!(execute.account, Some(account("gc")));
    assert_eq!(execute.controller, "test");
    assert_eq!(execute.decision.call.controller, execute.id.controller);
    assert_eq!(execute.decision.position, 0);
    let name = revision("one", manifest()).identity.to_string();
    assert_eq!(*execute.revision, *name);
}

#[test]
fn a_removed_controllers_plans_are_withdrawn_and_come_to_their_end() {
    let mut bench = Bench::running(&["a"]);
    bench.answer_all(true);
    let execute = bench.executes.pop_front().unwrap();
    bench.apply(vec![]);
    assert_eq!(bench.withdrawn, [execute.id.controller]);
    assert_eq!(bench.released, ["one"]);
    bench.executed(&execute);
    let Some(Report::Executed {
        controller,
        decision,
        ..
    }) = bench.reports.last()
    else {
        panic!("{:?}", bench.reports);
    };
    assert_eq!((controller.as_str(), decision), ("test", &execute.decision));
    // Another controller of that name inherits nothing from the former one.
    bench.apply(vec![desired("one", enforce())]);
    bench.list("pods", &["a"]);
    bench.answer_all(true);
    let another = bench.executes.pop_front().unwrap();
    assert_ne!(another.id.controller, execute.id.controller);
}

/// Permissions are withdrawn and granted again while a request is under way.
#[test]
fn a_controller_that_starts_again_waits_for_the_plans_of_the_former_one() {
    let mut bench = Bench::running(&["a"]);
    bench.answer_all(true);
    let execute = bench.executes.pop_front().unwrap();
    bench.apply(vec![]);
    bench.apply(vec![desired("one", enforce())]);
    bench.list("pods", &["a"]);
    bench.pass(60 * SECOND);
    assert!(bench.calls.is_empty(), "{:?}", bench.calls);
    bench.executed(&execute);
    bench.pass(SECOND);
    bench.answer_all(true);
    assert_eq!(bench.executes.len(), 1);
}

#[test]
fn a_stop_waits_for_executions_and_starts_nothing() {
    let mut bench = Bench::running(&["a", "b"]);
    let last = bench.calls.pop_back().unwrap();
    bench.answer_all(true);
    let execute = bench.executes.pop_front().unwrap();
    bench.input(Input::Stop);
    assert_eq!(bench.withdrawn, [execute.id.controller]);
    bench.answer(&last, true);
    let object = bench.object("c");
    bench.update("pods", Update::Apply(object));
    bench.pass(60 * SECOND);
    assert!(bench.executes.is_empty() && bench.calls.is_empty());
    assert!(!bench.machine.is_stopped(), "a plan is executed");
    bench.executed(&execute);
    assert!(bench.machine.is_stopped());
}

/// The driver may handle several inputs before it polls for effects.
#[test]
fn a_plan_that_was_admitted_in_the_moment_of_a_stop_is_not_executed() {
    let mut bench = Bench::running(&["a"]);
    let call = bench.calls.pop_front().unwrap();
    bench.execute(answered(&call, true));
    bench.machine.handle(bench.now, Input::Stop);
    bench.run();
    assert!(bench.executes.is_empty());
    assert!(bench.machine.is_stopped());
}

#[test]
fn a_large_answer_of_one_controller_does_not_hold_up_another() {
    let mut bench = Bench::running(&["a"]);
    let large = bench.calls.pop_front().unwrap();
    let mut other = desired("two", enforce());
    other.name = "other".into();
    bench.apply(vec![desired("one", Settings::default()), other]);
    let small = bench.calls.pop_front().unwrap();
    assert_eq!(&*small.controller, "other");
    let plans = (0..5000).map(|one| delete(&format!("ns/p{one}")));
    let decision = Decision {
        plans: plans.collect(),
        commands: vec![],
        verdict: Verdict::Done,
        parallel: 0,
    };
    let now = bench.now;
    bench.machine.handle(
        now,
        Input::Answered {
            call: large.id,
            result: Ok(vec![decision]),
            logged: 0,
            took: Duration::ZERO,
            copy: None,
        },
    );
    bench.machine.handle(now, answered(&small, true));
    bench.run();
    assert_eq!(
        bench.deleting(),
        ["a"],
        "the other one is executed immediately"
    );
    let ruled = |bench: &Bench| {
        let is_of_large = |report: &&Report| matches!(report, Report::Ruled { controller, .. } if controller == "test");
        bench.reports.iter().filter(is_of_large).count()
    };
    assert_eq!(ruled(&bench), 0, "the large one is counted first");
    let mut turns = 0;
    while bench.machine.next_wake(now) == now.instant {
        bench.run();
        turns += 1;
    }
    assert_eq!(ruled(&bench), 5000);
    assert!(turns >= 5000 / 256, "{turns}");
}

#[test]
fn a_guest_that_fails_opens_its_circuit() {
    let mut bench = Bench::running(&["a"]);
    for _ in 0..100 {
        let Some(call) = bench.calls.pop_front() else {
            bench.pass(SECOND);
            continue;
        };
        let failure = CallFailure::new(CallFailureKind::Trap, "unreachable");
        bench.input(Input::Answered {
            call: call.id,
            result: Err(failure),
            logged: 0,
            took: SECOND,
            copy: None,
        });
        let opened = |report: &Report| matches!(report, Report::CircuitOpened { .. });
        if bench.reports.iter().any(opened) {
            let observed = &bench.machine.observe(bench.now, |_| true)["test"];
            assert!(observed.circuit_open.is_some());
            return;
        }
    }
    panic!("the circuit stays closed");
}

/// The guest has read the mapping of the time of its call: its reads must find the
/// kinds of that mapping.
#[test]
fn a_live_read_uses_the_mapping_of_its_call() {
    let mut bench = Bench::running(&["a"]);
    let call = bench.calls.pop_front().unwrap();
    bench.discover(&["pods"]);
    bench.list_live(ReadId(1), &call, "nodes");
    let Some(Effect::Read { mapping, .. }) = bench.others.pop() else {
        panic!("{:?}", bench.others);
    };
    assert_eq!(mapping, call.mapping);
    assert_ne!(Some(&mapping), bench.machine.mapping.as_ref());
    bench.answer(&call, false);
    let hosted = &bench.machine.controllers[&*call.controller];
    let controller = hosted.controller.as_ref().unwrap();
    assert_eq!(controller.mapping_of(call.id), None);
}

impl Bench {
    /// A call reads a pod.
    fn get(&mut self, call: &Call<Guest>) {
        self.get_as(ReadId(1), call);
    }

    fn get_as(&mut self, read: ReadId, call: &Call<Guest>) {
        let request = GetRequest {
            target: delete("ns/a").target,
            fields: vec![],
        };
        self.read(read, call, ReadRequest::Get(vec![request]));
    }

    /// A call lists a resource.
    fn list_live(&mut self, read: ReadId, call: &Call<Guest>, plural: &str) {
        let request = ReadRequest::List(ListRequest {
            resource: resource(plural),
            namespace: String::new(),
            label_selector: String::new(),
            field_selector: String::new(),
            fields: vec![],
        });
        self.read(read, call, request);
    }

    fn read(&mut self, read: ReadId, call: &Call<Guest>, request: ReadRequest) {
        self.input(Input::ReadRequested {
            read,
            call: call.id,
            controller: Arc::clone(&call.controller),
            request,
        });
    }
}

#[test]
fn a_live_read_is_made_and_its_guest_resumed() {
    let mut bench = Bench::running(&["a"]);
    let call = bench.calls.pop_front().unwrap();
    bench.get(&call);
    let read = bench.others.pop();
    assert!(matches!(
        read,
        Some(Effect::Read { read: ReadId(1), controller, .. }) if *controller == *"test"
    ));
    let answer = ReadAnswer::Get(vec![]);
    bench.input(Input::ReadDone {
        read: ReadId(1),
        answer,
    });
    let resume = bench.others.pop();
    assert!(matches!(
        resume,
        Some(Effect::Resume {
            read: ReadId(1),
            ..
        })
    ));
}

#[test]
fn a_live_read_is_made_by_the_controllers_account() {
    let mut bench = running_as("gc");
    let call = bench.calls.pop_front().unwrap();
    bench.get(&call);
    let Some(Effect::Read { account: by, .. }) = bench.others.pop() else {
        panic!("{:?}", bench.others);
    };
    assert_eq!(by, Some(account("gc")));
    let forbidden = Failure::new(FailureClass::Forbidden, "get v1 Pod ns/a: cannot get pods");
    bench.input(Input::ReadDone {
        read: ReadId(1),
        answer: ReadAnswer::Get(vec![Err(forbidden)]),
    });
    let expected = "get v1 Pod ns/a: cannot get pods; grant this to the ServiceAccount davit/gc, \
                    as which the controller acts";
    let Some(Effect::Resume {
        answer: ReadAnswer::Get(results),
        ..
    }) = bench.others.pop()
    else {
        panic!("{:?}", bench.others);
    };
    assert_eq!(results[0].as_ref().unwrap_err().message, expected);
    let reported = bench.reports.iter().any(|report| {
        matches!(report, Report::ReadForbidden { failure, .. } if failure.message == expected)
    });
    assert!(reported, "{:?}", bench.reports);
    assert_eq!(
        bench.machine.observe(bench.now, |_| true)["test"].forbidden,
        1
    );
}

#[test]
fn a_forbidden_write_is_counted_and_names_the_account() {
    let mut bench = running_as("gc");
    bench.answer_all(true);
    let execute = bench.executes.pop_front().unwrap();
    bench.forbid(&execute, "delete v1 Pod ns/a: no");
    let executed = bench.reports.iter().find_map(|report| match report {
        Report::Executed { outcome, .. } => outcome.failed.as_ref(),
        _ => None,
    });
    let (_, failure) = executed.unwrap();
    assert!(
        failure
            .message
            .contains("grant this to the ServiceAccount davit/gc")
    );
    assert_eq!(
        bench.machine.observe(bench.now, |_| true)["test"].forbidden,
        1
    );
}

/// For two minutes: the write is retried after thirty seconds.
#[test]
fn a_refused_permission_is_observed_until_it_is_refused_no_more() {
    let refused = |message: &str| {
        let mut bench = running_as("gc");
        bench.answer_all(true);
        let execute = bench.executes.pop_front().unwrap();
        bench.forbid(&execute, message);
        bench
    };
    let observed = |bench: &Bench| {
        bench.machine.observe(bench.now, |_| true)["test"]
            .refused
            .clone()
    };
    let message = "delete v1 Pod ns/a: pods \"a\" is forbidden: User \"gc\" cannot delete resource";
    let mut bench = refused(message);
    let named = observed(&bench).expect("it was refused");
    assert!(named.starts_with(message), "{named}");
    bench.now.instant = bench.now.instant.after(Duration::from_mins(2));
    assert_eq!(observed(&bench), None);
    let bench = refused("delete v1 Pod ns/a: admission webhook \"policy\" denied the request");
    assert_eq!(observed(&bench), None, "that is about one object");
}

/// The revision may have stopped because its account may not read any more.
#[test]
fn the_read_of_a_void_call_is_not_sent() {
    let mut bench = Bench::running(&["a"]);
    let call = bench.calls.pop_front().unwrap();
    bench.apply(vec![]);
    bench.get(&call);
    let Some(Effect::Resume {
        answer: ReadAnswer::Get(results),
        ..
    }) = bench.others.pop()
    else {
        panic!("{:?}", bench.others);
    };
    assert!(results.len() == 1 && results[0].is_err());
    assert!(bench.others.is_empty());
    assert!(bench.machine.reads.is_empty());
}

/// While the server throttles a read, every further attempt would be refused, and the
/// back-off of the item would grow beyond the time for which it has to wait.
#[test]
fn an_item_whose_read_was_throttled_waits_as_long_as_the_server_asked() {
    let mut bench = Bench::running(&["a"]);
    let call = bench.calls.pop_front().unwrap();
    bench.get(&call);
    let throttled = Failure {
        retry_after: Some(5 * SECOND),
        ..Failure::new(FailureClass::Throttled, "429")
    };
    bench.input(Input::ReadDone {
        read: ReadId(1),
        answer: ReadAnswer::Get(vec![Err(throttled)]),
    });
    assert!(bench.machine.reads.is_empty());
    let retry = Decision {
        plans: vec![],
        commands: vec![],
        verdict: Verdict::Retry {
            reason: "throttled".into(),
        },
        parallel: 0,
    };
    bench.input(Input::Answered {
        call: call.id,
        result: Ok(vec![retry]),
        logged: 0,
        took: SECOND,
        copy: None,
    });
    bench.pass(4 * SECOND);
    assert!(bench.calls.is_empty(), "the server is not asked too early");
    bench.pass(2 * SECOND);
    let again = bench.calls.pop_front().unwrap();
    assert_eq!(again.items[0].attempt, 1);
}

/// A pod with this much data, as a live read returns it.
fn object(bytes: usize) -> ObjectRecord {
    ObjectRecord {
        kind: Kind {
            api_version: "v1".into(),
            kind: "Pod".into(),
        },
        resource_version: "1".into(),
        changed_at: Instant::ZERO,
        data: vec![0; bytes].into(),
    }
}

/// What reads a list ends it where its room ends, so that it is not complete. A guest that took it
/// for complete would delete what the rest of it protects.
#[test]
fn a_list_beyond_its_room_is_refused_even_if_other_calls_have_ended_since() {
    let most = Bounds::default().live_read_bytes;
    let mut bench = Bench::running(&["a", "b"]);
    let other = bench.calls.pop_front().unwrap();
    let call = bench.calls.pop_front().unwrap();
    bench.get_as(ReadId(1), &other);
    bench.input(Input::ReadDone {
        read: ReadId(1),
        answer: ReadAnswer::Get(vec![Ok(object(most - 10))]),
    });
    bench.others.clear();
    bench.list_live(ReadId(2), &call, "pods");
    let room = bench.others.pop();
    assert!(matches!(room, Some(Effect::Read { most_bytes: 10, .. })));
    bench.answer(&other, false);
    bench.input(Input::ReadDone {
        read: ReadId(2),
        answer: ReadAnswer::List(Ok(vec![object(11)])),
    });
    let Some(Effect::Resume {
        answer: ReadAnswer::List(Err(refused)),
        ..
    }) = bench.others.pop()
    else {
        panic!("{:?}", bench.others);
    };
    assert!(refused.message.starts_with("liveReadMib: "), "{refused}");
    bench.answer(&call, true);
    assert!(bench.executes.is_empty());
}

#[test]
fn a_live_read_beyond_its_bound_fails_the_call() {
    let most = Bounds::default().live_read_bytes;
    let mut bench = Bench::running(&["a"]);
    let call = bench.calls.pop_front().unwrap();
    let read = |bench: &mut Bench, room, bytes| {
        bench.get(&call);
        let Some(Effect::Read { most_bytes, .. }) = bench.others.pop() else {
            panic!("{:?}", bench.others);
        };
        assert_eq!(most_bytes, room);
        bench.input(Input::ReadDone {
            read: ReadId(1),
            answer: ReadAnswer::Get(vec![Ok(object(bytes))]),
        });
        match bench.others.pop() {
            Some(Effect::Resume {
                answer: ReadAnswer::Get(mut objects),
                ..
            }) => objects.remove(0).map(|object| object.data.len()),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(read(&mut bench, most, most - 10), Ok(most - 10));
    assert_eq!(read(&mut bench, 10, 10), Ok(10));
    let refused = read(&mut bench, 0, 1).unwrap_err();
    assert!(refused.message.starts_with("liveReadMib: "), "{refused}");
    // The guest continues with the failure; its answer does not count.
    bench.answer(&call, true);
    let failure = bench.reports.iter().find_map(|report| match report {
        Report::Called { failure, .. } => failure.clone(),
        _ => None,
    });
    let failure = failure.unwrap();
    assert_eq!(failure.kind, CallFailureKind::Flood);
    assert!(failure.message.starts_with("liveReadMib: "), "{failure}");
    assert!(bench.executes.is_empty());
    // The next call has all of it again.
    bench.pass(10 * SECOND);
    let call = bench.calls.pop_front().unwrap();
    bench.get(&call);
    let room = bench.others.pop();
    assert!(matches!(room, Some(Effect::Read { most_bytes, .. }) if most_bytes == most));
}

#[test]
fn the_text_of_a_guest_in_the_log_has_a_bound() {
    let most = Bounds::default().log_bytes;
    let mut bench = Bench::running(&["a"]);
    let mut call = bench.calls.pop_front().unwrap();
    assert_eq!(call.log_bytes, most);
    let exceeded = |bench: &mut Bench| {
        let reports = bench.reports.drain(..);
        let exceeded = reports.filter(|report| matches!(report, Report::LogExceeded { .. }));
        exceeded.count()
    };
    let answer = |bench: &mut Bench, call: &Call<Guest>, logged| {
        bench.input(Input::Answered {
            call: call.id,
            result: Err(CallFailure::new(CallFailureKind::Trap, "unreachable")),
            logged,
            took: Duration::ZERO,
            copy: None,
        });
    };
    answer(&mut bench, &call, most - 1000);
    assert_eq!(exceeded(&mut bench), 0);
    bench.pass(2 * SECOND);
    call = bench.calls.pop_front().unwrap();
    assert!(call.log_bytes < 1000);
    answer(&mut bench, &call, 1000);
    bench.pass(4 * SECOND);
    assert_eq!(exceeded(&mut bench), 1);
    call = bench.calls.pop_front().unwrap();
    assert_eq!(call.log_bytes, 0);
    // Nothing more is logged, and that is reported once.
    bench.reports.clear();
    answer(&mut bench, &call, 0);
    let news = bench.reports.iter().any(|report| {
        matches!(
            report,
            Report::Called {
                warning: Some(_),
                ..
            } | Report::LogExceeded { .. }
        )
    });
    assert!(!news);
    // A minute later, there is room again.
    bench.pass(60 * SECOND);
    call = bench.calls.pop_front().unwrap();
    answer(&mut bench, &call, 0);
    bench.pass(20 * SECOND);
    call = bench.calls.pop_front().unwrap();
    assert!(call.log_bytes > most - 1000, "{}", call.log_bytes);
}
