//! The steps of a story, as data: a failing story is shortened by dropping steps.

use std::fmt;
use std::time::Duration;

use davit_sim::fault::{self, Refusal, WatchFault};
use davit_simulation::Dice;

use crate::action::{self, Action};
use crate::replica::ReplicaEvent;

pub(crate) const NODES: u64 = 5;
pub(crate) const NAMES: u64 = 14;
/// So long after its kubelet fell silent, a node has lost its pods.
const UNRESPONSIVE: Duration = Duration::from_secs(150);
/// The steps of a story after the rest.
const LAST_STEPS: usize = 16;
/// The group and version of the widgets.
pub(crate) const WIDGETS_VERSION: &str = "example.com/v1";
/// The controllers of a story.
pub(crate) const CONTROLLERS: [&str; 5] = [
    "podgc",
    "garbage-collector",
    "taint-eviction",
    "storage-version-gc",
    "node-eviction",
];

/// One step, and how long the world runs after it.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) event: Event,
    pub(crate) pause: Duration,
}

/// What a step does. A step that does not apply (a name that is taken, a node that does
/// not exist) does nothing. A step for an object whose name is free applies to the next
/// object of its kind.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Create(Create),
    Delete(Name, &'static str),
    /// Gives an object another owner, which blocks the owner's deletion or does not.
    Adopt(Name, Name, bool),
    /// Removes an object's first owner reference.
    Disown(Name),
    /// Ends the containers of a pod.
    Finish(u64),
    /// Removes an object and creates another one under its name.
    Replace(Name),
    /// Replaces the target of the next plan, so long after the plan was admitted: before
    /// one of its requests reaches the server.
    Ambush(Duration),
    /// Ends all faults, waits until every cache has caught up, and then deletes the object
    /// with policy `Orphan`: the garbage collector orphans only dependents that it has
    /// observed.
    Orphan(Name),
    /// Breaks the watches, removes objects, and compacts the history before the watches
    /// are opened again.
    Gap(Vec<Name>),
    /// Whether the definition of the widgets serves its version.
    Serve(bool),
    Taint(u64),
    Untaint(u64),
    RemoveNode(u64),
    CreateNode(u64),
    Silence(u64),
    Resume(u64),
    /// An operator says that a node's machine is off.
    TakeOut(u64),
    DropLease(u64),
    Disturb(&'static str, WatchFault),
    Break(&'static str, fault::Action),
    Network {
        starve: f64,
        unreachable: f64,
        hold_up: f64,
        no_discovery: f64,
    },
    /// How likely reads and writes of records, and loads of revisions, fail.
    Records {
        fail: f64,
        lose: f64,
        late: f64,
        unreadable: f64,
        no_loads: f64,
    },
    /// Discovery cannot reach a group version.
    Unreach(&'static str),
    /// Discovery lacks a resource from now on.
    Unlist(&'static str),
    /// Ends all faults.
    Heal,
    /// Ends all faults, limits and rollouts, and waits until every cache has caught up.
    Rest,
    Nothing,
    /// Some calls into guests trap.
    Trap,
    /// The host crashes, and starts again after this time.
    Crash(Duration),
    /// The host crashes after one of its next effects.
    CrashSoon,
    /// The host's wall clock jumps by so many milliseconds.
    WallClock(i64),
    /// The host gains or loses leadership.
    Lead(bool),
    /// The host crashes, and starts again on a machine that has just started. Says
    /// whether the module cache is still there.
    Reboot(bool),
    /// The account of a controller, an index of [`CONTROLLERS`], has its permissions, or
    /// loses them all.
    Authorize(usize, bool),
    /// The host may impersonate the account of a controller, an index of
    /// [`CONTROLLERS`], or may not.
    AllowImpersonation(usize, bool),
    /// An operator changes a controller: an index of [`CONTROLLERS`].
    Operate(usize, Action),
    /// Something happens to the host of this number.
    Replica(u64, ReplicaEvent),
}

/// The faults of requests. Rarely, the server refuses a request as invalid instead.
const FAULTS: [fault::Action; 9] = [
    fault::Action::Refuse(Refusal::Conflict),
    fault::Action::Refuse(Refusal::TooManyRequests(1)),
    fault::Action::Refuse(Refusal::TooManyRequests(5)),
    fault::Action::Refuse(Refusal::InternalError),
    fault::Action::Refuse(Refusal::Unavailable),
    fault::Action::CloseBefore,
    fault::Action::CloseAfter,
    fault::Action::CutBody(10),
    fault::Action::Delay(Duration::from_secs(3)),
];

/// The kinds of objects that a story creates and deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Pod,
    ConfigMap,
    /// A custom resource.
    Widget,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Pod, Self::ConfigMap, Self::Widget];

    pub(crate) const fn api_version(self) -> &'static str {
        match self {
            Self::Pod | Self::ConfigMap => "v1",
            Self::Widget => WIDGETS_VERSION,
        }
    }

    /// As objects carry it.
    pub(crate) const fn kind(self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::ConfigMap => "ConfigMap",
            Self::Widget => "Widget",
        }
    }

    /// As URLs carry it.
    pub(crate) const fn plural(self) -> &'static str {
        match self {
            Self::Pod => "pods",
            Self::ConfigMap => "configmaps",
            Self::Widget => "widgets",
        }
    }
}

/// Names an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) kind: Kind,
    pub(crate) number: u64,
}

impl Name {
    /// The inverse of [`fmt::Display`].
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (prefix, number) = text.split_once('-')?;
        let kind = match prefix {
            "pod" => Kind::Pod,
            "map" => Kind::ConfigMap,
            "widget" => Kind::Widget,
            _ => return None,
        };
        let number = number.parse().ok()?;
        Some(Self { kind, number })
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = match self.kind {
            Kind::Pod => "pod",
            Kind::ConfigMap => "map",
            Kind::Widget => "widget",
        };
        write!(f, "{prefix}-{}", self.number)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (then {:?})", self.event, self.pause)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(create) => write!(f, "{create}"),
            Self::Delete(name, policy) => write!(f, "delete {name}, propagation {policy}"),
            Self::Adopt(name, owner, blocks) => {
                write!(f, "add the owner {owner} to {name}{}", blocking(*blocks))
            }
            Self::Disown(name) => write!(f, "remove the first owner of {name}"),
            Self::Finish(pod) => write!(f, "end the containers of pod-{pod}"),
            Self::Replace(name) => write!(f, "replace {name} by another object of its name"),
            Self::Ambush(delay) => {
                write!(
                    f,
                    "replace the target of the next plan, {delay:?} after its start"
                )
            }
            Self::Orphan(name) => write!(
                f,
                "end all faults, wait for every cache, and delete {name}, propagation Orphan"
            ),
            Self::Gap(names) => {
                let names: Vec<String> = names.iter().map(ToString::to_string).collect();
                let names = names.join(", ");
                write!(
                    f,
                    "break all watches, remove {names}, and compact the history"
                )
            }
            Self::Serve(true) => f.write_str("serve widgets"),
            Self::Serve(false) => f.write_str("stop serving widgets"),
            Self::Taint(node) => write!(f, "add a NoExecute taint to node-{node}"),
            Self::Untaint(node) => write!(f, "remove the taint of node-{node}"),
            Self::RemoveNode(node) => write!(f, "delete node-{node}"),
            Self::CreateNode(node) => write!(f, "create node-{node}"),
            Self::Silence(node) => write!(f, "stop the kubelet of node-{node}"),
            Self::Resume(node) => write!(f, "start the kubelet of node-{node} again"),
            Self::TakeOut(node) => write!(f, "add the out-of-service taint to node-{node}"),
            Self::DropLease(server) => write!(f, "delete the lease of API server server-{server}"),
            Self::Disturb("", fault) => write!(f, "fault of all watches: {fault:?}"),
            Self::Disturb(plural, fault) => write!(f, "fault of watches of {plural}: {fault:?}"),
            Self::Break(verb, fault) => write!(f, "fault of some {verb} requests: {fault:?}"),
            Self::Network {
                starve,
                unreachable,
                hold_up,
                no_discovery,
            } => shares(
                f,
                "network",
                &[
                    (*starve, "of watch events take seconds"),
                    (*unreachable, "of requests get no connection"),
                    (*hold_up, "of requests arrive after their timeout"),
                    (*no_discovery, "of discoveries fail"),
                ],
            ),
            Self::Records {
                fail,
                lose,
                late,
                unreadable,
                no_loads,
            } => shares(
                f,
                "records and loads",
                &[
                    (*fail, "of record writes fail"),
                    (*lose, "of record writes succeed without an answer"),
                    (*late, "of record requests take seconds"),
                    (*unreadable, "of record reads fail"),
                    (*no_loads, "of loads fail"),
                ],
            ),
            Self::Unreach(version) => write!(f, "discovery cannot reach {version}"),
            Self::Unlist(plural) => write!(f, "discovery lacks {plural}"),
            Self::Heal => f.write_str("end all faults"),
            Self::Rest => {
                f.write_str("end all faults, limits and rollouts, and wait for every cache")
            }
            Self::Nothing => f.write_str("do nothing"),
            Self::Trap => f.write_str("some calls into guests trap"),
            Self::Crash(downtime) => {
                write!(f, "crash the host, and start it again after {downtime:?}")
            }
            Self::CrashSoon => f.write_str("crash the host after one of its next effects"),
            Self::WallClock(millis) => write!(f, "move the host's wall clock by {millis} ms"),
            Self::Lead(true) => f.write_str("the host gains leadership"),
            Self::Lead(false) => f.write_str("the host loses leadership"),
            Self::Reboot(true) => f.write_str("reboot the host's machine"),
            Self::Reboot(false) => f.write_str("start the host on a machine without modules"),
            Self::Authorize(of, allowed) => f.write_str(&permissions(*of, *allowed)),
            Self::AllowImpersonation(of, allowed) => f.write_str(&impersonation(*of, *allowed)),
            Self::Operate(of, action) => write!(f, "operator of {}: {action}", name_of(*of)),
            Self::Replica(host, event) => write!(f, "host {host} {event}"),
        }
    }
}

/// Writes how likely each fault is.
fn shares(f: &mut fmt::Formatter<'_>, of: &str, faults: &[(f64, &str)]) -> fmt::Result {
    let likely = faults.iter().filter(|(share, _)| *share > 0.0);
    let likely = likely.map(|(share, what)| format!("{:.0} % {what}", share * 100.0));
    let likely: Vec<String> = likely.collect();
    if likely.is_empty() {
        return write!(f, "{of}: no faults");
    }
    write!(f, "{of}: {}", likely.join(", "))
}

fn blocking(blocks: bool) -> &'static str {
    if blocks { " (blockOwnerDeletion)" } else { "" }
}

impl fmt::Display for Create {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "create {}", self.name)?;
        if let Some(pod) = self.pod {
            write!(f, " on node-{}, grace period {} s", pod.node, pod.grace)?;
            match pod.tolerates {
                Tolerates::Never => {}
                Tolerates::For(seconds) => write!(f, ", tolerates all taints for {seconds} s")?,
                Tolerates::Forever => f.write_str(", tolerates all taints")?,
            }
        }
        for (owner, blocks) in &self.owners {
            write!(f, ", owner {owner}{}", blocking(*blocks))?;
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Create {
    pub(crate) name: Name,
    /// The owners, and whether the object blocks their deletion.
    pub(crate) owners: Vec<(Name, bool)>,
    /// The fields of a pod.
    pub(crate) pod: Option<NewPod>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct NewPod {
    pub(crate) node: u64,
    pub(crate) grace: u64,
    pub(crate) tolerates: Tolerates,
}

/// Whether a pod tolerates taints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tolerates {
    Never,
    /// So many seconds.
    For(u64),
    Forever,
}

/// Draws a story: `steps` steps with any fault, a rest, and some steps after which a
/// healthy host has to finish its work soon.
pub(crate) fn draw(dice: &mut Dice, steps: usize) -> Vec<Step> {
    let mut drawn: Vec<Step> = (0..steps).map(|_| step(dice, event)).collect();
    drawn.push(step(dice, |_| Event::Rest));
    drawn.extend((0..LAST_STEPS).map(|_| step(dice, last_event)));
    drawn
}

fn step(dice: &mut Dice, event: impl Fn(&mut Dice) -> Event) -> Step {
    let event = event(dice);
    let pause = if matches!(event, Event::Silence(_)) && dice.chance(0.4) {
        UNRESPONSIVE
    } else {
        pause(dice)
    };
    Step { event, pause }
}

/// Draws the time after a step: mostly long enough for the controllers to act.
fn pause(dice: &mut Dice) -> Duration {
    if dice.chance(0.4) {
        Duration::from_micros(dice.below(25_000))
    } else {
        Duration::from_millis(dice.below(1500))
    }
}

fn event(dice: &mut Dice) -> Event {
    let controller = |dice: &mut Dice| usize::try_from(dice.below(5)).unwrap_or(0);
    match dice.below(158) {
        0..42 => Event::Create(create(dice)),
        42..48 => Event::Replace(name(dice)),
        48..53 => Event::Delete(name(dice), "Background"),
        53..57 => Event::Delete(name(dice), "Foreground"),
        57..58 if dice.chance(0.25) => Event::Orphan(owner(dice)),
        58..61 => Event::Taint(dice.below(NODES)),
        61..63 => Event::Untaint(dice.below(NODES)),
        63..64 => Event::RemoveNode(dice.below(NODES)),
        64..66 => Event::CreateNode(dice.below(NODES)),
        66..67 => Event::Silence(dice.below(NODES)),
        67..70 => Event::Resume(dice.below(NODES)),
        70..72 => Event::DropLease(1 + dice.below(3)),
        72..79 => disturb(dice),
        79..84 => broken(dice),
        84..86 => Event::Network {
            starve: some(dice, 0.3),
            unreachable: some(dice, 0.2),
            hold_up: some(dice, 0.05),
            no_discovery: some(dice, 0.5),
        },
        86..87 => Event::Unreach(pick(
            dice,
            &["apps/v1", "coordination.k8s.io/v1", WIDGETS_VERSION],
        )),
        87..91 => Event::Heal,
        91..93 => Event::Trap,
        93..95 => Event::Crash(Duration::from_millis(dice.below(20_000))),
        95..97 => Event::CrashSoon,
        97..98 => {
            let millis = i64::try_from(dice.below(7_200_000)).unwrap_or(0);
            Event::WallClock(millis - 3_600_000)
        }
        98..101 => Event::Lead(dice.chance(0.6)),
        101..102 => Event::Reboot(dice.chance(0.7)),
        102..104 => Event::Records {
            fail: some(dice, 0.4),
            lose: some(dice, 0.3),
            late: some(dice, 0.4),
            unreadable: some(dice, 0.3),
            no_loads: some(dice, 0.3),
        },
        104..105 => Event::Unlist(pick(
            dice,
            &["pods", "nodes", "configmaps", "leases", "widgets"],
        )),
        105..126 => Event::Operate(controller(dice), action::draw(dice)),
        126..129 => ambush(dice),
        129..131 => Event::Gap((0..=dice.below(2)).map(|_| name(dice)).collect()),
        131..134 => Event::Serve(dice.chance(0.5)),
        134..140 => adopt(dice),
        140..142 => Event::Disown(name(dice)),
        142..150 => Event::Finish(dice.below(NAMES)),
        150..151 => Event::TakeOut(dice.below(NODES)),
        151..154 => Event::Authorize(controller(dice), dice.chance(0.5)),
        154..155 => Event::AllowImpersonation(controller(dice), dice.chance(0.5)),
        _ => Event::Nothing,
    }
}

fn permissions(controller: usize, allowed: bool) -> String {
    let what = if allowed { "give back" } else { "withdraw" };
    let name = name_of(controller);
    format!("{what} the permissions of the account of {name}")
}

fn impersonation(controller: usize, allowed: bool) -> String {
    let what = if allowed { "allow" } else { "forbid" };
    let name = name_of(controller);
    format!("{what} the host to impersonate the account of {name}")
}

/// The controller of an index of [`CONTROLLERS`].
fn name_of(controller: usize) -> &'static str {
    CONTROLLERS.get(controller).copied().unwrap_or_default()
}

/// Draws a step after the rest. None keeps a healthy host busy for long.
fn last_event(dice: &mut Dice) -> Event {
    match dice.below(100) {
        0..24 => {
            let mut create = create(dice);
            if let Some(pod) = &mut create.pod {
                pod.grace = dice.below(3);
            }
            Event::Create(create)
        }
        24..38 => Event::Delete(name(dice), "Background"),
        38..54 => Event::Delete(name(dice), "Foreground"),
        54..56 => Event::Replace(name(dice)),
        56..59 => Event::Taint(dice.below(NODES)),
        59..61 => Event::Untaint(dice.below(NODES)),
        61..62 => Event::Orphan(owner(dice)),
        62..63 => ambush(dice),
        63..64 => adopt(dice),
        64..69 => {
            // After a refusal as invalid, the host waits for minutes.
            let verb = pick(dice, &["patch", "delete", "get"]);
            let fault = if dice.chance(0.4) {
                // Longer than the host holds a request back for a `Retry-After`.
                fault::Action::Refuse(Refusal::TooManyRequests(5))
            } else {
                pick(dice, &FAULTS)
            };
            Event::Break(verb, fault)
        }
        69..73 => Event::Heal,
        73..75 => Event::Lead(dice.chance(0.6)),
        _ => {
            // The garbage collector has the most to do.
            let controller = pick(dice, &[1, 1, 1, 2, 3]);
            Event::Operate(controller, action::last(dice))
        }
    }
}

fn ambush(dice: &mut Dice) -> Event {
    Event::Ambush(Duration::from_micros(dice.below(20_000)))
}

fn adopt(dice: &mut Dice) -> Event {
    Event::Adopt(name(dice), owner(dice), dice.chance(0.5))
}

fn create(dice: &mut Dice) -> Create {
    let owners = dice.below(3);
    let mut owners: Vec<(Name, bool)> = (0..owners)
        .map(|_| (owner(dice), dice.chance(0.5)))
        .collect();
    owners.dedup_by_key(|(name, _)| *name);
    let name = name(dice);
    let pod = (name.kind == Kind::Pod).then(|| NewPod {
        node: dice.below(NODES),
        grace: dice.below(20),
        tolerates: pick(
            dice,
            &[Tolerates::Never, Tolerates::For(3), Tolerates::Forever],
        ),
    });
    Create { name, owners, pod }
}

fn name(dice: &mut Dice) -> Name {
    let kinds = [
        Kind::Pod,
        Kind::Pod,
        Kind::ConfigMap,
        Kind::ConfigMap,
        Kind::Widget,
    ];
    Name {
        kind: pick(dice, &kinds),
        number: dice.below(NAMES),
    }
}

/// Draws an owner. No pod owns other objects.
fn owner(dice: &mut Dice) -> Name {
    Name {
        kind: pick(dice, &[Kind::ConfigMap, Kind::ConfigMap, Kind::Widget]),
        number: dice.below(NAMES),
    }
}

fn disturb(dice: &mut Dice) -> Event {
    let faults = [
        WatchFault::Abort,
        WatchFault::End,
        WatchFault::Expire,
        WatchFault::Silence,
        WatchFault::NoBookmarks,
    ];
    let resources = ["pods", "nodes", "configmaps", "leases", "widgets", ""];
    Event::Disturb(pick(dice, &resources), pick(dice, &faults))
}

fn broken(dice: &mut Dice) -> Event {
    let verb = pick(dice, &["patch", "delete", "get", "list", "watch", "create"]);
    let action = if dice.chance(0.1) {
        fault::Action::Refuse(Refusal::Invalid)
    } else {
        pick(dice, &FAULTS)
    };
    Event::Break(verb, action)
}

fn some(dice: &mut Dice, probability: f64) -> f64 {
    if dice.chance(0.5) { probability } else { 0.0 }
}

pub(crate) fn pick<T: Clone>(dice: &mut Dice, all: &[T]) -> T {
    match dice.pick(all) {
        Some(one) => one.clone(),
        None => unreachable!("there is something to pick from"),
    }
}
