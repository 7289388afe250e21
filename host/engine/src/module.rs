//! A compiled guest.

use std::fmt;
use std::sync::Arc;

use davit_core::digest::ModuleDigest;
use davit_core::manifest::Manifest;
use tokio::sync::Semaphore;

use crate::error::DescribeError;
use crate::instance::Instance;
use crate::limits::Limits;
use crate::program::Program;
use crate::ticker::Ticker;
use crate::usage::UsageCounter;
use crate::world::WorldVersion;

/// A guest that is compiled, checked and linked. Clones are the same module.
#[derive(Clone)]
pub struct Module {
    /// One permit for each instance that may exist, over all guests.
    instances: Arc<Semaphore>,
    usage: UsageCounter,
    ticker: Ticker,
    program: Program,
    world: WorldVersion,
    digest: ModuleDigest,
}

impl Module {
    pub(crate) fn new(
        instances: Arc<Semaphore>,
        usage: UsageCounter,
        ticker: Ticker,
        program: Program,
        world: WorldVersion,
        digest: ModuleDigest,
    ) -> Self {
        Self {
            instances,
            usage,
            ticker,
            program,
            world,
            digest,
        }
    }

    /// The version of the interface that it was built for.
    #[must_use]
    pub fn world(&self) -> WorldVersion {
        self.world
    }

    /// The interfaces that it imports, as `package/interface@version`.
    #[must_use]
    pub fn imports(&self) -> Vec<String> {
        let ty = self.program.component().component_type();
        let imports = ty.imports(self.program.engine());
        imports.map(|(name, _)| name.to_owned()).collect()
    }

    /// The SHA-256 of its bytes.
    #[must_use]
    pub fn digest(&self) -> ModuleDigest {
        self.digest
    }

    /// Lets the guest check a configuration (a MessagePack map) and return its
    /// manifest.
    pub async fn describe(&self, config: &[u8], limits: Limits) -> Result<Manifest, DescribeError> {
        let _slot = self.reserve(1)?;
        let (_, manifest) = self.start(self.label(), config, limits).await?;
        Ok(manifest)
    }

    /// Creates an instance. `guest` is its name in the log.
    pub(crate) async fn start(
        &self,
        guest: Arc<str>,
        config: &[u8],
        limits: Limits,
    ) -> Result<(Instance, Manifest), DescribeError> {
        let count = self.usage.instance();
        Instance::start(&self.program, count, &self.ticker, guest, config, limits).await
    }

    /// Reserves instances, so that a guest never waits for another guest's
    /// instances.
    pub(crate) fn reserve(&self, instances: u32) -> Result<InstanceReservation, DescribeError> {
        Arc::clone(&self.instances)
            .try_acquire_many_owned(instances)
            .map_err(|_| DescribeError::NoInstances {
                wanted: instances,
                left: self.instances.available_permits(),
            })
    }

    /// The guest's name in the log before its manifest is known.
    pub(crate) fn label(&self) -> Arc<str> {
        self.digest.to_string().into()
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Module")
            .field("digest", &self.digest)
            .field("world", &self.world)
            .finish_non_exhaustive()
    }
}

/// Reserved instances; released when dropped.
pub(crate) type InstanceReservation = tokio::sync::OwnedSemaphorePermit;
