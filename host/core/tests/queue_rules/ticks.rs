//! Periodic items.

use super::*;

#[test]
fn a_tick_is_due_immediately_and_a_period_after_its_end() {
    let mut queues = Queues::new(at(5), &[spec("q")], &[tick("gc", 20)]);
    assert_eq!(dequeue_one(&mut queues, at(5)).key, "gc");
    assert_eq!(queues.next_due(at(100)), None, "it does not overlap");
    let finished = done(&mut queues, at(100), "gc", Finish::Done);
    assert_eq!(finished.due_at, Some(at(120)));
    let item = dequeue_one(&mut queues, at(121));
    assert_eq!((item.created_at, item.due_at), (at(100), at(120)));
}

#[test]
fn an_event_makes_a_tick_earlier_and_restarts_its_period() {
    let mut queues = Queues::new(at(0), &[spec("q")], &[tick("gc", 20)]);
    dequeue_one(&mut queues, at(0));
    fresh(&mut queues, at(1), "gc");
    assert_eq!(
        done(&mut queues, at(2), "gc", Finish::Done).due_at,
        Some(at(1))
    );
    dequeue_one(&mut queues, at(2));
    done(&mut queues, at(3), "gc", Finish::Done);
    fresh(&mut queues, at(10), "gc");
    dequeue_one(&mut queues, at(10));
    let finished = done(&mut queues, at(11), "gc", Finish::Done);
    assert_eq!(finished.due_at, Some(at(31)));
}

#[test]
fn a_failed_tick_backs_off_and_then_slides_on() {
    let mut queues = Queues::new(at(0), &[spec("q")], &[tick("gc", 20)]);
    dequeue_one(&mut queues, at(0));
    assert_eq!(done(&mut queues, at(0), "gc", retry()).due_at, Some(at(1)));
    assert_eq!(dequeue_one(&mut queues, at(1)).attempt, 1);
    let finished = done(&mut queues, at(2), "gc", Finish::Done);
    assert_eq!(finished.due_at, Some(at(22)));
}

#[test]
fn a_cancelled_tick_skips_one_run() {
    let mut queues = Queues::new(at(0), &[spec("q")], &[tick("gc", 20)]);
    assert!(queues.cancel(at(3), "q", "gc"));
    assert_eq!(queues.next_due(at(3)), Some(at(23)));
    dequeue_one(&mut queues, at(23));
    fresh(&mut queues, at(24), "gc");
    assert!(queues.cancel(at(24), "q", "gc"));
    let finished = done(&mut queues, at(25), "gc", Finish::Done);
    assert_eq!(finished.due_at, Some(at(45)));
}

#[test]
fn a_changed_period_counts_from_the_last_end() {
    for (period, next) in [(5, 105), (200, 300), (1, 102)] {
        let mut queues = Queues::new(at(0), &[spec("q")], &[tick("gc", 20)]);
        dequeue_one(&mut queues, at(0));
        done(&mut queues, at(100), "gc", Finish::Done);
        queues.reconfigure(at(102), &[spec("q")], &[tick("gc", period)]);
        assert_eq!(queues.next_due(at(102)), Some(at(next)));
        dequeue_one(&mut queues, at(next));
        let finished = done(&mut queues, at(1000), "gc", Finish::Done);
        assert_eq!(finished.due_at, Some(at(1000 + u64::from(period))));
    }
}

#[test]
fn a_changed_period_moves_no_item_that_was_enqueued() {
    let mut queues = Queues::new(at(0), &[spec("q")], &[tick("gc", 20)]);
    dequeue_one(&mut queues, at(0));
    done(&mut queues, at(0), "gc", Finish::Done);
    queues.enqueue(at(0), &enqueue("gc", 15)).unwrap();
    queues.reconfigure(at(1), &[spec("q")], &[tick("gc", 60)]);
    assert_eq!(queues.next_due(at(1)), Some(at(15)));
    dequeue_one(&mut queues, at(15));
    queues.reconfigure(at(16), &[spec("q")], &[tick("gc", 30)]);
    let finished = done(&mut queues, at(17), "gc", Finish::Done);
    assert_eq!(finished.due_at, Some(at(47)));
}
