//! Finding the wasm of a guest: built in, in a file, in a `ConfigMap` or in an
//! OCI registry; and keeping what was found, by its digest.
//!
//! Nothing here decides what runs. A caller that runs a module and cannot load
//! its successor goes on with what it runs; one that starts recalls what it
//! recorded, which is loaded without the source.

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

/// The largest module that is read, in bytes: what the engine compiles at most.
pub const MOST_BYTES: usize = 32 << 20;

/// What files are to be, for errors.
const MODULE: &str = "the module";
const CA_CERT: &str = "the caCert.file";

/// How long a registry may take for everything together.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where modules are looked for.
#[derive(Default)]
pub struct ModulesOptions {
    /// The directory of the built-in guests; beside the program if none.
    pub guests: Option<PathBuf>,
    /// Where modules are kept by their digest; nowhere if none. It may be the
    /// directory of compiled guests.
    pub cache: Option<PathBuf>,
    /// The cluster whose `ConfigMaps` and Secrets are read.
    pub client: Option<kube::Client>,
}

/// Finds modules. Clones share what they keep.
#[derive(Clone)]
pub struct Modules {
    builtin: BuiltinGuests,
    cache: Option<Cache>,
    cluster: Cluster,
}

/// A module as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Its bytes.
    pub wasm: Vec<u8>,
    /// Their SHA-256.
    pub digest: ModuleDigest,
    /// Where it was found, for people.
    pub origin: String,
    /// Why it was loaded from the module cache: its source cannot be read.
    pub away: Option<String>,
}

/// What a source's content is known by without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(String);

/// Why a module cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    /// No such guest is shipped.
    #[error(transparent)]
    Builtin(#[from] BuiltinError),
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// A `ConfigMap` or Secret cannot be used.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// An artefact cannot be had.
    #[error("the artefact {reference}")]
    Oci {
        /// The artefact.
        reference: String,
        /// Why.
        #[source]
        problem: OciProblem,
    },
    /// It is another module than the one that is wanted.
    #[error(
        "{origin} is the module sha256:{found}, and sha256:{wanted} is wanted: change the digest \
         if this is the one that should run"
    )]
    OtherDigest {
        /// Where it was found.
        origin: String,
        /// Its digest.
        found: ModuleDigest,
        /// The digest that was asked for.
        wanted: ModuleDigest,
    },
}

impl ModuleError {
    /// Whether the source could not be read, so that nothing is known of what
    /// it holds. Davit's own guests can always be looked through: one that is
    /// not there was misspelt, or is no longer shipped.
    #[must_use]
    pub fn is_away(&self) -> bool {
        match self {
            Self::Builtin(_) | Self::OtherDigest { .. } => false,
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

impl Version {
    /// That of a source that cannot be read.
    #[must_use]
    pub fn away() -> Self {
        Self(String::new())
    }
}

impl Modules {
    /// Looks there. Fails if modules cannot be kept where they should be.
    pub fn new(options: ModulesOptions) -> io::Result<Self> {
        Ok(Self {
            builtin: BuiltinGuests::new(options.guests),
            cache: options.cache.map(Cache::open).transpose()?,
            cluster: Cluster(options.client),
        })
    }

    /// Loads what an operator asks for from its source, and keeps it. A source
    /// that can be read and holds another module than the pinned one is
    /// refused; the module cache stands in only for a source that cannot be
    /// read. Else a pin would hide that another source was named.
    pub async fn fetch(&self, module: &ModuleConfig) -> Result<Fetched, ModuleError> {
        let (wanted, origin) = (module.digest, module.source.to_string());
        let wasm = match (self.read(&module.source, wanted).await, wanted) {
            (Ok(wasm), _) => wasm,
            (Err(error), Some(digest)) if error.is_away() => {
                let Some(wasm) = self.kept(digest).await else {
                    return Err(error);
                };
                return Ok(Fetched {
                    wasm,
                    digest,
                    origin,
                    away: Some(chain(&error)),
                });
            }
            (Err(error), _) => return Err(error),
        };
        let cache = self.cache.clone();
        blocking(move || {
            let digest = ModuleDigest::of(&wasm);
            check_digest(&origin, digest, wanted)?;
            if let Some(cache) = cache {
                cache.keep(digest, &wasm);
            }
            Ok(Fetched {
                wasm,
                digest,
                origin,
                away: None,
            })
        })
        .await
    }

    /// Loads what ran before, by its recorded digest: from the module cache,
    /// else from its source.
    pub async fn recall(&self, module: &ModuleConfig) -> Result<Fetched, ModuleError> {
        if let Some(digest) = module.digest
            && let Some(wasm) = self.kept(digest).await
        {
            return Ok(Fetched {
                wasm,
                digest,
                origin: module.source.to_string(),
                away: None,
            });
        }
        self.fetch(module).await
    }

    /// Looks whether a source may hold another module than before: as long as
    /// the version is the same, it does not. Costs a request where the source
    /// is not a file; [`ModuleConfig::look_every`] says how often it is meant to
    /// be asked.
    pub async fn probe(&self, source: &ModuleSource) -> Result<Version, ModuleError> {
        let version = match source {
            ModuleSource::Builtin(name) => file::version(MODULE, &self.builtin.find(name)?).await?,
            ModuleSource::File(path) => file::version(MODULE, path).await?,
            ModuleSource::ConfigMap(at) => self.cluster.version(at).await?,
            ModuleSource::Oci(oci) => {
                let artefact = self.artefact(oci).await?;
                bounded(oci, artefact.manifest_digest()).await?
            }
        };
        Ok(Version(version))
    }

    /// Drops modules that were not used for long, if too many are kept: those of
    /// other digests than these.
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

    /// Pulls an artefact's module, unless it is kept. Where the tag has moved on,
    /// that is the one wanted, as long as the repository has it.
    async fn pull(
        &self,
        oci: &OciSource,
        wanted: Option<ModuleDigest>,
    ) -> Result<Vec<u8>, ModuleError> {
        let artefact = self.artefact(oci).await?;
        let layer = bounded(oci, artefact.layer()).await?;
        if let Some(wanted) = wanted.filter(|wanted| *wanted != layer.digest) {
            let former = Layer::of(wanted);
            let pulled = match self.kept(wanted).await {
                Some(wasm) => bounded(oci, artefact.has(&former)).await.map(|()| wasm),
                None => bounded(oci, artefact.pull(&former)).await,
            };
            return match pulled {
                Err(ModuleError::Oci {
                    problem: OciProblem::NotFound(_),
                    ..
                }) => Err(ModuleError::OtherDigest {
                    origin: format!("the artefact {}", oci.reference),
                    found: layer.digest,
                    wanted,
                }),
                answer => answer,
            };
        }
        match self.kept(layer.digest).await {
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
        Artefact::new(reference, oci.insecure, ca_cert, credentials)
            .map_err(|problem| oci_error(oci, problem))
    }

    async fn kept(&self, digest: ModuleDigest) -> Option<Vec<u8>> {
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
        Some(wanted) if wanted != found => Err(ModuleError::OtherDigest {
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
    answer.map_err(|problem| oci_error(oci, problem))
}

fn oci_error(oci: &OciSource, problem: OciProblem) -> ModuleError {
    ModuleError::Oci {
        reference: oci.reference.to_string(),
        problem,
    }
}

/// Does what reads, writes or hashes a whole module off the async threads.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The program ends: nobody waits for it any more.
            Err(_) => std::future::pending().await,
        },
    }
}
