//! Rollouts: for every controller that is declared, which revision runs and
//! which is tried beside it.
//!
//! One task owns all of it. It takes what is declared, has revisions prepared
//! by other tasks, looks every second at what the host sees, and tells the host
//! what to run. What it decides is written down before it is done, so that
//! whoever comes next goes on from there; only a rollback does not wait.

mod answers;
mod conditions;
mod controller;
mod counted;
pub mod declared;
mod describe;
pub mod file;
mod identity;
mod managed;
mod preparation;
mod prepare;
pub mod records;
mod revision;
mod text;
mod trips;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use davit_cluster::api::chain;
use davit_cluster::events::Recorder;
use davit_core::digest::ModuleDigest;
use davit_core::object::ObjectRef;
use davit_core::plan::Event;
use davit_core::throttle::Throttle;
use davit_core::untrusted;
use futures::future::try_join_all;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

pub use declared::{Declared, Requests};
pub use file::{Change, ChangeError};
pub use managed::StepProgress;
pub use records::{Owner, RecordError, Records};

use crate::config::ControllerConfig;
use crate::driver::{DesiredController, Handle};
use crate::health::Health;
use crate::loader::{ControllerLoadError, LoadedRevision, Loader};
use crate::metrics::HostMetrics;
use crate::modules::Version;
use controller::{Controller, is_same_revision, owner};
use davit_core::api::ControllerSpec;
use davit_core::api::ControllerStatus;
use file::FileEntry;
use identity::Identity;
use managed::Told;
use revision::{Problem, Revision};

/// How often rollouts go on.
const PERIOD: Duration = Duration::from_secs(1);
/// The most that one look counts for: a host that was held up has seen nothing
/// meanwhile.
const MOST_PASSED: Duration = Duration::from_secs(5);
/// How often what only counts up is written down.
const SAVE_PERIOD: Duration = Duration::from_secs(10);
/// How long writing something down may take.
const SAVE_PATIENCE: Duration = Duration::from_secs(10);
/// The pauses between tries to record something.
const SAVE_RETRY_FIRST: Duration = Duration::from_secs(1);
const SAVE_RETRY_MOST: Duration = Duration::from_secs(30);
/// How long after its last write another host counts as running: it writes
/// every [`SAVE_PERIOD`].
const OTHER_HOST_FOR: Duration = Duration::from_secs(30);
/// The pauses between tries to prepare a revision.
const RETRY_FIRST: Duration = Duration::from_secs(2);
const RETRY_MOST: Duration = Duration::from_secs(60);

/// Why a revision is lost: what the spec of a built-in guest stands for is
/// another module in this Davit.
const UPDATED: &str = "Updated";

/// Who tells people about controllers.
const COMPONENT: &str = "davit";

/// What rollouts need.
pub(crate) struct RolloutOptions {
    /// What runs the controllers.
    pub(crate) host: Handle,
    /// Prepares their revisions.
    pub(crate) loader: Arc<Loader>,
    /// Where rollouts are remembered.
    pub(crate) records: Arc<Records>,
    /// Takes events about controllers.
    pub(crate) recorder: Recorder,
    /// Where numbers go.
    pub(crate) metrics: Arc<HostMetrics>,
    /// Where the service accounts of controllers are.
    pub(crate) namespace: String,
    /// Where it says what keeps the host from being ready.
    pub(crate) health: Arc<Health>,
}

/// Speaks to the task of the rollouts, which ends when the last of these is
/// gone.
#[derive(Clone)]
pub(crate) struct Rollouts {
    inbox: Inbox,
    loader: Arc<Loader>,
    records: Arc<Records>,
}

type Inbox = mpsc::UnboundedSender<Input>;

/// What the task is told.
enum Input {
    /// These controllers there are, some with what their specs describe.
    Declared(Vec<(Declared, Option<LoadedRevision>)>, oneshot::Sender<()>),
    /// These controllers the configuration file has, some with what their specs
    /// describe.
    File(
        Vec<(ControllerConfig, Option<LoadedRevision>)>,
        oneshot::Sender<()>,
    ),
    /// Show the controllers of the file.
    ShowFile(oneshot::Sender<Vec<Value>>),
    /// Change one of them.
    ChangeFile {
        controller: String,
        change: Change,
        answer: oneshot::Sender<Result<Value, ChangeError>>,
    },
    /// Say how far the step of a controller's candidate is.
    Progress {
        controller: String,
        answer: oneshot::Sender<Option<StepProgress>>,
    },
    /// Say what is wanted of each controller.
    Specs(oneshot::Sender<BTreeMap<String, ControllerSpec>>),
    Prepared {
        controller: String,
        what: What,
        result: Result<Preparation, Problem>,
    },
}

/// What is being prepared.
#[derive(Clone, Debug, PartialEq)]
enum What {
    /// What a spec describes.
    Desired(Box<ControllerSpec>),
    /// The stable revision of a status.
    Stable,
    /// The candidate of a status, as long as its source cannot be asked.
    Candidate,
}

enum Preparation {
    /// The source has nothing new.
    Unchanged,
    Ready {
        revision: Box<Revision>,
        version: Option<Version>,
    },
    /// What the source holds cannot be used, however often it is fetched.
    Unusable {
        problem: Problem,
        version: Option<Version>,
    },
}

impl Rollouts {
    pub(crate) fn start(options: RolloutOptions) -> Self {
        let (inbox, inputs) = mpsc::unbounded_channel();
        let loader = Arc::clone(&options.loader);
        let records = Arc::clone(&options.records);
        let task = Task {
            options,
            // The task must not keep itself alive.
            inbox: inbox.downgrade(),
            controllers: BTreeMap::new(),
            files: BTreeMap::new(),
            running: Vec::new(),
            identity: Identity::new(),
            failures: Throttle::default(),
            started: Instant::now(),
            looked: Instant::now(),
        };
        tokio::spawn(task.until_unused(inputs));
        Self {
            inbox,
            loader,
            records,
        }
    }

    /// These controllers there are, and no others. What is wrong with one of
    /// them is said in its status.
    pub(crate) async fn declare(&self, declared: Vec<Declared>) {
        let declared = declared.into_iter().map(|one| (one, None));
        self.send(declared.collect()).await;
    }

    /// These controllers there are, and no others. Those that are new or are
    /// another revision are prepared first: with an error, nothing changes. One
    /// whose module cannot be had now goes on as it was, and is tried again.
    pub(crate) async fn apply(
        &self,
        configs: &[ControllerConfig],
    ) -> Result<(), ControllerLoadError> {
        let (sender, specs) = oneshot::channel();
        let _ = self.inbox.send(Input::Specs(sender));
        let specs = specs.await.unwrap_or_default();
        let prepared = configs.iter().map(async |config| {
            let former = specs.get(&config.name);
            if former.is_some_and(|former| is_same_revision(former, &config.spec)) {
                return Ok(None);
            }
            prepare::at_the_edge(&self.loader, &self.records, config).await
        });
        let prepared = try_join_all(prepared).await?;
        let (done, taken) = oneshot::channel();
        let file = configs.iter().cloned().zip(prepared).collect();
        let _ = self.inbox.send(Input::File(file, done));
        let _ = taken.await;
        Ok(())
    }

    /// Speaks to the task without keeping it alive.
    pub(crate) fn handle(&self) -> RolloutsHandle {
        RolloutsHandle(self.inbox.downgrade())
    }

    async fn send(&self, declared: Vec<(Declared, Option<LoadedRevision>)>) {
        let (done, taken) = oneshot::channel();
        let _ = self.inbox.send(Input::Declared(declared, done));
        let _ = taken.await;
    }
}

/// Speaks to the task of the rollouts for as long as the host runs.
#[derive(Clone)]
pub struct RolloutsHandle(mpsc::WeakUnboundedSender<Input>);

impl RolloutsHandle {
    /// How far the step of a controller's candidate is; none without a
    /// candidate.
    pub async fn progress(&self, controller: &str) -> Option<StepProgress> {
        let (answer, progress) = oneshot::channel();
        let controller = controller.to_owned();
        self.send(Input::Progress { controller, answer });
        progress.await.ok().flatten()
    }

    fn send(&self, input: Input) {
        if let Some(inbox) = self.0.upgrade() {
            // The task may have ended: then nobody answers.
            let _ = inbox.send(input);
        }
    }
}

/// The task of the rollouts.
struct Task {
    options: RolloutOptions,
    inbox: mpsc::WeakUnboundedSender<Input>,
    controllers: BTreeMap<String, Controller>,
    /// Those of a configuration file.
    files: BTreeMap<String, FileEntry>,
    /// What the host was last told to run.
    running: Vec<DesiredController>,
    identity: Identity,
    /// Failures to record, by controller and cause.
    failures: Throttle<(String, String)>,
    started: Instant,
    /// When rollouts last went on.
    looked: Instant,
}

impl Task {
    async fn until_unused(mut self, mut inputs: mpsc::UnboundedReceiver<Input>) {
        let mut period = interval(PERIOD);
        period.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                input = inputs.recv() => match input {
                    Some(Input::Declared(declared, done)) => {
                        self.declare(declared).await;
                        self.go_on().await;
                        // Nobody may wait for it.
                        let _ = done.send(());
                    }
                    Some(Input::File(file, done)) => {
                        self.take_file(file).await;
                        self.go_on().await;
                        let _ = done.send(());
                    }
                    Some(Input::ShowFile(answer)) => {
                        let _ = answer.send(self.show_all());
                    }
                    Some(Input::ChangeFile { controller, change, answer }) => {
                        let _ = answer.send(self.change(&controller, change).await);
                    }
                    Some(Input::Progress { controller, answer }) => {
                        let controller = self.controllers.get(&controller);
                        let _ = answer.send(controller.and_then(|one| one.managed.progress()));
                    }
                    Some(Input::Specs(answer)) => {
                        // Nobody may wait for it.
                        let _ = answer.send(self.specs());
                    }
                    Some(Input::Prepared { controller, what, result }) => {
                        if let Some(controller) = self.controllers.get_mut(&controller) {
                            controller.take_prepared(what, result);
                        }
                        self.go_on().await;
                    }
                    None => return,
                },
                _ = period.tick() => self.go_on().await,
            }
        }
    }

    fn specs(&self) -> BTreeMap<String, ControllerSpec> {
        let controllers = self.controllers.iter();
        controllers
            .filter_map(|(name, one)| Some((name.clone(), one.managed.spec.clone()?)))
            .collect()
    }

    async fn declare(&mut self, declared: Vec<(Declared, Option<LoadedRevision>)>) {
        let names: Vec<&str> = declared.iter().map(|(one, _)| one.name.as_str()).collect();
        let metrics = &self.options.metrics;
        self.controllers.retain(|name, _| {
            let is_there = names.contains(&name.as_str());
            if !is_there {
                metrics.rollouts.remove(name);
            }
            is_there
        });
        for (one, prepared) in declared {
            // Another resource of the same name has nothing of the former one.
            let former = self.controllers.get(&one.name);
            if former.is_some_and(|former| former.object != one.object) {
                self.controllers.remove(&one.name);
            }
            if !self.controllers.contains_key(&one.name) {
                let remembered = self.remember(&one).await;
                let controller = Controller::new(&one.name, one.object.clone(), remembered);
                self.controllers.insert(one.name.clone(), controller);
            }
            if let Some(controller) = self.controllers.get_mut(&one.name) {
                controller.declare(one, prepared);
            }
        }
    }

    /// What is remembered of a controller: what its records say, or else its
    /// status.
    async fn remember(&self, declared: &Declared) -> ControllerStatus {
        let owner = owner(&declared.name, declared.object.as_ref());
        let loaded = timeout(SAVE_PATIENCE, self.options.records.load(owner)).await;
        if let Ok(Ok(remembered)) = loaded {
            return remembered;
        }
        let controller = &declared.name;
        let error = match loaded {
            Ok(Err(error)) => error.to_string(),
            _ => format!("no answer within {SAVE_PATIENCE:?}"),
        };
        tracing::warn!(controller, "the rollout's record cannot be read: {error}");
        declared.status.clone().unwrap_or_default()
    }

    /// Goes on with every rollout.
    async fn go_on(&mut self) {
        self.prepare_what_is_due();
        let passed = self.looked.elapsed().min(MOST_PASSED);
        self.looked = Instant::now();
        let seen = self.options.host.observe().await;
        let now = Timestamp::now();
        for (name, controller) in &mut self.controllers {
            controller.note_other_host();
            let told = controller.managed.advance(seen.get(name), passed, now);
            let candidate = controller.managed.status.candidate.as_ref();
            self.options.metrics.rollouts.set(name, candidate);
            for one in told {
                tell(
                    &self.options.recorder,
                    name,
                    controller.object.as_ref(),
                    &one,
                );
            }
            if controller.is_reset(seen.get(name)) {
                self.options.host.reset(name);
            }
        }
        // A candidate that is taken back loses its share before anything else.
        for controller in self.controllers.values_mut() {
            controller.take_on_at_once(&self.options.namespace);
        }
        self.run();
        self.save().await;
        for controller in self.controllers.values_mut() {
            controller.take_over(&self.options.namespace);
        }
        self.run();
    }

    /// Tells the host what to run, if that has changed.
    fn run(&mut self) {
        let controllers = self.controllers.values();
        let wanted = controllers.filter_map(|controller| controller.wanted.clone());
        let wanted: Vec<DesiredController> = wanted.collect();
        if wanted != self.running {
            self.options.host.run(wanted.clone());
            self.running = wanted;
            self.forget_unused_modules();
        }
    }

    /// Looks through directories, so it is done off the async threads.
    fn forget_unused_modules(&self) {
        let loader = Arc::clone(&self.options.loader);
        let in_use = self.controllers.values().flat_map(modules).collect();
        spawn_blocking(move || loader.forget_all_but(&in_use));
    }

    /// Records what changed.
    async fn save(&mut self) {
        let (records, identity) = (&self.options.records, &self.identity);
        let now = Instant::now();
        let is_due = |controller: &Controller| controller.save_at.is_none_or(|at| at <= now);
        let due = self.controllers.iter_mut().filter(|(_, one)| is_due(one));
        let saves = due.map(|(name, controller)| async move {
            let saved = timeout(SAVE_PATIENCE, controller.save(name, records, identity)).await;
            let failure = match saved {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(chain(&error)),
                Err(_) => Some(format!("no answer within {SAVE_PATIENCE:?}")),
            };
            controller.note_saved(failure.as_deref());
            (name.clone(), failure)
        });
        for (name, failure) in futures::future::join_all(saves).await {
            if let Some(failure) = &failure {
                self.tell_failure(&name, failure);
            }
            self.options.health.set_controller(&name, failure);
        }
        let health = &self.options.health;
        health.retain_controllers(|name| self.controllers.contains_key(name));
    }

    fn tell_failure(&mut self, name: &str, failure: &str) {
        let now = davit_core::time::Instant::ZERO.after(self.started.elapsed());
        let cause = (name.to_owned(), failure.to_owned());
        let Some(left_out) = self.failures.admit(cause, now) else {
            return;
        };
        let message = format!("the rollout cannot be recorded: {failure}{left_out}");
        let object = self.controllers.get(name);
        let object = object.and_then(|controller| controller.object.as_ref());
        let told = Told::warning("NotRecorded", message);
        tell(&self.options.recorder, name, object, &told);
    }

    fn prepare_what_is_due(&mut self) {
        let now = Instant::now();
        for (name, controller) in &mut self.controllers {
            let Some(inbox) = self.inbox.upgrade() else {
                return;
            };
            let loader = &self.options.loader;
            if let Some(spec) = controller.due_to_prepare(now) {
                let version = controller.version.clone();
                let (loader, inbox) = (Arc::clone(loader), inbox.clone());
                prepare::start_desired(loader, inbox, name.clone(), spec, version);
            }
            if let Some((what, revision)) = controller.due_to_restore(now) {
                let (loader, records) = (Arc::clone(loader), Arc::clone(&self.options.records));
                let (name, object) = (name.clone(), controller.object.clone());
                prepare::start_remembered(loader, records, inbox, (name, object), what, revision);
            }
        }
    }
}

/// The modules that a controller needs: those of its revisions, also if they are
/// still to be restored after a start.
fn modules(controller: &Controller) -> Vec<ModuleDigest> {
    let managed = &controller.managed;
    let revisions = managed.stable.iter().chain(&managed.desired);
    let ready = revisions.map(|revision| revision.prepared.identity.digest());
    let stable = managed.status.stable.iter().map(|one| &one.digest);
    let candidate = managed.status.candidate.iter().map(|one| &one.digest);
    let recorded = stable.chain(candidate).filter_map(|text| text.parse().ok());
    ready.chain(recorded).collect()
}

fn tell(recorder: &Recorder, controller: &str, object: Option<&ObjectRef>, told: &Told) {
    let event = event(told);
    let (reason, message) = (told.reason, &event.message);
    if told.warning {
        tracing::warn!(controller, reason, "{message}");
    } else {
        tracing::info!(controller, reason, "{message}");
    }
    if let Some(object) = object {
        recorder.record(object, &event, None);
    }
}

fn event(told: &Told) -> Event {
    Event {
        event_type: if told.warning { "Warning" } else { "Normal" }.to_owned(),
        reason: told.reason.to_owned(),
        // It may quote what a guest says.
        message: untrusted::line(&told.message, untrusted::MOST_LOGGED),
        component: COMPONENT.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_holds_no_control_characters() {
        let told = Told::warning("RolledBack", "it traps: \u{1b}[2J\nall is well".into());
        let message = event(&told).message;
        assert_eq!(message, "it traps: \\u{1b}[2J\\nall is well");
    }
    use davit_core::api::{CandidateStatus, ControllerStatus, RevisionStatus};

    #[test]
    fn a_module_that_is_still_to_be_restored_is_in_use() {
        let digest = |number| ModuleDigest([number; 32]);
        let status = ControllerStatus {
            stable: Some(RevisionStatus {
                digest: format!("sha256:{}", digest(1)),
                ..RevisionStatus::default()
            }),
            candidate: Some(CandidateStatus {
                digest: format!("sha256:{}", digest(2)),
                ..CandidateStatus::default()
            }),
            ..ControllerStatus::default()
        };
        let controller = Controller::new("podgc", None, status);
        assert_eq!(modules(&controller), [digest(1), digest(2)]);
    }
}
