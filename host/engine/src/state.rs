//! The data of an instance's imports, and what it has used of its limits.

use std::sync::Arc;

use davit_core::manifest::Manifest;
use davit_core::time::Now;
use wasmtime::UpdateDeadline;
use wasmtime::component::ResourceTable;

use crate::call::Call;
use crate::convert::Encoding;
use crate::cpu::Cpu;
use crate::error::Mistake;
use crate::limits::{Limits, Usage};
use crate::log::GuestLog;
use crate::usage::InstanceCount;

/// The data of an instance's imports.
pub(crate) struct State {
    pub(crate) limits: Limits,
    pub(crate) usage: Usage,
    pub(crate) cpu: Cpu,
    pub(crate) log: GuestLog,
    pub(crate) resources: ResourceTable,
    /// How the guest reads and writes payloads.
    pub(crate) encoding: Encoding,
    /// The time of the guest's clocks.
    pub(crate) now: Now,
    /// What `reconcile` may read; none while `describe` runs.
    pub(crate) view: Option<Box<CallView>>,
}

/// What one call of `reconcile` may read.
pub(crate) struct CallView {
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) call: Call,
    /// How many more objects it may read live.
    pub(crate) live_reads_left: usize,
}

impl State {
    pub(crate) fn new(
        guest: Arc<str>,
        limits: Limits,
        count: InstanceCount,
        resources: ResourceTable,
    ) -> Self {
        Self {
            limits,
            usage: Usage::new(limits, count),
            cpu: Cpu::new(limits.cpu),
            log: GuestLog::new(guest, limits.log),
            resources,
            encoding: Encoding::default(),
            now: Now::default(),
            view: None,
        }
    }

    /// What the call may read.
    pub(crate) fn view(&self) -> wasmtime::Result<&CallView> {
        match &self.view {
            Some(view) => Ok(view),
            None => Mistake::trap(ONLY_IN_RECONCILE),
        }
    }

    pub(crate) fn view_mut(&mut self) -> wasmtime::Result<&mut CallView> {
        match &mut self.view {
            Some(view) => Ok(view),
            None => Mistake::trap(ONLY_IN_RECONCILE),
        }
    }

    /// A tick passed while the guest was running.
    pub(crate) fn tick(&mut self) -> wasmtime::Result<UpdateDeadline> {
        self.cpu.charge()?;
        let others = Box::pin(self.cpu.pause());
        Ok(UpdateDeadline::YieldCustom(1, others))
    }
}

const ONLY_IN_RECONCILE: &str = "during describe, a guest can only log";
