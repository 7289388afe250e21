//! What the harness adds to a call, and what it takes note of.

use std::cell::{Cell, RefCell};

use crate::{Level, UnlistedResource};

/// The harness's part in the calls of its guest.
#[derive(Debug, Default)]
pub(in super::super) struct Probe {
    /// The resources that every watch is told to lack objects of; none: as it is.
    pub(in super::super) unlisted: Option<Vec<UnlistedResource>>,
    /// What the guest has logged.
    pub(in super::super) logged: RefCell<Vec<(Level, String)>>,
    /// How many objects it has copied from the cache.
    pub(in super::super) objects_read: Cell<u64>,
}

impl Probe {
    pub(super) fn log(&self, level: Level, message: &str) {
        self.logged.borrow_mut().push((level, message.to_owned()));
    }

    pub(super) fn copied(&self) {
        self.objects_read.set(self.objects_read.get() + 1);
    }
}
