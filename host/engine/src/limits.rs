//! How much a guest may use, and what happens when it asks for more.

use std::time::Duration;

use wasmtime::ResourceLimiter;

/// How often running guests are interrupted: the unit of their CPU time, and the
/// longest that one keeps others of its thread waiting.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// How much one guest may use. A call that goes over a limit fails, and costs
/// the guest the instance that it ran in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many instances it has, so how many of its calls run at once.
    pub instances: u32,
    /// Bytes of linear memory of an instance.
    pub memory: usize,
    /// An idle instance whose memory has grown past this many bytes is given
    /// back instead of kept: linear memory never shrinks.
    pub idle_memory: usize,
    /// Elements of all tables of an instance together;
    /// [`Limits::MAX_TABLE_ELEMENTS`] at most.
    pub table_elements: usize,
    /// CPU time of a call. It gets this much and up to 20 ms more, by the
    /// clock that runs while it runs. Waiting for a live read does not count.
    pub cpu: Duration,
    /// Bytes that one answer, or one request to the host, takes in the host.
    pub answer: usize,
    /// Plans of one decision.
    pub plans: usize,
    /// Steps of one plan.
    pub steps: usize,
    /// Commands of one decision.
    pub commands: usize,
    /// Objects that one call may ask for by live reads; a list counts as one.
    pub live_reads: usize,
    /// Objects or keys in one part of an answer of the cache. A guest that
    /// asks for more gets this many and a cursor.
    pub page: u32,
    /// Bytes that one call may log. What is more is dropped, with a note.
    pub log: usize,
}

impl Limits {
    /// What the engine reserves for each table, so what
    /// [`Limits::table_elements`] can be at most. Rust guests need one element for each
    /// function whose address is taken.
    pub const MAX_TABLE_ELEMENTS: usize = 20_000;

    /// How many ticks a call may notice before it used up its CPU time. The
    /// first one comes a part of a tick after the call began.
    pub(crate) fn cpu_ticks(&self) -> u64 {
        let ticks = self.cpu.as_nanos().div_ceil(TICK.as_nanos());
        u64::try_from(ticks).unwrap_or(u64::MAX).saturating_add(1)
    }
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
            plans: 10_000,
            steps: 32,
            commands: 10_000,
            live_reads: 10_000,
            page: 5_000,
            log: 16 << 10,
        }
    }
}

/// A limit that an instance ran into. It is raised as the cause of a trap, and
/// told apart from other traps by its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the limit of {self:?} is exceeded")]
pub(crate) enum Exceeded {
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
}

impl Usage {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            memory: 0,
            table_elements: 0,
            limits,
        }
    }
}

impl ResourceLimiter for Usage {
    /// A refusal is an error and not `Ok(false)`: the guest's allocator would
    /// make a trap of that which says nothing of memory.
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let wanted = grown(self.memory, current, desired);
        if wanted > self.limits.memory {
            return Err(Exceeded::Memory.into());
        }
        self.memory = wanted;
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
            return Err(Exceeded::TableElements.into());
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

    #[test]
    fn cpu_time_is_never_less_than_the_limit() {
        let ticks = |cpu| {
            Limits {
                cpu,
                ..Limits::default()
            }
            .cpu_ticks()
        };
        assert_eq!(ticks(Duration::ZERO), 1);
        assert_eq!(ticks(Duration::from_millis(10)), 2);
        assert_eq!(ticks(Duration::from_millis(11)), 3);
        assert_eq!(ticks(Duration::from_secs(1)), 101);
        assert_eq!(ticks(Duration::MAX), u64::MAX);
    }

    #[test]
    fn every_memory_of_an_instance_counts() {
        let mut usage = Usage::new(Limits {
            memory: 10,
            ..Limits::default()
        });
        assert!(usage.memory_growing(0, 6, None).unwrap());
        assert!(usage.memory_growing(0, 4, None).unwrap());
        let error = usage.memory_growing(4, 5, None).unwrap_err();
        assert_eq!(error.downcast_ref(), Some(&Exceeded::Memory));
        assert_eq!(usage.memory, 10);
    }
}
