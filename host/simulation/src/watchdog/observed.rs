//! The writes of controllers, and the versions that the host has observed.

use std::collections::BTreeMap;
use std::time::Duration;

use davit_core::controller::{ControllerId, Outcome};
use davit_core::expectation::WriteResult;
use davit_core::object::{ObjectRef, ProjectedObject, Uid};
use davit_core::stream::Update;
use davit_core::time::Instant;

/// How long a host has to remember its writes (`davit_core::expectation::LAPSE`).
const LAPSE: Duration = Duration::from_secs(30);

/// The last writes of all controllers, and the versions that streams have delivered.
#[derive(Debug, Default)]
pub(super) struct Observations {
    writes: BTreeMap<(ControllerId, Uid), (WriteResult, Instant)>,
    /// The latest version of each object that a stream has delivered; the greatest
    /// number for an object that was deleted.
    delivered: BTreeMap<Uid, u64>,
}

impl Observations {
    /// A stream delivers updates to the host.
    pub(super) fn deliver(&mut self, updates: &[Update]) {
        for update in updates {
            match update {
                Update::Reset { items, .. } => items.iter().for_each(|item| self.observe(item)),
                Update::Apply(item) => self.observe(item),
                Update::Delete(item) => {
                    self.delivered.insert(item.uid.clone(), u64::MAX);
                }
                Update::Status(_) => {}
            }
        }
    }

    fn observe(&mut self, item: &ProjectedObject) {
        let version = item.resource_version.parse().unwrap_or(u64::MAX);
        let delivered = self.delivered.entry(item.uid.clone()).or_default();
        *delivered = version.max(*delivered);
    }

    /// The host receives the outcome of a plan.
    pub(super) fn end(
        &mut self,
        controller: ControllerId,
        uid: &str,
        outcome: &Outcome,
        now: Instant,
    ) {
        let is_gone = outcome.failed.is_some() && outcome.is_success();
        let written = if is_gone {
            Some(WriteResult::Gone)
        } else {
            outcome.written
        };
        let key = (controller, Uid::new(uid));
        match written {
            Some(written) => self.writes.insert(key, (written, now)),
            None => self.writes.remove(&key),
        };
    }

    /// Why a plan that is executed now is stale: the guest decided it before the controller's
    /// last write to the target.
    pub(super) fn stale(
        &self,
        controller: ControllerId,
        target: &ObjectRef,
        now: Instant,
    ) -> Option<&'static str> {
        let uid = Uid::new(&target.uid);
        let (written, at) = self.writes.get(&(controller, uid.clone()))?;
        if at.after(LAPSE) <= now {
            return None;
        }
        match written {
            WriteResult::Gone => Some("this controller has deleted"),
            WriteResult::Version(version) => {
                let delivered = self.delivered.get(&uid)?;
                (delivered < version).then_some("has a write that the host has not observed")
            }
            WriteResult::Unknown => None,
        }
    }
}
