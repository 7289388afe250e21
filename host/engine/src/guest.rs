//! A guest that can be called: a module, its configuration, and a pool of
//! instances.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use davit_core::manifest::Manifest;
use davit_core::plan::Decision;
use davit_core::untrusted;
use tokio::sync::Semaphore;

use crate::call::Call;
use crate::convert::{self, Encoding};
use crate::error::{CallError, DescribeError};
use crate::instance::Instance;
use crate::limits::Limits;
use crate::module::{InstanceReservation, Module};

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
    idle: Mutex<Vec<Instance>>,
    /// One permit for each instance.
    slots: Semaphore,
    _reserved: InstanceReservation,
}

impl Guest {
    /// Lets the guest check its configuration, and reserves [`Limits::instances`] for
    /// its calls.
    pub async fn new(
        module: &Module,
        config: impl Into<Arc<[u8]>>,
        limits: Limits,
    ) -> Result<Self, DescribeError> {
        let instances = limits.instances.max(1);
        let reserved = module.reserve(instances)?;
        let config = config.into();
        // The guest's name is known only afterwards.
        let (first, manifest) = module.start(module.label(), &config, limits).await?;
        let name: Arc<str> = untrusted::line(&manifest.name, LONGEST_NAME).into();
        first.rename(&name);
        let guest = Self {
            module: module.clone(),
            config,
            name,
            encoding: first.encoding(),
            manifest: Arc::new(manifest),
            limits,
            idle: Mutex::new(Vec::new()),
            slots: Semaphore::new(instances as usize),
            _reserved: reserved,
        };
        guest.put_by(first);
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
    /// while all instances are busy. A call that is dropped before it ends loses its
    /// instance.
    pub async fn reconcile(&self, call: Call) -> Result<Vec<Decision>, CallError> {
        // The semaphore is never closed.
        let _slot = self.slots.acquire().await.ok();
        let (items, now) = (call.items.len(), call.now);
        let mut instance = self.instance().await?;
        let answer = instance.reconcile(call, &self.manifest).await?;
        let decisions =
            convert::decisions(answer, items, &self.manifest, &self.limits.decision, now)?;
        instance.charge()?;
        self.put_by(instance);
        Ok(decisions)
    }

    /// Keeps an instance for the next call, unless its memory has grown too large.
    fn put_by(&self, instance: Instance) {
        if instance.memory() <= self.limits.idle_memory {
            self.idle().push(instance);
        }
    }

    async fn instance(&self) -> Result<Instance, CallError> {
        let idle = self.idle().pop();
        if let Some(instance) = idle {
            return Ok(instance);
        }
        let name = Arc::clone(&self.name);
        match self.module.start(name, &self.config, self.limits).await {
            Ok((instance, _)) => Ok(instance),
            Err(DescribeError::Call(error)) => Err(error),
            Err(error) => Err(CallError::Restart(Box::new(error))),
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Instance>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
