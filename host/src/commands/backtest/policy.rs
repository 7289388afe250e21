//! The policy under test: the recorded revision, another configuration, another module, or the
//! spec of a manifest.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use davit_core::api::{ControllerSpec, encode_config};
use davit_core::controller::Settings;
use davit_core::desired::DesiredController;
use davit_core::digest::ModuleDigest;
use davit_core::grant::Grant;
use davit_core::journal::{ControllerEntry, RevisionEntry};
use davit_core::revision::{LoadedRevision, RevisionIdentity};
use davit_core::untrusted;
use davit_engine::Guest;
use serde_json::Value;

use crate::cli::{BacktestArguments, GuestArguments};
use crate::commands::journal::LONGEST;
use crate::commands::print::{part, text_at};
use crate::commands::replay::guests::Guests;
use crate::engine;
use crate::loader::Loader;
use crate::modules::{Modules, ModulesOptions};
use crate::yaml;

/// The namespace of Davit that the rules of a manifest refer to.
const HOME: &str = "davit-system";

/// What the command names.
pub(super) enum PolicySource {
    /// The spec of `--spec`.
    Manifest(Box<ControllerSpec>, GuestArguments),
    /// The recorded revision.
    Journal {
        guests: Box<Guests>,
        /// The module of `--module`.
        module: Option<ModuleDigest>,
        /// The configuration of `--config`, as a guest receives it.
        config: Option<Arc<[u8]>>,
    },
}

impl PolicySource {
    pub(super) fn new(arguments: &BacktestArguments) -> Result<Self> {
        if let Some(path) = &arguments.spec {
            let spec = manifest(path, &arguments.controller)?;
            return Ok(Self::Manifest(Box::new(spec), arguments.guests.clone()));
        }
        let files: Vec<_> = arguments.module.iter().cloned().collect();
        let guests = Guests::new(&arguments.journal, &files, &arguments.guests)?;
        let module = guests.named().next();
        Ok(Self::Journal {
            module,
            guests: Box::new(guests),
            config: arguments.config.as_deref().map(config).transpose()?,
        })
    }

    /// The controller under test, beside the recorded one and its spec.
    pub(super) async fn load(
        self,
        recorded: &ControllerEntry,
        spec: Option<&str>,
    ) -> Result<DesiredController<Arc<Guest>>> {
        let (stable, settings) = match self {
            Self::Manifest(spec, guests) => of_manifest(&spec, guests).await?,
            Self::Journal {
                mut guests,
                module,
                config,
            } => {
                let stable = recorded.stable.as_ref();
                let stable = stable.context("the journal has no revision of the controller")?;
                let revision = RevisionEntry {
                    module: module.unwrap_or(stable.module),
                    config: config.unwrap_or_else(|| Arc::clone(&stable.config)),
                    ..stable.clone()
                };
                of_journal(&mut guests, recorded, revision, spec).await?
            }
        };
        desired(&recorded.name, stable, settings)
    }

    /// The controller under test, on a journal that has no controllers.
    pub(super) async fn load_alone(self, name: &str) -> Result<DesiredController<Arc<Guest>>> {
        let Self::Manifest(spec, guests) = self else {
            bail!("no controller ran while the journal was recorded: name the policy with --spec");
        };
        let (stable, settings) = of_manifest(&spec, guests).await?;
        desired(name, stable, settings)
    }
}

/// The controller; fails if its guest declares more than it may.
fn desired(
    name: &str,
    stable: LoadedRevision<Arc<Guest>>,
    settings: Settings,
) -> Result<DesiredController<Arc<Guest>>> {
    let missing = settings.grant.missing(&stable.manifest);
    if !missing.is_empty() {
        let missing = serde_json::to_string(&missing).unwrap_or_default();
        bail!("the guest declares more than is granted; spec.permissions lacks {missing}");
    }
    Ok(DesiredController::new(name, settings, stable))
}

/// The policy under test, and its settings.
type LoadedPolicy = (LoadedRevision<Arc<Guest>>, Settings);

async fn of_manifest(spec: &ControllerSpec, guests: GuestArguments) -> Result<LoadedPolicy> {
    let modules = Modules::new(ModulesOptions {
        guests: guests.directory,
        cache: guests.cache.clone(),
        client: None,
    })?;
    let engine = engine::compiling_apart(guests.cache, guests.engine)?;
    let loaded = Loader::new(engine, modules).load(spec).await;
    let loaded = loaded.map_err(|error| anyhow!("--spec: {error}"))?;
    let grant = spec.grant(loaded.is_shipped, HOME);
    Ok((loaded, spec.settings(grant)))
}

/// A revision with the recorded permissions, and the guardrails of the recorded spec.
async fn of_journal(
    guests: &mut Guests,
    recorded: &ControllerEntry,
    revision: RevisionEntry,
    spec: Option<&str>,
) -> Result<LoadedPolicy> {
    let guest = guests.get(&recorded.name, &revision).await?;
    let Some(guest) = guest else {
        let missing = guests.missing();
        bail!(missing.unwrap_or_else(|| "the module is missing".to_owned()));
    };
    let RevisionEntry {
        module,
        config,
        limits,
        ..
    } = revision;
    let loaded = LoadedRevision {
        manifest: Arc::clone(guest.manifest()),
        guest,
        identity: RevisionIdentity::new(module, config, limits),
        away: None,
        is_shipped: recorded.grant == Grant::Declared,
    };
    let grant = recorded.grant.clone();
    let settings = match spec {
        Some(spec) => recorded_spec(spec)?.settings(grant),
        None => Settings {
            grant,
            ..Settings::default()
        },
    };
    Ok((loaded, settings))
}

/// The recorded spec. Without it, its guardrails would be missing.
fn recorded_spec(spec: &str) -> Result<ControllerSpec> {
    let attempt = "the recorded spec cannot be read: use --spec";
    let spec: Value = serde_json::from_str(spec).context(attempt)?;
    ControllerSpec::read(&spec).map_err(|error| anyhow!("{attempt}: {error}"))
}

/// A configuration as the guest receives it.
fn config(path: &Path) -> Result<Arc<[u8]>> {
    let attempt = || format!("--config {}", path.display());
    let text = std::fs::read_to_string(path).with_context(attempt)?;
    let value: Value = yaml::one(&text).with_context(attempt)?;
    if !matches!(value, Value::Null | Value::Object(_)) {
        bail!("--config {}: expected a map", path.display());
    }
    Ok(encode_config(&value).with_context(attempt)?.into())
}

/// The spec of the Controller of this name in a manifest.
fn manifest(path: &Path, controller: &str) -> Result<ControllerSpec> {
    let attempt = || format!("--spec {}", path.display());
    let text = std::fs::read_to_string(path).with_context(attempt)?;
    let documents = yaml::all(&text).with_context(attempt)?;
    let controllers = documents.iter();
    let mut controllers: Vec<&Value> = controllers
        .filter(|document| text_at(document, "/kind") == "Controller")
        .collect();
    if controllers.len() > 1 {
        controllers.retain(|one| text_at(one, "/metadata/name") == controller);
    }
    let [one] = controllers[..] else {
        bail!(
            "--spec {}: it has no Controller {controller}",
            path.display()
        );
    };
    let name = text_at(one, "/metadata/name");
    if name != controller {
        let other = untrusted::line(name, LONGEST);
        bail!(
            "--spec {}: its Controller is {other:?}, and --controller names {controller}: its \
             policy would be compared with that of another controller",
            path.display()
        );
    }
    ControllerSpec::read(part(one, "/spec")).map_err(|error| anyhow!("{}: {error}", attempt()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_of_another_controller_is_refused_by_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("controller.yaml");
        let text = "kind: Controller\nmetadata: {name: other}\n\
                    spec: {module: {builtin: podgc}, mode: Enforce}\n";
        std::fs::write(&path, text).unwrap();
        let error = manifest(&path, "podgc").unwrap_err().to_string();
        assert!(error.contains("its Controller is \"other\""), "{error}");
        assert!(manifest(&path, "other").is_ok());
    }
}
