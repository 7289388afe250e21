//! Loads revisions: executes the steps of core's [`Preparation`], which fetches a module,
//! compiles it, and lets the guest check its configuration. The running revisions
//! continue meanwhile, and errors do not affect them.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use davit_cluster::api::chain;
use davit_core::api::{ControllerSpec, ModuleSource};
use davit_core::bounds::memory;
use davit_core::digest::ModuleDigest;
use davit_core::load::{LoadErrorKind, Preparation, PreparationStep, RevisionLoadError};
use davit_core::record::Owner;
use davit_core::revision::{self, CallLimits, RevisionIdentity};
use davit_engine::{
    CallError, CompileError, DescribeError, Engine, Guest, InstanceUsage, Limits, LoadError, Module,
};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::fields::FieldCheck;
use crate::modules::Modules;

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
    /// The rights to read a module from a file.
    reading: Semaphore,
    /// Checks fields; none without a cluster.
    fields: Option<FieldCheck>,
}

/// How many modules are read from files at once. Those of a thousand controllers would be the
/// peak of the process' memory, although most of them are compiled already and dropped at once.
const READ_AT_ONCE: usize = 8;
/// A revision waits no longer for the others: the disk of one of them may hang.
const READ_PATIENCE: Duration = Duration::from_secs(5);

/// A module that was found.
enum Code {
    /// Not compiled yet, as far as the search knows.
    Wasm(Vec<u8>),
    Loaded(Module),
}

impl From<Vec<u8>> for Code {
    fn from(wasm: Vec<u8>) -> Self {
        Self::Wasm(wasm)
    }
}

/// What a guest was made for. Two controllers share the machine code of a module and never an
/// instance, which may keep what one of them may read.
type Made = (Option<Owner>, RevisionIdentity);

#[derive(Default)]
struct LoaderCache {
    loaded: HashMap<ModuleDigest, Module>,
    guests: Vec<(Made, Weak<Guest>)>,
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
            reading: Semaphore::new(READ_AT_ONCE),
            fields: None,
        }
    }

    /// Checks the fields of policies against what the API server of this client publishes.
    #[must_use]
    pub fn checking_fields(mut self, client: &kube::Client) -> Self {
        self.fields = Some(FieldCheck::by(client.clone()));
        self
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

    /// Loads the revision that a spec describes.
    pub async fn load(&self, spec: &ControllerSpec) -> Result<LoadedRevision, RevisionLoadError> {
        self.prepare(None, Preparation::of_spec(spec)).await
    }

    /// Loads a recorded revision by its recorded spec.
    pub async fn load_recorded(
        &self,
        spec: &ControllerSpec,
    ) -> Result<LoadedRevision, RevisionLoadError> {
        self.prepare(None, Preparation::of_record(spec)).await
    }

    /// Executes a preparation, for a controller if it is to be one's.
    pub(crate) async fn prepare(
        &self,
        owner: Option<Owner>,
        mut preparation: Preparation,
    ) -> Result<LoadedRevision, RevisionLoadError> {
        let mut step = preparation.start();
        loop {
            step = match step {
                PreparationStep::Find(search) => {
                    let _reads = self.may_read(&search.module().source).await;
                    let loaded = |digest| self.known().module(digest).map(Code::Loaded);
                    preparation.found(self.modules.find(search, loaded).await)
                }
                PreparationStep::Compile(digest, code) => {
                    preparation.compiled(digest, self.compile(digest, code).await)
                }
                PreparationStep::Describe {
                    module,
                    identity,
                    is_limited,
                } => {
                    let memory = self.memory.filter(|_| is_limited);
                    let made = (owner.clone(), identity.clone());
                    let guest = self.describe(&module, made, memory).await;
                    let described =
                        guest.map(|guest| (Arc::clone(&guest), Arc::clone(guest.manifest())));
                    preparation.described(identity, described)
                }
                PreparationStep::CheckFields(revision) => {
                    let checked = match &self.fields {
                        Some(fields) => fields.check(&revision.identity, &revision.manifest).await,
                        None => Ok(()),
                    };
                    preparation.checked(revision, checked)
                }
                PreparationStep::Done(loaded) => return loaded,
            };
        }
    }

    /// Waits until a module of this source may be read. One of a registry may take its time, and
    /// delays no other.
    async fn may_read(&self, source: &ModuleSource) -> Option<SemaphorePermit<'_>> {
        match source {
            ModuleSource::Builtin(_) | ModuleSource::File(_) => {
                let right = timeout(READ_PATIENCE, self.reading.acquire()).await;
                right.ok()?.ok()
            }
            ModuleSource::ConfigMap(_) | ModuleSource::Oci(_) => None,
        }
    }

    async fn compile(&self, digest: ModuleDigest, code: Code) -> Result<Module, RevisionLoadError> {
        let known = self.known().module(digest);
        match (code, known) {
            (Code::Loaded(module), _) => Ok(module),
            (Code::Wasm(wasm), Some(module)) => {
                self.modules.copy(digest, Arc::new(wasm));
                Ok(module)
            }
            (Code::Wasm(wasm), None) => {
                let wasm = Arc::new(wasm);
                let module = self.engine.load_shared(Arc::clone(&wasm)).await;
                let module = module.map_err(|error| not_compiled(&error))?;
                // What cannot be a guest has no calls in the journal.
                self.modules.copy(digest, wasm);
                self.known().loaded.insert(digest, module.clone());
                Ok(module)
            }
        }
    }

    /// Describes a revision, within this memory limit in bytes.
    async fn describe(
        &self,
        module: &Module,
        made: Made,
        memory: Option<u64>,
    ) -> Result<Arc<Guest>, RevisionLoadError> {
        let (_, identity) = &made;
        let _prepares = match memory {
            Some(_) => Some(self.preparing.lock().await),
            None => None,
        };
        if let Some(guest) = self.known().guest(&made) {
            return Ok(guest);
        }
        if let Some(memory) = memory {
            let admitted = memory::admit(memory, self.known().limits(), identity.limits());
            let refused = |error| RevisionLoadError::new(LoadErrorKind::Memory, chain(&error));
            admitted.map_err(refused)?;
        }
        let config = Arc::clone(identity.config());
        let guest = Guest::new(module, config, limits(identity.limits())).await;
        let guest = Arc::new(guest.map_err(|error| not_described(&error))?);
        let known = (made, Arc::downgrade(&guest));
        self.known().guests.push(known);
        Ok(guest)
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
        loaded.map(|((_, identity), _)| identity.limits()).collect()
    }

    fn guest(&mut self, made: &Made) -> Option<Arc<Guest>> {
        self.guests.retain(|(_, guest)| guest.strong_count() > 0);
        let mut guests = self.guests.iter();
        let (_, guest) = guests.find(|(same, _)| same == made)?;
        guest.upgrade()
    }
}

fn not_compiled(error: &LoadError) -> RevisionLoadError {
    let kind = match error {
        LoadError::TooLarge { .. } => LoadErrorKind::TooLarge,
        LoadError::Compile(CompileError::Module(_)) => LoadErrorKind::NotWasm,
        LoadError::Compile(CompileError::Limit(_)) => LoadErrorKind::CompilerLimit,
        LoadError::Compile(CompileError::Crash(_)) => LoadErrorKind::CompilerCrash,
        LoadError::Compile(CompileError::Process(_)) => LoadErrorKind::NoCompiler,
        LoadError::World(_)
        | LoadError::Resources { .. }
        | LoadError::Compile(CompileError::CoreInstances { .. })
        | LoadError::Link(_) => LoadErrorKind::NotAGuest,
    };
    RevisionLoadError::new(kind, chain(error))
}

fn not_described(error: &DescribeError) -> RevisionLoadError {
    let kind = match error {
        DescribeError::Config { field, message } => LoadErrorKind::Config {
            field: field.clone(),
            reason: message.clone(),
        },
        DescribeError::NoInstances { .. } => LoadErrorKind::NoInstances,
        DescribeError::Call(CallError::Deadline { .. }) => LoadErrorKind::Deadline,
        DescribeError::Call(_)
        | DescribeError::Manifest(_)
        | DescribeError::Encoding { .. }
        | DescribeError::ConfigText(_) => LoadErrorKind::NoManifest,
    };
    RevisionLoadError::new(kind, chain(error))
}

/// An instance is used again while its memory is at most this part of the limit: the default
/// of [`Limits`].
const IDLE_PART: usize = 4;

/// The limits of a revision, as the engine has them.
pub(crate) fn limits(config: CallLimits) -> Limits {
    let memory = config.memory_mib as usize * (1 << 20);
    Limits {
        instances: config.instances,
        memory,
        idle_memory: memory / IDLE_PART,
        cpu: Duration::from_millis(config.call_millis),
        ..Limits::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use davit_core::api::ControllerSpec;
    use davit_core::load::Preparation;
    use davit_core::record::Owner;
    use davit_core::revision::CallLimits;
    use davit_engine::{Engine, EngineConfig, Limits};
    use serde_json::json;

    use super::Loader;
    use crate::modules::{Modules, ModulesOptions};

    /// With the same module, configuration and limits: one may read what the other may not.
    #[tokio::test]
    async fn two_controllers_share_no_instance() {
        let program = std::env::current_exe().unwrap();
        let target = program.ancestors().nth(3).unwrap();
        let modules = Modules::new(ModulesOptions {
            guests: Some(target.join("wasm32-wasip2/guest")),
            ..ModulesOptions::default()
        });
        let engine = Engine::new(EngineConfig {
            cache_dir: Some(target.join("tmp/modules")),
            ..EngineConfig::default()
        });
        let loader = Loader::new(engine.unwrap(), modules.unwrap());
        let module = serde_json::from_value(json!({"builtin": "podgc"}));
        let spec = ControllerSpec::of(module.unwrap());
        let load = async |name| {
            let owner = Some(Owner::named(name));
            let loaded = loader.prepare(owner, Preparation::of_spec(&spec)).await;
            loaded.unwrap().guest
        };
        let (one, again, other) = (load("one").await, load("one").await, load("other").await);
        assert!(Arc::ptr_eq(&one, &again));
        assert!(!Arc::ptr_eq(&one, &other));
    }

    #[test]
    fn the_memory_of_idle_instances_grows_with_the_limit() {
        let with = |memory_mib| {
            super::limits(CallLimits {
                memory_mib,
                call_millis: 1000,
                instances: 4,
            })
        };
        assert_eq!(with(64), Limits::default());
        assert_eq!(with(256).idle_memory, 64 << 20);
    }
}
