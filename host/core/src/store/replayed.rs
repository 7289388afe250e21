//! The cache of a host, made again from the changes that its journal has.

use std::sync::Arc;

use super::change::StateChange;
use super::renewal::Renewals;
use super::slots::Slot;
use super::state::State;
use super::{Object, ResourceVersion, SegmentId, Snapshot, ViewId};
use crate::object::Uid;

/// The highest slot that is accepted. Objects of a slot take memory for every slot below.
const MOST_SLOTS: Slot = 1 << 24;

/// A change that does not fit the state: a part of the journal is missing or wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the journal's changes of the cache do not fit: {0}")]
pub struct MisfitChange(String);

/// The state of a store, from its changes. They are not trusted.
#[derive(Clone, Debug, Default)]
pub struct ReplayedCache(State);

impl ReplayedCache {
    /// The state at this moment. Taking it is cheap, and later changes do not change it.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.0.clone())
    }

    /// Applies a change. Nothing is changed if it does not fit.
    pub fn apply(&mut self, change: &StateChange) -> Result<(), MisfitChange> {
        match change {
            StateChange::AddView(definition) => {
                self.check_view(definition.view, false)?;
                self.0.add_view(definition.view, definition.state());
            }
            StateChange::DropView(view) => {
                self.check_view(*view, true)?;
                self.0.drop_view(*view);
            }
            StateChange::AddSegment { segment, spec } => {
                self.check_segment(*segment, false)?;
                self.0.add_segment(*segment, spec.kind.clone());
            }
            StateChange::DropSegment(segment) => {
                self.check_segment(*segment, true)?;
                if self.0.views().any(|(_, view)| view.shows(*segment)) {
                    return Err(misfit(format!("a view shows segment {}", segment.0)));
                }
                self.0.drop_segment(*segment);
            }
            StateChange::Show { view, segment } => self.show(*view, *segment, true)?,
            StateChange::Hide { view, segment } => self.show(*view, *segment, false)?,
            StateChange::Width {
                view,
                segment,
                is_wider,
            } => {
                self.check_view(*view, true)?;
                self.0.set_wider(*view, *segment, *is_wider);
            }
            StateChange::Put { slot, object, .. } => self.put(*slot, object)?,
            StateChange::Renew(renewals) => self.renew(renewals)?,
            StateChange::Remove { slot, uid } => self.remove(*slot, uid)?,
        }
        Ok(())
    }

    fn show(&mut self, view: ViewId, segment: SegmentId, shows: bool) -> Result<(), MisfitChange> {
        self.check_view(view, true)?;
        self.check_segment(segment, true)?;
        let is_shown = self.0.view(view).is_some_and(|view| view.shows(segment));
        if is_shown == shows {
            return Err(misfit(format!("view {} already does", view.0)));
        }
        if shows {
            self.0.show(view, segment);
        } else {
            self.0.hide(view, segment);
        }
        Ok(())
    }

    fn put(&mut self, slot: Slot, object: &Arc<Object>) -> Result<(), MisfitChange> {
        let segment = object.segment();
        self.check_segment(segment, true)?;
        if slot >= MOST_SLOTS {
            return Err(misfit(format!("slot {slot} is too high")));
        }
        let old = self.0.object(slot).cloned();
        match &old {
            None => self.0.insert(slot, object.clone()),
            Some(old)
                if old.segment() == segment
                    && old.uid() == object.uid()
                    && old.key() == object.key() =>
            {
                self.0.update(slot, object.clone());
            }
            Some(_) => return Err(misfit(format!("slot {slot} has another object"))),
        }
        self.0.reindex_all(slot, old.as_deref(), Some(object));
        Ok(())
    }

    fn renew(&mut self, renewals: &Renewals) -> Result<(), MisfitChange> {
        let mut renewed = Vec::new();
        for (slot, renewal) in &renewals.renewed {
            let old = self.0.object(*slot);
            let Some(object) = old.and_then(|old| old.renewed(renewal)) else {
                return Err(misfit(format!(
                    "slot {slot} does not have what was renewed"
                )));
            };
            renewed.push((*slot, Arc::new(object)));
        }
        let mut renewed = renewed.iter();
        renewed.try_for_each(|(slot, object)| self.put(*slot, object))
    }

    fn remove(&mut self, slot: Slot, uid: &Uid) -> Result<(), MisfitChange> {
        let is_another = |object: &Arc<Object>| object.uid() != uid;
        if self.0.object(slot).is_none_or(is_another) {
            return Err(misfit(format!("slot {slot} does not have {uid}")));
        }
        if let Some(old) = self.0.remove(slot) {
            self.0.reindex_all(slot, Some(&old), None);
        }
        Ok(())
    }

    fn check_view(&self, view: ViewId, is_there: bool) -> Result<(), MisfitChange> {
        if self.0.view(view).is_some() == is_there {
            return Ok(());
        }
        let state = if is_there { "unknown" } else { "known" };
        Err(misfit(format!("view {} is {state}", view.0)))
    }

    fn check_segment(&self, segment: SegmentId, is_there: bool) -> Result<(), MisfitChange> {
        if self.0.segment(segment).is_some() == is_there {
            return Ok(());
        }
        let state = if is_there { "unknown" } else { "known" };
        Err(misfit(format!("segment {} is {state}", segment.0)))
    }
}

fn misfit(why: String) -> MisfitChange {
    MisfitChange(why)
}

impl Snapshot {
    /// The slots of the objects with that uid, each with the version that the object has.
    pub(crate) fn slots_of(&self, uid: &Uid) -> impl Iterator<Item = (Slot, &ResourceVersion)> {
        let slots = self.state().slots_with_uid(uid);
        slots.map(|(slot, object)| (slot, object.version()))
    }

    /// The same with other versions of some objects.
    #[must_use]
    pub(crate) fn with_versions(&self, versions: &[(Slot, ResourceVersion)]) -> Self {
        let mut state = self.state().clone();
        for (slot, version) in versions {
            let known = state.object(*slot).map(|object| object.version());
            if known.is_some_and(|known| known != version) {
                state.set_version(*slot, version.clone());
            }
        }
        Self::new(state)
    }
}
