//! What the keys of a queue name. The journal does not have the triggers of a guest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use davit_core::journal::RecordedCall;

/// A group and a kind.
pub(super) type GroupKind = (String, String);

/// The kinds of the objects that the keys of each queue name. Objects of several kinds may have
/// one name, so a single key does not say which of them it means: all keys together do.
#[derive(Debug, Default)]
pub(super) struct QueueKinds(BTreeMap<(Arc<str>, String), Kinds>);

#[derive(Debug)]
enum Kinds {
    /// Every key so far may name an object of each of these.
    Some(BTreeSet<GroupKind>),
    /// The keys name objects of several kinds.
    Mixed,
}

impl QueueKinds {
    /// Notes the items of a call.
    pub(super) fn note(&mut self, call: &RecordedCall) {
        for item in &call.items {
            let views = call.revision.views.values();
            let views = views.filter_map(|view| call.snapshot.view(*view));
            let named = views.filter_map(|view| {
                let kind = view.get(&item.key)?.kind;
                Some((kind.group().to_owned(), kind.kind.to_string()))
            });
            self.note_key(&call.controller, &item.queue, named.collect());
        }
    }

    /// A key of a queue is the name of objects of these kinds.
    fn note_key(&mut self, controller: &Arc<str>, queue: &str, named: BTreeSet<GroupKind>) {
        if named.is_empty() {
            return;
        }
        let queue = (Arc::clone(controller), queue.to_owned());
        match self.0.get_mut(&queue) {
            None => {
                self.0.insert(queue, Kinds::Some(named));
            }
            Some(Kinds::Mixed) => {}
            Some(kinds) => {
                if let Kinds::Some(known) = kinds {
                    known.retain(|kind| named.contains(kind));
                    if known.is_empty() {
                        *kinds = Kinds::Mixed;
                    }
                }
            }
        }
    }

    /// Whether a key of this queue may name an object of this kind.
    pub(super) fn may_name(&self, controller: &str, queue: &str, kind: &GroupKind) -> bool {
        match self.0.get(&(controller.into(), queue.to_owned())) {
            Some(Kinds::Some(kinds)) => kinds.contains(kind),
            Some(Kinds::Mixed) | None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str) -> GroupKind {
        (String::new(), name.to_owned())
    }

    #[test]
    fn the_keys_of_a_queue_say_together_which_kind_they_name() {
        let mut queues = QueueKinds::default();
        let controller: Arc<str> = "c".into();
        let mut note = |queue: &str, kinds: &[&str]| {
            let named = kinds.iter().map(|name| kind(name)).collect();
            queues.note_key(&controller, queue, named);
        };
        note("web", &["Pod", "Service"]);
        note("web", &[]);
        note("web", &["Service"]);
        note("all", &["Pod"]);
        note("all", &["Service"]);
        let may = |queue: &str, name: &str| queues.may_name("c", queue, &kind(name));
        assert!(may("web", "Service") && !may("web", "Pod"));
        assert!(may("all", "Service") && may("all", "Pod"));
        assert!(may("other", "Pod"));
    }
}
