//! The taints for which a pod has timers: a guest cannot list the keys of a
//! queue.
//!
//! A timer counts only if the record has it for the present arrival of its
//! taint. So if two calls decide about one pod at once, whichever ends last, a
//! timer of a taint that was removed in between never counts for the taint that
//! was added again.

use std::collections::BTreeMap;

use davit_guest::toleration::Taint;
use davit_guest::{Command, Context};
use serde::{Deserialize, Serialize};

use crate::TIMERS;
use crate::arrival::Arrival;
use crate::taints::Taints;

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

    pub(crate) fn add(&mut self, taints: &Taints, taint: &Taint) {
        let timer = Timer {
            value: taint.value.clone(),
            arrival: taints.arrivals.of(taint),
        };
        self.taints.insert(taint.key.clone(), timer);
    }

    /// Replaces the former record, if it differs.
    pub(crate) fn keep(&self, pod: &str, former: &Self) -> Option<Command> {
        let value = (!self.taints.is_empty()).then_some(self);
        let is_kept = self == former || (self.taints.is_empty() && former.taints.is_empty());
        (!is_kept).then(|| Command::set_note(&note_key(pod), value))
    }

    /// Cancels and forgets all timers of a pod that is gone.
    pub(crate) fn discard(&self, pod: &str) -> Vec<Command> {
        let timers = self.taints.keys();
        let timers = timers.map(|taint| Command::cancel(TIMERS, &timer_key(pod, taint)));
        timers.chain(Self::default().keep(pod, self)).collect()
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
pub(crate) fn parse(timer: &str) -> (&str, Option<&str>) {
    match timer.split_once(' ') {
        Some((pod, taint)) => (pod, Some(taint)),
        // A former version of this guest had one timer for each pod.
        None => (timer, None),
    }
}
