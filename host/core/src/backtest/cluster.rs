//! The recorded cluster as the policy under test left it: history, with what the policy
//! deleted, patched and kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::history::{History, VersionedObject};
use super::patch::{self, LastingPatch};
use super::recent::RecentUids;
use super::stays::Stays;
use crate::expectation::WriteResult;
use crate::failure::{Failure, FailureClass};
use crate::msgpack;
use crate::object::{ObjectRef, ProjectedObject, Uid};
use crate::path::FieldTree;
use crate::plan::{DeleteOptions, Patch};
use crate::store::{Object, SegmentId, SegmentSpec};
use crate::time::Instant;

/// How many patches of one object are applied to its later states.
const MOST_PATCHES: usize = 8;

/// Where an object is: its list, and its state.
pub(super) type ListedObject = (Arc<SegmentSpec>, VersionedObject);

/// A group and a kind.
pub(super) type GroupKind = (Box<str>, Box<str>);

/// The effects of the policy. Everything is by uid, so that it outlives the host that
/// recorded.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    /// What the policy deleted, and history has or had a short while ago, by the kind of each.
    deleted: BTreeMap<Uid, GroupKind>,
    /// What history has removed lately and the policy had changed.
    departed: RecentUids,
    /// What history deleted because the recorded policy did, and this one kept.
    kept: BTreeMap<Uid, Vec<ListedObject>>,
    kept_names: BTreeMap<(Arc<SegmentSpec>, Box<str>), Uid>,
    /// What the recorded policy deletes and this one kept: it keeps its state, and does not see
    /// what that deletion changes.
    doomed: BTreeMap<Uid, Doomed>,
    stays: Stays,
    patches: BTreeMap<Uid, Vec<LastingPatch>>,
}

/// An object that the recorded policy deletes.
#[derive(Debug)]
struct Doomed {
    doom: Doom,
    /// Its states before the deletion, in each of its lists.
    states: Vec<ListedObject>,
}

/// How far the recorded deletion of an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doom {
    /// Its request is under way.
    Requested,
    /// It has succeeded, and history may still have the object.
    Accepted,
}

/// A write that is not applied.
#[derive(Debug)]
pub(super) enum WriteError {
    /// The API server would have refused it.
    Failed(Failure),
    /// The backtest cannot say what it does.
    NotModelled,
    /// No recorded list has the kind of the target: nobody knows whether it exists.
    NotRecorded,
}

impl Overlay {
    pub(super) fn is_deleted(&self, uid: &Uid) -> bool {
        self.deleted.contains_key(uid)
    }

    pub(super) fn is_doomed(&self, uid: &Uid) -> bool {
        self.doomed.contains_key(uid)
    }

    /// The recorded policy deletes an object that this one keeps, in these states. It stays
    /// until then.
    pub(super) fn doom(&mut self, uid: Uid, states: Vec<ListedObject>, until: Instant) {
        if !self.is_doomed(&uid) {
            let doom = Doom::Requested;
            self.stays.add(&uid, until);
            self.doomed.insert(uid, Doomed { doom, states });
        }
    }

    /// The states in which an object stays that the recorded policy is deleting.
    fn doomed_states(&self, uid: &Uid) -> Option<&[ListedObject]> {
        let doomed = self.doomed.get(uid)?;
        (!doomed.states.is_empty()).then_some(&*doomed.states)
    }

    /// The object of a list as it stays for the policy.
    fn lasting<'o>(&'o self, held: &'o VersionedObject) -> &'o VersionedObject {
        let object = &held.object;
        let states = self.doomed_states(object.uid());
        let mut states = states.into_iter().flatten().map(|(_, state)| state);
        let lasting = states.find(|state| state.object.segment() == object.segment());
        lasting.unwrap_or(held)
    }

    /// When the next object that the recorded policy deleted stays no longer.
    pub(super) fn next_end(&self) -> Instant {
        self.stays.next().unwrap_or(Instant::FAR_FUTURE)
    }

    /// An object that stays no longer.
    pub(super) fn end_stay(&mut self, now: Instant) -> Option<Uid> {
        self.stays.end(now)
    }

    /// The recorded policy has deleted an object.
    pub(super) fn accept(&mut self, uid: &Uid) {
        if self.keeps(uid) {
            self.doomed.remove(uid);
        } else if let Some(doomed) = self.doomed.get_mut(uid) {
            doomed.doom = Doom::Accepted;
        }
    }

    /// History has removed an object from its last list. If it is kept, its deletion may still
    /// fail: somebody else was faster.
    pub(super) fn leave(&mut self, uid: &Uid) {
        let doomed = self.doomed.get(uid);
        if doomed.is_some_and(|one| one.doom == Doom::Accepted) || !self.keeps(uid) {
            self.doomed.remove(uid);
        }
    }

    /// The recorded policy could not delete an object.
    pub(super) fn spare(&mut self, uid: &Uid) -> bool {
        self.stays.remove(uid);
        self.doomed.remove(uid).is_some()
    }

    /// The host that recorded has ended: what it was deleting may be gone. Returns what is kept
    /// although nothing says that this host has deleted it.
    pub(super) fn restart(&mut self) -> Vec<Uid> {
        // Another host's lists have other numbers.
        let patches = self.patches.values_mut().flatten();
        patches.for_each(LastingPatch::restart);
        let doomed = std::mem::take(&mut self.doomed).into_iter();
        let requested = doomed.filter(|(_, doomed)| doomed.doom == Doom::Requested);
        let uids = requested.map(|(uid, _)| uid);
        uids.filter(|uid| self.keeps(uid)).collect()
    }

    /// History has removed an object from its last list. It may return, and what the policy did
    /// to it still holds then.
    pub(super) fn depart(&mut self, uid: &Uid, history: &History) {
        if !self.is_deleted(uid) && !self.patches.contains_key(uid) {
            return;
        }
        let oldest = self.departed.insert(uid);
        if let Some(oldest) = oldest.filter(|uid| !history.has(uid)) {
            self.forget(&oldest);
        }
    }

    /// History has another state of an object: a patch is over if somebody has written what it
    /// wrote.
    pub(super) fn end_patches(&mut self, object: &Object) {
        if let Some(patches) = self.patches.get_mut(object.uid()) {
            patch::follow(patches, object);
        }
    }

    /// An object that history does not have will not return.
    pub(super) fn forget(&mut self, uid: &Uid) {
        self.deleted.remove(uid);
        self.patches.remove(uid);
    }

    /// Keeps an object that history has removed, as it was before its deletion.
    pub(super) fn keep(&mut self, spec: &Arc<SegmentSpec>, object: &VersionedObject) {
        let object = self.lasting(object).clone();
        let uid = object.object.uid().clone();
        let name = (Arc::clone(spec), Box::from(object.object.key()));
        self.kept_names.insert(name, uid.clone());
        let kept = self.kept.entry(uid).or_default();
        kept.push((Arc::clone(spec), object));
    }

    /// Drops the object that was kept under this name: history has another one there.
    pub(super) fn replace(&mut self, spec: &Arc<SegmentSpec>, key: &str) -> Option<Uid> {
        if self.kept_names.is_empty() {
            return None;
        }
        let uid = self.kept_names.get(&(Arc::clone(spec), Box::from(key)))?;
        let uid = uid.clone();
        self.unkeep(&uid);
        Some(uid)
    }

    /// Keeps an object no more.
    pub(super) fn unkeep(&mut self, uid: &Uid) {
        self.stays.remove(uid);
        self.doomed.remove(uid);
        for (spec, held) in self.kept.remove(uid).unwrap_or_default() {
            self.kept_names
                .remove(&(spec, Box::from(held.object.key())));
        }
    }

    /// Whether an object is kept that history does not have any more.
    pub(super) fn keeps(&self, uid: &Uid) -> bool {
        self.kept.contains_key(uid)
    }

    /// The object of a list with this key, if it is kept and history does not have it any more.
    pub(super) fn kept_under(
        &self,
        spec: &Arc<SegmentSpec>,
        key: &str,
    ) -> Option<&VersionedObject> {
        if self.kept_names.is_empty() {
            return None;
        }
        let uid = self.kept_names.get(&(Arc::clone(spec), Box::from(key)))?;
        let mut kept = self.kept.get(uid)?.iter();
        kept.find(|(of, _)| of == spec).map(|(_, held)| held)
    }

    /// The objects of a list that history does not have any more.
    pub(super) fn kept_in(&self, spec: &SegmentSpec) -> impl Iterator<Item = &VersionedObject> {
        let kept = self.kept.values().flatten();
        kept.filter(move |(of, _)| **of == *spec)
            .map(|(_, held)| held)
    }

    /// Whole lists of a kind are known again after a restart: what was deleted and is not in
    /// them is gone.
    pub(super) fn prune(&mut self, kind: &GroupKind, history: &History) {
        self.deleted
            .retain(|uid, of| of != kind || history.has(uid));
    }

    /// The object as the policy sees it, with these fields; nothing if the policy deleted it.
    pub(super) fn project(
        &self,
        held: &VersionedObject,
        fields: &FieldTree,
        narrows: bool,
    ) -> Option<ProjectedObject> {
        let held = self.lasting(held);
        let object = &held.object;
        if self.is_deleted(object.uid()) {
            return None;
        }
        let patched = self.patched(object, fields);
        let data = match patched {
            Some(data) => data.into(),
            None if narrows => match msgpack::select(fields, &object.data()) {
                Ok(data) => data.into(),
                Err(_) => object.data().into(),
            },
            None => object.data().into(),
        };
        Some(ProjectedObject {
            namespace: object.namespace().into(),
            name: object.name().into(),
            uid: object.uid().clone(),
            resource_version: held.version.to_string().into(),
            data,
        })
    }

    fn patched(&self, object: &Object, fields: &FieldTree) -> Option<Vec<u8>> {
        if self.patches.is_empty() {
            return None;
        }
        let patches = self.patches.get(object.uid())?;
        let mut data = object.data().into_owned();
        for one in patches {
            data = one.apply(data);
        }
        msgpack::select(fields, &data).ok()
    }
}

/// History and overlay together.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    pub(super) history: History,
    pub(super) overlay: Overlay,
}

impl Cluster {
    /// The object with this uid in each of its lists, as the policy left it.
    pub(super) fn find(&self, uid: &Uid) -> Vec<ListedObject> {
        if self.overlay.is_deleted(uid) {
            return Vec::new();
        }
        self.recorded(uid)
    }

    /// The same whether or not the policy deleted it.
    pub(super) fn recorded(&self, uid: &Uid) -> Vec<ListedObject> {
        if let Some(states) = self.overlay.doomed_states(uid) {
            return states.to_vec();
        }
        let listed = self.history.with_uid(uid).filter_map(|held| {
            let list = self.history.list(held.object.segment())?;
            Some((Arc::clone(&list.spec), held.clone()))
        });
        let mut found: Vec<ListedObject> = listed.collect();
        if found.is_empty() {
            found.extend(self.overlay.kept.get(uid).into_iter().flatten().cloned());
        }
        found
    }

    /// Whether history has an object, or the policy keeps it.
    pub(super) fn has_or_keeps(&self, uid: &Uid) -> bool {
        self.history.has(uid) || self.overlay.keeps(uid)
    }

    /// Whether the journal had a list of an object's kind so far: without one, an object that is
    /// not known may exist.
    pub(super) fn has_recorded_kind_of(&self, target: &ObjectRef) -> bool {
        self.history.has_recorded(target.group(), &target.kind)
    }

    /// The object of a plan, with the uid and the name that the plan names.
    fn target(&self, target: &ObjectRef) -> Result<(Uid, Vec<ListedObject>), WriteError> {
        let uid = Uid::new(&target.uid);
        let found = self.find(&uid);
        let Some((_, held)) = found.first() else {
            if !self.has_recorded_kind_of(target) {
                return Err(WriteError::NotRecorded);
            }
            let message = format!("{target} does not exist");
            return Err(failed(FailureClass::NotFound, message));
        };
        let object = &held.object;
        if object.name() != target.name || object.namespace() != target.namespace {
            let message = format!("{target} is another object");
            return Err(failed(FailureClass::UidMismatch, message));
        }
        Ok((uid, found))
    }

    /// Whether an object can be deleted.
    pub(super) fn check_deletion(
        &self,
        target: &ObjectRef,
        options: &DeleteOptions,
    ) -> Result<(), WriteError> {
        let (_, found) = self.target(target)?;
        let wanted = &options.resource_version;
        if wanted.is_empty() {
            return Ok(());
        }
        check_version(target, wanted, &found)
    }

    /// Deletes an object: for the policy it is gone.
    pub(super) fn delete(&mut self, target: &ObjectRef) {
        let uid = Uid::new(&target.uid);
        self.overlay.unkeep(&uid);
        if self.history.has(&uid) {
            let kind = (target.group().into(), target.kind.as_str().into());
            self.overlay.deleted.insert(uid, kind);
        } else {
            self.overlay.forget(&uid);
        }
    }

    /// Patches an object. Returns the written version.
    pub(super) fn patch(
        &mut self,
        target: &ObjectRef,
        patch: &Patch,
    ) -> Result<WriteResult, WriteError> {
        let (uid, found) = self.target(target)?;
        if let Some(wanted) = patch::wanted_version(patch) {
            check_version(target, &wanted, &found)?;
        }
        let objects = || found.iter().map(|(_, held)| &*held.object);
        let applies =
            objects().all(|object| patch::apply(patch, &object.data(), &FieldTree::All).is_some());
        let lasting = LastingPatch::new(patch, objects());
        let Some(lasting) = lasting.filter(|_| applies) else {
            return Err(WriteError::NotModelled);
        };
        let patches = self.overlay.patches.entry(uid.clone()).or_default();
        // The last one decides: an earlier one that is the same adds nothing.
        patches.retain(|one| !one.is_same(&lasting));
        if patches.len() == MOST_PATCHES {
            // Without one of them, the object would be another one.
            return Err(WriteError::NotModelled);
        }
        patches.push(lasting);
        let version = self.history.touch(&uid);
        let overlay = &mut self.overlay;
        let kept = overlay.kept.get_mut(&uid).into_iter().flatten();
        let doomed = overlay.doomed.get_mut(&uid).into_iter();
        for (_, held) in kept.chain(doomed.flat_map(|doomed| &mut doomed.states)) {
            held.version = version;
        }
        Ok(WriteResult::Version(version))
    }

    /// The list of a segment.
    pub(super) fn spec(&self, segment: SegmentId) -> Option<&Arc<SegmentSpec>> {
        Some(&self.history.list(segment)?.spec)
    }
}

/// Fails if an object has another version by now.
fn check_version(
    target: &ObjectRef,
    wanted: &str,
    found: &[ListedObject],
) -> Result<(), WriteError> {
    let mut versions = found.iter().map(|(_, held)| held.version.to_string());
    if versions.any(|version| version == wanted) {
        return Ok(());
    }
    let message = format!("{target} does not have the version {wanted} any more");
    Err(failed(FailureClass::Conflict, message))
}

fn failed(class: FailureClass, message: String) -> WriteError {
    WriteError::Failed(Failure::new(class, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two groups may have a kind of the same name, and their lists come one after the other.
    #[test]
    fn the_list_of_one_group_proves_nothing_about_another_one() {
        let mut overlay = Overlay::default();
        let kind = |group: &str| (group.into(), "Ingress".into());
        let uid = Uid::new("a");
        overlay
            .deleted
            .insert(uid.clone(), kind("networking.k8s.io"));
        overlay.prune(&kind("extensions"), &History::default());
        assert!(overlay.is_deleted(&uid));
        overlay.prune(&kind("networking.k8s.io"), &History::default());
        assert!(!overlay.is_deleted(&uid));
    }
}
