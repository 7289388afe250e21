//! Modules: their sources, the module caches of hosts, and loads.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use davit_core::api::{ControllerSpec, ModuleSource};
use davit_core::control::{Load, LoadProblem, LoadResult, SourceVersion};
use davit_core::digest::ModuleDigest;
use davit_core::load::{
    FoundModule, LoadAttempt, LoadErrorKind, LoadStep, ModuleSearch, Preparation, PreparationStep,
    RecalledModule, RevisionLoadError, SearchStep,
};
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
pub type DescribeFunction = fn(program: &str, config: &[u8]) -> DescribeResult;

/// The module cache of a host's machine.
#[derive(Debug, Default)]
pub(crate) struct ModuleCache {
    modules: BTreeMap<ModuleDigest, Module>,
    /// Those whose signatures were verified.
    verified: BTreeSet<ModuleDigest>,
}

impl ModuleCache {
    /// Another machine has none of the modules.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Drops every other module.
    pub(crate) fn keep(&mut self, digests: &BTreeSet<ModuleDigest>) {
        self.modules.retain(|digest, _| digests.contains(digest));
        self.verified.retain(|digest| digests.contains(digest));
    }

    fn add(&mut self, module: Module, is_verified: bool) {
        let digest = module.digest();
        if is_verified {
            self.verified.insert(digest);
        }
        self.modules.insert(digest, module);
    }
}

/// The sources of modules.
pub struct Modules {
    describe: DescribeFunction,
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

type Result<T, E = RevisionLoadError> = std::result::Result<T, E>;

impl Modules {
    /// Sources without modules.
    #[must_use]
    pub fn new(describe: DescribeFunction) -> Self {
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
        self.prepare(Preparation::of_spec(spec), cache).ok()
    }

    /// The outcome of a load.
    pub(crate) fn load(
        &mut self,
        load: &Load,
        cache: &mut ModuleCache,
        records: &Records,
    ) -> Result<LoadResult<Guest>, LoadProblem> {
        let mut attempt = LoadAttempt::new(load.target.clone());
        let mut step = attempt.start();
        loop {
            step = match step {
                LoadStep::ReadSpec(revision) => {
                    attempt.recorded(Ok(records.spec(&load.owner, &revision)))
                }
                LoadStep::Probe(spec) => attempt.probed(self.probe(&spec.module.source)),
                LoadStep::Prepare(preparation) => {
                    attempt.prepared(self.prepare(preparation, cache))
                }
                LoadStep::Done(result) => return result,
            };
        }
    }

    fn prepare(
        &mut self,
        mut preparation: Preparation,
        cache: &mut ModuleCache,
    ) -> Result<LoadedRevision<Guest>> {
        let mut step = preparation.start();
        loop {
            step = match step {
                PreparationStep::Find(search) => preparation.found(self.find(search, cache)),
                PreparationStep::Compile(digest, module) => {
                    preparation.compiled(digest, Ok(module))
                }
                PreparationStep::Describe {
                    module, identity, ..
                } => {
                    let guest = self.guest(&module, &identity);
                    preparation.described(identity, guest)
                }
                PreparationStep::CheckFields(revision) => preparation.checked(revision, Ok(())),
                PreparationStep::Done(loaded) => return loaded,
            };
        }
    }

    fn find(
        &self,
        mut search: ModuleSearch,
        cache: &mut ModuleCache,
    ) -> Result<(FoundModule, Module)> {
        let source = search.module().source.clone();
        let mut step = search.start();
        loop {
            step = match step {
                SearchStep::Fetch => {
                    let held = self.held(&source).map(|(module, _)| module.clone());
                    search.fetched(held.map(|module| (module.digest(), module)))
                }
                SearchStep::Recall(digest) => {
                    let recalled = cache.modules.get(&digest).cloned();
                    search.recalled(recalled.map(|module| RecalledModule {
                        module,
                        is_verified: cache.verified.contains(&digest),
                    }))
                }
                SearchStep::Keep {
                    digest,
                    fetched,
                    is_verified,
                } => {
                    cache.add(fetched.clone(), is_verified);
                    search.added(digest, fetched)
                }
                SearchStep::Done(found) => return found,
            };
        }
    }

    fn probe(&self, source: &ModuleSource) -> Result<SourceVersion> {
        let (_, number) = self.held(source)?;
        Ok(SourceVersion(number.to_string()))
    }

    /// The module of a source, and how often it changed.
    fn held(&self, source: &ModuleSource) -> Result<(&Module, u64)> {
        match self.sources.get(&source.to_string()) {
            Some((Some(module), number)) => Ok((module, *number)),
            _ => Err(RevisionLoadError::new(
                LoadErrorKind::Unavailable,
                "the source cannot be read",
            )),
        }
    }

    /// The guest of a revision and its manifest, unless it refuses its configuration.
    fn guest(
        &mut self,
        module: &Module,
        identity: &RevisionIdentity,
    ) -> Result<(Guest, Arc<Manifest>)> {
        let config = identity.config();
        let key = (module.program.clone(), Arc::clone(config));
        let (native, manifest) = if let Some(known) = self.described.get(&key) {
            known.clone()
        } else {
            let described = (self.describe)(&module.program, config);
            let (native, manifest) = described.map_err(|reason| {
                let message = reason.clone();
                let field = String::new();
                RevisionLoadError::new(LoadErrorKind::Config { field, reason }, message)
            })?;
            let made = (native, Arc::new(manifest));
            self.described.insert(key, made.clone());
            made
        };
        let guest = Guest {
            revision: identity.to_string().into(),
            native,
            manifest: Arc::clone(&manifest),
        };
        Ok((guest, manifest))
    }
}
