//! What happens to one of several hosts, as data.

use std::fmt;
use std::time::Duration;

use davit_simulation::{Cut, Dice};

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

/// Draws what happens to a host.
pub(crate) fn draw(dice: &mut Dice) -> ReplicaEvent {
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
        _ => ReplicaEvent::Cut(dice.one_of(&cuts), time),
    }
}
