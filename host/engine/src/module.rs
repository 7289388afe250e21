//! A compiled guest.

use std::fmt;
use std::sync::Arc;

use davit_core::digest::ModuleDigest;
use davit_core::manifest::Manifest;

use crate::error::DescribeError;
use crate::instance::Instance;
use crate::limits::Limits;
use crate::pool::{Pool, Share};
use crate::program::Program;
use crate::world::WorldVersion;

/// A guest that is compiled, checked and linked. Clones are the same module.
#[derive(Clone)]
pub struct Module {
    pool: Pool,
    loaded: Arc<LoadedModule>,
}

/// What all clones of a module share: its machine code may take megabytes.
pub(crate) struct LoadedModule {
    pub(crate) program: Program,
    pub(crate) world: WorldVersion,
    pub(crate) digest: ModuleDigest,
}

impl Module {
    pub(crate) fn new(pool: Pool, loaded: Arc<LoadedModule>) -> Self {
        Self { pool, loaded }
    }

    /// The version of the interface that it was built for.
    #[must_use]
    pub fn world(&self) -> WorldVersion {
        self.loaded.world
    }

    /// The interfaces that it imports, as `package/interface@version`.
    #[must_use]
    pub fn imports(&self) -> Vec<String> {
        let program = &self.loaded.program;
        let ty = program.component().component_type();
        let imports = ty.imports(program.engine());
        imports.map(|(name, _)| name.to_owned()).collect()
    }

    /// The SHA-256 of its bytes.
    #[must_use]
    pub fn digest(&self) -> ModuleDigest {
        self.loaded.digest
    }

    /// Lets the guest check a configuration (a MessagePack map) and return its
    /// manifest.
    pub async fn describe(&self, config: &[u8], limits: Limits) -> Result<Manifest, DescribeError> {
        let share = self.share().await?;
        let (_permit, _) = share.take().await;
        let started = self.start(self.label(), config, limits, usize::MAX);
        let (_, manifest) = started.await?;
        Ok(manifest)
    }

    /// Creates an instance. `guest` is its name in the log, in which it may write so many bytes.
    pub(crate) async fn start(
        &self,
        guest: Arc<str>,
        config: &[u8],
        limits: Limits,
        log_bytes: usize,
    ) -> Result<(Instance, Manifest), DescribeError> {
        let program = &self.loaded.program;
        let (count, ticker) = (self.pool.usage().instance(), self.pool.ticker());
        Instance::start(program, count, ticker, guest, config, limits, log_bytes).await
    }

    /// A guest's part of the instances.
    pub(crate) async fn share(&self) -> Result<Share, DescribeError> {
        let share = self.pool.share().await;
        share.ok_or_else(|| DescribeError::NoInstances {
            limit: self.pool.max_instances(),
        })
    }

    /// The guest's name in the log before its manifest is known.
    pub(crate) fn label(&self) -> Arc<str> {
        self.digest().to_string().into()
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Module")
            .field("digest", &self.loaded.digest)
            .field("world", &self.loaded.world)
            .finish_non_exhaustive()
    }
}
