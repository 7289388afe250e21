//! A guest that asks for JSON gets JSON wherever another one gets MessagePack, and the host
//! gets MessagePack of both.

use std::sync::{Arc, Mutex};

use davit_core::answer::AnswerError;
use davit_core::journal::SnapshotReads;
use davit_core::plan::{Command, Decision, Step};
use davit_engine::{CallError, DescribeError, Encoding, Guest, Limits};

use crate::artifacts;
use crate::harness::{SlowReads, ask, call, call_with, engine, limits, odd_guest, report};

/// `{"deep": {"list": [1, 2.5, 9007199254740993]}}`
const CONFIG: &[u8] =
    b"\x81\xa4deep\x81\xa4list\x93\x01\xcb\x40\x04\0\0\0\0\0\0\xcf\0\x20\0\0\0\0\0\x01";

async fn guest_of(wasm: Vec<u8>, limits: Limits) -> Result<Guest, DescribeError> {
    let module = engine().load(wasm).await.unwrap();
    Guest::new(&module, CONFIG, limits).await
}

async fn guest() -> Guest {
    let wasm = artifacts::guest("fixture-encoded");
    guest_of(wasm, limits()).await.unwrap()
}

async fn decide(behaviour: &str) -> Result<Decision, CallError> {
    let decisions = guest().await.reconcile(call(&[behaviour])).await?;
    let [decision] = <[Decision; 1]>::try_from(decisions).unwrap();
    Ok(decision)
}

async fn refusal(behaviour: &str) -> AnswerError {
    match decide(behaviour).await.unwrap_err() {
        CallError::Malformed(error) => error,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_guest_that_names_no_encoding_has_messagepack() {
    assert_eq!(odd_guest(limits()).await.encoding(), Encoding::MessagePack);
    assert_eq!(guest().await.encoding(), Encoding::Json);
}

#[tokio::test]
async fn everything_that_a_guest_reads_is_json() {
    let guest = guest().await;
    let (n1, n2) = (
        r#"{"spec":{"nodeName":"n1"}}"#,
        r#"{"spec":{"nodeName":"n2"}}"#,
    );
    let none = r#"{"spec":{"nodeName":""}}"#;
    for (question, answer) in [
        (
            "config",
            r#"{"deep":{"list":[1,2.5,9007199254740993]}}"#.to_owned(),
        ),
        ("get:ns/p3", n2.to_owned()),
        ("get:ns/gone", String::new()),
        ("scan", [n1, n1, n1, n2, none].join(" ")),
        ("in-order", [n1, n1, n1, n2].join(" ")),
        ("note:seen", "true".to_owned()),
        ("note:other", "none".to_owned()),
    ] {
        assert_eq!(ask(&guest, question).await.unwrap(), answer, "{question}");
    }
    for (question, answer) in [("live", n1.to_owned()), ("list", [n1; 3].join(" "))] {
        let call = call_with(&[question], Arc::new(SlowReads::default()));
        let found = report(guest.reconcile(call).await.unwrap());
        assert_eq!(found, answer, "{question}");
    }
}

#[tokio::test]
async fn everything_that_a_guest_writes_becomes_messagepack() {
    let plan = decide(r#"patch:{"a":[1, -1, 0.5, "x"], "b": null}"#).await;
    let Step::Patch(patch) = &plan.unwrap().plans[0].steps[0] else {
        panic!("a patch");
    };
    let body = b"\x82\xa1a\x94\x01\xff\xcb\x3f\xe0\0\0\0\0\0\0\xa1x\xa1b\xc0";
    assert_eq!(patch.body, body);

    let text = r#"create:{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "b"}}"#;
    let plan = decide(text).await;
    let Step::Create(create) = &plan.unwrap().plans[0].steps[0] else {
        panic!("a creation");
    };
    assert_eq!(create.object.name, "b");
    assert_eq!(
        create.body,
        b"\x83\xaaapiVersion\xa2v1\xa4kind\xa3Pod\xa8metadata\x81\xa4name\xa1b"
    );

    let decision = decide("set-note:18446744073709551615").await.unwrap();
    let note = Command::SetNote {
        key: "seen".to_owned(),
        value: Some(b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff".to_vec()),
    };
    assert_eq!(decision.commands, [note]);
}

/// The journal, a replay and a backtest have the machine's own values.
#[tokio::test]
async fn a_journal_has_messagepack_of_what_a_guest_read() {
    let reads = Arc::new(Mutex::new(SnapshotReads::default()));
    let mut call = call(&["note:seen"]);
    call.reads = Some(Arc::clone(&reads));
    guest().await.reconcile(call).await.unwrap();
    let reads = reads.lock().unwrap();
    let note = reads.notes.get("seen").unwrap();
    assert_eq!(note.as_deref(), Some(&[0xc3][..]));
}

#[tokio::test]
async fn text_that_is_not_json_is_refused_with_its_place_and_position() {
    for (behaviour, reason) in [
        (
            "patch:{\"a\": 1,}",
            "decision 0, plan 0, step 0: the body of the patch is not JSON: trailing comma at \
             line 1 column 9",
        ),
        (
            "create:",
            "decision 0, plan 0, step 0: the body of the creation is not JSON: EOF while parsing \
             a value at line 1 column 0",
        ),
        (
            "set-note:[1,\n18446744073709551616]",
            "decision 0: the body of the note is not JSON: an integer needs more than 64 bits at \
             line 2 column 1",
        ),
    ] {
        assert_eq!(refusal(behaviour).await.to_string(), reason);
    }
}

#[tokio::test]
async fn json_is_checked_as_messagepack_is() {
    for (behaviour, reason) in [
        ("patch:[]", "the body of the patch is not an object"),
        (
            r#"patch:{"a": 1, "a": 2}"#,
            "the body of the patch is not JSON in MessagePack: a map has a key twice",
        ),
        (
            r#"create:{"metadata": {"name": "b"}}"#,
            "the body of the creation has no apiVersion and kind",
        ),
    ] {
        let place = "decision 0, plan 0, step 0";
        let reason = format!("{place}: {reason}");
        assert_eq!(refusal(behaviour).await.to_string(), reason);
    }
}

#[tokio::test]
async fn an_answer_that_grows_in_messagepack_has_the_same_limit() {
    let error = decide("numbers").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the guest exceeded its limit of 16777216 bytes in the payloads of one answer"
    );
}

#[tokio::test]
async fn an_unknown_encoding_is_refused_by_name() {
    let mut wasm = artifacts::guest("fixture-encoded");
    let (known, unknown) = (b"the encoding is json", b"the encoding is yaml");
    let at = wasm.windows(known.len()).position(|bytes| bytes == known);
    let at = at.unwrap();
    wasm[at..at + known.len()].copy_from_slice(unknown);
    let error = guest_of(wasm, limits()).await.err().unwrap();
    assert_eq!(
        error.to_string(),
        "the guest asks for the encoding \"yaml\"; this host knows messagepack and json"
    );
}
