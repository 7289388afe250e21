//! The arrivals of a taint at its node.
//!
//! Two calls can decide about one pod at the same time: one about its node, one
//! about the pod. A call that waits for a live read answers from what was known when
//! it started, so it can leave a timer for a taint that was removed meanwhile. Such a
//! timer must not count when the taint is back. So each arrival of a taint has a
//! number, the record of a timer names the arrival that started it, and a timer
//! counts only for that arrival.
//!
//! Each note has one writer, and the host reconciles one key of a queue once at a
//! time: no call that started earlier can overwrite a note.

use std::collections::BTreeMap;

use davit_guest::toleration::Taint;
use davit_guest::{Command, Context};
use serde::{Deserialize, Serialize};

use crate::node::NodeTaints;

/// One arrival of a taint at its node: the number that the node's own items gave it,
/// and how often a live read has found the taint missing since.
pub(crate) type Arrival = (u64, u64);

/// The arrivals of the taints that a node has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arrivals {
    seen: SeenTaints,
    missed: MissedTaints,
}

/// The taints that the node's items have seen. The note outlives the taints, so
/// that no number is given twice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
struct SeenTaints {
    /// The uid of the node: another node with its name has none of these taints.
    node: String,
    next: u64,
    taints: BTreeMap<String, u64>,
}

/// How often the items of a node whose cache is in doubt have found a taint missing
/// that [`SeenTaints`] has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
struct MissedTaints {
    node: String,
    taints: BTreeMap<String, u64>,
}

impl Arrivals {
    /// What is recorded about the node with this name.
    pub(crate) fn recall(cx: &Context<'_>, name: &str, node: &NodeTaints) -> Self {
        let mut seen: SeenTaints = cx.note(&seen_key(name)).unwrap_or_default();
        let mut missed: MissedTaints = cx.note(&missed_key(name)).unwrap_or_default();
        if seen.node != node.uid {
            seen.taints.clear();
        }
        if missed.node != node.uid {
            missed.taints.clear();
        }
        Self { seen, missed }
    }

    /// The present arrival of a taint; none before the node's own item has seen it.
    pub(crate) fn of(&self, taint: &Taint) -> Option<Arrival> {
        let number = self.seen.taints.get(&taint.key)?;
        let missed = self.missed.taints.get(&taint.key);
        Some((*number, missed.copied().unwrap_or_default()))
    }

    /// Numbers the new taints, and forgets the removed ones. Only the items of the
    /// node's own queue may do this.
    pub(crate) fn see(
        &mut self,
        cx: &Context<'_>,
        name: &str,
        node: &NodeTaints,
    ) -> Option<Command> {
        let former = self.seen.clone();
        let keys = || node.no_execute.iter().map(|taint| &taint.key);
        self.seen.node.clone_from(&node.uid);
        self.seen
            .taints
            .retain(|key, _| keys().any(|present| present == key));
        for key in keys() {
            if !self.seen.taints.contains_key(key) {
                self.seen.taints.insert(key.clone(), self.seen.next);
                self.seen.next += 1;
            }
        }
        let key = seen_key(name);
        if node.uid.is_empty() {
            let is_noted = cx.note::<SeenTaints>(&key).is_some();
            return is_noted.then(|| Command::set_note(&key, None::<&SeenTaints>));
        }
        let is_new = self.seen.next > 0 && self.seen != former;
        is_new.then(|| Command::set_note(&key, Some(&self.seen)))
    }

    /// Counts the taints that a live read did not find. Only the items of the nodes in
    /// doubt may do this.
    pub(crate) fn miss(
        &mut self,
        cx: &Context<'_>,
        name: &str,
        live: &NodeTaints,
    ) -> Option<Command> {
        let former = self.missed.clone();
        let is_present = |key: &String| live.no_execute.iter().any(|taint| taint.key == *key);
        self.missed.node.clone_from(&live.uid);
        // A taint that was seen again since has another number.
        self.missed
            .taints
            .retain(|key, _| self.seen.taints.contains_key(key));
        for key in self.seen.taints.keys().filter(|key| !is_present(key)) {
            *self.missed.taints.entry(key.clone()).or_default() += 1;
        }
        let key = missed_key(name);
        if self.missed.taints.is_empty() {
            let is_noted = cx.note::<MissedTaints>(&key).is_some();
            return is_noted.then(|| Command::set_note(&key, None::<&MissedTaints>));
        }
        (self.missed != former).then(|| Command::set_note(&key, Some(&self.missed)))
    }
}

fn seen_key(node: &str) -> String {
    format!("node/{node}")
}

fn missed_key(node: &str) -> String {
    format!("doubtful/{node}")
}
