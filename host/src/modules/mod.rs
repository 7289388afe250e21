//! Fetches the module of a guest: built in, or from a file, a `ConfigMap` or an OCI
//! registry. The module cache holds fetched modules by their digest.
//!
//! Nothing here decides which module runs. While a module cannot be fetched, the host
//! runs the former one; at a start, the host recalls the recorded modules from the
//! cache, without their sources.

mod builtin;
mod cache;
mod file;
mod objects;
mod oci;
mod pull_secret;

use std::collections::BTreeSet;
use std::io;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::time::Duration;

use davit_cluster::api::chain;
use davit_core::api::{CaCert, ModuleConfig, ModuleSource, OciSource};
use davit_core::control::SourceVersion;
use davit_core::digest::ModuleDigest;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

pub use builtin::{BuiltinError, BuiltinGuests};
pub use file::{FileError, FileProblem};
pub use objects::{ObjectError, ObjectProblem};
pub use oci::OciProblem;
pub use pull_secret::SecretError;

use cache::Cache;
use objects::Cluster;
use oci::{Artefact, Layer};

/// The largest module, in bytes: the engine compiles no larger one.
pub const MOST_BYTES: usize = 32 << 20;

/// The purposes of files, for errors.
const MODULE: &str = "the module";
const CA_CERT: &str = "the caCert.file";

/// How long a registry may take for all requests of one fetch.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where modules are fetched from and cached.
#[derive(Default)]
pub struct ModulesOptions {
    /// The directory of the built-in guests; beside the program if none.
    pub guests: Option<PathBuf>,
    /// The directory of the module cache; no cache if none. It may be the directory of
    /// compiled guests.
    pub cache: Option<PathBuf>,
    /// The cluster whose `ConfigMaps` and Secrets are read.
    pub client: Option<kube::Client>,
}

/// Fetches modules. Clones share the cache.
#[derive(Clone)]
pub struct Modules {
    builtin: BuiltinGuests,
    cache: Option<Cache>,
    cluster: Cluster,
}

/// A module that was fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedModule {
    /// Its bytes.
    pub wasm: Vec<u8>,
    /// Their SHA-256.
    pub digest: ModuleDigest,
    /// Its source, as text.
    pub origin: String,
    /// Why it was loaded from the module cache: its source cannot be read.
    pub unavailable: Option<String>,
}

/// Why a module cannot be fetched.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    /// There is no such built-in guest.
    #[error(transparent)]
    Builtin(#[from] BuiltinError),
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// A `ConfigMap` or Secret cannot be used.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// An artefact cannot be pulled.
    #[error("the artefact {reference}")]
    Oci {
        /// The artefact.
        reference: String,
        /// The problem.
        #[source]
        problem: OciProblem,
    },
    /// The source holds another module than the pinned one.
    #[error(
        "{origin} is the module sha256:{found}, and digest pins sha256:{wanted}: change digest if \
         the source's module should run"
    )]
    DigestMismatch {
        /// The source.
        origin: String,
        /// Its digest.
        found: ModuleDigest,
        /// The pinned digest.
        wanted: ModuleDigest,
    },
}

impl ModuleError {
    /// Whether the source could not be read, so that its content is unknown. The
    /// directory of built-in guests is always known: a missing guest was misspelt, or
    /// is no longer shipped.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        match self {
            Self::Builtin(_) | Self::DigestMismatch { .. } => false,
            Self::File(error) => matches!(error.problem, FileProblem::Io(_)),
            Self::Object(error) => !matches!(
                error.problem,
                ObjectProblem::Text(_) | ObjectProblem::TooLarge { .. }
            ),
            Self::Oci { problem, .. } => !matches!(
                problem,
                OciProblem::Index
                    | OciProblem::NoWasm(_)
                    | OciProblem::Several(_)
                    | OciProblem::Manifest(_)
                    | OciProblem::TooLarge(_)
            ),
        }
    }
}

impl Modules {
    /// Opens the cache; fails if its directory cannot be used.
    pub fn new(options: ModulesOptions) -> io::Result<Self> {
        Ok(Self {
            builtin: BuiltinGuests::new(options.guests),
            cache: options.cache.map(Cache::open).transpose()?,
            cluster: Cluster(options.client),
        })
    }

    /// Fetches the module that a spec names from its source, and caches it. A source
    /// that can be read and holds another module than the pinned one is an error: the
    /// cache replaces only a source that cannot be read. Otherwise a pin would hide
    /// that the spec names another source.
    pub async fn fetch(&self, module: &ModuleConfig) -> Result<FetchedModule, ModuleError> {
        let (wanted, origin) = (module.digest, module.source.to_string());
        let wasm = match (self.read(&module.source, wanted).await, wanted) {
            (Ok(wasm), _) => wasm,
            (Err(error), Some(digest)) if error.is_unavailable() => {
                let Some(wasm) = self.cached(digest).await else {
                    return Err(error);
                };
                return Ok(FetchedModule {
                    wasm,
                    digest,
                    origin,
                    unavailable: Some(chain(&error)),
                });
            }
            (Err(error), _) => return Err(error),
        };
        let cache = self.cache.clone();
        blocking(move || {
            let digest = ModuleDigest::of(&wasm);
            check_digest(&origin, digest, wanted)?;
            if let Some(cache) = cache {
                cache.add(digest, &wasm);
            }
            Ok(FetchedModule {
                wasm,
                digest,
                origin,
                unavailable: None,
            })
        })
        .await
    }

    /// Fetches a recorded module by its digest: from the cache, otherwise from its
    /// source.
    pub async fn recall(&self, module: &ModuleConfig) -> Result<FetchedModule, ModuleError> {
        if let Some(digest) = module.digest
            && let Some(wasm) = self.cached(digest).await
        {
            return Ok(FetchedModule {
                wasm,
                digest,
                origin: module.source.to_string(),
                unavailable: None,
            });
        }
        self.fetch(module).await
    }

    /// The current version of a source: while it stays the same, the source has the
    /// same module. This costs a request unless the source is a file;
    /// [`ModuleConfig::check_interval`] is the period.
    pub async fn probe(&self, source: &ModuleSource) -> Result<SourceVersion, ModuleError> {
        let version = match source {
            ModuleSource::Builtin(name) => file::version(MODULE, &self.builtin.find(name)?).await?,
            ModuleSource::File(path) => file::version(MODULE, path).await?,
            ModuleSource::ConfigMap(at) => self.cluster.version(at).await?,
            ModuleSource::Oci(oci) => {
                let artefact = self.artefact(oci).await?;
                bounded(oci, artefact.manifest_digest()).await?
            }
        };
        Ok(SourceVersion(version))
    }

    /// Removes the least recently used modules if the cache has too many, except those
    /// with these digests.
    pub fn prune(&self, in_use: &BTreeSet<ModuleDigest>) {
        if let Some(cache) = &self.cache {
            cache.prune(in_use);
        }
    }

    async fn read(
        &self,
        source: &ModuleSource,
        wanted: Option<ModuleDigest>,
    ) -> Result<Vec<u8>, ModuleError> {
        Ok(match source {
            ModuleSource::Builtin(name) => file::read(MODULE, &self.builtin.find(name)?).await?,
            ModuleSource::File(path) => file::read(MODULE, path).await?,
            ModuleSource::ConfigMap(at) => self.cluster.module(at).await?,
            ModuleSource::Oci(oci) => self.pull(oci, wanted).await?,
        })
    }

    /// Pulls an artefact's module, unless the cache has it. If the tag names another
    /// module than the pinned one, pulls the pinned one while the repository has it.
    async fn pull(
        &self,
        oci: &OciSource,
        wanted: Option<ModuleDigest>,
    ) -> Result<Vec<u8>, ModuleError> {
        let artefact = self.artefact(oci).await?;
        let layer = bounded(oci, artefact.layer()).await?;
        if let Some(wanted) = wanted.filter(|wanted| *wanted != layer.digest) {
            let former = Layer { digest: wanted };
            let pulled = match self.cached(wanted).await {
                Some(wasm) => bounded(oci, artefact.has(&former)).await.map(|()| wasm),
                None => bounded(oci, artefact.pull(&former)).await,
            };
            return match pulled {
                Err(ModuleError::Oci {
                    problem: OciProblem::NotFound(_),
                    ..
                }) => Err(ModuleError::DigestMismatch {
                    origin: format!("the artefact {}", oci.reference),
                    found: layer.digest,
                    wanted,
                }),
                answer => answer,
            };
        }
        match self.cached(layer.digest).await {
            Some(wasm) => Ok(wasm),
            None => bounded(oci, artefact.pull(&layer)).await,
        }
    }

    async fn artefact<'a>(&self, oci: &'a OciSource) -> Result<Artefact<'a>, ModuleError> {
        let reference = &oci.reference.0;
        let credentials = match &oci.pull_secret {
            None => None,
            Some(secret) => {
                let (registry, repository) = (reference.registry(), reference.repository());
                let found = self.cluster.credentials(secret, registry, repository);
                Some(found.await?)
            }
        };
        let ca_cert = match &oci.ca_cert {
            None => None,
            Some(CaCert::File(path)) => Some(file::read(CA_CERT, path).await?),
            Some(CaCert::ConfigMap(at)) => Some(self.cluster.text(at).await?.into_bytes()),
        };
        bounded(oci, Artefact::open(oci, ca_cert, credentials)).await
    }

    async fn cached(&self, digest: ModuleDigest) -> Option<Vec<u8>> {
        let cache = self.cache.clone()?;
        blocking(move || cache.load(digest)).await
    }
}

fn check_digest(
    origin: &str,
    found: ModuleDigest,
    wanted: Option<ModuleDigest>,
) -> Result<(), ModuleError> {
    match wanted {
        Some(wanted) if wanted != found => Err(ModuleError::DigestMismatch {
            origin: origin.to_owned(),
            found,
            wanted,
        }),
        _ => Ok(()),
    }
}

async fn bounded<T>(
    oci: &OciSource,
    asked: impl Future<Output = Result<T, OciProblem>>,
) -> Result<T, ModuleError> {
    let answer = timeout(PATIENCE, asked).await.unwrap_or_else(|_| {
        let registry = oci.reference.0.registry().to_owned();
        Err(OciProblem::NoAnswer(registry))
    });
    answer.map_err(|problem| ModuleError::Oci {
        reference: oci.reference.to_string(),
        problem,
    })
}

/// Runs work that reads, writes or hashes a whole module off the async threads.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The program ends.
            Err(_) => std::future::pending().await,
        },
    }
}
