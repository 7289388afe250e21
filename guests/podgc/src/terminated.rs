//! Terminated pods above the threshold.
//!
//! A pass deletes the oldest of them, evicted ones first. It may have many to
//! delete: each call decides about a part, in the order that the host's indexes
//! keep, and says at which place the next part begins. So a pod that cannot be
//! deleted holds up none that comes after it, and a call's cost does not depend
//! on how many terminated pods there are.

use std::fmt;

use davit_guest::{Context, Object, Place};

use crate::deletion::{DELETION_BY_POD_GC, Reason, is_marked};
use crate::pass::{Plans, is_terminating};
use crate::view::{ENDED, EVICTED, MARKED, NODE_NAMES, PODS, Pod};

/// The phases of a pod that has not ended. Anything else has, also a phase that
/// is not known or not set.
pub(crate) const ALIVE: [&str; 3] = ["Pending", "Running", "Unknown"];
/// The reason in the status of a pod that its kubelet has evicted.
pub(crate) const EVICTED_REASON: &str = "Evicted";

/// The values of the index of ended pods.
const WITH_PHASE: &str = "true";
const WITHOUT_PHASE: &str = "";

/// How many terminated pods one call decides about at most, so that the other
/// stages of a pass have their turn.
const PART: usize = 1_000;
/// How many pods one call looks at for a purpose, so that its time is bounded
/// whatever there is in the cluster.
const MOST_LOOKED: usize = 10_000;

/// What is left of a pass: the cursor of its next part.
#[derive(Debug)]
struct Rest {
    /// How many pods it has still to delete.
    count: usize,
    /// Whether the place is among the evicted pods.
    evicted: bool,
    /// The place of the last pod that was decided about.
    place: Place,
}

/// Plans for the part of the pass that a cursor names, or the first. Returns
/// the cursor of the next part, if there is one.
pub(crate) fn decide(
    cx: &Context<'_>,
    threshold: usize,
    cursor: &str,
    plans: &mut Plans,
) -> Option<String> {
    let rest = Rest::parse(cursor);
    let count = count(cx, threshold);
    let excess = count.saturating_sub(threshold);
    // Others may have deleted pods since the first part.
    let due = rest.as_ref().map_or(excess, |rest| rest.count.min(excess));
    let message = format!("{count} pods have terminated, {threshold} are kept");
    if due == 0 {
        return None;
    }
    let mut taken = 0;
    let mut last = None;
    for (looked, (evicted, pod)) in in_turn(cx, rest).enumerate() {
        if taken == due {
            return None;
        }
        if taken == PART || looked == MOST_LOOKED {
            let (evicted, place) = last?;
            let count = due - taken;
            let rest = Rest {
                count,
                evicted,
                place,
            };
            return Some(rest.to_string());
        }
        last = Some((evicted, place(&pod)));
        if is_evicted(&pod) == evicted && !is_being_orphaned(cx, &pod) {
            taken += 1;
            plans.add(cx, pod, Reason::Terminated, message.clone());
        }
    }
    None
}

impl Rest {
    /// None for what is no cursor of this stage.
    fn parse(cursor: &str) -> Option<Self> {
        let mut parts = cursor.splitn(4, '/');
        let count = parts.next()?.parse().ok()?;
        let evicted = parts.next()? == EVICTED;
        let order = parts.next()?.to_owned();
        let key = parts.next()?.to_owned();
        Some(Self {
            count,
            evicted,
            place: Place { order, key },
        })
    }
}

impl fmt::Display for Rest {
    /// No time has a slash, and the key is the last part.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = if self.evicted { EVICTED } else { ENDED };
        let Place { order, key } = &self.place;
        write!(f, "{}/{stage}/{order}/{key}", self.count)
    }
}

/// How many terminated pods there are, as far as they count: exact if there are
/// more than the threshold.
///
/// Pods that are being deleted because their node is missing do not count: they
/// ended a moment ago by the collector's own hand, and each would cost another
/// pod its place. There are few of them at a time, unless their deletion fails;
/// then what is not looked at is taken for one of them.
fn count(cx: &Context<'_>, threshold: usize) -> usize {
    let pods = cx.watch(PODS);
    let held = |index, value| pods.index_count(index, value) as usize;
    let ended = held(ENDED, WITH_PHASE) + held(ENDED, WITHOUT_PHASE);
    if ended <= threshold {
        return ended;
    }
    let mut orphans = 0;
    let marked = pods.in_order(MARKED, DELETION_BY_POD_GC, None);
    for (looked, pod) in marked.take_while(|pod| !is_terminating(pod)).enumerate() {
        if looked == MOST_LOOKED {
            return ended.saturating_sub(held(MARKED, DELETION_BY_POD_GC));
        }
        orphans += usize::from(has_ended(&pod) && is_being_orphaned(cx, &pod));
    }
    ended - orphans
}

/// Terminated pods in the order in which they are deleted, from where the pass
/// goes on: those of the index of evicted pods, then all. They are read as far
/// as they are looked at.
fn in_turn<'a>(
    cx: &'a Context<'_>,
    rest: Option<Rest>,
) -> impl Iterator<Item = (bool, Object<Pod>)> + 'a {
    let with_evicted = rest.as_ref().is_none_or(|rest| rest.evicted);
    let place = rest.map(|rest| rest.place);
    let (in_evicted, in_all) = if with_evicted {
        (place, None)
    } else {
        (None, place)
    };
    let evicted =
        with_evicted.then(|| cx.watch(PODS).in_order(EVICTED, EVICTED_REASON, in_evicted));
    let all = |value| cx.watch(PODS).in_order(ENDED, value, in_all.clone());
    let all = merge(all(WITH_PHASE), all(WITHOUT_PHASE));
    let evicted = evicted.into_iter().flatten().map(|pod| (true, pod));
    evicted.chain(all.map(|pod| (false, pod)))
}

/// Both in one order.
fn merge(
    one: impl Iterator<Item = Object<Pod>>,
    other: impl Iterator<Item = Object<Pod>>,
) -> impl Iterator<Item = Object<Pod>> {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    std::iter::from_fn(move || match (one.peek(), other.peek()) {
        (Some(first), Some(second)) if age(second) < age(first) => other.next(),
        (Some(_), _) => one.next(),
        (None, _) => other.next(),
    })
}

fn is_evicted(pod: &Object<Pod>) -> bool {
    pod.view.status.phase == "Failed" && pod.view.status.reason == EVICTED_REASON
}

fn has_ended(pod: &Object<Pod>) -> bool {
    !ALIVE.contains(&pod.view.status.phase.as_str())
}

/// Whether the other half of the collector has marked the pod and not deleted
/// it yet.
fn is_being_orphaned(cx: &Context<'_>, pod: &Object<Pod>) -> bool {
    is_marked(&pod.view.status)
        && !is_terminating(pod)
        && cx.watch(NODE_NAMES).get(&pod.view.spec.node_name).is_none()
}

/// The order in which pods are deleted.
pub(crate) fn turn(pod: &Object<Pod>) -> impl Ord + '_ {
    (!is_evicted(pod), age(pod))
}

/// Where a pod stands in the indexes' order.
fn place(pod: &Object<Pod>) -> Place {
    let created = pod.view.metadata.creation_timestamp.clone();
    Place {
        order: created.unwrap_or_default(),
        key: key(pod),
    }
}

/// The key of a pod in a watch.
pub(crate) fn key(pod: &Object<Pod>) -> String {
    let (namespace, name) = (&pod.reference.namespace, &pod.reference.name);
    format!("{namespace}/{name}")
}

/// The order of the indexes: by creation, then by name and namespace. A pod
/// without a creation time counts as the oldest.
fn age(pod: &Object<Pod>) -> impl Ord + '_ {
    (
        pod.view.metadata.creation_timestamp.as_deref(),
        pod.reference.name.as_str(),
        pod.reference.namespace.as_str(),
    )
}
