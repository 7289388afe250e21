//! One story: the steps, then rest, then the comparison with what must be.

use std::collections::BTreeMap;
use std::time::Duration;

use davit_core::time::Instant;
use davit_sim::fault::{Fault, Match, When};
use davit_sim::model::DeletionKind;
use davit_sim::{Time, direct};
use davit_simulation::host::Stopped;
use davit_simulation::{Conditions, Dice, Host, World};
use serde_json::{Value, json};

use crate::cluster::{self, Kubelets};
use crate::fate::{Fates, left_over, text, tolerates, uid};
use crate::guests;
use crate::operators::Operators;
use crate::step::{Create, Event, NODES, NewPod, Step};

/// Longer than a silent watch is believed in, so that every cache has caught
/// up.
const CAUGHT_UP: Duration = Duration::from_secs(200);
/// Nothing is written for so long: the cluster is at rest.
const QUIET: Duration = Duration::from_secs(240);
/// How often an operator does something about the statuses at most, in calm.
const MOST_ATTENTION: usize = 4;
/// How long that takes to be decided.
const ATTENTION: Duration = Duration::from_secs(90);
/// It has to come to rest by then.
const LONGEST_CALM: Duration = Duration::from_hours(1);
/// How often the kubelets work.
const HEARTBEAT: Duration = Duration::from_secs(8);
/// How long a declaration may take to reach the host.
const STARVED: Duration = Duration::from_secs(20);
/// Reminds of the kubelets' work.
const KUBELETS: u64 = 1;
/// Reminds that the host hears of what is declared.
const DECLARATIONS: u64 = 2;

/// What came of a story.
#[derive(Debug)]
pub(crate) struct Ending {
    /// What is wrong; a good story has nothing.
    pub(crate) problems: Vec<String>,
    /// The hash of everything that happened.
    pub(crate) hash: u64,
    /// Everything that happened, if it was kept.
    pub(crate) trace: Vec<String>,
    /// How many plans were executed.
    pub(crate) executed: usize,
}

struct Story {
    host: Host,
    operators: Operators,
    kubelets: Kubelets,
    fates: Fates,
    /// When each node's taint was last lifted. Until every cache has heard of
    /// it, a new pod may be evicted for it, as kube-controller-manager does.
    lifted: BTreeMap<u64, Instant>,
    /// When each node's kubelet was last back. Until that is known, the node
    /// counts as unresponsive, for new pods too.
    back: BTreeMap<u64, Instant>,
    /// How often the story deleted each map.
    deleted: BTreeMap<String, usize>,
    /// Whether the host may ask for a deletion twice: it forgot the first.
    forgot: bool,
}

/// Tells the story of a seed.
pub(crate) fn tell(seed: u64, steps: &[Step], keep_trace: bool) -> Result<Ending, String> {
    let start = Time::from_unix(1_780_000_000);
    let mut dice = Dice::new(seed ^ 0x5bd1_e995);
    let model = cluster::model(seed, start)?;
    let mut story = Story {
        operators: Operators::new(&mut dice),
        host: Host::new(
            World::new(model, start, dice.bits(), keep_trace),
            guests::describe,
        ),
        kubelets: Kubelets::default(),
        fates: Fates::default(),
        lifted: BTreeMap::new(),
        back: BTreeMap::new(),
        deleted: BTreeMap::new(),
        forgot: false,
    };
    cluster::fill(&mut story.host.world);
    story.kubelets.work(&mut story.host.world);
    story
        .host
        .world
        .remind_owner(Instant::ZERO.after(HEARTBEAT), KUBELETS);
    story.operators.settle_in(&mut story.host);
    story.start();
    story.pass(Duration::from_secs(2));
    for step in steps {
        story.host.world.note(format_args!("STEP {:?}", step.event));
        story.step(&step.event);
        story.pass(step.pause);
    }
    let rests = story.calm();
    let mut problems = story.problems();
    if !rests {
        problems.push("the cluster does not come to rest".to_owned());
    }
    let trace = &story.host.world.trace;
    Ok(Ending {
        problems,
        hash: trace.hash(),
        trace: trace.lines().to_vec(),
        executed: story.host.executed().len(),
    })
}

impl Story {
    fn world(&mut self) -> &mut World {
        &mut self.host.world
    }

    fn now(&self) -> Instant {
        self.host.world.now().instant
    }

    /// Lets time pass.
    fn pass(&mut self, time: Duration) {
        let until = self.now().after(time);
        loop {
            match self.host.run(until) {
                Stopped::Time => return,
                Stopped::Reminder(DECLARATIONS) => self.operators.tell(&mut self.host),
                Stopped::Reminder(_) => {
                    self.kubelets.work(&mut self.host.world);
                    let at = self.now().after(HEARTBEAT);
                    self.world().remind_owner(at, KUBELETS);
                }
                Stopped::Crashed => {
                    self.forgot = true;
                    self.host.crash = 0.0;
                    self.start();
                }
            }
            self.host.take_reports();
            while self.host.take_answer().is_some() {}
        }
    }

    /// Starts the host, which hears of what is declared a moment later.
    fn start(&mut self) {
        self.operators.restarted();
        self.host.start();
        self.declare();
    }

    /// The host hears of what is declared, after a while.
    fn declare(&mut self) {
        let longest = if self.world().dice().chance(0.05) {
            STARVED
        } else {
            Duration::from_millis(50)
        };
        let range = Duration::from_millis(1)..longest;
        let lag = self.world().dice().duration(&range);
        let at = self.now().after(lag);
        self.world().remind_owner(at, DECLARATIONS);
    }

    fn step(&mut self, event: &Event) {
        match event {
            Event::Create(create) => self.create(create),
            Event::Delete {
                pod,
                number,
                policy,
            } => self.delete(*pod, *number, policy),
            Event::Replace { pod, number } => self.replace(*pod, *number),
            Event::Orphan(number) => self.orphan(*number),
            Event::Taint(node) => self.taint(*node),
            Event::Untaint(node) => self.untaint(*node),
            Event::RemoveNode(node) => self.remove_node(*node),
            Event::CreateNode(node) => self.create_node(*node),
            Event::Silence(node) => self.silence(*node),
            Event::Resume(node) => self.resume(*node),
            Event::DropLease(server) => self.drop_lease(*server),
            Event::Disturb(resource, fault) => self.world().disturb(resource, *fault),
            Event::Break(verb, action) => {
                let fault = Fault {
                    matches: Match::new(verb, ""),
                    when: When::Chance(0.3),
                    action: action.clone(),
                };
                self.world().faults().add(fault);
            }
            Event::Network {
                starve,
                unreachable,
                hold_up,
                no_discovery,
            } => {
                self.forgot |= *hold_up > 0.0;
                let conditions = &mut self.world().conditions;
                conditions.starve = *starve;
                conditions.unreachable = *unreachable;
                conditions.hold_up = *hold_up;
                conditions.no_discovery = *no_discovery;
            }
            Event::Records {
                fail,
                lose,
                unreadable,
                no_loads,
            } => {
                let conditions = &mut self.world().conditions;
                conditions.no_records = *fail;
                conditions.lost_records = *lose;
                conditions.unreadable_records = *unreadable;
                conditions.no_loads = *no_loads;
            }
            Event::Unlist(plural) => {
                let unlisted = &mut self.world().conditions.unlisted;
                unlisted.push((*plural).to_owned());
            }
            Event::Unreach(version) => {
                let unreached = &mut self.world().conditions.unreached;
                unreached.push((*version).to_owned());
            }
            Event::Heal => self.heal(),
            Event::Nothing => {}
            Event::Trap => self.host.trap = 0.2,
            Event::Crash(downtime) => self.crash(*downtime),
            Event::CrashSoon => self.host.crash = 0.05,
            Event::Reboot(keeps_modules) => self.reboot(*keeps_modules),
            Event::WallClock(millis) => self.host.shift_wall_clock(*millis),
            Event::Lead(held) => self.host.lead(*held),
            Event::Operate(controller, action) => {
                self.operators.act(*controller, action, &mut self.host);
                self.declare();
            }
        }
    }

    fn reboot(&mut self, keeps_modules: bool) {
        self.forgot = true;
        self.host.crash();
        self.pass(Duration::from_secs(5));
        self.host.reboot();
        if !keeps_modules {
            self.host.modules.forget_cache();
        }
        self.start();
    }

    /// An object of that name, if it is free.
    fn create(&mut self, create: &Create) {
        let named = |(number, _): &(u64, bool)| {
            cluster::get(&self.host.world, "ConfigMap", &format!("map-{number}"))
        };
        let owners: Vec<Value> = create.owners.iter().filter_map(named).collect();
        let object = cluster::object(create, &owners);
        let Some(created) = cluster::put(self.world(), object) else {
            return;
        };
        let created_uid = uid(&created).to_owned();
        if create.pod.is_none() {
            self.deleted.insert(created_uid.clone(), 0);
        }
        let owners: Vec<String> = owners.iter().map(|owner| uid(owner).to_owned()).collect();
        let name = text(&created, "/metadata/name");
        self.fates.created(&created_uid, name, &owners);
        if let Some(pod) = create.pod
            && !self.is_safe(pod.node, &created)
        {
            self.fates.doom(&created_uid);
        }
    }

    /// Whether a pod can stay on a node as that is now.
    fn is_safe(&self, number: u64, pod: &Value) -> bool {
        let name = cluster::node_name(number);
        let Some(node) = cluster::get(&self.host.world, "Node", &name) else {
            return false;
        };
        let tainted = node["spec"]["taints"].is_array();
        let recent = |times: &BTreeMap<u64, Instant>| {
            let at = times.get(&number);
            at.is_some_and(|at| self.now().since(*at) < CAUGHT_UP)
        };
        let responsive = !self.kubelets.silent.contains(&name) && !recent(&self.back);
        responsive && (tolerates(pod) || !(tainted || recent(&self.lifted)))
    }

    fn named(&self, pod: bool, number: u64) -> Option<Value> {
        let (kind, name) = if pod {
            ("Pod", format!("pod-{number}"))
        } else {
            ("ConfigMap", format!("map-{number}"))
        };
        cluster::get(&self.host.world, kind, &name)
    }

    fn delete(&mut self, pod: bool, number: u64, policy: &str) {
        if let Some(object) = self.named(pod, number)
            && !is_orphaning(&object)
        {
            self.fates.doom(uid(&object));
            self.delete_with(&object, policy);
        }
    }

    fn delete_with(&mut self, object: &Value, policy: &str) {
        // It may be terminating already.
        let deleted = cluster::delete(self.world(), object, policy);
        if let Some(count) = self.deleted.get_mut(uid(object))
            && deleted
        {
            *count += 1;
        }
    }

    fn replace(&mut self, pod: bool, number: u64) {
        let Some(object) = self.named(pod, number).filter(|it| !is_orphaning(it)) else {
            return;
        };
        self.fates.doom(uid(&object));
        if cluster::remove_at_once(self.world(), &object)
            && let Some(count) = self.deleted.get_mut(uid(&object))
        {
            *count += 1;
        }
        let node = text(&object, "/spec/nodeName").strip_prefix("node-");
        let node = node.and_then(|node| node.parse().ok());
        self.create(&Create {
            number,
            owners: Vec::new(),
            pod: node.map(|node| NewPod {
                node,
                grace: 5,
                tolerates: true,
            }),
        });
    }

    fn orphan(&mut self, number: u64) {
        let Some(object) = self.named(false, number) else {
            return;
        };
        let terminates = |object: &Value| object["metadata"]["deletionTimestamp"].is_string();
        if terminates(&object) || !self.fates.has_dependents(uid(&object)) {
            return;
        }
        self.heal();
        self.pass(CAUGHT_UP);
        let still = self.named(false, number);
        if still.is_some_and(|now| uid(&now) == uid(&object) && !terminates(&now)) {
            self.fates.orphan(uid(&object));
            self.delete_with(&object, "Orphan");
            self.pass(CAUGHT_UP);
        }
    }

    fn pods_on(&self, node: u64) -> Vec<Value> {
        let name = cluster::node_name(node);
        let mut pods = cluster::list(&self.host.world, "Pod");
        pods.retain(|pod| pod["spec"]["nodeName"] == name.as_str());
        pods
    }

    fn doom_pods_on(&mut self, node: u64, which: impl Fn(&Value) -> bool) {
        for pod in self.pods_on(node).iter().filter(|pod| which(pod)) {
            self.fates.doom(uid(pod));
        }
    }

    fn taint(&mut self, node: u64) {
        let taints = json!([{"key": "example.com/maintenance", "effect": "NoExecute"}]);
        if cluster::patch_node(self.world(), node, json!({"spec": {"taints": taints}})) {
            self.doom_pods_on(node, |pod| !tolerates(pod));
        }
    }

    fn untaint(&mut self, node: u64) {
        self.lifted.insert(node, self.now());
        cluster::patch_node(self.world(), node, json!({"spec": {"taints": null}}));
    }

    fn remove_node(&mut self, node: u64) {
        if cluster::remove_node(self.world(), node) {
            // Its taints go with it.
            self.lifted.insert(node, self.now());
            self.doom_pods_on(node, |_| true);
        }
    }

    fn create_node(&mut self, node: u64) {
        if cluster::create_node(self.world(), node) {
            self.kubelets.silent.remove(&cluster::node_name(node));
            self.back.insert(node, self.now());
            self.lifted.insert(node, self.now());
        }
    }

    fn silence(&mut self, node: u64) {
        self.kubelets.silent.insert(cluster::node_name(node));
        self.doom_pods_on(node, |_| true);
    }

    fn resume(&mut self, node: u64) {
        if self.kubelets.silent.remove(&cluster::node_name(node)) {
            self.back.insert(node, self.now());
        }
    }

    /// One API server is gone for good. The first stays.
    fn drop_lease(&mut self, server: u64) {
        let kind = ("coordination.k8s.io/v1", "Lease");
        let name = format!("server-{server}");
        let options = davit_sim::model::DeleteOptions::default();
        self.world().with_model(|model, now| {
            // It may be gone already.
            let _ = direct::delete(model, now, kind, "kube-system", &name, &options);
        });
    }

    fn crash(&mut self, downtime: Duration) {
        self.forgot = true;
        self.host.crash();
        self.pass(downtime);
        self.start();
    }

    fn heal(&mut self) {
        self.world().faults().clear();
        self.world().conditions = Conditions::default();
        self.host.trap = 0.0;
        self.host.crash = 0.0;
    }

    /// Heals everything and waits until nothing happens any more. Returns
    /// whether that came.
    fn calm(&mut self) -> bool {
        self.world().note(format_args!("CALM"));
        self.heal();
        for node in 0..NODES {
            self.resume(node);
        }
        self.host.lead(true);
        self.operators.calm(&mut self.host);
        self.declare();
        let deadline = self.now().after(LONGEST_CALM);
        let mut before = None;
        // Long enough for every timer of the guests.
        self.pass(CAUGHT_UP);
        for _ in 0..MOST_ATTENTION {
            if !self.operators.attend(&mut self.host) {
                break;
            }
            self.declare();
            self.pass(ATTENTION);
        }
        while self.now() < deadline {
            let writes = self.host.world.writes().len();
            if before == Some(writes) {
                return true;
            }
            before = Some(writes);
            self.pass(QUIET);
        }
        false
    }

    fn problems(&mut self) -> Vec<String> {
        let statuses = self.operators.problems(&mut self.host);
        let world = &self.host.world;
        let mut objects = cluster::list(world, "Pod");
        objects.extend(cluster::list(world, "ConfigMap"));
        let nodes = cluster::list(world, "Node");
        let mut problems = world.violations().to_vec();
        problems.extend(self.fates.missing(&objects));
        problems.extend(left_over(&objects, &nodes));
        problems.extend(self.stale_versions());
        problems.extend(self.deleted_twice());
        problems.extend(statuses);
        problems
    }

    /// Storage versions that name an API server without a lease, or lack one
    /// that has its lease.
    fn stale_versions(&self) -> Vec<String> {
        let model = self.host.world.model();
        let leases = direct::list(model, "coordination.k8s.io/v1", "Lease", "kube-system");
        let leases = leases.unwrap_or_default();
        let is_there = |server: &String| {
            let mut names = leases.iter().map(|lease| text(lease, "/metadata/name"));
            names.any(|name| name == server)
        };
        let mut problems = Vec::new();
        for resource in 0..3_u64 {
            let name = format!("example.com.r{resource}");
            let api = "internal.apiserver.k8s.io/v1alpha1";
            let version = direct::get(model, api, "StorageVersion", "", &name);
            let entries = version.map(|version| version["status"]["storageVersions"].clone());
            let entries = entries.unwrap_or_default();
            let named = entries.as_array().into_iter().flatten();
            let mut named: Vec<String> = named
                .map(|entry| text(entry, "/apiServerID").to_owned())
                .collect();
            named.sort();
            let wanted = (0..=resource + 1).map(|server| format!("server-{server}"));
            let wanted: Vec<String> = wanted.filter(is_there).collect();
            if named != wanted {
                problems.push(format!("{name} names {named:?}, not {wanted:?}"));
            }
        }
        problems
    }

    /// Maps, which only the garbage collector deletes besides the story: once,
    /// unless the host forgot that it did.
    fn deleted_twice(&self) -> Vec<String> {
        if self.forgot {
            return Vec::new();
        }
        let deletions = self.host.world.model().deletions();
        let counts = deletions.filter_map(|(uid, steps)| {
            let requested = |kind: DeletionKind| kind == DeletionKind::Requested;
            let requests = steps.iter().filter(|step| requested(step.kind)).count();
            let own = self.deleted.get(uid)?;
            (requests > own + 1).then(|| format!("{uid} was deleted {requests} times"))
        });
        counts.collect()
    }
}

/// Whether an object waits until its dependents have been orphaned. Another deletion
/// would end the waiting, and the dependents could be collected: which of the two comes
/// first is nothing that a story knows.
fn is_orphaning(object: &Value) -> bool {
    let finalizers = object["metadata"]["finalizers"].as_array();
    let mut finalizers = finalizers.into_iter().flatten();
    finalizers.any(|finalizer| finalizer == "orphan")
}
