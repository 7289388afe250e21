//! Workers, batches, priorities and rates.

use super::*;

#[test]
fn calls_are_bounded_by_batch_and_workers() {
    let bounded = QueueSpec {
        workers: 5,
        batch: 3,
        ..spec("q")
    };
    let mut queues = Queues::new(at(0), &[bounded], &[]);
    for key in 0..10 {
        fresh(&mut queues, at(1), &key.to_string());
    }
    assert_eq!(dequeue(&mut queues, at(1)), ["0", "1", "2"]);
    assert_eq!(dequeue(&mut queues, at(1)), ["3", "4"]);
    assert_eq!(queues.dequeue(at(1)), None);
    assert_eq!(queues.next_due(at(1)), None, "all workers are busy");
    done(&mut queues, at(2), "1", Finish::Done);
    assert_eq!(queues.next_due(at(2)), Some(at(2)));
    assert_eq!(dequeue(&mut queues, at(2)), ["5"]);
}

#[test]
fn higher_priority_goes_first_and_equals_take_turns() {
    let one = |name: &str, priority| QueueSpec {
        batch: 1,
        priority,
        ..spec(name)
    };
    let specs = [one("low", -1), one("a", 0), one("b", 0), one("high", 7)];
    let mut queues = Queues::new(at(0), &specs, &[]);
    for queue in ["low", "a", "b", "high"] {
        for key in ["1", "2"] {
            queues.add(at(1), queue, key, Origin::Fresh).unwrap();
        }
    }
    let order: Vec<String> = std::iter::from_fn(|| Some(queues.dequeue(at(1))?.queue)).collect();
    assert_eq!(order, ["high", "high", "a", "b", "a", "b", "low", "low"]);
}

#[test]
fn a_rate_gives_its_burst_and_then_one_item_at_a_time() {
    let limited = QueueSpec {
        rate: Some(rate(0.5, 2)),
        ..spec("q")
    };
    let mut queues = Queues::new(at(0), &[limited], &[]);
    for key in ["a", "b", "c", "d"] {
        fresh(&mut queues, at(10), key);
    }
    assert_eq!(dequeue(&mut queues, at(10)), ["a", "b"]);
    assert_eq!(queues.next_due(at(10)), Some(at(12)));
    assert_eq!(queues.dequeue(at(11)), None);
    assert_eq!(dequeue(&mut queues, at(12)), ["c"]);
    assert_eq!(queues.next_due(at(12)), Some(at(14)));
}

#[test]
fn a_stopped_group_delays_no_other() {
    let mut queues = queues();
    queues.set_rate(at(1), "q", "full", rate(0.0, 1)).unwrap();
    for key in ["a", "b"] {
        queues.enqueue(at(1), &grouped(key, "full")).unwrap();
    }
    queues.enqueue(at(2), &grouped("c", "zone")).unwrap();
    fresh(&mut queues, at(3), "d");
    assert_eq!(dequeue(&mut queues, at(3)), ["c", "d"]);
    assert_eq!(queues.next_due(at(3)), None);
    queues.set_rate(at(5), "q", "full", rate(1.0, 1)).unwrap();
    assert_eq!(queues.next_due(at(5)), Some(at(6)), "it starts empty");
    assert_eq!(dequeue(&mut queues, at(6)), ["a"]);
    queues.set_rate(at(6), "q", "full", rate(1.0, 1)).unwrap();
    assert_eq!(queues.next_due(at(6)), Some(at(7)));
}

#[test]
fn an_item_belongs_to_the_group_of_the_latest_command() {
    let mut queues = queues();
    queues
        .set_rate(at(1), "q", "stopped", rate(0.0, 1))
        .unwrap();
    queues.enqueue(at(1), &grouped("a", "stopped")).unwrap();
    queues.enqueue(at(1), &grouped("a", "")).unwrap();
    fresh(&mut queues, at(1), "a");
    assert_eq!(queues.next_due(at(1)), None);
    queues.enqueue(at(1), &grouped("a", "other")).unwrap();
    assert_eq!(dequeue(&mut queues, at(1)), ["a"]);
    done(&mut queues, at(1), "a", retry());
    queues.set_rate(at(1), "q", "other", rate(0.0, 1)).unwrap();
    assert_eq!(queues.next_due(at(1)), None, "a retry stays in its group");
    assert!(queues.cancel(at(1), "q", "a"));
    fresh(&mut queues, at(1), "a");
    assert_eq!(dequeue(&mut queues, at(1)), ["a"], "a new item does not");
}

#[test]
fn a_timer_in_a_limited_group_needs_its_time_and_a_token() {
    let mut queues = queues();
    queues.set_rate(at(1), "q", "zone", rate(0.1, 1)).unwrap();
    for key in ["a", "b"] {
        let delayed = Enqueue {
            after: SECOND * 3,
            ..grouped(key, "zone")
        };
        queues.enqueue(at(1), &delayed).unwrap();
    }
    assert_eq!(queues.next_due(at(1)), Some(at(4)));
    assert_eq!(dequeue(&mut queues, at(4)), ["a"]);
    assert_eq!(queues.next_due(at(4)), Some(at(14)));
}

#[test]
fn impossible_rates_are_refused() {
    let mut queues = queues();
    for (per_second, burst) in [(f64::NAN, 1), (-1.0, 1), (f64::INFINITY, 1), (1.0, 0)] {
        let refused = queues.set_rate(at(1), "q", "g", rate(per_second, burst));
        assert!(matches!(refused, Err(QueueError::Rate { .. })));
    }
    queues.set_rate(at(1), "q", "g", rate(0.0, 0)).unwrap();
    assert!(queues.set_rate(at(1), "p", "g", rate(1.0, 1)).is_err());
}
