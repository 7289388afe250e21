//! `davit demo`: the five controllers on an API server in memory.
//!
//! The controllers run in this process until the last chapter, which starts two replicas as
//! processes of their own.
//!
//! The story changes the cluster and waits until a controller has reacted. In the end
//! it compares the API server with the expected state: exactly the expected pods are
//! left, and each of the others was deleted once.

mod chapters;
mod cluster;
mod fleet;
mod journal;
mod rollouts;
mod screen;
mod takeover;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use davit_cluster::connect;
use davit_sim::Server;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::cli::{DemoArguments, GuestArguments};
use crate::config::{self, Config};
use crate::health::Health;
use crate::host::{Host, HostOptions, Report};
use crate::metrics::HostMetrics;
use crate::records::Records;
use crate::run;
use cluster::Cluster;
use fleet::Fleet;
use journal::Archive;
use screen::Screen;

/// How long a controller may take to react. It usually takes two or three seconds.
const PATIENCE: Duration = Duration::from_secs(15);
/// A pause to read the screen.
const READING: Duration = Duration::from_millis(200);

/// Runs the demo. It fails if the API server does not have the expected state.
pub async fn run(arguments: DemoArguments) -> Result<()> {
    let cluster = Cluster::new(crate::sim::start()?);
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = Server::start(loopback, cluster.sim().clone()).await?;
    let (listener, reports) = mpsc::unbounded_channel();
    let url = server
        .url()
        .parse()
        .context("the address of the API server")?;
    let client = connect::client(kube::Config::new(url))?;
    let records = Arc::new(Records::memory());
    let metrics = Arc::new(HostMetrics::new()?);
    let health = Arc::new(Health::default());
    let archive = Archive::new(&arguments.guests)?;
    let journal = archive.open(&metrics, &health)?;
    let modules = run::modules(&arguments.guests, &client)?;
    let cache = arguments.guests.cache.clone();
    let engine = crate::engine::compiling_apart(cache, arguments.guests.engine)?;
    let host = Host::start(HostOptions {
        records: Arc::clone(&records),
        health,
        listener: Some(listener),
        journal: Some(journal),
        seed: 0,
        ..HostOptions::new(client, engine, modules, metrics)
    });
    let mut story = Story {
        cluster,
        host,
        records,
        archive,
        reports,
        screen: Screen::new(),
        controllers: Vec::new(),
        deleted: BTreeMap::new(),
        expected: BTreeMap::new(),
    };
    story.play(&server, &arguments.guests).await?;
    let Story { host, archive, .. } = story;
    host.stop().await;
    drop(archive);
    Ok(())
}

struct Story {
    cluster: Cluster,
    host: Host,
    /// The host's records of rollouts.
    records: Arc<Records>,
    /// What the host has recorded.
    archive: Archive,
    reports: mpsc::UnboundedReceiver<Report>,
    screen: Screen,
    /// The entries of the configuration.
    controllers: Vec<String>,
    /// How many pods were deleted, by reason.
    deleted: BTreeMap<String, usize>,
    /// How many are expected.
    expected: BTreeMap<&'static str, usize>,
}

impl Story {
    async fn play(&mut self, server: &Server, guests: &GuestArguments) -> Result<()> {
        self.screen
            .title("Davit runs Kubernetes' controllers as WebAssembly guests");
        self.start_podgc().await?;
        self.remove_a_node().await?;
        self.finish_pods().await?;
        self.lose_a_node().await?;
        self.delete_an_unscheduled_pod().await?;
        self.promote_a_canary().await?;
        self.roll_a_canary_back().await?;
        self.choose_a_threshold().await?;
        self.change_the_threshold().await?;
        self.write_the_threshold_as_a_policy().await?;
        self.delete_owners().await?;
        self.taint_a_node().await?;
        self.lose_an_api_server().await?;
        // They start while the next chapter waits, and have nothing to do.
        let fleet = Fleet::start(self.cluster.sim(), server, guests)?;
        self.silence_a_node().await?;
        self.kill_the_holder(fleet).await?;
        self.check()
    }

    /// Adds a controller to the configuration, and waits until it has started.
    async fn run(&mut self, controller: String) -> Result<()> {
        self.controllers.push(controller);
        self.apply().await?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            tokio::select! {
                report = self.reports.recv() => match report {
                    Some(Report::Started { .. }) => return Ok(()),
                    Some(report) => self.note(&report),
                    None => bail!("the host has ended"),
                },
                () = sleep_until(deadline) => {
                    bail!("the controller did not start within {PATIENCE:?}")
                }
            }
        }
    }

    /// Applies the configuration.
    async fn apply(&self) -> Result<()> {
        let text = format!("controllers:\n{}", self.controllers.concat());
        let config: Config = config::parse(Path::new("the demo's configuration"), &text)?;
        let controllers = config.controllers.unwrap_or_default();
        self.host.apply(&controllers).await?.recorded().await;
        Ok(())
    }

    /// Waits until a condition holds, and prints the host's reports meanwhile.
    async fn until(&mut self, what: &str, holds: impl Fn(&Self) -> Result<bool>) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !holds(self)? {
            if Instant::now() > deadline {
                bail!("not within {PATIENCE:?}: {what}");
            }
            self.listen_until(Instant::now() + Duration::from_millis(50))
                .await?;
        }
        Ok(())
    }

    /// Waits until a plan with this reason was executed.
    async fn until_deleted(&mut self, reason: &str) -> Result<()> {
        let what = format!("a plan with the reason {reason}");
        self.until(&what, |story| Ok(story.deleted.contains_key(reason)))
            .await
    }

    /// Waits until these pods are gone, and prints the host's reports meanwhile.
    async fn until_gone(&mut self, reason: &'static str, pods: BTreeSet<String>) -> Result<()> {
        *self.expected.entry(reason).or_default() += pods.len();
        let what = format!("gone are {pods:?}");
        self.until(&what, |story| Ok(story.cluster.pods()?.is_disjoint(&pods)))
            .await?;
        self.cluster.expect_gone(&pods);
        self.pause().await;
        Ok(())
    }

    async fn pause(&mut self) {
        // The next wait fails if the host has ended.
        let _ = self.listen_until(Instant::now() + READING).await;
    }

    async fn listen_until(&mut self, deadline: Instant) -> Result<()> {
        loop {
            tokio::select! {
                report = self.reports.recv() => match report {
                    Some(report) => self.note(&report),
                    None => bail!("the host has ended"),
                },
                () = sleep_until(deadline) => return Ok(()),
            }
        }
    }

    fn note(&mut self, report: &Report) {
        if let Report::Executed { plan, outcome, .. } = report {
            self.screen.outcome(plan, outcome);
            let is_pod = plan.target.kind == "Pod";
            if outcome.failed.is_none() && is_pod && plan.deletes() {
                *self.deleted.entry(plan.reason.clone()).or_default() += 1;
            }
        }
    }

    /// Compares the API server with the expected state.
    fn check(&mut self) -> Result<()> {
        self.screen.chapter("What was deleted, by reason");
        let mut right = true;
        for (reason, expected) in &self.expected {
            let deleted = self.deleted.get(*reason).copied().unwrap_or_default();
            right &= deleted == *expected;
            self.screen.row(reason, deleted, *expected);
        }
        right &= self.deleted.len() == self.expected.len();
        let problems = self.cluster.problems()?;
        for problem in &problems {
            self.screen.problem(problem);
        }
        if !right || !problems.is_empty() {
            bail!("the API server does not hold the expected state");
        }
        let left = self.cluster.pods()?.len();
        self.screen.success(&format!(
            "the API server holds exactly the {left} expected pods, and no pod was deleted twice"
        ));
        Ok(())
    }
}
