//! One story: its steps, a rest, and the checks of the cluster at the end.

mod changes;
mod counts;
mod hosts;
mod objects;
mod replays;

use std::collections::BTreeMap;
use std::time::Duration;

use davit_core::time::Instant;
use davit_sim::fault::{Action, Fault, FaultTiming, Match, Refusal};
use davit_sim::model::DeletionKind;
use davit_sim::{Time, direct};
use davit_simulation::{Conditions, Dice, Simulation, StopReason, World};

use crate::cluster::{self, Kubelets};
#[cfg(test)]
use crate::event::Bug;
use crate::event::{CONTROLLERS, Event, NODES};
use crate::fate::{Fates, left_over, terminates, text};
use crate::guests;
use crate::operators::{Operators, account};
use crate::panics;
use crate::plot::Plot;
use crate::problem::Problem;
use crate::step::Step;
pub(crate) use counts::Counts;
use replays::Replays;

/// Longer than the host trusts a silent watch: after it, every cache has caught up.
const CAUGHT_UP: Duration = Duration::from_secs(200);
/// The same for the steps after the rest, when no watch is silent or starved.
const ATTENTIVE: Duration = Duration::from_secs(5);
/// Longer than an item waits after the server refused a write as invalid, or for a kind
/// that was not served.
const PAUSED: Duration = Duration::from_secs(330);
/// How long the host knows at most what the server served before: more than the period of
/// discovery.
const DISCOVERED: Duration = Duration::from_secs(35);
/// The cluster is at rest when nobody writes for this time.
const QUIET: Duration = Duration::from_secs(90);
/// How often operators react to the statuses at most, in one rest.
const MOST_ATTENTION: usize = 4;
/// How long the host takes at most to follow such a reaction.
const ATTENTION: Duration = Duration::from_secs(45);
/// How often it is checked whether there is still something to wait for.
const MOMENT: Duration = Duration::from_secs(5);
/// How long the cluster may take to come to rest.
const LONGEST_CALM: Duration = Duration::from_hours(1);
/// How long a healthy host may take to send its events: longer than it retries one.
const LONGEST_EVENTS: Duration = Duration::from_secs(300);
/// How long a healthy host may take to finish its work: less than an expectation lasts.
const PROMPT: Duration = Duration::from_secs(25);
/// How long operators reset guardrails that trip again and again.
const LONGEST_RESETS: Duration = Duration::from_secs(300);
/// The period of the kubelets.
const HEARTBEAT: Duration = Duration::from_secs(8);
/// The same while the cluster rests, to save time: the grace period of nodes is longer.
const SLOW_HEARTBEAT: Duration = Duration::from_secs(20);
/// How long operators wait for the rollouts of a healthy host to end.
const ROLLED_OUT: Duration = Duration::from_secs(30);
/// The reminder for the kubelets.
const KUBELETS: u64 = 1;
/// By how many parts per million the clock of a host is too fast or too slow at most.
const MOST_DRIFT: u64 = 50_000;

/// The end of a story.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    /// What is wrong; empty if the story passes.
    pub(crate) problems: Vec<Problem>,
    /// The hash of the trace.
    pub(crate) hash: u64,
    /// The lines of the trace, if they were kept.
    pub(crate) trace: Vec<String>,
    /// The number of executed plans.
    pub(crate) executed: usize,
    /// What happened, and how often.
    pub(crate) counts: Counts,
}

struct Story {
    simulation: Simulation,
    operators: Operators,
    heartbeat: Duration,
    /// How long every cache takes at most to catch up without faults.
    catches_up: Duration,
    /// Whether items may wait for [`PAUSED`].
    has_pauses: bool,
    /// When the host knows again what the server serves, and no item waits for a kind.
    discovered_at: Instant,
    kubelets: Kubelets,
    fates: Fates,
    /// When each node lost its taint. Until every cache has observed that, a new pod may
    /// be evicted because of the taint, as kube-controller-manager does.
    lifted: BTreeMap<u64, Instant>,
    /// When each node's kubelet last returned. Until the host knows that, the node counts
    /// as unresponsive, for new pods too.
    back: BTreeMap<u64, Instant>,
    /// Every pod that was created, by uid. The host may evict one that it does not know to
    /// be gone: that harms nothing.
    pods: BTreeMap<String, serde_json::Value>,
    /// When each pod has tolerated a taint of its node for long enough, at the earliest.
    tolerated: BTreeMap<String, Instant>,
    /// How often the story deleted each object, besides pods.
    deleted: BTreeMap<String, usize>,
    /// Whether the host may request a deletion twice, because it forgot the first request.
    forgot: bool,
    /// Draws to which host something happens.
    choices: Dice,
}

/// Runs a story. If it panics, that is its first problem, and its trace ends there.
pub(crate) fn run(plot: &Plot, keep_trace: bool) -> Ending {
    let mut story = None;
    let mut replays = Replays::default();
    let played = panics::catch(|| -> Result<Vec<Problem>, String> {
        let started = std::time::Instant::now();
        let story = story.insert(Story::new(plot, keep_trace)?);
        let mut problems = story.play(&plot.steps);
        replays.stories = started.elapsed();
        if plot.replays {
            let replayed = replays.replay(&story.simulation).into_iter();
            problems.extend(replayed.map(Problem::from));
        }
        Ok(problems)
    });
    let problems = match played {
        Ok(Ok(problems)) => problems,
        Ok(Err(error)) => vec![Problem::from(error)],
        Err(panic) => {
            let mut problems = vec![Problem::from(panic.clone())];
            if let Some(story) = &mut story {
                story.world().note(format_args!("PANIC: {panic}"));
                let violations = story.world().violations().iter().cloned();
                problems.extend(violations.map(Problem::from));
            }
            problems
        }
    };
    let mut counts = Counts::default();
    counts.steps(&plot.steps);
    counts.replays = replays;
    let Some(story) = story else {
        return Ending {
            problems,
            ..Ending::default()
        };
    };
    counts.simulation(&story.simulation);
    let trace = story.simulation.world.trace();
    Ending {
        problems,
        hash: trace.hash(),
        trace: trace.lines().to_vec(),
        executed: story.simulation.executed().len(),
        counts,
    }
}

impl Story {
    /// A story that has not started.
    fn new(plot: &Plot, keep_trace: bool) -> Result<Self, String> {
        let start = Time::from_unix(1_780_000_000);
        let mut dice = Dice::new(plot.seed ^ 0x5bd1_e995);
        let model = cluster::model(plot.seed, start)?;
        let mut story = Self {
            operators: Operators::new(&mut dice, plot.elects),
            simulation: Simulation::new(
                World::new(model, start, dice.bits(), keep_trace),
                guests::describe,
            ),
            heartbeat: HEARTBEAT,
            catches_up: CAUGHT_UP,
            has_pauses: false,
            discovered_at: Instant::ZERO,
            kubelets: Kubelets::default(),
            fates: Fates::default(),
            lifted: BTreeMap::new(),
            back: BTreeMap::new(),
            pods: BTreeMap::new(),
            tolerated: BTreeMap::new(),
            deleted: BTreeMap::new(),
            // Another host does not know the requests of the former leader.
            forgot: plot.hosts > 1,
            choices: Dice::new(!plot.seed),
        };
        if plot.elects {
            story.simulation.elect();
        }
        for _ in 1..plot.hosts {
            let drift = i32::try_from(story.choices.below(2 * MOST_DRIFT)).unwrap_or(0);
            let most = i32::try_from(MOST_DRIFT).unwrap_or(0);
            story.simulation.add_host(drift - most);
        }
        if plot.replays {
            story.record();
        }
        Ok(story)
    }

    /// Runs the steps, a rest and the checks. Returns what is wrong.
    fn play(&mut self, steps: &[Step]) -> Vec<Problem> {
        self.start_hosts();
        for (number, step) in steps.iter().enumerate() {
            if number == steps.len() / 2 {
                self.add_keyframes();
            }
            let world = self.world();
            world.note(format_args!("STEP {}", step.event));
            self.step(&step.event);
            self.pass(step.pause);
        }
        self.world().note(format_args!("END"));
        let mut problems = self.hurry();
        self.rest(ROLLED_OUT);
        let rests = self.comes_to_rest();
        problems.extend(self.unsent_events());
        problems.extend(self.problems());
        if !rests {
            problems.push("controllers still write an hour after the last fault".to_owned());
        }
        problems.into_iter().map(Problem::from).collect()
    }

    /// Fills the cluster, and starts the hosts.
    fn start_hosts(&mut self) {
        if self.has_replicas() {
            let reminders = self.declaration_reminders();
            self.world().remind_of_statuses(reminders);
        }
        cluster::fill(self.world());
        self.kubelets.work(&mut self.simulation.world);
        let at = Instant::ZERO.after(HEARTBEAT);
        self.world().remind_owner(at, KUBELETS);
        self.operators.settle_in(&mut self.simulation);
        for host in self.hosts() {
            self.start(host);
        }
        self.pass(Duration::from_secs(2));
    }

    fn world(&mut self) -> &mut World {
        &mut self.simulation.world
    }

    fn now(&self) -> Instant {
        self.simulation.world.instant()
    }

    /// Lets time pass.
    fn pass(&mut self, time: Duration) {
        let until = self.now().after(time);
        loop {
            match self.simulation.run(until) {
                StopReason::Time => return,
                StopReason::Reminder(what) if self.reminded(what) => {}
                StopReason::Reminder(_) => {
                    self.kubelets.work(&mut self.simulation.world);
                    let at = self.now().after(self.heartbeat);
                    self.world().remind_owner(at, KUBELETS);
                }
                StopReason::Crashed(host) => {
                    self.forgot = true;
                    self.simulation.host_mut(host).crash = 0.0;
                    self.start(host);
                }
            }
            for host in self.hosts() {
                let host = self.simulation.host_mut(host);
                host.take_reports();
                while host.take_answer().is_some() {}
            }
        }
    }

    fn step(&mut self, event: &Event) {
        match event {
            Event::Create(create) => self.create(create),
            Event::Delete(name, policy) => self.delete(*name, policy),
            Event::Adopt(name, owner, blocks) => self.adopt(*name, *owner, *blocks),
            Event::Disown(name) => self.disown(*name),
            Event::Finish(pod) => self.finish(*pod),
            Event::Replace(name) => self.replace(*name),
            Event::Ambush(delay) => self.ambush(*delay),
            Event::Orphan(name) => self.orphan(*name),
            Event::Gap(names) => self.gap(names),
            Event::Serve(served) => {
                self.expect_discovery();
                cluster::serve_widgets(self.world(), *served);
            }
            Event::Taint(node) => self.taint(*node),
            Event::Untaint(node) => self.untaint(*node),
            Event::RemoveNode(node) => self.remove_node(*node),
            Event::CreateNode(node) => self.create_node(*node),
            Event::Silence(node) => self.silence(*node),
            Event::Resume(node) => self.resume(*node),
            Event::TakeOut(node) => self.take_out(*node),
            Event::DropLease(server) => self.drop_lease(*server),
            Event::Disturb(resource, fault) => self.world().disturb(resource, *fault),
            Event::Break(verb, action) => {
                self.has_pauses |= *action == Action::Refuse(Refusal::Invalid);
                let fault = Fault {
                    matches: Match::new(verb, ""),
                    when: FaultTiming::Chance(0.3),
                    action: action.clone(),
                };
                self.world().faults().add(fault);
            }
            Event::Network { .. }
            | Event::Leases(_)
            | Event::Records { .. }
            | Event::Unlist(_)
            | Event::Unreach(_) => self.degrade(event),
            Event::Heal => self.heal(),
            Event::Rest => {
                // Long enough for every timer of the guests.
                self.rest(if self.has_pauses { PAUSED } else { CAUGHT_UP });
                self.heartbeat = HEARTBEAT;
                self.catches_up = ATTENTIVE;
            }
            Event::Nothing => {}
            Event::Trap
            | Event::Crash(_)
            | Event::CrashSoon
            | Event::Reboot(_)
            | Event::WallClock(_)
            | Event::Replica(..) => self.happens_to_host(event),
            Event::Authorize(controller, allowed) => {
                if let Some(name) = CONTROLLERS.get(*controller) {
                    self.forgot = true;
                    self.world().authorize(&account(name), *allowed);
                }
            }
            Event::AllowImpersonation(controller, allowed) => {
                if let Some(name) = CONTROLLERS.get(*controller) {
                    self.forgot = true;
                    self.world().allow_impersonation(&account(name), *allowed);
                }
            }
            Event::Operate(controller, action) => {
                self.operators
                    .act(*controller, action, &mut self.simulation);
                self.declare();
            }
            #[cfg(test)]
            Event::Bug(Bug::Panic) => panic!("a bug of the host"),
            #[cfg(test)]
            Event::Bug(Bug::Violation) => self.world().violated("a bug of the host".to_owned()),
        }
    }

    /// The network, the records or discovery work less well. Other steps do nothing here.
    fn degrade(&mut self, event: &Event) {
        match event {
            Event::Network {
                starve,
                unreachable,
                hold_up,
                no_discovery,
            } => {
                self.forgot |= *hold_up > 0.0;
                self.expect_discovery();
                let conditions = self.world().conditions_mut();
                conditions.starve = *starve;
                conditions.unreachable = *unreachable;
                conditions.hold_up = *hold_up;
                conditions.no_discovery = *no_discovery;
            }
            Event::Leases(answered) => {
                // A request whose term ends has no answer.
                self.forgot |= self.simulation.elects();
                self.world().conditions_mut().no_leases = !answered;
            }
            Event::Records {
                fail,
                lose,
                late,
                unreadable,
                no_loads,
            } => {
                let conditions = self.world().conditions_mut();
                conditions.no_records = *fail;
                conditions.lost_records = *lose;
                conditions.late_records = *late;
                conditions.unreadable_records = *unreadable;
                conditions.no_loads = *no_loads;
            }
            Event::Unlist(plural) => {
                let unlisted = &mut self.world().conditions_mut().unlisted;
                unlisted.push((*plural).to_owned());
            }
            Event::Unreach(version) => {
                let unreached = &mut self.world().conditions_mut().unreached;
                unreached.push((*version).to_owned());
            }
            _ => {}
        }
    }

    /// What discovery answers may change: until when the host knows only what it answered
    /// before.
    fn expect_discovery(&mut self) {
        let now = self.now();
        let conditions = self.simulation.world.conditions();
        let lacks = !conditions.unlisted.is_empty()
            || !conditions.unreached.is_empty()
            || !cluster::serves_widgets(&self.simulation.world);
        // While discovery fails, the host does not learn that something is served again.
        let may_not_know = conditions.no_discovery > 0.0;
        if lacks || (may_not_know && self.discovered_at > now) {
            self.discovered_at = now.after(PAUSED);
        } else if may_not_know {
            self.discovered_at = now.after(DISCOVERED);
        }
    }

    fn heal(&mut self) {
        self.expect_discovery();
        self.world().faults().clear();
        *self.world().conditions_mut() = Conditions::default();
        self.world().authorize_all();
        cluster::serve_widgets(self.world(), true);
        for host in self.hosts() {
            let host = self.simulation.host_mut(host);
            (host.trap, host.crash) = (0.0, 0.0);
        }
        self.connect();
    }

    /// Ends all faults and the silence of nodes.
    fn repair(&mut self) {
        self.heal();
        for node in 0..NODES {
            self.resume(node);
        }
    }

    /// Ends all faults, limits and rollouts, and lets every cache catch up within this
    /// time.
    fn rest(&mut self, time: Duration) {
        self.repair();
        self.operators.calm(&mut self.simulation);
        self.declare();
        self.heartbeat = SLOW_HEARTBEAT;
        self.pass(time);
        for _ in 0..MOST_ATTENTION {
            if !self.operators.react(&mut self.simulation) {
                break;
            }
            self.declare();
            self.pass_while(ATTENTION, |story| {
                story.operators.has_open(&story.simulation)
            });
        }
    }

    /// Lets time pass while this holds, at most so much of it.
    fn pass_while(&mut self, most: Duration, holds: impl Fn(&Self) -> bool) {
        let deadline = self.now().after(most);
        while self.now() < deadline && holds(self) {
            self.pass(MOMENT);
        }
    }

    /// Ends all faults; limits and rollouts stay. A healthy host has to finish its work
    /// soon: before an expectation lapses, and before an item is due that waits for
    /// something else. Returns the work that is left.
    fn hurry(&mut self) -> Vec<String> {
        self.repair();
        self.operators.enforce(&mut self.simulation);
        self.declare();
        self.heartbeat = SLOW_HEARTBEAT;
        self.pass(self.discovered_at.since(self.now()));
        self.heartbeat = HEARTBEAT;
        let mut problems = self.elect();
        let mut since = self.now();
        let mut is_limited = false;
        let deadline = since.after(LONGEST_RESETS);
        while self.now().since(since) < PROMPT && self.now() < deadline {
            self.pass(Duration::from_secs(5));
            problems.extend(self.leaderless());
            if self.operators.reset(&mut self.simulation) {
                self.declare();
                since = self.now();
                is_limited = true;
            }
            // A kubelet waits for the pod's grace period.
            if cluster::list(&self.simulation.world, "Pod")
                .iter()
                .any(terminates)
            {
                since = self.now();
            }
        }
        if self.now() >= deadline && is_limited {
            // At one write a minute, some work takes longer.
            return problems;
        }
        for problem in self.left_over() {
            let time = PROMPT.as_secs();
            problems.push(format!("{problem} ({time} s after the last fault ended)"));
        }
        problems
    }

    /// Waits until nobody writes any more. Returns whether the cluster came to rest.
    fn comes_to_rest(&mut self) -> bool {
        let is_loud = |story: &Self| {
            let last = story.simulation.world.writes().last();
            last.is_some_and(|write| story.now().since(write.at) < QUIET)
        };
        self.pass_while(LONGEST_CALM, is_loud);
        !is_loud(self)
    }

    /// Waits until the hosts have sent their events. Each event is retried for two minutes.
    fn unsent_events(&mut self) -> Option<String> {
        self.pass_while(LONGEST_EVENTS, |story| {
            story.simulation.world.waiting_events() > 0
        });
        let waiting = self.simulation.world.waiting_events();
        (waiting > 0).then(|| {
            let time = LONGEST_EVENTS.as_secs();
            format!("{waiting} events still wait {time} s after the last write")
        })
    }

    /// Objects that the controllers should have deleted or changed.
    fn left_over(&self) -> Vec<String> {
        let world = &self.simulation.world;
        let mut problems = left_over(&cluster::list_all(world), &cluster::list(world, "Node"));
        problems.extend(self.stale_versions());
        problems.extend(self.ended_pods());
        problems
    }

    fn problems(&mut self) -> Vec<String> {
        let statuses = self.operators.problems(&mut self.simulation);
        self.world().check_events();
        let world = &self.simulation.world;
        let mut problems = world.violations().to_vec();
        problems.extend(self.fates.missing(&cluster::list_all(world)));
        problems.extend(self.left_over());
        problems.extend(self.deleted_twice());
        problems.extend(self.evicted_early());
        problems.extend(statuses);
        problems
    }

    /// Storage versions that name an API server without a lease, or lack one that has a
    /// lease.
    fn stale_versions(&self) -> Vec<String> {
        let model = self.simulation.world.model();
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
                problems.push(format!(
                    "the storage version {name} names the API servers {named:?} instead of \
                     {wanted:?}"
                ));
            }
        }
        problems
    }

    /// Objects that the garbage collector deleted more than once. Pods do not count,
    /// because other controllers delete them too.
    fn deleted_twice(&self) -> Vec<String> {
        if self.forgot {
            return Vec::new();
        }
        let deletions = self.simulation.world.model().deletions();
        let counts = deletions.filter_map(|(uid, steps)| {
            let requested = |kind: DeletionKind| kind == DeletionKind::Requested;
            let requests = steps.iter().filter(|step| requested(step.kind)).count();
            let own = self.deleted.get(uid)?;
            (requests > own + 1).then(|| {
                let allowed = own + 1;
                format!("DELETE was sent {requests} times for {uid}, and {allowed} are enough")
            })
        });
        counts.collect()
    }
}

#[cfg(test)]
mod tests;
