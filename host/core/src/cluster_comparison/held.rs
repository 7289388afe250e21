//! The objects that the cluster has deleted and the controller has not decided on.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::object::{Kind, ObjectRef, Uid};
use crate::store::{Object, SegmentId};

/// The most objects that are held. Beyond that, what the cluster deletes first is unknown.
pub(super) const MOST_HELD: usize = 2_000;

/// Objects in the state before their deletion, by uid and by name.
#[derive(Debug, Default)]
pub(super) struct HeldObjects {
    objects: BTreeMap<Uid, (Kind, Arc<Object>)>,
    names: BTreeMap<(SegmentId, String), Uid>,
}

impl HeldObjects {
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<Object>> {
        self.objects.values().map(|(_, object)| object)
    }

    pub(super) fn contains(&self, uid: &Uid) -> bool {
        self.objects.contains_key(uid)
    }

    /// Holds an object; not beyond the bound.
    pub(super) fn hold(&mut self, kind: &Kind, object: &Arc<Object>) {
        if self.objects.len() < MOST_HELD {
            let (uid, held) = (object.uid().clone(), Arc::clone(object));
            self.names.insert(name(object), uid.clone());
            self.objects.insert(uid, (kind.clone(), held));
        }
    }

    pub(super) fn release(&mut self, uid: &Uid) -> Option<Arc<Object>> {
        let (_, object) = self.objects.remove(uid)?;
        self.names.remove(&name(&object));
        Some(object)
    }

    /// Releases the object whose name this one has taken: nobody reads it under it any more.
    pub(super) fn release_name_of(&mut self, present: &Object) -> Option<Arc<Object>> {
        let uid = self.names.get(&name(present))?.clone();
        self.release(&uid)
    }

    /// The object that a live read of one names.
    pub(super) fn named(&self, wanted: &ObjectRef) -> Option<&Uid> {
        let is_it = |(uid, (kind, it)): &(&Uid, &(Kind, Arc<Object>))| {
            let is_of_kind = *kind.kind == *wanted.kind && kind.group() == wanted.group();
            let is_named = it.namespace() == wanted.namespace && it.name() == wanted.name;
            is_of_kind && is_named && (wanted.uid.is_empty() || **uid == Uid::new(&wanted.uid))
        };
        self.objects.iter().find(is_it).map(|(uid, _)| uid)
    }

    /// The objects of a segment in a namespace; an empty one stands for all.
    pub(super) fn listed(&self, segments: &[SegmentId], namespace: &str) -> Vec<Uid> {
        let is_listed = |(_, (_, it)): &(&Uid, &(Kind, Arc<Object>))| {
            let is_in = namespace.is_empty() || it.namespace() == namespace;
            is_in && segments.contains(&it.segment())
        };
        let listed = self.objects.iter().filter(is_listed);
        listed.map(|(uid, _)| uid.clone()).collect()
    }
}

fn name(object: &Object) -> (SegmentId, String) {
    (object.segment(), object.key().to_owned())
}
