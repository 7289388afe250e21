//! Making a controller of its configuration: find the guest, compile it, have
//! it check its configuration. Whatever is wrong is found here, before anything
//! that runs is touched.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use davit_core::controller::Settings;
use davit_engine::{DescribeError, Engine, Guest, Limits, LoadError, Module, ModuleDigest};

use crate::config::{ControllerConfig, LimitConfig};
use crate::modules::{ModuleError, Modules};

/// A controller that is ready to run.
pub struct Prepared {
    /// Its name.
    pub name: String,
    /// Its guest, described and with its instances set aside.
    pub guest: Arc<Guest>,
    /// What the operator decided.
    pub settings: Settings,
    /// What its guest was made of.
    pub recipe: Recipe,
}

/// What a guest is made of: as long as this is the same, so is the guest.
#[derive(Clone, PartialEq)]
pub struct Recipe {
    module: ModuleDigest,
    config: Arc<[u8]>,
    limits: LimitConfig,
}

impl Recipe {
    /// How many calls run at once.
    pub(super) fn instances(&self) -> u32 {
        self.limits.instances
    }
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

/// Prepares controllers; compiles each module once.
pub struct Preparer {
    engine: Engine,
    modules: Modules,
    loaded: HashMap<ModuleDigest, Module>,
}

impl Preparer {
    /// Loads guests from there, with this engine.
    #[must_use]
    pub fn new(engine: Engine, modules: Modules) -> Self {
        Self {
            engine,
            modules,
            loaded: HashMap::new(),
        }
    }

    /// Prepares one controller. If `running` says that its guest is already
    /// made of the same, that one is used again.
    pub async fn prepare(
        &mut self,
        config: &ControllerConfig,
        running: Option<(&Recipe, &Arc<Guest>)>,
    ) -> Result<Prepared, PrepareError> {
        self.try_prepare(config, running)
            .await
            .map_err(|reason| PrepareError {
                controller: config.name.clone(),
                reason,
            })
    }

    /// Lets go of the modules that none of these was made of.
    pub fn forget_all_but(&mut self, running: &[Prepared]) {
        let in_use: BTreeSet<ModuleDigest> = running.iter().map(|one| one.recipe.module).collect();
        self.loaded.retain(|digest, _| in_use.contains(digest));
        self.modules.prune(&in_use);
    }

    async fn try_prepare(
        &mut self,
        config: &ControllerConfig,
        running: Option<(&Recipe, &Arc<Guest>)>,
    ) -> Result<Prepared, Reason> {
        let module = self.module(config).await?;
        let recipe = Recipe {
            module: module.digest(),
            config: encode(&config.config)?.into(),
            limits: config.limits,
        };
        let guest = match running {
            Some((same, guest)) if *same == recipe => Arc::clone(guest),
            _ => {
                let config = Arc::clone(&recipe.config);
                Arc::new(Guest::new(&module, config, limits(recipe.limits)).await?)
            }
        };
        Ok(Prepared {
            name: config.name.clone(),
            guest,
            settings: settings(config),
            recipe,
        })
    }

    async fn module(&mut self, config: &ControllerConfig) -> Result<Module, Reason> {
        let fetched = self.modules.fetch(&config.module).await?;
        if let Some(module) = self.loaded.get(&fetched.digest) {
            return Ok(module.clone());
        }
        let module = self.engine.load(fetched.wasm).await?;
        self.loaded.insert(fetched.digest, module.clone());
        Ok(module)
    }
}

/// The operator's configuration as the guest is given it. None is an empty map.
pub fn encode(config: &serde_json::Value) -> Result<Vec<u8>, rmp_serde::encode::Error> {
    match config {
        serde_json::Value::Null => rmp_serde::to_vec_named(&serde_json::Map::new()),
        config => rmp_serde::to_vec_named(config),
    }
}

fn settings(config: &ControllerConfig) -> Settings {
    let granted = config.permissions.as_ref();
    Settings {
        mode: config.mode.into(),
        granted: granted.map(|rules| rules.iter().map(Into::into).collect()),
        guardrails: config.guardrails.into(),
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
