//! A compiled guest.

use std::fmt;
use std::sync::Arc;

use davit_core::digest::ModuleDigest;
use davit_core::manifest::Manifest;

use crate::engine::Engine;
use crate::error::DescribeError;
use crate::instance::{Instance, State};
use crate::limits::Limits;
use crate::wit::ControllerPre;
use crate::world::WorldVersion;

/// A guest that is compiled, checked and linked. Clones are the same module.
#[derive(Clone)]
pub struct Module {
    engine: Engine,
    pre: ControllerPre<State>,
    world: WorldVersion,
    digest: ModuleDigest,
}

impl Module {
    pub(crate) fn new(
        engine: Engine,
        pre: ControllerPre<State>,
        world: WorldVersion,
        digest: ModuleDigest,
    ) -> Self {
        Self {
            engine,
            pre,
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
        let component = self.pre.instance_pre().component();
        let ty = component.component_type();
        let imports = ty.imports(self.engine.wasmtime());
        imports.map(|(name, _)| name.to_owned()).collect()
    }

    /// The SHA-256 of its bytes.
    #[must_use]
    pub fn digest(&self) -> ModuleDigest {
        self.digest
    }

    /// Has the guest check a configuration (a MessagePack map) and return its
    /// manifest.
    pub async fn describe(&self, config: &[u8], limits: Limits) -> Result<Manifest, DescribeError> {
        let _slot = self.reserve(1)?;
        let (_, manifest) = Instance::start(self, self.label(), config, limits).await?;
        Ok(manifest)
    }

    /// Reserves instances, so that a guest never waits for another guest's
    /// instances.
    pub(crate) fn reserve(&self, instances: u32) -> Result<InstanceReservation, DescribeError> {
        let slots = self.engine.instances();
        Arc::clone(slots)
            .try_acquire_many_owned(instances)
            .map_err(|_| DescribeError::NoInstances {
                wanted: instances,
                left: slots.available_permits(),
            })
    }

    /// The guest's name in the log before its manifest is known.
    pub(crate) fn label(&self) -> Arc<str> {
        self.digest.to_string().into()
    }

    pub(crate) fn wasmtime(&self) -> &wasmtime::Engine {
        self.engine.wasmtime()
    }

    pub(crate) fn pre(&self) -> &ControllerPre<State> {
        &self.pre
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

/// InstanceReservation instances; released when dropped.
pub(crate) type InstanceReservation = tokio::sync::OwnedSemaphorePermit;
