//! Another revision of the guest replaces the present one.

use super::*;

#[test]
fn a_swap_loses_nothing_of_a_queue_that_stays() {
    let mut queues = queues();
    queues.set_rate(at(1), "q", "zone", rate(0.0, 1)).unwrap();
    queues.enqueue(at(1), &enqueue("timer", 40)).unwrap();
    queues.enqueue(at(1), &grouped("stopped", "zone")).unwrap();
    fresh(&mut queues, at(1), "retried");
    dequeue(&mut queues, at(1));
    done(&mut queues, at(1), "retried", retry());
    fresh(&mut queues, at(1), "in work");
    dequeue(&mut queues, at(1));
    fresh(&mut queues, at(1), "in work");
    let changed = QueueSpec {
        workers: 2,
        priority: 3,
        ..spec("q")
    };
    let gone = queues.reconfigure(at(2), &[changed, spec("new")], &[]);
    assert_eq!(gone, []);
    assert_eq!(queues.dequeue(at(1)), None);
    let item = dequeue_one(&mut queues, at(2));
    assert_eq!((item.key.as_str(), item.attempt), ("retried", 1));
    done(&mut queues, at(2), "retried", Finish::Done);
    done(&mut queues, at(3), "in work", Finish::Done);
    assert_eq!(dequeue(&mut queues, at(3)), ["in work"]);
    done(&mut queues, at(3), "in work", Finish::Done);
    let timer = dequeue_one(&mut queues, at(41));
    assert_eq!((timer.created_at, timer.due_at), (at(1), at(41)));
    done(&mut queues, at(41), "timer", Finish::Done);
    assert!(waiting(&queues, "stopped").is_some());
    assert_eq!(queues.next_due(at(41)), None);
}

#[test]
fn the_items_of_a_queue_that_is_gone_are_returned() {
    let mut queues = Queues::new(at(0), &[spec("p"), spec("q")], &[tick("gc", 20)]);
    fresh(&mut queues, at(1), "a");
    dequeue(&mut queues, at(1));
    fresh(&mut queues, at(1), "a");
    queues.enqueue(at(1), &enqueue("b", 9)).unwrap();
    let gone = queues.reconfigure(at(2), &[spec("p")], &[]);
    let keys: Vec<_> = gone.iter().map(|item| item.key.as_str()).collect();
    assert_eq!(keys, ["a", "b", "gc"]);
    assert!(gone.iter().all(|item| item.queue == "q"));
    assert_eq!(queues.done(at(3), "q", "a", Finish::Done), None);
    assert_eq!(queues.next_due(at(3)), None);
}

#[test]
fn a_changed_default_rate_applies_to_groups_without_their_own() {
    let limited = |rate| QueueSpec { rate, ..spec("q") };
    let mut queues = Queues::new(at(0), &[limited(None)], &[]);
    queues.set_rate(at(1), "q", "own", rate(100.0, 9)).unwrap();
    for key in ["a", "b"] {
        fresh(&mut queues, at(1), key);
    }
    for key in ["c", "d"] {
        queues.enqueue(at(1), &grouped(key, "own")).unwrap();
    }
    queues.reconfigure(at(2), &[limited(Some(rate(0.1, 1)))], &[]);
    assert_eq!(dequeue(&mut queues, at(2)), ["a", "c", "d"]);
    assert_eq!(queues.next_due(at(2)), Some(at(12)));
    queues.reconfigure(at(3), &[limited(None)], &[]);
    assert_eq!(dequeue(&mut queues, at(3)), ["b"]);
}

#[test]
fn ticks_are_added_removed_and_kept_with_their_times() {
    let mut queues = Queues::new(at(0), &[spec("q")], &[tick("a", 20), tick("b", 20)]);
    for key in dequeue(&mut queues, at(0)) {
        done(&mut queues, at(1), &key, Finish::Done);
    }
    fresh(&mut queues, at(2), "b");
    queues.reconfigure(at(2), &[spec("q")], &[tick("c", 20)]);
    assert_eq!(waiting(&queues, "a"), None, "a tick that is gone");
    assert_eq!(dequeue(&mut queues, at(2)), ["b", "c"], "an event stays");
    assert_eq!(done(&mut queues, at(2), "b", Finish::Done).due_at, None);
    done(&mut queues, at(2), "c", Finish::Done);
    queues.reconfigure(at(9), &[spec("q")], &[tick("c", 20)]);
    assert_eq!(queues.next_due(at(9)), Some(at(22)));
}

#[test]
fn an_item_that_is_reconciled_while_its_queue_is_declared_again_is_not_dequeued() {
    let mut queues = Queues::new(at(0), &[spec("q")], &[tick("gc", 20)]);
    assert_eq!(dequeue(&mut queues, at(1)), ["gc"]);
    queues.reconfigure(at(2), &[], &[]);
    queues.reconfigure(at(3), &[spec("q")], &[tick("gc", 20)]);
    let item = enqueue("gc", 0).item;
    queues.resume(at(3), &item);
    queues.resume(at(3), &item);
    assert_eq!(dequeue(&mut queues, at(4)), [] as [&str; 0]);
    assert_eq!(stats(&mut queues, at(4)).processing, 1);
    done(&mut queues, at(5), "gc", retry());
    let item = dequeue_one(&mut queues, at(5));
    assert_eq!((item.key.as_str(), item.attempt), ("gc", 1));
    done(&mut queues, at(5), "gc", Finish::Done);
    assert_eq!(queues.next_due(at(5)), Some(at(25)));
}
