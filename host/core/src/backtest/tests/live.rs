//! Live reads of what the recorded lists do not have: which recorded answers serve.

use std::time::Duration;

use serde_json::json;

use super::bench::{FAILED, Guest, IDLE, Recorder, SECOND, Trial, offer};
use super::reads::{after_deletion, get, recorded};
use crate::backtest::{Backtest, LiveAnswers, Refusal};
use crate::controller::{CallId, ControllerId};
use crate::failure::{Failure, FailureClass};
use crate::journal::{AnswerEntry, CallEntry, Entry, LiveRead, Record, StreamEntry};
use crate::live::{ReadAnswer, ReadRequest};
use crate::mapping::{Mapping, ServedResource};
use crate::object::{ApiResource, Kind, ObjectRecord, Uid};
use crate::plan::ListRequest;
use crate::rollout::Role;
use crate::time::{Instant, Now, Wall};
use crate::watch::Condition;

/// A field that the recorded lists do not have.
const MISSING: [&str; 1] = ["spec.tolerations"];

/// The recorded controller has read an object, a list and a Secret live.
fn answers(at: Now, reads: Vec<(ReadRequest, ReadAnswer)>) -> LiveAnswers {
    let mut answers = LiveAnswers::of("test");
    for record in entries(at, reads) {
        answers.note(record);
    }
    answers
}

/// A call of the recorded controller with these live reads, and its answer.
fn entries(at: Now, reads: Vec<(ReadRequest, ReadAnswer)>) -> Vec<Record> {
    let id = CallId {
        controller: ControllerId(1),
        number: 1_000,
    };
    let call = Entry::Call(Box::new(CallEntry {
        id,
        controller: "test".into(),
        revision: "r".into(),
        role: Role::Stable,
        items: vec![],
        reasons: vec![],
        continues: None,
    }));
    let reads = reads.into_iter();
    let answer = Entry::Answer(Box::new(AnswerEntry {
        call: id,
        result: Ok(vec![]),
        is_void: false,
        took: SECOND,
        reads: None,
        live: reads
            .map(|(request, answer)| LiveRead { request, answer })
            .collect(),
        versions: vec![],
    }));
    let record = |entry| Record { now: at, entry };
    [call, answer].map(record).to_vec()
}

fn record(uid: &str) -> ObjectRecord {
    let data = json!({"metadata": {"uid": uid}, "spec": {"tolerations": []}});
    ObjectRecord {
        kind: Kind {
            api_version: "v1".into(),
            kind: "Pod".into(),
        },
        resource_version: "70".into(),
        changed_at: Instant::ZERO,
        data: rmp_serde::to_vec_named(&data).unwrap().into(),
    }
}

fn failure(class: FailureClass) -> Failure {
    Failure::new(class, "GET: it said no")
}

/// The time so many seconds after the end of the history.
fn at(seconds: i64) -> Now {
    let now = recorded().last().unwrap().now;
    let mut at = now;
    at.wall.0 += seconds * 1_000;
    at
}

/// What a read of a pod returns: `found`, or the class of the failure.
fn read(backtest: &mut Backtest<Guest>, name: &str) -> &'static str {
    let Ok(ReadAnswer::Get(answers)) = backtest.read(&get(name, "", &MISSING)) else {
        panic!("{name} is refused");
    };
    let answer = answers.into_iter().next().unwrap();
    answer.map_or_else(|failure| failure.class.as_str(), |_| "found")
}

/// The answer to the read of a pod.
fn answered(name: &str, result: Result<ObjectRecord, Failure>) -> (ReadRequest, ReadAnswer) {
    (get(name, "", &MISSING), ReadAnswer::Get(vec![result]))
}

/// The policy has deleted the pod a, the pod b exists, and no list ever had a pod c. The recorded
/// controller has found it, when its watch lagged.
#[test]
fn recorded_answers_add_fields_to_what_the_recorded_lists_say() {
    let list = ReadRequest::List(ListRequest {
        resource: ApiResource::new("", "v1", "pods"),
        namespace: String::new(),
        label_selector: "app=x".into(),
        field_selector: String::new(),
        fields: vec![],
    });
    let listed = ReadAnswer::List(Ok(vec![record("a"), record("b")]));
    let mut backtest = after_deletion();
    for (seconds, serves) in [(-90, false), (-50, true), (0, true), (1, true), (5, false)] {
        let reads = vec![
            answered("a", Ok(record("a"))),
            answered("b", Ok(record("b"))),
            answered("c", Ok(record("c"))),
            (list.clone(), listed.clone()),
        ];
        backtest.answer_from(answers(at(seconds), reads));
        let b = if serves { "found" } else { "server" };
        let c = if [0, 1].contains(&seconds) {
            "found"
        } else {
            "not-found"
        };
        let found = ["a", "b", "c"].map(|name| read(&mut backtest, name));
        assert_eq!(found, ["not-found", b, c], "{seconds}");
        let Ok(ReadAnswer::List(objects)) = backtest.read(&list) else {
            panic!("the list is refused");
        };
        assert_eq!(objects.is_ok(), serves, "{seconds}");
        if let Ok(objects) = objects {
            // The policy has deleted the pod a.
            assert_eq!(objects.len(), 1);
            // Not a version that the backtest never had.
            assert_ne!(&*objects[0].resource_version, "70");
        }
    }
    let report = backtest.finish().unwrap();
    assert_eq!(report.undecided.reads, 2 * 2);
    assert_eq!(report.activity.recorded_reads, 3 * 2 + 2);
    let note = report.notes.iter().find(|it| it.contains("not decidable"));
    assert!(
        note.unwrap().contains("v1 Pod ns/b (spec.tolerations)"),
        "{note:?}"
    );
}

/// Unknown is never absent.
#[test]
fn what_nobody_watches_is_not_absent() {
    let mut backtest = after_deletion();
    let later = answers(at(10), vec![answered("d", Ok(record("d")))]);
    backtest.answer_from(later);
    assert_eq!(read(&mut backtest, "c"), "not-found");
    let stream = |condition| StreamEntry {
        resource: "v1/pods".into(),
        is_current: true,
        condition,
    };
    let reason = "forbidden".to_owned();
    let now = backtest.now.instant;
    let interrupted = stream(Condition::Interrupted { reason });
    backtest.gaps.note(&interrupted, now);
    assert_eq!(read(&mut backtest, "c"), "server");
    let gone = failure(FailureClass::NotFound);
    backtest.answer_from(answers(at(0), vec![answered("c", Err(gone))]));
    assert_eq!(read(&mut backtest, "c"), "not-found", "it was asked");
    backtest.answer_from(LiveAnswers::of("test"));
    backtest.gaps.note(&stream(Condition::Synced), now);
    assert_eq!(read(&mut backtest, "c"), "server", "it catches up");
    backtest.now.instant = now.after(SECOND * 10);
    assert_eq!(read(&mut backtest, "c"), "not-found");
}

/// Without the recorded answers, nobody can say.
#[test]
fn what_no_list_has_is_refused_without_answers() {
    let mut backtest = after_deletion();
    let error = backtest.read(&get("c", "", &MISSING)).unwrap_err();
    assert!(matches!(error, Refusal::Read { .. }), "{error}");
}

/// It was not there when the recorded controller asked, and it has created it then.
#[test]
fn the_first_answer_counts() {
    let mut backtest = after_deletion();
    let mut live = LiveAnswers::of("test");
    let gone = Err(failure(FailureClass::NotFound));
    for (millis, result) in [(0, gone), (500, Ok(record("c")))] {
        let mut now = at(0);
        now.wall.0 += millis;
        for record in entries(now, vec![answered("c", result)]) {
            live.note(record);
        }
    }
    backtest.answer_from(live);
    assert_eq!(read(&mut backtest, "c"), "not-found");
}

/// The recorded controller has asked a moment before it was removed.
#[test]
fn what_was_removed_is_not_found_by_an_answer_that_came_later() {
    for is_removed in [true, false] {
        let mut backtest = after_deletion();
        backtest.answer_from(answers(at(0), vec![answered("c", Ok(record("c")))]));
        if is_removed {
            backtest.removed.insert(&Uid::new("c"));
        }
        let expected = if is_removed { "not-found" } else { "found" };
        assert_eq!(read(&mut backtest, "c"), expected);
    }
}

#[test]
fn a_recorded_failure_of_a_read_answers_nothing() {
    for class in [
        FailureClass::Throttled,
        FailureClass::Timeout,
        FailureClass::Server,
        FailureClass::Forbidden,
    ] {
        for is_listed in [true, false] {
            let mut backtest = after_deletion();
            let reads = vec![answered("b", Err(failure(class)))];
            backtest.answer_from(answers(at(0), reads));
            if !is_listed {
                backtest.cluster.history.restart();
            }
            assert_eq!(read(&mut backtest, "b"), "server");
            assert_eq!(backtest.undecided.report().reads, 1, "{class}");
        }
    }
}

/// It is another object of the name, or was not there yet, or has changed since.
#[test]
fn a_recorded_answer_that_the_recorded_lists_contradict_serves_nobody() {
    let old = ObjectRecord {
        resource_version: "1".into(),
        ..record("b")
    };
    let absent = failure(FailureClass::NotFound);
    for result in [Err(absent), Ok(record("other")), Ok(old)] {
        let mut backtest = after_deletion();
        backtest.answer_from(answers(at(0), vec![answered("b", result.clone())]));
        assert_eq!(read(&mut backtest, "b"), "server", "{result:?}");
        assert_eq!(backtest.finish().unwrap().undecided.reads, 1);
    }
}

/// A history in which the recorded controller has deleted the pod a, which it has read live
/// before and after: the backtest of a policy that deletes nothing, over all of it or up to the
/// deletion.
fn after_recorded_deletion(keeps: bool, ends_before: bool) -> Backtest<Guest> {
    let mut recorder = Recorder::start(FAILED);
    recorder.pod("a", "a", "Running");
    recorder.pass(10 * SECOND);
    let before = recorder.now;
    let first = recorder.records.len();
    let long_before = Wall(before.wall.0 - 8_000);
    recorder.pod("a", "a", "Failed");
    recorder.pass(SECOND / 2);
    let after = recorder.now;
    recorder.pass(20 * SECOND);
    recorder.node("n1", None);
    let mut live = LiveAnswers::of("test");
    let reads = |now: Now, result| entries(now, vec![answered("a", result)]);
    let earlier = Now {
        wall: long_before,
        ..before
    };
    let found = reads(earlier, Ok(record("a")));
    let gone = reads(after, Err(failure(FailureClass::NotFound)));
    let (start, end) = recorder.records.split_at(first);
    let all = start.iter().cloned().chain(found);
    for record in all.chain(end.iter().cloned()).chain(gone) {
        live.note(record);
    }
    let mut trial = Trial::of(IDLE);
    if keeps {
        trial.settings.tolerance = Duration::MAX;
    }
    let mut backtest = Backtest::new(trial.settings);
    backtest.answer_from(live);
    let mut desired = Some(trial.desired);
    let records = if ends_before {
        start
    } else {
        &recorder.records
    };
    for record in records.iter().cloned() {
        if backtest.controller().is_some_and(|it| it.stable.is_some())
            && let Some(desired) = desired.take()
        {
            backtest.start(desired);
        }
        offer(&mut backtest, record).unwrap();
    }
    backtest
}

/// The time of that deletion, in milliseconds.
fn at_deletion() -> i64 {
    let mut recorder = Recorder::start(FAILED);
    recorder.pass(10 * SECOND);
    recorder.now.wall.0
}

#[test]
fn an_object_that_stays_although_the_recorded_controller_deleted_it_is_read_live() {
    for (keeps, found) in [(true, "found"), (false, "not-found")] {
        let mut backtest = after_recorded_deletion(keeps, false);
        assert_eq!(read(&mut backtest, "a"), found);
        // Its listed fields are those from before the deletion.
        let Ok(ReadAnswer::Get(answers)) = backtest.read(&get("a", "a", &["status.phase"])) else {
            panic!("it is refused");
        };
        assert_eq!(answers[0].is_ok(), keeps);
    }
}

/// The recorded controller asks half a second later, when it has deleted the pod.
#[test]
fn what_the_recorded_controller_causes_later_answers_no_former_question() {
    let mut backtest = after_recorded_deletion(false, true);
    // No list of the journal has it any more: only recorded answers say whether it exists.
    backtest.cluster.history.restart();
    let deletion = at_deletion();
    for (millis, found) in [(-300, "found"), (500, "not-found")] {
        backtest.now.wall.0 = deletion + millis;
        assert_eq!(read(&mut backtest, "a"), found, "{millis}");
    }
}

#[test]
fn answers_of_two_hosts_are_not_mixed_up() {
    let mut live = LiveAnswers::of("test");
    let mut call = entries(at(0), vec![answered("b", Ok(record("b")))]);
    let answer = call.pop().unwrap();
    for record in call {
        live.note(record);
    }
    live.restart();
    live.note(answer);
    let mut backtest = after_deletion();
    backtest.answer_from(live);
    assert_eq!(read(&mut backtest, "b"), "server");
}

#[test]
fn the_recorded_answer_about_a_secret_lacks_its_data() {
    let mut backtest = after_deletion();
    let mapping = Mapping::new([ServedResource {
        resource: ApiResource::new("", "v1", "secrets"),
        kind: "Secret".into(),
        namespaced: true,
        verbs: ["list".to_owned()].into(),
        preferred: true,
    }]);
    let now = recorded().last().unwrap().now;
    backtest.offer(Record {
        now,
        entry: Entry::Mapping(mapping.into()),
    });
    assert!(backtest.poll().unwrap().is_none());
    let ReadRequest::Get(mut requests) = get("s", "", &["data"]) else {
        panic!("an object");
    };
    requests[0].target.kind = "Secret".into();
    let request = ReadRequest::Get(requests);
    let answer = ReadAnswer::Get(vec![Ok(record("s"))]);
    backtest.answer_from(answers(now, vec![(request.clone(), answer)]));
    let Ok(ReadAnswer::Get(answers)) = backtest.read(&request) else {
        panic!("it is refused");
    };
    assert!(answers[0].is_err(), "{answers:?}");
}
