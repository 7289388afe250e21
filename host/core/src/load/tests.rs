//! Attempts against sources, a module cache and guests of the test.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::api::{ControllerStatus, ModuleConfig, SpecError};
use crate::digest::ModuleDigest;
use crate::manifest::Manifest;
use crate::revision::RevisionIdentity;
use crate::trust::{TrustPolicy, UnsignedPolicy};

type Result<T, E = RevisionLoadError> = std::result::Result<T, E>;

/// What the steps of an attempt meet.
struct World {
    source: Result<ModuleDigest, LoadErrorKind>,
    version: &'static str,
    /// The module cache, and of which modules this host has verified the signatures.
    cache: BTreeMap<ModuleDigest, bool>,
    recorded: Result<Option<ControllerSpec>, String>,
    compiles: Result<(), LoadErrorKind>,
    described: Result<(), LoadErrorKind>,
    /// Whether objects have the fields that the configuration names.
    checked: Result<(), LoadErrorKind>,
    was_checked: bool,
    /// Whether the described revision had to fit into the memory.
    was_limited: Option<bool>,
    fetches: u32,
}

const ONE: ModuleDigest = ModuleDigest([1; 32]);
const OTHER: ModuleDigest = ModuleDigest([2; 32]);

fn error(kind: LoadErrorKind) -> RevisionLoadError {
    RevisionLoadError::new(kind, "it broke")
}

impl World {
    /// Every step succeeds with this module.
    fn with(source: ModuleDigest) -> Self {
        Self {
            source: Ok(source),
            version: "1",
            cache: BTreeMap::new(),
            recorded: Ok(None),
            compiles: Ok(()),
            described: Ok(()),
            checked: Ok(()),
            was_checked: false,
            was_limited: None,
            fetches: 0,
        }
    }

    /// Nobody can read the source.
    fn away() -> Self {
        Self {
            source: Err(LoadErrorKind::Unavailable),
            ..Self::with(ONE)
        }
    }

    fn cached(mut self, digest: ModuleDigest, is_verified: bool) -> Self {
        self.cache.insert(digest, is_verified);
        self
    }

    fn run(&mut self, target: LoadTarget) -> Result<LoadResult<ModuleDigest>, LoadProblem> {
        let mut attempt = LoadAttempt::new(target);
        let mut step = attempt.start();
        loop {
            step = match step {
                LoadStep::ReadSpec(_) => attempt.recorded(self.recorded.clone()),
                LoadStep::Probe(_) => {
                    let version = SourceVersion(self.version.to_owned());
                    let source = self.source.clone().map_err(error);
                    attempt.probed(source.map(|_| version))
                }
                LoadStep::Prepare(preparation) => attempt.prepared(self.prepare(preparation)),
                LoadStep::Done(result) => return result,
            };
        }
    }

    fn prepare(&mut self, mut preparation: Preparation) -> Result<LoadedRevision<ModuleDigest>> {
        let mut step = preparation.start();
        loop {
            step = match step {
                PreparationStep::Find(search) => preparation.found(self.find(search)),
                PreparationStep::Compile(digest, module) => {
                    let compiled = self.compiles.clone().map_err(error);
                    preparation.compiled(digest, compiled.map(|()| module))
                }
                PreparationStep::Describe {
                    module,
                    identity,
                    is_limited,
                } => {
                    self.was_limited = Some(is_limited);
                    let described = self.described.clone().map_err(error);
                    let described = described.map(|()| (module, Arc::new(Manifest::default())));
                    preparation.described(identity, described)
                }
                PreparationStep::CheckFields(revision) => {
                    self.was_checked = true;
                    preparation.checked(revision, self.checked.clone().map_err(error))
                }
                PreparationStep::Done(loaded) => return loaded,
            };
        }
    }

    fn find(&mut self, mut search: ModuleSearch) -> Result<(FoundModule, ModuleDigest)> {
        let mut step = search.start();
        loop {
            step = match step {
                SearchStep::Fetch => {
                    self.fetches += 1;
                    let fetched = self.source.clone().map_err(error);
                    search.fetched(fetched.map(|digest| (digest, digest)))
                }
                SearchStep::Recall(module) => {
                    let verified = self.cache.get(&module);
                    search.recalled(verified.map(|&is_verified| RecalledModule {
                        module,
                        is_verified,
                    }))
                }
                SearchStep::Keep {
                    digest,
                    fetched,
                    is_verified,
                } => {
                    self.cache.insert(digest, is_verified);
                    search.added(digest, fetched)
                }
                SearchStep::Done(found) => return found,
            };
        }
    }

    fn desired(
        &mut self,
        module: &serde_json::Value,
    ) -> Result<LoadResult<ModuleDigest>, LoadProblem> {
        self.run(desired(module, None))
    }

    /// Loads the recorded revision of this module.
    fn stable(
        &mut self,
        module: &serde_json::Value,
    ) -> Result<LoadedRevision<ModuleDigest>, LoadProblem> {
        self.recorded = Ok(Some(spec(module)));
        let revision = "abc".to_owned();
        self.run(LoadTarget::Stable { revision }).map(loaded)
    }
}

fn spec(module: &serde_json::Value) -> ControllerSpec {
    let module: ModuleConfig = serde_json::from_value(module.clone()).unwrap();
    ControllerSpec::of(module)
}

fn desired(module: &serde_json::Value, before: Option<&str>) -> LoadTarget {
    LoadTarget::Desired {
        spec: Box::new(spec(module)),
        before: before.map(|before| SourceVersion(before.to_owned())),
        has_run: false,
    }
}

fn loaded(result: LoadResult<ModuleDigest>) -> LoadedRevision<ModuleDigest> {
    match result {
        LoadResult::Loaded { revision, .. } => revision,
        LoadResult::Unchanged => panic!("the source is unchanged"),
    }
}

fn version(result: &LoadResult<ModuleDigest>) -> Option<&str> {
    match result {
        LoadResult::Loaded { version, .. } => version.as_ref().map(|version| version.0.as_str()),
        LoadResult::Unchanged => panic!("the source is unchanged"),
    }
}

/// A source that is checked again.
fn tag() -> serde_json::Value {
    json!({"oci": {"reference": "registry.example/guests/a:1"}})
}

/// A source that is checked again, also if the module is pinned.
fn map() -> serde_json::Value {
    json!({"configMap": {"namespace": "davit-system", "name": "guests", "key": "a.wasm"}})
}

fn pinned(module: serde_json::Value, digest: ModuleDigest) -> serde_json::Value {
    let mut module = module;
    module["digest"] = json!(format!("sha256:{digest}"));
    module
}

fn signed(module: serde_json::Value) -> serde_json::Value {
    let mut module = module;
    module["verify"] = json!({"allOf": [{"key": {"pem": "a"}}]});
    module
}

#[test]
fn a_module_comes_from_its_source_and_is_cached() {
    let mut world = World::with(ONE);
    let result = world.desired(&tag()).unwrap();
    assert_eq!(version(&result), Some("1"));
    let revision = loaded(result);
    assert_eq!(revision.guest, ONE);
    assert_eq!(revision.away, None);
    assert!(!revision.is_shipped);
    let limits = spec(&tag()).limits;
    let identity = RevisionIdentity::new(ONE, [0x80].into(), limits);
    assert_eq!(revision.identity, identity);
    assert_eq!(world.cache, BTreeMap::from([(ONE, false)]));
    world.desired(&signed(tag())).unwrap();
    assert_eq!(
        world.cache,
        BTreeMap::from([(ONE, true)]),
        "its signatures were verified"
    );
    // The cache is no replacement for a source that can be read.
    world.source = Ok(OTHER);
    assert_eq!(loaded(world.desired(&tag()).unwrap()).guest, OTHER);
}

#[test]
fn a_source_with_the_former_version_is_not_fetched() {
    let mut world = World::with(ONE);
    let result = world.run(desired(&tag(), Some("1"))).unwrap();
    assert!(matches!(result, LoadResult::Unchanged));
    assert_eq!(world.fetches, 0);
    let result = world.run(desired(&tag(), Some("0"))).unwrap();
    assert_eq!(version(&result), Some("1"));
}

#[test]
fn a_source_that_is_not_checked_again_has_no_version() {
    let module = json!({"oci": {
        "reference": format!("registry.example/guests/a@sha256:{}", "0".repeat(64)),
    }});
    assert_eq!(spec(&module).module.check_interval(), None);
    let result = World::with(ONE).run(desired(&module, None)).unwrap();
    assert_eq!(version(&result), None);
}

#[test]
fn while_the_source_is_away_a_pinned_module_comes_from_the_cache() {
    let module = pinned(map(), ONE);
    let mut world = World::away().cached(ONE, false);
    let result = world.desired(&module).unwrap();
    let unavailable = SourceVersion::unavailable().0;
    assert_eq!(version(&result), Some(unavailable.as_str()));
    let revision = loaded(result);
    assert_eq!(revision.guest, ONE);
    assert_eq!(revision.away.as_deref(), Some("it broke"));
    let again = world.run(desired(&module, Some(&unavailable))).unwrap();
    assert!(matches!(again, LoadResult::Unchanged));

    // Nobody knows which module an unpinned spec describes.
    let problem = world.desired(&tag()).unwrap_err();
    assert_eq!(problem.failure, LoadFailure::NotFound);
    assert_eq!(problem.message, "module: it broke");
    assert_eq!(problem.version, None);

    let problem = World::away().cached(OTHER, false).desired(&module);
    assert_eq!(problem.unwrap_err().message, "module: it broke");
}

/// Otherwise a pin would hide that the spec names another source.
#[test]
fn a_source_that_can_be_read_is_never_replaced_by_the_cache() {
    let module = pinned(tag(), ONE);
    for kind in [
        LoadErrorKind::NoModule,
        LoadErrorKind::NoSuchBuiltin,
        LoadErrorKind::NotSigned,
    ] {
        let mut world = World::with(ONE).cached(ONE, true);
        world.source = Err(kind.clone());
        let problem = world.desired(&module).unwrap_err();
        assert_eq!(problem.failure, kind.failure());
    }
    let mut world = World::with(OTHER).cached(ONE, true);
    let problem = world.desired(&module).unwrap_err();
    assert_eq!(problem.failure, LoadFailure::DigestMismatch);
    assert_eq!(
        problem.message,
        format!(
            "module: the artefact registry.example/guests/a:1 is the module sha256:{OTHER}, and \
             digest pins sha256:{ONE}: change digest if the source's module should run"
        )
    );
    assert_eq!(
        world.cache,
        BTreeMap::from([(ONE, true)]),
        "it is not cached"
    );
}

#[test]
fn the_cache_replaces_the_verification_of_signatures_only_if_this_host_made_it() {
    let module = signed(pinned(tag(), ONE));
    let problem = World::away().cached(ONE, false).desired(&module);
    assert_eq!(problem.unwrap_err().failure, LoadFailure::NotFound);
    let mut world = World::away().cached(ONE, true);
    assert_eq!(loaded(world.desired(&module).unwrap()).guest, ONE);
    assert_eq!(world.stable(&module).unwrap().guest, ONE);

    // A recorded revision is verified at its source.
    let problem = World::away().cached(ONE, false).stable(&module);
    assert_eq!(problem.unwrap_err().failure, LoadFailure::NotFound);
    let mut world = World::with(ONE).cached(ONE, false);
    assert_eq!(world.stable(&module).unwrap().guest, ONE);
    assert_eq!(world.cache, BTreeMap::from([(ONE, true)]));
}

#[test]
fn a_recorded_revision_comes_from_the_cache_and_else_from_a_source_with_the_same_module() {
    let module = pinned(tag(), ONE);
    let mut world = World::with(OTHER).cached(ONE, false);
    let revision = world.stable(&module).unwrap();
    assert_eq!((revision.guest, revision.away), (ONE, None));
    assert_eq!(world.fetches, 0);
    assert_eq!(World::with(ONE).stable(&module).unwrap().guest, ONE);

    let problem = World::with(OTHER).stable(&module).unwrap_err();
    assert_eq!(problem.failure, LoadFailure::DigestMismatch);
    assert_eq!(
        problem.message,
        format!(
            "the artefact registry.example/guests/a:1 is the module sha256:{OTHER} by now, and \
             sha256:{ONE} of abc is not in the module cache"
        )
    );
    let problem = World::away().stable(&module).unwrap_err();
    assert_eq!(problem.message, "module: it broke");
}

#[test]
fn a_recorded_revision_that_this_version_cannot_run_names_its_module() {
    let mut world = World::with(ONE);
    world.compiles = Err(LoadErrorKind::NotAGuest);
    let module = pinned(json!({"builtin": "podgc"}), ONE);
    let problem = world.stable(&module).unwrap_err();
    assert_eq!(problem.failure, LoadFailure::NotAGuest);
    assert!(problem.is_builtin);
    assert_eq!(
        problem.message,
        format!("this Davit cannot run the module of abc, sha256:{ONE}: it broke")
    );
}

#[test]
fn a_recorded_spec_that_is_missing_or_unreadable_is_not_recorded() {
    let load = |recorded| {
        let mut world = World::with(ONE);
        world.recorded = recorded;
        let revision = "abc".to_owned();
        let problem = world.run(LoadTarget::Candidate { revision }).unwrap_err();
        assert_eq!(problem.failure, LoadFailure::NotRecorded);
        problem.message
    };
    assert_eq!(load(Ok(None)), "the spec of abc is not recorded");
    assert_eq!(load(Err("forbidden".to_owned())), "forbidden");
}

/// It ran before.
#[test]
fn a_recorded_revision_need_not_fit_into_the_memory() {
    let mut world = World::with(ONE);
    world.desired(&tag()).unwrap();
    assert_eq!(world.was_limited, Some(true));
    world.stable(&pinned(tag(), ONE)).unwrap();
    assert_eq!(world.was_limited, Some(false));
}

#[test]
fn only_new_configurations_of_guests_that_ship_with_davit_have_their_fields_checked() {
    let shipped = json!({"builtin": "policy"});
    let unknown = LoadErrorKind::UnknownField {
        field: "rules[0].when".to_owned(),
        reason: "no such field".to_owned(),
    };
    let checked = || World {
        checked: Err(unknown.clone()),
        ..World::with(ONE)
    };
    let mut world = checked();
    let problem = world.desired(&shipped).unwrap_err();
    assert_eq!(problem.failure, LoadFailure::UnknownField);
    assert_eq!(
        error(unknown.clone()).in_spec().field,
        "config.rules[0].when"
    );
    // It ran before.
    let mut world = checked().cached(ONE, false);
    let stable = world.stable(&pinned(shipped.clone(), ONE)).unwrap();
    assert_eq!(stable.guest, ONE);
    assert!(!world.was_checked);
    let known = LoadTarget::Desired {
        spec: Box::new(spec(&shipped)),
        before: None,
        has_run: true,
    };
    let mut world = checked();
    assert_eq!(loaded(world.run(known).unwrap()).guest, ONE);
    assert!(!world.was_checked);
    assert_eq!(
        world.was_limited,
        Some(true),
        "an update may need more memory"
    );
    let mut world = checked();
    assert_eq!(loaded(world.desired(&tag()).unwrap()).guest, ONE);
    assert!(!world.was_checked);
}

#[test]
fn a_failure_after_the_probe_has_the_version_of_the_source() {
    let mut world = World::with(ONE);
    world.described = Err(LoadErrorKind::Deadline);
    let problem = world.desired(&tag()).unwrap_err();
    assert_eq!(problem.failure, LoadFailure::Busy);
    assert_eq!(problem.message, "config: it broke");
    assert_eq!(problem.version, Some(SourceVersion("1".to_owned())));
    world.described = Ok(());
    world.compiles = Err(LoadErrorKind::CompilerCrash);
    let problem = world.desired(&tag()).unwrap_err();
    assert_eq!(problem.failure, LoadFailure::NotWasm);
    assert_eq!(problem.message, "module: it broke");
}

#[test]
fn an_error_names_the_field_of_the_spec() {
    let at = |kind| error(kind).in_spec();
    let field = |kind| at(kind).field;
    assert_eq!(field(LoadErrorKind::Unavailable), "module");
    assert_eq!(field(LoadErrorKind::NotWasm), "module");
    assert_eq!(field(LoadErrorKind::NoManifest), "module");
    assert_eq!(field(LoadErrorKind::Memory), "limits");
    assert_eq!(field(LoadErrorKind::NoInstances), "module");
    assert_eq!(field(LoadErrorKind::Encode), "config");
    let config = |field: &str, reason: &str| {
        at(LoadErrorKind::Config {
            field: field.to_owned(),
            reason: reason.to_owned(),
        })
    };
    let expected = |field: &str, reason: &str| SpecError {
        field: field.to_owned(),
        reason: reason.to_owned(),
    };
    assert_eq!(
        config("period", "too short"),
        expected("config.period", "too short")
    );
    // The text of a guest is no line of the host.
    assert_eq!(config("", "a\nb"), expected("config", "a\\nb"));
}

/// Whether the file is applied, without the revision.
fn is_applied(step: &FileLoadStep<()>) -> bool {
    match step {
        FileLoadStep::Done(Ok(None)) => true,
        FileLoadStep::Done(Err(_)) => false,
        _ => panic!("the load is not done"),
    }
}

#[test]
fn a_file_is_applied_without_a_revision_that_may_be_loaded_later_or_is_the_stable_one() {
    let pin = spec(&pinned(tag(), ONE));
    let mismatch = RevisionLoadError::from(OtherModule {
        origin: "the file a".to_owned(),
        found: OTHER,
        wanted: ONE,
    });
    let stable = |digest: ModuleDigest| -> ControllerStatus {
        serde_json::from_value(json!({"stable": {
            "revision": "abc", "digest": format!("sha256:{digest}"), "configHash": "", "since": "",
        }}))
        .unwrap()
    };
    for (recorded, admitted) in [
        (Some(stable(ONE)), true),
        (Some(stable(OTHER)), false),
        (None, false),
    ] {
        let mut load = FileLoad::new(&pin);
        let next = load.loaded::<()>(Err(mismatch.clone()));
        assert!(matches!(next, FileLoadStep::ReadStatus));
        assert_eq!(is_applied(&load.recorded(recorded)), admitted);
    }
    for (kind, admitted) in [
        (LoadErrorKind::Unavailable, true),
        (LoadErrorKind::NotSigned, true),
        (LoadErrorKind::NoCompiler, true),
        (LoadErrorKind::Deadline, true),
        (LoadErrorKind::NoInstances, true),
        (LoadErrorKind::Memory, false),
        (LoadErrorKind::NoSuchBuiltin, false),
        (LoadErrorKind::NotWasm, false),
        (LoadErrorKind::NoManifest, false),
    ] {
        let error = error(kind);
        let text = error.to_string();
        let next = FileLoad::new(&pin).loaded(Err(error));
        assert_eq!(is_applied(&next), admitted, "{text}");
    }
    assert!(is_applied(&FileLoad::new(&pin).unanswered()));
}

#[test]
fn a_file_loads_what_changed_and_is_not_denied() {
    let trust = TrustPolicy::default();
    let (one, other) = (spec(&tag()), spec(&pinned(tag(), ONE)));
    let loads = |former, spec, trust| {
        let step = FileLoad::new(spec).start::<()>(former, trust);
        matches!(step, FileLoadStep::Prepare(_))
    };
    assert!(loads(None, &one, trust));
    assert!(loads(Some(&other), &one, trust));
    assert!(!loads(Some(&one), &one, trust));
    let denies = TrustPolicy {
        unsigned: UnsignedPolicy::Deny,
        files: false,
    };
    assert!(!loads(None, &one, denies));
    assert!(loads(None, &other, denies));
}
