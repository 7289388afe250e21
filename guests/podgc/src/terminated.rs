//! Terminated pods above the threshold.
//!
//! A pass deletes the oldest of them, evicted ones first. There may be many:
//! each call decides about one page, in the order of the host's indexes, and
//! returns the place where the next page starts. So a pod that cannot be
//! deleted delays no pod after it, and the cost of a call does not depend on
//! the number of terminated pods.

use std::fmt;

use davit_guest::{Context, Object, Place};

use crate::deletion::{DELETION_BY_POD_GC, TERMINATED, is_marked, is_terminating};
use crate::plans::Plans;
use crate::view::{ENDED, EVICTED, MARKED, NODE_NAMES, PODS, Pod};

/// The phases of a pod that has not ended. A pod with any other phase has
/// ended, also with an unknown one or none.
pub(crate) const ALIVE: [&str; 3] = ["Pending", "Running", "Unknown"];
/// The reason in the status of a pod that its kubelet has evicted.
pub(crate) const EVICTED_REASON: &str = "Evicted";

/// The values of the index of ended pods.
const WITH_PHASE: &str = "true";
const WITHOUT_PHASE: &str = "";

/// How many terminated pods one call decides about at most, so that the other
/// stages of a pass have their turn.
const PAGE: usize = 1_000;
/// How many pods one call reads for one purpose, so that its time is bounded
/// whatever the cluster contains.
const MAX_READ: usize = 10_000;

/// The rest of a pass: the cursor of its next page.
#[derive(Debug)]
struct Rest {
    /// How many pods the pass still has to delete.
    count: usize,
    /// How many it has decided about.
    decided: usize,
    /// Whether the place is among the evicted pods.
    evicted: bool,
    /// The place of the last pod that was decided about.
    place: Place,
}

/// Plans for the page of the pass that a cursor names, or for the first page.
/// Returns the cursor of the next page, if there is one.
pub(crate) fn decide(
    cx: &Context<'_>,
    threshold: usize,
    cursor: &str,
    plans: &mut Plans,
) -> Option<String> {
    let rest = Rest::parse(cursor);
    let count = count(cx, threshold);
    let excess = count.saturating_sub(threshold);
    // Others may have deleted pods since the first page, and what this pass has deleted
    // may still be counted.
    let due = rest.as_ref().map_or(excess, |rest| {
        let left = excess.saturating_sub(visible_deletions(cx, rest));
        rest.count.min(left)
    });
    let message = format!("{count} terminated pods, the threshold is {threshold}");
    if due == 0 {
        return None;
    }
    let mut taken = 0;
    let mut last = None;
    for (read, (evicted, pod)) in in_turn(cx, rest.as_ref()).enumerate() {
        if taken == due {
            return None;
        }
        if taken == PAGE || read == MAX_READ {
            let (evicted, place) = last?;
            let former = rest.as_ref().map_or(0, |rest| rest.decided);
            let rest = Rest {
                count: due - taken,
                decided: former + taken,
                evicted,
                place,
            };
            return Some(rest.to_string());
        }
        last = Some((evicted, place(&pod)));
        if is_in_turn(cx, evicted, &pod) {
            taken += 1;
            plans.add(cx, pod, TERMINATED, message.clone());
        }
    }
    None
}

/// How many of the pods that the pass has decided about the cache still shows: their
/// deletion failed, takes its time, or is not observed yet. They are part of the excess,
/// and no other pod is deleted in their place. If they are too many to count, all of them.
fn visible_deletions(cx: &Context<'_>, rest: &Rest) -> usize {
    let mut visible = 0;
    for (read, (evicted, pod)) in in_turn(cx, None).enumerate() {
        if rest.is_before(evicted, &pod) {
            break;
        }
        if read == MAX_READ {
            return rest.decided.max(visible);
        }
        visible += usize::from(is_in_turn(cx, evicted, &pod));
    }
    visible
}

/// Whether a pod that is read as evicted, or among all, is decided about there.
fn is_in_turn(cx: &Context<'_>, evicted: bool, pod: &Object<Pod>) -> bool {
    is_evicted(pod) == evicted && !is_being_orphaned(cx, pod)
}

impl Rest {
    /// Whether the place is before a pod that is read as evicted, or among all.
    fn is_before(&self, evicted: bool, pod: &Object<Pod>) -> bool {
        if evicted != self.evicted {
            return self.evicted;
        }
        let (namespace, name) = self.place.key.split_once('/').unwrap_or_default();
        let created = pod.view.metadata.creation_timestamp.as_deref();
        let reference = &pod.reference;
        let pod = (
            created.unwrap_or_default(),
            reference.name.as_str(),
            reference.namespace.as_str(),
        );
        (self.place.order.as_str(), name, namespace) < pod
    }

    /// None for a text that is not a cursor of this stage.
    fn parse(cursor: &str) -> Option<Self> {
        let mut fields = cursor.splitn(5, '/');
        let count = fields.next()?.parse().ok()?;
        let decided = fields.next()?.parse().ok()?;
        let evicted = fields.next()? == EVICTED.as_str();
        let order = fields.next()?.to_owned();
        let key = fields.next()?.to_owned();
        Some(Self {
            count,
            decided,
            evicted,
            place: Place { order, key },
        })
    }
}

impl fmt::Display for Rest {
    /// No time contains a slash, and the key is the last field.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = if self.evicted { EVICTED } else { ENDED };
        let Place { order, key } = &self.place;
        let stage = stage.as_str();
        let Self { count, decided, .. } = self;
        write!(f, "{count}/{decided}/{stage}/{order}/{key}")
    }
}

/// The number of terminated pods that count against the threshold: exact if it
/// exceeds the threshold.
///
/// Pods that the collector deletes because their node is missing do not count:
/// the collector itself ended them a moment ago, and each would cost another
/// pod its place. They are few at a time, unless their deletion fails. In that
/// case every marked pod beyond the limit is taken for one of them.
fn count(cx: &Context<'_>, threshold: usize) -> usize {
    let pods = cx.watch(PODS);
    let held = |index, value| pods.index_count(index, value) as usize;
    let ended = held(ENDED, WITH_PHASE) + held(ENDED, WITHOUT_PHASE);
    if ended <= threshold {
        return ended;
    }
    let mut orphans = 0;
    let marked = pods.in_order(MARKED, DELETION_BY_POD_GC, None);
    for (read, pod) in marked.take_while(|pod| !is_terminating(pod)).enumerate() {
        if read == MAX_READ {
            return ended.saturating_sub(held(MARKED, DELETION_BY_POD_GC));
        }
        orphans += usize::from(has_ended(&pod) && is_being_orphaned(cx, &pod));
    }
    ended - orphans
}

/// Terminated pods in the order of their deletion, from where the pass
/// continues: first the pods in the index of evicted pods, then all. The
/// iterator reads pods as it advances.
fn in_turn<'a>(
    cx: &'a Context<'_>,
    rest: Option<&Rest>,
) -> impl Iterator<Item = (bool, Object<Pod>)> + use<'a> {
    let with_evicted = rest.is_none_or(|rest| rest.evicted);
    let place = rest.map(|rest| rest.place.clone());
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

/// Merges both in one order.
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

/// Whether the module `orphan` has marked the pod and not deleted it yet.
fn is_being_orphaned(cx: &Context<'_>, pod: &Object<Pod>) -> bool {
    is_marked(&pod.view.status)
        && !is_terminating(pod)
        && cx.watch(NODE_NAMES).get(&pod.view.node_name).is_none()
}

/// The order in which pods are deleted.
pub(crate) fn turn(pod: &Object<Pod>) -> impl Ord + '_ {
    (!is_evicted(pod), age(pod))
}

/// The place of a pod in the order of the indexes.
fn place(pod: &Object<Pod>) -> Place {
    let created = pod.view.metadata.creation_timestamp.clone();
    Place {
        order: created.unwrap_or_default(),
        key: pod.reference.key(),
    }
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
