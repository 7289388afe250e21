//! What a guest can read.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use davit_core::journal::SnapshotReads;
use davit_engine::{CallError, Guest, Limits};

use crate::harness::{
    Config, NOW, NoReads, SlowReads, ask, call, call_with, limits, odd_guest, pod_data, report,
    try_odd_guest,
};

#[tokio::test]
async fn the_cache_answers_from_the_snapshot() {
    let guest = odd_guest(limits()).await;
    let pod = format!("v1 Pod 101 1799999990000 {:?}", pod_data("n1"));
    for (question, answer) in [
        ("len", "5"),
        ("get:ns/p1", pod.as_str()),
        ("get:ns/gone", "none"),
        ("get-by-uid:uid-1", pod.as_str()),
        ("get-by-uid:uid-9", "none"),
        ("scan", "5"),
        ("keys", r#"["ns/p0", "ns/p1", "ns/p2", "ns/p3", "ns/p4"]"#),
        ("index-keys", "=1 n1=3 n2=1"),
        ("values-without:bound", r#"["", "n1", "n2"] ["n1"]"#),
        ("values-without:node", "[] []"),
        ("index-count:n1", "3"),
        ("index-count:n9", "0"),
        ("by-index:n1", "3"),
        ("by-index:n9", "0"),
        ("in-order:bound", "100 101 (n1 ns/p1) 102 103"),
    ] {
        assert_eq!(ask(&guest, question).await.unwrap(), answer, "{question}");
    }
}

/// A journal has what the guest found in queues and notes.
#[tokio::test]
async fn reads_of_queues_and_notes_are_reported_if_a_journal_asks() {
    let guest = odd_guest(limits()).await;
    let reads = Arc::new(Mutex::new(SnapshotReads::default()));
    for question in [
        "pending:ns/waits",
        "pending:ns/a",
        "note:seen",
        "note:other",
    ] {
        let mut call = call(&[question]);
        call.reads = Some(Arc::clone(&reads));
        guest.reconcile(call).await.unwrap();
    }
    let reads = reads.lock().unwrap();
    let pending = reads.pending.iter();
    let pending: Vec<(&str, bool)> = pending
        .map(|(item, pending)| (item.key.as_str(), pending.is_some()))
        .collect();
    assert_eq!(pending, [("ns/waits", true)]);
    let notes = reads.notes.iter();
    let notes: Vec<(&str, Option<&[u8]>)> = notes
        .map(|(key, value)| (key.as_str(), value.as_deref()))
        .collect();
    assert_eq!(notes, [("seen", Some(&[0xc3][..]))]);
}

#[tokio::test]
async fn a_page_is_no_longer_than_the_limit() {
    let guest = odd_guest(Limits {
        page: 2,
        ..limits()
    })
    .await;
    assert_eq!(ask(&guest, "scan").await.unwrap(), "2");
}

/// The objects of the cache are compressed. A user may make large ones that take next to nothing.
#[tokio::test]
async fn a_page_of_large_objects_is_shorter() {
    for (page_bytes, expected) in [(1, "1"), (1 << 20, "5")] {
        let guest = odd_guest(Limits {
            page_bytes,
            ..limits()
        })
        .await;
        assert_eq!(ask(&guest, "scan").await.unwrap(), expected);
    }
}

#[tokio::test]
async fn queues_notes_and_the_mapping_answer() {
    let guest = odd_guest(limits()).await;
    let waits = ask(&guest, "pending:ns/waits").await.unwrap();
    assert!(waits.contains("created-at: 1800000005000"), "{waits}");
    assert_eq!(ask(&guest, "pending:ns/a").await.unwrap(), "None");
    assert_eq!(ask(&guest, "note:seen").await.unwrap(), "Some([195])");
    assert_eq!(ask(&guest, "note:other").await.unwrap(), "None");
    let pods = ask(&guest, "lookup:Pod").await.unwrap();
    assert!(
        pods.contains("plural: \"pods\"") && pods.contains("namespaced: true"),
        "{pods}"
    );
    assert_eq!(ask(&guest, "lookup:Unicorn").await.unwrap(), "None");
}

#[tokio::test]
async fn unlisted_resources_are_reported_for_each_watch() {
    let guest = odd_guest(limits()).await;
    let unlisted = ask(&guest, "unlisted:pods").await.unwrap();
    // A minute before the call.
    for part in ["plural: \"foos\"", "since: 1799999940000", "not served"] {
        assert!(unlisted.contains(part), "{unlisted}");
    }
    let error = ask(&guest, "unlisted:undeclared").await.unwrap_err();
    assert!(error.to_string().contains("does not declare"), "{error}");
}

#[tokio::test]
async fn clock_and_randomness_are_constant() {
    let guest = odd_guest(limits()).await;
    let now = NOW.wall.0;
    assert_eq!(ask(&guest, "clock").await.unwrap(), format!("{now} 0ns"));
    let environment = ask(&guest, "environment").await.unwrap();
    assert_eq!(environment, "0 arguments, 0 variables, read Some(0)");
    let random = ask(&guest, "random").await.unwrap();
    let other = odd_guest(limits()).await;
    assert_eq!(ask(&other, "random").await.unwrap(), random);

    let config = Config {
        reconcile: "now",
        ..Config::default()
    };
    let guest = try_odd_guest(&config, limits()).await.unwrap();
    assert_eq!(ask(&guest, "").await.unwrap(), now.to_string());
}

async fn ask_live(guest: &Guest, question: &str, reads: &Arc<SlowReads>) -> String {
    let reads = Arc::clone(reads);
    report(
        guest
            .reconcile(call_with(&[question], reads))
            .await
            .unwrap(),
    )
}

#[tokio::test]
async fn live_reads_need_a_permission_of_the_manifest() {
    let guest = odd_guest(limits()).await;
    let reads = Arc::new(SlowReads::default());
    assert_eq!(ask_live(&guest, "live-get:a", &reads).await, "77");
    assert_eq!(ask_live(&guest, "live-list:pods", &reads).await, "3");
    assert_eq!(reads.reads.swap(0, Ordering::Relaxed), 2);

    // Secrets are not permitted, unicorns are not served; the pods are in their
    // places.
    let mixed = ask_live(&guest, "live-get-mixed", &reads).await;
    assert_eq!(mixed, "forbidden 77 unmappable 77");
    assert_eq!(reads.reads.load(Ordering::Relaxed), 2);

    // `NoReads` panics if it is read.
    let asked = call_with(&["live-list:secrets"], Arc::new(NoReads));
    let listed = report(guest.reconcile(asked).await.unwrap());
    assert_eq!(listed, "forbidden");
}

#[tokio::test]
async fn waiting_for_a_live_read_costs_no_cpu_time() {
    let guest = odd_guest(Limits {
        cpu: Duration::from_millis(50),
        ..limits()
    })
    .await;
    let reads = Arc::new(SlowReads {
        pause: Duration::from_millis(15),
        ..SlowReads::default()
    });
    let started = Instant::now();
    assert_eq!(ask_live(&guest, "live-gets", &reads).await, "30");
    assert!(started.elapsed() >= Duration::from_millis(450));
}

#[tokio::test]
async fn live_reads_of_one_call_are_counted() {
    let guest = odd_guest(Limits {
        live_reads: 29,
        ..limits()
    })
    .await;
    let asked = call_with(&["live-gets"], Arc::new(SlowReads::default()));
    let error = guest.reconcile(asked).await.unwrap_err();
    let CallError::TooLarge { limit: 29, .. } = error else {
        panic!("{error}");
    };
}

#[tokio::test]
async fn a_live_read_suspends_only_its_own_instance() {
    let guest = Arc::new(odd_guest(limits()).await);
    let reads = Arc::new(SlowReads {
        pause: Duration::MAX,
        ..SlowReads::default()
    });
    let waiting = {
        let (guest, reads) = (Arc::clone(&guest), Arc::clone(&reads));
        tokio::spawn(async move { ask_live(&guest, "live-get:a", &reads).await })
    };
    while reads.reads.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    for _ in 0..10 {
        guest.reconcile(call(&["done"])).await.unwrap();
    }
    assert!(!waiting.is_finished());
    waiting.abort();
}
