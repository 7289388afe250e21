//! Operators: they declare controllers, change specs, and request things with annotations.
//! They know only the recorded status.

use std::collections::BTreeMap;

use davit_core::account::Account;
use davit_core::api::{
    ConditionStatus, ControllerSpec, ControllerStatus, GuardrailConfig, HostStatus, ModuleSource,
    SpecError,
};
use davit_core::control::{Change, ChangeId, Declaration, FileController, Requests};
use davit_core::gate::Mode;
use davit_core::grant::{Permissions, ReadRule, WRITE_VERBS, WriteRule};
use davit_core::object::ObjectRef;
use davit_core::rollout::cohort::Unit;
use davit_simulation::{Dice, Guest, HostIndex, Module, NAMESPACE, Simulation};
use serde_json::{Value, json};

use crate::action::{Action, Grant, Request, Revision, Rollout};
use crate::event::CONTROLLERS;
use crate::guests::{config, first_permissions};
use crate::undo::Undo;

const HOST: HostIndex = HostIndex::FIRST;

/// The controllers that operators declare.
#[derive(Debug)]
pub(crate) struct Operators {
    /// Whether the controllers are resources of a cluster; otherwise entries of a file.
    pub(crate) in_cluster: bool,
    declared: BTreeMap<&'static str, DeclaredSpec>,
    /// The build that each source held last.
    builds: BTreeMap<&'static str, u32>,
    counted: u64,
    /// What is kept before it is deleted.
    pub(crate) undo: Undo,
}

/// A controller as an operator declared it.
#[derive(Clone, Debug)]
struct DeclaredSpec {
    uid: u64,
    generation: i64,
    spec: ControllerSpec,
    /// Whether the declared spec is invalid.
    is_bad: bool,
    annotations: BTreeMap<String, String>,
}

impl Operators {
    /// Draws the controllers. The entries of a file have one host, and no leases.
    pub(crate) fn new(dice: &mut Dice, elects: bool, undo: Undo) -> Self {
        let mut operators = Self {
            in_cluster: dice.chance(0.8) || elects,
            declared: BTreeMap::new(),
            builds: BTreeMap::new(),
            counted: 0,
            undo,
        };
        for name in CONTROLLERS {
            let mut spec = ControllerSpec::of(source(name, dice.chance(0.3)).into());
            spec.mode = Mode::Enforce;
            spec.permissions = Grant::Everything.permissions(name, &spec);
            spec.config = config(name, 0);
            spec.service_account_name = dice.chance(0.6).then(|| account(name).name);
            let units = [Unit::Uid, Unit::Namespace, Unit::Node];
            operators.undo.apply(name, &mut spec);
            spec.rollout.cohort.unit = dice.pick(&units).copied().unwrap_or_default();
            operators.builds.insert(name, 1);
            operators.declare(name, spec);
        }
        operators
    }

    fn declare(&mut self, name: &'static str, spec: ControllerSpec) {
        self.counted += 1;
        let declared = DeclaredSpec {
            uid: self.counted,
            generation: 1,
            spec,
            is_bad: false,
            annotations: BTreeMap::new(),
        };
        self.declared.insert(name, declared);
    }

    /// Puts the modules and the resources into the world before the host starts.
    pub(crate) fn settle_in(&self, simulation: &mut Simulation) {
        simulation.world.records_mut().are_shared = self.in_cluster;
        for (name, declared) in &self.declared {
            let module = self.module(name);
            simulation
                .modules
                .provide(&declared.spec.module.source, Some(module));
            if self.in_cluster {
                let uid = declared.uid.to_string();
                simulation.world.records_mut().create(name, &uid);
            }
        }
    }

    /// A host receives the present declarations.
    pub(crate) fn deliver(&self, host: HostIndex, simulation: &mut Simulation) {
        if !simulation.host(host).is_running() {
            return;
        }
        if self.in_cluster {
            let all = self.declared.iter();
            let all = all.map(|(name, declared)| declared.declaration(name, simulation));
            let all = all.collect();
            simulation.driver(host).declare(all);
        } else {
            let all = self.declared.iter().map(|(name, declared)| {
                let loaded = simulation.driver(host).load_now(&declared.spec);
                FileController::<Guest> {
                    name: (*name).to_owned(),
                    spec: declared.spec.clone(),
                    loaded,
                }
            });
            let all = all.collect();
            simulation.driver(host).apply_file(all);
        }
    }

    fn module(&self, name: &str) -> Module {
        Module {
            program: name.to_owned(),
            build: self.builds.get(name).copied().unwrap_or(1),
        }
    }

    fn one(&mut self, index: usize) -> Option<&mut DeclaredSpec> {
        self.declared.get_mut(CONTROLLERS.get(index)?)
    }

    /// An operator acts on a controller.
    pub(crate) fn act(&mut self, index: usize, action: &Action, simulation: &mut Simulation) {
        match action {
            Action::Revise(revision, rollout) => self.revise(index, *revision, rollout),
            Action::Rollout(rollout) => self.edit(index, |spec| rollout.apply(spec)),
            Action::ReturnToStable => self.return_to_stable(index, simulation),
            Action::Ask(request) => self.ask(index, *request, simulation),
            Action::Pause(paused) => self.pause(index, *paused, simulation),
            Action::Mode(mode) => self.edit(index, |spec| spec.mode = *mode),
            Action::Limit(limits) => self.edit(index, |spec| limits.apply(&mut spec.guardrails)),
            Action::Grant(grant) => self.grant(index, *grant),
            Action::Spoil => self.spoil(index),
            Action::Remove => self.remove(index, simulation),
            Action::Create(rollout) => self.create(index, rollout, simulation),
            Action::Provide(build) => self.provide(index, *build, simulation),
            // With leases, only their holder does.
            Action::OtherHost if simulation.elects() => {}
            Action::OtherHost => {
                let other = HostStatus {
                    id: "another".to_owned(),
                    name: "another".to_owned(),
                    renewed_at: "2026-06-01T00:00:00Z".to_owned(),
                };
                if let (Some(name), true) = (CONTROLLERS.get(index), self.in_cluster) {
                    simulation
                        .world
                        .records_mut()
                        .other_host_writes(name, other);
                }
            }
        }
        if let (Some(name), true) = (CONTROLLERS.get(index), self.in_cluster) {
            simulation.world.records_mut().change(name);
        }
    }

    fn grant(&mut self, index: usize, grant: Grant) {
        if let Some(name) = CONTROLLERS.get(index) {
            self.edit(index, |spec| {
                spec.permissions = grant.permissions(name, spec);
            });
        }
    }

    /// Changes a spec.
    fn edit(&mut self, index: usize, change: impl FnOnce(&mut ControllerSpec)) {
        if let Some(one) = self.one(index) {
            let before = one.spec.clone();
            change(&mut one.spec);
            if one.spec != before || one.is_bad {
                one.generation += 1;
                one.is_bad = false;
            }
        }
    }

    /// The spec describes another revision and its rollout.
    fn revise(&mut self, index: usize, revision: Revision, rollout: &Rollout) {
        let Some(name) = CONTROLLERS.get(index) else {
            return;
        };
        let digest = self.module(name).digest();
        self.edit(index, |spec| {
            match revision {
                Revision::Config(number) if *name == "storage-version-gc" => {
                    spec.limits.memory_mib = 64 + u32::from(number);
                }
                Revision::Config(number) => spec.config = config(name, number),
                Revision::Limits(instances) => spec.limits.instances = instances,
                Revision::Pinned(pinned) => spec.module.digest = pinned.then_some(digest),
            }
            rollout.apply(spec);
        });
    }

    /// The spec is invalid until the next change.
    fn spoil(&mut self, index: usize) {
        if let Some(one) = self.one(index) {
            one.generation += 1;
            one.is_bad = true;
        }
    }

    /// The spec describes the recorded stable revision.
    fn return_to_stable(&mut self, index: usize, simulation: &Simulation) {
        let Some(name) = CONTROLLERS.get(index) else {
            return;
        };
        let Some(former) = simulation.world.records().stable_spec(name) else {
            return;
        };
        self.edit(index, |spec| {
            spec.module = former.module;
            spec.config = former.config;
            spec.limits = former.limits;
        });
    }

    fn remove(&mut self, index: usize, simulation: &mut Simulation) {
        if let Some(name) = CONTROLLERS.get(index)
            && self.declared.remove(name).is_some()
            && self.in_cluster
        {
            simulation.world.records_mut().remove(name);
        }
    }

    /// Declares a removed controller again, as another resource of the same name.
    fn create(&mut self, index: usize, rollout: &Rollout, simulation: &mut Simulation) {
        let Some(name) = CONTROLLERS.get(index).copied() else {
            return;
        };
        if self.declared.contains_key(name) {
            return;
        }
        let mut spec = ControllerSpec::of(source(name, false).into());
        spec.mode = Mode::Enforce;
        spec.permissions = Grant::Everything.permissions(name, &spec);
        spec.config = config(name, 0);
        let has_account = simulation.world.dice().chance(0.6);
        spec.service_account_name = has_account.then(|| account(name).name);
        rollout.apply(&mut spec);
        self.undo.apply(name, &mut spec);
        simulation
            .modules
            .provide(&spec.module.source, Some(self.module(name)));
        self.declare(name, spec);
        if self.in_cluster {
            let uid = self.counted.to_string();
            simulation.world.records_mut().create(name, &uid);
        }
    }

    /// The module's source holds another build, or nobody can read the source.
    fn provide(&mut self, index: usize, build: Option<u32>, simulation: &mut Simulation) {
        let Some(name) = CONTROLLERS.get(index) else {
            return;
        };
        if let Some(build) = build {
            self.builds.insert(name, build);
        }
        let Some(declared) = self.declared.get(name) else {
            return;
        };
        let module = build.map(|_| self.module(name));
        simulation
            .modules
            .provide(&declared.spec.module.source, module);
        simulation.modules_changed();
    }

    /// Sends a request whose value comes from the status.
    fn ask(&mut self, index: usize, request: Request, simulation: &mut Simulation) {
        let Some(name) = CONTROLLERS.get(index).copied() else {
            return;
        };
        self.counted += 1;
        let (in_cluster, number) = (self.in_cluster, self.counted);
        let status = simulation.world.records().status(name).cloned();
        let status = status.unwrap_or_default();
        let Some(declared) = self.declared.get_mut(name) else {
            return;
        };
        let Some((kind, value)) = request.value(&status, declared.generation) else {
            return;
        };
        // Distinguishes it from an earlier request with the same value.
        let value = format!("{value}#{number}");
        simulation.world.note(format_args!(
            "an operator of {name} requests {} {value}",
            kind.name()
        ));
        let annotation = kind.annotation().to_owned();
        declared.annotations.insert(annotation, value.clone());
        if !in_cluster {
            let patch = json!({"metadata": {"annotations": {kind.annotation(): value}}});
            let asked = Requests::read(&declared.annotations);
            send(simulation, number, name, &patch, &asked);
        }
    }

    /// Pauses a rollout or continues it. For a controller of a file, the host records the
    /// pause.
    fn pause(&mut self, index: usize, paused: bool, simulation: &mut Simulation) {
        let Some(name) = CONTROLLERS.get(index).copied() else {
            return;
        };
        if self.in_cluster {
            return self.edit(index, |spec| spec.rollout.paused = paused);
        }
        self.counted += 1;
        if self.declared.contains_key(name) && simulation.host(HOST).is_running() {
            let what = if paused { "pauses" } else { "continues" };
            simulation
                .world
                .note(format_args!("an operator of {name} {what} the rollout"));
            simulation
                .driver(HOST)
                .pause(ChangeId(self.counted), name, paused);
        }
    }

    /// The host restarted: it forgot the requests for controllers of a file.
    pub(crate) fn restarted(&mut self) {
        if !self.in_cluster {
            for one in self.declared.values_mut() {
                one.annotations.clear();
            }
        }
    }

    /// Declares every controller, with mode Enforce and without guardrails, and provides
    /// every module. Some rollouts continue, others end.
    pub(crate) fn calm(&mut self, simulation: &mut Simulation) {
        for (index, name) in CONTROLLERS.into_iter().enumerate() {
            self.create(index, &Rollout::default(), simulation);
            let rollout = Rollout::calm(simulation.world.dice());
            self.edit(index, |spec| {
                spec.mode = Mode::Enforce;
                spec.guardrails = GuardrailConfig::default();
                spec.permissions = Grant::Everything.permissions(name, spec);
                if !matches!(spec.config, Value::Object(_)) || spec.config.get("wrong").is_some() {
                    spec.config = config(name, 0);
                }
                rollout.apply(spec);
            });
            let digest = self.module(name).digest();
            self.edit(index, |spec| {
                // A pinned module exists.
                spec.module.digest = spec.module.digest.map(|_| digest);
            });
            let build = self.builds.get(name).copied();
            self.provide(index, build, simulation);
        }
    }

    /// Declares every controller, with mode Enforce. Guardrails and rollouts stay.
    pub(crate) fn enforce(&mut self, simulation: &mut Simulation) {
        for (index, name) in CONTROLLERS.into_iter().enumerate() {
            self.create(index, &Rollout::default(), simulation);
            self.edit(index, |spec| {
                spec.mode = Mode::Enforce;
                spec.permissions = Grant::Everything.permissions(name, spec);
            });
        }
    }

    /// Resets the guardrails that wait for a reset. Returns whether any has tripped.
    pub(crate) fn reset(&mut self, simulation: &mut Simulation) -> bool {
        let mut has_tripped = false;
        for (index, name) in CONTROLLERS.iter().enumerate() {
            let status = simulation.world.records().status(name);
            let tripped = status.map(|status| status.tripped.clone());
            let tripped = tripped.unwrap_or_default();
            has_tripped |= !tripped.is_empty();
            if tripped.iter().any(|trip| trip.until.is_none()) {
                self.ask(index, Request::Reset, simulation);
            }
        }
        has_tripped
    }

    /// Ends paused and unfinished rollouts and abandons lost revisions, as the statuses
    /// say. Returns whether there was anything to do.
    pub(crate) fn react(&mut self, simulation: &mut Simulation) -> bool {
        let mut acts = false;
        for (index, name) in CONTROLLERS.iter().enumerate() {
            if !self.in_cluster && simulation.world.records().is_paused(name) {
                self.pause(index, false, simulation);
                acts = true;
            }
            let status = simulation
                .world
                .records()
                .status(name)
                .cloned()
                .unwrap_or_default();
            let request = if status.lost.is_some() {
                Request::Abandon
            } else if status.candidate.is_some() {
                if simulation.world.dice().chance(0.5) {
                    Request::PromoteAll
                } else {
                    Request::Abort
                }
            } else {
                continue;
            };
            self.ask(index, request, simulation);
            acts = true;
        }
        acts
    }

    /// Whether a status has something open that operators react to.
    pub(crate) fn has_open(&self, simulation: &Simulation) -> bool {
        let records = simulation.world.records();
        CONTROLLERS.iter().any(|name| {
            let status = records.status(name);
            let is_open = status.is_some_and(|one| one.lost.is_some() || one.candidate.is_some());
            is_open || (!self.in_cluster && records.is_paused(name))
        })
    }

    /// The errors in the statuses of a cluster at rest.
    pub(crate) fn problems(&self, simulation: &mut Simulation) -> Vec<String> {
        let mut problems = Vec::new();
        for (name, declared) in &self.declared {
            let wanted = simulation.modules.describe(&declared.spec);
            let wanted = wanted.map(|revision| revision.identity.to_string());
            let own = simulation.indexes().map(|host| {
                let core = simulation.host(host).core();
                let mut statuses = core.into_iter().flat_map(davit_core::host::Host::statuses);
                let own = statuses.find(|(one, _)| one == name);
                own.map(|(_, status)| status.clone()).unwrap_or_default()
            });
            let own: Vec<ControllerStatus> = own.collect();
            let recorded = simulation.world.records().status(name).cloned();
            let recorded = recorded.unwrap_or_default();
            let wrong = self.wrong(declared, wanted.as_deref(), &recorded, &own);
            problems.extend(wrong.map(|what| format!("{name}: {what}; status: {recorded:?}")));
        }
        problems
    }

    fn wrong(
        &self,
        declared: &DeclaredSpec,
        wanted: Option<&str>,
        recorded: &ControllerStatus,
        own: &[ControllerStatus],
    ) -> Option<&'static str> {
        let stable = recorded.stable.as_ref().map(|one| one.revision.as_str());
        let rejected = recorded.rejected.as_ref().map(|one| one.revision.as_str());
        if wanted.is_none() {
            return Some("the revision that the spec describes cannot be loaded");
        }
        if stable != wanted && (rejected != wanted || stable.is_none()) {
            return Some("the stable revision is not what the spec describes");
        }
        if recorded.candidate.is_some() || recorded.lost.is_some() || !recorded.tripped.is_empty() {
            return Some("the rollout has not ended");
        }
        let mut conditions = recorded.conditions.iter();
        let ready = conditions.find(|one| one.type_ == "Ready");
        let is_rolled_back = rejected == wanted;
        let expected = |ready: &&ConditionStatus| {
            if is_rolled_back {
                ready.reason == "RolledBack"
            } else {
                ready.status == "True"
            }
        };
        if !ready.iter().any(expected) {
            return Some("the condition Ready is wrong");
        }
        if self.in_cluster && recorded.observed_generation != Some(declared.generation) {
            return Some("the host has not observed the last spec");
        }
        let is_recorded = |own: &ControllerStatus| {
            recorded.stable == own.stable && recorded.rejected == own.rejected
        };
        if !own.iter().all(is_recorded) {
            return Some("the record differs from what a host knows");
        }
        // For a file, the host may have refused the request before it knew the controller.
        let mut asked = declared.annotations.iter().filter(|_| self.in_cluster);
        let unanswered = asked.any(|(annotation, value)| {
            let name = annotation.trim_start_matches("davit.dev/");
            let answer = recorded.answer(name, value);
            answer.is_none_or(|one| one.result == davit_core::api::RequestResult::Pending)
        });
        unanswered.then_some("a request has no answer")
    }
}

impl DeclaredSpec {
    fn declaration(&self, name: &str, simulation: &Simulation) -> Declaration {
        Declaration {
            name: name.to_owned(),
            generation: Some(self.generation),
            object: Some(ObjectRef {
                api_version: "davit.dev/v1alpha1".to_owned(),
                kind: "Controller".to_owned(),
                namespace: String::new(),
                name: name.to_owned(),
                uid: self.uid.to_string(),
            }),
            status: simulation.world.records().status(name).cloned(),
            spec: if self.is_bad {
                Err(SpecError {
                    field: "spec.mode".to_owned(),
                    reason: "no such mode".to_owned(),
                })
            } else {
                Ok(self.spec.clone())
            },
            requests: Requests::read(&self.annotations),
        }
    }
}

fn send(simulation: &mut Simulation, number: u64, name: &str, patch: &Value, asked: &Requests) {
    if let Ok(change) = Change::read(patch)
        && simulation.host(HOST).is_running()
    {
        simulation
            .driver(HOST)
            .change(ChangeId(number), name, change, asked);
    }
}

impl Grant {
    /// The permissions of a controller. A guest that ships with Davit needs none.
    fn permissions(self, name: &str, spec: &ControllerSpec) -> Option<Permissions> {
        match self {
            Self::Everything if spec.module.source.is_builtin() => None,
            Self::Everything => Some(everything(&[])),
            Self::First => Some(first_permissions(name)),
            Self::Elsewhere => Some(everything(&["elsewhere".to_owned()])),
            Self::Nothing => Some(Permissions::default()),
        }
    }
}

/// Every read, and every write to these namespaces.
fn everything(namespaces: &[String]) -> Permissions {
    let all = || "*".to_owned();
    let read = ReadRule {
        group: all(),
        resource: all(),
        namespaces: Vec::new(),
        fields: Vec::new(),
    };
    let writes = WRITE_VERBS.map(|verb| WriteRule {
        verb: verb.to_owned(),
        group: all(),
        resource: all(),
        namespaces: namespaces.to_vec(),
    });
    Permissions {
        reads: vec![read],
        writes: writes.into(),
    }
}

/// The account of a controller, if its spec names one.
pub(crate) fn account(controller: &str) -> Account {
    Account {
        namespace: NAMESPACE.to_owned(),
        name: controller.to_owned(),
    }
}

/// The source of a controller's module.
fn source(name: &str, builtin: bool) -> ModuleSource {
    if builtin {
        ModuleSource::Builtin(name.to_owned())
    } else {
        ModuleSource::File(format!("/guests/{name}.wasm").into())
    }
}
