//! The time that pods have left on tainted nodes: starting, moving, cancelling
//! it, and what happens when it has passed.
//!
//! A timer waits in the host, in a queue under its pod's uid, with the time at
//! which it began. When it is due it decides again, and so does the eviction
//! that follows: a wrong time here makes an eviction early or late, but never
//! wrong.

use std::time::Duration;

use davit_guest::{Command, Context, Decision, Enqueue, Instant, Object, Plan, Waiting, WorkItem};

use crate::config::{Config, Reschedule};
use crate::event;
use crate::fate::Fate;
use crate::taints::{LiveNodes, Source, Taints, Unproven};
use crate::view::{BY_NODE, PODS, Pod};
use crate::{EVICTIONS, TIMERS};

/// Tolerations count whole seconds: smaller differences come from rounding. In
/// milliseconds.
const SLACK: Instant = 500;

/// As good as for ever, and less than what any clock can hold.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);

/// Decides about the pods of a node whose taints changed.
pub(crate) fn reconcile_node(
    config: &Config,
    cx: &Context<'_>,
    node: &str,
    nodes: &LiveNodes,
) -> Result<Decision, Unproven> {
    let taints = nodes.taints(cx, node);
    let mut timers = Timers::new(config, cx);
    for pod in cx.watch(PODS).by_index(BY_NODE, node) {
        timers.set(pod, &taints)?;
    }
    Ok(timers.decision())
}

/// Decides about the pods of a node by the taints that it really has: the cache
/// was found to be wrong about it.
pub(crate) fn reconcile_doubtful(
    config: &Config,
    cx: &Context<'_>,
    node: &str,
    nodes: &LiveNodes,
) -> Result<Decision, Unproven> {
    match nodes.taints(cx, node).source {
        Source::Cache => Err(Unproven { node: node.into() }),
        Source::Unread(why) => Ok(Decision::retry(why)),
        Source::Live => reconcile_node(config, cx, node, nodes),
    }
}

/// Decides about a pod that came, was bound to a node, changed its tolerations,
/// or is gone.
pub(crate) fn reconcile_pod(
    config: &Config,
    cx: &Context<'_>,
    uid: &str,
    nodes: &LiveNodes,
) -> Result<Decision, Unproven> {
    let Some(pod) = cx.watch(PODS).get_by_uid(uid) else {
        // Nobody is left to be told.
        let queues = [TIMERS, EVICTIONS];
        return Ok(Decision::done().commands(queues.map(|queue| Command::cancel(queue, uid))));
    };
    let taints = nodes.taints(cx, &pod.view.spec.node_name);
    let mut timers = Timers::new(config, cx);
    timers.set(pod, &taints)?;
    Ok(timers.decision())
}

/// Decides about a pod whose time has passed.
pub(crate) fn reconcile_timer(
    config: &Config,
    cx: &Context<'_>,
    item: &WorkItem,
    nodes: &LiveNodes,
) -> Result<Decision, Unproven> {
    let Some(pod) = cx.watch(PODS).get_by_uid(&item.key) else {
        return Ok(Decision::done());
    };
    let node = pod.view.spec.node_name.clone();
    let taints = nodes.taints(cx, &node);
    let Some(time) = Fate::of(config, &taints.list, &pod.view.spec).time_left() else {
        return Ok(Decision::done().plans([event::cancelled(pod.reference)]));
    };
    let rest = later(item.created_at, time).saturating_sub(cx.now());
    if config.reschedule == Reschedule::Recompute && rest >= SLACK {
        let rest = Duration::from_millis(rest.unsigned_abs());
        return Ok(Decision::again_after(rest));
    }
    match taints.source {
        Source::Cache => Err(Unproven { node }),
        Source::Unread(why) => Ok(Decision::retry(why)),
        Source::Live => {
            let since = Some(item.due_at);
            Ok(Decision::done().commands([enqueue(EVICTIONS, &item.key, 0, since)]))
        }
    }
}

/// What a queue holds for a pod.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Current {
    Nothing,
    Timer {
        created_at: Instant,
        due_at: Instant,
    },
    /// Its time has come, and its eviction waits for its turn or for another
    /// attempt.
    Eviction,
}

/// What is to be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Leave,
    Start(Duration),
    Evict,
    Shorten {
        due_at: Instant,
        created_at: Instant,
    },
    Postpone {
        due_at: Instant,
        created_at: Instant,
    },
    Cancel,
}

fn change(policy: Reschedule, fate: Fate, current: Current) -> Change {
    match (current, fate) {
        (Current::Nothing, Fate::Stays) => Change::Leave,
        (_, Fate::Stays) => Change::Cancel,
        (Current::Eviction, _) => Change::Leave,
        (_, Fate::LeavesNow) | (Current::Nothing, Fate::LeavesAfter(Duration::ZERO)) => {
            Change::Evict
        }
        (Current::Nothing, Fate::LeavesAfter(time)) => Change::Start(time),
        (Current::Timer { created_at, due_at }, Fate::LeavesAfter(time)) => {
            let wanted = later(created_at, time);
            let longer = wanted.saturating_sub(due_at);
            let due_at = wanted;
            match policy {
                Reschedule::ShortenOnly | Reschedule::Recompute if longer <= -SLACK => {
                    Change::Shorten { due_at, created_at }
                }
                Reschedule::Recompute if longer >= SLACK => Change::Postpone { due_at, created_at },
                _ => Change::Leave,
            }
        }
    }
}

/// The decision about the timers of some pods.
struct Timers<'a> {
    config: &'a Config,
    cx: &'a Context<'a>,
    commands: Vec<Command>,
    plans: Vec<Plan>,
    has_cancelled: bool,
    /// Why pods stay for now that would have to leave.
    unread: Option<String>,
}

impl<'a> Timers<'a> {
    fn new(config: &'a Config, cx: &'a Context<'a>) -> Self {
        Self {
            config,
            cx,
            commands: Vec::new(),
            plans: Vec::new(),
            has_cancelled: false,
            unread: None,
        }
    }

    fn set(&mut self, pod: Object<Pod>, taints: &Taints) -> Result<(), Unproven> {
        let uid = pod.reference.uid.clone();
        let fate = Fate::of(self.config, &taints.list, &pod.view.spec);
        let current = self.current(&uid);
        match change(self.config.reschedule, fate, current) {
            Change::Leave => {}
            Change::Start(time) => self.start(&uid, later(self.cx.now(), time), None),
            Change::Evict => match &taints.source {
                Source::Cache => {
                    let node = pod.view.spec.node_name;
                    return Err(Unproven { node });
                }
                Source::Unread(why) => self.unread = Some(why.clone()),
                Source::Live => {
                    self.commands.push(Command::cancel(TIMERS, &uid));
                    self.commands.push(enqueue(EVICTIONS, &uid, 0, None));
                }
            },
            Change::Shorten { due_at, created_at } => self.start(&uid, due_at, Some(created_at)),
            Change::Postpone { due_at, created_at } => {
                self.cancel(TIMERS, pod);
                self.start(&uid, due_at, Some(created_at));
            }
            Change::Cancel => {
                let queue = match current {
                    Current::Eviction => EVICTIONS,
                    _ => TIMERS,
                };
                self.cancel(queue, pod);
                self.has_cancelled = true;
            }
        }
        Ok(())
    }

    fn current(&self, uid: &str) -> Current {
        if self.cx.pending(EVICTIONS, uid).is_some() {
            return Current::Eviction;
        }
        match self.cx.pending(TIMERS, uid) {
            Some(Waiting { created_at, due_at }) => Current::Timer { created_at, due_at },
            None => Current::Nothing,
        }
    }

    fn start(&mut self, uid: &str, due_at: Instant, created_at: Option<Instant>) {
        let after = due_at.saturating_sub(self.cx.now());
        let after = u64::try_from(after).unwrap_or(0);
        self.commands.push(enqueue(TIMERS, uid, after, created_at));
    }

    /// Takes out what waits, and tells of it if it was still waiting. If not,
    /// its own item sees that it is not needed.
    fn cancel(&mut self, queue: &str, pod: Object<Pod>) {
        let uid = pod.reference.uid.clone();
        self.commands.push(Command::cancel(queue, &uid));
        let plan = event::cancelled(pod.reference).when_cancelled(queue, &uid);
        self.plans.push(plan);
    }

    /// What was cancelled is looked at once more: two items can be about one
    /// pod at the same time, and this one may have seen the older state.
    fn decision(self) -> Decision {
        let decision = match self.unread {
            Some(why) => Decision::retry(why),
            None if self.has_cancelled => Decision::again_after(Duration::ZERO),
            None => Decision::done(),
        };
        decision.commands(self.commands).plans(self.plans)
    }
}

/// So much later, at most a hundred years.
fn later(start: Instant, time: Duration) -> Instant {
    let millis = i64::try_from(time.min(LONGEST).as_millis()).unwrap_or(i64::MAX);
    start.saturating_add(millis)
}

fn enqueue(queue: &str, uid: &str, after: u64, created_at: Option<Instant>) -> Command {
    Command::Enqueue(Enqueue {
        queue: queue.to_owned(),
        key: uid.to_owned(),
        after,
        created_at,
        group: String::new(),
    })
}

#[cfg(test)]
mod tests;
