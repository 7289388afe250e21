//! Heartbeats in a journal: many in one entry.
//!
//! The kubelet of each node renews a Lease every ten seconds and posts the node's status every five
//! minutes: 5,000 nodes are 517 changes a second, 25 times as many as those of all pods of a large
//! cluster. An entry for each of them, with name, uid and version, would fill a journal within
//! hours. So the journal gets them once a second, or when a call may read them.

use std::collections::{BTreeMap, BTreeSet};

use super::object::{ChangeTimes, Object};
use super::patch::BytesPatch;
use super::slots::Slot;
use super::{FieldsId, ViewId};
use crate::msgpack::{self, MAX_DEPTH, Value};
use crate::object::ApiResource;
use crate::time::Instant;

/// What changes in a node when its kubelet has nothing new to say.
const HEARTBEAT: &str = "lastHeartbeatTime";

/// Objects that were renewed: Leases, and nodes of which only the times of heartbeats changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renewals {
    /// What changed in each, by their slots.
    pub renewed: BTreeMap<Slot, Renewal>,
}

/// An object that has other fields, and whose name and uid stay. Its version is not recorded, as
/// with every change that is only a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// When it changed, as the host saw it.
    pub at: Instant,
    /// Sets of fields that changed earlier.
    pub(crate) earlier: Vec<(FieldsId, Instant)>,
    /// What changed in the declared fields, as MessagePack.
    pub(crate) patch: BytesPatch,
}

/// The renewals that the journal has not got yet.
#[derive(Debug, Default)]
pub(super) struct HeldRenewals {
    renewals: Renewals,
    /// The views in which they changed something.
    views: BTreeSet<ViewId>,
}

impl Renewals {
    /// The bytes of memory that they take.
    pub(crate) fn bytes(&self) -> usize {
        let each = |one: &Renewal| size_of::<(Slot, Renewal)>() + one.patch.bytes.len();
        self.renewed.values().map(each).sum()
    }
}

impl Renewal {
    /// The renewal that gave an object its fields, if it is one: those before and those after.
    pub(super) fn of(
        resource: &ApiResource,
        object: &Object,
        (before, after): (&[u8], &[u8]),
    ) -> Option<Self> {
        let is_one = if resource.are_leases() {
            // A Lease that is deleted is no renewal.
            let metadata = |data| msgpack::field(data, "metadata").ok().flatten();
            metadata(before) == metadata(after)
        } else {
            resource.are_nodes() && only_heartbeats_differ(before, after, MAX_DEPTH)
        };
        is_one.then_some(())?;
        Some(Self {
            at: object.last_changed(),
            earlier: object.changed_earlier().to_vec(),
            patch: BytesPatch::between(before, after)?,
        })
    }
}

impl HeldRenewals {
    /// Whether an object is among them.
    pub(super) fn have(&self, slot: Slot) -> bool {
        self.renewals.renewed.contains_key(&slot)
    }

    /// Adds one that changed something in these views.
    pub(super) fn add(&mut self, slot: Slot, renewal: Renewal, views: &[ViewId]) {
        self.renewals.renewed.insert(slot, renewal);
        self.views.extend(views);
    }

    /// The object in the slot has another state, or is gone: nobody has read this one.
    pub(super) fn forget(&mut self, slot: Slot) {
        self.renewals.renewed.remove(&slot);
    }

    /// Whether one of these views shows something of them.
    pub(super) fn are_in(&self, mut views: impl Iterator<Item = ViewId>) -> bool {
        views.any(|view| self.views.contains(&view))
    }

    /// All of them; none if there are none.
    pub(super) fn take(&mut self) -> Option<Renewals> {
        let Self { renewals, .. } = std::mem::take(self);
        (!renewals.renewed.is_empty()).then_some(renewals)
    }
}

impl Object {
    /// The object after a renewal; none if it is the renewal of another one.
    pub(crate) fn renewed(&self, renewal: &Renewal) -> Option<Self> {
        let changed = ChangeTimes::new(renewal.at, renewal.earlier.clone());
        let data = renewal.patch.apply(&self.data())?;
        Some(self.with_data(&data).with_changed(changed))
    }
}

/// Whether two values are equal but for the times of heartbeats.
fn only_heartbeats_differ(before: &[u8], after: &[u8], depth: usize) -> bool {
    if before == after {
        return true;
    }
    let (Some(depth), Ok(before), Ok(after)) = (
        depth.checked_sub(1),
        Value::read(before),
        Value::read(after),
    ) else {
        return false;
    };
    match (before, after) {
        (Value::Map(mut before), Value::Map(mut after)) => loop {
            match (before.next(), after.next()) {
                (None, None) => return true,
                (Some(Ok((key, before))), Some(Ok((other, after))))
                    if key == other
                        && (key == HEARTBEAT || only_heartbeats_differ(before, after, depth)) => {}
                _ => return false,
            }
        },
        (Value::List(mut before), Value::List(mut after)) => loop {
            match (before.next(), after.next()) {
                (None, None) => return true,
                (Some(Ok(before)), Some(Ok(after)))
                    if only_heartbeats_differ(before, after, depth) => {}
                _ => return false,
            }
        },
        _ => false,
    }
}
