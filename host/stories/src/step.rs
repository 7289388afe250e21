//! The steps of a story, as data: a story that fails is shrunk by leaving steps
//! out.

use std::time::Duration;

use davit_sim::fault::{self, Refusal, WatchFault};
use davit_simulation::Dice;

use crate::action::{self, Action};

pub(crate) const NODES: u64 = 5;
pub(crate) const NAMES: u64 = 14;
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

/// What happens. What does not apply (a name that is taken, a node that is gone)
/// is no step.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Create(Create),
    Delete {
        pod: bool,
        number: u64,
        policy: &'static str,
    },
    /// An object goes at once, and another one comes under its name.
    Replace {
        pod: bool,
        number: u64,
    },
    /// Everything is healed and catches up first, as a careful operator would
    /// wait for: dependents that a cache has not seen cannot be orphaned.
    Orphan(u64),
    Taint(u64),
    Untaint(u64),
    RemoveNode(u64),
    CreateNode(u64),
    Silence(u64),
    Resume(u64),
    DropLease(u64),
    Disturb(&'static str, WatchFault),
    Break(&'static str, fault::Action),
    Network {
        starve: f64,
        unreachable: f64,
        hold_up: f64,
        no_discovery: f64,
    },
    /// How well records are read and written, and revisions loaded.
    Records {
        fail: f64,
        lose: f64,
        unreadable: f64,
        no_loads: f64,
    },
    /// Discovery cannot reach a group version.
    Unreach(&'static str),
    /// Discovery does not have a resource any more.
    Unlist(&'static str),
    Heal,
    Nothing,
    /// Calls into guests trap occasionally.
    Trap,
    /// The host crashes at once, and starts again after a while.
    Crash(Duration),
    /// The host crashes after one of its next effects.
    CrashSoon,
    WallClock(i64),
    Lead(bool),
    /// The host crashes, and starts again on a machine that has just started, with
    /// its module cache or without it.
    Reboot(bool),
    /// An operator acts on a controller.
    Operate(usize, Action),
}

#[derive(Clone, Debug)]
pub(crate) struct Create {
    pub(crate) number: u64,
    /// The numbers of the maps that own it, and whether they wait for it.
    pub(crate) owners: Vec<(u64, bool)>,
    /// A map, if none.
    pub(crate) pod: Option<NewPod>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct NewPod {
    pub(crate) node: u64,
    pub(crate) grace: u64,
    pub(crate) tolerates: bool,
}

/// Draws a story.
pub(crate) fn draw(dice: &mut Dice, steps: usize) -> Vec<Step> {
    (0..steps)
        .map(|_| Step {
            event: event(dice),
            pause: pause(dice),
        })
        .collect()
}

/// Mostly long enough for the controllers to act, often not.
fn pause(dice: &mut Dice) -> Duration {
    if dice.chance(0.4) {
        Duration::from_micros(dice.below(25_000))
    } else {
        Duration::from_millis(dice.below(1500))
    }
}

fn event(dice: &mut Dice) -> Event {
    let controller = |dice: &mut Dice| usize::try_from(dice.below(5)).unwrap_or(0);
    match dice.below(130) {
        0..42 => Event::Create(create(dice)),
        42..48 => Event::Replace {
            pod: dice.chance(0.5),
            number: dice.below(NAMES),
        },
        48..53 => delete(dice, "Background"),
        53..57 => delete(dice, "Foreground"),
        57..58 if dice.chance(0.25) => Event::Orphan(dice.below(NAMES)),
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
            &["apps/v1", "batch/v1", "coordination.k8s.io/v1"],
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
            unreadable: some(dice, 0.3),
            no_loads: some(dice, 0.3),
        },
        104..105 => Event::Unlist(pick(dice, &["pods", "nodes", "configmaps", "leases"])),
        105..126 => Event::Operate(controller(dice), action::draw(dice)),
        _ => Event::Nothing,
    }
}

fn create(dice: &mut Dice) -> Create {
    let owners = dice.below(3);
    let mut owners: Vec<(u64, bool)> = (0..owners)
        .map(|_| (dice.below(NAMES), dice.chance(0.5)))
        .collect();
    owners.dedup_by_key(|(number, _)| *number);
    let pod = dice.chance(0.5).then(|| NewPod {
        node: dice.below(NODES),
        grace: dice.below(20),
        tolerates: dice.chance(0.33),
    });
    Create {
        number: dice.below(NAMES),
        owners,
        pod,
    }
}

fn delete(dice: &mut Dice, policy: &'static str) -> Event {
    Event::Delete {
        pod: dice.chance(0.3),
        number: dice.below(NAMES),
        policy,
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
    let resources = ["pods", "nodes", "configmaps", "leases", ""];
    Event::Disturb(pick(dice, &resources), pick(dice, &faults))
}

fn broken(dice: &mut Dice) -> Event {
    let actions = [
        fault::Action::Refuse(Refusal::Conflict),
        fault::Action::Refuse(Refusal::Invalid),
        fault::Action::Refuse(Refusal::TooManyRequests(1)),
        fault::Action::Refuse(Refusal::TooManyRequests(5)),
        fault::Action::Refuse(Refusal::InternalError),
        fault::Action::Refuse(Refusal::Unavailable),
        fault::Action::CloseBefore,
        fault::Action::CloseAfter,
        fault::Action::CutBody(10),
        fault::Action::Delay(Duration::from_secs(3)),
    ];
    let verb = pick(dice, &["patch", "delete", "get", "list", "watch"]);
    Event::Break(verb, pick(dice, &actions))
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
