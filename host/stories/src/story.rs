//! One story: its steps, a rest, and the checks of the cluster at the end.

#[cfg(test)]
mod backtests;
mod changes;
mod counts;
mod ending;
mod hosts;
mod objects;
mod replays;

use std::collections::BTreeMap;
use std::time::Duration;

use davit_core::time::Instant;
use davit_sim::Time;
use davit_sim::fault::{Action, Fault, FaultTiming, Match, Refusal};
use davit_simulation::{Conditions, Dice, Simulation, StopReason, World};

use crate::cluster::{self, Kubelets};
#[cfg(test)]
use crate::event::Bug;
use crate::event::{CONTROLLERS, Event, NODES};
use crate::fate::Fates;
use crate::guests;
use crate::operators::{Operators, account};
use crate::panics;
use crate::plot::Plot;
use crate::problem::Problem;
use crate::step::Step;
use crate::undo::Undo;
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
/// How often operators react to the statuses at most, in one rest.
const MOST_ATTENTION: usize = 4;
/// How long the host takes at most to follow such a reaction.
const ATTENTION: Duration = Duration::from_secs(45);
/// How often it is checked whether there is still something to wait for.
const MOMENT: Duration = Duration::from_secs(5);
/// Longer than a status says that a deletion is deferred which nobody decides any more.
const LONGEST_DEFERRAL: Duration = Duration::from_mins(21);
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
    /// How often the story deleted each object, besides pods; and how often its deletion had been
    /// requested at the last rest.
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
            operators: Operators::new(&mut dice, plot.elects, Undo::draw(plot.seed)),
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
        let expected = story.operators.undo.expected();
        // Copies are entries of a journal.
        if plot.replays || !story.operators.undo.is_empty() {
            story.record();
        }
        story.world().expect_copies(expected);
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
            let conditions = self.simulation.world.conditions_mut();
            self.operators.undo.disturb(conditions);
            self.pass(step.pause);
        }
        self.world().note(format_args!("END"));
        let mut problems = self.hurry();
        self.rest(ROLLED_OUT);
        let rests = self.comes_to_rest();
        problems.extend(self.unsent_events());
        self.pass_while(LONGEST_DEFERRAL, |story| {
            story.operators.undo.is_deferred(&story.simulation)
        });
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
                self.remember_deletions();
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
}

#[cfg(test)]
mod tests;
