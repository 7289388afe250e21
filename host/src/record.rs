//! `davit record`: writes a journal of what a profile names, without running a controller.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use davit_core::journal::Profile;
use davit_core::manifest::Source;

use crate::cli::{EngineArguments, RecordArguments};
use crate::commands;
use crate::config::JournalConfig;
use crate::health::Health;
use crate::host::{Host, HostOptions};
use crate::http::Endpoints;
use crate::http::requests::RequestPolicy;
use crate::journal::JournalSettings;
use crate::journal_settings;
use crate::metrics::HostMetrics;
use crate::modules::{Modules, ModulesOptions};
use crate::rbac::Need;
use crate::run::{self, StopSignals};
use crate::telemetry::LogFilter;

/// Records until SIGINT or SIGTERM. It sends no writes.
pub async fn run(arguments: RecordArguments, log: LogFilter) -> Result<()> {
    let settings = journal_settings::settings(&arguments.journal, &JournalConfig::default())?;
    let settings = settings.context("--journal: davit record needs a directory")?;
    if settings.profile.watches().is_empty() {
        bail!("--profile: davit record needs a file with resources and fields");
    }
    let mut stop = StopSignals::new()?;
    let starting = run::end_by_signal()?;
    let metrics = Arc::new(HostMetrics::new()?);
    let observer = Arc::new(metrics.requests.clone());
    let health = Arc::new(Health::default());
    let namespace = arguments.namespace.namespace;
    let client = commands::connect_in(arguments.cluster, true, &namespace, observer).await?;
    check_permissions(&client, &settings.profile).await?;
    let settings = JournalSettings {
        is_profile_only: true,
        ..settings
    };
    let journal = run::open_journal(Some(settings), None, &metrics, &health)?;
    starting.abort();
    let engine = crate::engine::compiling_apart(None, EngineArguments::default())?;
    let modules = Modules::new(ModulesOptions {
        guests: None,
        cache: None,
        client: None,
    })?;
    let host = Host::start(HostOptions {
        health: Arc::clone(&health),
        journal,
        ..HostOptions::new(client.clone(), engine, modules, Arc::clone(&metrics))
    });
    // No controller is declared, and none follows.
    host.apply(&[]).await?.recorded().await;
    health.set_declared();
    let endpoints = Endpoints {
        metrics,
        health,
        host: host.handle().clone(),
        requests: RequestPolicy::Cluster,
        log: Some(log),
        access: run::access(&arguments.ports, &client),
    };
    run::serve_ports(&arguments.ports, endpoints).await?;
    let name = stop.received().await;
    tracing::info!("{name}: stopping");
    host.stop().await;
    tracing::info!("stopped");
    Ok(())
}

/// Fails if the user of the kubeconfig may not read what the profile names.
async fn check_permissions(client: &kube::Client, profile: &Profile) -> Result<()> {
    let mut needs = BTreeSet::new();
    for watch in profile.watches() {
        if let Source::One(resource) = &watch.source {
            needs.extend(["list", "watch"].map(|verb| Need {
                namespace: (!watch.namespace.is_empty()).then(|| watch.namespace.clone()),
                group: resource.group.clone(),
                resource: resource.plural.clone(),
                verb: verb.to_owned(),
            }));
        }
    }
    match commands::lacking(client, &needs).await {
        Ok(lacking) if lacking.is_empty() => Ok(()),
        Ok(lacking) => bail!(
            "the kubeconfig's user may not {}: the profile needs it",
            lacking.join(", ")
        ),
        Err(reason) => {
            tracing::warn!(
                "the permissions of the kubeconfig's user are not known: {reason}; what may not be \
                 listed is not recorded"
            );
            Ok(())
        }
    }
}
