//! A guest's messages in the host's log.

use std::io::Write;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use davit_engine::Limits;

use crate::harness::{Config, ask, call, limits, try_odd_guest};

/// A buffer for log lines.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The log while a guest called `chatty` does something. The runtime of a test
/// has one thread, so that the logs of other tests stay out.
async fn logged(behaviour: &str, limits: Limits) -> Vec<String> {
    let config = Config {
        name: "chatty",
        ..Config::default()
    };
    let guest = try_odd_guest(&config, limits).await.unwrap();
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .finish();
    let guard = tracing::subscriber::set_default(subscriber);
    let _ = ask(&guest, behaviour).await;
    drop(guard);
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_flood_is_truncated_with_a_note() {
    let limits = Limits {
        log: 1000,
        ..limits()
    };
    for behaviour in ["log-flood", "print-flood"] {
        let lines = logged(behaviour, limits).await;
        assert!(lines.len() < 80, "{behaviour}: {} lines", lines.len());
        let dropped = lines
            .iter()
            .filter(|line| line.contains("the rest is dropped"));
        assert_eq!(dropped.count(), 1, "{behaviour}");
        assert!(lines[0].contains("line 0 of a flood"), "{}", lines[0]);
        assert!(lines[0].contains("guest=\"chatty\""), "{}", lines[0]);
        // Also the line about the limit.
        for line in &lines {
            let named = r#" decision="19f-1-23-0" trace_id="add863c1" items=1"#;
            assert!(line.contains(named), "{line}");
        }
    }
}

/// An instance that is not kept starts again for each call.
#[tokio::test]
async fn what_an_instance_logs_at_its_start_is_of_the_call_that_needs_it() {
    let config = Config {
        describe: "log-flood",
        ..Config::default()
    };
    let limits = Limits {
        idle_memory: 0,
        ..limits()
    };
    let guest = try_odd_guest(&config, limits).await.unwrap();
    let mut call = call(&["now"]);
    call.log_bytes = 500;
    let logged = Arc::clone(&call.logged);
    guest.reconcile(call).await.unwrap();
    let logged = logged.load(Ordering::Relaxed);
    assert!((1..=500).contains(&logged), "{logged} bytes");
}

#[tokio::test]
async fn a_guest_cannot_forge_lines_of_the_host() {
    let lines = logged("forge-log", limits()).await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    // The formatter escapes the backslashes once more.
    let said =
        r#"guest log guest="chatty" guest_message="first\\nERROR second\\u{1b}[31m a=b\\nc""#;
    assert!(lines[0].contains(said), "{}", lines[0]);
    assert!(lines[0].trim_start().starts_with("WARN"), "{}", lines[0]);
}

#[tokio::test]
async fn a_panic_is_logged_as_it_was_printed() {
    let lines = logged("panic", limits()).await;
    let panicked = lines.iter().position(|line| line.contains("panicked at"));
    let message = &lines[panicked.unwrap() + 1];
    assert!(message.contains("it was asked to"), "{message}");
}
