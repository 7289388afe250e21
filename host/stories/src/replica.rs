//! What happens to one of several hosts, as data.

use std::fmt;
use std::time::Duration;

use davit_simulation::{Cut, Dice};

use crate::step::{Event, Step, pick};

/// How likely something happens to a host after a step.
const OFTEN: f64 = 0.12;
/// How long a partition or a suspended process lasts at most. Caches catch up within the
/// time that a story allows for that.
const LONGEST: Duration = Duration::from_secs(60);

/// What happens to a host.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReplicaEvent {
    /// It crashes, and starts again after this time.
    Crash(Duration),
    /// It stops and passes its leases on, as in a rolling update, and starts again.
    Restart,
    /// Its process does nothing for this time.
    Suspend(Duration),
    /// The network loses what it sends or receives, for this time.
    Cut(Cut, Duration),
}

impl fmt::Display for ReplicaEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crash(downtime) => write!(f, "crashes, and starts again after {downtime:?}"),
            Self::Restart => f.write_str("stops, and starts again"),
            Self::Suspend(time) => write!(f, "is suspended for {time:?}"),
            Self::Cut(cut, time) => {
                let lost = match (cut.requests, cut.answers) {
                    (true, true) => "requests and answers",
                    (true, false) => "requests",
                    (false, _) => "answers",
                };
                write!(f, "loses all {lost} for {time:?}")
            }
        }
    }
}

/// Inserts what happens to the hosts into the steps before the rest.
pub(crate) fn insert(dice: &mut Dice, hosts: usize, steps: &mut Vec<Step>) {
    let hosts = u64::try_from(hosts).unwrap_or(1);
    let mut rested = false;
    for step in std::mem::take(steps) {
        rested |= matches!(step.event, Event::Rest);
        steps.push(step);
        if !rested && dice.chance(OFTEN) {
            let event = Event::Replica(dice.below(hosts), draw(dice));
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

fn draw(dice: &mut Dice) -> ReplicaEvent {
    let time = dice.duration(&(Duration::from_millis(100)..LONGEST));
    let cuts = [
        Cut::BOTH,
        Cut {
            requests: true,
            answers: false,
        },
        Cut {
            requests: false,
            answers: true,
        },
    ];
    match dice.below(10) {
        0..2 => ReplicaEvent::Crash(time),
        2..4 => ReplicaEvent::Restart,
        4..7 => ReplicaEvent::Suspend(time),
        _ => ReplicaEvent::Cut(pick(dice, &cuts), time),
    }
}
