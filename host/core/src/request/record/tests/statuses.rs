//! Writing a status, beside other writers.

use serde_json::{Value, json};

use super::server::{Fate, NAMESPACE, Server};
use super::{host, podgc, status};
use crate::api::ControllerStatus;
use crate::record::{
    Owner, Record, RecordFailure, RecordReceipt, StatusConflict, StatusVersion, StatusWrite,
};
use crate::refusal::ErrorResponse;
use crate::request::{RequestError, record};

const PATH: &str = "controllers/podgc";

fn answered(_: usize, _: &mut Server) -> Fate {
    Fate::Answered
}

/// The version that a host reads now.
fn read(server: &mut Server) -> StatusVersion {
    let answer = server.send(&record::read_status(&podgc()), Fate::Answered);
    let (_, version) = record::status(&podgc(), answer.as_deref()).unwrap();
    version
}

fn over(
    version: Option<StatusVersion>,
    status: ControllerStatus,
    conflict: StatusConflict,
) -> Record {
    Record::Status(StatusWrite {
        status: Box::new(status),
        replaces: version,
        conflict,
    })
}

/// A leader's write.
fn lead(version: Option<StatusVersion>, status: ControllerStatus) -> Record {
    over(version, status, StatusConflict::Fail)
}

fn stable(server: &Server) -> &str {
    server.status("podgc")["stable"]["revision"]
        .as_str()
        .unwrap_or_default()
}

fn failure(result: Result<RecordReceipt, RecordFailure>) -> String {
    let Err(RecordFailure::Failed(message)) = result else {
        panic!("{result:?}");
    };
    message
}

#[test]
fn a_known_version_takes_one_request_and_the_receipt_has_the_next_one() {
    let mut server = Server::with("podgc", "own");
    let version = Some(read(&mut server));
    server.log.clear();
    let first = lead(version, status(host("a", 1), "one"));
    let receipt = server.write(&podgc(), first, answered).unwrap();
    assert_eq!(receipt.version, Some(read(&mut server)));
    assert_eq!(receipt.version.clone().unwrap().writer, Some(host("a", 1)));
    let second = lead(receipt.version, status(host("a", 2), "two"));
    server.write(&podgc(), second, answered).unwrap();
    assert_eq!(stable(&server), "two");
    let write = "PATCH controllers/podgc/status";
    assert_eq!(server.log, [write, "GET controllers/podgc", write]);
}

#[test]
fn an_unknown_version_is_read_first() {
    let mut server = Server::with("podgc", "own");
    let first = lead(None, status(host("a", 1), "one"));
    server.write(&podgc(), first, answered).unwrap();
    assert_eq!(stable(&server), "one");
    // A field that the next status does not have is not left behind.
    let empty = StatusWrite::any(ControllerStatus::default());
    server
        .write(&podgc(), Record::Status(empty), answered)
        .unwrap();
    assert_eq!(stable(&server), "");
}

#[test]
fn a_change_of_the_spec_is_no_conflict() {
    let mut server = Server::with("podgc", "own");
    let version = Some(read(&mut server));
    server.change(PATH, |it| it["spec"] = json!({"mode": "DryRun"}));
    let write = lead(version, status(host("a", 1), "one"));
    let receipt = server.write(&podgc(), write, answered).unwrap();
    assert_eq!(receipt.other_host, None);
    assert_eq!(stable(&server), "one");
    assert_eq!(server.get(PATH).unwrap()["spec"]["mode"], "DryRun");
}

/// The spec may change again between each read and the write that follows it.
#[test]
fn a_spec_that_changes_all_the_time_ends_the_attempt() {
    let mut server = Server::with("podgc", "own");
    let version = Some(read(&mut server));
    let write = lead(version, status(host("a", 1), "one"));
    let changes = |number: usize, server: &mut Server| {
        if number.is_multiple_of(2) {
            server.change(PATH, |it| it["spec"] = json!(number));
        }
        Fate::Answered
    };
    let message = failure(server.write(&podgc(), write, changes));
    assert!(
        message.starts_with("cannot write the status of the Controller podgc: "),
        "{message}"
    );
    assert_eq!(stable(&server), "");
}

#[test]
fn a_write_whose_answer_was_lost_is_written_over() {
    let mut server = Server::with("podgc", "own");
    let version = Some(read(&mut server));
    let lost = lead(version.clone(), status(host("a", 1), "one"));
    failure(server.write(&podgc(), lost, |_, _| Fate::Lost));
    assert_eq!(stable(&server), "one");
    let again = lead(version, status(host("a", 2), "two"));
    let receipt = server.write(&podgc(), again, answered).unwrap();
    assert_eq!(receipt.other_host, None);
    assert_eq!(receipt.version, Some(read(&mut server)));
    assert_eq!(stable(&server), "two");
}

#[test]
fn with_leases_the_status_of_another_host_stays() {
    let mut server = Server::with("podgc", "own");
    let version = Some(read(&mut server));
    let other = lead(version.clone(), status(host("b", 1), "theirs"));
    server.write(&podgc(), other, answered).unwrap();
    let own = lead(version, status(host("a", 1), "one"));
    let result = server.write(&podgc(), own, answered);
    let Err(overtaken) = result else {
        panic!("{result:?}");
    };
    assert_eq!(
        overtaken.to_string(),
        "cannot write the status of the Controller podgc: another replica, davit-b, has written \
         it since"
    );
    assert_eq!(stable(&server), "theirs");
}

/// The other host had written before, and writes again.
#[test]
fn a_second_status_of_the_former_leader_is_another_one() {
    let mut server = Server::with("podgc", "own");
    let first = lead(None, status(host("b", 1), "theirs"));
    let version = server.write(&podgc(), first, answered).unwrap().version;
    let late = lead(version.clone(), status(host("b", 2), "theirs"));
    server.write(&podgc(), late, answered).unwrap();
    let own = lead(version, status(host("a", 1), "one"));
    let result = server.write(&podgc(), own, answered);
    assert!(matches!(
        result,
        Err(RecordFailure::Overtaken { by: Some(_), .. })
    ));
    assert_eq!(stable(&server), "theirs");
}

/// A write of the former leader that arrives after the new leader has written.
#[test]
fn a_late_write_replaces_nothing() {
    let mut server = Server::with("podgc", "own");
    let version = Some(read(&mut server));
    let late = lead(version.clone(), status(host("b", 1), "theirs"));
    let (_, next) = record::RecordUpdate::start(NAMESPACE, &podgc(), late);
    let record::RecordAction::Send(late) = next else {
        panic!("{next:?}");
    };
    let own = lead(version, status(host("a", 1), "one"));
    server.write(&podgc(), own, answered).unwrap();
    let answer = server.send(&late, Fate::Answered);
    assert_eq!(answer.unwrap_err().code(), Some(422));
    assert_eq!(stable(&server), "one");
}

#[test]
fn without_leases_the_other_host_is_reported_and_its_status_replaced() {
    let mut server = Server::with("podgc", "own");
    let version = Some(read(&mut server));
    let other = lead(None, status(host("b", 1), "theirs"));
    server.write(&podgc(), other, answered).unwrap();
    let single = StatusConflict::Replace;
    let own = over(version, status(host("a", 1), "one"), single);
    let receipt = server.write(&podgc(), own, answered).unwrap();
    assert_eq!(receipt.other_host, Some(host("b", 1)));
    assert_eq!(stable(&server), "one");
    let next = over(receipt.version, status(host("a", 2), "two"), single);
    let receipt = server.write(&podgc(), next, answered).unwrap();
    assert_eq!(receipt.other_host, None);
}

/// Another client, such as kubectl, writes a status that names no host, or one that no host
/// can read.
#[test]
fn a_status_of_another_client_stays_with_leases() {
    for foreign in [json!({"summary": "theirs"}), json!({"host": 7}), json!("?")] {
        let mut server = Server::with("podgc", "own");
        let first = lead(None, status(host("a", 1), "one"));
        let version = server.write(&podgc(), first, answered).unwrap().version;
        server.change(PATH, |it| it["status"] = foreign.clone());
        let own = lead(version.clone(), status(host("a", 2), "two"));
        let result = server.write(&podgc(), own, answered);
        assert!(
            matches!(result, Err(RecordFailure::Overtaken { by: None, .. })),
            "{result:?}"
        );
        assert_eq!(*server.status("podgc"), foreign);
        // Without leases, the host repairs it.
        let own = over(
            version,
            status(host("a", 2), "two"),
            StatusConflict::Replace,
        );
        server.write(&podgc(), own, answered).unwrap();
        assert_eq!(stable(&server), "two");
    }
}

/// A failed test and a status that the definition refuses have the same code.
#[test]
fn a_status_that_the_definition_refuses_is_an_error() {
    let mut server = Server::with("podgc", "own");
    server.refuses_status = true;
    let version = Some(read(&mut server));
    server.log.clear();
    let write = lead(version.clone(), status(host("a", 1), "one"));
    let message = failure(server.write(&podgc(), write, answered));
    assert!(message.contains("it is Invalid"), "{message}");
    assert_eq!(server.log.len(), 2, "{:?}", server.log);
    // The same if the spec has changed since.
    server.change(PATH, |it| it["spec"] = json!(2));
    let write = lead(version, status(host("a", 1), "one"));
    failure(server.write(&podgc(), write, answered));
    assert_eq!(server.status("podgc"), &Value::Null);
}

#[test]
fn a_refusal_says_what_was_attempted() {
    let mut server = Server::with("podgc", "own");
    let version = Some(read(&mut server));
    for code in [403, 409, 429, 500, 503] {
        let write = lead(version.clone(), status(host("a", 1), "one"));
        let message = failure(server.write(&podgc(), write, |number, _| {
            if number == 0 {
                Fate::Refused(code)
            } else {
                Fate::Answered
            }
        }));
        let attempt = "cannot write the status of the Controller podgc: ";
        assert!(message.starts_with(attempt), "{code}: {message}");
    }
    assert_eq!(server.status("podgc"), &Value::Null);
}

#[test]
fn a_controller_that_is_gone_or_another_one_has_no_status() {
    let mut server = Server::with("podgc", "own");
    let version = Some(read(&mut server));
    server.delete(PATH);
    let write =
        |version: &Option<StatusVersion>| lead(version.clone(), status(host("a", 1), "one"));
    let gone = "the Controller podgc is gone, or another one has its name";
    let message = failure(server.write(&podgc(), write(&version), answered));
    assert!(message.starts_with(gone), "{message}");
    server.create_controller("podgc", "other");
    for version in [version, None] {
        let message = failure(server.write(&podgc(), write(&version), answered));
        assert!(message.starts_with(gone), "{message}");
    }
    assert_eq!(server.status("podgc"), &Value::Null);
    // Any Controller of that name will do if no uid is given.
    server
        .write(&Owner::named("podgc"), write(&None), answered)
        .unwrap();
    assert_eq!(stable(&server), "one");
}

/// What can be read is what was written.
#[test]
fn a_status_is_read_as_it_was_written() {
    let mut server = Server::with("podgc", "own");
    let request = record::read_status(&podgc());
    let read = |server: &mut Server| {
        let answer = server.send(&request, Fate::Answered);
        record::status(&podgc(), answer.as_deref()).map(|(status, _)| status)
    };
    assert_eq!(read(&mut server), Ok(ControllerStatus::default()));
    let wanted = status(host("a", 1), "one");
    server
        .write(&podgc(), lead(None, wanted.clone()), answered)
        .unwrap();
    assert_eq!(read(&mut server), Ok(wanted));
    server.change(PATH, |it| it["status"] = json!({"stable": 7}));
    let error = read(&mut server).unwrap_err();
    let place = "the status of the Controller podgc is not a record that Davit wrote: ";
    assert!(error.starts_with(place), "{error}");
    server.delete(PATH);
    let error = read(&mut server).unwrap_err();
    assert!(error.starts_with("the Controller podgc is gone"), "{error}");
}

/// The definition is away for a while: the answer names no object.
#[test]
fn a_controller_that_is_not_served_is_not_gone() {
    let refused = ErrorResponse::read(404, None, b"404 page not found");
    let refused = RequestError::Refused(Box::new(refused));
    let error = record::status(&podgc(), Err(&refused)).unwrap_err();
    assert!(
        error.starts_with("cannot read the Controller podgc: "),
        "{error}"
    );
    let error = record::spec(&podgc(), "a", Err(&refused)).unwrap_err();
    assert!(
        error.starts_with("cannot read the ControllerRevision podgc-a: "),
        "{error}"
    );
}
