//! The specs of the tests, and the revisions that they describe.

use std::sync::Arc;

use super::bench::{Guest, NAME};
use crate::api::{ControllerSpec, ModuleSource, RolloutConfig, StepConfig, encode_config};
use crate::digest::ModuleDigest;
use crate::manifest::{Manifest, Permission, Source, WatchSpec};
use crate::object::ApiResource;
use crate::revision::{LoadedRevision, RevisionIdentity};

pub(super) fn spec(config: u32, steps: &[&str]) -> ControllerSpec {
    let steps = steps.iter().map(|step| step.parse::<StepConfig>().unwrap());
    let mut spec = ControllerSpec::of(ModuleSource::File("/guests/a.wasm".into()).into());
    spec.config = serde_json::json!({"threshold": config});
    spec.rollout = RolloutConfig {
        steps: steps.collect(),
        ..RolloutConfig::default()
    };
    spec.rollout.analysis.min_decisions = 0;
    spec
}

/// The module at the source of a spec.
pub(super) fn module(spec: &ControllerSpec) -> ModuleDigest {
    ModuleDigest::of(format!("{:?}", spec.module.source).as_bytes())
}

pub(super) fn identity(spec: &ControllerSpec) -> RevisionIdentity {
    identity_with(module(spec), spec)
}

pub(super) fn identity_with(module: ModuleDigest, spec: &ControllerSpec) -> RevisionIdentity {
    let config = encode_config(&spec.config).unwrap();
    RevisionIdentity::new(module, config.into(), spec.limits)
}

/// The module at the source, after it was replaced so often.
pub(super) fn module_after(replaced: u32, spec: &ControllerSpec) -> ModuleDigest {
    match replaced {
        0 => module(spec),
        _ => ModuleDigest::of(format!("{replaced} {:?}", spec.module.source).as_bytes()),
    }
}

pub(super) fn name_of(spec: &ControllerSpec) -> String {
    identity(spec).to_string()
}

pub(super) fn loaded(spec: &ControllerSpec) -> LoadedRevision<Guest> {
    loaded_with(module(spec), spec)
}

pub(super) fn loaded_with(module: ModuleDigest, spec: &ControllerSpec) -> LoadedRevision<Guest> {
    LoadedRevision {
        guest: "a.wasm",
        manifest: Arc::new(manifest(spec)),
        identity: identity_with(module, spec),
        away: None,
        is_shipped: spec.module.source.is_builtin(),
    }
}

/// The guest watches the data of the resources that its configuration names.
fn manifest(spec: &ControllerSpec) -> Manifest {
    let watched = spec.config["watches"].as_array().into_iter().flatten();
    let watches = watched.map(|resource| {
        let resource = resource.as_str().unwrap();
        WatchSpec {
            fields: vec!["data".parse().unwrap()],
            ..WatchSpec::new(resource, Source::One(ApiResource::new("", "v1", resource)))
        }
    });
    let permissions = match &spec.config["writes"] {
        serde_json::Value::Bool(true) => vec![Permission::new("delete", "", "pods")],
        serde_json::Value::String(_) => vec![Permission::of_events()],
        _ => Vec::new(),
    };
    Manifest {
        name: NAME.into(),
        watches: watches.collect(),
        permissions,
        ..Manifest::default()
    }
}
