//! The task that drives the control half: it hands [`Control`] what happens, and does
//! what that asks for. It decides nothing.

mod identity;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use davit_cluster::api::chain;
use davit_cluster::clock::Clock;
use davit_cluster::events::Recorder;
use davit_core::control::{
    Change, ChangeError, ChangeId, Control, ControlEffect, ControlInput, ControlSettings,
    Declaration, Declared, FileController, Notice, Owner, Remembered, Report, StepProgress,
    is_same_revision,
};
use davit_core::object::ObjectRef;
use davit_engine::Guest;
use futures::future::try_join_all;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::{sleep_until, timeout};

use crate::config::ControllerConfig;
use crate::driver::Handle;
use crate::health::Health;
use crate::loader::{ControllerLoadError, Loader};
use crate::loading;
use crate::metrics::HostMetrics;
use crate::records::{RecordError, Records};

/// How long reading or writing a record may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the task needs.
pub(crate) struct ControlOptions {
    /// Runs the controllers.
    pub(crate) data: Handle,
    /// The clocks of the host.
    pub(crate) clock: Clock,
    /// Loads their revisions.
    pub(crate) loader: Arc<Loader>,
    /// Where they are recorded.
    pub(crate) records: Arc<Records>,
    /// Takes events about controllers.
    pub(crate) recorder: Recorder,
    /// Where numbers go.
    pub(crate) metrics: Arc<HostMetrics>,
    /// Where the service accounts of controllers are.
    pub(crate) namespace: String,
    /// Where it reports what keeps the host from being ready.
    pub(crate) health: Arc<Health>,
}

/// Speaks to the task, which ends when the last of these is gone.
pub(crate) struct ControlTask {
    inbox: Inbox,
    loader: Arc<Loader>,
    records: Arc<Records>,
}

type Inbox = mpsc::UnboundedSender<Input>;

/// What the task receives.
enum Input {
    Control(ControlInput<Arc<Guest>>),
    /// Other controllers are declared. Answered once their records are read and what
    /// follows is recorded.
    Declared(ControlInput<Arc<Guest>>, oneshot::Sender<()>),
    Change {
        controller: String,
        change: Change,
        answer: oneshot::Sender<Result<Value, ChangeError>>,
    },
    Query(Query),
}

/// A question about the state.
type Query = Box<dyn FnOnce(&Control<Arc<Guest>>) + Send>;

impl ControlTask {
    pub(crate) fn start(options: ControlOptions) -> Self {
        let (inbox, inputs) = mpsc::unbounded_channel();
        let loader = Arc::clone(&options.loader);
        let records = Arc::clone(&options.records);
        let settings = ControlSettings {
            namespace: options.namespace.clone(),
            host: records.are_shared().then(identity::new),
        };
        let task = Task {
            control: Control::new(options.clock.now(), settings),
            options,
            // The task must not keep itself alive.
            inbox: inbox.downgrade(),
            waiting: Vec::new(),
            changes: BTreeMap::new(),
        };
        tokio::spawn(task.until_unused(inputs));
        Self {
            inbox,
            loader,
            records,
        }
    }

    /// Makes these the controllers of the host, and no others. The status of a
    /// controller says what is wrong with it.
    pub(crate) async fn declare(&self, declarations: Vec<Declaration>) {
        let declared = declarations.into_iter().map(|declaration| Declared {
            declaration,
            loaded: None,
        });
        self.send(ControlInput::Declared(declared.collect())).await;
    }

    /// Makes these the controllers of the host, and no others. The revisions of those
    /// that changed are loaded first: with an error, nothing changes. A revision that
    /// cannot be loaded now holds up its own controller alone.
    pub(crate) async fn apply(
        &self,
        configs: &[ControllerConfig],
    ) -> Result<(), ControllerLoadError> {
        let specs = query(&self.inbox, Control::specs).await;
        let specs = specs.unwrap_or_default();
        let loaded = configs.iter().map(async |config| {
            let ControllerConfig { name, spec } = config;
            let former = specs.get(name);
            if former.is_some_and(|former| is_same_revision(former, spec)) {
                return Ok(None);
            }
            loading::load_for_file(&self.loader, &self.records, name, spec).await
        });
        let loaded = try_join_all(loaded).await?;
        let file = configs.iter().zip(loaded).map(|(config, loaded)| {
            let ControllerConfig { name, spec } = config.clone();
            FileController { name, spec, loaded }
        });
        self.send(ControlInput::File(file.collect())).await;
        Ok(())
    }

    /// Speaks to the task without keeping it alive.
    pub(crate) fn handle(&self) -> ControlHandle {
        ControlHandle(self.inbox.downgrade())
    }

    async fn send(&self, input: ControlInput<Arc<Guest>>) {
        let (done, settled) = oneshot::channel();
        let _ = self.inbox.send(Input::Declared(input, done));
        let _ = settled.await;
    }
}

/// Speaks to the control half for as long as the host runs.
#[derive(Clone)]
pub struct ControlHandle(mpsc::WeakUnboundedSender<Input>);

impl ControlHandle {
    /// How far the step of a controller's candidate is; none without a candidate.
    pub async fn progress(&self, controller: &str) -> Option<StepProgress> {
        let controller = controller.to_owned();
        self.query(move |control| control.progress(&controller))
            .await
            .flatten()
    }

    /// A controller of the configuration file as a custom resource.
    pub async fn file_controller(&self, name: &str) -> Option<Value> {
        let mut all = self.file_controllers().await.into_iter();
        all.find(|one| one.pointer("/metadata/name") == Some(&json!(name)))
    }

    /// The controllers of the configuration file as custom resources.
    pub async fn file_controllers(&self) -> Vec<Value> {
        self.query(Control::file_controllers)
            .await
            .unwrap_or_default()
    }

    /// Changes a controller of the file; returns it as it is then.
    pub async fn change_file_controller(
        &self,
        name: &str,
        change: Change,
    ) -> Result<Value, ChangeError> {
        let (answer, changed) = oneshot::channel();
        if let Some(inbox) = self.0.upgrade() {
            // The task may have ended: then nobody answers.
            let _ = inbox.send(Input::Change {
                controller: name.to_owned(),
                change,
                answer,
            });
        }
        changed.await.unwrap_or(Err(ChangeError::Stopping))
    }

    async fn query<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Control<Arc<Guest>>) -> T + Send + 'static,
    ) -> Option<T> {
        query(&self.0.upgrade()?, ask).await
    }
}

/// Asks about the state; none if the task has ended.
async fn query<T: Send + 'static>(
    inbox: &Inbox,
    ask: impl FnOnce(&Control<Arc<Guest>>) -> T + Send + 'static,
) -> Option<T> {
    let (answer, answered) = oneshot::channel();
    let query: Query = Box::new(move |control| {
        // Nobody may wait for it.
        let _ = answer.send(ask(control));
    });
    inbox.send(Input::Query(query)).ok()?;
    answered.await.ok()
}

struct Task {
    options: ControlOptions,
    control: Control<Arc<Guest>>,
    inbox: mpsc::WeakUnboundedSender<Input>,
    /// Who waits until what was declared is recorded.
    waiting: Vec<oneshot::Sender<()>>,
    /// Who waits for the answer to a change.
    changes: BTreeMap<ChangeId, oneshot::Sender<Result<Value, ChangeError>>>,
}

impl Task {
    async fn until_unused(mut self, mut inputs: mpsc::UnboundedReceiver<Input>) {
        let mut number = 0;
        loop {
            let wake = self.options.clock.deadline(self.control.next_wake());
            tokio::select! {
                input = inputs.recv() => match input {
                    Some(input) => {
                        number += 1;
                        self.handle(input, ChangeId(number));
                    }
                    None => return,
                },
                () = sleep_until(wake) => {}
            }
            if self.control.next_wake() <= self.options.clock.instant() {
                let observed = self.options.data.observe().await;
                self.control.advance(self.options.clock.now(), &observed);
                for (name, status) in self.control.statuses() {
                    let candidate = status.candidate.as_ref();
                    self.options.metrics.rollouts.set(name, candidate);
                }
            }
            while let Some(effect) = self.control.poll() {
                self.execute(effect);
            }
            if self.control.is_settled() && self.control.next_wake() > self.options.clock.instant()
            {
                for waiting in self.waiting.drain(..) {
                    let _ = waiting.send(());
                }
            }
        }
    }

    fn handle(&mut self, input: Input, id: ChangeId) {
        let now = self.options.clock.now();
        match input {
            Input::Control(input) => self.control.handle(now, input),
            Input::Declared(input, done) => {
                self.control.handle(now, input);
                self.waiting.push(done);
            }
            Input::Change {
                controller,
                change,
                answer,
            } => {
                self.changes.insert(id, answer);
                let change = ControlInput::Change {
                    id,
                    controller,
                    change,
                };
                self.control.handle(now, change);
            }
            Input::Query(query) => query(&self.control),
        }
    }

    fn execute(&mut self, effect: ControlEffect<Arc<Guest>>) {
        let (loader, records) = (&self.options.loader, &self.options.records);
        let (loader, records) = (Arc::clone(loader), Arc::clone(records));
        match effect {
            ControlEffect::Load(load) => {
                let id = load.id;
                self.spawn(async move {
                    let result = loading::load(loader, records, load).await;
                    ControlInput::Loaded { id, result }
                });
            }
            ControlEffect::Remember { id, owner } => self.spawn(async move {
                let remembered = Box::new(remember(&records, &owner).await);
                ControlInput::Remembered { id, remembered }
            }),
            ControlEffect::Record { id, owner, record } => self.spawn(async move {
                let result = in_time(records.write(&owner, record)).await;
                ControlInput::Recorded { id, result }
            }),
            ControlEffect::Run(desired) => self.options.data.run(desired),
            ControlEffect::Reset { controller } => self.options.data.reset(&controller),
            // It looks through directories, so it is done off the async threads.
            ControlEffect::KeepModules(modules) => {
                spawn_blocking(move || loader.forget_all_but(&modules));
            }
            ControlEffect::Event {
                controller,
                object,
                notice,
            } => self.notify(&controller, object.as_ref(), &notice),
            ControlEffect::Answer { id, result } => {
                if let Some(answer) = self.changes.remove(&id) {
                    let _ = answer.send(result);
                }
            }
            ControlEffect::Report(report) => self.report(report),
        }
    }

    fn spawn(&self, work: impl Future<Output = ControlInput<Arc<Guest>>> + Send + 'static) {
        if let Some(inbox) = self.inbox.upgrade() {
            tokio::spawn(async move {
                // Nobody waits for it when the host has ended.
                let _ = inbox.send(Input::Control(work.await));
            });
        }
    }

    fn notify(&self, controller: &str, object: Option<&ObjectRef>, notice: &Notice) {
        let event = notice.event();
        let (reason, message) = (notice.reason, &event.message);
        if notice.warning {
            tracing::warn!(controller, reason, "{message}");
        } else {
            tracing::info!(controller, reason, "{message}");
        }
        if let Some(object) = object {
            self.options.recorder.record(object, &event, None);
        }
    }

    fn report(&self, report: Report) {
        match report {
            Report::Removed { controller } => {
                self.options.metrics.rollouts.remove(&controller);
                self.options.health.set_controller(&controller, None);
            }
            Report::Recording {
                controller,
                failure,
            } => self.options.health.set_controller(&controller, failure),
            Report::Unreadable { controller, error } => {
                tracing::warn!(controller, "the rollout's record cannot be read: {error}");
            }
            Report::PauseUnreadable { controller, error } => tracing::warn!(
                controller,
                error,
                "cannot read whether an operator paused the rollout: it counts as paused until \
                 davit resume"
            ),
            Report::Requested { controller, change } => {
                tracing::info!(controller, request = %change, "an operator's request");
            }
        }
    }
}

async fn remember(records: &Records, owner: &Owner) -> Remembered {
    Remembered {
        status: in_time(records.status(owner)).await,
        paused: records
            .is_paused(owner)
            .map(|paused| paused.map_err(|error| chain(&error))),
    }
}

/// An answer of the records, or why there is none in time.
async fn in_time<T>(work: impl Future<Output = Result<T, RecordError>>) -> Result<T, String> {
    match timeout(PATIENCE, work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(chain(&error)),
        Err(_) => Err(format!("no answer within {PATIENCE:?}")),
    }
}
