//! The bench: an API server, a namespace and nodes of the test, and the host.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use davit::config::{self, ClientConfig, Config};
use davit::health::Health;
use davit::host::{Host, HostOptions, Report};
use davit::metrics::HostMetrics;
use davit::modules::{Modules, ModulesOptions};
use davit::records::Records;
use davit_cluster::connect::{self, ConnectOptions};
use davit_sim::Sim;
use davit_sim::fault::{Action, Fault, FaultTiming, Match, Refusal, WatchFault};
use davit_sim::model::DeletionKind;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

#[path = "deploy.rs"]
pub(crate) mod deploy;
#[path = "host.rs"]
mod host;
#[path = "journals.rs"]
pub(crate) mod journals;
#[path = "../support/process.rs"]
pub(crate) mod process;

use deploy::Allowed;
use process::guests;

/// The longest wait, on the API server's clock.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// An API server with the objects of the test.
pub(crate) struct Bench {
    /// Has every permission.
    client: kube::Client,
    /// Has the permissions of Davit's account.
    davit: kube::Client,
    /// None on a real API server. The roles in `deploy/` must allow each request.
    pub(crate) sim: Option<Allowed>,
    pub(crate) namespace: String,
    /// The paths of the objects to remove from a real API server, in the order of their
    /// creation.
    made: RefCell<Vec<String>>,
}

/// Runs a test on the API server in memory, on virtual time. Its hosts record, and their
/// journals are replayed.
pub(crate) fn on_the_sim<F: Future<Output = ()>>(test: impl FnOnce(Bench) -> F) {
    journals::replayed(|| {
        runtime(true).block_on(async { test(Bench::in_memory()).await });
    });
}

/// Runs a test on the API server in memory, on the machine's own clock: for tests of
/// the host's own speed.
pub(crate) fn in_real_time<F: Future<Output = ()>>(test: impl FnOnce(Bench) -> F) {
    runtime(false).block_on(async { test(Bench::in_memory()).await });
}

/// The same, with a start time for the API server's clock.
pub(crate) fn in_real_time_since<F: Future<Output = ()>>(
    start: jiff::Timestamp,
    test: impl FnOnce(Bench) -> F,
) {
    runtime(false).block_on(async { test(Bench::in_memory_since(start)).await });
}

/// Runs a test on the API server of `DAVIT_TEST_KUBECONFIG`, otherwise in memory, and
/// removes its objects.
pub(crate) fn on_any_server<F: Future<Output = Bench>>(test: impl FnOnce(Bench) -> F) {
    let real = std::env::var_os("DAVIT_TEST_KUBECONFIG");
    let test = async {
        let bench = match &real {
            None => Bench::in_memory(),
            Some(path) => Bench::real(Path::new(path)).await,
        };
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": bench.namespace},
        });
        bench.must("POST", "/api/v1/namespaces", &namespace).await;
        test(bench).await.remove().await;
    };
    journals::replayed(|| runtime(real.is_none()).block_on(test));
}

/// Runs a future on both processors and in real time.
pub(crate) fn on_real_time(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.enable_all().build().unwrap().block_on(test);
}

fn runtime(paused: bool) -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(paused).build().unwrap()
}

impl Bench {
    pub(crate) fn in_memory() -> Self {
        Self::in_memory_since("2026-11-20T10:00:00Z".parse().unwrap())
    }

    fn in_memory_since(now: jiff::Timestamp) -> Self {
        let sim = deploy::sim(now);
        Self::new(
            deploy::administrator(&sim),
            deploy::davit(&sim),
            Some(Allowed(sim)),
        )
    }

    async fn real(kubeconfig: &Path) -> Self {
        let options = ConnectOptions {
            kubeconfig: Some(kubeconfig.to_owned()),
            ..ConnectOptions::default()
        };
        let client = connect::connect(&options).await.unwrap();
        Self::new(client.clone(), client, None)
    }

    fn new(client: kube::Client, davit: kube::Client, sim: Option<Allowed>) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self {
            client,
            davit,
            sim,
            namespace: format!("davit-test-{}-{number}", std::process::id()),
            made: RefCell::default(),
        }
    }

    /// The API server in memory, if there is one.
    pub(crate) fn sim(&self) -> &Sim {
        self.sim.as_ref().expect("this test runs in memory only")
    }

    /// Removes an object when the test is over.
    pub(crate) fn remember(&self, path: String) {
        self.made.borrow_mut().push(path);
    }

    /// A client for a host. On the API server in memory it has the permissions of Davit's
    /// account, otherwise those of the tests.
    pub(crate) fn client(&self) -> kube::Client {
        self.davit.clone()
    }

    /// Sends a request; returns the status and the body.
    pub(crate) async fn send(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let content = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let body = match body {
            Value::Null => Body::empty(),
            body => Body::from(serde_json::to_vec(body).unwrap()),
        };
        let request = Request::builder()
            .method(Method::from_bytes(method.as_bytes()).unwrap())
            .uri(path)
            .header("Content-Type", content)
            .header("Accept", "application/json")
            .body(body)
            .unwrap();
        let response = self.client.send(request).await.unwrap();
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    /// Sends a request that must succeed.
    pub(crate) async fn must(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, answer) = self.send(method, path, body).await;
        assert!(
            (200..300).contains(&status),
            "{method} {path}: {status} {answer}"
        );
        answer
    }

    /// A ready node of that name, with these taints; returns its full name.
    pub(crate) async fn node(&mut self, name: &str) -> String {
        let name = format!("{}-{name}", self.namespace);
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        });
        self.must("POST", "/api/v1/nodes", &node).await;
        self.remember(format!("/api/v1/nodes/{name}"));
        self.set_ready(&name, "True").await;
        name
    }

    /// Sets a node's Ready condition.
    pub(crate) async fn set_ready(&self, node: &str, status: &str) {
        let patch = json!({"status": {"conditions": [{
            "type": "Ready", "status": status, "reason": "Test", "message": "",
            "lastHeartbeatTime": "2026-11-20T10:00:00Z",
            "lastTransitionTime": "2026-11-20T10:00:00Z",
        }]}});
        let path = format!("/api/v1/nodes/{node}/status");
        self.must("PATCH", &path, &patch).await;
    }

    /// Gives a node the out-of-service taint, and makes it not ready.
    pub(crate) async fn put_out_of_service(&self, node: &str) {
        let patch = json!({"spec": {"taints": [{
            "key": "node.kubernetes.io/out-of-service", "value": "x", "effect": "NoExecute",
        }]}});
        self.must("PATCH", &format!("/api/v1/nodes/{node}"), &patch)
            .await;
        self.set_ready(node, "False").await;
    }

    pub(crate) async fn delete_node(&self, node: &str) {
        self.must("DELETE", &format!("/api/v1/nodes/{node}"), &Value::Null)
            .await;
    }

    /// A pod in this phase, on this node (or none), with additional fields of spec and
    /// metadata; returns its uid.
    pub(crate) async fn pod(&self, name: &str, node: &str, phase: &str) -> String {
        self.pod_with(name, node, &json!({"phase": phase}), |_| {})
            .await
    }

    pub(crate) async fn pod_with(
        &self,
        name: &str,
        node: &str,
        status: &Value,
        change: impl FnOnce(&mut Value),
    ) -> String {
        let mut pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "automountServiceAccountToken": false,
                "containers": [{"name": "main", "image": "example.com/main"}],
            },
        });
        if !node.is_empty() {
            pod["spec"]["nodeName"] = json!(node);
        }
        change(&mut pod);
        if let Some(sim) = &self.sim {
            // In one step, for tests with many pods.
            pod["status"] = status.clone();
            let created = sim.create(pod).unwrap();
            return text(&created, "/metadata/uid");
        }
        let pods = self.pods_path();
        let deadline = Instant::now() + PATIENCE;
        let created = loop {
            let (status, answer) = self.send("POST", &pods, &pod).await;
            if status == 201 {
                break answer;
            }
            // The namespace's service account may not exist yet.
            assert!(
                status == 403 && Instant::now() < deadline,
                "{status} {answer}"
            );
            sleep(Duration::from_millis(100)).await;
        };
        let path = format!("{pods}/{name}/status");
        self.must("PATCH", &path, &json!({"status": status})).await;
        text(&created, "/metadata/uid")
    }

    /// Deletes a pod as a user does.
    pub(crate) async fn delete_pod(&self, name: &str) {
        let path = format!("{}/{name}", self.pods_path());
        self.must("DELETE", &path, &Value::Null).await;
    }

    /// A pod in the API server; null if it does not exist.
    pub(crate) async fn get_pod(&self, name: &str) -> Value {
        let path = format!("{}/{name}", self.pods_path());
        match self.send("GET", &path, &Value::Null).await {
            (404, _) => Value::Null,
            (200, pod) => pod,
            (status, answer) => panic!("{path}: {status} {answer}"),
        }
    }

    /// The names of the pods in the test's namespace.
    pub(crate) async fn pods(&self) -> BTreeSet<String> {
        let list = self.must("GET", &self.pods_path(), &Value::Null).await;
        let items = list["items"].as_array().unwrap().iter();
        items.map(|pod| text(pod, "/metadata/name")).collect()
    }

    fn pods_path(&self) -> String {
        format!("/api/v1/namespaces/{}/pods", self.namespace)
    }

    /// Starts the host with this configuration and waits until its controllers have
    /// started.
    pub(crate) async fn host(&self, config: &str) -> RunningHost {
        let mut running = self.host_without_controllers();
        running.apply(config).await;
        running.started().await;
        running
    }

    pub(crate) fn host_without_controllers(&self) -> RunningHost {
        RunningHost::start(self.client())
    }

    /// Waits until only these pods are left in the namespace.
    pub(crate) async fn until_left(&self, expected: &[&str]) {
        let expected: BTreeSet<String> = expected.iter().map(ToString::to_string).collect();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let pods = self.pods().await;
            if pods == expected {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "left: {pods:?}, expected: {expected:?}"
            );
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until a pod has this property.
    pub(crate) async fn until_pod(&self, name: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let pod = self.get_pod(name).await;
            if fits(&pod) {
                return pod;
            }
            assert!(Instant::now() < deadline, "{name} stays as it is: {pod}");
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// The events in the test's namespace, as soon as there are this many.
    pub(crate) async fn events(&self, count: usize) -> Vec<Value> {
        let deadline = Instant::now() + PATIENCE;
        let path = format!("/api/v1/namespaces/{}/events", self.namespace);
        loop {
            let list = self.must("GET", &path, &Value::Null).await;
            let events = list["items"].as_array().unwrap();
            if events.len() >= count {
                return events.clone();
            }
            assert!(Instant::now() < deadline, "{events:?}");
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Removes the test's objects from a real API server.
    pub(crate) async fn remove(self) {
        if self.sim.is_some() {
            return;
        }
        let pods = self.pods().await;
        let pods = pods
            .iter()
            .map(|name| format!("{}/{name}", self.pods_path()));
        let made = self.made.take();
        // The last first: later objects can depend on earlier ones.
        for path in pods.chain(made.into_iter().rev()) {
            let bare = json!({"metadata": {"finalizers": null}});
            self.send("PATCH", &path, &bare).await;
            self.send("DELETE", &path, &json!({"gracePeriodSeconds": 0}))
                .await;
        }
        let path = format!("/api/v1/namespaces/{}", self.namespace);
        self.send("DELETE", &path, &Value::Null).await;
    }
}

/// The parts of a host.
pub(crate) struct Setup {
    /// The records of rollouts.
    pub(crate) records: Arc<Records>,
    /// The directory of the module cache.
    pub(crate) cache: Option<PathBuf>,
    /// The directory of the built-in guests; that of the tests if none.
    pub(crate) guests: Option<PathBuf>,
    pub(crate) rates: ClientConfig,
    /// Whether it records. Its end then takes seconds of virtual time.
    pub(crate) records_journal: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            records: Arc::new(Records::memory()),
            cache: None,
            guests: None,
            rates: ClientConfig::default(),
            records_journal: true,
        }
    }
}

/// A running host.
pub(crate) struct RunningHost {
    pub(crate) host: Host,
    pub(crate) reports: mpsc::UnboundedReceiver<Report>,
    pub(crate) metrics: Arc<HostMetrics>,
    pub(crate) records: Arc<Records>,
    pub(crate) health: Arc<Health>,
    /// Whether each controller runs as its account in `deploy/`.
    has_accounts: bool,
}

impl RunningHost {
    /// Starts a host without controllers on an API server.
    pub(crate) fn start(client: kube::Client) -> Self {
        Self::start_with(client, Setup::default())
    }

    /// Starts a host with other parts.
    pub(crate) fn start_with(client: kube::Client, setup: Setup) -> Self {
        let Setup {
            records,
            cache,
            guests,
            rates,
            records_journal,
        } = setup;
        // A replay needs the modules when the test is over.
        let has_lasting_modules = cache.is_none() && guests.is_none();
        let has_accounts = client.default_namespace() == deploy::NAMESPACE;
        let (listener, reports) = mpsc::unbounded_channel();
        let modules = Modules::new(ModulesOptions {
            client: Some(client.clone()),
            cache,
            guests,
        });
        let mut options = HostOptions {
            rates,
            modules: modules.unwrap(),
            records: Arc::clone(&records),
            listener: Some(listener),
            ..host::options(client)
        };
        let (metrics, health) = (Arc::clone(&options.metrics), Arc::clone(&options.health));
        health.set_declared();
        if records_journal && has_lasting_modules {
            options.journal = journals::open(&metrics, &health);
        }
        let host = Host::start(options);
        Self {
            host,
            reports,
            metrics,
            records,
            health,
            has_accounts,
        }
    }

    pub(crate) async fn apply(&self, config: &str) {
        let mut controllers = parse(config).controllers.unwrap();
        journals::add_modules(&controllers);
        if self.has_accounts {
            deploy::set_accounts(&mut controllers);
        }
        let applied = self.host.apply(&controllers).await.unwrap();
        applied.recorded().await;
    }

    /// Waits until a controller starts.
    pub(crate) async fn started(&mut self) {
        let waiting =
            async { while !matches!(self.reports.recv().await, Some(Report::Started { .. })) {} };
        tokio::time::timeout(PATIENCE, waiting)
            .await
            .expect("the controller did not start");
    }

    /// The reports about starts, rulings and plans since the last call.
    pub(crate) fn work_reports(&mut self) -> Vec<Report> {
        let reports = std::iter::from_fn(|| self.reports.try_recv().ok());
        let is_work = |report: &Report| {
            matches!(
                report,
                Report::Started { .. } | Report::Ruled { .. } | Report::Executed { .. }
            )
        };
        reports.filter(is_work).collect()
    }

    /// The value of a series on the metrics page; 0 if it is not there.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let page = self.metrics.render();
        let mut lines = page.lines().filter_map(|line| line.rsplit_once(' '));
        let found = lines.find(|(name, _)| *name == series);
        found.map_or(0.0, |(_, value)| value.parse().unwrap())
    }

    /// Asserts that no call of a guest has failed: repeated failures open the circuit
    /// for every item.
    #[track_caller]
    pub(crate) fn assert_every_call_answered(&self) {
        let page = self.metrics.render();
        let calls = page
            .lines()
            .filter(|line| line.starts_with("davit_guest_calls_total"));
        let failed: Vec<&str> = calls
            .filter(|line| !line.contains("result=\"ok\""))
            .collect();
        assert!(failed.is_empty(), "{failed:?}");
    }
}

/// The faults of a watch.
pub(crate) const WATCH_FAULTS: [WatchFault; 6] = [
    WatchFault::Abort,
    WatchFault::End,
    WatchFault::Expire,
    WatchFault::Silence,
    WatchFault::NoBookmarks,
    WatchFault::Delay(Duration::from_secs(3)),
];

/// The ways in which a request fails.
pub(crate) const FAILURES: [Action; 7] = [
    Action::Refuse(Refusal::Conflict),
    Action::Refuse(Refusal::TooManyRequests(1)),
    Action::Refuse(Refusal::InternalError),
    Action::Refuse(Refusal::Unavailable),
    Action::CloseBefore,
    Action::CloseAfter,
    Action::CutBody(20),
];

/// Lets the matching requests fail in every way, in turn.
pub(crate) fn break_requests(sim: &Sim, matches: &Match) {
    for (number, action) in (3..).zip(FAILURES) {
        sim.add_fault(Fault {
            matches: matches.clone(),
            when: FaultTiming::Every(number),
            action,
        });
    }
}

/// How often a deletion of an object was accepted.
pub(crate) fn accepted_deletions(sim: &Sim, uid: &str) -> usize {
    let steps = sim.deletions_of(uid);
    let accepted = steps
        .iter()
        .filter(|step| step.kind == DeletionKind::Requested);
    accepted.count()
}

pub(crate) fn parse(config: &str) -> Config {
    config::parse(Path::new("the test's configuration"), config).unwrap()
}

/// A configuration with PodGC alone.
pub(crate) fn podgc(mode: &str, config: &str) -> String {
    format!(
        "controllers:\n- name: podgc\n  module: {{builtin: podgc}}\n  mode: {mode}\n  config: {config}\n"
    )
}

/// A guest that is shipped, as WebAssembly.
pub(crate) fn builtin_guest(name: &str) -> PathBuf {
    guests().join(format!("{}.wasm", name.replace('-', "_")))
}

pub(crate) fn odd_guest() -> PathBuf {
    guests().join("fixture_odd.wasm")
}

/// The text at a path in a value; empty if absent.
pub(crate) fn text(value: &Value, pointer: &str) -> String {
    let text = value.pointer(pointer).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}
