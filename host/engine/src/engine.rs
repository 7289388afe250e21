//! One wasmtime engine for all guests, and how a component gets into it.

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

/// What is added to the nice value of a thread that compiles: it has what the
/// guests at work leave, and a seventieth of a processor of which they leave
/// nothing.
#[cfg(target_os = "linux")]
const NICER: i32 = 19;

/// What `wit-bindgen` and `wit-component` make of one program: the program
/// itself, and two modules that join it to its imports. A few more leave room
/// for composed components.
const CORE_INSTANCES_PER_GUEST: u32 = 8;
const TABLES_PER_GUEST: u32 = 4;

/// Wasm's own stack, and what host functions (live reads among them) have on
/// top of it. A guest that needs more ends with the trap "call stack
/// exhausted". Address space is reserved, memory is taken as it is used.
const WASM_STACK: usize = 512 << 10;
const HOST_STACK: usize = 1536 << 10;

/// What the engine is set up with.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Where compiled guests are kept, if anywhere. The directory is made if
    /// it does not exist. It must belong to this process's user and nobody
    /// else may write to it: what lies there is run.
    pub cache_dir: Option<PathBuf>,
    /// How many instances exist at once, over all guests. About 4 GiB of address
    /// space are reserved for each, and a little kept of it; memory is taken only
    /// as it is used. 512 make 2 TiB of the 128 that a process has where
    /// pointers have 47 bits, and a thousand of the mappings that Linux allows,
    /// of which there are 65,530.
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
    /// Wasmtime does not run here as it is set up.
    #[error("cannot set up wasmtime: {0:#}")]
    Wasmtime(wasmtime::Error),
    /// The thread that counts time cannot be started.
    #[error("cannot start the thread that interrupts guests")]
    Ticker(#[source] std::io::Error),
    /// The directory for compiled guests cannot be used.
    #[error(transparent)]
    Artifacts(#[from] ArtifactsError),
}

/// What every WebAssembly file begins with.
const WASM_MAGIC: &[u8] = b"\0asm";

/// Why a module cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It is larger than the engine takes.
    #[error("the module has {size} bytes, {limit} are allowed")]
    TooLarge {
        /// Its size in bytes.
        size: usize,
        /// [`EngineConfig::max_module`].
        limit: usize,
    },
    /// It is no component, or uses what wasmtime is not set up for.
    #[error("the module does not compile: {0}")]
    Compile(String),
    /// It is a component, but no guest of this host.
    #[error("the module cannot be a guest: {0}")]
    World(#[from] WorldError),
    /// It needs more of something than any guest gets.
    #[error("the module needs {needs} {what}, a guest gets {limit}")]
    Resources {
        /// `linear memories`, `tables`.
        what: &'static str,
        /// How many it needs.
        needs: u32,
        /// How many there are.
        limit: u32,
    },
    /// Its imports or exports have the right names and other types.
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
    /// Who may compile: one at a time, since it takes many times the memory that
    /// the guest itself does.
    compiling: Arc<Semaphore>,
    max_module: usize,
}

impl Engine {
    /// Sets up wasmtime and starts the thread that interrupts guests; it ends
    /// with the engine.
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

    /// Compiles a component, or takes what an earlier run made of it, and
    /// checks that it can be a guest. The work is done off the async threads,
    /// for one module after the other, and gets what the guests at work leave of
    /// the processors.
    pub async fn load(&self, wasm: Vec<u8>) -> Result<Module, LoadError> {
        let engine = self.clone();
        // It is never closed. The turn lasts as long as the work does, also if
        // nobody waits for that any more.
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
            let message = "it is no WebAssembly, which begins with the bytes 00 61 73 6d";
            return Err(LoadError::Compile(message.to_owned()));
        }
        let component = Component::from_binary(engine, wasm)
            .map_err(|error| LoadError::Compile(format!("{error:#}")))?;
        if let Some(artifacts) = artifacts {
            artifacts.store(&component, digest);
        }
        Ok(component)
    }

    /// Drops compiled guests that were not used for long, if too many are kept:
    /// those of other modules than these.
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
        // A new instance takes a slot that was in use before, so that the
        // host's memory follows how many exist at once, not how many ever did.
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

/// Does this while every other thread of the host goes before it: on a thread of
/// its own, since none can take back that it gave way.
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

/// On Linux the nice value is a thread's own; elsewhere it is the process's, and
/// stays as it is.
fn give_way() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::nice(NICER) {
        tracing::debug!(%error, "compiling at the priority of everything else");
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
