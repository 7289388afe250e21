//! The limits of a guest, and what happens when it exceeds one.

use std::time::Duration;

use davit_core::answer::DecisionLimits;
use wasmtime::ResourceLimiter;

use crate::usage::InstanceCount;

/// How often running guests are interrupted: then they pay for their CPU time, and
/// let other guests of the thread have their turn.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// The limits of one guest. A call that exceeds one fails, and costs the guest
/// the instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The number of its instances, and so of its calls at once.
    pub instances: u32,
    /// Bytes of linear memory of an instance.
    pub memory: usize,
    /// An idle instance whose memory exceeds this many bytes is dropped: linear
    /// memory never shrinks.
    pub idle_memory: usize,
    /// Elements of all tables of an instance together;
    /// [`Limits::MAX_TABLE_ELEMENTS`] at most.
    pub table_elements: usize,
    /// CPU time of a call, with what the host does for it. The host checks it every
    /// 10 ms, so a call may use a little more. Waiting for a live read does not count.
    pub cpu: Duration,
    /// The size of one answer, or of one request to the host, in the host's
    /// memory.
    pub answer: usize,
    /// How much one decision may contain.
    pub decision: DecisionLimits,
    /// How many objects one call may read live; a list counts as one.
    pub live_reads: usize,
    /// Objects or keys in one page of the cache. A guest that asks for more
    /// gets this many and a cursor.
    pub page: u32,
    /// Bytes of the objects in one page of the cache: it ends with the object that exceeds them.
    pub page_bytes: usize,
    /// How many bytes one call may log. The rest is dropped, with a note.
    pub log: usize,
}

impl Limits {
    /// The reserved size of each table: the largest value of
    /// [`Limits::table_elements`]. Rust guests need one element for each function
    /// whose address is taken.
    pub const MAX_TABLE_ELEMENTS: usize = 20_000;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            instances: 4,
            memory: 64 << 20,
            idle_memory: 16 << 20,
            table_elements: 10_000,
            cpu: Duration::from_secs(1),
            answer: 16 << 20,
            decision: DecisionLimits::default(),
            live_reads: 10_000,
            page: 5_000,
            page_bytes: 4 << 20,
            log: 16 << 10,
        }
    }
}

/// A limit that an instance exceeded. It is raised as the cause of a trap; its
/// type distinguishes it from other traps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the limit of {self:?} is exceeded")]
pub(crate) enum LimitExceeded {
    Cpu,
    Memory,
    TableElements,
    LiveReads,
}

/// Counts the memory and the table elements of one instance.
#[derive(Debug)]
pub(crate) struct Usage {
    pub(crate) memory: usize,
    table_elements: usize,
    limits: Limits,
    count: InstanceCount,
}

impl Usage {
    pub(crate) fn new(limits: Limits, count: InstanceCount) -> Self {
        Self {
            count,
            memory: 0,
            table_elements: 0,
            limits,
        }
    }
}

impl ResourceLimiter for Usage {
    /// A refusal is an error and not `Ok(false)`: the guest's allocator would turn that
    /// into a trap that does not mention memory.
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let wanted = grown(self.memory, current, desired);
        if wanted > self.limits.memory {
            return Err(LimitExceeded::Memory.into());
        }
        self.memory = wanted;
        self.count.grow(wanted);
        Ok(true)
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let wanted = grown(self.table_elements, current, desired);
        if wanted > self.limits.table_elements {
            return Err(LimitExceeded::TableElements.into());
        }
        self.table_elements = wanted;
        Ok(true)
    }
}

fn grown(total: usize, current: usize, desired: usize) -> usize {
    total.saturating_add(desired.saturating_sub(current))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::{InstanceUsage, UsageCounter};

    #[test]
    fn every_memory_of_an_instance_counts() {
        let counter = UsageCounter::default();
        let limits = Limits {
            memory: 10,
            ..Limits::default()
        };
        let mut usage = Usage::new(limits, counter.instance());
        let other = counter.instance();
        assert!(usage.memory_growing(0, 6, None).unwrap());
        assert!(usage.memory_growing(0, 4, None).unwrap());
        let of_both = InstanceUsage {
            instances: 2,
            memory: 10,
        };
        assert_eq!(counter.read(), of_both);
        let error = usage.memory_growing(4, 5, None).unwrap_err();
        assert_eq!(error.downcast_ref(), Some(&LimitExceeded::Memory));
        assert_eq!(usage.memory, 10);
        drop((usage, other));
        assert_eq!(counter.read(), InstanceUsage::default());
    }
}
