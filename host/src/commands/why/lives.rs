//! Which objects had a name, and when.

use std::collections::BTreeMap;
use std::sync::Arc;

use davit_core::journal::{Entry, Record};
use davit_core::object::ObjectRef;
use davit_core::store::{SegmentId, SegmentSpec, Slot, StateChange};

use super::kinds::{KindQuery, KnownKinds};

/// The object that is asked for.
#[derive(Clone, Debug)]
pub(in crate::commands) struct ObjectQuery {
    kind: KindQuery,
    namespace: String,
    name: String,
    uid: Option<String>,
}

impl ObjectQuery {
    /// A kind or resource such as `deployments.apps`, and `namespace/name` or `name`.
    pub(in crate::commands) fn new(kind: &str, key: &str, uid: Option<&str>) -> Self {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        Self {
            kind: KindQuery::new(kind),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.map(str::to_owned),
        }
    }

    /// Whether it is this object, of a resource with this plural name.
    pub(in crate::commands) fn is(&self, object: &ObjectRef, plural: &str) -> bool {
        self.kind.is_of(object, plural) && self.names(object)
    }

    /// Whether this object of the kind has the name, and the uid if one is asked for.
    fn names(&self, object: &ObjectRef) -> bool {
        (&*self.namespace, &*self.name) == (&*object.namespace, &*object.name)
            && self.uid.as_ref().is_none_or(|uid| *uid == object.uid)
    }
}

/// One object of the journal, and the times between which the journal names it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Life {
    pub(super) object: ObjectRef,
    /// When the journal first has it, in microseconds since the Unix epoch. An object of the
    /// first keyframe is older.
    pub(super) first: i64,
    /// When the journal last names it.
    pub(super) last: i64,
    /// When it left the cache; none if it never was there, or still is at the end.
    pub(super) left: Option<i64>,
    slots: BTreeMap<Slot, SegmentId>,
    was_cached: bool,
}

impl Life {
    /// Whether the object had its name at this time, as far as the journal says. One that the
    /// cache never had is known from its plans alone.
    pub(super) fn had_name_at(&self, time: i64) -> bool {
        let last = if self.was_cached {
            self.left
        } else {
            Some(self.last)
        };
        self.first <= time && last.is_none_or(|last| time <= last)
    }

    fn leave(&mut self, time: i64) {
        if self.slots.is_empty() && self.was_cached {
            self.left.get_or_insert(time);
        }
    }
}

/// The objects that are asked for, by their uids.
#[derive(Debug)]
pub(super) struct Lives {
    wanted: ObjectQuery,
    kinds: KnownKinds,
    specs: BTreeMap<SegmentId, Arc<SegmentSpec>>,
    by_uid: BTreeMap<String, Life>,
}

impl Lives {
    pub(super) fn new(wanted: ObjectQuery) -> Self {
        Self {
            kinds: KnownKinds::new(wanted.kind.clone()),
            wanted,
            specs: BTreeMap::new(),
            by_uid: BTreeMap::new(),
        }
    }

    /// Takes the next entry.
    pub(super) fn entry(&mut self, time: i64, record: &Record) {
        match &record.entry {
            // The whole state follows, also after a gap in which objects may have gone.
            Entry::Keyframe { .. } => self.restart(),
            Entry::KeyframeEnd => {
                for life in self.by_uid.values_mut() {
                    life.leave(time);
                }
            }
            Entry::Cache(change) => self.change(time, change),
            Entry::Mapping(mapping) => self.kinds.note_mapping(mapping),
            Entry::Answer(answer) => {
                let decisions = answer.result.iter().flatten();
                for plan in decisions.flat_map(|decision| &decision.plans) {
                    self.named(time, &plan.target);
                }
            }
            Entry::Ruling(ruling) => self.named(time, &ruling.target),
            Entry::Execution(execution) => self.named(time, &execution.target),
            _ => {}
        }
    }

    /// Another host may record from here on: its identifiers are others.
    pub(super) fn restart(&mut self) {
        self.specs.clear();
        for life in self.by_uid.values_mut() {
            life.slots.clear();
        }
    }

    fn change(&mut self, time: i64, change: &StateChange) {
        match change {
            StateChange::AddSegment { segment, spec } => {
                self.kinds.note_list(spec);
                self.specs.insert(*segment, Arc::clone(spec));
            }
            StateChange::DropSegment(segment) => {
                for life in self.by_uid.values_mut() {
                    life.slots.retain(|_, one| one != segment);
                    life.leave(time);
                }
            }
            StateChange::Put { slot, object, .. } => {
                let Some(spec) = self.specs.get(&object.segment()) else {
                    return;
                };
                // Most objects have another name: no text is made for them.
                if object.name() != self.wanted.name {
                    return;
                }
                let object_ref = ObjectRef {
                    api_version: spec.kind.api_version.to_string(),
                    kind: spec.kind.kind.to_string(),
                    namespace: object.namespace().to_owned(),
                    name: object.name().to_owned(),
                    uid: object.uid().to_string(),
                };
                let kind = (object_ref.group().to_owned(), object_ref.kind.clone());
                if self.kinds.is_wanted(&kind) && self.wanted.names(&object_ref) {
                    let life = self.seen(time, object_ref);
                    life.slots.insert(*slot, object.segment());
                    life.was_cached = true;
                    life.left = None;
                }
            }
            StateChange::Remove { slot, uid } if !self.by_uid.is_empty() => {
                if let Some(life) = self.by_uid.get_mut(&uid.to_string()) {
                    life.slots.remove(slot);
                    life.last = life.last.max(time);
                    life.leave(time);
                }
            }
            _ => {}
        }
    }

    /// A plan names an object, which the cache may not have.
    fn named(&mut self, time: i64, target: &ObjectRef) {
        let is_of_kind = self.kinds.is_of(target);
        if !target.uid.is_empty() && is_of_kind && self.wanted.names(target) {
            self.seen(time, target.clone());
        }
    }

    fn seen(&mut self, time: i64, object: ObjectRef) -> &mut Life {
        let life = self.by_uid.entry(object.uid.clone());
        let life = life.or_insert_with(|| Life {
            object,
            first: time,
            last: time,
            left: None,
            slots: BTreeMap::new(),
            was_cached: false,
        });
        life.first = life.first.min(time);
        life.last = life.last.max(time);
        life
    }

    /// The kinds of the objects that the journal has, if it does not know the wanted kind.
    pub(super) fn other_kinds(&self) -> Option<Vec<String>> {
        self.kinds.others()
    }

    /// The objects, in the order of their first times.
    pub(super) fn into_all(self) -> Vec<Life> {
        let mut all: Vec<Life> = self.by_uid.into_values().collect();
        all.sort_by_key(|life| life.first);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str) -> ObjectRef {
        ObjectRef {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            namespace: "default".to_owned(),
            name: "web-0".to_owned(),
            uid: uid.to_owned(),
        }
    }

    /// A list of kind `Pod`.
    fn spec(group: &str, plural: &str) -> SegmentSpec {
        let resource = davit_core::object::ApiResource::new(group, "v1", plural);
        SegmentSpec::new(resource, "Pod", true)
    }

    #[test]
    fn an_object_is_found_by_its_kind_its_resource_and_its_group() {
        for (kind, is_it) in [
            ("Pod", true),
            ("pod", true),
            ("pods", true),
            ("po", true),
            ("pods.apps", false),
            ("node", false),
        ] {
            let mut lives = Lives::new(ObjectQuery::new(kind, "default/web-0", None));
            lives.kinds.note_list(&spec("", "pods"));
            lives.named(1, &pod("a"));
            assert_eq!(!lives.into_all().is_empty(), is_it, "{kind}");
        }
        let wanted = |key, uid| ObjectQuery::new("pod", key, uid);
        assert!(!wanted("web-0", None).names(&pod("a")));
        assert!(!wanted("default/web-0", Some("b")).names(&pod("a")));
    }

    /// It was deleted while nothing was recorded.
    #[test]
    fn an_object_that_a_keyframe_does_not_have_has_left_the_cache() {
        let mut lives = Lives::new(ObjectQuery::new("pod", "default/web-0", None));
        lives.named(1, &pod("first"));
        let life = lives.by_uid.get_mut("first").unwrap();
        life.slots.insert(7, SegmentId(1));
        life.was_cached = true;
        for (time, entry) in [
            (5, Entry::Keyframe { is_start: false }),
            (6, Entry::KeyframeEnd),
        ] {
            let now = davit_core::time::Now::default();
            lives.entry(time, &Record { now, entry });
        }
        let [life] = &*lives.into_all() else {
            panic!("one object");
        };
        assert_eq!(life.left, Some(6));
    }

    /// Two groups have kinds of the same name, with other plurals.
    #[test]
    fn the_plural_of_one_group_is_not_that_of_another_one() {
        let mut lives = Lives::new(ObjectQuery::new("podz", "default/web-0", None));
        lives.kinds.note_list(&spec("other", "podz"));
        lives.named(1, &pod("first"));
        assert!(lives.into_all().is_empty());
    }

    #[test]
    fn objects_of_the_same_name_are_distinguished_by_their_uids() {
        let mut lives = Lives::new(ObjectQuery::new("pod", "default/web-0", None));
        lives.named(5, &pod("second"));
        lives.named(1, &pod("first"));
        lives.named(3, &pod("first"));
        lives.named(4, &pod(""));
        let all = lives.into_all();
        let times: Vec<_> = all
            .iter()
            .map(|life| (&*life.object.uid, life.first, life.last, life.left))
            .collect();
        assert_eq!(times, [("first", 1, 3, None), ("second", 5, 5, None)]);
    }
}
