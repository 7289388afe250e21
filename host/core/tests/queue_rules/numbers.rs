//! The statistics.

use super::*;

#[test]
fn stats_are_those_of_client_go() {
    let mut queues = queues();
    fresh(&mut queues, at(1), "a");
    fresh(&mut queues, at(1), "a");
    relist(&mut queues, at(1), "b");
    queues.enqueue(at(1), &enqueue("c", 10)).unwrap();
    let before = stats(&mut queues, at(2));
    assert_eq!((before.depth, before.delayed, before.processing), (2, 1, 0));
    assert_eq!((before.adds, before.retries), (2, 1));
    let batch = queues.dequeue(at(4)).unwrap();
    assert_eq!(batch.waited().collect::<Vec<_>>(), [SECOND * 3; 2]);
    fresh(&mut queues, at(4), "a");
    done(&mut queues, at(6), "b", retry());
    let during = stats(&mut queues, at(9));
    assert_eq!((during.depth, during.delayed, during.processing), (1, 1, 1));
    assert_eq!((during.adds, during.retries), (3, 2), "b is due again");
    assert_eq!(during.unfinished_work, SECOND * 5);
    assert_eq!(during.longest_running, SECOND * 5);
    done(&mut queues, at(10), "a", Finish::Done);
    let after = stats(&mut queues, at(11));
    assert_eq!((after.depth, after.delayed, after.processing), (3, 0, 0));
    assert_eq!(after.adds, 5);
    assert_eq!(after.longest_running, Duration::ZERO);
}

#[test]
fn a_moved_item_is_added_once() {
    let mut queues = queues();
    queues.enqueue(at(1), &enqueue("a", 10)).unwrap();
    queues.enqueue(at(2), &enqueue("a", 5)).unwrap();
    relist(&mut queues, at(3), "a");
    fresh(&mut queues, at(4), "a");
    queues.enqueue(at(5), &grouped("a", "zone")).unwrap();
    let stats = stats(&mut queues, at(6));
    assert_eq!((stats.depth, stats.adds), (1, 1));
}
