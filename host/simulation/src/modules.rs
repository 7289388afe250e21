//! Modules: their sources, the module caches of hosts, and loads.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use davit_core::api::{ControllerSpec, ModuleConfig, ModuleSource, encode_config};
use davit_core::control::{Load, LoadFailure, LoadProblem, LoadResult, LoadTarget, SourceVersion};
use davit_core::digest::ModuleDigest;
use davit_core::manifest::Manifest;
use davit_core::revision::{LoadedRevision, RevisionIdentity};

use crate::guest::{Guest, NativeGuest};
use crate::records::Records;

/// A module. Builds of one program differ in nothing but their digests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// The name of the program.
    pub program: String,
    /// The number of the build.
    pub build: u32,
}

impl Module {
    /// The digest of the module.
    #[must_use]
    pub fn digest(&self) -> ModuleDigest {
        ModuleDigest::of(format!("{} {}", self.program, self.build).as_bytes())
    }
}

/// A guest and its manifest, or why the guest refuses its configuration.
pub type DescribeResult = Result<(Arc<dyn NativeGuest>, Manifest), String>;

/// A guest and its manifest.
type DescribedGuest = (Arc<dyn NativeGuest>, Arc<Manifest>);

/// Describes a program with a configuration (MessagePack).
pub type Describe = fn(program: &str, config: &[u8]) -> DescribeResult;

/// The module cache of a host's machine.
#[derive(Debug, Default)]
pub(crate) struct ModuleCache(BTreeMap<ModuleDigest, Module>);

impl ModuleCache {
    /// Another machine has none of the modules.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Drops every other module.
    pub(crate) fn keep(&mut self, digests: &BTreeSet<ModuleDigest>) {
        self.0.retain(|digest, _| digests.contains(digest));
    }

    fn get(&self, config: &ModuleConfig) -> Option<Module> {
        self.0.get(&config.digest?).cloned()
    }
}

/// The sources of modules.
pub struct Modules {
    describe: Describe,
    /// The module of each source and how often it changed; no module while nobody can read
    /// the source.
    sources: BTreeMap<String, (Option<Module>, u64)>,
    /// The guests by program and configuration.
    described: BTreeMap<(String, Arc<[u8]>), DescribedGuest>,
}

impl fmt::Debug for Modules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(&self.sources).finish()
    }
}

type Result<T, E = LoadProblem> = std::result::Result<T, E>;

impl Modules {
    /// Sources without modules.
    #[must_use]
    pub fn new(describe: Describe) -> Self {
        Self {
            describe,
            sources: BTreeMap::new(),
            described: BTreeMap::new(),
        }
    }

    /// A source holds this module from now on; none: nobody can read the source.
    pub fn provide(&mut self, source: &ModuleSource, module: Option<Module>) {
        let held = self.sources.entry(source.to_string()).or_default();
        *held = (module, held.1 + 1);
    }

    /// The revision that a spec describes, if a load would succeed now on a machine without
    /// modules.
    pub fn describe(&mut self, spec: &ControllerSpec) -> Option<LoadedRevision<Guest>> {
        self.load_now(spec, &mut ModuleCache::default())
    }

    /// The revision that a spec describes, if a load would succeed now.
    pub(crate) fn load_now(
        &mut self,
        spec: &ControllerSpec,
        cache: &mut ModuleCache,
    ) -> Option<LoadedRevision<Guest>> {
        self.load_spec(spec, cache).ok()
    }

    /// The outcome of a load.
    pub(crate) fn load(
        &mut self,
        load: &Load,
        cache: &mut ModuleCache,
        records: &Records,
    ) -> Result<LoadResult<Guest>> {
        match &load.target {
            LoadTarget::Desired { spec, before } => self.load_desired(spec, before.as_ref(), cache),
            LoadTarget::Stable { revision } | LoadTarget::Candidate { revision } => {
                let spec = records.spec(&load.owner, revision).ok_or_else(|| {
                    let message = format!("the spec of {revision} is not recorded");
                    LoadProblem::new(LoadFailure::NotRecorded, &message)
                })?;
                let revision = self
                    .load_recorded(&spec, cache)
                    .map_err(|problem| LoadProblem {
                        is_builtin: spec.module.source.is_builtin(),
                        ..problem
                    })?;
                Ok(LoadResult::Loaded {
                    revision,
                    spec: Box::new(spec),
                    version: None,
                })
            }
        }
    }

    /// The revision that a spec describes, unless its source is unchanged.
    fn load_desired(
        &mut self,
        spec: &ControllerSpec,
        before: Option<&SourceVersion>,
        cache: &mut ModuleCache,
    ) -> Result<LoadResult<Guest>> {
        let module = &spec.module;
        let held = self.sources.get(&module.source.to_string());
        let version = match held {
            _ if module.check_interval().is_none() => None,
            Some((Some(_), number)) => Some(SourceVersion(number.to_string())),
            _ if module.digest.is_some() => Some(SourceVersion::unavailable()),
            _ => return Err(unavailable()),
        };
        if version.is_some() && version.as_ref() == before {
            return Ok(LoadResult::Unchanged);
        }
        let loaded = self.load_spec(spec, cache);
        match loaded {
            Ok(revision) => Ok(LoadResult::Loaded {
                revision,
                spec: Box::new(spec.clone()),
                version,
            }),
            Err(problem) => Err(LoadProblem { version, ..problem }),
        }
    }

    fn load_spec(
        &mut self,
        spec: &ControllerSpec,
        cache: &mut ModuleCache,
    ) -> Result<LoadedRevision<Guest>> {
        let (found, away) = match self.fetch(&spec.module) {
            Ok(module) => (module, None),
            Err(problem) => match cache.get(&spec.module) {
                Some(module) if problem.failure == LoadFailure::NotFound => {
                    (module, Some(problem.message))
                }
                _ => return Err(problem),
            },
        };
        self.revision(spec, &found, away, cache)
    }

    /// A revision that ran before: from the module cache, else from its source.
    fn load_recorded(
        &mut self,
        spec: &ControllerSpec,
        cache: &mut ModuleCache,
    ) -> Result<LoadedRevision<Guest>> {
        let found = match cache.get(&spec.module) {
            Some(module) => module,
            None => self.fetch(&spec.module)?,
        };
        self.revision(spec, &found, None, cache)
    }

    /// The module of a source, if its digest is the pinned one.
    fn fetch(&self, config: &ModuleConfig) -> Result<Module> {
        let held = self.sources.get(&config.source.to_string());
        let module = held.and_then(|(module, _)| module.as_ref());
        let module = module.ok_or_else(unavailable)?;
        let found = module.digest();
        if config.digest.is_some_and(|pinned| pinned != found) {
            let message = format!("the source holds sha256:{found}");
            return Err(LoadProblem::new(LoadFailure::DigestMismatch, &message));
        }
        Ok(module.clone())
    }

    fn revision(
        &mut self,
        spec: &ControllerSpec,
        module: &Module,
        away: Option<String>,
        cache: &mut ModuleCache,
    ) -> Result<LoadedRevision<Guest>> {
        let refused = |message: &str| LoadProblem::new(LoadFailure::Refused, message);
        let config = encode_config(&spec.config).map_err(|error| refused(&error.to_string()))?;
        let config: Arc<[u8]> = config.into();
        let key = (module.program.clone(), Arc::clone(&config));
        let (native, manifest) = if let Some(known) = self.described.get(&key) {
            known.clone()
        } else {
            let described = (self.describe)(&module.program, &config);
            let (native, manifest) = described.map_err(|message| refused(&message))?;
            let made = (native, Arc::new(manifest));
            self.described.insert(key, made.clone());
            made
        };
        cache.0.insert(module.digest(), module.clone());
        let identity = RevisionIdentity::new(module.digest(), config, spec.limits);
        let revision = identity.to_string().into();
        Ok(LoadedRevision {
            guest: Guest {
                revision,
                native,
                manifest: Arc::clone(&manifest),
            },
            manifest,
            identity,
            away,
            is_shipped: spec.module.source.is_builtin(),
        })
    }
}

fn unavailable() -> LoadProblem {
    LoadProblem::new(LoadFailure::NotFound, "the source cannot be read")
}
