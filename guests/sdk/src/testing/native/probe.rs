//! What the harness adds to the calls of its guest, and what it records of them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use crate::{Level, ObjectRef};

/// The harness's part in the calls of its guest.
#[derive(Debug, Default)]
pub(in super::super) struct Probe {
    /// Failures that no answer of the API server has: the class, by kind, namespace and
    /// name of the object that is read live.
    pub(in super::super) failures: BTreeMap<[String; 3], String>,
    /// What the guest has logged.
    pub(in super::super) logged: RefCell<Vec<(Level, String)>>,
    /// How many objects it has copied from the cache.
    pub(in super::super) objects_read: Cell<u64>,
}

impl Probe {
    /// The present state of the records, for [`Self::rewind`].
    pub(in super::super) fn mark(&self) -> (usize, u64) {
        (self.logged.borrow().len(), self.objects_read.get())
    }

    /// Drops what was recorded since then.
    pub(in super::super) fn rewind(&mut self, (lines, objects_read): (usize, u64)) {
        self.logged.get_mut().truncate(lines);
        self.objects_read.set(objects_read);
    }

    pub(super) fn log(&self, level: Level, message: &str) {
        self.logged.borrow_mut().push((level, message.to_owned()));
    }

    pub(super) fn copied(&self) {
        self.objects_read.set(self.objects_read.get() + 1);
    }

    /// The class of the failure of a live read of an object, if it is to fail.
    pub(super) fn failure(&self, object: &ObjectRef) -> Option<&String> {
        let ObjectRef {
            kind,
            namespace,
            name,
            ..
        } = object;
        let object = [kind, namespace, name].map(String::clone);
        self.failures.get(&object)
    }
}
