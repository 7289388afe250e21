//! The SDK for Davit guests.
//!
//! A guest is a Kubernetes controller's decision logic as a WebAssembly
//! component. It implements [`Controller`], exports it with [`export!`], and is
//! tested natively with the harness in [`testing`]. `docs/writing-a-guest.md`
//! explains it step by step.
//!
//! The SDK re-exports the types of the contract (`wit/`) and adds constructors.
//! Their fields are the contract's own.

// The code of `#[derive(View)]` names the crate, also here.
extern crate self as davit_guest;

pub mod bindings;
pub mod component;
mod config;
mod context;
mod decision;
pub mod duration;
mod fields;
mod manifest;
mod msgpack;
pub mod node;
mod object;
mod pages;
pub mod pod;
mod selector;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod time;
pub mod toleration;
#[doc(hidden)]
pub mod view;

use serde::de::DeserializeOwned;

pub use bindings::davit::controller::cache::{IndexKey, Place};
pub use bindings::davit::controller::decisions::{
    Amount, Command, Create, Decision, DeleteOptions, Enqueue, Event, Measure, Patch, Plan,
    PlanFailure, PlanMeasure, QueueKey, SetNote, SetRate, Step, Verdict, WorkItem,
};
pub use bindings::davit::controller::live::ListRequest;
pub use bindings::davit::controller::log::Level;
pub use bindings::davit::controller::manifests::{
    ConfigError, Index, IndexFilter, Manifest, Metric, Permission, QueueSpec, Rate, Source, Tick,
    Trigger, TriggerKey, Watch,
};
pub use bindings::davit::controller::mapping::{ResourceMapping, UnlistedResource};
pub use bindings::davit::controller::queue::PendingItem;
pub use bindings::davit::controller::types::{ApiResource, Failure, Instant, ObjectRef};
pub use context::{Cache, Context};
pub use davit_guest_derive::View;
pub use fields::fields_of;
pub use manifest::WatchName;
pub use object::{Identity, Object};
pub use pages::{MAX_COMMANDS, MAX_IDENTITY_BYTES, MAX_PLANS};
pub use selector::LabelSelector;
pub use time::Time;

/// A controller's decision logic.
///
/// The host decides how long an instance lives, and runs several at once. State
/// that must outlast a call belongs to the host (the cluster's objects, queues,
/// notes), never to `self`.
pub trait Controller: Sized {
    /// The operator's configuration, with Kubernetes' field names
    /// (`#[serde(default, rename_all = "camelCase")]`). The SDK refuses unknown
    /// fields by name, at every depth.
    type Config: DeserializeOwned;

    /// Checks the configuration. An error names the wrong field.
    fn new(config: Self::Config) -> Result<Self, ConfigError>;

    /// Returns what the controller needs from the host.
    fn manifest(&self) -> Manifest;

    /// Decides about one key. The item identifies the key, not the change that
    /// enqueued it: read the current state and return what to do.
    fn reconcile(&self, cx: &Context<'_>, item: &WorkItem) -> Decision;

    /// Decides about the items of one call, in their order. Override it if
    /// several items are better decided together, for instance to join their
    /// live reads.
    fn reconcile_batch(&self, cx: &Context<'_>, items: &[WorkItem]) -> Vec<Decision> {
        items.iter().map(|item| self.reconcile(cx, item)).collect()
    }
}
