//! Several replicas, each with a network of its own, and what each of them has written.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use davit_sim::{RequestRecord, Sim};
use serde_json::Value;

use super::network::{Network, Partition};
use crate::cluster::process::Process;
use crate::cluster::{Cluster, NAMESPACE};

const LEASES: &str = "coordination.k8s.io/v1";

/// How long after its death the lease of a holder passes, with the settings of
/// `Cluster::run_replica`: the lease duration, and a second to notice and to acquire it.
pub(super) const TAKEOVER: Duration = Duration::from_secs(5);
/// What a takeover may take longer on a machine that runs other tests.
pub(super) const SLACK: Duration = Duration::from_secs(2);

/// The replicas of one controller. They end with the test.
pub(super) struct Fleet<'a> {
    cluster: &'a Cluster,
    controller: &'static str,
    replicas: RefCell<BTreeMap<String, Replica>>,
}

struct Replica {
    process: Process,
    network: Network,
    /// The server sees its requests come from there.
    source: Ipv4Addr,
}

/// A served request of a replica.
#[derive(Clone, Debug)]
pub(super) struct ReplicaRequest {
    /// The replica.
    pub(super) by: String,
    pub(super) request: RequestRecord,
}

impl<'a> Fleet<'a> {
    pub(super) fn new(cluster: &'a Cluster, controller: &'static str) -> Self {
        Self {
            cluster,
            controller,
            replicas: RefCell::default(),
        }
    }

    /// Starts a replica.
    pub(super) fn start(&self, name: &str) {
        let number = u8::try_from(self.replicas.borrow().len() + 2).unwrap();
        let source = Ipv4Addr::new(127, 0, 0, number);
        let address = self.cluster.address();
        let network = self.cluster.block_on(Network::start(address, source));
        let network = network.unwrap();
        let process = self.cluster.run_replica_at(name, &network.url());
        let replica = Replica {
            process,
            network,
            source,
        };
        let former = self.replicas.borrow_mut().insert(name.to_owned(), replica);
        assert!(former.is_none(), "each replica has a name of its own");
    }

    /// Waits until the cluster has this property.
    pub(super) fn until(&self, what: &str, done: impl FnMut(&Sim) -> bool) {
        self.cluster.until(what, done);
    }

    /// Starts a replica, and waits until it follows the controller or leads it.
    pub(super) fn start_and_sync(&self, name: &str) {
        self.start(name);
        self.sync(name);
    }

    /// Waits until a replica caches the controller's pods, and shows that it runs.
    pub(super) fn sync(&self, name: &str) {
        let has = |verb: &str, part: &str| {
            let served = self.served();
            let mut own = served.iter().filter(|served| served.by == name);
            own.any(|ReplicaRequest { request, .. }| {
                request.work.verb == verb && request.path.contains(part) && request.status < 300
            })
        };
        self.cluster.until("the replica is synced", |_| {
            has("watch", "/pods?") && has("create", "/leases")
        });
    }

    /// The replica that holds the lease of the controller, without the part that names its run.
    pub(super) fn holder(&self) -> Option<String> {
        let name = format!("controller-{}", self.controller);
        let lease = self.cluster.sim.get(LEASES, "Lease", NAMESPACE, &name);
        let lease = lease.ok()?;
        let holder = lease["spec"]["holderIdentity"].as_str()?;
        Some(holder.rsplit_once('-')?.0.to_owned())
    }

    /// The replica that holds the lease, once one does.
    pub(super) fn await_holder(&self) -> String {
        self.cluster
            .until("a replica leads", |_| self.holder().is_some());
        self.holder().unwrap()
    }

    pub(super) fn signal(&self, name: &str, signal: &str) {
        self.replicas.borrow()[name].process.signal(signal);
    }

    /// Waits for the end of a replica that was stopped.
    pub(super) fn wait(&self, name: &str) -> ExitStatus {
        let mut replicas = self.replicas.borrow_mut();
        let replica = replicas.get_mut(name).unwrap();
        replica.process.0.wait().unwrap()
    }

    pub(super) fn cut(&self, name: &str, partition: Partition) {
        self.replicas.borrow()[name].network.cut(partition);
    }

    /// The requests of replicas that were served so far, in the order of their answers.
    pub(super) fn served(&self) -> Vec<ReplicaRequest> {
        let replicas = self.replicas.borrow();
        let by = |request: &RequestRecord| {
            let from = request.peer?.ip();
            let mut all = replicas.iter();
            let found = all.find(|(_, replica)| IpAddr::V4(replica.source) == from);
            found.map(|(name, _)| name.clone())
        };
        let log = self.cluster.sim.log().into_iter();
        log.filter_map(|request| {
            Some(ReplicaRequest {
                by: by(&request)?,
                request,
            })
        })
        .collect()
    }

    /// The requests of replicas that change pods, in the order of their answers.
    pub(super) fn writes(&self) -> Vec<ReplicaRequest> {
        let mut all = self.served();
        all.retain(ReplicaRequest::is_write_to_pod);
        all
    }

    /// Waits until another replica has written to a pod since `since`; returns how long
    /// that took.
    pub(super) fn takeover(&self, former: &str, since: Duration) -> Duration {
        let first = || {
            let writes = self.writes().into_iter();
            let by_others = writes.filter(|write| write.by != former && write.is_success());
            let times = by_others.map(|write| write.request.uptime);
            times.filter(|at| *at > since).min()
        };
        self.cluster
            .until("another replica writes", |_| first().is_some());
        first().unwrap().saturating_sub(since)
    }
}

impl ReplicaRequest {
    pub(super) fn is_write_to_pod(&self) -> bool {
        let work = &self.request.work;
        work.resource == "pods" && ["patch", "delete"].contains(&&*work.verb)
    }

    pub(super) fn is_deletion(&self) -> bool {
        self.is_write_to_pod() && self.request.work.verb == "delete"
    }

    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.request.status)
    }

    /// Whether the request writes the lease of a controller.
    pub(super) fn is_lease_of(&self, controller: &str) -> bool {
        let work = &self.request.work;
        work.resource == "leases"
            && ["create", "patch"].contains(&&*work.verb)
            && self.body()["metadata"]["name"] == format!("controller-{controller}")
    }

    /// Whether the request writes the status of a Controller.
    pub(super) fn is_status(&self) -> bool {
        let work = &self.request.work;
        work.resource == "controllers" && work.subresource == "status" && work.verb == "patch"
    }

    /// The body, in JSON.
    pub(super) fn body(&self) -> Value {
        serde_json::from_slice(&self.request.body).unwrap()
    }

    /// The uid in the preconditions of a deletion.
    pub(super) fn uid(&self) -> String {
        let body = self.body();
        let uid = body.pointer("/preconditions/uid").and_then(Value::as_str);
        uid.expect("every deletion carries the uid").to_owned()
    }
}

/// How often the pods of each uid were deleted with success.
pub(super) fn deletions(writes: &[ReplicaRequest]) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for write in writes {
        if write.is_deletion() && write.is_success() {
            *found.entry(write.uid()).or_default() += 1;
        }
    }
    found
}

/// Waits until a condition holds, and checks it more often than `Cluster::until`.
pub(super) fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(40);
    while !holds() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
