//! Guests that harm the host, or try to.
//!
//! Each test shows three things: the error has the cause, the next call of the
//! same guest works (in a new instance), and so do another guest's calls.

use std::time::{Duration, Instant};

use davit_engine::{CallError, DescribeError, Guest, Limits};

use crate::harness::{Config, ask, call, limits, odd_guest, short_limits, try_odd_guest};

/// Lets a guest misbehave after one good call, and checks everything but the error.
async fn misbehave_under(limits: Limits, behaviour: &str) -> CallError {
    let guest = odd_guest(limits).await;
    let other = odd_guest(limits).await;
    assert_eq!(ask(&guest, "count").await.unwrap(), "1");
    assert_eq!(ask(&guest, "count").await.unwrap(), "2");
    assert_eq!(ask(&other, "count").await.unwrap(), "1");

    let error = ask(&guest, behaviour).await.unwrap_err();

    assert_eq!(ask(&guest, "count").await.unwrap(), "1", "a new instance");
    assert_eq!(ask(&other, "count").await.unwrap(), "2", "the same one");
    error
}

async fn misbehave(behaviour: &str) -> CallError {
    misbehave_under(limits(), behaviour).await
}

/// The message of a trap.
fn trapped(error: &CallError) -> &str {
    match error {
        CallError::Trap(report) => &report.message,
        other => panic!("no trap: {other}"),
    }
}

#[tokio::test]
async fn an_endless_loop_ends_at_its_deadline() {
    let error = misbehave_under(short_limits(), "endless-loop").await;
    assert!(
        matches!(error, CallError::Deadline { limit } if limit == Duration::from_millis(200)),
        "{error}"
    );
}

#[tokio::test]
async fn an_endless_loop_delays_no_other_guest() {
    let bad = odd_guest(Limits {
        cpu: Duration::from_millis(500),
        ..limits()
    })
    .await;
    let good = odd_guest(limits()).await;
    // The runtime has one thread, which the two share.
    let looping = tokio::spawn(async move { ask(&bad, "endless-loop").await });
    let mut slowest = Duration::ZERO;
    let mut calls = 0_u32;
    while !looping.is_finished() {
        let started = Instant::now();
        ask(&good, "done").await.unwrap();
        slowest = slowest.max(started.elapsed());
        calls += 1;
        tokio::task::yield_now().await;
    }
    let error = looping.await.unwrap().unwrap_err();
    assert!(matches!(error, CallError::Deadline { .. }), "{error}");
    assert!(calls >= 10, "{calls} calls while the other guest looped");
    assert!(slowest < Duration::from_millis(250), "one took {slowest:?}");
}

#[tokio::test]
async fn an_endless_recursion_ends_with_the_stack() {
    let error = misbehave("endless-recursion").await;
    assert!(trapped(&error).contains("call stack exhausted"), "{error}");
}

#[tokio::test]
async fn memory_ends_at_its_limit() {
    let error = misbehave("memory-bomb").await;
    let limit_is = |bytes| matches!(error, CallError::Memory { limit } if limit == bytes);
    assert!(limit_is(64 << 20), "{error}");
}

#[tokio::test]
async fn a_trap_is_reported_as_one() {
    let error = misbehave("trap").await;
    assert!(trapped(&error).contains("unreachable"), "{error}");
}

#[tokio::test]
async fn a_panic_is_reported_with_its_message() {
    let error = misbehave("panic").await;
    assert!(error.to_string().contains("it was asked to"), "{error}");
    assert!(trapped(&error).contains("unreachable"), "{error}");
}

#[tokio::test]
async fn exit_and_sleep_trap() {
    let error = misbehave("exit").await;
    assert!(trapped(&error).contains("called exit"), "{error}");
    let started = Instant::now();
    let error = misbehave("sleep").await;
    assert!(trapped(&error).contains("requeue-after"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(30));
}

#[tokio::test]
async fn an_enormous_answer_is_refused() {
    let error = misbehave("enormous-answer").await;
    let limit_is = |bytes| matches!(error, CallError::TooLarge { limit, .. } if limit == bytes);
    assert!(limit_is(16 << 20), "{error}");
}

#[tokio::test]
async fn an_enormous_request_is_refused() {
    let small = Limits {
        answer: 10,
        ..limits()
    };
    let error = try_odd_guest(&Config::default(), small)
        .await
        .err()
        .unwrap();
    let DescribeError::Call(CallError::TooLarge { limit: 10, .. }) = error else {
        panic!("{error}");
    };
}

#[tokio::test]
async fn an_undeclared_name_traps() {
    for (behaviour, named) in [
        ("len:leisure", "the watch \"leisure\""),
        (
            "undeclared-index",
            "the index \"colour\" of the watch \"pods\"",
        ),
        (
            "in-order:node",
            "the order of the index \"node\" of the watch \"pods\"",
        ),
        ("undeclared-pending", "the queue \"leisure\""),
    ] {
        let error = misbehave(behaviour).await;
        assert!(trapped(&error).contains(named), "{error}");
    }
}

#[tokio::test]
async fn a_dropped_call_costs_its_instance() {
    let guest = odd_guest(limits()).await;
    assert_eq!(ask(&guest, "count").await.unwrap(), "1");
    let dropped = tokio::time::timeout(
        Duration::from_millis(30),
        guest.reconcile(call(&["endless-loop"])),
    );
    assert!(dropped.await.is_err());
    assert_eq!(ask(&guest, "count").await.unwrap(), "1");
}

#[tokio::test]
async fn an_instance_with_too_much_memory_is_dropped() {
    let guest = odd_guest(limits()).await;
    ask(&guest, "count").await.unwrap();
    ask(&guest, "grow").await.unwrap();
    assert_eq!(ask(&guest, "count").await.unwrap(), "1");
}

#[tokio::test]
async fn a_guest_that_needs_a_larger_table_does_not_start() {
    let limits = Limits {
        table_elements: 1,
        ..limits()
    };
    let error = try_odd_guest(&Config::default(), limits)
        .await
        .err()
        .unwrap();
    assert!(
        matches!(
            error,
            DescribeError::Call(CallError::TooLarge { unit, limit: 1 }) if unit.contains("table")
        ),
        "{error}"
    );
}

#[tokio::test]
async fn describe_has_the_same_limits() {
    for (behaviour, expected) in [
        ("endless-loop", "CPU time"),
        ("memory-bomb", "bytes of memory"),
        ("panic", "it was asked to"),
        ("get:ns/p0", "during describe"),
        ("live-get:a", "during describe"),
    ] {
        let config = Config {
            describe: behaviour,
            ..Config::default()
        };
        let limits = match behaviour {
            "endless-loop" => short_limits(),
            _ => limits(),
        };
        let error = try_odd_guest(&config, limits).await.err().unwrap();
        assert!(matches!(error, DescribeError::Call(_)), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[tokio::test]
async fn many_bad_calls_at_once_leave_the_guest_usable() {
    let guest = std::sync::Arc::new(odd_guest(limits()).await);
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..40 {
        let guest: std::sync::Arc<Guest> = std::sync::Arc::clone(&guest);
        let behaviour = ["panic", "count", "no-decision", "exit"][number % 4];
        calls.spawn(async move { ask(&guest, behaviour).await.is_ok() });
    }
    let good = calls
        .join_all()
        .await
        .into_iter()
        .filter(|good| *good)
        .count();
    assert_eq!(good, 10);
    ask(&guest, "done").await.unwrap();
}
