//! Making a controller of its configuration: find the guest, compile it, have
//! it check its configuration. Whatever is wrong is found here, before anything
//! that runs is touched.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use davit_cluster::api::chain;
use davit_core::untrusted;
use davit_engine::{DescribeError, Engine, Guest, Limits, LoadError, Module, ModuleDigest};

use crate::modules::{Fetched, ModuleError, Modules};
use davit_core::api::ModuleConfig;
use davit_core::api::{ControllerSpec, LimitConfig, SpecError};

/// A revision that is ready to run.
#[derive(Clone)]
pub struct Prepared {
    /// Its guest, described and with its instances set aside.
    pub guest: Arc<Guest>,
    /// What its guest was made of.
    pub recipe: Recipe,
    /// Why its module was loaded from the module cache: its source cannot be
    /// read.
    pub away: Option<String>,
}

impl PartialEq for Prepared {
    fn eq(&self, other: &Self) -> bool {
        self.recipe == other.recipe
    }
}

/// What a guest is made of: as long as this is the same, so is the guest. It is
/// told by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    module: ModuleDigest,
    config: Arc<[u8]>,
    limits: LimitConfig,
}

impl Recipe {
    /// A module, the operator's configuration as the guest is given it, and
    /// limits.
    #[must_use]
    pub fn new(module: ModuleDigest, config: Arc<[u8]>, limits: LimitConfig) -> Self {
        Self {
            module,
            config,
            limits,
        }
    }

    /// The module.
    #[must_use]
    pub fn digest(&self) -> ModuleDigest {
        self.module
    }

    /// Twelve hexadecimal digits that stand for the configuration.
    #[must_use]
    pub fn config_hash(&self) -> String {
        hex(&self.config, 12)
    }

    /// How many calls run at once.
    pub(super) fn instances(&self) -> u32 {
        self.limits.instances
    }
}

impl fmt::Display for Recipe {
    /// The revision's name: ten hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LimitConfig {
            memory_mib,
            call_millis,
            instances,
        } = self.limits;
        let limits = format!("{memory_mib} {call_millis} {instances} ");
        let all = [&self.module.0, limits.as_bytes(), &self.config].concat();
        f.write_str(&hex(&all, 10))
    }
}

/// So many hexadecimal digits of a SHA-256.
fn hex(bytes: &[u8], digits: usize) -> String {
    let mut text = ModuleDigest::of(bytes).to_string();
    text.truncate(digits);
    text
}

/// Why a controller cannot run as it is configured.
#[derive(Debug, thiserror::Error)]
#[error("controller \"{controller}\"")]
pub struct PrepareError {
    /// The controller.
    pub controller: String,
    /// What is wrong.
    #[source]
    pub reason: Reason,
}

/// What can be wrong with a controller.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// The guest cannot be found or read.
    #[error("module")]
    Module(#[from] ModuleError),
    /// The guest cannot be loaded.
    #[error("module")]
    Load(#[from] LoadError),
    /// The guest refuses its configuration, or cannot say what it needs.
    #[error("config")]
    Describe(#[from] DescribeError),
    /// The configuration cannot be written as MessagePack.
    #[error("config")]
    Encode(#[from] rmp_serde::encode::Error),
}

impl Reason {
    /// The field of the spec that this is about, and what is wrong with it.
    #[must_use]
    pub fn in_spec(&self) -> SpecError {
        let (field, reason) = match self {
            Self::Module(error) => ("module", chain(error)),
            Self::Load(error) => ("module", chain(error)),
            Self::Encode(error) => ("config", chain(error)),
            Self::Describe(DescribeError::Config { field, message }) => {
                // In the guest's words.
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

/// Prepares revisions. It compiles each module once, and describes each
/// configuration of it once, as long as somebody holds what it made.
pub struct Preparer {
    engine: Engine,
    modules: Modules,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    loaded: HashMap<ModuleDigest, Module>,
    guests: Vec<(Recipe, Weak<Guest>)>,
}

impl Preparer {
    /// Loads guests from there, with this engine.
    #[must_use]
    pub fn new(engine: Engine, modules: Modules) -> Self {
        Self {
            engine,
            modules,
            known: Mutex::default(),
        }
    }

    /// Where it finds modules.
    #[must_use]
    pub fn modules(&self) -> &Modules {
        &self.modules
    }

    /// Lets go of the modules of other digests than these.
    pub fn forget_all_but(&self, in_use: &BTreeSet<ModuleDigest>) {
        let mut known = self.known();
        known.loaded.retain(|digest, _| in_use.contains(digest));
        self.modules.prune(in_use);
        self.engine.prune(in_use);
    }

    /// Prepares the revision that a spec describes. Its module comes from the
    /// source, also if it is pinned: see [`Modules::fetch`].
    pub async fn prepare(&self, spec: &ControllerSpec) -> Result<Prepared, Reason> {
        let found = match self.modules.fetch(&spec.module).await {
            Ok(fetched) => self.load(fetched).await?,
            Err(error) => match self.loaded(&spec.module).filter(|_| error.is_away()) {
                Some(module) => (module, Some(chain(&error))),
                None => return Err(error.into()),
            },
        };
        self.describe(spec, found).await
    }

    /// Prepares a revision that ran before, by the digest that was recorded.
    pub async fn recall(&self, spec: &ControllerSpec) -> Result<Prepared, Reason> {
        let found = match self.loaded(&spec.module) {
            Some(module) => (module, None),
            None => self.load(self.modules.recall(&spec.module).await?).await?,
        };
        self.describe(spec, found).await
    }

    /// Describes a module, and says why it came from the module cache if so.
    async fn describe(
        &self,
        spec: &ControllerSpec,
        (module, away): (Module, Option<String>),
    ) -> Result<Prepared, Reason> {
        let config = encode(&spec.config)?.into();
        let recipe = Recipe::new(module.digest(), config, spec.limits);
        let known = self.known().guest(&recipe);
        let guest = if let Some(guest) = known {
            guest
        } else {
            let config = Arc::clone(&recipe.config);
            let guest = Guest::new(&module, config, limits(recipe.limits)).await?;
            let guest = Arc::new(guest);
            let made = (recipe.clone(), Arc::downgrade(&guest));
            self.known().guests.push(made);
            guest
        };
        Ok(Prepared {
            guest,
            recipe,
            away,
        })
    }

    /// The pinned module, if it is loaded already.
    fn loaded(&self, config: &ModuleConfig) -> Option<Module> {
        self.known().module(config.digest?)
    }

    async fn load(&self, fetched: Fetched) -> Result<(Module, Option<String>), Reason> {
        let (digest, away) = (fetched.digest, fetched.away);
        if let Some(module) = self.known().module(digest) {
            return Ok((module, away));
        }
        let module = self.engine.load(fetched.wasm).await?;
        self.known().loaded.insert(digest, module.clone());
        Ok((module, away))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn module(&self, digest: ModuleDigest) -> Option<Module> {
        self.loaded.get(&digest).cloned()
    }

    fn guest(&mut self, recipe: &Recipe) -> Option<Arc<Guest>> {
        self.guests.retain(|(_, guest)| guest.strong_count() > 0);
        let mut guests = self.guests.iter();
        let (_, guest) = guests.find(|(same, _)| same == recipe)?;
        guest.upgrade()
    }
}

/// The operator's configuration as the guest is given it. None is an empty map.
pub fn encode(config: &serde_json::Value) -> Result<Vec<u8>, rmp_serde::encode::Error> {
    match config {
        serde_json::Value::Null => rmp_serde::to_vec_named(&serde_json::Map::new()),
        config => rmp_serde::to_vec_named(config),
    }
}

fn limits(config: LimitConfig) -> Limits {
    Limits {
        instances: config.instances,
        memory: config.memory_mib as usize * (1 << 20),
        cpu: Duration::from_millis(config.call_millis),
        ..Limits::default()
    }
}
