//! One instance of a guest: a wasmtime store, and the calls into it.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use davit_core::manifest::Manifest;
use davit_core::time::Now;
use wasmtime::Store;

use crate::call::Call;
use crate::convert::{self, Encoding};
use crate::cpu::Cpu;
use crate::error::{CallError, DescribeError, classify};
use crate::imports::wasi;
use crate::limits::Limits;
use crate::log::LoggedCall;
use crate::program::{ConditionsFunction, Exports, Program, ReadsFunction, StartError};
use crate::state::{CallView, State};
use crate::ticker::Ticker;
use crate::usage::InstanceCount;
use crate::wit::{Controller, decisions, manifests};

/// An instance.
pub(crate) struct Instance {
    store: Store<State>,
    controller: Controller,
    conditions: Option<ConditionsFunction>,
    reads: Option<ReadsFunction>,
    ticker: Ticker,
}

impl Instance {
    /// Creates an instance that reads its configuration. `guest` is its name in
    /// the log, in which it may write so many bytes.
    pub(crate) async fn start(
        program: &Program,
        count: InstanceCount,
        ticker: &Ticker,
        guest: Arc<str>,
        config: &[u8],
        limits: Limits,
        log_bytes: usize,
    ) -> Result<(Self, Manifest), DescribeError> {
        let _running = ticker.run();
        let state = State::new(guest, limits, count, wasi::resources());
        let mut store = Store::new(program.engine(), state);
        store.limiter(|state| &mut state.usage);
        store.set_hostcall_fuel(limits.answer);
        store.epoch_deadline_callback(|mut store| store.data_mut().tick());
        start(&mut store, Now::default(), None, log_bytes);
        let exports = match program.instantiate(&mut store).await {
            Ok(exports) => exports,
            Err(StartError::Failed(error)) => return Err(failed(&store, &error).into()),
            Err(StartError::Encoding(name)) => return Err(DescribeError::encoding(&name)),
        };
        let Exports {
            controller,
            encoding,
            conditions,
            reads,
        } = exports;
        store.data_mut().encoding = encoding;
        let mut instance = Self {
            store,
            controller,
            conditions,
            reads,
            ticker: ticker.clone(),
        };
        let manifest = instance.describe(config).await?;
        Ok((instance, manifest))
    }

    async fn describe(&mut self, config: &[u8]) -> Result<Manifest, DescribeError> {
        let decide = self.controller.davit_controller_decide();
        let config = self.encoding().encode(Cow::Borrowed(config));
        let config = config.map_err(DescribeError::ConfigText)?;
        let answer = decide.call_describe(&mut self.store, &config).await;
        let conditions = match (&self.conditions, &answer) {
            (Some(conditions), Ok(Ok(_))) => conditions.call_async(&mut self.store, ()).await,
            _ => Ok((Vec::new(),)),
        };
        let reads = match (&self.reads, &answer, &conditions) {
            (Some(reads), Ok(Ok(_)), Ok(_)) => reads.call_async(&mut self.store, ()).await,
            _ => Ok((Vec::new(),)),
        };
        self.store.data().log.end();
        let (conditions,) = conditions.map_err(|error| failed(&self.store, &error))?;
        let (reads,) = reads.map_err(|error| failed(&self.store, &error))?;
        match answer {
            Ok(Ok(manifest)) => Ok(convert::manifest(manifest, conditions, reads)?),
            Ok(Err(manifests::ConfigError { field, message })) => {
                Err(DescribeError::Config { field, message })
            }
            Err(error) => Err(failed(&self.store, &error).into()),
        }
    }

    /// How many bytes it has written to the log since it was started, or in its last call.
    pub(crate) fn logged(&self) -> usize {
        self.store.data().log.written()
    }

    /// Changes its name in the log.
    pub(crate) fn rename(&self, guest: &Arc<str>) {
        self.store.data().log.rename(guest);
    }

    /// Calls the guest. After an error the instance must not be used again.
    pub(crate) async fn reconcile(
        &mut self,
        mut call: Call,
        manifest: &Arc<Manifest>,
    ) -> Result<Vec<decisions::Decision>, CallError> {
        let _running = self.ticker.run();
        let now = call.now;
        let items = std::mem::take(&mut call.items);
        let items: Vec<_> = items
            .into_iter()
            .map(|item| convert::work_item(item, now))
            .collect();
        let logged_call = call.decision.take().map(|decision| LoggedCall {
            decision,
            items: items.len(),
        });
        start(&mut self.store, now, logged_call, call.log_bytes);
        let logged = Arc::clone(&call.logged);
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
        logged.fetch_add(state.log.written(), Ordering::Relaxed);
        let mut answer = answer.map_err(|error| failed(&self.store, &error))?;
        self.decode(&mut answer)?;
        Ok(answer)
    }

    /// Replaces the payloads of an answer with MessagePack.
    fn decode(&self, answer: &mut [decisions::Decision]) -> Result<(), CallError> {
        let size = self.encoding().decode(answer)?;
        let limit = self.store.data().limits.answer;
        if size > limit {
            // A number of a few digits has nine bytes.
            let unit = "bytes in the payloads of one answer";
            return Err(CallError::TooLarge { unit, limit });
        }
        Ok(())
    }

    /// How the guest reads and writes payloads.
    pub(crate) fn encoding(&self) -> Encoding {
        self.store.data().encoding
    }

    /// Charges the call for what the host has done with its answer.
    pub(crate) fn charge(&mut self) -> Result<(), CallError> {
        let state = self.store.data_mut();
        let limit = state.limits.cpu;
        let charged = state.cpu.charge();
        charged.map_err(|_| CallError::Deadline { limit })
    }

    /// Bytes of linear memory, which never shrinks.
    pub(crate) fn memory(&self) -> usize {
        self.store.data().usage.memory
    }
}

fn start(store: &mut Store<State>, now: Now, call: Option<LoggedCall>, log_bytes: usize) {
    store.set_epoch_deadline(1);
    let state = store.data_mut();
    state.now = now;
    state.cpu = Cpu::new(state.limits.cpu);
    state.log.start(call, log_bytes);
}

fn failed(store: &Store<State>, error: &wasmtime::Error) -> CallError {
    let state = store.data();
    state.log.end();
    classify(error, &state.limits, state.log.last_words())
}
