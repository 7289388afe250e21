//! One instance of a guest: a wasmtime store, and the data of its imports.

use std::sync::Arc;

use davit_core::manifest::Manifest;
use davit_core::time::Now;
use wasmtime::component::ResourceTable;
use wasmtime::{Store, UpdateDeadline};

use crate::call::Call;
use crate::convert;
use crate::error::{CallError, DescribeError, Mistake, classify};
use crate::imports::wasi;
use crate::limits::{LimitExceeded, Limits, Usage};
use crate::log::GuestLog;
use crate::module::Module;
use crate::wit::{Controller, decisions, manifests};

/// The data of an instance's imports.
pub(crate) struct State {
    pub(crate) limits: Limits,
    pub(crate) usage: Usage,
    pub(crate) cpu: Cpu,
    pub(crate) log: GuestLog,
    pub(crate) resources: ResourceTable,
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

/// The CPU time of a call, in ticks.
#[derive(Debug, Default)]
pub(crate) struct Cpu {
    left: u64,
    /// The call has waited for a live read since the last tick that counted:
    /// part of the next tick passed while the guest did not run.
    pub(crate) waited: bool,
}

impl State {
    fn new(guest: Arc<str>, limits: Limits) -> Self {
        Self {
            limits,
            usage: Usage::new(limits),
            cpu: Cpu::default(),
            log: GuestLog::new(guest, limits.log),
            resources: wasi::resources(),
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
    fn tick(&mut self) -> wasmtime::Result<UpdateDeadline> {
        if !std::mem::take(&mut self.cpu.waited) {
            self.cpu.left = self.cpu.left.saturating_sub(1);
        }
        if self.cpu.left == 0 {
            return Err(LimitExceeded::Cpu.into());
        }
        let others = Box::pin(tokio::task::yield_now());
        Ok(UpdateDeadline::YieldCustom(1, others))
    }
}

const ONLY_IN_RECONCILE: &str = "during describe, a guest can only log";

/// An instance.
pub(crate) struct Instance {
    store: Store<State>,
    controller: Controller,
}

impl Instance {
    /// Creates an instance that reads its configuration. `guest` is its name in
    /// the log.
    pub(crate) async fn start(
        module: &Module,
        guest: Arc<str>,
        config: &[u8],
        limits: Limits,
    ) -> Result<(Self, Manifest), DescribeError> {
        let mut store = Store::new(module.wasmtime(), State::new(guest, limits));
        store.limiter(|state| &mut state.usage);
        store.set_hostcall_fuel(limits.answer);
        store.epoch_deadline_callback(|mut store| store.data_mut().tick());
        begin(&mut store, Now::default());
        let controller = match module.pre().instantiate_async(&mut store).await {
            Ok(controller) => controller,
            Err(error) => return Err(failed(&store, &error).into()),
        };
        let mut instance = Self { store, controller };
        let manifest = instance.describe(config).await?;
        Ok((instance, manifest))
    }

    async fn describe(&mut self, config: &[u8]) -> Result<Manifest, DescribeError> {
        let decide = self.controller.davit_controller_decide();
        let answer = decide
            .call_describe(&mut self.store, &config.to_vec())
            .await;
        self.store.data().log.end();
        match answer {
            Ok(Ok(manifest)) => Ok(convert::manifest(manifest)?),
            Ok(Err(manifests::ConfigError { field, message })) => {
                Err(DescribeError::Config { field, message })
            }
            Err(error) => Err(failed(&self.store, &error).into()),
        }
    }

    /// Gives it another name in the log.
    pub(crate) fn rename(&self, guest: &Arc<str>) {
        self.store.data().log.rename(guest);
    }

    /// Asks for decisions. After an error the instance must not be used again.
    pub(crate) async fn reconcile(
        &mut self,
        mut call: Call,
        manifest: &Arc<Manifest>,
    ) -> Result<Vec<decisions::Decision>, CallError> {
        let now = call.now;
        let items = std::mem::take(&mut call.items);
        let items: Vec<_> = items
            .into_iter()
            .map(|item| convert::work_item(item, now))
            .collect();
        begin(&mut self.store, now);
        let state = self.store.data_mut();
        state.view = Some(Box::new(CallView {
            manifest: Arc::clone(manifest),
            call,
            live_reads_left: state.limits.live_reads,
        }));
        let decide = self.controller.davit_controller_decide();
        let answer = decide
            .call_reconcile(&mut self.store, now.wall.0, &items)
            .await;
        let state = self.store.data_mut();
        state.view = None;
        state.log.end();
        answer.map_err(|error| failed(&self.store, &error))
    }

    /// Bytes of linear memory, which never shrinks.
    pub(crate) fn memory(&self) -> usize {
        self.store.data().usage.memory
    }
}

fn begin(store: &mut Store<State>, now: Now) {
    store.set_epoch_deadline(1);
    let state = store.data_mut();
    state.now = now;
    state.cpu = Cpu {
        left: state.limits.cpu_ticks(),
        waited: false,
    };
    state.log.begin();
}

fn failed(store: &Store<State>, error: &wasmtime::Error) -> CallError {
    let state = store.data();
    state.log.end();
    classify(error, &state.limits, state.log.last_words())
}
