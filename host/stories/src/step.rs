//! The steps of a story, as data: a failing story is shortened by dropping steps.

use std::fmt;
use std::time::Duration;

use davit_sim::fault::{self, Refusal, WatchFault};
use davit_simulation::Dice;

use crate::action;
use crate::event::{Create, Event, Kind, NAMES, NODES, Name, NewPod, Toleration, WIDGETS_VERSION};
use crate::replica;

/// So long after its kubelet fell silent, a node has lost its pods.
const UNRESPONSIVE: Duration = Duration::from_secs(150);
/// So long after its last renewal, a term has ended.
const ENDED: Duration = Duration::from_secs(11);
/// How likely something happens to a host after a step.
const OFTEN: f64 = 0.12;
/// The steps of a story after the rest.
const LAST_STEPS: usize = 16;

/// One step, and how long the world runs after it.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) event: Event,
    pub(crate) pause: Duration,
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

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (then {:?})", self.event, self.pause)
    }
}

/// Draws a story: `steps` steps with any fault, a rest, and some steps after which a
/// healthy host has to finish its work soon.
pub(crate) fn draw(dice: &mut Dice, steps: usize) -> Vec<Step> {
    let mut drawn: Vec<Step> = (0..steps).map(|_| step(dice, event)).collect();
    drawn.push(step(dice, |_| Event::Rest));
    drawn.extend((0..LAST_STEPS).map(|_| step(dice, last_event)));
    drawn
}

/// Inserts what happens to the hosts into the steps before the rest.
pub(crate) fn insert_replica_events(dice: &mut Dice, hosts: usize, steps: &mut Vec<Step>) {
    let hosts = u64::try_from(hosts).unwrap_or(1);
    let mut rested = false;
    for step in std::mem::take(steps) {
        rested |= matches!(step.event, Event::Rest);
        steps.push(step);
        if !rested && dice.chance(OFTEN) {
            let event = Event::Replica(dice.below(hosts), replica::draw(dice));
            let longest = if dice.chance(0.3) {
                Duration::from_secs(25)
            } else {
                Duration::from_secs(1)
            };
            let pause = dice.duration(&(Duration::ZERO..longest));
            steps.push(Step { event, pause });
        }
    }
}

fn step(dice: &mut Dice, event: impl Fn(&mut Dice) -> Event) -> Step {
    let event = event(dice);
    let pause = match event {
        Event::Silence(_) if dice.chance(0.4) => UNRESPONSIVE,
        Event::Leases(false) if dice.chance(0.5) => ENDED,
        _ => pause(dice),
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
        86..87 => {
            Event::Unreach(dice.one_of(&["apps/v1", "coordination.k8s.io/v1", WIDGETS_VERSION]))
        }
        87..91 => Event::Heal,
        91..93 => Event::Trap,
        93..95 => Event::Crash(Duration::from_millis(dice.below(20_000))),
        95..97 => Event::CrashSoon,
        97..98 => {
            let millis = i64::try_from(dice.below(7_200_000)).unwrap_or(0);
            Event::WallClock(millis - 3_600_000)
        }
        98..101 => Event::Leases(dice.chance(0.6)),
        101..102 => Event::Reboot(dice.chance(0.7)),
        102..104 => Event::Records {
            fail: some(dice, 0.4),
            lose: some(dice, 0.3),
            late: some(dice, 0.4),
            unreadable: some(dice, 0.3),
            no_loads: some(dice, 0.3),
        },
        104..105 => {
            Event::Unlist(dice.one_of(&["pods", "nodes", "configmaps", "leases", "widgets"]))
        }
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
            let verb = dice.one_of(&["patch", "delete", "get"]);
            let fault = if dice.chance(0.4) {
                // Longer than the host holds a request back for a `Retry-After`.
                fault::Action::Refuse(Refusal::TooManyRequests(5))
            } else {
                dice.one_of(&FAULTS)
            };
            Event::Break(verb, fault)
        }
        69..73 => Event::Heal,
        73..75 => Event::Leases(dice.chance(0.6)),
        _ => {
            // The garbage collector has the most to do.
            let controller = dice.one_of(&[1, 1, 1, 2, 3]);
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
        toleration: dice.one_of(&[Toleration::Never, Toleration::For(3), Toleration::Forever]),
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
        kind: dice.one_of(&kinds),
        number: dice.below(NAMES),
    }
}

/// Draws an owner. No pod owns other objects.
fn owner(dice: &mut Dice) -> Name {
    Name {
        kind: dice.one_of(&[Kind::ConfigMap, Kind::ConfigMap, Kind::Widget]),
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
    Event::Disturb(dice.one_of(&resources), dice.one_of(&faults))
}

fn broken(dice: &mut Dice) -> Event {
    let verb = dice.one_of(&["patch", "delete", "get", "list", "watch", "create"]);
    let action = if dice.chance(0.1) {
        fault::Action::Refuse(Refusal::Invalid)
    } else {
        dice.one_of(&FAULTS)
    };
    Event::Break(verb, action)
}

fn some(dice: &mut Dice, probability: f64) -> f64 {
    if dice.chance(0.5) { probability } else { 0.0 }
}
