//! One wasmtime engine for all guests, and how a component is loaded into it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use davit_core::digest::ModuleDigest;
use tokio::sync::Semaphore;
use wasmtime::component::{Component, HasSelf, Linker};
use wasmtime::{Config, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::artifacts::{ArtifactsError, CompiledArtifacts};
use crate::compiler::{self, CompileError, Compiler};
use crate::imports::wasi;
use crate::limits::Limits;
use crate::module::{LoadedModule, Module};
use crate::pool::Pool;
use crate::precompiled;
use crate::program::Program;
use crate::state::State;
use crate::ticker::Ticker;
use crate::usage::InstanceUsage;
use crate::wit::Controller;
use crate::world::{self, WorldError};

/// `wit-bindgen` and `wit-component` make one program from the program itself
/// and two modules that join it to its imports. The rest is for composed
/// components.
const CORE_INSTANCES: u32 = 8;
/// The most core instances of a component that the compiling process accepts: how many a
/// guest may have is up to the engine that runs it.
const MOST_CORE_INSTANCES: u32 = 10_000;
const TABLES_PER_GUEST: u32 = 4;

/// Wasm's own stack, and the additional stack of host functions (live reads
/// among them). A guest that needs more ends with the trap "call stack
/// exhausted". This reserves address space; memory is allocated when it is
/// used.
const WASM_STACK: usize = 512 << 10;
const HOST_STACK: usize = 1536 << 10;

/// Wasmtime's error for this has no public type. Tests notice if its text
/// changes.
const MANY_INSTANCES: &str = "core module instances";

/// How many modules that do not compile are remembered.
const MOST_FAILED: usize = 256;

/// The settings of the engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The directory for compiled guests, if any. It is created if it does not
    /// exist. It must belong to this process's user and nobody else may write
    /// to it: its files are executed.
    pub cache_dir: Option<PathBuf>,
    /// How many instances may exist at once, over all guests, and so how many guests: each is
    /// sure of one. An instance reserves about 4 GiB of address space, and keeps a little memory;
    /// the rest is allocated when it is used. 1,200 instances take 4.7 TiB of the 128 TiB that a
    /// process has where pointers have 47 bits, and 2,400 of the 65,530 mappings that Linux
    /// allows.
    pub max_instances: u32,
    /// How many core instances an instance of a guest may consist of. A component whose
    /// interpreter and libraries are modules of their own has dozens.
    pub core_instances: u32,
    /// The largest guest that is compiled, in bytes.
    pub max_module: usize,
    /// Where guests are compiled.
    pub compiler: Compiler,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            cache_dir: None,
            max_instances: 1_200,
            core_instances: CORE_INSTANCES,
            max_module: 32 << 20,
            compiler: Compiler::default(),
        }
    }
}

/// Why there is no engine.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Wasmtime does not run with these settings.
    #[error("cannot set up wasmtime: {0:#}")]
    Wasmtime(wasmtime::Error),
    /// The thread that counts time cannot start.
    #[error("cannot start the thread that interrupts guests")]
    Ticker(#[source] std::io::Error),
    /// The directory for compiled guests cannot be used.
    #[error(transparent)]
    Artifacts(#[from] ArtifactsError),
}

/// Why a module cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It is larger than the limit.
    #[error("the module has {size} bytes; the limit is {limit}")]
    TooLarge {
        /// Its size in bytes.
        size: usize,
        /// [`EngineConfig::max_module`].
        limit: usize,
    },
    /// There is no machine code for it.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// It is a component, but not a guest for this host.
    #[error("the module cannot be a guest: {0}")]
    World(#[from] WorldError),
    /// It needs more of a resource than a guest may have.
    #[error("the module needs {needs} {unit}; the limit is {limit}")]
    Resources {
        /// `linear memories`, `tables`.
        unit: &'static str,
        /// How many it needs.
        needs: u32,
        /// How many a guest may have.
        limit: u32,
    },
    /// Its imports or exports have the right names but other types.
    #[error("the module does not fit davit:controller: {0}")]
    Link(String),
}

/// Compiles guests and holds what they share. Clones are the same engine.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    wasmtime: wasmtime::Engine,
    linker: Linker<State>,
    artifacts: Option<CompiledArtifacts>,
    pool: Pool,
    /// The modules that are in use, so that controllers of one module share its machine code.
    loaded: Mutex<BTreeMap<ModuleDigest, Weak<LoadedModule>>>,
    /// The right to load a compiled module.
    loading: Semaphore,
    /// The right to compile: one module at a time, since compiling takes many
    /// times the memory of the guest.
    compiling: Semaphore,
    compiler: Compiler,
    /// The modules that failed to compile and would fail again.
    failed: Mutex<VecDeque<(ModuleDigest, CompileError)>>,
    max_module: usize,
    core_instances: u32,
}

impl Engine {
    /// Sets up wasmtime and starts the thread that interrupts guests. The
    /// thread ends with the engine.
    pub fn new(config: EngineConfig) -> Result<Self, EngineError> {
        let wasmtime = wasmtime::Engine::new(&wasmtime_config(
            config.max_instances,
            config.core_instances,
        ))
        .map_err(EngineError::Wasmtime)?;
        let linker = linker(&wasmtime).map_err(EngineError::Wasmtime)?;
        let artifacts = config
            .cache_dir
            .map(|directory| CompiledArtifacts::open(directory, &wasmtime))
            .transpose()?;
        let ticker = Ticker::start(wasmtime.weak()).map_err(EngineError::Ticker)?;
        Ok(Self {
            inner: Arc::new(Inner {
                wasmtime,
                linker,
                artifacts,
                pool: Pool::new(config.max_instances, ticker),
                loaded: Mutex::default(),
                loading: Semaphore::new(1),
                compiling: Semaphore::new(1),
                compiler: config.compiler,
                failed: Mutex::default(),
                max_module: config.max_module,
                core_instances: config.core_instances,
            }),
        })
    }

    /// Compiles a component, or loads the output of an earlier run, and checks
    /// that it can be a guest. One module is compiled at a time, with the processor
    /// time that running guests leave.
    pub async fn load(&self, wasm: Vec<u8>) -> Result<Module, LoadError> {
        self.load_shared(Arc::new(wasm)).await
    }

    /// The same, of bytes that the caller needs afterwards.
    pub async fn load_shared(&self, wasm: Arc<Vec<u8>>) -> Result<Module, LoadError> {
        let (size, limit) = (wasm.len(), self.inner.max_module);
        if size > limit {
            return Err(LoadError::TooLarge { size, limit });
        }
        let digest = {
            let wasm = Arc::clone(&wasm);
            blocking(move || Ok(ModuleDigest::of(&wasm))).await?
        };
        if let Some(module) = self.load_stored(digest).await? {
            return Ok(module);
        }
        // The semaphore is never closed.
        let _turn = self.inner.compiling.acquire().await.ok();
        // Somebody else may have compiled it meanwhile.
        if let Some(module) = self.loaded(digest) {
            return Ok(module);
        }
        let component = self.compile(wasm, digest).await?;
        self.module(&component, digest)
    }

    /// The module, if it is in use or the output of an earlier run. One at a time, so that
    /// whoever loads the same one shares it.
    async fn load_stored(&self, digest: ModuleDigest) -> Result<Option<Module>, LoadError> {
        let _turn = self.inner.loading.acquire().await.ok();
        if let Some(module) = self.loaded(digest) {
            return Ok(Some(module));
        }
        let stored = self.stored(digest).await?;
        stored.map(|it| self.module(&it, digest)).transpose()
    }

    /// The module, if it is in use.
    fn loaded(&self, digest: ModuleDigest) -> Option<Module> {
        let loaded = self.inner.modules().get(&digest)?.upgrade()?;
        Some(Module::new(self.inner.pool.clone(), loaded))
    }

    /// The output of an earlier run, if there is one.
    async fn stored(&self, digest: ModuleDigest) -> Result<Option<Component>, CompileError> {
        let engine = self.clone();
        blocking(move || {
            let artifacts = engine.inner.artifacts.as_ref();
            Ok(artifacts.and_then(|kept| kept.load(&engine.inner.wasmtime, digest)))
        })
        .await
    }

    async fn compile(
        &self,
        wasm: Arc<Vec<u8>>,
        digest: ModuleDigest,
    ) -> Result<Component, CompileError> {
        if let Some(error) = self.inner.known_failure(digest) {
            return Err(error);
        }
        let compiled = match &self.inner.compiler {
            Compiler::InProcess => self.compile_here(wasm, digest).await,
            Compiler::Child(child) => {
                let code = child.compile(&wasm).await;
                match code {
                    Ok(code) => self.take(code, digest).await,
                    Err(error) => Err(error),
                }
            }
        };
        if let Err(error) = &compiled
            && error.is_final()
        {
            self.inner.remember_failure(digest, error.clone());
        }
        compiled
    }

    async fn compile_here(
        &self,
        wasm: Arc<Vec<u8>>,
        digest: ModuleDigest,
    ) -> Result<Component, CompileError> {
        let engine = self.clone();
        blocking(move || {
            let component = compiler::compile(&engine.inner.wasmtime, &wasm)?;
            if let Some(artifacts) = &engine.inner.artifacts {
                match component.serialize() {
                    Ok(code) => artifacts.store(&code, digest),
                    Err(error) => tracing::warn!("cannot store a compiled guest: {error:#}"),
                }
            }
            Ok(component)
        })
        .await
    }

    /// Takes machine code over from the child process.
    async fn take(&self, code: Vec<u8>, digest: ModuleDigest) -> Result<Component, CompileError> {
        let engine = self.clone();
        blocking(move || {
            let component = precompiled::deserialize(&engine.inner.wasmtime, &code)
                .map_err(|error| engine.inner.unfit(&error))?;
            if let Some(artifacts) = &engine.inner.artifacts {
                artifacts.store(&code, digest);
            }
            Ok(component)
        })
        .await
    }

    fn module(&self, component: &Component, digest: ModuleDigest) -> Result<Module, LoadError> {
        let world = admit(component)?;
        check_resources(component)?;
        let program = self
            .inner
            .linker
            .instantiate_pre(component)
            .and_then(Program::new)
            .map_err(|error| LoadError::Link(format!("{error:#}")))?;
        let loaded = Arc::new(LoadedModule {
            program,
            world,
            digest,
        });
        let mut modules = self.inner.modules();
        modules.retain(|_, module| module.strong_count() > 0);
        modules.insert(digest, Arc::downgrade(&loaded));
        Ok(Module::new(self.inner.pool.clone(), loaded))
    }

    /// What the instances of all guests use now.
    #[must_use]
    pub fn usage(&self) -> InstanceUsage {
        self.inner.pool.usage().read()
    }

    /// Deletes the least recently used compiled guests beyond the limit, except
    /// those of these modules.
    pub fn prune(&self, in_use: &BTreeSet<ModuleDigest>) {
        if let Some(artifacts) = &self.inner.artifacts {
            artifacts.prune(in_use);
        }
    }
}

fn wasmtime_config(max_instances: u32, core_instances: u32) -> Config {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(max_instances)
        .total_core_instances(max_instances.saturating_mul(core_instances))
        .total_memories(max_instances)
        .total_tables(max_instances.saturating_mul(TABLES_PER_GUEST))
        .total_stacks(max_instances)
        .max_core_instances_per_component(core_instances)
        .max_memories_per_component(1)
        .max_tables_per_component(TABLES_PER_GUEST)
        .table_elements(Limits::MAX_TABLE_ELEMENTS)
        // A new instance uses a slot that was used before, so that the host's
        // memory depends on the number of instances at once, and not on their
        // number over time.
        .max_unused_warm_slots(0);
    let mut config = Config::new();
    config
        // Component-model async: guests of this world do not use it, and it
        // makes every call four times as long.
        .concurrency_support(false)
        // For debuggers. Nobody reads them, and they are a fifth of what a compiled guest has in
        // memory; the names of functions in reports of traps come from elsewhere.
        .generate_address_map(false)
        .debug_symbols(false)
        .native_unwind_info(false)
        .epoch_interruption(true)
        .max_wasm_stack(WASM_STACK)
        .async_stack_size(WASM_STACK + HOST_STACK)
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    config
}

/// The engine of a process that only compiles. Its code runs in engines of any number
/// of instances.
pub(crate) fn compiling_engine() -> wasmtime::Result<wasmtime::Engine> {
    wasmtime::Engine::new(&wasmtime_config(1, MOST_CORE_INSTANCES))
}

fn linker(engine: &wasmtime::Engine) -> wasmtime::Result<Linker<State>> {
    let mut linker = Linker::new(engine);
    Controller::add_to_linker::<State, HasSelf<State>>(&mut linker, |state| state)?;
    wasi::add_to_linker(&mut linker)?;
    Ok(linker)
}

fn admit(component: &Component) -> Result<world::WorldVersion, WorldError> {
    let engine = component.engine();
    let component = component.component_type();
    world::admit(
        component.imports(engine).map(|(name, _)| name),
        component.exports(engine).map(|(name, _)| name),
    )
}

/// The pool would refuse the component too, but only when it is instantiated.
fn check_resources(component: &Component) -> Result<(), LoadError> {
    let Some(needs) = component.resources_required() else {
        return Ok(());
    };
    let within = |unit, needs, limit| {
        if needs <= limit {
            Ok(())
        } else {
            Err(LoadError::Resources { unit, needs, limit })
        }
    };
    within("linear memories", needs.num_memories, 1)?;
    within("tables", needs.num_tables, TABLES_PER_GUEST)
}

impl Inner {
    /// Why machine code does not fit into this engine.
    fn unfit(&self, error: &wasmtime::Error) -> CompileError {
        let text = format!("{error:#}");
        if text.contains(MANY_INSTANCES) {
            let limit = self.core_instances;
            return CompileError::CoreInstances { limit };
        }
        CompileError::Crash(text)
    }

    fn modules(&self) -> MutexGuard<'_, BTreeMap<ModuleDigest, Weak<LoadedModule>>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_failure(&self, digest: ModuleDigest) -> Option<CompileError> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let known = failed.iter().find(|(module, _)| *module == digest);
        known.map(|(_, error)| error.clone())
    }

    fn remember_failure(&self, digest: ModuleDigest, error: CompileError) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.len() == MOST_FAILED {
            failed.pop_front();
        }
        failed.push_back((digest, error));
    }
}

/// Runs work off the async threads. Cranelift may panic: that is the module's
/// failure, not the host's.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CompileError> + Send + 'static,
) -> Result<T, CompileError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(CompileError::Crash(error.to_string())))
}
