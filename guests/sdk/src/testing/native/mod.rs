//! A guest of the SDK, compiled natively, as a simulated host calls it.

mod decision;
mod host;
mod probe;

use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use davit_core::circuit::{CallFailure, CallFailureKind};
use davit_core::journal::SnapshotReads;
use davit_core::machine::{Call, ReadAnswer, ReadRequest};
use davit_core::manifest::Manifest;
use davit_simulation::{Guest, NativeGuest, Reconciliation};

use crate as sdk;
use crate::bindings::davit::controller::manifests;
use crate::component::Instance;
use crate::{Context, Controller};
use host::CallHost;

davit_core::manifest_translation!(manifests, crate::TriggerCondition, crate::LiveFields);

pub(super) use host::failure;
pub(super) use probe::Probe;

/// A controller with its configuration, as a guest of `davit_simulation::Simulation`.
pub struct Native<C> {
    instance: Instance<C>,
    manifest: Manifest,
}

/// How a guest stops at a live read that is not answered yet.
struct Suspension(ReadRequest);

/// The decisions of a call.
pub(super) type Decisions = Result<Vec<sdk::Decision>, Interruption>;

/// Why a call has no decisions.
pub(super) enum Interruption {
    /// It needs a live read first.
    Reads(Box<ReadRequest>),
    /// It failed.
    Failed(CallFailure),
}

impl<C: Controller> Native<C> {
    /// Describes the controller with an operator's configuration (MessagePack).
    pub fn describe(config: &[u8]) -> Result<Self, String> {
        let instance = Instance::new();
        let described = instance.describe(config);
        let described = described.map_err(|error| format!("{}: {}", error.field, error.message))?;
        Self::of(instance, described)
    }

    /// An instance that was described.
    pub(super) fn of(instance: Instance<C>, described: sdk::Manifest) -> Result<Self, String> {
        let (conditions, reads) = (instance.trigger_conditions(), instance.live_reads());
        let manifest = translation::manifest(described, conditions, reads);
        let manifest = manifest.map_err(|error| error.to_string())?;
        Ok(Self { instance, manifest })
    }

    /// What the controller needs, as the host reads it.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Decides about the items of a call, and notes what it reads and logs.
    pub(super) fn decide<G>(
        &self,
        call: &Call<G>,
        answers: &[ReadAnswer],
        probe: Option<&Probe>,
        reads: Option<&RefCell<SnapshotReads>>,
    ) -> Decisions {
        let host = CallHost::new(call, &self.manifest, answers, probe, reads);
        let items: Vec<_> = call
            .items
            .iter()
            .map(|item| host::work_item(item, call.now))
            .collect();
        attempt(|| self.instance.reconcile(&host, call.now.wall.0, items))
    }

    /// Reads from the controller what it would decide, with the context of a call.
    pub(super) fn observe<G, R>(
        &self,
        call: &Call<G>,
        answers: &[ReadAnswer],
        observe: impl FnOnce(&C, &Context<'_>) -> R,
    ) -> Result<Option<R>, Interruption> {
        let host = CallHost::new(call, &self.manifest, answers, None, None);
        attempt(|| self.instance.observe(&host, call.now.wall.0, observe))
    }

    /// The decisions as the host reads them. It refuses what every host refuses.
    pub(super) fn read<G>(
        &self,
        call: &Call<G>,
        decisions: Vec<sdk::Decision>,
    ) -> Result<Vec<davit_core::plan::Decision>, CallFailure> {
        decision::decisions(decisions, call.items.len(), &self.manifest, call.now)
            .map_err(|error| CallFailure::new(CallFailureKind::Malformed, error.to_string()))
    }
}

/// What the guest answers; it may stop at a live read.
fn attempt<R>(answer: impl FnOnce() -> R) -> Result<R, Interruption> {
    catch_unwind(AssertUnwindSafe(answer)).map_err(|payload| {
        match payload.downcast::<Suspension>() {
            Ok(suspended) => Interruption::Reads(Box::new(suspended.0)),
            Err(payload) => {
                let text = payload
                    .downcast_ref::<String>()
                    .map(String::as_str)
                    .or_else(|| payload.downcast_ref::<&str>().copied());
                let reason = format!("the guest panics: {}", text.unwrap_or_default());
                Interruption::Failed(CallFailure::new(CallFailureKind::Trap, reason))
            }
        }
    })
}

impl<C> fmt::Debug for Native<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.manifest.name)
    }
}

impl<C: Controller> NativeGuest for Native<C> {
    fn reconcile(
        &self,
        call: &Call<Guest>,
        answers: &[ReadAnswer],
        reads: Option<&RefCell<SnapshotReads>>,
    ) -> Reconciliation {
        match self.decide(call, answers, None, reads) {
            Ok(decisions) => match self.read(call, decisions) {
                Ok(decisions) => Reconciliation::Decided(decisions),
                Err(failure) => Reconciliation::Failed(failure),
            },
            Err(Interruption::Reads(request)) => Reconciliation::Reads(*request),
            Err(Interruption::Failed(failure)) => Reconciliation::Failed(failure),
        }
    }
}
