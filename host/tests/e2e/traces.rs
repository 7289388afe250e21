//! The traces of decisions, as a collector gets them. The receiver decodes them with the
//! official types of OTLP.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use davit_guest::testing::Pod;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message as _;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::bench::odd_guest;
use crate::bench::process::{Process, free_port, get, until};
use crate::program::{davit, sim_with};

/// A collector in the process of the test.
struct Collector {
    address: SocketAddr,
    state: Arc<State>,
    /// Serves requests as long as it lives.
    _runtime: Runtime,
}

#[derive(Default)]
struct State {
    received: Mutex<Vec<ExportTraceServiceRequest>>,
    refuses: AtomicBool,
    requests: AtomicU32,
}

async fn receive(
    state: Arc<State>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    state.requests.fetch_add(1, Ordering::Relaxed);
    assert_eq!(request.uri().path(), "/v1/traces");
    assert_eq!(request.headers()["content-type"], "application/x-protobuf");
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let decoded = ExportTraceServiceRequest::decode(body).unwrap();
    let refuses = state.refuses.load(Ordering::Relaxed);
    if !refuses {
        state.received.lock().unwrap().push(decoded);
    }
    let answer = Response::builder().status(if refuses { 503 } else { 200 });
    Ok(answer.body(Full::new(Bytes::new())).unwrap())
}

impl Collector {
    fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        runtime.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let shared = Arc::clone(&shared);
                let service = service_fn(move |request| receive(Arc::clone(&shared), request));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self {
            address,
            state,
            _runtime: runtime,
        }
    }

    /// From now on, it takes nothing.
    fn refuse(&self) {
        self.state.refuses.store(true, Ordering::Relaxed);
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn spans(&self) -> Vec<Span> {
        let received = self.state.received.lock().unwrap();
        let resources = received.iter().flat_map(|one| &one.resource_spans);
        let scopes = resources.flat_map(|one| &one.scope_spans);
        scopes.flat_map(|one| one.spans.clone()).collect()
    }

    /// The attributes of the resource, the same in every request.
    fn resource(&self) -> BTreeMap<String, Value> {
        let received = self.state.received.lock().unwrap();
        let resources = received.iter().flat_map(|one| &one.resource_spans);
        let mut all: Vec<_> = resources
            .map(|one| attributes(&one.resource.as_ref().unwrap().attributes))
            .collect();
        all.dedup();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }
}

fn attributes(all: &[KeyValue]) -> BTreeMap<String, Value> {
    let value = |value: &Option<AnyValue>| match value.as_ref().unwrap().value.as_ref().unwrap() {
        Any::StringValue(text) => json!(text),
        Any::IntValue(number) => json!(number),
        other => panic!("{other:?}"),
    };
    all.iter()
        .map(|one| (one.key.clone(), value(&one.value)))
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}

/// The spans of one trace.
struct Trace(Vec<Span>);

impl Trace {
    fn named(&self, name: &str) -> Vec<&Span> {
        self.0.iter().filter(|span| span.name == name).collect()
    }

    fn one(&self, name: &str) -> &Span {
        let all = self.named(name);
        assert_eq!(all.len(), 1, "{name}: {:#?}", self.0);
        all[0]
    }

    fn root(&self) -> &Span {
        let root = self.one("reconcile");
        assert!(root.parent_span_id.is_empty());
        root
    }
}

/// A running host, its log, and the objects that it needs.
struct Bench {
    host: Process,
    sim: Process,
    directory: tempfile::TempDir,
}

impl Bench {
    fn start(objects: &Value, fault: &str, arguments: &[&str]) -> Self {
        let podgc = "module: {builtin: podgc}, \
            config: {terminatedPodThreshold: 1, quarantine: 1s, period: 1s}";
        Self::start_with(podgc, objects, fault, arguments)
    }

    /// A host with one controller, podgc, that has these fields.
    fn start_with(controller: &str, objects: &Value, fault: &str, arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let objects = file("objects.json", &objects.to_string());
        let (sim, kubeconfig) = sim_with(&[&objects], &["--fault", fault]);
        let config = file(
            "davit.yaml",
            &format!("controllers: [{{name: podgc, mode: Enforce, {controller}}}]\n"),
        );
        let log = std::fs::File::create(directory.path().join("log")).unwrap();
        let host = davit()
            .args(["run", "--log-format", "json", "--config"])
            .arg(&config)
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .args(arguments)
            .env("DAVIT_CACHE", directory.path().join("cache"))
            .stderr(Stdio::from(log))
            .spawn()
            .unwrap();
        let host = Process(host);
        Self {
            host,
            sim,
            directory,
        }
    }

    fn log(&self) -> Vec<Value> {
        read(&self.directory.path().join("log"))
    }

    fn stop(self) -> Vec<Value> {
        assert_eq!(self.host.terminate(), 0);
        assert_eq!(self.sim.terminate(), 0);
        read(&self.directory.path().join("log"))
    }
}

fn read(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| line.ends_with('}'));
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn pod(name: &str, node: &str, phase: &str) -> Value {
    let pod = Pod::new(name).uid(&format!("uid-{name}"));
    let pod = pod.set("/metadata/creationTimestamp", "2026-11-20T10:00:00Z");
    pod.node(node).phase(phase).into()
}

fn objects(pods: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": pods})
}

/// The line of the log with this message.
fn line<'a>(lines: &'a [Value], message: &str) -> &'a Value {
    let found = lines.iter().find(|line| line["message"] == message);
    found.unwrap_or_else(|| panic!("no line says \"{message}\": {lines:#?}"))
}

/// The trace that a line of the log names.
fn trace_of(collector: &Collector, line: &Value) -> Trace {
    let id = line["trace_id"].as_str().unwrap();
    let spans = collector.spans().into_iter();
    Trace(spans.filter(|span| hex(&span.trace_id) == id).collect())
}

#[test]
fn a_collector_gets_each_decision_as_a_trace_that_its_log_lines_name() {
    let collector = Collector::start();
    let gone = pod("orphan", "no-such-node", "Failed");
    let bench = Bench::start(
        &objects(&[gone]),
        "delete pods first=1 500",
        &["--otlp-endpoint", &collector.url()],
    );
    until("the pod is deleted", || {
        let lines = bench.log();
        lines
            .iter()
            .any(|line| line["message"] == "executed: delete")
    });
    let lines = bench.stop();
    let resource = collector.resource();
    assert_eq!(resource["service.name"], "davit");
    assert_eq!(resource["service.version"], env!("CARGO_PKG_VERSION"));
    assert!(resource.contains_key("service.instance.id"), "{resource:?}");

    for (message, outcome, code, finish) in [
        ("failed: delete; will retry", "server", 500, "retry"),
        ("executed: delete", "ok", 200, "requeue"),
    ] {
        let line = line(&lines, message);
        let trace = trace_of(&collector, line);
        let root = trace.root();
        let shown = attributes(&root.attributes);
        assert_eq!(shown["davit.decision"], line["decision"]);
        assert_eq!(shown["davit.controller"], "podgc");
        assert_eq!(shown["davit.revision"], line["revision"]);
        assert_eq!(shown["davit.role"], "stable");
        assert_eq!(shown["davit.plans"], 1);
        assert_eq!(shown["davit.item.queue"], "orphaned_pods_nodes");
        assert_eq!(shown["davit.item.key"], "no-such-node");
        assert_eq!(shown["davit.finish"], finish);
        // The queue, the call, the gate and the plan are parts of the decision.
        for name in ["queue", "call", "gate", "plan"] {
            let span = trace.one(name);
            assert_eq!(span.parent_span_id, root.span_id, "{name}");
            assert!(span.start_time_unix_nano >= root.start_time_unix_nano);
            assert!(span.end_time_unix_nano <= root.end_time_unix_nano, "{name}");
        }
        assert_eq!(
            trace.one("queue").end_time_unix_nano,
            trace.one("call").start_time_unix_nano
        );
        let gate = attributes(&trace.one("gate").attributes);
        assert_eq!(gate["davit.ruling"], "admitted");
        assert_eq!(gate["davit.target.uid"], "uid-orphan");
        let plan = trace.one("plan");
        let shown = attributes(&plan.attributes);
        assert_eq!(shown["davit.plan.action"], "delete");
        assert_eq!(shown["davit.plan.outcome"], outcome);
        assert_eq!(shown["davit.plan.reason"], line["guest_reason"]);
        let request = trace.one("DELETE");
        assert_eq!(request.parent_span_id, plan.span_id);
        let shown = attributes(&request.attributes);
        assert_eq!(shown["url.path"], "/api/v1/namespaces/default/pods/orphan");
        assert_eq!(shown["http.response.status_code"], code);
        let failed = |span: &Span| {
            let status = span.status.as_ref();
            status.is_some_and(|status| status.code == StatusCode::Error as i32)
        };
        assert_eq!(failed(request), code == 500);
        assert_eq!(failed(plan), code == 500);
        assert_eq!(failed(root), code == 500);
    }

    // PodGC reads the missing node live before it deletes the pod.
    let spans = collector.spans();
    let read = spans.iter().find(|span| span.name == "live read");
    let read = read.unwrap_or_else(|| panic!("{spans:#?}"));
    let parent = spans
        .iter()
        .find(|span| span.span_id == read.parent_span_id);
    assert_eq!(parent.unwrap().name, "call");
    let request = spans
        .iter()
        .find(|span| span.parent_span_id == read.span_id && span.name == "GET");
    let shown = attributes(&request.unwrap().attributes);
    assert_eq!(shown["url.path"], "/api/v1/nodes/no-such-node");
    assert_eq!(shown["http.response.status_code"], 404);

    // The first decision followed on a command of the pass, which is a tick.
    let failed = trace_of(&collector, line(&lines, "failed: delete; will retry"));
    let shown = attributes(&failed.root().attributes);
    assert_eq!(shown["davit.trigger"], "command");
    let roots = spans.iter().filter(|span| span.name == "reconcile");
    let mut triggers = roots.map(|root| attributes(&root.attributes)["davit.trigger"].clone());
    assert!(triggers.any(|trigger| trigger == "tick"), "{spans:#?}");
}

#[test]
fn a_line_that_a_guest_logs_names_its_trace() {
    let collector = Collector::start();
    let guest = odd_guest();
    let controller = format!(
        "module: {{file: {}}}, config: {{reconcile: forge-log}}",
        guest.display()
    );
    let pod = pod("some", "", "Running");
    let bench = Bench::start_with(
        &controller,
        &objects(&[pod]),
        "delete pods first=1 500",
        &["--otlp-endpoint", &collector.url()],
    );
    let logs = |lines: &[Value]| lines.iter().any(|line| line["message"] == "guest log");
    until("the guest logs", || logs(&bench.log()));
    let lines = bench.stop();
    let line = line(&lines, "guest log");
    let trace = trace_of(&collector, line);
    let shown = attributes(&trace.root().attributes);
    assert_eq!(shown["davit.decision"], line["decision"]);
    let call = attributes(&trace.one("call").attributes);
    assert_eq!(call["davit.call.items"], line["items"]);
}

#[test]
fn text_of_a_guest_in_a_trace_is_short_and_on_one_line() {
    let collector = Collector::start();
    let bench = Bench::start(
        &objects(&[pod("done-1", "", "Failed"), pod("done-2", "", "Failed")]),
        "delete pods first=1 500",
        &["--otlp-endpoint", &collector.url()],
    );
    until("a trace arrives", || {
        collector.spans().iter().any(|span| span.name == "plan")
    });
    bench.stop();
    for span in collector.spans() {
        assert!(span.attributes.len() <= 32, "{span:#?}");
        for (name, value) in attributes(&span.attributes) {
            let text = value.as_str().unwrap_or_default();
            assert!(text.len() <= 512 + 3, "{name}: {text}");
            assert!(!text.contains(|it: char| it.is_control()), "{name}: {text}");
        }
    }
}

/// Nothing of a trace is sent for a ratio of 0, and the log has the ids all the same.
#[test]
fn decisions_outside_of_the_sample_are_not_sent() {
    let collector = Collector::start();
    let bench = Bench::start(
        &objects(&[pod("done-1", "", "Failed"), pod("done-2", "", "Failed")]),
        "delete nodes first=1 500",
        &["--otlp-endpoint", &collector.url(), "--trace-ratio", "0"],
    );
    until("a pod is deleted", || {
        let lines = bench.log();
        lines
            .iter()
            .any(|line| line["message"] == "executed: delete")
    });
    let lines = bench.stop();
    let id = line(&lines, "executed: delete")["trace_id"].as_str();
    assert_eq!(id.unwrap().len(), 32);
    assert_eq!(collector.state.requests.load(Ordering::Relaxed), 0);
}

/// A collector that is down, or refuses every batch, costs nothing but one line.
#[test]
fn a_collector_that_fails_is_logged_once_and_holds_nothing_up() {
    let refusing = Collector::start();
    refusing.refuse();
    let nobody = format!("http://127.0.0.1:{}", free_port());
    for (url, reason) in [(nobody, "connection refused"), (refusing.url(), "503")] {
        let http = format!("127.0.0.1:{}", free_port());
        let bench = Bench::start(
            &objects(&[pod("done-1", "", "Failed"), pod("done-2", "", "Failed")]),
            "delete nodes first=1 500",
            &["--otlp-endpoint", &url, "--http", &http, "--insecure-http"],
        );
        let failed = || {
            let (_, metrics) = get(&format!("http://{http}/metrics")).unwrap_or_default();
            let name = "davit_trace_spans_total{result=\"failed\"} ";
            let line = metrics.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|count| count.parse::<u32>().ok())
                .unwrap_or_default()
        };
        // Each second has a batch.
        until("some batches are lost", || failed() >= 8);
        let lines = bench.stop();
        line(&lines, "executed: delete");
        let lost = lines.iter().filter(|line| {
            let message = line["message"].as_str().unwrap();
            message.starts_with("traces are lost")
        });
        let lost: Vec<&Value> = lost.collect();
        // The second line follows ten seconds after the first one.
        assert!(lost.len() <= 2, "{lost:#?}");
        let error = lost[0]["error"].as_str().unwrap().to_lowercase();
        assert!(error.contains(reason), "{error}");
    }
}
