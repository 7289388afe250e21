//! What should run: the controllers of a story with their revisions, as a
//! control plane would have recorded it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use davit_core::budget::{Cooldown, Guardrails};
use davit_core::controller::Settings;
use davit_core::desired::DesiredController;
use davit_core::digest::ModuleDigest;
use davit_core::gate::Mode;
use davit_core::manifest::Manifest;
use davit_core::revision::{CallLimits, LoadedRevision, RevisionIdentity};
use davit_core::rollout::cohort::{CandidateStep, Cohort, Share, Unit};
use davit_guest::Controller;
use davit_guest::testing::Native;
use davit_simulation::{Dice, Guest};
use serde_json::{Value, json};

use crate::step::CONTROLLERS;

/// The controllers that should run.
#[derive(Debug)]
pub(crate) struct Controllers {
    desired: BTreeMap<&'static str, DesiredController<Guest>>,
    revisions: u8,
}

impl Controllers {
    pub(crate) fn new(dice: &mut Dice) -> Result<Self, String> {
        let mut controllers = Self {
            desired: BTreeMap::new(),
            revisions: 0,
        };
        for name in CONTROLLERS {
            let desired = DesiredController {
                name: name.to_owned(),
                settings: settings(Mode::Enforce, None),
                user: None,
                stable: controllers.revision(name)?,
                cohort: Cohort {
                    unit: unit(dice),
                    ..Cohort::default()
                },
                candidate: None,
                tripped: Vec::new(),
            };
            controllers.desired.insert(name, desired);
        }
        Ok(controllers)
    }

    /// What the machine is told.
    pub(crate) fn desired(&self) -> Vec<DesiredController<Guest>> {
        self.desired.values().cloned().collect()
    }

    /// A new revision of a controller, that decides as the others do.
    fn revision(&mut self, name: &str) -> Result<LoadedRevision<Guest>, String> {
        self.revisions = self.revisions.wrapping_add(1);
        let config = config(name);
        let config = rmp_serde::to_vec(&config).map_err(|error| error.to_string())?;
        let (guest, manifest) = guest(name, &config)?;
        let limits = CallLimits {
            memory_mib: 64,
            call_millis: 1000,
            instances: 3,
        };
        let digest = ModuleDigest([self.revisions; 32]);
        Ok(LoadedRevision {
            guest,
            manifest: Arc::new(manifest),
            identity: RevisionIdentity::new(digest, config.into(), limits),
            away: None,
        })
    }

    fn one(&mut self, index: usize) -> Option<&mut DesiredController<Guest>> {
        let name = CONTROLLERS.get(index)?;
        self.desired.get_mut(name)
    }

    pub(crate) fn swap(&mut self, index: usize) -> Result<(), String> {
        let name = CONTROLLERS.get(index).copied().unwrap_or_default();
        let revision = self.revision(name)?;
        if let Some(one) = self.one(index) {
            one.stable = revision;
            one.candidate = None;
        }
        Ok(())
    }

    /// A candidate with that share: a new one, or the next step of the one there
    /// is.
    pub(crate) fn candidate(&mut self, index: usize, weight: u8) -> Result<(), String> {
        let name = CONTROLLERS.get(index).copied().unwrap_or_default();
        let fresh = self.revision(name)?;
        if let Some(one) = self.one(index) {
            let share = Share {
                cohort: one.cohort.clone(),
                weight,
            };
            let (revision, number) = match one.candidate.take() {
                Some((revision, step)) => (revision, step.number + 1),
                None => (fresh, 0),
            };
            let step = CandidateStep {
                share,
                number,
                window: Some(Duration::from_secs(30)),
            };
            one.candidate = Some((revision, step));
        }
        Ok(())
    }

    pub(crate) fn promote(&mut self, index: usize) {
        if let Some(one) = self.one(index)
            && let Some((revision, _)) = one.candidate.take()
        {
            one.stable = revision;
        }
    }

    pub(crate) fn roll_back(&mut self, index: usize) {
        if let Some(one) = self.one(index) {
            one.candidate = None;
        }
    }

    pub(crate) fn mode(&mut self, index: usize, enforce: bool) {
        if let Some(one) = self.one(index) {
            one.settings.mode = if enforce { Mode::Enforce } else { Mode::DryRun };
        }
    }

    pub(crate) fn budget(&mut self, index: usize, writes: Option<u32>) {
        if let Some(one) = self.one(index) {
            one.settings = settings(one.settings.mode, writes);
        }
    }

    /// Everything enforces, without limits, in its stable revision.
    pub(crate) fn calm(&mut self) {
        for one in self.desired.values_mut() {
            one.candidate = None;
            one.settings = settings(Mode::Enforce, None);
        }
    }
}

fn settings(mode: Mode, writes: Option<u32>) -> Settings {
    Settings {
        mode,
        granted: None,
        guardrails: Guardrails {
            writes_per_minute: writes,
            cooldown: Cooldown::After(Duration::from_secs(30)),
            ..Guardrails::default()
        },
    }
}

fn unit(dice: &mut Dice) -> Unit {
    let units = [Unit::Uid, Unit::Namespace, Unit::Node];
    dice.pick(&units).copied().unwrap_or_default()
}

fn config(name: &str) -> Value {
    match name {
        "podgc" => json!({"terminatedPodThreshold": 0, "period": "5s", "quarantine": "10s"}),
        "node-eviction" => json!({"podEvictionTimeout": "60s", "nodeEvictionRate": 1}),
        _ => json!({}),
    }
}

fn guest(name: &str, config: &[u8]) -> Result<(Guest, Manifest), String> {
    match name {
        "podgc" => described::<podgc::PodGc>(config),
        "garbage-collector" => described::<garbage_collector::GarbageCollector>(config),
        "taint-eviction" => described::<taint_eviction::TaintEviction>(config),
        "storage-version-gc" => described::<storage_version_gc::StorageVersionGc>(config),
        "node-eviction" => described::<node_eviction::NodeEviction>(config),
        other => Err(format!("no guest is called {other}")),
    }
}

fn described<C: Controller + 'static>(config: &[u8]) -> Result<(Guest, Manifest), String> {
    let native = Native::<C>::describe(config)?;
    let manifest = native.manifest().clone();
    Ok((Arc::new(native), manifest))
}
