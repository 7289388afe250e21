//! Heartbeats in a journal: many in one entry.
//!
//! The kubelet of each node renews a Lease every ten seconds: 5,000 nodes are 500 changes a
//! second, 25 times as many as those of all pods of a large cluster. An entry for each of them,
//! with name, uid and version, would fill a journal within hours.

use std::collections::BTreeMap;

use super::FieldsId;
use super::object::{ChangeTimes, Object};
use super::slots::Slot;
use crate::msgpack;
use crate::time::Instant;

/// Leases that were renewed, as the host saw it at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewals {
    /// When they changed.
    pub at: Instant,
    /// What they have now, by their slots.
    pub leases: BTreeMap<Slot, Renewal>,
}

/// A Lease that has other fields, and whose name and uid stay. Its version is not recorded, as
/// with every change that is only a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// Sets of fields that changed earlier.
    pub(crate) earlier: Vec<(FieldsId, Instant)>,
    /// The declared fields, as MessagePack.
    pub(crate) data: Vec<u8>,
}

impl Renewals {
    /// Whether an object with these fields before and after a change has the same metadata: a
    /// Lease that is deleted is no renewal.
    pub(super) fn keeps_metadata(before: &[u8], after: &[u8]) -> bool {
        let metadata = |data| msgpack::field(data, "metadata").ok().flatten();
        metadata(before) == metadata(after)
    }

    /// The bytes of its data.
    pub(crate) fn bytes(&self) -> usize {
        self.leases.values().map(|one| one.data.len()).sum()
    }
}

impl Renewal {
    /// The renewal that gave an object these fields.
    pub(super) fn of(object: &Object, data: &[u8]) -> Self {
        Self {
            earlier: object.changed_earlier().to_vec(),
            data: data.to_vec(),
        }
    }
}

impl Object {
    /// The object after a renewal.
    pub(crate) fn renewed(&self, at: Instant, renewal: &Renewal) -> Self {
        let changed = ChangeTimes::new(at, renewal.earlier.clone());
        self.with_data(&renewal.data).with_changed(changed)
    }
}
