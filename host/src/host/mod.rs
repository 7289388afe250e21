//! The host: one task that owns the store and every controller, and the tasks
//! that work for it.
//!
//! The task takes what happened (news of a stream, decisions of a guest,
//! outcomes of plans, a discovery, an operator's wish), lets the core digest
//! it, and starts what the core wants done. It never waits for any of that.

mod apply;
mod execute;
mod prepare;
mod report;
mod run;
mod slot;
mod streams;
mod work;

use std::collections::BTreeMap;
use std::sync::Arc;

use davit_cluster::api::{Api, ApiSettings};
use davit_cluster::clock::Clock;
use davit_core::manifest::Rate;
use davit_core::watch;
use davit_engine::{Engine, Guest};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinHandle;

pub use prepare::{PrepareError, Prepared, Preparer, Reason, Recipe, encode};
pub use report::Report;
pub(crate) use work::call_failure;

use crate::config::{ClientConfig, Config};
use crate::http::Health;
use crate::metrics::HostMetrics;
use crate::modules::Modules;
use run::{Input, Run};

/// What a host is made of.
pub struct HostOptions {
    /// The cluster. The client must not repeat requests by itself.
    pub client: kube::Client,
    /// How its API server is talked to.
    pub rates: ClientConfig,
    /// How watches behave.
    pub watch: watch::Settings,
    /// Where guests run.
    pub engine: Engine,
    /// Where they are found.
    pub modules: Modules,
    /// Where numbers go.
    pub metrics: Arc<HostMetrics>,
    /// Where it says how it is.
    pub health: Arc<Health>,
    /// Who is told what happens.
    pub listener: Option<mpsc::UnboundedSender<Report>>,
    /// Spreads timers; give every replica another one.
    pub seed: u64,
}

/// A running host.
pub struct Host {
    inbox: mpsc::UnboundedSender<Input>,
    preparer: Mutex<Preparer>,
    task: JoinHandle<()>,
}

impl Host {
    /// Starts a host without controllers.
    #[must_use]
    pub fn start(options: HostOptions) -> Self {
        let clock = Clock::start();
        let rate = Rate {
            per_second: options.rates.qps,
            burst: options.rates.burst,
        };
        let settings = ApiSettings {
            rate: Some(rate),
            ..ApiSettings::default()
        };
        let api = Api::new(options.client.clone(), clock, &settings);
        // Events are for people: they must not use up the rate of writes.
        let event_api = Api::new(options.client.clone(), clock, &settings);
        let preparer = Preparer::new(options.engine.clone(), options.modules.clone());
        let (inbox, inputs) = mpsc::unbounded_channel();
        let run = Run::new(options, (api, event_api), inbox.clone());
        Self {
            inbox,
            preparer: Mutex::new(preparer),
            task: tokio::spawn(run.until_stopped(inputs)),
        }
    }

    /// Makes the host run exactly these controllers. All of them are prepared
    /// first: with an error, nothing changes. A controller takes over from its
    /// former revision when its watches are complete, with that one's queues.
    pub async fn apply(&self, config: &Config) -> Result<(), PrepareError> {
        let mut preparer = self.preparer.lock().await;
        let running = self.recipes().await;
        let mut ready = Vec::new();
        for controller in &config.controllers {
            let running = running.get(&controller.name);
            let running = running.map(|(recipe, guest)| (recipe, guest));
            ready.push(preparer.prepare(controller, running).await?);
        }
        preparer.forget_all_but(&ready);
        // The task ends only with the host.
        let _ = self.inbox.send(Input::Apply(ready));
        Ok(())
    }

    /// Stops: no more calls, and no more plans than those that are being
    /// carried out, which come to their end.
    pub async fn stop(self) {
        let _ = self.inbox.send(Input::Stop);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the host's task failed");
        }
    }

    /// Whether the host's task has ended, which it does only when it is stopped
    /// or fails.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    async fn recipes(&self) -> BTreeMap<String, (Recipe, Arc<Guest>)> {
        let (sender, recipes) = oneshot::channel();
        let _ = self.inbox.send(Input::Recipes(sender));
        recipes.await.unwrap_or_default()
    }
}
