//! What a guest read live, with the answers.

use davit_core::failure::{Failure, FailureClass};
use davit_core::journal::SnapshotReads;
use serde_json::json;

use super::*;
use crate::commands::journal::testing::{
    failed_read, gone, keyframe, list_read, node_read, with_reads,
};

#[test]
fn a_decision_has_each_live_read_with_its_answer() {
    let fields = json!({"metadata": {"name": "n1"}, "spec": {"taints": [{"key": "gone"}]}});
    let mismatch = Failure::new(FailureClass::UidMismatch, "it has the uid b\nnot a");
    let refused = Failure::new(FailureClass::Forbidden, "the server answered 403");
    let live = vec![
        node_read([
            ("n1", Ok(fields.clone())),
            ("n2", Err(gone())),
            ("n3", Err(mismatch)),
        ]),
        list_read(2),
        failed_read(&refused),
        // The list itself is missing: the resource is gone.
        failed_read(&gone()),
    ];
    let answer = with_reads(answer(7, vec![]), SnapshotReads::default(), live);
    let pod = json!({
        "kind": "Pod", "metadata": {"name": "web", "namespace": "default", "uid": "u"},
    });
    let calls = [(2, call(7, "podgc", "pods", "default/web")), (3, answer)];
    let entries = keyframe(&[pod]).into_iter().chain(calls);
    let stories = stories("pod", "default/web", entries);
    let page = serde_json::to_value(&stories).unwrap();
    let list = "list v1/pods namespace=\"default\" fields=\"spec.nodeName=n1\"";
    let failed = |class: &str, message: &str| json!({"result": "failed", "class": class, "message": message});
    assert_eq!(
        page[0]["decisions"][0]["saw"]["liveReads"],
        json!([
            {"request": "get v1 Node n1", "answer": {"result": "found", "fields": fields}},
            {"request": "get v1 Node n2", "answer": {"result": "not-found"}},
            {
                "request": "get v1 Node n3",
                "answer": failed("uid-mismatch", "it has the uid b\nnot a"),
            },
            {"request": list, "answer": {"result": "list", "objects": 2}},
            {"request": list, "answer": failed("forbidden", "the server answered 403")},
            {"request": list, "answer": failed("not-found", "the server answered 404")},
        ]),
        "{page:#}"
    );
    let said = text::text(&stories);
    let expected = [
        format!("get v1 Node n1: found {fields}"),
        "get v1 Node n2: not found".to_owned(),
        "get v1 Node n3: failed (uid-mismatch): it has the uid b\\nnot a".to_owned(),
        format!("{list}: 2 objects"),
        format!("{list}: failed (forbidden): the server answered 403"),
        format!("{list}: failed (not-found): the server answered 404"),
    ];
    let expected = expected.map(|one| format!("\n  read live: {one}")).concat();
    assert!(said.contains(&expected), "{expected}\n{said}");
}

/// The fields of an object in a line have a bound, also those that were read live.
#[test]
fn the_fields_of_what_was_read_live_are_cut_in_the_text() {
    let long = json!({"metadata": {"name": "n1", "labels": {"a": "x".repeat(100_000)}}});
    let live = vec![node_read([("n1", Ok(long))])];
    let answer = with_reads(answer(7, vec![]), SnapshotReads::default(), live);
    let calls = [(2, call(7, "podgc", "pods", "u")), (3, answer)];
    let pod = json!({
        "kind": "Pod", "metadata": {"name": "web", "namespace": "default", "uid": "u"},
    });
    let entries = keyframe(&[pod]).into_iter().chain(calls);
    let said = text::text(&stories("pod", "default/web", entries));
    let mut lines = said.lines();
    let read = lines.find(|line| line.contains("read live")).unwrap();
    assert!((4_000..5_000).contains(&read.len()), "{}", read.len());
    assert!(read.ends_with('…'), "{read}");
}
