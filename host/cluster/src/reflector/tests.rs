use std::time::Duration;

use davit_core::object::ApiResource;
use davit_core::path::{FieldPath, FieldTree};
use davit_core::stream::Update;
use davit_core::watch::Condition;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout, timeout_at};

use super::*;
use crate::testing::{RecordedRequest, Reply, Sender, Server, status};

fn tree(paths: &[&str]) -> FieldTree {
    let paths: Vec<FieldPath> = paths.iter().map(|path| path.parse().unwrap()).collect();
    paths.iter().collect()
}

fn spec(paths: &[&str]) -> StreamSpec {
    StreamSpec {
        resource: ApiResource::new("", "v1", "pods"),
        namespace: String::new(),
        label_selector: "app=a".into(),
        field_selector: String::new(),
        fields: tree(paths),
    }
}

fn pod(name: &str, version: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": version},
        "spec": {"nodeName": "n1"},
    })
}

fn list(names: &[&str], version: &str) -> Reply {
    let items: Vec<_> = names.iter().map(|name| pod(name, version)).collect();
    let metadata = json!({"resourceVersion": version});
    Reply::Json(
        200,
        json!({"kind": "PodList", "metadata": metadata, "items": items}),
    )
}

fn line(event_type: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": event_type, "object": object}))
}

fn stream() -> (Sender, Reply) {
    let (sender, chunks) = mpsc::unbounded_channel();
    (sender, Reply::Stream(chunks))
}

fn send(sender: &Sender, text: &str) {
    sender.send(Ok(text.to_owned().into())).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_panics_is_interrupted_and_starts_again() {
    let (updates, mut received) = mpsc::channel(8);
    let mut runs = 0;
    let run = || {
        runs += 1;
        let is_first = runs == 1;
        async move { assert!(!is_first, "this panic is expected") }
    };
    supervise(run, StreamId(1), updates).await;
    let Batch { stream, updates } = received.recv().await.unwrap();
    assert_eq!(stream, StreamId(1));
    assert!(matches!(
        updates.as_slice(),
        [Update::Status(Condition::Interrupted { .. })]
    ));
    assert!(received.recv().await.is_none());
    assert_eq!(runs, 2);
}

/// A reflector under test. Its server takes its answers from a list; later requests get
/// no answer.
struct RunningReflector {
    server: Server,
    reflector: Reflector,
    batches: mpsc::Receiver<Batch>,
    waiting: Vec<Update>,
    /// The test fails if it still waits at this time.
    deadline: Instant,
}

impl RunningReflector {
    fn start(spec: StreamSpec, settings: Settings, replies: Vec<Reply>) -> Self {
        let replies = std::sync::Mutex::new(replies.into_iter());
        let server = Server::new(move |_, _| {
            let next = replies.lock().unwrap().next();
            next.unwrap_or(Reply::Silence)
        });
        let (sender, batches) = mpsc::channel(1);
        let reflector = Reflector::start(&server.api(), spec, settings, 1, StreamId(7), sender);
        Self {
            server,
            reflector,
            batches,
            waiting: Vec::new(),
            deadline: Instant::now() + Duration::from_hours(1),
        }
    }

    fn paged(replies: Vec<Reply>) -> Self {
        Self::start(spec(&["spec.nodeName"]), paged(), replies)
    }

    async fn next(&mut self) -> Update {
        while self.waiting.is_empty() {
            let batch = timeout_at(self.deadline, self.batches.recv());
            let batch = batch.await.expect("no update").expect("it has stopped");
            assert_eq!(batch.stream, StreamId(7));
            self.waiting = batch.updates;
        }
        self.waiting.remove(0)
    }

    /// The names in the next reset or change, with a mark for its kind. Conditions are
    /// skipped.
    async fn news(&mut self) -> String {
        loop {
            match self.next().await {
                Update::Status(_) => {}
                Update::Reset { items, .. } => {
                    let names: Vec<_> = items.iter().map(|item| &*item.name).collect();
                    return format!("={}", names.join(","));
                }
                Update::Apply(object) => return format!("+{}", object.name),
                Update::Delete(object) => return format!("-{}", object.name),
            }
        }
    }

    async fn interruption(&mut self) -> String {
        loop {
            if let Update::Status(Condition::Interrupted { reason }) = self.next().await {
                return reason;
            }
        }
    }

    /// Waits for that many requests.
    async fn requests(&self, count: usize) -> Vec<RecordedRequest> {
        for _ in 0..6000 {
            let seen = self.server.seen();
            if seen.len() >= count {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{:?}", self.server.seen());
    }
}

fn paged() -> Settings {
    Settings {
        streaming_list: false,
        ..Settings::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_and_then_its_watch() {
    let (sender, watch) = stream();
    let mut running = RunningReflector::paged(vec![list(&["a", "b"], "5"), watch]);
    assert_eq!(running.news().await, "=a,b");
    send(&sender, &line("ADDED", &pod("c", "6")));
    assert_eq!(running.news().await, "+c");
    send(&sender, &line("DELETED", &pod("a", "7")));
    assert_eq!(running.news().await, "-a");
    let seen = running.requests(2).await;
    assert_eq!(seen[0].uri, "/api/v1/pods?labelSelector=app%3Da&limit=500");
    assert_eq!(seen[0].header("accept"), "application/json");
    let (uri, seconds) = seen[1].uri.rsplit_once('=').unwrap();
    assert_eq!(
        uri,
        "/api/v1/pods?labelSelector=app%3Da&watch=true&resourceVersion=5\
         &allowWatchBookmarks=true&timeoutSeconds"
    );
    assert!((300..600).contains(&seconds.parse::<u32>().unwrap()));
    assert_eq!(seen[1].header("accept-encoding"), "identity");
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_of_metadata() {
    let (sender, watch) = stream();
    let spec = spec(&["metadata.labels"]);
    let mut running = RunningReflector::start(spec, Settings::default(), vec![watch]);
    let end = json!({"metadata": {
        "resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"},
    }});
    // Cut in the middle of an event.
    let text = line("ADDED", &pod("a", "5")) + &line("BOOKMARK", &end);
    let (first, second) = text.split_at(40);
    send(&sender, first);
    send(&sender, second);
    assert_eq!(running.news().await, "=a");
    let seen = running.server.only();
    assert!(seen.uri.contains(
        "&watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
         &allowWatchBookmarks=true&timeoutSeconds="
    ));
    assert_eq!(
        seen.header("accept"),
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
    );
    drop(sender);
    let seen = running.requests(2).await;
    assert!(seen[1].uri.contains("&resourceVersion=9&"), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn pages_of_metadata_are_requested_as_partial_metadata() {
    let mut running = RunningReflector::start(spec(&[]), paged(), vec![list(&[], "5")]);
    assert_eq!(running.news().await, "=");
    assert_eq!(
        running.server.seen()[0].header("accept"),
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
    );
}

#[tokio::test(start_paused = true)]
async fn events_that_arrive_together_are_one_batch() {
    let (sender, watch) = stream();
    let mut running = RunningReflector::paged(vec![list(&[], "5"), watch]);
    running.requests(2).await;
    for number in 0..100 {
        send(&sender, &line("ADDED", &pod("a", &number.to_string())));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let first = running.batches.recv().await.unwrap();
    let second = running.batches.recv().await.unwrap();
    assert!(matches!(first.updates[0], Update::Reset { .. }));
    assert_eq!(first.updates.len() + second.updates.len(), 102);
}

#[tokio::test(start_paused = true)]
async fn a_full_channel_stops_the_reading_and_loses_nothing() {
    let (sender, watch) = stream();
    let mut running = RunningReflector::paged(vec![list(&[], "0"), watch]);
    running.requests(2).await;
    for number in 1..=10_000 {
        send(&sender, &line("ADDED", &pod("a", &number.to_string())));
    }
    // Longer than the idle timeout: not reading is not silence.
    tokio::time::sleep(Duration::from_secs(200)).await;
    let mut last = 0;
    while last < 10_000 {
        if let Update::Apply(object) = running.next().await {
            assert_eq!(object.resource_version.parse(), Ok(last + 1));
            last += 1;
        }
    }
    assert_eq!(running.server.seen().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_breaks_is_resumed_from_the_last_event() {
    let (sender, first) = stream();
    let (_open, second) = stream();
    let mut running = RunningReflector::paged(vec![list(&["a"], "5"), first, second]);
    assert_eq!(running.news().await, "=a");
    send(&sender, &line("ADDED", &pod("b", "6")));
    assert_eq!(running.news().await, "+b");
    // The connection ends in the middle of a frame.
    send(&sender, r#"{"type":"ADDED","obj"#);
    drop(sender);
    let reason = running.interruption().await;
    assert_eq!(reason, "the watch broke off within an event");
    assert!(
        running.requests(3).await[2]
            .uri
            .contains("&resourceVersion=6&")
    );
    assert_eq!(running.next().await, Update::Status(Condition::Synced));
}

#[tokio::test(start_paused = true)]
async fn the_error_of_a_broken_connection_names_the_cause() {
    let (sender, first) = stream();
    let mut running = RunningReflector::paged(vec![list(&["a"], "5"), first]);
    assert_eq!(running.news().await, "=a");
    let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    sender.send(Err(reset)).unwrap();
    let reason = running.interruption().await;
    assert!(reason.contains("connection reset"), "{reason}");
    assert!(
        running.requests(3).await[2]
            .uri
            .contains("&resourceVersion=5&")
    );
}

#[tokio::test(start_paused = true)]
async fn a_half_open_connection_is_dropped_after_a_silence() {
    let (sender, first) = stream();
    let mut running = RunningReflector::paged(vec![list(&["a"], "5"), first]);
    assert_eq!(running.news().await, "=a");
    let start = Instant::now();
    tokio::time::sleep(Duration::from_mins(1)).await;
    let bookmark = json!({"metadata": {"resourceVersion": "9"}});
    send(&sender, &line("BOOKMARK", &bookmark));
    let seen = running.requests(3).await;
    let waited = start.elapsed().as_secs();
    assert!((150..=151).contains(&waited), "{waited}");
    assert!(seen[2].uri.contains("&resourceVersion=9&"));
    assert!(sender.is_closed(), "the old connection is still open");
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_and_a_garbled_event_mean_a_new_list() {
    let gone = json!({"kind": "Status", "code": 410, "message": "too old resource version"});
    for text in [
        line("ERROR", &gone),
        "{\"type\":\"ADDED\",\"object\":{]\n".to_owned(),
        line("ADDED", &json!({"metadata": {}})),
    ] {
        let (sender, first) = stream();
        let mut running =
            RunningReflector::paged(vec![list(&["a"], "5"), first, list(&["b"], "9")]);
        assert_eq!(running.news().await, "=a");
        send(&sender, &text);
        assert_eq!(running.news().await, "=b");
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_without_an_end_ends_the_watch() {
    let (sender, first) = stream();
    let mut running = RunningReflector::paged(vec![list(&["a"], "5"), first]);
    assert_eq!(running.news().await, "=a");
    let megabyte = "x".repeat(1 << 20);
    for _ in 0..33 {
        send(&sender, &megabyte);
    }
    let reason = running.interruption().await;
    assert!(reason.contains("longer than 33554432 bytes"), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_no_list_replaces_nothing() {
    let mut running = RunningReflector::paged(vec![
        Reply::Json(200, status(200, "", "", json!({}))),
        Reply::Text(
            200,
            "{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\"".into(),
        ),
        Reply::Json(500, status(500, "InternalError", "oh", json!({}))),
        list(&["a"], "5"),
    ]);
    assert!(running.interruption().await.contains("it is a status"));
    assert!(running.interruption().await.contains("breaks off"));
    assert_eq!(running.interruption().await, "the server answered 500: oh");
    assert_eq!(running.news().await, "=a");
}

#[tokio::test(start_paused = true)]
async fn it_stops_when_its_handle_or_its_reader_is_dropped() {
    let (sender, watch) = stream();
    let mut running = RunningReflector::paged(vec![list(&["a"], "5"), watch]);
    assert_eq!(running.news().await, "=a");
    running.requests(2).await;
    drop(running.reflector);
    timeout(Duration::from_secs(1), sender.closed())
        .await
        .unwrap();

    let (sender, watch) = stream();
    let mut running = RunningReflector::paged(vec![list(&["a"], "5"), watch]);
    assert_eq!(running.news().await, "=a");
    running.requests(2).await;
    drop(running.batches);
    send(&sender, &line("ADDED", &pod("b", "6")));
    timeout(Duration::from_secs(1), sender.closed())
        .await
        .unwrap();
}

/// The host is woken once for what a connection gives at once.
#[tokio::test(start_paused = true)]
async fn changes_that_are_there_are_one_batch() {
    let (sender, watch) = stream();
    let mut running = RunningReflector::paged(vec![list(&["a"], "1"), watch]);
    assert_eq!(running.news().await, "=a");
    running.requests(2).await;
    while running.waiting.pop().is_some() {}
    for version in 2..50 {
        send(&sender, &line("MODIFIED", &pod("a", &version.to_string())));
    }
    let batch = running.batches.recv().await.unwrap();
    assert_eq!(batch.updates.len(), 48, "{:?}", batch.updates);
    send(&sender, &line("DELETED", &pod("a", "50")));
    assert_eq!(running.news().await, "-a");
}

/// A journal has one time for a batch, and has to say whether a change came before the watch
/// continued.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_gap_is_the_end_of_its_batch() {
    let (sender, first) = stream();
    let (changes, second) = stream();
    let mut running = RunningReflector::paged(vec![list(&["a"], "5"), first, second]);
    assert_eq!(running.news().await, "=a");
    for version in ["6", "7"] {
        send(&changes, &line("MODIFIED", &pod("a", version)));
    }
    drop(sender);
    let synced = Update::Status(Condition::Synced);
    let before = loop {
        let batch = running.batches.recv().await.unwrap();
        if batch.updates.contains(&synced) {
            break batch;
        }
    };
    assert_eq!(before.updates.last(), Some(&synced));
    let batch = running.batches.recv().await.unwrap();
    assert_eq!(batch.updates.len(), 2, "{:?}", batch.updates);
}
