//! What the instances of all guests of an engine use.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What all instances use at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InstanceUsage {
    /// The number of instances, idle ones included.
    pub instances: usize,
    /// The bytes of their linear memories.
    pub memory: usize,
}

/// Counts the instances of an engine. Clones are the same counter.
#[derive(Clone, Debug, Default)]
pub(crate) struct UsageCounter(Arc<Totals>);

#[derive(Debug, Default)]
struct Totals {
    instances: AtomicUsize,
    memory: AtomicUsize,
}

impl UsageCounter {
    pub(crate) fn read(&self) -> InstanceUsage {
        InstanceUsage {
            instances: self.0.instances.load(Ordering::Relaxed),
            memory: self.0.memory.load(Ordering::Relaxed),
        }
    }

    /// Counts an instance until the result is dropped.
    pub(crate) fn instance(&self) -> InstanceCount {
        self.0.instances.fetch_add(1, Ordering::Relaxed);
        InstanceCount {
            totals: Arc::clone(&self.0),
            memory: 0,
        }
    }
}

/// One instance that counts.
#[derive(Debug)]
pub(crate) struct InstanceCount {
    totals: Arc<Totals>,
    memory: usize,
}

impl InstanceCount {
    /// The instance has this much memory now. It never shrinks.
    pub(crate) fn grow(&mut self, memory: usize) {
        let by = memory.saturating_sub(self.memory);
        self.totals.memory.fetch_add(by, Ordering::Relaxed);
        self.memory += by;
    }
}

impl Drop for InstanceCount {
    fn drop(&mut self) {
        self.totals.instances.fetch_sub(1, Ordering::Relaxed);
        self.totals.memory.fetch_sub(self.memory, Ordering::Relaxed);
    }
}
