//! The time that pods may stay on tainted nodes: starting, moving and
//! cancelling timers, and what happens when a timer is due.
//!
//! For each pod and each taint that it tolerates for a limited time, there is a
//! timer in the host. The creation time of its item is when the taint was first
//! seen on the node, or the pod under it: each taint has its own start, and the
//! pod leaves when the first of its timers is due. A due timer decides again,
//! and so does the eviction after it: an error here makes an eviction late, but
//! never early and never wrong.

use std::collections::BTreeMap;
use std::time::Duration;

use davit_guest::toleration::Taint;
use davit_guest::{
    Command, Context, Decision, Enqueue, Instant, Object, PendingItem, Plan, QueueName, WorkItem,
};

use crate::config::{Config, Reschedule};
use crate::event;
use crate::fate::{Fate, TimedTaint};
use crate::record::{Record, parse, timer_key};
use crate::start::start;
use crate::taints::{LiveNodes, Source, Taints, UnprovenNode};
use crate::view::{BY_NODE, PODS, Pod, PodSpec};
use crate::{DOUBTFUL, EVICTIONS, NODES, TIMERS};

/// Tolerations have whole seconds: smaller differences are rounding errors.
const SLACK: Duration = Duration::from_millis(500);

/// Practically forever, and within the range of any clock.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);

/// Decides about the pods of a node whose taints changed. If a live read has
/// proven that the cache is wrong about the node, another live read decides.
pub(crate) fn reconcile_node(
    config: &Config,
    cx: &Context<'_>,
    node: &str,
    nodes: &LiveNodes,
) -> Result<Decision, UnprovenNode> {
    let mut taints = nodes.taints(cx, node);
    if cx.pending(DOUBTFUL, node).is_some() {
        match taints.source {
            Source::Cache => return Err(UnprovenNode { node: node.into() }),
            Source::Unread(why) => return Ok(Decision::retry(why)),
            Source::Live => {}
        }
    }
    let seen = taints.arrivals.see(cx, node, &taints.node);
    Ok(set_all(config, cx, node, &taints)?.commands(seen))
}

/// Sets the timers of a node's pods.
fn set_all(
    config: &Config,
    cx: &Context<'_>,
    node: &str,
    taints: &Taints,
) -> Result<Decision, UnprovenNode> {
    let mut timers = Timers::new(config, cx);
    for pod in cx.watch(PODS).by_index(BY_NODE, node) {
        timers.set(pod, taints)?;
    }
    Ok(timers.decision())
}

/// Decides about the pods of a node by its real taints: the cache showed them
/// wrongly.
pub(crate) fn reconcile_doubtful(
    config: &Config,
    cx: &Context<'_>,
    node: &str,
    nodes: &LiveNodes,
) -> Result<Decision, UnprovenNode> {
    let mut taints = nodes.taints(cx, node);
    match taints.source {
        Source::Cache => Err(UnprovenNode { node: node.into() }),
        Source::Unread(why) => Ok(Decision::retry(why)),
        Source::Live => {
            let missed = taints.arrivals.miss(cx, node, &taints.node);
            Ok(set_all(config, cx, node, &taints)?.commands(missed))
        }
    }
}

/// Decides about a pod that was created, bound to a node or deleted, or whose
/// tolerations changed.
pub(crate) fn reconcile_pod(
    config: &Config,
    cx: &Context<'_>,
    uid: &str,
    nodes: &LiveNodes,
) -> Result<Decision, UnprovenNode> {
    let mut timers = Timers::new(config, cx);
    let Some(pod) = cx.watch(PODS).get_by_uid(uid) else {
        // No event: the pod is gone.
        let eviction = Command::cancel(EVICTIONS, uid);
        let timers = Record::recall(cx, uid).discard(cx, uid);
        return Ok(Decision::done().commands([eviction]).commands(timers));
    };
    let taints = nodes.taints(cx, &pod.view.spec.node_name);
    timers.set(pod, &taints)?;
    Ok(timers.decision())
}

/// Decides about a pod whose time under one taint is over.
pub(crate) fn reconcile_timer(
    config: &Config,
    cx: &Context<'_>,
    item: &WorkItem,
    nodes: &LiveNodes,
) -> Result<Decision, UnprovenNode> {
    let (uid, taint) = parse(&item.key);
    let Some(pod) = cx.watch(PODS).get_by_uid(uid) else {
        return Ok(is_gone(cx, uid));
    };
    let node = pod.view.spec.node_name.clone();
    let taints = nodes.taints(cx, &node);
    let former = Record::recall(cx, uid);
    if !counts(&former, taint, &taints) {
        let mut timers = Timers::new(config, cx);
        timers.set(pod, &taints)?;
        return Ok(timers.decision());
    }
    let is_evicted = cx.pending(EVICTIONS, uid).is_some();
    if let Fate::MayStay(bounds) = Fate::of(config, &taints.node.no_execute, &pod.view.spec) {
        let Some(bound) = bounds.iter().find(|it| it.taint.key == taint) else {
            return Ok(if is_evicted {
                Decision::done()
            } else {
                ended_without_cause(cx, pod, taint)
            });
        };
        let start = start(config, cx, &taints.node, bound.taint, uid, item.created_at);
        let rest = later(start, bound.time) - cx.now();
        let counts =
            config.reschedule == Reschedule::Recompute || is_renewed(start, item.created_at);
        if counts && rest >= SLACK {
            return Ok(Decision::requeue_after(rest));
        }
    }
    let ended = Decision::done().commands(former.end(uid, taint, item.created_at));
    match taints.source {
        // The eviction has its own back-off after a failure.
        _ if is_evicted => Ok(ended),
        Source::Cache => Err(UnprovenNode { node }),
        Source::Unread(why) => Ok(Decision::retry(why)),
        Source::Live => {
            let eviction = Enqueue::new(EVICTIONS, uid).created_at(item.due_at);
            Ok(ended.commands([eviction.into()]))
        }
    }
}

/// Whether a timer belongs to a taint that has existed since, and not to a former
/// node with that name. For a taint that is gone, there is nothing to restart.
fn counts(record: &Record, key: &str, taints: &Taints) -> bool {
    let mut present = taints.node.no_execute.iter();
    match present.find(|taint| taint.key == key) {
        Some(taint) => record.knows(taints, taint),
        None => record.node == taints.node.uid || taints.node.no_execute.is_empty(),
    }
}

/// Cleans up after a pod that is gone: a call that started before the deletion
/// may have ended after it.
pub(crate) fn is_gone(cx: &Context<'_>, uid: &str) -> Decision {
    Decision::done().commands(Record::recall(cx, uid).discard(cx, uid))
}

/// The taint of a timer is gone, or is tolerated forever.
fn ended_without_cause(cx: &Context<'_>, pod: Object<Pod>, taint: &str) -> Decision {
    let uid = &pod.reference.uid;
    let former = Record::recall(cx, uid);
    let mut record = former.clone();
    record.taints.remove(taint);
    Decision::done()
        .commands(record.keep(cx, uid, &former))
        .plans([event::cancelled(pod.reference)])
}

/// Whether a pod must leave now: it does not tolerate one of the taints, or the
/// time for which it tolerates one is over. The time of a new taint may not
/// have started: the change of the node may be reconciled after an eviction
/// that another taint caused.
pub(crate) fn is_over(
    config: &Config,
    cx: &Context<'_>,
    uid: &str,
    pod: &PodSpec,
    taints: &Taints,
) -> bool {
    let record = Record::recall(cx, uid);
    let has_passed = |bound: &TimedTaint<'_>| {
        let key = timer_key(uid, &bound.taint.key);
        has_ended(config, cx, &record, uid, taints, bound.taint)
            || (record.knows(taints, bound.taint) && cx.pending(TIMERS, &key).is_none())
    };
    match Fate::of(config, &taints.node.no_execute, pod) {
        Fate::LeavesNow => true,
        Fate::MayStay(bounds) => bounds.iter().any(has_passed),
    }
}

/// Whether the pod's time under a taint is over, and the taint is the one for which it started.
fn has_ended(
    config: &Config,
    cx: &Context<'_>,
    record: &Record,
    uid: &str,
    taints: &Taints,
    taint: &Taint,
) -> bool {
    record.ended(cx, uid, taints, taint).is_some_and(|ended| {
        let start = start(config, cx, &taints.node, taint, uid, ended.created_at);
        !is_renewed(start, ended.created_at)
    })
}

/// What happens to a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Leave,
    Shorten,
    Postpone,
}

/// What happens to a timer that is due at another time than the taint's start
/// and the pod's toleration imply.
fn change(policy: Reschedule, is_renewed: bool, due_at: Instant, wanted: Instant) -> Change {
    let (longer, shorter) = (wanted - due_at, due_at - wanted);
    match policy {
        _ if is_renewed && longer >= SLACK => Change::Postpone,
        Reschedule::ShortenOnly | Reschedule::Recompute if shorter >= SLACK => Change::Shorten,
        Reschedule::Recompute if longer >= SLACK => Change::Postpone,
        _ => Change::Leave,
    }
}

/// Whether a taint started later than the taint of the timer: it is another
/// taint with the same key.
fn is_renewed(start: Instant, created_at: Instant) -> bool {
    start - created_at >= SLACK
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

/// The timers of one pod, while they change.
struct PodTimers {
    uid: String,
    /// Whether an eviction of the pod is pending.
    is_evicted: bool,
    former: Record,
    record: Record,
    /// The former timer that was due first: its time and its key.
    first: Option<(Instant, String)>,
    /// New timers are not due before this time.
    decided: Option<Instant>,
    /// When the first timer is now due.
    next: Option<Instant>,
    /// Whether the pod must leave.
    is_over: bool,
}

impl PodTimers {
    fn key(&self, bound: &TimedTaint<'_>) -> String {
        timer_key(&self.uid, &bound.taint.key)
    }

    /// The pod leaves now. Timers of taints that still exist continue: the
    /// cause of its eviction may go.
    fn leave(&mut self, taints: &Taints) {
        self.is_over = true;
        if self.former.node == self.record.node {
            let is_there = |key: &String| {
                let mut taints = taints.node.no_execute.iter();
                taints.any(|taint| taint.key == *key)
            };
            self.record.taints.clone_from(&self.former.taints);
            self.record.taints.retain(|key, _| is_there(key));
        }
    }
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

    fn set(&mut self, pod: Object<Pod>, taints: &Taints) -> Result<(), UnprovenNode> {
        let uid = pod.reference.uid.clone();
        let is_evicted = self.cx.pending(EVICTIONS, &uid).is_some();
        let mut timers = self.former(&uid, taints, is_evicted);
        match Fate::of(self.config, &taints.node.no_execute, &pod.view.spec) {
            Fate::LeavesNow => timers.leave(taints),
            Fate::MayStay(bounds) => {
                timers.decided = self.decided(&timers, &bounds, taints);
                let is_unseen = |it: &TimedTaint<'_>| taints.arrivals.of(it.taint).is_none();
                if bounds.iter().any(is_unseen) {
                    let node = &pod.view.spec.node_name;
                    self.commands.push(Enqueue::new(NODES, node).into());
                }
                for bound in &bounds {
                    self.bound(&mut timers, bound, taints);
                }
            }
        }
        for taint in timers.former.taints.keys() {
            if !timers.record.taints.contains_key(taint) {
                let key = timer_key(&uid, taint);
                self.commands.push(Command::cancel(TIMERS, &key));
            }
        }
        let record = timers.record.keep(self.cx, &uid, &timers.former);
        self.commands.extend(record);
        match (timers.is_over, is_evicted) {
            (true, true) => {}
            (true, false) => self.evict(&pod, taints)?,
            (false, true) => self.cancel_eviction(pod, EVICTIONS, &uid),
            (false, false) => {
                if let Some((due_at, key)) = timers.first
                    && timers.next.is_none_or(|next| next - due_at >= SLACK)
                {
                    self.cancel_eviction(pod, TIMERS, &key);
                }
            }
        }
        Ok(())
    }

    fn former(&self, uid: &str, taints: &Taints, is_evicted: bool) -> PodTimers {
        let former = Record::recall(self.cx, uid);
        let timers = former.taints.keys().filter_map(|taint| {
            let key = timer_key(uid, taint);
            Some((self.cx.pending(TIMERS, &key)?.due_at, key))
        });
        PodTimers {
            uid: uid.to_owned(),
            is_evicted,
            first: timers.min(),
            record: Record {
                node: taints.node.uid.clone(),
                taints: BTreeMap::new(),
            },
            former,
            decided: None,
            next: None,
            is_over: false,
        }
    }

    /// When the pod was to leave, as far as the causes still exist. If the
    /// policy keeps that time, no other taint makes it earlier.
    fn decided(
        &self,
        timers: &PodTimers,
        bounds: &[TimedTaint<'_>],
        taints: &Taints,
    ) -> Option<Instant> {
        if self.config.reschedule != Reschedule::Keep {
            return None;
        }
        let known = bounds.iter();
        let known = known.filter(|bound| timers.former.knows(taints, bound.taint));
        let waiting = known.filter_map(|bound| self.cx.pending(TIMERS, &timers.key(bound)));
        waiting.map(|timer| timer.due_at).min()
    }

    /// Starts, moves or leaves the timer of a pod and a taint.
    fn bound(&mut self, timers: &mut PodTimers, bound: &TimedTaint<'_>, taints: &Taints) {
        let key = timers.key(bound);
        let is_known = timers.former.knows(taints, bound.taint);
        let (former, uid) = (&timers.former, &timers.uid);
        let has_ended = has_ended(self.config, self.cx, former, uid, taints, bound.taint);
        timers.record.add(taints, bound.taint);
        let due_at = match self.cx.pending(TIMERS, &key) {
            // Its eviction may be under way, and not pending.
            _ if has_ended => {
                timers.is_over = true;
                return;
            }
            Some(waiting) if is_known => self.continue_timer(&key, &waiting, timers, bound, taints),
            // It was due, and has caused the eviction.
            None if is_known && timers.is_evicted => {
                timers.is_over = true;
                return;
            }
            waiting => {
                let start = self.start_of(timers, bound, taints, self.cx.now());
                let due_at = later(start, bound.time).max(timers.decided.unwrap_or(start));
                // The timer of a former taint or node.
                if waiting.is_some() {
                    self.commands.push(Command::cancel(TIMERS, &key));
                }
                if due_at <= self.cx.now() {
                    let ended = timers.record.end(&timers.uid, &bound.taint.key, start);
                    self.commands.extend(ended);
                    timers.is_over = true;
                    return;
                }
                self.start(&key, due_at, start);
                due_at
            }
        };
        timers.next = Some(timers.next.map_or(due_at, |next| next.min(due_at)));
    }

    /// The start of a taint's time, given when it was first seen.
    fn start_of(
        &self,
        timers: &PodTimers,
        bound: &TimedTaint<'_>,
        taints: &Taints,
        seen: Instant,
    ) -> Instant {
        let (node, uid) = (&taints.node, &timers.uid);
        start(self.config, self.cx, node, bound.taint, uid, seen)
    }

    /// Moves or leaves a timer that counts. Returns its due time.
    ///
    /// If the taint has a new value with a shorter tolerated time, that time
    /// starts now.
    fn continue_timer(
        &mut self,
        key: &str,
        timer: &PendingItem,
        timers: &PodTimers,
        bound: &TimedTaint<'_>,
        taints: &Taints,
    ) -> Instant {
        let start = self.start_of(timers, bound, taints, timer.created_at);
        let wanted = later(start, bound.time);
        let policy = self.config.reschedule;
        let is_renewed = is_renewed(start, timer.created_at);
        let is_shorter = change(policy, is_renewed, timer.due_at, wanted) == Change::Shorten;
        let former = timers.former.taints.get(&bound.taint.key);
        if !is_shorter || former.is_some_and(|it| it.value == bound.taint.value) {
            return self.reschedule(key, timer, start, wanted);
        }
        let now = self.cx.now();
        let mut due_at = later(now, bound.time);
        if policy != Reschedule::Recompute {
            due_at = due_at.min(timer.due_at);
        }
        self.commands.push(Command::cancel(TIMERS, key));
        self.start(key, due_at, now);
        due_at
    }

    /// Returns the timer's due time.
    fn reschedule(
        &mut self,
        key: &str,
        timer: &PendingItem,
        start: Instant,
        wanted: Instant,
    ) -> Instant {
        let is_renewed = is_renewed(start, timer.created_at);
        match change(self.config.reschedule, is_renewed, timer.due_at, wanted) {
            Change::Leave => return timer.due_at,
            Change::Shorten => {}
            Change::Postpone => self.commands.push(Command::cancel(TIMERS, key)),
        }
        self.start(key, wanted, start);
        wanted
    }

    fn start(&mut self, key: &str, due_at: Instant, start: Instant) {
        let timer = Enqueue::new(TIMERS, key)
            .after(due_at - self.cx.now())
            .created_at(start);
        self.commands.push(timer.into());
    }

    fn evict(&mut self, pod: &Object<Pod>, taints: &Taints) -> Result<(), UnprovenNode> {
        match &taints.source {
            Source::Cache => {
                let node = pod.view.spec.node_name.clone();
                return Err(UnprovenNode { node });
            }
            Source::Unread(why) => self.unread = Some(why.clone()),
            Source::Live => {
                let eviction = Enqueue::new(EVICTIONS, &pod.reference.uid);
                self.commands.push(eviction.into());
            }
        }
        Ok(())
    }

    /// Adds the event that a pod may stay for longer, if the cause of its
    /// eviction was still pending. If not, the eviction's own item finds that
    /// it is not needed.
    fn cancel_eviction(&mut self, pod: Object<Pod>, queue: QueueName, key: &str) {
        if queue == EVICTIONS {
            self.commands.push(Command::cancel(queue, key));
        }
        let plan = event::cancelled(pod.reference).when_cancelled(queue, key);
        self.plans.push(plan);
        self.has_cancelled = true;
    }

    /// An item with cancellations is requeued immediately: two items can be about
    /// one pod at the same time, and this one may have read the older state.
    fn decision(self) -> Decision {
        let decision = match self.unread {
            Some(why) => Decision::retry(why),
            None if self.has_cancelled => Decision::requeue_after(Duration::ZERO),
            None => Decision::done(),
        };
        decision.commands(self.commands).plans(self.plans)
    }
}

/// An instant that much later, at most a hundred years.
fn later(start: Instant, time: Duration) -> Instant {
    start + time.min(LONGEST)
}

#[cfg(test)]
mod tests;
