//! `davit check`: checks whether controllers can run as configured. It changes
//! nothing.

mod access;
mod dropped;
mod sources;

use std::collections::BTreeSet;
use std::fmt;

use anyhow::{Result, bail};
use davit_cluster::api::Api;
use davit_cluster::clock::Clock;
use davit_cluster::discovery::discover;
use davit_core::grant::{Grant, Permissions};
use davit_core::load::{LoadErrorKind, LoadErrorStep};
use davit_core::manifest::{Manifest, Source, WatchSpec};
use davit_core::mapping::Discovery;
use davit_core::object::ApiResource;
use davit_core::path::FieldPath;
use davit_core::trust::{TrustPolicy, UnsignedPolicy};
use davit_core::untrusted;
use davit_engine::Engine;
use davit_kinds::UnknownField;
use kube::Client;
use serde::Serialize;
use serde_json::json;

use super::connect;
use super::print::{out, serialized, table};
use crate::cli::CheckArguments;
use crate::engine;
use crate::loader::Loader;
use crate::modules::{Modules, ModulesOptions};
use crate::published::{Published, undescribed};
use crate::resource::describe;
use access::Access;
pub(crate) use access::lacking;
use davit_core::api::{ControllerSpec, SpecError};
use davit_core::gate::Mode;

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its level.
    pub level: Level,
    /// The controller; none for checks of Davit itself and the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// The check: `spec`, `module`, `guest`, `config`, `resources`, `fields`,
    /// `permissions` or `cluster`.
    pub check: &'static str,
    /// The finding, on one line.
    pub message: String,
}

/// The level of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// No problem.
    Ok,
    /// The controller runs, but probably not as intended.
    Warning,
    /// The controller cannot run, or cannot do its work.
    Error,
    /// The check was not possible.
    NotChecked,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::NotChecked => "not-checked",
        })
    }
}

/// A controller to check: its spec, or the error in it.
pub(super) struct Subject {
    pub(super) name: String,
    /// The fields that `kubectl apply` has dropped of its configuration.
    pub(super) dropped: Vec<String>,
    pub(super) spec: Result<ControllerSpec, SpecError>,
}

/// The findings, in the order of the checks.
#[derive(Default)]
pub(super) struct Findings {
    all: Vec<Finding>,
    controller: Option<String>,
}

impl Findings {
    pub(super) fn add(&mut self, level: Level, check: &'static str, message: impl Into<String>) {
        let message: String = message.into();
        let words: Vec<&str> = message.split_whitespace().collect();
        self.all.push(Finding {
            level,
            controller: self.controller.clone(),
            check,
            message: untrusted::line(&words.join(" "), usize::MAX),
        });
    }
}

/// `davit check`: prints the findings, and fails if one of them is an error.
pub async fn check(arguments: CheckArguments) -> Result<()> {
    let client = if arguments.offline {
        None
    } else {
        Some(connect(arguments.cluster.clone()).await?)
    };
    let engine = engine::compiling_apart(None, arguments.engine)?;
    let findings = find(client.as_ref(), engine, &arguments).await?;
    let count = |level| findings.iter().filter(|one| one.level == level).count();
    let (errors, warnings) = (count(Level::Error), count(Level::Warning));
    let not_checked = count(Level::NotChecked);
    match arguments.output.format() {
        Some(format) => {
            let all = json!({
                "findings": findings,
                "errors": errors, "warnings": warnings, "notChecked": not_checked,
            });
            out(&serialized(&all, format)?)?;
        }
        None => out(&in_columns(&findings))?,
    }
    if errors > 0 {
        bail!("{errors} of {} checks failed", findings.len());
    }
    Ok(())
}

fn in_columns(findings: &[Finding]) -> String {
    let rows = findings.iter().map(|finding| {
        let controller = finding.controller.as_deref().unwrap_or("-");
        vec![
            finding.level.to_string(),
            controller.to_owned(),
            finding.check.to_owned(),
            finding.message.clone(),
        ]
    });
    table(&rows.collect::<Vec<_>>())
}

/// All findings, in the order of the checks. Without a client, no cluster is
/// contacted. The engine loads the modules.
pub async fn find(
    client: Option<&Client>,
    engine: Engine,
    arguments: &CheckArguments,
) -> Result<Vec<Finding>> {
    let mut findings = Findings::default();
    let cluster = match client {
        None => None,
        Some(client) => reach(client, &mut findings).await,
    };
    let (subjects, trust) = sources::subjects(
        arguments.config.as_deref(),
        &arguments.filename,
        cluster.as_ref().map(|(client, _)| client),
        &mut findings,
    )
    .await;
    let access = cluster.as_ref().map(|(client, _)| {
        let account = arguments.service_account.as_deref();
        let account = if trust.files {
            account
        } else {
            account.or(Some(crate::rbac::DAVIT))
        };
        Access::new(client, &arguments.namespace.namespace, account)
    });
    if let (Some(access), false) = (&access, trust.files) {
        access.check_davit(&mut findings).await;
    }
    // Without a cache: the check is whether the source has the module.
    let modules = Modules::new(ModulesOptions {
        guests: arguments.guests.clone(),
        cache: None,
        client: client.cloned(),
    })?;
    let loader = Loader::new(engine, modules);
    let loader = match &cluster {
        Some((client, _)) => loader.checking_fields(client),
        None => loader,
    };
    let published = cluster
        .as_ref()
        .map(|(client, _)| Published::by(client.clone()));
    let known: Vec<String> = subjects.iter().map(|one| one.name.clone()).collect();
    for name in arguments.names.iter().filter(|name| !known.contains(name)) {
        findings.controller = Some(name.clone());
        let message = if known.is_empty() {
            "there is no controller of this name, nor any other".to_owned()
        } else {
            let known = known.join(", ");
            format!("there is no controller of this name, only: {known}")
        };
        findings.add(Level::Error, "spec", message);
    }
    let wanted = |name: &String| arguments.names.is_empty() || arguments.names.contains(name);
    for subject in subjects.into_iter().filter(|one| wanted(&one.name)) {
        let Subject {
            name,
            dropped,
            spec,
        } = subject;
        findings.controller = Some(name.clone());
        if !dropped.is_empty() {
            let message = format!(
                "kubectl apply has dropped {}, which had no value: remove the key, give it one, or \
                 apply with --server-side, which keeps null",
                dropped.join(", ")
            );
            findings.add(Level::Warning, "spec", message);
        }
        let spec = match spec {
            Ok(spec) => spec,
            Err(error) => {
                findings.add(Level::Error, "spec", error.to_string());
                continue;
            }
        };
        findings.add(Level::Ok, "spec", format!("mode {:?}", spec.mode));
        let Some(manifest) = load(&loader, &spec, &mut findings).await else {
            continue;
        };
        check_trust(trust, &spec, &mut findings);
        let is_trusted = trust.files || spec.module.source.is_builtin();
        let grant = spec.grant(is_trusted, &arguments.namespace.namespace);
        check_grants(&name, &spec, &grant, &manifest, &mut findings);
        if let (Some((_, discovered)), Some(access)) = (&cluster, &access) {
            check_resources(&manifest, discovered.as_ref(), &mut findings);
            if let Some(published) = &published {
                check_fields(published, &manifest, &mut findings).await;
            }
            access.check(&spec, &grant, &manifest, &mut findings).await;
        } else {
            let message = "resources and permissions: --offline, or no cluster answered";
            findings.add(Level::NotChecked, "permissions", message);
        }
    }
    Ok(findings.all)
}

/// Contacts the API server; returns the resources that it serves.
async fn reach(client: &Client, findings: &mut Findings) -> Option<(Client, Option<Discovery>)> {
    match client.apiserver_version().await {
        Ok(version) => {
            let message = format!("the API server answers: Kubernetes {}", version.git_version);
            findings.add(Level::Ok, "cluster", message);
        }
        Err(error) => {
            let message = format!("the API server does not answer: {}", describe(&error));
            findings.add(Level::Error, "cluster", message);
            return None;
        }
    }
    let api = Api::new(client.clone(), Clock::start(), None);
    let discovered = discover(&api).await;
    let discovered = discovered.map_err(|failure| {
        let message = format!("discovery failed: {failure}");
        findings.add(Level::NotChecked, "resources", message);
    });
    Some((client.clone(), discovered.ok()))
}

/// Loads a module and validates its configuration, as the host does; returns the
/// manifest.
async fn load(
    loader: &Loader,
    spec: &ControllerSpec,
    findings: &mut Findings,
) -> Option<std::sync::Arc<Manifest>> {
    let source = &spec.module.source;
    let reason = match loader.load(spec).await {
        Ok(loaded) => {
            let pinned = match spec.module.digest {
                Some(_) => "pinned",
                None => "not pinned",
            };
            let digest = loaded.identity.digest();
            let message = format!("{source}: sha256:{digest}, {pinned}");
            findings.add(Level::Ok, "module", message);
            let (manifest, world) = (loaded.guest.manifest(), loaded.guest.module().world());
            let message = format!(
                "{} {}, interface {world}; revision {}",
                manifest.name, manifest.version, loaded.identity
            );
            findings.add(Level::Ok, "guest", message);
            findings.add(Level::Ok, "config", "the guest accepts the configuration");
            return Some(std::sync::Arc::clone(manifest));
        }
        Err(reason) => reason,
    };
    let level = match reason.kind {
        LoadErrorKind::NoCluster => Level::NotChecked,
        _ => Level::Error,
    };
    let check = match reason.kind.step() {
        LoadErrorStep::Find => "module",
        LoadErrorStep::Compile => "guest",
        LoadErrorStep::Admit => "limits",
        LoadErrorStep::Describe => "config",
    };
    findings.add(level, check, reason.to_string());
    None
}

/// Checks whether the host's configuration admits the module.
fn check_trust(trust: TrustPolicy, spec: &ControllerSpec, findings: &mut Findings) {
    if !trust.is_unsigned(&spec.module) || trust.admits_unsigned() {
        return;
    }
    let (level, effect) = match trust.unsigned {
        UnsignedPolicy::Deny => (Level::Error, "does not run it"),
        _ if writes(spec.mode) => (Level::Warning, "executes none of its plans"),
        _ => (Level::Ok, "executes none of its plans"),
    };
    let message = format!(
        "the module is neither built in, nor pinned by its digest, nor signed: a host with \
         trust.unsigned: {:?} {effect}",
        trust.unsigned
    );
    findings.add(level, "module", message);
}

/// Checks whether the spec grants what the guest declares. A rule for what the guest never
/// asks for is most likely a mistake.
fn check_grants(
    name: &str,
    spec: &ControllerSpec,
    grant: &Grant,
    manifest: &Manifest,
    findings: &mut Findings,
) {
    let missing = grant.missing(manifest);
    let declared = Permissions::declared_by(manifest);
    if missing.is_empty() {
        let why = match &spec.permissions {
            None => "without spec.permissions, the guest may do what it declares",
            Some(_) => "spec.permissions grants what the guest declares",
        };
        findings.add(Level::Ok, "spec", format!("{why}: {declared}"));
    } else {
        let message = format!(
            "the controller does not run: spec.permissions does not grant what the guest \
             declares: {missing}; davit grant {name} --apply adds the rules"
        );
        findings.add(Level::Error, "spec", message);
    }
    for rule in unused(spec.permissions.as_ref(), &declared) {
        let message = format!("spec.permissions grants {rule}, which the guest never asks for");
        findings.add(Level::Warning, "spec", message);
    }
}

/// The rules for what a guest does not declare.
fn unused(rules: Option<&Permissions>, declared: &Permissions) -> Vec<String> {
    let meets = |one: &str, other: &str| one == other || one == "*" || other == "*";
    let rules = rules.into_iter();
    let reads = rules.clone().flat_map(|rules| &rules.reads).filter(|rule| {
        let mut reads = declared.reads.iter();
        !reads.any(|one| meets(&rule.group, &one.group) && meets(&rule.resource, &one.resource))
    });
    let writes = rules.flat_map(|rules| &rules.writes).filter(|rule| {
        let mut writes = declared.writes.iter().filter(|one| one.verb == rule.verb);
        !writes.any(|one| meets(&rule.group, &one.group) && meets(&rule.resource, &one.resource))
    });
    let reads = reads.map(ToString::to_string);
    reads.chain(writes.map(ToString::to_string)).collect()
}

/// Checks whether the API server serves the resources that the guest watches.
fn check_resources(manifest: &Manifest, discovered: Option<&Discovery>, findings: &mut Findings) {
    let Some(discovered) = discovered else {
        return;
    };
    let is_missing = |watch: &&WatchSpec| match &watch.source {
        Source::One(resource) => discovered.mapping.by_resource(resource).is_none(),
        Source::EveryDeletable(_) => false,
    };
    let missing: Vec<&WatchSpec> = manifest.watches.iter().filter(is_missing).collect();
    for watch in &missing {
        let Source::One(resource) = &watch.source else {
            continue;
        };
        let version = resource.api_version();
        let unknown = discovered.failed.iter().find(|(of, _)| *of == version);
        match unknown {
            Some((_, why)) => {
                let message = format!("discovery failed for {resource}: {why}");
                findings.add(Level::NotChecked, "resources", message);
            }
            None if watch.optional => {
                let message = format!("{resource} is not served: the controller ignores it");
                findings.add(Level::Warning, "resources", message);
            }
            None => {
                let message = format!("{resource} is not served: the controller does not start");
                findings.add(Level::Error, "resources", message);
            }
        }
    }
    if missing.is_empty() {
        findings.add(
            Level::Ok,
            "resources",
            "the API server serves every resource that the guest watches",
        );
    }
}

/// Checks whether objects have the fields that the guest reads, as far as the API server publishes
/// them.
async fn check_fields(published: &Published, manifest: &Manifest, findings: &mut Findings) {
    let fields = manifest.watches.iter().flat_map(|watch| {
        let resource = match &watch.source {
            Source::One(resource) => Some(resource),
            Source::EveryDeletable(_) => None,
        };
        let indexed = watch.indexes.iter().map(|index| &index.path);
        let paths = watch.fields.iter().chain(indexed);
        resource.into_iter().flat_map(move |resource| {
            let paths = paths.clone();
            paths.map(|path| (resource.clone(), path.clone()))
        })
    });
    let fields: BTreeSet<(ApiResource, FieldPath)> = fields.collect();
    let resources = fields.iter().map(|(resource, _)| resource.clone());
    let resources: BTreeSet<ApiResource> = resources.collect();
    let types = match published.fields(&resources).await {
        Ok(Some(types)) => types,
        Ok(None) => {
            let message = "the API server publishes no OpenAPI documents";
            return findings.add(Level::NotChecked, "fields", message);
        }
        Err(error) => return findings.add(Level::NotChecked, "fields", format!("{error:#}")),
    };
    let unknown = fields.iter().filter_map(|(resource, path)| {
        let objects = types.get(resource)?;
        objects
            .check(&resource.to_string(), &path.to_string())
            .err()
    });
    let unknown: Vec<UnknownField> = unknown.collect();
    for one in &unknown {
        let one = untrusted::line(&one.to_string(), untrusted::MOST_LOGGED);
        let message = format!("{one}: the guest reads nothing there");
        findings.add(Level::Warning, "fields", message);
    }
    let undescribed = undescribed(&resources, &types);
    if !undescribed.is_empty() {
        let undescribed = undescribed.join(", ");
        let message = format!("the API server does not describe the fields of {undescribed}");
        findings.add(Level::NotChecked, "fields", message);
    } else if unknown.is_empty() {
        let message = "objects have every field that the guest reads";
        findings.add(Level::Ok, "fields", message);
    }
}

/// Whether a controller in this mode writes.
pub(super) fn writes(mode: Mode) -> bool {
    mode == Mode::Enforce
}
