//! Fetches the module of a guest: built in, or from a file, a `ConfigMap` or an OCI
//! registry. The module cache holds fetched modules by their digest.
//!
//! Nothing here decides which module runs, or where it is looked for: core's
//! [`ModuleSearch`] and [`ArtefactPull`] do.

mod builtin;
mod cache;
mod copies;
mod copy_thread;
mod file;
mod objects;
mod oci;
mod pull_secret;
mod signature;
mod versions;

use std::collections::BTreeSet;
use std::io;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use davit_cluster::api::chain;
use davit_core::api::{
    CaCert, ModuleConfig, ModuleSource, OciSource, PublicKeyConfig, SignatureConfig, VerifyConfig,
};
use davit_core::control::SourceVersion;
use davit_core::digest::ModuleDigest;
use davit_core::load::{
    ArtefactPull, FoundModule, LoadErrorKind, ModuleSearch, PullFailure, PullStep, RecalledModule,
    RevisionLoadError, SearchStep,
};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::metrics::JournalMetrics;

pub use builtin::{BuiltinError, BuiltinGuests};
pub(crate) use copies::ModuleCopies;
pub(crate) use file::read_whole;
pub use file::{FileError, FileProblem};
pub use objects::{ObjectError, ObjectProblem};
pub use oci::OciProblem;
pub use pull_secret::SecretError;
pub use signature::SignatureError;

use cache::Cache;
use copy_thread::CopyThread;
use objects::Cluster;
use oci::Artefact;
use signature::{Policy, Requirement};
use versions::FileVersions;

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
    copies: Option<Arc<CopyThread>>,
    cluster: Cluster,
    versions: FileVersions,
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
    /// An artefact does not have the required signatures.
    #[error("the artefact {reference}")]
    NotSigned {
        /// The artefact.
        reference: String,
        /// The problem.
        #[source]
        problem: SignatureError,
    },
}

impl ModuleError {
    fn kind(&self) -> LoadErrorKind {
        match self {
            Self::Builtin(_) => LoadErrorKind::NoSuchBuiltin,
            Self::File(error) => match error.problem {
                FileProblem::Io(_) => LoadErrorKind::Unavailable,
                FileProblem::NotRegular | FileProblem::TooLarge => LoadErrorKind::NoModule,
            },
            Self::Object(error) => match error.problem {
                ObjectProblem::NoCluster => LoadErrorKind::NoCluster,
                ObjectProblem::Text(_) | ObjectProblem::TooLarge { .. } => LoadErrorKind::NoModule,
                _ => LoadErrorKind::Unavailable,
            },
            Self::Oci { problem, .. } => match problem {
                OciProblem::Signatures(_) => LoadErrorKind::NotSigned,
                OciProblem::Index
                | OciProblem::NoWasm(_)
                | OciProblem::Several(_)
                | OciProblem::Manifest(_)
                | OciProblem::TooLarge(_) => LoadErrorKind::NoModule,
                _ => LoadErrorKind::Unavailable,
            },
            Self::NotSigned { .. } => LoadErrorKind::NotSigned,
        }
    }
}

impl From<ModuleError> for RevisionLoadError {
    fn from(error: ModuleError) -> Self {
        Self::new(error.kind(), chain(&error))
    }
}

impl From<ModuleError> for PullFailure {
    fn from(error: ModuleError) -> Self {
        let is_missing = matches!(
            error,
            ModuleError::Oci {
                problem: OciProblem::NotFound(_),
                ..
            }
        );
        Self {
            is_missing,
            error: error.into(),
        }
    }
}

impl Modules {
    /// Opens the cache; fails if its directory cannot be used.
    pub fn new(options: ModulesOptions) -> io::Result<Self> {
        Ok(Self {
            builtin: BuiltinGuests::new(options.guests),
            cache: options.cache.map(Cache::open).transpose()?,
            copies: None,
            cluster: Cluster(options.client),
            versions: FileVersions::default(),
        })
    }

    /// Copies each module that can be a guest into the directory of this journal.
    #[must_use]
    pub fn with_copies(self, journal: Option<&Path>, metrics: &JournalMetrics) -> Self {
        let thread = |journal| CopyThread::new(ModuleCopies::of(journal), metrics.clone());
        let copies = journal.map(thread).map(Arc::new);
        Self { copies, ..self }
    }

    /// Executes a search: finds the content of a module, or the module that `loaded`
    /// returns for its digest.
    pub async fn find<M: From<Vec<u8>>>(
        &self,
        mut search: ModuleSearch,
        loaded: impl Fn(ModuleDigest) -> Option<M>,
    ) -> Result<(FoundModule, M), RevisionLoadError> {
        let config = search.module().clone();
        let mut step = search.start();
        loop {
            step = match step {
                SearchStep::Fetch => search.fetched(self.fetch(&config).await),
                SearchStep::Recall(digest) => {
                    let module = match loaded(digest) {
                        Some(module) => Some(module),
                        None => self.cached(digest).await.map(M::from),
                    };
                    let recalled = match module {
                        Some(module) => Some(RecalledModule {
                            module,
                            is_verified: self.is_verified(&config, digest).await,
                        }),
                        None => None,
                    };
                    search.recalled(recalled)
                }
                SearchStep::Keep {
                    digest,
                    fetched,
                    is_verified,
                } => {
                    let verified = config.verify.clone().filter(|_| is_verified);
                    let kept = self.keep(digest, fetched, verified).await;
                    search.added(digest, kept.into())
                }
                SearchStep::Done(found) => return found,
            };
        }
    }

    async fn fetch(
        &self,
        config: &ModuleConfig,
    ) -> Result<(ModuleDigest, Vec<u8>), RevisionLoadError> {
        let wasm = self.read(config).await?;
        Ok(blocking(move || (ModuleDigest::of(&wasm), wasm)).await)
    }

    /// Adds a module to the cache, and that these signatures were verified.
    async fn keep(
        &self,
        digest: ModuleDigest,
        wasm: Vec<u8>,
        verified: Option<VerifyConfig>,
    ) -> Vec<u8> {
        let Some(cache) = self.cache.clone() else {
            return wasm;
        };
        blocking(move || {
            cache.add(digest, &wasm);
            if let Some(verify) = verified {
                cache.note_verified(digest, &verify);
            }
            wasm
        })
        .await
    }

    /// Copies a module that can be a guest, if a journal has copies. Waits for no disk.
    pub(crate) fn copy(&self, digest: ModuleDigest, wasm: Arc<Vec<u8>>) {
        if let Some(copies) = &self.copies {
            copies.add(digest, wasm);
        }
    }

    /// The current version of a source: while it stays the same, the source has the
    /// same module. This costs a request unless the source is a file;
    /// [`ModuleConfig::check_interval`] is the period.
    pub async fn probe(&self, source: &ModuleSource) -> Result<SourceVersion, RevisionLoadError> {
        Ok(SourceVersion(self.version(source).await?))
    }

    async fn version(&self, source: &ModuleSource) -> Result<String, ModuleError> {
        Ok(match source {
            ModuleSource::Builtin(name) => self.file_version(self.builtin.find(name)?).await?,
            ModuleSource::File(path) => self.file_version(path.clone()).await?,
            ModuleSource::ConfigMap(at) => self.cluster.version(at).await?,
            ModuleSource::Oci(oci) => {
                let artefact = self.artefact(oci).await?;
                bounded(oci, artefact.manifest_digest()).await?
            }
        })
    }

    async fn file_version(&self, path: PathBuf) -> Result<String, ModuleError> {
        Ok(self.versions.of(MODULE, path).await?)
    }

    /// The module with this digest, from the cache or among the built-in guests.
    pub(crate) async fn by_digest(&self, digest: ModuleDigest) -> Option<Vec<u8>> {
        let modules = self.clone();
        blocking(move || modules.read_by_digest(digest)).await
    }

    /// The same, on this thread.
    pub(crate) fn read_by_digest(&self, digest: ModuleDigest) -> Option<Vec<u8>> {
        let cached = self.cache.as_ref().and_then(|cache| cache.load(digest));
        cached.or_else(|| self.builtin.by_digest(digest))
    }

    /// Removes the least recently used modules if the cache has too many, or the copies of the
    /// journal are too many, except those with these digests.
    pub fn prune(&self, in_use: &BTreeSet<ModuleDigest>) {
        if let Some(copies) = &self.copies {
            copies.keep(in_use);
        }
        if let Some(cache) = &self.cache {
            cache.prune(in_use);
        }
    }

    /// Whether a module with this digest is known to have the required signatures,
    /// without its source.
    async fn is_verified(&self, module: &ModuleConfig, digest: ModuleDigest) -> bool {
        let Some(verify) = module.verify.clone() else {
            return true;
        };
        let Some(cache) = self.cache.clone() else {
            return false;
        };
        blocking(move || cache.is_verified(digest, &verify)).await
    }

    async fn read(&self, module: &ModuleConfig) -> Result<Vec<u8>, RevisionLoadError> {
        let read = match &module.source {
            ModuleSource::Builtin(name) => self.read_builtin(name).await,
            ModuleSource::File(path) => file::read(MODULE, path).await.map_err(ModuleError::from),
            ModuleSource::ConfigMap(at) => self.cluster.module(at).await.map_err(ModuleError::from),
            ModuleSource::Oci(oci) => return self.pull(oci, module).await,
        };
        Ok(read?)
    }

    async fn read_builtin(&self, name: &str) -> Result<Vec<u8>, ModuleError> {
        Ok(file::read(MODULE, &self.builtin.find(name)?).await?)
    }

    /// Executes the pull of an artefact's module.
    async fn pull(
        &self,
        oci: &OciSource,
        module: &ModuleConfig,
    ) -> Result<Vec<u8>, RevisionLoadError> {
        let artefact = self.artefact(oci).await?;
        let mut pull = ArtefactPull::new(oci, module);
        let mut step = pull.start();
        loop {
            step = match step {
                PullStep::ReadManifest => {
                    let manifest = bounded(oci, artefact.manifest()).await;
                    pull.described(manifest.map_err(PullFailure::from))
                }
                PullStep::Verify(manifest) => {
                    let verified = self.verify(oci, &artefact, &manifest, module).await;
                    pull.verified(verified.map_err(RevisionLoadError::from))
                }
                PullStep::Recall(digest) => pull.recalled(self.cached(digest).await),
                PullStep::Check(digest) => {
                    let checked = bounded(oci, artefact.has(digest)).await;
                    pull.checked(checked.map_err(PullFailure::from))
                }
                PullStep::Pull(digest) => {
                    let pulled = bounded(oci, artefact.pull(digest)).await;
                    pull.pulled(pulled.map_err(PullFailure::from))
                }
                PullStep::Done(done) => return done,
            };
        }
    }

    /// Verifies that an artefact has the required signatures.
    async fn verify(
        &self,
        oci: &OciSource,
        artefact: &Artefact<'_>,
        manifest: &str,
        module: &ModuleConfig,
    ) -> Result<(), ModuleError> {
        let Some(verify) = &module.verify else {
            return Ok(());
        };
        let policy = Policy {
            all_of: self.requirements(oci, "allOf", &verify.all_of).await?,
            any_of: match &verify.any_of {
                Some(any) => {
                    self.requirements(oci, "anyOf.signatures", &any.signatures)
                        .await?
                }
                None => Vec::new(),
            },
            minimum_matches: verify
                .any_of
                .as_ref()
                .map_or(0, |any| any.minimum_matches as usize),
        };
        let signatures = bounded(oci, artefact.signatures(manifest)).await?;
        let checked = policy.check(&signatures, manifest);
        checked.map_err(|problem| not_signed(oci, problem))
    }

    /// The required signatures with their keys; `list` is their field in the spec.
    async fn requirements(
        &self,
        oci: &OciSource,
        list: &str,
        signatures: &[SignatureConfig],
    ) -> Result<Vec<Requirement>, ModuleError> {
        let mut requirements = Vec::new();
        for (position, SignatureConfig { key, annotations }) in signatures.iter().enumerate() {
            let pem = match key {
                PublicKeyConfig::Pem(pem) => pem.clone(),
                PublicKeyConfig::ConfigMap(at) => self.cluster.text(at).await?,
            };
            let name = format!("{list}[{position}]");
            let requirement = Requirement::new(name, &pem, annotations.clone());
            requirements.push(requirement.map_err(|problem| not_signed(oci, problem))?);
        }
        Ok(requirements)
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

fn not_signed(oci: &OciSource, problem: SignatureError) -> ModuleError {
    ModuleError::NotSigned {
        reference: oci.reference.to_string(),
        problem,
    }
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
