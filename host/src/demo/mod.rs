//! `davit demo`: PodGC at work on an API server in memory.
//!
//! The story makes things happen in the cluster and waits until PodGC has dealt
//! with them. In the end it looks at what the API server holds: exactly the
//! pods that should be left, each of the others deleted once.

mod cluster;
mod screen;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use davit_cluster::connect;
use davit_core::watch;
use davit_sim::Server;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::cli::DemoArguments;
use crate::config::{self, ClientConfig, Config};
use crate::host::{Host, HostOptions, Report};
use crate::http::Health;
use crate::metrics::HostMetrics;
use crate::modules::Guests;
use crate::run;
use cluster::Cluster;
use screen::Screen;

/// How long PodGC may take for any one thing. It takes two or three seconds.
const PATIENCE: Duration = Duration::from_secs(15);
/// A pause to read what the screen says.
const READING: Duration = Duration::from_millis(1200);

/// Tells the story; an error means that something did not come out right.
pub async fn run(arguments: DemoArguments) -> Result<()> {
    let cluster = Cluster::new(crate::sim::start()?);
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = Server::start(loopback, cluster.sim().clone()).await?;
    let (listener, reports) = mpsc::unbounded_channel();
    let url = server
        .url()
        .parse()
        .context("the address of the API server")?;
    let host = Host::start(HostOptions {
        client: connect::client(kube::Config::new(url))?,
        rates: ClientConfig::default(),
        watch: watch::Settings::default(),
        engine: run::engine(&arguments.guests)?,
        guests: Guests::new(arguments.guests.directory),
        metrics: Arc::new(HostMetrics::new()?),
        health: Arc::new(Health::default()),
        listener: Some(listener),
        seed: 0,
    });
    let mut story = Story {
        cluster,
        host,
        reports,
        screen: Screen::new(),
        deleted: BTreeMap::new(),
        expected: BTreeMap::new(),
    };
    story.tell().await?;
    let Story { host, .. } = story;
    host.stop().await;
    Ok(())
}

struct Story {
    cluster: Cluster,
    host: Host,
    reports: mpsc::UnboundedReceiver<Report>,
    screen: Screen,
    /// How many pods were deleted, by reason.
    deleted: BTreeMap<String, usize>,
    /// How many should have been.
    expected: BTreeMap<&'static str, usize>,
}

impl Story {
    async fn tell(&mut self) -> Result<()> {
        self.screen
            .title("Davit runs PodGC as a WebAssembly guest on an API server in memory");
        self.begin().await?;
        self.remove_a_node().await?;
        self.finish_pods().await?;
        self.lose_a_node().await?;
        self.delete_an_unscheduled_pod().await?;
        self.change_the_threshold().await?;
        self.judge()
    }

    async fn begin(&mut self) -> Result<()> {
        self.screen
            .chapter("Six nodes with four running pods each appear");
        self.cluster.populate()?;
        self.screen.action(
            "PodGC starts: threshold 12, a pass every second, nodes are missed for 3 s \
             before their pods go",
        );
        self.host.apply(&settings(12)?).await?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            tokio::select! {
                report = self.reports.recv() => match report {
                    Some(Report::Started { .. }) => break,
                    Some(report) => self.note(&report),
                    None => bail!("the host has ended"),
                },
                () = sleep_until(deadline) => bail!("PodGC did not start within {PATIENCE:?}"),
            }
        }
        self.screen
            .action("PodGC has read the cluster and finds nothing to do");
        self.pause().await;
        Ok(())
    }

    async fn remove_a_node(&mut self) -> Result<()> {
        self.screen
            .chapter("node-6 is removed, and its kubelet with it");
        let pods = self.cluster.remove_node("node-6")?;
        self.screen.action(&format!(
            "{} pods are bound to a node that is gone: PodGC waits 3 s, asks the API server \
             itself, then deletes them",
            pods.len()
        ));
        self.until_gone("orphaned", pods).await
    }

    async fn finish_pods(&mut self) -> Result<()> {
        self.screen
            .chapter("18 batch pods come to their end: 12 succeed, 4 fail, 2 are evicted");
        self.cluster.finish_pods()?;
        self.screen
            .action("6 more than the 12 that are kept: the evicted go first, then the oldest");
        let pods = [
            "batch-17", "batch-18", "batch-01", "batch-02", "batch-03", "batch-04",
        ];
        self.until_gone("terminated", pods.map(String::from).into())
            .await
    }

    async fn lose_a_node(&mut self) -> Result<()> {
        self.screen
            .chapter("node-5 loses power; an operator taints it out-of-service");
        let pods = self.cluster.hang_node("node-5")?;
        self.screen.action(&format!(
            "its {} pods were deleted, but hang: no kubelet confirms it",
            pods.len()
        ));
        self.until_gone("out-of-service", pods).await
    }

    async fn delete_an_unscheduled_pod(&mut self) -> Result<()> {
        self.screen
            .chapter("A pod is deleted before it was ever scheduled, held by a finalizer");
        let pod = self.cluster.strand_a_pod()?;
        self.screen
            .action("PodGC marks it Failed and deletes it; then its finalizer is taken off");
        let deadline = Instant::now() + PATIENCE;
        while !self.cluster.is_failed(&pod)? {
            self.listen_until(Instant::now() + Duration::from_millis(50))
                .await?;
            if Instant::now() > deadline {
                bail!("{pod} was not marked Failed within {PATIENCE:?}");
            }
        }
        self.cluster.release(&pod)?;
        self.until_gone("unscheduled", [pod].into()).await
    }

    async fn change_the_threshold(&mut self) -> Result<()> {
        self.screen
            .chapter("The operator lowers the threshold from 12 to 5; nothing restarts");
        self.host.apply(&settings(5)?).await?;
        let pods = (5..=11).map(|number| format!("batch-{number:02}"));
        self.until_gone("terminated", pods.collect()).await
    }

    /// Waits until these pods are gone, telling what PodGC does meanwhile.
    async fn until_gone(&mut self, reason: &'static str, pods: BTreeSet<String>) -> Result<()> {
        *self.expected.entry(reason).or_default() += pods.len();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left: Vec<String> = self.cluster.pods()?.intersection(&pods).cloned().collect();
            if left.is_empty() {
                break;
            }
            if Instant::now() > deadline {
                bail!("still there after {PATIENCE:?}: {}", left.join(", "));
            }
            self.listen_until(Instant::now() + Duration::from_millis(50))
                .await?;
        }
        self.cluster.expect_gone(&pods);
        self.pause().await;
        Ok(())
    }

    async fn pause(&mut self) {
        // Ended early, it is noticed by whoever waits for something next.
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
        if let Report::Carried { plan, outcome, .. } = report {
            self.screen.outcome(plan, outcome);
            if outcome.failed.is_none() {
                *self.deleted.entry(plan.reason.clone()).or_default() += 1;
            }
        }
    }

    /// Compares what the API server holds with what it should.
    fn judge(&mut self) -> Result<()> {
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
            bail!("the API server does not hold what it should");
        }
        let left = self.cluster.pods()?.len();
        self.screen.success(&format!(
            "the API server holds exactly the {left} pods that should be left, and no pod was \
             deleted twice"
        ));
        Ok(())
    }
}

/// PodGC in a hurry, with this threshold.
fn settings(threshold: u32) -> Result<Config> {
    let text = format!(
        "controllers:\n\
         - name: podgc\n  \
           module: {{builtin: podgc}}\n  \
           mode: Enforce\n  \
           config: {{terminatedPodThreshold: {threshold}, period: 1s, quarantine: 3s}}\n"
    );
    Ok(config::parse(Path::new("the demo's configuration"), &text)?)
}
