//! What a test makes fail: requests, watches and discovery, by the faults of the API
//! server and of the way to it.

use davit_sim::custom::plural;
use davit_sim::fault::{Action, Fault, FaultTiming, Match, Refusal, WatchFault};
use davit_simulation::{HostIndex, World};

/// How long an overloaded server asks to wait, in seconds.
const RETRY_AFTER: u32 = 1;

/// Fails the requests with this verb for an object, as the API server would for a
/// failure of this class. Returns false if no server's answer has the class.
pub(super) fn fail(world: &mut World, verb: &str, kind: &str, key: &str, class: &str) -> bool {
    let action = match class {
        "conflict" => Action::Refuse(Refusal::Conflict),
        "forbidden" => Action::Refuse(Refusal::Forbidden),
        "invalid" => Action::Refuse(Refusal::Invalid),
        "server" => Action::Refuse(Refusal::InternalError),
        "throttled" => Action::Refuse(Refusal::TooManyRequests(RETRY_AFTER)),
        "timeout" => Action::CloseBefore,
        _ => return false,
    };
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    world.faults().add(Fault {
        matches: Match {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..Match::new(verb, &plural(kind))
        },
        when: FaultTiming::Always,
        action,
    });
    true
}

/// Breaks the watches of a kind. They cannot be opened again.
pub(super) fn interrupt(world: &mut World, kind: &str) {
    let plural = plural(kind);
    for verb in ["list", "watch"] {
        world.faults().add(Fault {
            matches: Match::new(verb, &plural),
            when: FaultTiming::Always,
            action: Action::Refuse(Refusal::InternalError),
        });
    }
    world.disturb(&plural, WatchFault::Abort);
}

/// From now on discovery lacks a kind.
pub(super) fn unserve(world: &mut World, kind: &str) {
    world.conditions_mut().unlisted.push(plural(kind));
    world.link(HostIndex::FIRST).discover();
}

/// From now on discovery does not reach a group version.
pub(super) fn silence(world: &mut World, group_version: &str) {
    world
        .conditions_mut()
        .unreached
        .push(group_version.to_owned());
    world.link(HostIndex::FIRST).discover();
}

/// Lets everything succeed again.
pub(super) fn heal(world: &mut World) {
    world.faults().clear();
    world.conditions_mut().unreached.clear();
    world.conditions_mut().unlisted.clear();
    world.link(HostIndex::FIRST).discover();
}
