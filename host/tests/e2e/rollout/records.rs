//! Records in the cluster, which other hosts may write too, or which cannot be written;
//! and the status and the probe in these cases.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use davit::records::Records;
use davit_core::api::ControllerStatus;
use davit_core::control::{Declaration, Requests};
use davit_core::object::ObjectRef;
use davit_sim::fault::{Action, Fault, FaultTiming, Match, Refusal};
use davit_sim::model::DeleteOptions;
use http::{Method, Request};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tower::service_fn;

use super::{condition, podgc};
use crate::bench::deploy::NAMESPACE;
use crate::bench::{Bench, PATIENCE, RunningHost, Setup, deploy, on_the_sim, parse, text};

const EAGER: &str = "{quarantine: 1s, period: 1s}";

/// The Controller podgc of the API server.
struct Resource {
    object: ObjectRef,
    /// The number of requests that write records.
    writes: Arc<AtomicUsize>,
}

impl Resource {
    fn new(bench: &Bench) -> Self {
        let controller = json!({
            "apiVersion": "davit.dev/v1alpha1", "kind": "Controller",
            "metadata": {"name": "podgc"}, "spec": {"module": {"builtin": "podgc"}},
        });
        let created = bench.sim().create(controller).unwrap();
        Self {
            object: ObjectRef {
                api_version: "davit.dev/v1alpha1".into(),
                kind: "Controller".into(),
                namespace: String::new(),
                name: "podgc".into(),
                uid: text(&created, "/metadata/uid"),
            },
            writes: Arc::default(),
        }
    }

    /// A host with these records.
    async fn start(&self, bench: &Bench) -> RunningHost {
        let (sim, writes) = (bench.sim().clone(), Arc::clone(&self.writes));
        let service = service_fn(move |request: Request<Body>| {
            let path = request.uri().path();
            let is_record = path.ends_with("/status") || path.contains("/controllerrevisions");
            if is_record && *request.method() != Method::GET {
                writes.fetch_add(1, Ordering::Relaxed);
            }
            let sim = sim.clone();
            async move { sim.call(request).await }
        });
        let client = deploy::davit_through(bench.sim(), service);
        let setup = Setup {
            records: Arc::new(Records::cluster(client.clone(), NAMESPACE)),
            records_journal: false,
            ..Setup::default()
        };
        let running = RunningHost::start_with(client, setup);
        let mut controllers = parse(&podgc(EAGER, "{}")).controllers.unwrap();
        deploy::set_accounts(&mut controllers);
        let declared = Declaration {
            name: "podgc".into(),
            generation: Some(1),
            object: Some(self.object.clone()),
            status: None,
            spec: Ok(controllers[0].spec.clone()),
            requests: Requests::default(),
        };
        running.host.declare(vec![declared]).await.recorded().await;
        running
    }

    /// The status in the API server, which may differ from the host's copy.
    fn status(bench: &Bench) -> ControllerStatus {
        let found = bench
            .sim()
            .get("davit.dev/v1alpha1", "Controller", "", "podgc");
        let status = found.unwrap()["status"].clone();
        if status.is_null() {
            return ControllerStatus::default();
        }
        serde_json::from_value(status).unwrap()
    }

    /// Waits until Ready has this reason.
    async fn until_ready(bench: &Bench, reason: &str) -> ControllerStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = Self::status(bench);
            if is_ready(&status, reason) {
                return status;
            }
            assert!(Instant::now() < deadline, "it stays at {status:#?}");
            sleep(Duration::from_millis(500)).await;
        }
    }

    fn writes(&self) -> usize {
        self.writes.load(Ordering::Relaxed)
    }
}

fn is_ready(status: &ControllerStatus, reason: &str) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|one| one.type_ == "Ready" && one.reason == reason)
}

fn event_reasons(bench: &Bench) -> Vec<String> {
    let events = bench.sim().list("v1", "Event", "default").unwrap();
    events.iter().map(|event| text(event, "/reason")).collect()
}

/// Neither host knows of the other beforehand; both continue.
#[test]
fn each_of_two_hosts_on_one_controller_reports_the_other() {
    on_the_sim(|bench| async move {
        let resource = Resource::new(&bench);
        let _first = resource.start(&bench).await;
        Resource::until_ready(&bench, "Running").await;
        let before = resource.writes();
        sleep(Duration::from_secs(600)).await;
        let status = Resource::status(&bench);
        assert!(is_ready(&status, "Running"), "{status:?}");
        assert_eq!(condition(&status, "Leading").0, "True");
        let heartbeats = resource.writes() - before;
        assert!(
            (9..=11).contains(&heartbeats),
            "{heartbeats} in ten minutes"
        );
        let alone = status.host.unwrap();

        let second = resource.start(&bench).await;
        let mut reported = BTreeSet::new();
        for _ in 0..600 {
            sleep(Duration::from_millis(500)).await;
            let status = Resource::status(&bench);
            if is_ready(&status, "AnotherHost") {
                let (_, _, message) = condition(&status, "Ready");
                let host = status.host.clone().unwrap();
                assert!(!message.contains(&host.id), "{message}");
                reported.insert(message);
                assert_eq!(condition(&status, "Leading").0, "Unknown");
            }
        }
        assert_eq!(reported.len(), 2, "each reports the other: {reported:?}");
        assert!(reported.iter().any(|message| message.contains(&alone.id)));
        assert!(event_reasons(&bench).contains(&"AnotherHost".to_owned()));
        bench.pod("orphan", "missing", "Running").await;
        bench.until_left(&[]).await;

        // The first one learns of the other one's last write when it writes itself, a minute
        // later at most, and forgets it 90 seconds after that.
        second.host.stop().await;
        sleep(Duration::from_secs(300)).await;
        Resource::until_ready(&bench, "Running").await;
        sleep(Duration::from_secs(600)).await;
        assert!(is_ready(&Resource::status(&bench), "Running"));
    });
}

#[test]
fn a_host_that_replaces_one_that_has_ended_reports_no_other() {
    on_the_sim(|bench| async move {
        let resource = Resource::new(&bench);
        let first = resource.start(&bench).await;
        Resource::until_ready(&bench, "Running").await;
        first.host.stop().await;
        let _second = resource.start(&bench).await;
        for _ in 0..600 {
            sleep(Duration::from_millis(500)).await;
            assert!(!is_ready(&Resource::status(&bench), "AnotherHost"));
        }
        assert!(is_ready(&Resource::status(&bench), "Running"));
    });
}

/// Davit may not write in its namespace: status, event and probe name the cause, and the
/// host does not retry several times a second.
#[test]
fn nothing_runs_until_its_revision_can_be_recorded() {
    on_the_sim(|bench| async move {
        let resource = Resource::new(&bench);
        let (api, binding) = ("rbac.authorization.k8s.io/v1", "RoleBinding");
        let mut allowed = bench.sim().get(api, binding, NAMESPACE, "davit").unwrap();
        let at_once = DeleteOptions::default();
        let removed = bench
            .sim()
            .delete(api, binding, NAMESPACE, "davit", &at_once);
        removed.unwrap();
        let host = resource.start(&bench).await;
        let status = Resource::until_ready(&bench, "NotRecorded").await;
        assert_eq!(status.summary, "NotRecorded: forbidden");
        let (is, _, message) = condition(&status, "Ready");
        assert_eq!(is, "False");
        assert!(message.contains(NAMESPACE), "{message}");
        assert_eq!(status.stable, None, "nothing is recorded");
        assert!(!host.health.is_ready());
        let before = resource.writes();
        bench.pod("orphan", "missing", "Running").await;
        sleep(Duration::from_secs(600)).await;
        let tries = resource.writes() - before;
        // One for the spec and one for the status, every 30 s.
        assert!(tries <= 50, "{tries} in ten minutes");
        assert_eq!(bench.pods().await.len(), 1, "nothing runs");
        let reasons = event_reasons(&bench);
        assert!(reasons.contains(&"NotRecorded".to_owned()), "{reasons:?}");

        let metadata = allowed["metadata"].as_object_mut().unwrap();
        metadata.retain(|field, _| ["name", "namespace"].contains(&field.as_str()));
        bench.sim().create(allowed).unwrap();
        // From here on the roles allow everything.
        bench.sim().clear_log();
        Resource::until_ready(&bench, "Running").await;
        bench.until_left(&[]).await;
        sleep(Duration::from_secs(5)).await;
        assert!(host.health.is_ready());
        let kept = bench.sim().list("apps/v1", "ControllerRevision", NAMESPACE);
        let kept: Vec<Value> = kept.unwrap();
        assert_eq!(kept.len(), 1);
    });
}

#[test]
fn a_list_that_fails_is_named_in_the_status_and_by_the_probe() {
    on_the_sim(|bench| async move {
        let refused = ["list", "watch"].map(|verb| {
            bench.sim().add_fault(Fault {
                matches: Match::new(verb, "nodes"),
                when: FaultTiming::Always,
                action: Action::Refuse(Refusal::InternalError),
            })
        });
        let resource = Resource::new(&bench);
        let host = resource.start(&bench).await;
        Resource::until_ready(&bench, "Starting").await;
        sleep(Duration::from_secs(5)).await;
        let status = Resource::status(&bench);
        assert_eq!(status.summary, "Starting: a list fails");
        let named = |text: &str| text.contains("v1/nodes cannot be listed: ");
        let (is, _, message) = condition(&status, "Ready");
        assert!(is == "False" && named(&message), "{is}: {message}");
        let (_, _, message) = condition(&status, "Synced");
        assert!(named(&message), "{message}");
        let reasons = host.health.not_ready().concat();
        assert!(
            reasons.starts_with("podgc: ") && named(&reasons),
            "{reasons}"
        );

        for fault in refused {
            bench.sim().heal(fault);
        }
        let status = Resource::until_ready(&bench, "Running").await;
        assert!(!named(&condition(&status, "Ready").2));
        sleep(Duration::from_secs(5)).await;
        assert!(host.health.is_ready(), "{:?}", host.health);
    });
}
