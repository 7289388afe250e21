//! The taints for which a pod has timers: a guest cannot list the keys of a
//! queue.
//!
//! A timer counts only if the record has it for the present arrival of its
//! taint. So if two calls decide about one pod at once, whichever ends last, a
//! timer of a taint that was removed in between never counts for the taint that
//! was added again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use davit_guest::toleration::Taint;
use davit_guest::{Command, Context, Decision, Enqueue, Instant, PendingItem};
use serde::{Deserialize, Serialize};

use crate::arrival::Arrival;
use crate::taints::Taints;
use crate::{ENDED, TIMERS};

/// The timers of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Record {
    /// The uid of the node: another node with the same name is another node.
    pub(crate) node: String,
    /// The timers by the keys of their taints. A timer whose time is over stays,
    /// as long as the eviction may be cancelled.
    pub(crate) taints: BTreeMap<String, Timer>,
}

/// The taint for which a timer was started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Timer {
    /// The value of the taint.
    pub(crate) value: String,
    /// The arrival of the taint; none if the node's own item had not seen it yet.
    arrival: Option<Arrival>,
}

impl Record {
    /// The record of a pod.
    pub(crate) fn recall(cx: &Context<'_>, pod: &str) -> Self {
        cx.note(&note_key(pod)).unwrap_or_default()
    }

    /// Whether the pod's time under a taint of its node has started. A timer that
    /// started before the node's own item saw the taint does not count: the taint
    /// may be another one by now.
    pub(crate) fn knows(&self, taints: &Taints, taint: &Taint) -> bool {
        let timer = self.taints.get(&taint.key);
        let arrival = timer.and_then(|timer| timer.arrival);
        self.node == taints.node.uid && arrival.is_some() && arrival == taints.arrivals.of(taint)
    }

    /// The item which says that the pod's time under a taint of its node is over; its creation time is
    /// when that time started.
    ///
    /// An item that is in a call or whose plan is under way is not pending: without this, the
    /// pod would get its time again until the eviction has ended. It is an item and no part of the
    /// record, so that it returns with the timers if the guest's former revision does.
    pub(crate) fn ended(
        &self,
        cx: &Context<'_>,
        pod: &str,
        taints: &Taints,
        taint: &Taint,
    ) -> Option<PendingItem> {
        let key = self.ended_key(pod, &taint.key)?;
        let ended = cx.pending(ENDED, &key);
        ended.filter(|_| self.knows(taints, taint))
    }

    /// The command that records that the time under the taint with this key, which started then, is
    /// over.
    pub(crate) fn end(&self, pod: &str, taint: &str, start: Instant) -> Option<Command> {
        let key = self.ended_key(pod, taint)?;
        let ended = Enqueue::new(ENDED, &key).after(ENDED_PERIOD);
        Some(ended.created_at(start).into())
    }

    /// The key of the item which says that a time is over: of this node and this arrival of the taint,
    /// so that a call that started earlier does not end the time of another. None before the node's
    /// own item has seen the taint.
    fn ended_key(&self, pod: &str, taint: &str) -> Option<String> {
        let (number, missed) = self.taints.get(taint)?.arrival?;
        let timer = timer_key(pod, taint);
        Some(format!("{timer} {} {number} {missed}", self.node))
    }

    /// The keys of the items which say that a time is over.
    fn ended_keys(&self, pod: &str) -> impl Iterator<Item = String> {
        let taints = self.taints.keys();
        taints.filter_map(move |taint| self.ended_key(pod, taint))
    }

    /// Cancels what says that a time is over which another record does not have.
    fn forget_ended(&self, cx: &Context<'_>, pod: &str, other: &Self) -> Vec<Command> {
        let kept: BTreeSet<String> = other.ended_keys(pod).collect();
        let left = self.ended_keys(pod).filter(|key| !kept.contains(key));
        let left = left.filter(|key| cx.pending(ENDED, key).is_some());
        left.map(|key| Command::cancel(ENDED, &key)).collect()
    }

    pub(crate) fn add(&mut self, taints: &Taints, taint: &Taint) {
        let timer = Timer {
            value: taint.value.clone(),
            arrival: taints.arrivals.of(taint),
        };
        self.taints.insert(taint.key.clone(), timer);
    }

    /// Replaces the former record, if it differs.
    pub(crate) fn keep(&self, cx: &Context<'_>, pod: &str, former: &Self) -> Vec<Command> {
        let value = (!self.taints.is_empty()).then_some(self);
        if self == former || (self.taints.is_empty() && former.taints.is_empty()) {
            return Vec::new();
        }
        let mut commands = former.forget_ended(cx, pod, self);
        commands.push(Command::set_note(&note_key(pod), value));
        commands
    }

    /// Cancels and forgets all timers of a pod that is gone.
    pub(crate) fn discard(&self, cx: &Context<'_>, pod: &str) -> Vec<Command> {
        let timers = self.taints.keys();
        let timers = timers.map(|taint| Command::cancel(TIMERS, &timer_key(pod, taint)));
        timers.chain(Self::default().keep(cx, pod, self)).collect()
    }
}

/// How often it is checked whether the record still has the end of a time: a call that started
/// before the pod was gone may have ended after it.
const ENDED_PERIOD: Duration = Duration::from_hours(1);

/// Keeps the end of a time for as long as the pod's record has it.
pub(crate) fn reconcile_ended(cx: &Context<'_>, key: &str) -> Decision {
    let (pod, _) = parse(key);
    let has_it = Record::recall(cx, pod).ended_keys(pod).any(|it| it == key);
    if has_it {
        Decision::requeue_after(ENDED_PERIOD)
    } else {
        Decision::done()
    }
}

/// What the key of a pod's record starts with, before its uid.
pub(crate) const NOTE_PREFIX: &str = "pod/";

fn note_key(pod: &str) -> String {
    format!("{NOTE_PREFIX}{pod}")
}

/// The key of the timer of a pod and a taint. Neither a uid nor a taint's key
/// contains a space.
pub(crate) fn timer_key(pod: &str, taint: &str) -> String {
    format!("{pod} {taint}")
}

/// The pod's uid and the taint's key in the key of a timer.
pub(crate) fn parse(timer: &str) -> (&str, &str) {
    timer.split_once(' ').unwrap_or((timer, ""))
}
