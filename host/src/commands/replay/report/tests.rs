//! The report of the first difference.

use std::sync::Arc;
use std::time::Duration;

use davit_core::journal::LiveRead;
use davit_core::plan::QueueKey;
use davit_core::queue::PendingItem;
use davit_core::time::Instant;
use serde_json::{Value, json};

use super::super::reads::snapshot_reads;
use super::*;
use crate::commands::journal::testing::{
    answer, call, gone, keyframe, node_read, recorded_call, with_reads,
};

/// The pod of the call's item, on a node that the cache does not have.
fn web() -> Value {
    json!({
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "uid": "u"},
        "spec": {"nodeName": "n2"},
        "status": {"phase": "Failed"},
    })
}

/// What the guest read: an item that is pending and one that is not, which only a former journal
/// has, and a note.
fn recorded_reads() -> SnapshotReads {
    let item = |key: &str| QueueKey {
        queue: "pods".to_owned(),
        key: key.to_owned(),
    };
    let second = |seconds| Instant::ZERO.after(Duration::from_secs(seconds));
    let pending = PendingItem {
        created_at: second(1),
        due_at: second(60),
    };
    let note: Arc<[u8]> = rmp_serde::to_vec_named(&json!({"count": 3}))
        .unwrap()
        .into();
    SnapshotReads {
        pending: [
            (item("default/later"), Some(pending)),
            (item("default/web"), None),
        ]
        .into(),
        notes: [("seen".to_owned(), Some(note))].into(),
        is_cut: false,
    }
}

/// The report of a call about the pod with this key that has another decision now, with what
/// its guest reads now.
fn reported(key: &str, now: GuestReads) -> String {
    let read = node_read([("n2", Err(gone()))]);
    let answer = with_reads(answer(7, vec![]), recorded_reads(), vec![read]);
    let reads = snapshot_reads(&answer);
    let calls = [(2, call(7, "podgc", "pods", key)), (3, answer)];
    let call = recorded_call(keyframe(&[web()]).into_iter().chain(calls));
    let now = Side {
        title: "now".to_owned(),
        decisions: "retry: no node".to_owned(),
        reads: now,
    };
    let difference = FirstDifference {
        difference: "item 0: the verdict differs".to_owned(),
        sides: [Side::recorded(&call, reads), now],
        call,
    };
    difference.text()
}

/// The queues and notes of the recorded call, and this live read.
fn with_live(live: LiveRead) -> GuestReads {
    GuestReads {
        snapshot: recorded_reads(),
        live: vec![live],
    }
}

#[test]
fn the_first_difference_has_what_the_guest_saw_and_what_both_read_once() {
    let live = node_read([("n2", Err(gone()))]);
    let text = reported("default/web", with_live(live));
    let heading = "first difference: call 1-7 of podgc at 1970-01-01T00:00:02Z\n";
    assert!(text.starts_with(heading), "{text}");
    let item = "\n  item 0: the verdict differs\n  item 0: pods default/web (page)\n    saw in ";
    assert!(text.contains(item), "{text}");
    let (_, pod) = text.split_once("\n    saw in pods: ").unwrap();
    let (pod, rest) = pod.split_once('\n').unwrap();
    let mut expected = web();
    expected.as_object_mut().unwrap().remove("kind");
    assert_eq!(serde_json::from_str::<Value>(pod).unwrap(), expected);
    let expected = "    node Node n2: not in its watches
  both:
    read item pods default/later: pending since 1970-01-01T00:00:01Z, due at 1970-01-01T00:01:00Z
    read note seen: {\"count\":3}
    read live: get v1 Node n2: not found
  recorded:
    done
  now:
    retry: no node";
    assert_eq!(rest, expected);
}

#[test]
fn what_only_one_of_the_calls_read_is_listed_with_its_decision() {
    let found = json!({"metadata": {"name": "n2"}});
    let mut now = with_live(node_read([("n2", Ok(found.clone()))]));
    now.snapshot.notes.clear();
    let other: Arc<[u8]> = rmp_serde::to_vec_named(&json!(4)).unwrap().into();
    now.snapshot.notes.insert("other".to_owned(), Some(other));
    let text = reported("default/web", now);
    let (_, rest) = text.split_once("due at 1970-01-01T00:01:00Z\n").unwrap();
    let expected = format!(
        "  recorded:
    done
    read note seen: {{\"count\":3}}
    read live: get v1 Node n2: not found
  now:
    retry: no node
    read note other: 4
    read live: get v1 Node n2: found {found}"
    );
    assert_eq!(rest, expected);
}

/// A key may be a uid, or name no object.
#[test]
fn the_objects_of_an_item_are_those_that_its_key_names() {
    let text = reported("u", GuestReads::default());
    assert!(text.contains("\n    saw in pods: {\"metadata\""), "{text}");
    let text = reported("zone-a", GuestReads::default());
    let unknown = "\n    saw: its watches had no object of this key\n  recorded:\n";
    assert!(text.contains(unknown), "{text}");
}

#[test]
fn many_reads_are_counted_behind_the_first_ones() {
    let names: Vec<String> = (0..150).map(|number| format!("gone-{number}")).collect();
    let nodes = names.iter().map(|name| (&**name, Err(gone())));
    let text = reported("default/web", with_live(node_read(nodes)));
    assert_eq!(text.matches("read live: get v1 Node gone-").count(), 100);
    assert!(text.ends_with("\n    and 50 more"), "{text}");
}
