//! The SDK for Davit guests.
//!
//! A guest is a Kubernetes controller's decision logic as a WebAssembly
//! component. It implements [`Controller`], exports it with [`export!`], and is
//! tested natively with the harness in `testing`, which the feature of that name enables.
//! `docs/writing-a-guest.md` explains it step by step.
//!
//! # Determinism
//!
//! The same snapshot, time and items must lead to the same decisions: Davit compares a
//! candidate's decisions with those of the stable revision. Use `BTreeMap` and `BTreeSet`
//! where their order can reach a decision; break every tie when sorting (name, namespace,
//! uid); take times from [`Context::now`], objects and items only.
//!
//! # The contract
//!
//! The SDK re-exports the types of the contract (`wit/`) and adds constructors.
//! Their fields are the contract's own.

// The code of `#[derive(View)]` names the crate, also here.
extern crate self as davit_guest;

#[cfg(any(test, target_arch = "wasm32"))]
mod allocator;
mod apply;
pub mod bindings;
pub mod component;
mod conditions;
mod config;
mod context;
mod decision;
pub mod duration;
pub mod dynamic;
mod failure;
mod fields;
mod finalizer;
mod instant;
mod item;
mod json_patch;
#[cfg(any(test, target_arch = "wasm32"))]
mod libc;
mod manifest;
mod metric;
mod msgpack;
mod names;
pub mod node;
mod object;
mod owned;
mod pages;
mod permission;
pub mod pod;
mod resource;
mod selector;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod time;
pub mod toleration;
#[doc(hidden)]
pub mod view;
pub mod views;

use serde::de::DeserializeOwned;

pub use bindings::davit::controller::cache::{IndexKey, Place};
pub use bindings::davit::controller::decisions::{
    Amount, Command, Create, Decision, DeleteOptions, Enqueue, Event, Measure, Patch, Plan,
    PlanMeasure, QueueKey, SetNote, SetRate, Step, Verdict,
};
pub use bindings::davit::controller::live::ListRequest;
pub use bindings::davit::controller::log::Level;
pub use bindings::davit::controller::manifests::{
    ConfigError, Manifest, Metric, Permission, QueueSpec, Source, Tick, Trigger, TriggerKey,
};
pub use bindings::davit::controller::mapping::ResourceMapping;
pub use bindings::davit::controller::types::{ApiResource, ObjectRef};
pub use bindings::exports::davit::controller::conditions::TriggerCondition;
pub use bindings::exports::davit::controller::reads::LiveFields;
pub use conditions::{Conditions, Progress};
pub use config::WrittenConfig;
pub use context::{Cache, Context};
pub use davit_guest_derive::View;
pub use decision::{Propagation, Report, When};
pub use failure::{Failure, FailureClass, Retry};
pub use fields::{covers, fields_of};
pub use finalizer::Finalizer;
pub use instant::Instant;
pub use item::{PendingItem, PlanFailure, UnlistedResource, WorkItem};
pub use json_patch::{JsonPatch, pointer};
pub use manifest::{Index, Watch};
pub use metric::{Counter, Gauge, Histogram, SyncErrors};
pub use names::{IndexName, QueueName, Reason, WatchName};
pub use object::{Identity, Object};
pub use pages::{MAX_COMMANDS, MAX_IDENTITY_BYTES, MAX_PLANS};
pub use resource::{Resource, resources};
pub use selector::LabelSelector;
pub use time::Time;

/// A controller's decision logic.
///
/// ```
/// use davit_guest::{
///     ConfigError, Context, Controller, Decision, DeleteOptions, Identity, Manifest, Plan,
///     QueueName, QueueSpec, Reason, Retry, Trigger, View, Watch, WatchName, WorkItem, resources,
/// };
///
/// const PODS: WatchName<Pod> = WatchName::new("pods");
/// const CHANGED: QueueName = QueueName::new("changed-pods");
/// const FAILED: Reason = Reason::new("failed");
///
/// #[derive(Default, View)]
/// struct Pod {
///     #[view(path = "status.phase")]
///     phase: String,
/// }
///
/// struct Cleaner;
///
/// davit_guest::export!(Cleaner);
///
/// impl Controller for Cleaner {
///     type Config = Identity;
///
///     fn new(_: Identity) -> Result<Self, ConfigError> {
///         Ok(Self)
///     }
///
///     fn manifest(&self) -> Manifest {
///         Manifest::new("cleaner", "1.0.0", "Deletes failed pods.")
///             .watch(Watch::of(PODS, resources::PODS))
///             .trigger(Trigger::own_key(PODS, CHANGED))
///             .queue(QueueSpec::new(CHANGED))
///             .deletes(resources::PODS)
///     }
///
///     fn reconcile(&self, cx: &Context<'_>, item: &WorkItem) -> Result<Decision, Retry> {
///         let pod = cx.watch(PODS).get(&item.key);
///         let failed = pod.filter(|pod| pod.view.phase == "Failed");
///         let plan = failed.map(|pod| {
///             Plan::new(pod.reference, FAILED, "it failed").delete(DeleteOptions::new())
///         });
///         Ok(Decision::done().plans(plan))
///     }
/// }
/// ```
///
/// The host decides how long an instance lives, and runs several at once. State
/// that must outlast a call belongs to the host (the cluster's objects, queues,
/// notes), never to `self`.
pub trait Controller: Sized {
    /// The operator's configuration, with Kubernetes' field names
    /// (`#[serde(default, rename_all = "camelCase")]`). The SDK refuses unknown
    /// fields by name, at every depth.
    type Config: DeserializeOwned;

    /// Checks the configuration as it was written, before [`new`](Self::new). In
    /// [`Config`](Self::Config), a field that is null has its default, as one that is absent: a
    /// controller for which that is a mistake refuses it here.
    fn check_written(_config: &WrittenConfig<'_>) -> Result<(), ConfigError> {
        Ok(())
    }

    /// Checks the configuration. An error names the wrong field.
    fn new(config: Self::Config) -> Result<Self, ConfigError>;

    /// Returns what the controller needs from the host.
    fn manifest(&self) -> Manifest;

    /// The objects that triggers are about, for triggers that are not about every object. It
    /// spares the guest the calls about all others. An older host makes them
    /// nevertheless, and so may any host.
    ///
    /// When a related object changes, nothing is enqueued for the objects that it is related
    /// to: that needs a trigger of its own.
    fn trigger_conditions(&self) -> Vec<TriggerCondition> {
        Vec::new()
    }

    /// The fields that [live reads](Context::live_get) ask for. They are what an operator is asked
    /// to grant: of a resource that is not named here, every field.
    fn live_reads(&self) -> Vec<LiveFields> {
        Vec::new()
    }

    /// Decides about one key. The item identifies the key, not the change that
    /// enqueued it: read the current state and return what to do. An error requeues the
    /// item after its queue's back-off; `?` turns a [`Failure`] into one.
    fn reconcile(&self, cx: &Context<'_>, item: &WorkItem) -> Result<Decision, Retry>;

    /// Decides about the items of one call, in their order. Override it if
    /// several items are better decided together, for instance to join their
    /// live reads.
    fn reconcile_batch(
        &self,
        cx: &Context<'_>,
        items: &[WorkItem],
    ) -> Vec<Result<Decision, Retry>> {
        items.iter().map(|item| self.reconcile(cx, item)).collect()
    }
}
