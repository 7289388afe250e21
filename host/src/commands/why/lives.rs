//! Which objects had a name, and when.

use std::collections::BTreeMap;
use std::sync::Arc;

use davit_core::journal::{Entry, Record};
use davit_core::object::ObjectRef;
use davit_core::store::{SegmentId, SegmentSpec, Slot, StateChange};

/// The object that is asked for.
#[derive(Clone, Debug)]
pub(in crate::commands) struct ObjectQuery {
    kind: String,
    /// The API group, if it was given.
    group: Option<String>,
    namespace: String,
    name: String,
    uid: Option<String>,
}

impl ObjectQuery {
    /// A kind or resource such as `deployments.apps`, and `namespace/name` or `name`.
    pub(in crate::commands) fn new(kind: &str, key: &str, uid: Option<&str>) -> Self {
        let (kind, group) = match kind.split_once('.') {
            Some((kind, group)) => (kind, Some(group.to_owned())),
            None => (kind, None),
        };
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        Self {
            kind: kind.to_owned(),
            group,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.map(str::to_owned),
        }
    }

    /// Whether it is this object. The resource's plural name is not always known.
    pub(in crate::commands) fn is(&self, object: &ObjectRef, plural: Option<&str>) -> bool {
        let of_kind = self.kind.eq_ignore_ascii_case(&object.kind)
            || plural.is_some_and(|plural| self.kind.eq_ignore_ascii_case(plural));
        let of_group = self.group.as_ref();
        of_kind
            && of_group.is_none_or(|group| group == object.group())
            && (&*self.namespace, &*self.name) == (&*object.namespace, &*object.name)
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
    specs: BTreeMap<SegmentId, Arc<SegmentSpec>>,
    by_uid: BTreeMap<String, Life>,
}

impl Lives {
    pub(super) fn new(wanted: ObjectQuery) -> Self {
        Self {
            wanted,
            specs: BTreeMap::new(),
            by_uid: BTreeMap::new(),
        }
    }

    /// Takes the next entry.
    pub(super) fn entry(&mut self, time: i64, record: &Record) {
        match &record.entry {
            // The whole state follows, also after a gap in which objects may have gone.
            Entry::Keyframe { .. } => {
                self.specs.clear();
                for life in self.by_uid.values_mut() {
                    life.slots.clear();
                }
            }
            Entry::KeyframeEnd => {
                for life in self.by_uid.values_mut() {
                    life.leave(time);
                }
            }
            Entry::Cache(change) => self.change(time, change),
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

    fn change(&mut self, time: i64, change: &StateChange) {
        match change {
            StateChange::AddSegment { segment, spec } => {
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
                if self.wanted.is(&object_ref, Some(&spec.resource.plural)) {
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
        let plural = self.specs.values();
        let plural = plural
            .filter(|spec| *spec.kind.kind == target.kind)
            .map(|spec| spec.resource.plural.clone())
            .next();
        if !target.uid.is_empty() && self.wanted.is(target, plural.as_deref()) {
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

    #[test]
    fn a_kind_is_found_by_its_name_its_resource_and_its_group() {
        for (kind, is_it) in [
            ("Pod", true),
            ("pod", true),
            ("pods", true),
            ("pods.apps", false),
            ("node", false),
        ] {
            let wanted = ObjectQuery::new(kind, "default/web-0", None);
            assert_eq!(wanted.is(&pod("a"), Some("pods")), is_it, "{kind}");
        }
        assert!(!ObjectQuery::new("pod", "web-0", None).is(&pod("a"), None));
        let other = ObjectQuery::new("pod", "default/web-0", Some("b"));
        assert!(!other.is(&pod("a"), None));
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
