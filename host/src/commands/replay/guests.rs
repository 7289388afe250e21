//! The guests of a journal: modules by their digests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use davit_core::digest::ModuleDigest;
use davit_core::journal::RevisionEntry;
use davit_engine::{Engine, Guest, Limits, Module};

use crate::cli::GuestArguments;
use crate::engine;
use crate::loader;
use crate::modules::{ModuleCopies, Modules, ModulesOptions, read_whole};

/// How much more processor time than its limit a call may use: this machine may be slower
/// than the one that recorded.
const SLOWER: u32 = 10;

/// Loads the revisions of a journal.
pub(in crate::commands) struct Guests {
    engine: Engine,
    modules: Modules,
    /// Those beside the journal.
    copies: ModuleCopies,
    /// Those that the command names.
    files: BTreeMap<ModuleDigest, Vec<u8>>,
    loaded: BTreeMap<ModuleDigest, Option<Module>>,
    revisions: Vec<(RevisionEntry, Arc<Guest>)>,
    /// The controllers that need each missing module.
    missing: BTreeMap<ModuleDigest, BTreeSet<String>>,
}

impl Guests {
    /// For this journal: its directory, or one of its segments.
    pub(in crate::commands) fn new(
        journal: &Path,
        files: &[PathBuf],
        arguments: &GuestArguments,
    ) -> Result<Self> {
        let modules = Modules::new(ModulesOptions {
            guests: arguments.directory.clone(),
            cache: arguments.cache.clone(),
            client: None,
        })
        .context("the module cache cannot be opened")?;
        let read = |path: &PathBuf| {
            let wasm = read_whole(path);
            let wasm = wasm.with_context(|| format!("--module {}", path.display()))?;
            Ok((ModuleDigest::of(&wasm), wasm))
        };
        Ok(Self {
            engine: engine::compiling_apart(arguments.cache.clone(), arguments.engine)?,
            modules,
            copies: ModuleCopies::of(journal),
            files: files.iter().map(read).collect::<Result<_>>()?,
            loaded: BTreeMap::new(),
            revisions: Vec::new(),
            missing: BTreeMap::new(),
        })
    }

    /// The digests of the modules that the command names.
    pub(in crate::commands) fn named(&self) -> impl Iterator<Item = ModuleDigest> {
        self.files.keys().copied()
    }

    /// The modules that the command names and no call needed.
    pub(in crate::commands) fn unused(&self) -> Option<String> {
        let unused = self.files.keys().map(|digest| format!("sha256:{digest}"));
        let unused: Vec<String> = unused.collect();
        (!unused.is_empty()).then(|| {
            format!(
                "--module: no call of this span was made by {}; davit backtest tries another module \
                 than the recorded one",
                unused.join(", ")
            )
        })
    }

    /// The guest of a revision; none if its module is missing. Fails if this version of Davit
    /// cannot run it.
    pub(in crate::commands) async fn get(
        &mut self,
        controller: &str,
        revision: &RevisionEntry,
    ) -> Result<Option<Arc<Guest>>> {
        let is_same = |one: &RevisionEntry| {
            one.module == revision.module
                && one.config == revision.config
                && one.limits == revision.limits
        };
        if let Some((_, guest)) = self.revisions.iter().find(|(one, _)| is_same(one)) {
            return Ok(Some(Arc::clone(guest)));
        }
        let guest = self.start(controller, revision).await?;
        if let Some(guest) = &guest {
            self.revisions.push((revision.clone(), Arc::clone(guest)));
        }
        Ok(guest)
    }

    /// The guest of a revision, with an instance that has answered no call yet.
    pub(in crate::commands) async fn start(
        &mut self,
        controller: &str,
        revision: &RevisionEntry,
    ) -> Result<Option<Arc<Guest>>> {
        let digest = revision.module;
        let attempt = || format!("the module sha256:{digest} of the controller {controller}");
        let Some(module) = self.module(digest).await.with_context(attempt)? else {
            let controllers = self.missing.entry(digest).or_default();
            controllers.insert(controller.to_owned());
            return Ok(None);
        };
        let limits = loader::limits(revision.limits);
        let limits = Limits {
            // The calls are made one after the other.
            instances: 1,
            cpu: limits
                .cpu
                .saturating_mul(SLOWER)
                .max(Duration::from_secs(1)),
            ..limits
        };
        let guest = Guest::new(&module, Arc::clone(&revision.config), limits).await;
        Ok(Some(Arc::new(guest.with_context(attempt)?)))
    }

    /// What is missing, and what to do; none if nothing is.
    pub(in crate::commands) fn missing(&self) -> Option<String> {
        let all = self.missing.iter().map(|(digest, controllers)| {
            let controllers: Vec<&str> = controllers.iter().map(String::as_str).collect();
            format!("sha256:{digest} of {}", controllers.join(", "))
        });
        let all: Vec<String> = all.collect();
        (!all.is_empty()).then(|| {
            format!(
                "modules are missing: {}; name their files with --module, their module cache with \
                 --cache, or the directory of their built-in guests with --guests",
                all.join("; ")
            )
        })
    }

    async fn module(&mut self, digest: ModuleDigest) -> Result<Option<Module>> {
        if let Some(module) = self.loaded.get(&digest) {
            return Ok(module.clone());
        }
        let wasm = match self.files.remove(&digest) {
            Some(wasm) => Some(wasm),
            None => match self.modules.by_digest(digest).await {
                Some(wasm) => Some(wasm),
                None => self.copies.load(digest),
            },
        };
        let module = match wasm {
            Some(wasm) => Some(self.engine.load(wasm).await?),
            None => None,
        };
        self.loaded.insert(digest, module.clone());
        Ok(module)
    }
}
