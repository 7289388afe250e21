//! The host's machine over objects in memory, on virtual time, with guests compiled into this
//! program: it comes to a state as in production, and gives away a call into a guest.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use davit_core::api::encode_config;
use davit_core::controller::Settings;
use davit_core::desired::DesiredController;
use davit_core::digest::ModuleDigest;
use davit_core::failure::{Failure, FailureClass};
use davit_core::gate::Mode;
use davit_core::live::{ReadAnswer, ReadRequest};
use davit_core::machine::{Call, Effect, Input, Machine};
use davit_core::manifest::{Manifest, Source};
use davit_core::mapping::{Discovery, Mapping, ServedResource};
use davit_core::object::{ApiResource, ObjectRecord, ProjectedObject};
use davit_core::path::FieldTree;
use davit_core::plan::Decision;
use davit_core::project::Projector;
use davit_core::revision::{CallLimits, LoadedRevision, RevisionIdentity};
use davit_core::store::{Snapshot, ViewId};
use davit_core::stream::{Batch, StreamId, StreamSpec, Update};
use davit_core::time::{Instant, Now, Wall};
use davit_engine::LiveReads;
use davit_guest::Controller;
use davit_guest::testing::Native;
use davit_simulation::{Guest, Reconciliation};
use futures::future::BoxFuture;
use serde_json::{Value, json};

/// When virtual time starts: a moment after the objects of these measurements.
const START: Wall = Wall(1_795_000_000_000);

/// A resource with its objects.
pub(crate) struct Objects {
    pub(crate) resource: ApiResource,
    pub(crate) kind: &'static str,
    pub(crate) namespaced: bool,
    pub(crate) count: usize,
    /// The object of a number, in the order of namespaces and names.
    pub(crate) object: Box<dyn Fn(usize) -> Value>,
}

/// The machine of one controller.
pub(crate) struct World {
    machine: Machine<Guest>,
    now: Now,
    resources: Vec<Objects>,
}

/// What a controller is called.
pub(crate) fn manifest<C: Controller>() -> Result<Manifest> {
    Ok(describe::<C>()?.manifest().clone())
}

fn describe<C: Controller>() -> Result<Native<C>> {
    let config = encode_config(&json!({})).map_err(|error| anyhow!("{error}"))?;
    Native::<C>::describe(&config).map_err(|error| anyhow!(error))
}

impl World {
    /// A controller that has seen nothing yet.
    pub(crate) fn new<C: Controller + 'static>(resources: Vec<Objects>) -> Result<Self> {
        let now = Now {
            instant: Instant::ZERO,
            wall: START,
        };
        let mut world = Self {
            machine: Machine::new(now),
            now,
            resources,
        };
        let controller = desired::<C>()?;
        world.machine.apply(now, vec![controller]);
        Ok(world)
    }

    /// Answers the calls of the guest until one fits; returns that one, unanswered.
    pub(crate) fn until_call(
        &mut self,
        mut fits: impl FnMut(&Call<Guest>) -> bool,
    ) -> Result<Call<Guest>> {
        loop {
            while let Some(effect) = self.machine.poll(self.now) {
                match effect {
                    Effect::Call(call) if fits(&call) => return Ok(*call),
                    Effect::Call(call) => self.answer(&call)?,
                    Effect::Discover => self.discover(),
                    Effect::StartStream { stream, spec } => self.list(stream, &spec)?,
                    // Plans are not executed.
                    _ => {}
                }
            }
            let wake = self.machine.next_wake(self.now).max(self.now.instant);
            self.now = Now {
                instant: wake,
                wall: self.now.wall_at(wake),
            };
            if wake.since(Instant::ZERO) > Duration::from_hours(1) {
                bail!("no call fits");
            }
        }
    }

    fn discover(&mut self) {
        let resources = self.resources.iter();
        let served = resources.map(|objects| ServedResource {
            resource: objects.resource.clone(),
            kind: objects.kind.to_owned(),
            namespaced: objects.namespaced,
            verbs: ["get", "list", "watch", "delete", "patch", "create"]
                .map(str::to_owned)
                .into(),
            preferred: true,
        });
        let discovery = Discovery {
            mapping: Mapping::new(served),
            failed: Vec::new(),
        };
        self.machine
            .handle(self.now, Input::Discovered(Ok(discovery)));
    }

    fn list(&mut self, stream: StreamId, spec: &StreamSpec) -> Result<()> {
        let mut found = self.resources.iter();
        let objects = found
            .find(|one| one.resource == spec.resource)
            .with_context(|| format!("no objects of {}", spec.resource))?;
        let reset = Update::Reset {
            items: projected(objects, &spec.fields)?,
            resource_version: "1".into(),
        };
        let batch = Batch {
            stream,
            updates: vec![reset],
        };
        self.machine.handle(self.now, Input::Stream(batch));
        Ok(())
    }

    fn answer(&mut self, call: &Call<Guest>) -> Result<()> {
        let answer = Input::Answered {
            call: call.id,
            result: Ok(decide(call)?.0),
            logged: 0,
            took: Duration::ZERO,
            copy: None,
        };
        self.machine.handle(self.now, answer);
        Ok(())
    }
}

/// The decisions of a guest, and how long it took once its live reads were answered.
pub(crate) fn decide(call: &Call<Guest>) -> Result<(Vec<Decision>, Duration)> {
    let mut answers = Vec::new();
    loop {
        let started = std::time::Instant::now();
        match call.guest.native.reconcile(call, &answers, None) {
            Reconciliation::Decided(decisions) => return Ok((decisions, started.elapsed())),
            Reconciliation::Reads(request) => answers.push(Cached::of(call).answer(&request)),
            Reconciliation::Failed(failure) => bail!("{failure:?}"),
        }
    }
}

/// What a call's snapshot has, as an API server that has nothing else.
pub(crate) struct Cached {
    snapshot: Snapshot,
    views: Arc<BTreeMap<String, ViewId>>,
}

impl Cached {
    pub(crate) fn of(call: &Call<Guest>) -> Self {
        Self {
            snapshot: call.snapshot.clone(),
            views: Arc::clone(&call.views),
        }
    }

    fn answer(&self, request: &ReadRequest) -> ReadAnswer {
        let absent = || Failure::new(FailureClass::NotFound, "it is not in the cache");
        match request {
            ReadRequest::Get(objects) => {
                let found = objects.iter().map(|one| self.find(&one.target.uid));
                ReadAnswer::Get(found.map(|one| one.ok_or_else(absent)).collect())
            }
            ReadRequest::List(_) => ReadAnswer::List(Ok(Vec::new())),
        }
    }

    fn find(&self, uid: &str) -> Option<ObjectRecord> {
        let mut views = self.views.values();
        views.find_map(|view| Some(self.snapshot.view(*view)?.get_by_uid(uid)?.record()))
    }
}

impl LiveReads for Cached {
    fn read(&self, request: ReadRequest) -> BoxFuture<'_, ReadAnswer> {
        Box::pin(async move { self.answer(&request) })
    }
}

/// Objects as a stream gives them to the machine.
fn projected(objects: &Objects, fields: &FieldTree) -> Result<Vec<ProjectedObject>> {
    let mut projector = Projector::new(fields.clone());
    let items = (0..objects.count).map(|number| {
        let json = serde_json::to_vec(&(objects.object)(number))?;
        Ok(projector.object(&json)?)
    });
    items.collect()
}

fn desired<C: Controller + 'static>() -> Result<DesiredController<Guest>> {
    let native = describe::<C>()?;
    let manifest: Arc<Manifest> = native.manifest().clone().into();
    let limits = CallLimits {
        memory_mib: 512,
        call_millis: 60_000,
        instances: 4,
    };
    let identity = RevisionIdentity::new(ModuleDigest([1; 32]), [0x80].into(), limits);
    let guest = Guest {
        revision: identity.name().into(),
        native: Arc::new(native),
        manifest: Arc::clone(&manifest),
    };
    Ok(DesiredController::new(
        manifest.name.clone(),
        Settings {
            mode: Mode::Enforce,
            ..Settings::default()
        },
        LoadedRevision::shipped(guest, manifest, identity),
    ))
}

/// The fields of a resource that these manifests declare, as one stream would keep them.
pub(crate) fn fields(manifests: &[Manifest], plural: &str) -> FieldTree {
    let watches = manifests.iter().flat_map(|manifest| &manifest.watches);
    let of_resource =
        watches.filter(|watch| matches!(&watch.source, Source::One(one) if one.plural == plural));
    of_resource.flat_map(|watch| &watch.fields).collect()
}

/// The number of plans of a call.
pub(crate) fn plans(decisions: &[Decision]) -> usize {
    decisions.iter().map(|decision| decision.plans.len()).sum()
}
