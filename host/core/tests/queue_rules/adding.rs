//! Enqueueing, and the order of items.

use super::*;

#[test]
fn a_key_is_pending_once_and_keeps_its_place() {
    let mut queues = queues();
    for key in ["b", "a", "b"] {
        fresh(&mut queues, at(1), key);
    }
    fresh(&mut queues, at(2), "b");
    let items = items(&mut queues, at(3));
    let times: Vec<_> = items
        .iter()
        .map(|item| (item.key.as_str(), item.created_at, item.due_at))
        .collect();
    assert_eq!(times, [("b", at(1), at(1)), ("a", at(1), at(1))]);
    assert_eq!(queues.dequeue(at(3)), None);
    assert_eq!(queues.next_due(at(3)), None);
}

#[test]
fn a_key_enqueued_during_its_reconcile_is_reconciled_afterwards() {
    let mut queues = queues();
    fresh(&mut queues, at(1), "a");
    dequeue_one(&mut queues, at(1));
    fresh(&mut queues, at(2), "a");
    fresh(&mut queues, at(3), "a");
    assert_eq!(waiting(&queues, "a").unwrap().created_at, at(2));
    assert_eq!(queues.dequeue(at(3)), None, "one call per key");
    assert_eq!(queues.next_due(at(3)), None);
    let finished = done(&mut queues, at(4), "a", Finish::Done);
    assert_eq!(finished.work_duration, SECOND * 3);
    assert_eq!(finished.due_at, Some(at(2)));
    assert_eq!(dequeue_one(&mut queues, at(4)).created_at, at(2));
    let finished = done(&mut queues, at(5), "a", Finish::Done);
    assert_eq!(finished.due_at, None);
    assert_eq!(queues.next_due(at(5)), None);
}

/// The reason follows the due time: what comes later to a pending item changes neither,
/// unless it makes the item due earlier.
#[test]
fn an_item_has_the_reason_that_made_it_due() {
    let mut queues = queues();
    fresh(&mut queues, at(1), "changed");
    relist(&mut queues, at(1), "listed");
    relist(&mut queues, at(2), "changed");
    queues.enqueue(at(1), &enqueue("timer", 60)).unwrap();
    queues.enqueue(at(1), &enqueue("hastened", 60)).unwrap();
    fresh(&mut queues, at(3), "hastened");
    let mut reasons = std::collections::BTreeMap::new();
    while let Some(batch) = queues.dequeue(at(100)) {
        for (item, reason) in batch.items.iter().zip(&batch.reasons) {
            reasons.insert(item.key.clone(), reason.as_str());
        }
    }
    let expected = [
        ("changed", "change"),
        ("hastened", "change"),
        ("listed", "list"),
        ("timer", "command"),
    ];
    assert_eq!(
        reasons,
        expected
            .map(|(key, reason)| (key.to_owned(), reason))
            .into()
    );
    let retry = Finish::Retry {
        failures: vec![],
        retry_after: None,
    };
    done(&mut queues, at(100), "timer", retry);
    done(&mut queues, at(100), "listed", Finish::RequeueAfter(SECOND));
    let mut again = Vec::new();
    while let Some(batch) = queues.dequeue(at(10_000)) {
        again.extend(
            batch
                .reasons
                .iter()
                .map(davit_core::queue::EnqueueReason::as_str),
        );
    }
    again.sort_unstable();
    assert_eq!(again, ["requeue", "retry"]);
}

#[test]
fn undeclared_queues_are_an_error() {
    let mut queues = queues();
    let error = queues.add(at(1), "p", "a", Origin::Fresh).unwrap_err();
    let queue = "p".to_owned();
    assert_eq!(error, QueueError::Undeclared { queue });
    assert!(!queues.cancel(at(1), "p", "a"));
    assert_eq!(queues.done(at(1), "p", "a", Finish::Done), None);
    assert_eq!(queues.done(at(1), "q", "a", Finish::Done), None);
}

#[test]
fn fresh_items_overtake_a_relist_which_gets_one_in_ten() {
    let mut queues = queues();
    for key in 0..100 {
        relist(&mut queues, at(1), &format!("r{key:02}"));
    }
    for key in 0..27 {
        fresh(&mut queues, at(2), &format!("f{key:02}"));
    }
    let keys = dequeue(&mut queues, at(3));
    let lanes: String = keys.iter().map(|key| &key[..1]).collect();
    let expected = "fffffffffr".repeat(3) + &"r".repeat(70);
    assert_eq!(lanes, expected);
    assert!(keys.iter().filter(|key| key.starts_with('r')).is_sorted());
    assert!(keys.iter().filter(|key| key.starts_with('f')).is_sorted());
}

#[test]
fn a_relisted_item_that_is_enqueued_fresh_changes_lane() {
    let mut queues = queues();
    for key in ["a", "b", "c"] {
        relist(&mut queues, at(1), key);
    }
    fresh(&mut queues, at(2), "c");
    relist(&mut queues, at(3), "c");
    assert_eq!(dequeue(&mut queues, at(3)), ["c", "a", "b"]);
}

#[test]
fn a_relisted_timer_is_due_in_the_relist_lane() {
    let mut queues = queues();
    queues.enqueue(at(1), &enqueue("timer", 60)).unwrap();
    relist(&mut queues, at(2), "timer");
    fresh(&mut queues, at(3), "event");
    assert_eq!(dequeue(&mut queues, at(3)), ["event", "timer"]);
}
