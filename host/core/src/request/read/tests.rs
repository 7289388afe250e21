use serde_json::json;

use super::*;
use crate::failure::{Failure, FailureClass};
use crate::mapping::{Mapping, ServedResource};
use crate::object::{ApiResource, ObjectRef};
use crate::plan::GetRequest;
use crate::request::{NoAnswer, ParallelAction, RequestError};

fn mapping() -> Mapping {
    Mapping::new([ServedResource {
        resource: ApiResource::new("", "v1", "pods"),
        kind: "Pod".into(),
        namespaced: true,
        verbs: vec!["get".into()],
        preferred: true,
    }])
}

fn read(name: &str) -> GetRequest {
    GetRequest {
        target: ObjectRef {
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: "ns".into(),
            name: name.into(),
            uid: String::new(),
        },
        fields: Vec::new(),
    }
}

fn stored(name: &str) -> Vec<u8> {
    let metadata = json!({
        "name": name, "namespace": "ns", "uid": name, "resourceVersion": "7",
    });
    json!({"metadata": metadata}).to_string().into_bytes()
}

/// The numbers of the requests that are sent now, and the result if there is one.
fn polled(reads: &mut ObjectReads) -> (Vec<usize>, Option<Vec<Result<ObjectRecord, Failure>>>) {
    let mut sent = Vec::new();
    loop {
        match reads.poll() {
            ParallelAction::Send(number, _) => sent.push(number),
            ParallelAction::Wait => return (sent, None),
            ParallelAction::Done(answers) => return (sent, Some(answers)),
        }
    }
}

/// The class of each failure.
fn classes(answers: &[Result<ObjectRecord, Failure>]) -> Vec<Option<FailureClass>> {
    let failures = answers.iter().map(|answer| answer.as_ref().err());
    failures.map(|one| one.map(|one| one.class)).collect()
}

#[test]
fn answers_have_the_order_of_the_reads() {
    let unmappable = GetRequest {
        target: ObjectRef {
            kind: "Gadget".into(),
            ..read("gadget").target
        },
        fields: Vec::new(),
    };
    let other = GetRequest {
        target: ObjectRef {
            uid: "former".into(),
            ..read("other").target
        },
        fields: Vec::new(),
    };
    let all = [read("a"), unmappable, other, read("b"), read("c")];
    let mut reads = ObjectReads::start(&mapping(), &all, usize::MAX);
    assert_eq!(polled(&mut reads).0, [0, 2, 3, 4]);
    let silence = RequestError::NoAnswer(NoAnswer::strange("reset"));
    reads.handle(4, Ok(&stored("c")), Instant::from_nanos(3));
    reads.handle(3, Err(&silence), Instant::from_nanos(4));
    reads.handle(2, Ok(&stored("other")), Instant::from_nanos(5));
    assert!(polled(&mut reads).1.is_none());
    reads.handle(0, Ok(&stored("a")), Instant::from_nanos(6));
    let answers = polled(&mut reads).1.unwrap();
    assert_eq!(
        classes(&answers),
        [
            None,
            Some(FailureClass::Unmappable),
            Some(FailureClass::UidMismatch),
            Some(FailureClass::Timeout),
            None,
        ]
    );
    let times = [0, 4].map(|at: usize| answers[at].as_ref().unwrap().changed_at);
    assert_eq!(times, [6, 3].map(Instant::from_nanos));
}

#[test]
fn at_most_thirty_two_reads_are_under_way() {
    let all: Vec<GetRequest> = (0..40).map(|number| read(&format!("p{number}"))).collect();
    let mut reads = ObjectReads::start(&mapping(), &all, usize::MAX);
    assert_eq!(polled(&mut reads).0, (0..32).collect::<Vec<_>>());
    assert!(polled(&mut reads).0.is_empty());
    // A late first answer keeps no other read from being sent.
    reads.handle(5, Ok(&stored("p5")), Instant::ZERO);
    reads.handle(5, Ok(&stored("p5")), Instant::ZERO);
    assert_eq!(polled(&mut reads), (vec![32], None));
}

/// The machine refuses such an answer: the other reads would be in vain.
#[test]
fn reads_end_with_more_than_the_bound_of_bytes() {
    let all: Vec<GetRequest> = (0..40).map(|number| read(&format!("p{number}"))).collect();
    let size = {
        let mut reads = ObjectReads::start(&mapping(), &[read("p0")], usize::MAX);
        polled(&mut reads);
        reads.handle(0, Ok(&stored("p0")), Instant::ZERO);
        let answers = polled(&mut reads).1.unwrap();
        answers[0].as_ref().unwrap().data.len()
    };
    let mut reads = ObjectReads::start(&mapping(), &all, 2 * size);
    polled(&mut reads);
    for number in [7, 3] {
        reads.handle(number, Ok(&stored("p0")), Instant::ZERO);
        assert!(polled(&mut reads).1.is_none(), "exactly the bound");
    }
    reads.handle(0, Ok(&stored("p0")), Instant::ZERO);
    let (sent, answers) = polled(&mut reads);
    let answers = answers.unwrap();
    assert!(sent.is_empty());
    assert_eq!(answers.len(), 40);
    let read: Vec<usize> = (0..40).filter(|at| answers[*at].is_ok()).collect();
    assert_eq!(read, [0, 3, 7]);
    assert_eq!(
        answers[1].as_ref().unwrap_err().to_string(),
        "server: not read: too many bytes"
    );
}

#[test]
fn no_read_has_an_answer_at_once() {
    let mut reads = ObjectReads::start(&mapping(), &[], 0);
    assert_eq!(polled(&mut reads), (Vec::new(), Some(Vec::new())));
}
