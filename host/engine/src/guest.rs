//! A guest that can be called: a module, its configuration, and its share of the instances.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use davit_core::manifest::Manifest;
use davit_core::plan::Decision;
use davit_core::untrusted;
use tokio::sync::Semaphore;

use crate::call::Call;
use crate::convert::{self, Encoding};
use crate::error::{CallError, DescribeError};
use crate::instance::Instance;
use crate::limits::Limits;
use crate::module::Module;
use crate::pool::{Permit, Share};

/// The longest name of a guest in the log, in bytes.
const LONGEST_NAME: usize = 128;

/// A module with its configuration, ready to decide.
///
/// Each call has an instance of its own. After a good answer the instance is
/// used again. After anything else (a trap, a limit, a malformed answer, a call
/// that was dropped) the instance is dropped, with everything that it held.
pub struct Guest {
    module: Module,
    config: Arc<[u8]>,
    manifest: Arc<Manifest>,
    limits: Limits,
    /// Its name in the log.
    name: Arc<str>,
    encoding: Encoding,
    share: Share,
    /// One permit for each call at once.
    calls: Semaphore,
}

impl Guest {
    /// Lets the guest check its configuration. It is sure of one instance from now on.
    pub async fn new(
        module: &Module,
        config: impl Into<Arc<[u8]>>,
        limits: Limits,
    ) -> Result<Self, DescribeError> {
        let share = module.share().await?;
        let (permit, _) = share.take().await;
        let config = config.into();
        // The guest's name is known only afterwards.
        let started = module.start(module.label(), &config, limits, usize::MAX);
        let (first, manifest) = started.await?;
        let name: Arc<str> = untrusted::line(&manifest.name, LONGEST_NAME).into();
        first.rename(&name);
        let guest = Self {
            module: module.clone(),
            config,
            name,
            encoding: first.encoding(),
            manifest: Arc::new(manifest),
            limits,
            share,
            calls: Semaphore::new(limits.instances.max(1) as usize),
        };
        guest.put_by(permit, first);
        Ok(guest)
    }

    /// The guest's manifest.
    #[must_use]
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    /// How the guest reads and writes payloads.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// The guest's module.
    #[must_use]
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// Calls the guest: one decision for each item, in the order of the items. Waits
    /// while [`Limits::instances`] calls are under way, or while other guests have all instances
    /// but the one that this guest is sure of. A call that is dropped before it ends loses its
    /// instance.
    pub async fn reconcile(&self, mut call: Call) -> Result<Vec<Decision>, CallError> {
        // The semaphore is never closed.
        let _turn = self.calls.acquire().await.ok();
        let (items, now) = (call.items.len(), call.now);
        let (permit, idle) = self.share.take().await;
        let mut instance = if let Some(instance) = idle {
            instance
        } else {
            let instance = self.start(call.log_bytes).await?;
            // What it logs at its start is of the call that needs it.
            let logged = instance.logged();
            call.log_bytes = call.log_bytes.saturating_sub(logged);
            call.logged.fetch_add(logged, Ordering::Relaxed);
            instance
        };
        let answer = instance.reconcile(call, &self.manifest).await?;
        let decisions =
            convert::decisions(answer, items, &self.manifest, &self.limits.decision, now)?;
        instance.charge()?;
        self.put_by(permit, instance);
        Ok(decisions)
    }

    /// Keeps an instance for the next call, unless its memory has grown too large.
    fn put_by(&self, permit: Permit, instance: Instance) {
        if instance.memory() <= self.limits.idle_memory {
            self.share.put_by(permit, instance);
        }
    }

    async fn start(&self, log_bytes: usize) -> Result<Instance, CallError> {
        let name = Arc::clone(&self.name);
        let module = &self.module;
        let started = module.start(name, &self.config, self.limits, log_bytes);
        match started.await {
            Ok((instance, _)) => Ok(instance),
            Err(DescribeError::Call(error)) => Err(error),
            Err(error) => Err(CallError::Restart(Box::new(error))),
        }
    }
}
