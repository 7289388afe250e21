//! Due times and cancellation.

use super::*;

#[test]
fn a_delayed_item_is_due_exactly_at_its_time() {
    let mut queues = queues();
    queues.enqueue(at(1), &enqueue("a", 40)).unwrap();
    assert_eq!(queues.next_due(at(1)), Some(at(41)));
    assert_eq!(
        queues.dequeue(Instant::from_nanos(at(41).as_nanos() - 1)),
        None
    );
    let item = dequeue_one(&mut queues, at(41));
    assert_eq!((item.created_at, item.due_at), (at(1), at(41)));
}

#[test]
fn the_earlier_time_applies_and_the_creation_time_stays() {
    let mut queues = queues();
    queues.enqueue(at(1), &enqueue("a", 40)).unwrap();
    queues.enqueue(at(2), &enqueue("a", 100)).unwrap();
    let kept = PendingItem {
        created_at: at(1),
        due_at: at(41),
    };
    assert_eq!(waiting(&queues, "a"), Some(kept));
    queues.enqueue(at(3), &enqueue("a", 10)).unwrap();
    assert_eq!(waiting(&queues, "a").unwrap().due_at, at(13));
    fresh(&mut queues, at(4), "a");
    let item = dequeue_one(&mut queues, at(4));
    assert_eq!((item.created_at, item.due_at), (at(1), at(4)));
    assert_eq!(queues.next_due(at(4)), None, "nothing is left behind");
}

#[test]
fn a_due_item_stays_due() {
    let mut queues = queues();
    fresh(&mut queues, at(1), "a");
    queues.enqueue(at(2), &enqueue("a", 10)).unwrap();
    assert_eq!(waiting(&queues, "a").unwrap().due_at, at(1));
    assert_eq!(dequeue(&mut queues, at(2)), ["a"]);
}

#[test]
fn an_enqueue_can_set_the_creation_time() {
    let mut queues = queues();
    let created_at = Some(at(5));
    let command = Enqueue {
        created_at,
        ..enqueue("a", 10)
    };
    queues.enqueue(at(20), &command).unwrap();
    let created_at = Some(at(1));
    queues
        .enqueue(
            at(20),
            &Enqueue {
                created_at,
                ..command
            },
        )
        .unwrap();
    assert_eq!(waiting(&queues, "a").unwrap().created_at, at(5));
}

#[test]
fn a_delay_during_a_reconcile_counts_from_the_command() {
    let mut queues = queues();
    fresh(&mut queues, at(1), "a");
    dequeue_one(&mut queues, at(1));
    queues.enqueue(at(2), &enqueue("a", 10)).unwrap();
    let finished = done(&mut queues, at(5), "a", Finish::Done);
    assert_eq!(finished.due_at, Some(at(12)));
    assert_eq!(queues.next_due(at(5)), Some(at(12)));
}

#[test]
fn cancel_returns_whether_an_item_was_pending() {
    let mut queues = queues();
    assert!(!queues.cancel(at(1), "q", "a"));
    queues.enqueue(at(1), &enqueue("a", 10)).unwrap();
    fresh(&mut queues, at(1), "b");
    assert!(queues.cancel(at(2), "q", "a"), "not due yet");
    assert!(!queues.cancel(at(2), "q", "a"));
    assert!(queues.cancel(at(2), "q", "b"), "due");
    assert_eq!(queues.next_due(at(2)), None);
    fresh(&mut queues, at(3), "a");
    assert_eq!(dequeue_one(&mut queues, at(3)).created_at, at(3));
    assert!(!queues.cancel(at(3), "q", "a"), "it is being reconciled");
    fresh(&mut queues, at(4), "a");
    assert!(queues.cancel(at(4), "q", "a"), "added again");
    let finished = done(&mut queues, at(5), "a", Finish::Done);
    assert_eq!(finished.due_at, None);
}

#[test]
fn an_item_that_is_delayed_forever_is_never_due() {
    let mut queues = queues();
    fresh(&mut queues, at(1), "a");
    dequeue_one(&mut queues, at(1));
    done(&mut queues, at(1), "a", Finish::RequeueAfter(Duration::MAX));
    assert_eq!(queues.next_due(at(1)), None);
    fresh(&mut queues, at(2), "a");
    assert_eq!(dequeue(&mut queues, at(2)), ["a"]);
}

#[test]
fn a_snapshot_does_not_change() {
    let mut queues = queues();
    fresh(&mut queues, at(1), "a");
    fresh(&mut queues, at(1), "b");
    dequeue(&mut queues, at(1));
    queues.enqueue(at(1), &enqueue("c", 1)).unwrap();
    let snapshot = queues.pending();
    queues.cancel(at(1), "q", "c");
    fresh(&mut queues, at(1), "a");
    assert_eq!(snapshot.get("q", "a"), None, "it is being reconciled");
    assert!(snapshot.get("q", "c").is_some());
    assert!(snapshot.get("p", "c").is_none());
}
