//! What happens to an item after its reconcile.

use super::*;

fn failures(count: usize) -> Vec<PlanFailure> {
    let failure = Failure::new(FailureClass::Conflict, "changed");
    let failure = |step| PlanFailure {
        uid: "u".to_owned(),
        step,
        failure: failure.clone(),
    };
    (0..u32::try_from(count).unwrap()).map(failure).collect()
}

#[test]
fn retries_double_their_back_off_up_to_its_limit() {
    let mut queues = queues();
    fresh(&mut queues, at(1), "a");
    let mut now = at(1);
    let mut pauses = Vec::new();
    for attempt in 0..9 {
        let item = dequeue_one(&mut queues, now);
        assert_eq!((item.attempt, item.created_at), (attempt, at(1)));
        let due_at = done(&mut queues, now, "a", retry()).due_at.unwrap();
        pauses.push(due_at.since(now).as_secs());
        now = due_at;
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    dequeue_one(&mut queues, now);
    done(&mut queues, now, "a", Finish::Done);
    fresh(&mut queues, now, "a");
    assert_eq!(dequeue_one(&mut queues, now).attempt, 0, "done forgets");
}

#[test]
fn a_retry_has_its_failures_and_waits_for_retry_after() {
    let mut queues = queues();
    fresh(&mut queues, at(1), "a");
    dequeue_one(&mut queues, at(1));
    let finish = Finish::Retry {
        failures: failures(101),
        retry_after: Some(SECOND * 30),
    };
    done(&mut queues, at(1), "a", finish);
    assert_eq!(queues.next_due(at(1)), Some(at(31)));
    let item = dequeue_one(&mut queues, at(31));
    assert_eq!(item.failures, failures(WorkItem::MAX_FAILURES));
    let finish = Finish::Retry {
        failures: failures(1),
        retry_after: Some(NANO),
    };
    done(&mut queues, at(31), "a", finish);
    assert_eq!(queues.next_due(at(31)), Some(at(33)), "not sooner");
    assert_eq!(dequeue_one(&mut queues, at(33)).failures, failures(1));
}

/// A kind was not served for an hour. Then its objects change.
#[test]
fn after_an_event_a_failure_does_not_wait_as_long_as_those_before() {
    let initial = Duration::from_millis(5);
    let spec = QueueSpec {
        retry_initial: initial,
        retry_max: Duration::from_secs(1000),
        ..spec("q")
    };
    let mut queues = Queues::new(at(0), &[spec], &[]);
    fresh(&mut queues, at(1), "a");
    let mut now = at(1);
    let fail = |queues: &mut Queues, now: Instant| {
        dequeue_one(queues, now);
        done(queues, now, "a", retry()).due_at.unwrap()
    };
    for attempt in 0..16 {
        let due_at = fail(&mut queues, now);
        assert_eq!(due_at.since(now), initial * (1 << attempt));
        now = due_at;
    }
    let due_at = fail(&mut queues, now);
    let event = now.after(SECOND);
    assert!(event < due_at);
    fresh(&mut queues, event, "a");
    let due_at = fail(&mut queues, event);
    assert_eq!(due_at.since(event), initial * (1 << 8));
    let later = fail(&mut queues, due_at);
    assert_eq!(later.since(due_at), initial * (1 << 9), "it grows again");
}

#[test]
fn an_event_shortens_a_back_off_and_keeps_the_attempts() {
    let mut queues = queues();
    for added_during_work in [true, false] {
        fresh(&mut queues, at(1), "a");
        dequeue_one(&mut queues, at(1));
        if added_during_work {
            fresh(&mut queues, at(2), "a");
        }
        done(&mut queues, at(3), "a", retry());
        if !added_during_work {
            fresh(&mut queues, at(3), "a");
        }
        let item = dequeue_one(&mut queues, at(3));
        assert_eq!((item.attempt, item.created_at), (1, at(1)));
        done(&mut queues, at(3), "a", Finish::Done);
    }
}

#[test]
fn requeue_after_keeps_the_creation_time_and_resets_the_attempts() {
    let mut queues = queues();
    fresh(&mut queues, at(1), "a");
    dequeue_one(&mut queues, at(1));
    done(&mut queues, at(1), "a", retry());
    dequeue_one(&mut queues, at(2));
    let finished = done(&mut queues, at(3), "a", Finish::RequeueAfter(SECOND * 10));
    assert_eq!(finished.due_at, Some(at(13)));
    let item = dequeue_one(&mut queues, at(13));
    assert_eq!((item.attempt, item.created_at), (0, at(1)));
    queues.enqueue(at(14), &enqueue("a", 5)).unwrap();
    let finished = done(&mut queues, at(15), "a", Finish::RequeueAfter(SECOND * 10));
    assert_eq!(finished.due_at, Some(at(19)), "the earlier of the two");
    assert_eq!(waiting(&queues, "a").unwrap().created_at, at(1));
}

/// As if it were done: a guest enqueues the key again to learn whether its plans were executed.
#[test]
fn an_item_whose_plans_are_left_to_another_replica_yields_to_a_new_one() {
    let mut queues = queues();
    fresh(&mut queues, at(1), "a");
    dequeue_one(&mut queues, at(1));
    let finished = done(&mut queues, at(2), "a", Finish::Left(SECOND * 600));
    assert_eq!(finished.due_at, Some(at(602)));
    assert_eq!(waiting(&queues, "a").unwrap().created_at, at(1));
    fresh(&mut queues, at(3), "a");
    dequeue_one(&mut queues, at(3));
    let later = Enqueue {
        created_at: Some(at(5000)),
        ..enqueue("a", 5)
    };
    queues.enqueue(at(3), &later).unwrap();
    let finished = done(&mut queues, at(4), "a", Finish::Left(SECOND * 600));
    assert_eq!(finished.due_at, Some(at(8)));
    assert_eq!(waiting(&queues, "a").unwrap().created_at, at(5000));
}

#[test]
fn a_retried_relist_stays_in_the_relist_lane() {
    let mut queues = queues();
    relist(&mut queues, at(1), "a");
    dequeue_one(&mut queues, at(1));
    done(&mut queues, at(1), "a", retry());
    fresh(&mut queues, at(3), "b");
    assert_eq!(dequeue(&mut queues, at(3)), ["b", "a"]);
}

#[test]
fn an_item_that_was_not_reconciled_returns_to_its_place() {
    let mut queues = Queues::new(
        at(0),
        &[QueueSpec {
            batch: 1,
            ..spec("q")
        }],
        &[],
    );
    fresh(&mut queues, at(1), "a");
    fresh(&mut queues, at(1), "b");
    dequeue_one(&mut queues, at(1));
    done(&mut queues, at(1), "a", retry());
    dequeue_one(&mut queues, at(1));
    let before = dequeue_one(&mut queues, at(2));
    assert_eq!((before.key.as_str(), before.attempt), ("a", 1));
    fresh(&mut queues, at(3), "c");
    done(&mut queues, at(3), "a", Finish::PutBack);
    assert_eq!(dequeue_one(&mut queues, at(3)), before);
}

#[test]
fn an_item_of_a_failed_call_is_alone_until_it_is_done() {
    let mut queues = queues();
    for key in ["a", "b", "c"] {
        fresh(&mut queues, at(1), key);
    }
    dequeue(&mut queues, at(1));
    done(&mut queues, at(1), "a", Finish::Done);
    done(&mut queues, at(1), "b", Finish::PutBackAlone);
    done(&mut queues, at(1), "c", Finish::PutBackAlone);
    for key in ["d", "e"] {
        fresh(&mut queues, at(2), key);
    }
    for expected in [vec!["b"], vec!["c"], vec!["d", "e"]] {
        assert_eq!(dequeue(&mut queues, at(2)), expected);
    }
    done(&mut queues, at(2), "b", retry());
    done(&mut queues, at(2), "c", Finish::Done);
    fresh(&mut queues, at(3), "c");
    fresh(&mut queues, at(3), "f");
    fresh(&mut queues, at(3), "g");
    // "b" became due at the same time, and is still alone.
    assert_eq!(dequeue(&mut queues, at(3)), ["b"]);
    done(&mut queues, at(3), "b", Finish::Done);
    fresh(&mut queues, at(3), "b");
    assert_eq!(dequeue(&mut queues, at(3)), ["c", "f", "g", "b"]);
}
