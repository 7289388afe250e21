//! Recording specs, also if an attempt is interrupted.

use serde_json::json;

use super::server::{Fate, NAMESPACE, Server};
use super::{host, podgc, spec, status};
use crate::api::ControllerSpec;
use crate::record::{
    Activation, MOST_REVISIONS, Owner, Record, RecordFailure, RecordReceipt, StatusWrite,
};
use crate::request::record;

fn activation(revision: &str, at: u32, stable_since: Option<&str>) -> Record {
    Record::Revision(Box::new(Activation {
        revision: revision.to_owned(),
        spec: spec(revision),
        at: format!("2026-11-20T10:00:{at:02}Z"),
        stable_since: stable_since.map(str::to_owned),
    }))
}

fn activate(server: &mut Server, revision: &str, at: u32) {
    let record = activation(revision, at, None);
    server
        .write(&podgc(), record, |_, _| Fate::Answered)
        .unwrap();
}

fn make_stable(server: &mut Server, revision: &str) {
    let status = status(host("a", 1), revision);
    let write = Record::Status(StatusWrite::any(status));
    server
        .write(&podgc(), write, |_, _| Fate::Answered)
        .unwrap();
}

/// The names and numbers, the latest last.
fn numbered(server: &Server) -> Vec<(i64, String)> {
    let all = server.revisions().into_iter();
    all.map(|(number, name, ..)| (number, name)).collect()
}

fn failure(result: Result<RecordReceipt, RecordFailure>) -> String {
    result.expect_err("it fails").to_string()
}

/// A server whose record is full: the oldest spec is the stable revision's.
fn full() -> Server {
    let mut server = Server::with("podgc", "own");
    activate(&mut server, "r0", 0);
    make_stable(&mut server, "r0");
    for number in 1..MOST_REVISIONS {
        activate(
            &mut server,
            &format!("r{number}"),
            u32::try_from(number).unwrap(),
        );
    }
    server
}

#[test]
fn the_latest_activation_has_the_highest_number() {
    let mut server = Server::with("podgc", "own");
    for (at, revision) in ["a", "b", "b", "c", "a"].into_iter().enumerate() {
        activate(&mut server, revision, u32::try_from(at).unwrap());
    }
    let expected = [(2, "podgc-b"), (3, "podgc-c"), (4, "podgc-a")];
    assert_eq!(numbered(&server), expected.map(|(n, r)| (n, r.to_owned())));
    let (.., at, _, owner) = server.revisions().pop().unwrap();
    assert_eq!(
        (at.as_str(), owner.as_str()),
        ("2026-11-20T10:00:04Z", "own")
    );
    let answer = server.send(&record::read_history(NAMESPACE, &podgc()), Fate::Answered);
    let history = record::history(&podgc(), answer.as_deref()).unwrap();
    let names: Vec<&str> = history.iter().map(|one| one.revision.as_str()).collect();
    assert_eq!(names, ["a", "c", "b"]);
    assert_eq!(history[0].spec, spec("a"));
}

#[test]
fn a_spec_that_is_recorded_already_takes_two_reads() {
    let mut server = Server::with("podgc", "own");
    activate(&mut server, "a", 1);
    server.log.clear();
    activate(&mut server, "a", 9);
    assert_eq!(
        server.log,
        ["GET controllers/podgc", "GET controllerrevisions"]
    );
    let since = "2026-11-20T10:00:30.000Z";
    let promoted = activation("a", 30, Some(since));
    server
        .write(&podgc(), promoted, |_, _| Fate::Answered)
        .unwrap();
    let (number, _, at, stable, _) = server.revisions().pop().unwrap();
    assert_eq!((number, at.as_str()), (1, "2026-11-20T10:00:01Z"));
    assert_eq!(stable, since);
    // When it was stable is never forgotten.
    activate(&mut server, "b", 40);
    activate(&mut server, "a", 50);
    assert_eq!(server.revisions().pop().unwrap().3, since);
}

#[test]
fn surplus_specs_are_deleted_but_for_those_in_use() {
    let mut server = full();
    activate(&mut server, "r10", 20);
    activate(&mut server, "r11", 21);
    let names: Vec<String> = numbered(&server)
        .into_iter()
        .map(|(_, name)| name)
        .collect();
    assert_eq!(names.len(), MOST_REVISIONS);
    assert_eq!(names[..2], ["podgc-r0", "podgc-r3"]);
}

/// Nothing is known of what an unreadable status uses: the spec is recorded, and nothing is
/// deleted.
#[test]
fn beside_an_unreadable_status_nothing_is_surplus() {
    let mut server = full();
    server.change("controllers/podgc", |it| {
        it["status"] = json!({"stable": 7});
    });
    activate(&mut server, "r10", 20);
    assert_eq!(server.revisions().len(), MOST_REVISIONS + 1);
    // The next attempt after the status was repaired deletes it.
    make_stable(&mut server, "r0");
    activate(&mut server, "r10", 20);
    assert_eq!(server.revisions().len(), MOST_REVISIONS);
    assert_eq!(server.revisions()[0].1, "podgc-r0");
}

#[test]
fn specs_of_a_former_controller_are_another_ones() {
    let mut server = full();
    server.delete("controllers/podgc");
    let gone = failure(server.write(&podgc(), activation("x", 1, None), |_, _| Fate::Answered));
    assert!(gone.starts_with("the Controller podgc is gone"), "{gone}");
    server.create_controller("podgc", "next");
    let gone = failure(server.write(&podgc(), activation("x", 1, None), |_, _| Fate::Answered));
    assert!(gone.starts_with("the Controller podgc is gone"), "{gone}");
    assert_eq!(server.revisions().len(), MOST_REVISIONS);

    let next = Owner {
        uid: Some("next".to_owned()),
        ..podgc()
    };
    let written = server.write(&next, activation("r3", 30, None), |_, _| Fate::Answered);
    written.unwrap();
    let own: Vec<_> = server.revisions();
    let own: Vec<_> = own
        .into_iter()
        .filter(|(.., owner)| owner == "next")
        .collect();
    assert_eq!(own.len(), 1);
    assert_eq!((own[0].0, own[0].1.as_str()), (1, "podgc-r3"));
    assert_eq!(
        server.revisions().len(),
        MOST_REVISIONS,
        "the others wait for the collector"
    );
    assert_eq!(read(&mut server, &next, "r3"), Some(spec("r3")));
    assert_eq!(read(&mut server, &next, "r4"), None, "the former one's");
    assert_eq!(read(&mut server, &podgc(), "r4"), Some(spec("r4")));
    assert_eq!(read(&mut server, &next, "never"), None);
}

/// The recorded spec of a revision.
fn read(server: &mut Server, owner: &Owner, revision: &str) -> Option<ControllerSpec> {
    let request = record::read_spec(NAMESPACE, owner, revision);
    let answer = server.send(&request, Fate::Answered);
    record::spec(owner, revision, answer.as_deref()).unwrap()
}

/// Another host makes a surplus spec active between the list and the deletion.
#[test]
fn a_spec_that_became_active_since_is_not_deleted() {
    let mut server = full();
    let record = activation("r10", 20, None);
    let written = server.write(&podgc(), record, |number, server| {
        if number == 3 {
            activate(server, "r1", 30);
        }
        Fate::Answered
    });
    written.unwrap();
    let names: Vec<String> = numbered(&server)
        .into_iter()
        .map(|(_, name)| name)
        .collect();
    assert_eq!(names.last().unwrap(), "podgc-r1");
    assert!(names.contains(&"podgc-r0".to_owned()));
}

#[test]
fn a_surplus_spec_that_is_gone_is_no_error() {
    let mut server = full();
    let record = activation("r10", 20, None);
    let written = server.write(&podgc(), record, |number, server| {
        if number == 3 {
            server.delete("controllerrevisions/podgc-r1");
        }
        Fate::Answered
    });
    written.unwrap();
    assert_eq!(server.revisions().len(), MOST_REVISIONS);
}

/// A server before each kind of activation, and the spec that becomes active.
fn situations() -> Vec<(&'static str, Server, Record)> {
    let empty = Server::with("podgc", "own");
    let mut former = full();
    former.delete("controllers/podgc");
    former.create_controller("podgc", "own");
    former.change("controllerrevisions/podgc-r3", |it| {
        it["metadata"]["ownerReferences"][0]["uid"] = json!("former");
    });
    let mut crowded = full();
    crowded.change("controllers/podgc", |it| it["status"] = json!(7));
    for (at, revision) in (20..).zip(["s", "t", "u"]) {
        activate(&mut crowded, revision, at);
    }
    make_stable(&mut crowded, "r0");
    let since = Some("2026-11-20T10:00:30.000Z");
    vec![
        ("first", empty, activation("a", 30, None)),
        ("next", full(), activation("a", 30, since)),
        ("again", full(), activation("r1", 30, None)),
        ("promoted", full(), activation("r9", 30, since)),
        ("former", former, activation("r3", 30, None)),
        ("crowded", crowded, activation("a", 30, None)),
    ]
}

/// Whatever happens to one request, another attempt ends in the same state.
#[test]
fn an_interrupted_activation_ends_as_an_uninterrupted_one() {
    let fates = [
        Fate::Unsent,
        Fate::Lost,
        Fate::Refused(500),
        Fate::Refused(409),
    ];
    for (name, before, record) in situations() {
        let mut whole = before.clone();
        whole.log.clear();
        let written = whole.write(&podgc(), record.clone(), |_, _| Fate::Answered);
        written.unwrap();
        let requests = whole.log.len();
        assert!(requests > 2, "{name}: {:?}", whole.log);
        for (fate, interrupted) in fates.into_iter().flat_map(|fate| {
            let numbers = 0..requests;
            numbers.map(move |number| (fate, number))
        }) {
            let mut server = before.clone();
            let first = server.write(&podgc(), record.clone(), |number, _| {
                if number == interrupted {
                    fate
                } else {
                    Fate::Answered
                }
            });
            // A surplus spec that is refused with a conflict is left to a later attempt.
            assert!(
                first.is_err() || fate == Fate::Refused(409),
                "{name} {fate:?}"
            );
            let again = server.write(&podgc(), record.clone(), |_, _| Fate::Answered);
            again.unwrap();
            assert_eq!(
                server.revisions(),
                whole.revisions(),
                "{name}: {fate:?} of request {interrupted}"
            );
        }
    }
}

/// A host that crashes after any number of requests leaves a record from which any other
/// spec can become active.
#[test]
fn after_a_crash_another_spec_can_become_active() {
    for (name, before, record) in situations() {
        for crash in 0..8 {
            let mut server = before.clone();
            let _ = server.write(&podgc(), record.clone(), |number, _| {
                if number < crash {
                    Fate::Answered
                } else {
                    Fate::Unsent
                }
            });
            activate(&mut server, "z", 50);
            let all = server.revisions();
            assert_eq!(all.last().unwrap().1, "podgc-z", "{name} {crash}");
            let own = all.iter().filter(|(.., owner)| owner == "own").count();
            assert!(own <= MOST_REVISIONS, "{name} {crash}: {own}");
            let in_use = server.status("podgc")["stable"]["revision"].as_str();
            let in_use = in_use.map(|revision| format!("podgc-{revision}"));
            let is_kept = |name: &String| all.iter().any(|(_, kept, ..)| kept == name);
            assert!(in_use.iter().all(is_kept), "{name} {crash}");
        }
    }
}

#[test]
fn a_failure_names_the_request() {
    let mut server = full();
    for (number, attempt) in [
        "cannot read the Controller podgc: ",
        "cannot list the ControllerRevisions of the Controller podgc: ",
        "cannot create the ControllerRevision podgc-a: ",
        "cannot delete the ControllerRevision podgc-r1: ",
    ]
    .into_iter()
    .enumerate()
    {
        let record = activation("a", 1, None);
        let mut copy = server.clone();
        let message = failure(copy.write(&podgc(), record, |now, _| {
            if now == number {
                Fate::Refused(403)
            } else {
                Fate::Answered
            }
        }));
        assert!(message.starts_with(attempt), "{message}");
    }
    let record = activation("r1", 1, None);
    let message = failure(server.write(&podgc(), record, |number, _| {
        if number == 2 {
            Fate::Refused(403)
        } else {
            Fate::Answered
        }
    }));
    let attempt = "cannot renumber the ControllerRevision podgc-r1: ";
    assert!(message.starts_with(attempt), "{message}");
}
