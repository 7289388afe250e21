//! Loads revisions: fetches a module, compiles it, and lets the guest check its
//! configuration. The running revisions continue meanwhile, and errors do not affect
//! them.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use davit_cluster::api::chain;
use davit_core::bounds::memory::{self, MemoryExceeded};
use davit_core::digest::ModuleDigest;
use davit_core::revision::{self, CallLimits, RevisionIdentity};
use davit_core::untrusted;
use davit_engine::{DescribeError, Engine, Guest, InstanceUsage, Limits, LoadError, Module};

use crate::modules::{FetchedModule, ModuleError, Modules};
use davit_core::api::ModuleConfig;
use davit_core::api::{ControllerSpec, SpecError, encode_config};

/// A revision that is ready to run, with its guest.
pub type LoadedRevision = revision::LoadedRevision<Arc<Guest>>;

/// Why a controller cannot run as configured.
#[derive(Debug, thiserror::Error)]
#[error("controller \"{controller}\"")]
pub struct ControllerLoadError {
    /// The controller.
    pub controller: String,
    /// The error.
    #[source]
    pub reason: RevisionLoadError,
}

/// The errors of a controller.
#[derive(Debug, thiserror::Error)]
pub enum RevisionLoadError {
    /// The module cannot be found or read.
    #[error("module")]
    Module(#[from] ModuleError),
    /// The guest cannot be loaded.
    #[error("module")]
    Load(#[from] LoadError),
    /// The guest refuses its configuration, or returns no valid manifest.
    #[error("config")]
    Describe(#[from] DescribeError),
    /// The instances do not fit into the container.
    #[error("limits")]
    Memory(#[from] MemoryExceeded),
    /// The configuration cannot be written as MessagePack.
    #[error("config")]
    Encode(#[from] rmp_serde::encode::Error),
}

impl RevisionLoadError {
    /// The field of the spec, and the error.
    #[must_use]
    pub fn in_spec(&self) -> SpecError {
        let (field, reason) = match self {
            Self::Module(error) => ("module", chain(error)),
            Self::Load(error) => ("module", chain(error)),
            Self::Memory(error) => ("limits", chain(error)),
            Self::Encode(error) => ("config", chain(error)),
            Self::Describe(DescribeError::Config { field, message }) => {
                // The text of a guest.
                let data = |text: &str| untrusted::line(text, untrusted::MOST_LOGGED);
                let error = SpecError {
                    field: data(field),
                    reason: data(message),
                };
                return error.below("config");
            }
            Self::Describe(error @ DescribeError::NoInstances { .. }) => {
                ("limits.instances", chain(error))
            }
            Self::Describe(error) => ("module", chain(error)),
        };
        let field = field.to_owned();
        SpecError { field, reason }
    }
}

/// Loads revisions. It compiles each module once, and describes each
/// configuration of it once, for as long as the result is in use.
pub struct Loader {
    engine: Engine,
    modules: Modules,
    known: Mutex<LoaderCache>,
    /// The memory limit of the container, in bytes.
    memory: Option<u64>,
    /// The right to prepare a revision within that limit: one at a time.
    preparing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct LoaderCache {
    loaded: HashMap<ModuleDigest, Module>,
    guests: Vec<(RevisionIdentity, Weak<Guest>)>,
}

impl Loader {
    /// Loads guests from these modules, with this engine.
    #[must_use]
    pub fn new(engine: Engine, modules: Modules) -> Self {
        Self {
            engine,
            modules,
            known: Mutex::default(),
            memory: None,
            preparing: tokio::sync::Mutex::default(),
        }
    }

    /// Refuses revisions whose instances do not fit into a container with this memory
    /// limit, in bytes. A recorded revision is never refused: it ran before.
    #[must_use]
    pub fn within(mut self, memory: Option<u64>) -> Self {
        self.memory = memory;
        self
    }

    /// The sources of modules.
    #[must_use]
    pub fn modules(&self) -> &Modules {
        &self.modules
    }

    /// What the instances of all guests use.
    #[must_use]
    pub fn instances(&self) -> InstanceUsage {
        self.engine.usage()
    }

    /// Drops the modules with other digests than these.
    pub fn forget_all_but(&self, in_use: &BTreeSet<ModuleDigest>) {
        let mut known = self.known();
        known.loaded.retain(|digest, _| in_use.contains(digest));
        self.modules.prune(in_use);
        self.engine.prune(in_use);
    }

    /// Loads the revision that a spec describes. Its module comes from the
    /// source, also if it is pinned: see [`Modules::fetch`].
    pub async fn load(&self, spec: &ControllerSpec) -> Result<LoadedRevision, RevisionLoadError> {
        let found = match self.modules.fetch(&spec.module).await {
            Ok(fetched) => self.compile(fetched).await?,
            Err(error) if error.is_unavailable() => match self.loaded(&spec.module).await {
                Some(module) => (module, Some(chain(&error))),
                None => return Err(error.into()),
            },
            Err(error) => return Err(error.into()),
        };
        self.describe(spec, found, self.memory).await
    }

    /// Loads a recorded revision by its recorded digest.
    pub async fn load_recorded(
        &self,
        spec: &ControllerSpec,
    ) -> Result<LoadedRevision, RevisionLoadError> {
        let found = match self.loaded(&spec.module).await {
            Some(module) => (module, None),
            None => {
                self.compile(self.modules.recall(&spec.module).await?)
                    .await?
            }
        };
        self.describe(spec, found, None).await
    }

    /// Describes a module. The result says why it came from the module cache, if it
    /// did.
    async fn describe(
        &self,
        spec: &ControllerSpec,
        (module, away): (Module, Option<String>),
        memory: Option<u64>,
    ) -> Result<LoadedRevision, RevisionLoadError> {
        let config = encode_config(&spec.config)?.into();
        let identity = RevisionIdentity::new(module.digest(), config, spec.limits);
        let _prepares = match memory {
            Some(_) => Some(self.preparing.lock().await),
            None => None,
        };
        let known = self.known().guest(&identity);
        let guest = if let Some(guest) = known {
            guest
        } else {
            if let Some(memory) = memory {
                memory::admit(memory, self.known().limits(), identity.limits())?;
            }
            let config = Arc::clone(identity.config());
            let guest = Guest::new(&module, config, limits(identity.limits())).await?;
            let guest = Arc::new(guest);
            let made = (identity.clone(), Arc::downgrade(&guest));
            self.known().guests.push(made);
            guest
        };
        Ok(LoadedRevision {
            manifest: Arc::clone(guest.manifest()),
            guest,
            identity,
            away,
            is_shipped: spec.module.source.is_builtin(),
        })
    }

    /// The pinned module, if it is loaded already and known to have the required
    /// signatures. Another controller may have loaded it without them.
    async fn loaded(&self, config: &ModuleConfig) -> Option<Module> {
        let digest = config.digest?;
        let module = self.known().module(digest)?;
        let is_verified = self.modules.is_verified(config, digest).await;
        is_verified.then_some(module)
    }

    async fn compile(
        &self,
        fetched: FetchedModule,
    ) -> Result<(Module, Option<String>), RevisionLoadError> {
        let (digest, away) = (fetched.digest, fetched.unavailable);
        if let Some(module) = self.known().module(digest) {
            return Ok((module, away));
        }
        let module = self.engine.load(fetched.wasm).await?;
        self.known().loaded.insert(digest, module.clone());
        Ok((module, away))
    }

    fn known(&self) -> MutexGuard<'_, LoaderCache> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LoaderCache {
    fn module(&self, digest: ModuleDigest) -> Option<Module> {
        self.loaded.get(&digest).cloned()
    }

    /// The limits of the loaded revisions.
    fn limits(&mut self) -> Vec<CallLimits> {
        self.guests.retain(|(_, guest)| guest.strong_count() > 0);
        let loaded = self.guests.iter();
        loaded.map(|(identity, _)| identity.limits()).collect()
    }

    fn guest(&mut self, identity: &RevisionIdentity) -> Option<Arc<Guest>> {
        self.guests.retain(|(_, guest)| guest.strong_count() > 0);
        let mut guests = self.guests.iter();
        let (_, guest) = guests.find(|(same, _)| same == identity)?;
        guest.upgrade()
    }
}

fn limits(config: CallLimits) -> Limits {
    Limits {
        instances: config.instances,
        memory: config.memory_mib as usize * (1 << 20),
        cpu: Duration::from_millis(config.call_millis),
        ..Limits::default()
    }
}

#[cfg(test)]
mod tests {
    use davit_core::api::MOST_INSTANCES;
    use davit_engine::EngineConfig;

    #[test]
    fn ten_controllers_with_the_most_instances_can_be_rolled_out() {
        assert!(EngineConfig::default().max_instances >= 10 * 3 * MOST_INSTANCES);
    }
}
