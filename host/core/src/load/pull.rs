//! How the module of an artefact is read from its registry.

use super::error::{OtherModule, RevisionLoadError};
use crate::api::{ModuleConfig, OciSource};
use crate::digest::ModuleDigest;

/// The read of an artefact's module. The registry is asked for the manifest in any case: it
/// says which module the reference names at the moment. The module itself may come from the
/// module cache.
///
/// If the reference names another module than the pinned one (its tag moved), the pinned one
/// is read as long as the repository has it, unless signatures are required: those that exist
/// are for the manifest of the reference.
#[derive(Clone, Debug)]
pub struct ArtefactPull {
    origin: String,
    wanted: Option<ModuleDigest>,
    is_signed: bool,
    /// The manifest of the reference, once it is read.
    manifest: Option<ArtefactManifest>,
    /// The module, if the cache has it and the repository was not asked yet.
    recalled: Option<Vec<u8>>,
}

/// What the manifest of an artefact says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtefactManifest {
    /// The digest of the manifest itself, `sha256:…`.
    pub digest: String,
    /// The digest of its module.
    pub module: ModuleDigest,
}

/// What a driver does next in a pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PullStep {
    /// Read the manifest of the reference; [`ArtefactPull::described`].
    ReadManifest,
    /// Verify that the artefact with the manifest of this digest has the required
    /// signatures; [`ArtefactPull::verified`].
    Verify(String),
    /// Look for a module in the module cache; [`ArtefactPull::recalled`].
    Recall(ModuleDigest),
    /// Check that the repository has a module, without reading it;
    /// [`ArtefactPull::checked`].
    Check(ModuleDigest),
    /// Read a module from the repository; [`ArtefactPull::pulled`].
    Pull(ModuleDigest),
    /// The module, or why there is none.
    Done(Result<Vec<u8>, RevisionLoadError>),
}

/// Why a registry did not give what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullFailure {
    /// Whether the registry answered that it is not there.
    pub is_missing: bool,
    /// The failure.
    pub error: RevisionLoadError,
}

impl ArtefactPull {
    /// A read of the artefact of a spec's module.
    #[must_use]
    pub fn new(oci: &OciSource, module: &ModuleConfig) -> Self {
        Self {
            origin: format!("the artefact {}", oci.reference),
            wanted: module.digest,
            is_signed: module.verify.is_some(),
            manifest: None,
            recalled: None,
        }
    }

    /// The first step.
    #[must_use]
    pub fn start(&self) -> PullStep {
        PullStep::ReadManifest
    }

    /// The manifest was read, or cannot be read.
    pub fn described(&mut self, manifest: Result<ArtefactManifest, PullFailure>) -> PullStep {
        let manifest = match manifest {
            Ok(manifest) => manifest,
            Err(failure) => return PullStep::Done(Err(failure.error)),
        };
        let module = self.wanted.unwrap_or(manifest.module);
        let digest = manifest.digest.clone();
        self.manifest = Some(manifest);
        match self.moved() {
            Some(other) if self.is_signed => PullStep::Done(Err(other.into())),
            None if self.is_signed => PullStep::Verify(digest),
            _ => PullStep::Recall(module),
        }
    }

    /// The signatures were verified, or are not those that are required.
    pub fn verified(&mut self, verified: Result<(), RevisionLoadError>) -> PullStep {
        match (verified, self.module()) {
            (Err(error), _) => PullStep::Done(Err(error)),
            (Ok(()), Some(module)) => PullStep::Recall(module),
            (Ok(()), None) => self.start(),
        }
    }

    /// The cache has the module, or not. The reference names the module, or the repository
    /// has to have it: nothing runs from the cache that is no longer published.
    pub fn recalled(&mut self, recalled: Option<Vec<u8>>) -> PullStep {
        match (self.module(), recalled) {
            (None, _) => self.start(),
            (Some(module), None) => PullStep::Pull(module),
            (Some(module), Some(wasm)) if self.moved().is_some() => {
                self.recalled = Some(wasm);
                PullStep::Check(module)
            }
            (Some(_), Some(wasm)) => PullStep::Done(Ok(wasm)),
        }
    }

    /// The repository has the recalled module, or does not.
    pub fn checked(&mut self, checked: Result<(), PullFailure>) -> PullStep {
        match (checked, self.recalled.take()) {
            (Ok(()), Some(wasm)) => PullStep::Done(Ok(wasm)),
            (Ok(()), None) => self.start(),
            (Err(failure), _) => self.failed(failure),
        }
    }

    /// The module was read, or cannot be read.
    pub fn pulled(&mut self, pulled: Result<Vec<u8>, PullFailure>) -> PullStep {
        match pulled {
            Ok(wasm) => PullStep::Done(Ok(wasm)),
            Err(failure) => self.failed(failure),
        }
    }

    /// The repository does not give the module. Without the pinned module, the reference
    /// counts: it can be read, and names another one.
    fn failed(&self, failure: PullFailure) -> PullStep {
        match self.moved() {
            Some(other) if failure.is_missing => PullStep::Done(Err(other.into())),
            _ => PullStep::Done(Err(failure.error)),
        }
    }

    /// The module to read, once the manifest is read.
    fn module(&self) -> Option<ModuleDigest> {
        let manifest = self.manifest.as_ref()?;
        Some(self.wanted.unwrap_or(manifest.module))
    }

    /// The module that the reference names instead of the pinned one, if it does.
    fn moved(&self) -> Option<OtherModule> {
        let (manifest, wanted) = (self.manifest.as_ref()?, self.wanted?);
        (manifest.module != wanted).then(|| OtherModule {
            origin: self.origin.clone(),
            found: manifest.module,
            wanted,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::ModuleSource;
    use crate::load::LoadErrorKind;

    const OLD: ModuleDigest = ModuleDigest([1; 32]);
    const NEW: ModuleDigest = ModuleDigest([2; 32]);

    /// What a pull meets: the tag names the new module.
    struct World {
        cached: Vec<ModuleDigest>,
        published: Vec<ModuleDigest>,
        manifest: Result<(), PullFailure>,
        signatures: Result<(), RevisionLoadError>,
        /// The failure of reads and checks of modules that are published.
        broken: Option<PullFailure>,
        asked: Vec<&'static str>,
    }

    fn failure(is_missing: bool) -> PullFailure {
        let error = RevisionLoadError::new(LoadErrorKind::Unavailable, "the registry failed");
        PullFailure { is_missing, error }
    }

    impl World {
        fn new(cached: &[ModuleDigest], published: &[ModuleDigest]) -> Self {
            Self {
                cached: cached.to_vec(),
                published: published.to_vec(),
                manifest: Ok(()),
                signatures: Ok(()),
                broken: None,
                asked: Vec::new(),
            }
        }

        fn ask(&mut self, what: &'static str, digest: ModuleDigest) -> Result<(), PullFailure> {
            self.asked.push(what);
            match &self.broken {
                Some(failure) => Err(failure.clone()),
                None if self.published.contains(&digest) => Ok(()),
                None => Err(failure(true)),
            }
        }

        /// Reads the module of a spec with these fields.
        fn pull(&mut self, fields: &Value) -> Result<ModuleDigest, RevisionLoadError> {
            let mut module = json!({"oci": {"reference": "registry.example/guest:1"}});
            let (all, own) = (module.as_object_mut().unwrap(), fields.as_object().unwrap());
            all.extend(own.clone());
            let module: ModuleConfig = serde_json::from_value(module).unwrap();
            let ModuleSource::Oci(oci) = &module.source else {
                panic!("an artefact");
            };
            let mut pull = ArtefactPull::new(oci, &module);
            let wasm = |digest: ModuleDigest| digest.0.to_vec();
            let mut step = pull.start();
            loop {
                step = match step {
                    PullStep::ReadManifest => {
                        self.asked.push("manifest");
                        let manifest = ArtefactManifest {
                            digest: "sha256:manifest".to_owned(),
                            module: NEW,
                        };
                        pull.described(self.manifest.clone().map(|()| manifest))
                    }
                    PullStep::Verify(manifest) => {
                        assert_eq!(manifest, "sha256:manifest");
                        self.asked.push("signatures");
                        pull.verified(self.signatures.clone())
                    }
                    PullStep::Recall(digest) => {
                        pull.recalled(self.cached.contains(&digest).then(|| wasm(digest)))
                    }
                    PullStep::Check(digest) => pull.checked(self.ask("check", digest)),
                    PullStep::Pull(digest) => {
                        pull.pulled(self.ask("pull", digest).map(|()| wasm(digest)))
                    }
                    PullStep::Done(done) => {
                        return done.map(|wasm| ModuleDigest(wasm.try_into().unwrap()));
                    }
                };
            }
        }
    }

    fn unpinned() -> Value {
        json!({})
    }

    fn pinned(digest: ModuleDigest) -> Value {
        json!({"digest": format!("sha256:{digest}")})
    }

    fn signed(digest: ModuleDigest) -> Value {
        let mut fields = pinned(digest);
        fields["verify"] = json!({"allOf": [{"key": {"pem": "a key"}}]});
        fields
    }

    /// The tag names another module than the pinned one.
    fn mismatch() -> RevisionLoadError {
        OtherModule {
            origin: "the artefact registry.example/guest:1".to_owned(),
            found: NEW,
            wanted: OLD,
        }
        .into()
    }

    #[test]
    fn the_module_of_the_reference_comes_from_the_cache_or_the_repository() {
        for fields in [unpinned(), pinned(NEW)] {
            let mut world = World::new(&[NEW], &[NEW]);
            assert_eq!(world.pull(&fields), Ok(NEW));
            assert_eq!(world.asked, ["manifest"]);
            let mut world = World::new(&[OLD], &[OLD, NEW]);
            assert_eq!(world.pull(&fields), Ok(NEW));
            assert_eq!(world.asked, ["manifest", "pull"]);
        }
    }

    #[test]
    fn a_pinned_module_whose_tag_moved_is_read_while_the_repository_has_it() {
        let mut world = World::new(&[], &[OLD, NEW]);
        assert_eq!(world.pull(&pinned(OLD)), Ok(OLD));
        assert_eq!(world.asked, ["manifest", "pull"]);
        let mut world = World::new(&[OLD], &[OLD, NEW]);
        assert_eq!(world.pull(&pinned(OLD)), Ok(OLD));
        assert_eq!(world.asked, ["manifest", "check"]);
        for cached in [&[][..], &[OLD]] {
            let mut world = World::new(cached, &[NEW]);
            assert_eq!(world.pull(&pinned(OLD)), Err(mismatch()));
        }
    }

    /// Whether the repository has the pinned module is unknown then.
    #[test]
    fn a_registry_that_fails_is_not_one_without_the_module() {
        for cached in [&[][..], &[OLD]] {
            let mut world = World::new(cached, &[OLD, NEW]);
            world.broken = Some(failure(false));
            assert_eq!(world.pull(&pinned(OLD)), Err(failure(false).error));
        }
    }

    /// The manifest names the module: the registry contradicts itself, and may be repaired.
    #[test]
    fn a_missing_module_of_the_reference_is_a_failure_of_the_registry() {
        for fields in [unpinned(), pinned(NEW)] {
            let mut world = World::new(&[], &[]);
            assert_eq!(world.pull(&fields), Err(failure(true).error));
        }
    }

    #[test]
    fn without_a_manifest_nothing_is_read_whatever_the_cache_has() {
        for is_missing in [false, true] {
            for fields in [unpinned(), pinned(OLD), signed(NEW)] {
                let mut world = World::new(&[OLD, NEW], &[OLD, NEW]);
                world.manifest = Err(failure(is_missing));
                assert_eq!(world.pull(&fields), Err(failure(is_missing).error));
                assert_eq!(world.asked, ["manifest"]);
            }
        }
    }

    #[test]
    fn signatures_are_verified_before_the_module_is_read() {
        for cached in [&[][..], &[NEW]] {
            let mut world = World::new(cached, &[NEW]);
            assert_eq!(world.pull(&signed(NEW)), Ok(NEW));
            assert_eq!(world.asked[..2], ["manifest", "signatures"]);
            let mut world = World::new(cached, &[NEW]);
            let refused = RevisionLoadError::new(LoadErrorKind::NotSigned, "no signature");
            world.signatures = Err(refused.clone());
            assert_eq!(world.pull(&signed(NEW)), Err(refused));
            assert_eq!(world.asked, ["manifest", "signatures"]);
        }
    }

    /// The signatures that could be verified are those of the other module.
    #[test]
    fn a_module_that_needs_signatures_is_not_read_after_its_tag_moved() {
        let mut world = World::new(&[OLD], &[OLD, NEW]);
        assert_eq!(world.pull(&signed(OLD)), Err(mismatch()));
        assert_eq!(world.asked, ["manifest"]);
    }
}
