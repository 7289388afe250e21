//! Rollouts: for every controller that is declared, which revision runs and
//! which is tried beside it.
//!
//! One task owns all of it. It takes what is declared, has revisions prepared
//! by other tasks, looks every second at what the host sees, and tells the host
//! what to run. What it decides is written down before it is done, so that
//! whoever comes next goes on from there; only a rollback does not wait.

mod conditions;
mod controller;
mod counted;
pub mod declared;
mod managed;
pub mod records;
mod revision;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use davit_cluster::api::chain;
use davit_cluster::events::Recorder;
use davit_core::object::ObjectRef;
use davit_core::plan::Event;
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

pub use declared::{Declared, Requests};
pub use records::{Owner, RecordError, Records};

use crate::config::ControllerConfig;
use crate::host::{Handle, PrepareError, Prepared, Preparer, Reason, Wanted};
use crate::modules::{ModuleError, ModuleSource, Version};
use crate::spec::ControllerSpec;
use crate::status::ControllerStatus;
use controller::{Controller, owner};
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
    pub(crate) preparer: Arc<Preparer>,
    /// Where rollouts are remembered.
    pub(crate) records: Arc<Records>,
    /// Takes events about controllers.
    pub(crate) recorder: Recorder,
    /// Where the service accounts of controllers are.
    pub(crate) namespace: String,
}

/// Speaks to the task of the rollouts, which ends when the last of these is
/// gone.
#[derive(Clone)]
pub(crate) struct Rollouts {
    inbox: mpsc::UnboundedSender<Input>,
    preparer: Arc<Preparer>,
}

/// What the task is told.
enum Input {
    /// These controllers there are, some with what their specs describe.
    Declared(Vec<(Declared, Option<Prepared>)>, oneshot::Sender<()>),
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
}

impl Rollouts {
    pub(crate) fn start(options: RolloutOptions) -> Self {
        let (inbox, inputs) = mpsc::unbounded_channel();
        let preparer = Arc::clone(&options.preparer);
        let task = Task {
            options,
            // The task must not keep itself alive.
            inbox: inbox.downgrade(),
            controllers: BTreeMap::new(),
            running: Vec::new(),
            looked: Instant::now(),
        };
        tokio::spawn(task.until_unused(inputs));
        Self { inbox, preparer }
    }

    /// These controllers there are, and no others. What is wrong with one of
    /// them is said in its status.
    pub(crate) async fn declare(&self, declared: Vec<Declared>) {
        let declared = declared.into_iter().map(|one| (one, None));
        self.send(declared.collect()).await;
    }

    /// These controllers there are, and no others. All of them are prepared
    /// first: with an error, nothing changes.
    pub(crate) async fn apply(&self, configs: &[ControllerConfig]) -> Result<(), PrepareError> {
        let mut declared = Vec::new();
        for ControllerConfig { name, spec } in configs {
            let prepared = self.preparer.prepare(spec).await;
            let prepared = prepared.map_err(|reason| PrepareError {
                controller: name.clone(),
                reason,
            })?;
            let one = Declared {
                name: name.clone(),
                generation: None,
                object: None,
                status: None,
                spec: Ok(spec.clone()),
                requests: Requests::default(),
            };
            declared.push((one, Some(prepared)));
        }
        self.send(declared).await;
        Ok(())
    }

    async fn send(&self, declared: Vec<(Declared, Option<Prepared>)>) {
        let (done, taken) = oneshot::channel();
        let _ = self.inbox.send(Input::Declared(declared, done));
        let _ = taken.await;
    }
}

/// The task of the rollouts.
struct Task {
    options: RolloutOptions,
    inbox: mpsc::WeakUnboundedSender<Input>,
    controllers: BTreeMap<String, Controller>,
    /// What the host was last told to run.
    running: Vec<Wanted>,
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

    async fn declare(&mut self, declared: Vec<(Declared, Option<Prepared>)>) {
        let names: Vec<&str> = declared.iter().map(|(one, _)| one.name.as_str()).collect();
        self.controllers
            .retain(|name, _| names.contains(&name.as_str()));
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
            let told = controller.managed.advance(seen.get(name), passed, now);
            for one in told {
                tell(
                    &self.options.recorder,
                    name,
                    controller.object.as_ref(),
                    &one,
                );
            }
            if controller.is_released(seen.get(name)) {
                self.options.host.release(name);
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
        let wanted: Vec<Wanted> = wanted.collect();
        if wanted != self.running {
            self.options.host.run(wanted.clone());
            self.running = wanted;
            self.forget_unused_modules();
        }
    }

    fn forget_unused_modules(&self) {
        let controllers = self.controllers.values();
        let revisions = controllers.flat_map(|controller| {
            let managed = &controller.managed;
            managed.stable.iter().chain(&managed.desired)
        });
        let digests = revisions.map(|revision| revision.prepared.recipe.digest());
        self.options.preparer.forget_all_but(&digests.collect());
    }

    /// Writes down what changed.
    async fn save(&mut self) {
        let records = &self.options.records;
        let controllers = self.controllers.iter_mut();
        let saves = controllers.map(|(name, controller)| async move {
            match timeout(SAVE_PATIENCE, controller.save(name, records)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(
                        controller = name,
                        "the rollout is not written down: {error}"
                    );
                }
                Err(_) => tracing::warn!(
                    controller = name,
                    "the rollout is not written down: no answer within {SAVE_PATIENCE:?}"
                ),
            }
        });
        futures::future::join_all(saves).await;
    }

    fn prepare_what_is_due(&mut self) {
        let now = Instant::now();
        for (name, controller) in &mut self.controllers {
            let Some(inbox) = self.inbox.upgrade() else {
                return;
            };
            let preparer = &self.options.preparer;
            if let Some(spec) = controller.due_to_prepare(now) {
                let version = controller.version.clone();
                let preparer = Arc::clone(preparer);
                let (name, inbox) = (name.clone(), inbox.clone());
                tokio::spawn(async move {
                    let result = prepare(&preparer, &spec, version).await;
                    let what = What::Desired(Box::new(spec));
                    send_prepared(&inbox, name, what, result);
                });
            }
            if let Some((what, revision)) = controller.due_to_restore(now) {
                let (preparer, records) = (Arc::clone(preparer), Arc::clone(&self.options.records));
                let (name, object) = (name.clone(), controller.object.clone());
                tokio::spawn(async move {
                    let owner = owner(&name, object.as_ref());
                    let result = restore(&preparer, &records, owner, &revision).await;
                    send_prepared(&inbox, name, what, result);
                });
            }
        }
    }
}

fn send_prepared(
    inbox: &mpsc::UnboundedSender<Input>,
    controller: String,
    what: What,
    result: Result<Preparation, Problem>,
) {
    let _ = inbox.send(Input::Prepared {
        controller,
        what,
        result,
    });
}

/// Prepares what a spec describes, unless its module's source is at the same
/// version as before.
async fn prepare(
    preparer: &Preparer,
    spec: &ControllerSpec,
    before: Option<Version>,
) -> Result<Preparation, Problem> {
    let problem = |reason: Reason| Problem::new(&reason);
    let version = if spec.module.look_every().is_some() {
        let probed = preparer.modules().probe(&spec.module.source).await;
        Some(probed.map_err(|error| problem(error.into()))?)
    } else {
        None
    };
    if version.is_some() && version == before {
        return Ok(Preparation::Unchanged);
    }
    let prepared = preparer.prepare(spec).await.map_err(problem)?;
    Ok(Preparation::Ready {
        revision: Box::new(Revision::new(prepared, spec)),
        version,
    })
}

/// Prepares a revision that was active before.
async fn restore(
    preparer: &Preparer,
    records: &Records,
    owner: Owner<'_>,
    revision: &str,
) -> Result<Preparation, Problem> {
    let lost = |reason, message| Problem {
        condition: "Degraded",
        reason,
        message,
    };
    let unknown = |message| lost("NotKept", message);
    let spec = records.spec(owner, revision).await;
    let spec = spec.map_err(|error| unknown(error.to_string()))?;
    let spec = spec.ok_or_else(|| unknown(format!("the spec of {revision} is not kept")))?;
    let prepared = preparer.prepare(&spec).await;
    let prepared = prepared.map_err(|reason| match reason {
        // Nobody has set a digest: it is that of the time.
        Reason::Module(ModuleError::OtherDigest {
            origin,
            found,
            wanted,
        }) => {
            let message = format!(
                "{origin} is the module sha256:{found} by now, and sha256:{wanted} of {revision} \
                 is not kept"
            );
            let is_builtin = matches!(spec.module.source, ModuleSource::Builtin(_));
            lost(if is_builtin { UPDATED } else { "NotKept" }, message)
        }
        reason => lost("NotKept", chain(&reason)),
    })?;
    Ok(Preparation::Ready {
        revision: Box::new(Revision::new(prepared, &spec)),
        version: None,
    })
}

fn tell(recorder: &Recorder, controller: &str, object: Option<&ObjectRef>, told: &Told) {
    let Told {
        warning,
        reason,
        message,
    } = told;
    if *warning {
        tracing::warn!(controller, reason, "{message}");
    } else {
        tracing::info!(controller, reason, "{message}");
    }
    if let Some(object) = object {
        let event = Event {
            event_type: if *warning { "Warning" } else { "Normal" }.to_owned(),
            reason: (*reason).to_owned(),
            message: message.clone(),
            component: COMPONENT.to_owned(),
        };
        recorder.record(object, &event, None);
    }
}
