//! One wasmtime engine for all guests, and how a component is loaded into it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use davit_core::digest::ModuleDigest;
use tokio::sync::Semaphore;
use wasmtime::component::{Component, HasSelf, Linker};
use wasmtime::{Config, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::artifacts::{ArtifactsError, CompiledArtifacts};
use crate::imports::wasi;
use crate::limits::{Limits, TICK};
use crate::module::Module;
use crate::state::State;
use crate::wit::{Controller, ControllerPre};
use crate::world::{self, WorldError};

/// The increment of the nice value of a thread that compiles. Such a thread
/// gets the processor time that running guests leave, or a seventieth of a
/// processor if they leave none.
#[cfg(target_os = "linux")]
const NICER: i32 = 19;

/// `wit-bindgen` and `wit-component` make one program from the program itself
/// and two modules that join it to its imports. The rest is for composed
/// components.
const CORE_INSTANCES_PER_GUEST: u32 = 8;
const TABLES_PER_GUEST: u32 = 4;

/// Wasm's own stack, and the additional stack of host functions (live reads
/// among them). A guest that needs more ends with the trap "call stack
/// exhausted". This reserves address space; memory is allocated when it is
/// used.
const WASM_STACK: usize = 512 << 10;
const HOST_STACK: usize = 1536 << 10;

/// The settings of the engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The directory for compiled guests, if any. It is created if it does not
    /// exist. It must belong to this process's user and nobody else may write
    /// to it: its files are executed.
    pub cache_dir: Option<PathBuf>,
    /// How many instances may exist at once, over all guests. Each reserves
    /// about 4 GiB of address space, and keeps a little memory; the rest is
    /// allocated when it is used. 512 instances take 2 TiB of the 128 TiB that
    /// a process has where pointers have 47 bits, and a thousand of the 65,530
    /// mappings that Linux allows.
    pub max_instances: u32,
    /// The largest guest that is compiled, in bytes.
    pub max_module: usize,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            cache_dir: None,
            max_instances: 512,
            max_module: 32 << 20,
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

/// The first bytes of every WebAssembly file.
const WASM_MAGIC: &[u8] = b"\0asm";

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
    /// It is not a component, or needs a feature of wasmtime that is off.
    #[error("the module does not compile: {0}")]
    Compile(String),
    /// It is a component, but not a guest for this host.
    #[error("the module cannot be a guest: {0}")]
    World(#[from] WorldError),
    /// It needs more of a resource than a guest may have.
    #[error("the module needs {needs} {what}; the limit is {limit}")]
    Resources {
        /// `linear memories`, `tables`.
        what: &'static str,
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
    /// One permit for each instance that may exist.
    instances: Arc<Semaphore>,
    /// The right to compile: one module at a time, since compiling takes many
    /// times the memory of the guest.
    compiling: Arc<Semaphore>,
    max_module: usize,
}

impl Engine {
    /// Sets up wasmtime and starts the thread that interrupts guests. The
    /// thread ends with the engine.
    pub fn new(config: EngineConfig) -> Result<Self, EngineError> {
        let wasmtime = wasmtime::Engine::new(&wasmtime_config(config.max_instances))
            .map_err(EngineError::Wasmtime)?;
        let linker = linker(&wasmtime).map_err(EngineError::Wasmtime)?;
        let artifacts = config
            .cache_dir
            .map(|directory| CompiledArtifacts::open(directory, &wasmtime))
            .transpose()?;
        start_ticker(&wasmtime)?;
        Ok(Self {
            inner: Arc::new(Inner {
                wasmtime,
                linker,
                artifacts,
                instances: Arc::new(Semaphore::new(config.max_instances as usize)),
                compiling: Arc::new(Semaphore::new(1)),
                max_module: config.max_module,
            }),
        })
    }

    /// Compiles a component, or loads the output of an earlier run, and checks
    /// that it can be a guest. The work runs outside of the async threads, for
    /// one module at a time, with the processor time that running guests leave.
    pub async fn load(&self, wasm: Vec<u8>) -> Result<Module, LoadError> {
        let engine = self.clone();
        // The semaphore is never closed. The permit lasts as long as the work,
        // even if nobody waits for the result.
        let turn = Arc::clone(&engine.inner.compiling)
            .acquire_owned()
            .await
            .ok();
        let work = move || {
            let _turn = turn;
            giving_way(|| engine.load_blocking(&wasm))
        };
        tokio::task::spawn_blocking(work)
            .await
            // Cranelift panicked: that is the module's failure, not the host's.
            .unwrap_or_else(|error| Err(LoadError::Compile(error.to_string())))
    }

    fn load_blocking(&self, wasm: &[u8]) -> Result<Module, LoadError> {
        let limit = self.inner.max_module;
        if wasm.len() > limit {
            let size = wasm.len();
            return Err(LoadError::TooLarge { size, limit });
        }
        let digest = ModuleDigest::of(wasm);
        let component = self.compiled(wasm, digest)?;
        let world = admit(&component)?;
        check_resources(&component)?;
        let pre = self
            .inner
            .linker
            .instantiate_pre(&component)
            .and_then(ControllerPre::new)
            .map_err(|error| LoadError::Link(format!("{error:#}")))?;
        let instances = Arc::clone(&self.inner.instances);
        Ok(Module::new(instances, pre, world, digest))
    }

    fn compiled(&self, wasm: &[u8], digest: ModuleDigest) -> Result<Component, LoadError> {
        let engine = &self.inner.wasmtime;
        let artifacts = self.inner.artifacts.as_ref();
        if let Some(component) = artifacts.and_then(|kept| kept.load(engine, digest)) {
            return Ok(component);
        }
        if !wasm.starts_with(WASM_MAGIC) {
            let message = "it is not WebAssembly: a module starts with the bytes 00 61 73 6d";
            return Err(LoadError::Compile(message.to_owned()));
        }
        let component = Component::from_binary(engine, wasm)
            .map_err(|error| LoadError::Compile(format!("{error:#}")))?;
        if let Some(artifacts) = artifacts {
            artifacts.store(&component, digest);
        }
        Ok(component)
    }

    /// Deletes the least recently used compiled guests beyond the limit, except
    /// those of these modules.
    pub fn prune(&self, in_use: &BTreeSet<ModuleDigest>) {
        if let Some(artifacts) = &self.inner.artifacts {
            artifacts.prune(in_use);
        }
    }
}

fn wasmtime_config(max_instances: u32) -> Config {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(max_instances)
        .total_core_instances(max_instances.saturating_mul(CORE_INSTANCES_PER_GUEST))
        .total_memories(max_instances)
        .total_tables(max_instances.saturating_mul(TABLES_PER_GUEST))
        .total_stacks(max_instances)
        .max_core_instances_per_component(CORE_INSTANCES_PER_GUEST)
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
        .epoch_interruption(true)
        .max_wasm_stack(WASM_STACK)
        .async_stack_size(WASM_STACK + HOST_STACK)
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    config
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
    let within = |what, needs, limit| {
        if needs <= limit {
            Ok(())
        } else {
            Err(LoadError::Resources { what, needs, limit })
        }
    };
    within("linear memories", needs.num_memories, 1)?;
    within("tables", needs.num_tables, TABLES_PER_GUEST)
}

/// Runs this work with a lower priority than every other thread of the host: on
/// a thread of its own, since no thread can restore its priority.
fn giving_way<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            give_way();
            work()
        });
        let done = worker.join();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// On Linux each thread has a nice value; elsewhere the process has one, and it
/// stays as it is.
fn give_way() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::nice(NICER) {
        tracing::debug!(%error, "cannot lower the priority of compiling");
    }
}

fn start_ticker(engine: &wasmtime::Engine) -> Result<(), EngineError> {
    let engine = engine.weak();
    std::thread::Builder::new()
        .name("davit-ticks".to_owned())
        .spawn(move || {
            while let Some(engine) = engine.upgrade() {
                engine.increment_epoch();
                drop(engine);
                std::thread::sleep(TICK);
            }
        })
        .map_err(EngineError::Ticker)?;
    Ok(())
}
