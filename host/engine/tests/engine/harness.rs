//! A small cluster, and a guest that reads it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use davit_core::coverage::{Gap, UnlistedResource};
use davit_core::grant::Grant;
use davit_core::live::{ReadAnswer, ReadRequest};
use davit_core::manifest::IndexSpec;
use davit_core::mapping::{Mapping, ServedResource};
use davit_core::notes::Notes;
use davit_core::object::{ApiResource, Kind, ObjectRecord, ProjectedObject, Uid};
use davit_core::path::FieldPath;
use davit_core::plan::{Decision, Verdict, WorkItem};
use davit_core::queue::{Origin, Queues};
use davit_core::store::{SegmentSpec, Store, ViewSpec};
use davit_core::time::{Instant, Now, Wall};
use davit_engine::{
    Call, CallError, DescribeError, Engine, EngineConfig, Guest, Limits, LiveReads, LoggedDecision,
    Module,
};
use futures::future::{BoxFuture, FutureExt as _};
use serde::Serialize;
use tokio::sync::OnceCell;

use crate::artifacts;

/// The time of every call of these tests.
pub(crate) const NOW: Now = Now {
    instant: Instant::from_nanos(60_000_000_000),
    wall: Wall(1_800_000_000_000),
};

/// The odd guest's configuration.
#[derive(Default, Serialize)]
pub(crate) struct Config {
    pub(crate) describe: &'static str,
    pub(crate) reconcile: &'static str,
    pub(crate) name: &'static str,
}

impl Config {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        rmp_serde::to_vec_named(self).unwrap()
    }
}

/// One engine for all tests, as in the host.
pub(crate) fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| {
        let config = EngineConfig {
            // All tests may run at once.
            max_instances: 1000,
            ..EngineConfig::default()
        };
        Engine::new(config).unwrap()
    })
}

pub(crate) async fn odd_module() -> &'static Module {
    static MODULE: OnceCell<Module> = OnceCell::const_new();
    MODULE
        .get_or_init(|| async {
            engine()
                .load(artifacts::guest("fixture-odd"))
                .await
                .unwrap()
        })
        .await
}

/// Limits with a deadline that a test on a busy machine does not reach.
pub(crate) fn limits() -> Limits {
    Limits {
        instances: 2,
        cpu: Duration::from_secs(20),
        ..Limits::default()
    }
}

/// Limits with a deadline that tests can wait for.
pub(crate) fn short_limits() -> Limits {
    Limits {
        cpu: Duration::from_millis(200),
        ..limits()
    }
}

pub(crate) async fn odd_guest(limits: Limits) -> Guest {
    try_odd_guest(&Config::default(), limits).await.unwrap()
}

pub(crate) async fn try_odd_guest(config: &Config, limits: Limits) -> Result<Guest, DescribeError> {
    Guest::new(odd_module().await, config.bytes(), limits).await
}

/// A call about items of these keys.
pub(crate) fn call(keys: &[&str]) -> Call {
    call_with(keys, Arc::new(NoReads))
}

pub(crate) fn call_with(keys: &[&str], live: Arc<dyn LiveReads>) -> Call {
    let (store, views) = cluster();
    let unlisted = views.get("pods").map(|pods| (*pods, vec![foos()]));
    let waiting = NOW.instant.after(Duration::from_secs(5));
    let mut queues = Queues::new(NOW.instant, &[queue()], &[]);
    queues
        .add(waiting, "work", "ns/waits", Origin::Fresh)
        .unwrap();
    Call {
        now: NOW,
        items: keys.iter().map(|key| item(key)).collect(),
        snapshot: store.snapshot(),
        views: Arc::new(views),
        pending: queues.pending(),
        notes: Notes::unit("seen".to_owned(), [0xc3].into()),
        grant: Grant::Declared,
        mapping: Arc::new(Mapping::new([
            served("pods", "Pod"),
            served("secrets", "Secret"),
        ])),
        unlisted: Arc::new(unlisted.into_iter().collect()),
        live,
        decision: Some(LazyLock::new(Box::new(|| LoggedDecision {
            name: "19f-1-23-0".to_owned(),
            trace_id: "add863c1".to_owned(),
        }))),
        log_bytes: usize::MAX,
        logged: Arc::default(),
        reads: None,
    }
}

fn foos() -> UnlistedResource {
    UnlistedResource {
        group: "example.com".to_owned(),
        plural: "foos".to_owned(),
        since: Instant::ZERO,
        reason: Gap::NotServed,
    }
}

pub(crate) fn item(key: &str) -> WorkItem {
    WorkItem::new("work", key, NOW.instant)
}

/// Lets the guest show one behaviour, and returns its report.
pub(crate) async fn ask(guest: &Guest, behaviour: &str) -> Result<String, CallError> {
    Ok(report(guest.reconcile(call(&[behaviour])).await?))
}

pub(crate) fn report(decisions: Vec<Decision>) -> String {
    let [decision] = <[Decision; 1]>::try_from(decisions).unwrap();
    match decision.verdict {
        Verdict::Retry { reason } => reason,
        verdict => format!("{verdict:?}"),
    }
}

/// The pods of all namespaces.
pub(crate) fn all_pods() -> SegmentSpec {
    SegmentSpec::new(ApiResource::new("", "v1", "pods"), "Pod", true)
}

/// Five pods, `ns/p0` to `ns/p4`: three on `n1`, one on `n2`, one on none.
fn cluster() -> (Store, BTreeMap<String, davit_core::store::ViewId>) {
    let mut store = Store::default();
    let mut changes = Vec::new();
    let node: FieldPath = "spec.nodeName".parse().unwrap();
    let fields = [&node].into_iter().collect();
    let bound = IndexSpec {
        presence: true,
        order: Some(node.clone()),
        ..IndexSpec::new("bound", node.clone())
    };
    let by_node = IndexSpec {
        unset: true,
        ..IndexSpec::new("node", node)
    };
    let view = store.add_view(ViewSpec {
        fields,
        indexes: vec![by_node, bound],
        ..ViewSpec::default()
    });
    let segment = store.attach(view, &all_pods(), &mut changes).unwrap();
    let nodes = ["n1", "n1", "n1", "n2", ""];
    let items = nodes
        .iter()
        .enumerate()
        .map(|(number, node)| pod(number, node));
    let fields = store.segment_fields(segment).unwrap().clone();
    let listed_at = Instant::from_nanos(50_000_000_000);
    store
        .replace(segment, fields, items, listed_at, &mut changes)
        .unwrap();
    (store, BTreeMap::from([("pods".to_owned(), view)]))
}

fn pod(number: usize, node: &str) -> ProjectedObject {
    ProjectedObject {
        namespace: "ns".into(),
        name: format!("p{number}").into(),
        uid: Uid::new(&format!("uid-{number}")),
        resource_version: format!("{}", 100 + number).into(),
        data: pod_data(node).into(),
    }
}

pub(crate) fn pod_data(node: &str) -> Vec<u8> {
    #[derive(Serialize)]
    struct Pod<'a> {
        spec: Spec<'a>,
    }
    #[derive(Serialize)]
    struct Spec<'a> {
        #[serde(rename = "nodeName")]
        node_name: &'a str,
    }
    rmp_serde::to_vec_named(&Pod {
        spec: Spec { node_name: node },
    })
    .unwrap()
}

fn queue() -> davit_core::manifest::QueueSpec {
    davit_core::manifest::QueueSpec {
        retry_initial: Duration::from_millis(5),
        retry_max: Duration::from_secs(1),
        ..davit_core::manifest::QueueSpec::new("work")
    }
}

fn served(plural: &str, kind: &str) -> ServedResource {
    ServedResource {
        resource: ApiResource::new("", "v1", plural),
        kind: kind.to_owned(),
        namespaced: true,
        verbs: Vec::new(),
        preferred: true,
    }
}

/// An API server that must not be read.
pub(crate) struct NoReads;

impl LiveReads for NoReads {
    fn read(&self, request: ReadRequest) -> BoxFuture<'_, ReadAnswer> {
        panic!("nobody may ask for {request:?}");
    }
}

/// An API server that is slow and has every object.
#[derive(Default)]
pub(crate) struct SlowReads {
    pub(crate) pause: Duration,
    pub(crate) reads: AtomicUsize,
}

impl LiveReads for SlowReads {
    fn read(&self, request: ReadRequest) -> BoxFuture<'_, ReadAnswer> {
        async move {
            let (reads, answer) = match request {
                ReadRequest::Get(requests) => {
                    let objects = requests.iter().map(|_| Ok(record())).collect();
                    (requests.len(), ReadAnswer::Get(objects))
                }
                ReadRequest::List(_) => (1, ReadAnswer::List(Ok(vec![record(); 3]))),
            };
            self.reads.fetch_add(reads, Ordering::Relaxed);
            tokio::time::sleep(self.pause).await;
            answer
        }
        .boxed()
    }
}

fn record() -> ObjectRecord {
    ObjectRecord {
        kind: Kind {
            api_version: "v1".into(),
            kind: "Pod".into(),
        },
        resource_version: "77".into(),
        changed_at: NOW.instant,
        data: pod_data("n1").into(),
    }
}
