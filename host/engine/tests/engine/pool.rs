//! The instances that all guests share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use davit_engine::{DescribeError, Engine, EngineConfig, Guest, Limits, Module};
use tokio::task::JoinSet;

use crate::artifacts;
use crate::harness::{Config, SlowReads, ask, call_with, limits};

/// A module in an engine of its own.
async fn module(max_instances: u32) -> (Engine, Module) {
    let config = EngineConfig {
        max_instances,
        ..EngineConfig::default()
    };
    let engine = Engine::new(config).unwrap();
    let module = engine.load(artifacts::guest("fixture-odd")).await.unwrap();
    (engine, module)
}

async fn guest(module: &Module, instances: u32) -> Result<Arc<Guest>, DescribeError> {
    let limits = Limits {
        instances,
        ..limits()
    };
    let guest = Guest::new(module, Config::default().bytes(), limits).await?;
    Ok(Arc::new(guest))
}

/// Calls a guest as often at once; each call waits for a live read.
fn busy(guest: &Arc<Guest>, calls: usize, pause: Duration) -> JoinSet<()> {
    let mut busy = JoinSet::new();
    for _ in 0..calls {
        let guest = Arc::clone(guest);
        busy.spawn(async move {
            let reads = SlowReads {
                pause,
                ..SlowReads::default()
            };
            let call = call_with(&["live-get:a"], Arc::new(reads));
            guest.reconcile(call).await.unwrap();
        });
    }
    busy
}

#[tokio::test]
async fn a_guest_is_sure_of_one_instance_and_shares_the_rest() {
    let (engine, module) = module(4).await;
    let greedy = guest(&module, 16).await.unwrap();
    let modest = guest(&module, 16).await.unwrap();

    // Two of four are left, and the greedy one takes both: three calls at once.
    let pause = Duration::from_secs(2);
    let calls = busy(&greedy, 9, pause);
    while engine.usage().instances < 4 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let started = Instant::now();
    ask(&modest, "done").await.unwrap();
    assert!(started.elapsed() < pause, "it waited for the other guest");
    // The rest of the calls waits, for whichever instance ends first.
    assert_eq!(calls.join_all().await.len(), 9);
    assert!(started.elapsed() < 5 * pause, "{:?}", started.elapsed());
    assert!(engine.usage().instances <= 4);

    // What is idle by now gives way to other guests.
    let others = [
        guest(&module, 1).await.unwrap(),
        guest(&module, 1).await.unwrap(),
    ];
    for guest in others.iter().chain([&greedy, &modest]) {
        busy(guest, 3, Duration::from_millis(1)).join_all().await;
    }
    let fifth = guest(&module, 1).await.err().unwrap();
    let expected = matches!(fifth, DescribeError::NoInstances { limit: 4 });
    assert!(expected, "{fifth}");
    drop((greedy, others));
    guest(&module, 1).await.unwrap();
    drop(modest);
    assert_eq!(
        engine.usage().instances,
        0,
        "idle ones end with their guest"
    );
}

#[tokio::test]
async fn idle_instances_are_few_however_many_guests_there_are() {
    let (engine, module) = module(80).await;
    let mut guests = Vec::new();
    for _ in 0..80 {
        guests.push(guest(&module, 4).await.unwrap());
    }
    assert_eq!(engine.usage().instances, 64);
    // The first ones have none, and are called all the same.
    for guest in &guests {
        ask(guest, "done").await.unwrap();
    }
    assert_eq!(engine.usage().instances, 64);
}
