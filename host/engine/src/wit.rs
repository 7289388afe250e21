//! The interface in `wit/`, as types.
//!
//! Only the imports and the conversions use these types. No other crate does: a
//! change of the interface must not spread through the host.

use wasmtime::component::{ComponentType, Lift};

mod generated {
    wasmtime::component::bindgen!({
        path: "../../wit/davit-controller-0.1.0",
        world: "controller",
        imports: {
            "davit:controller/live": async | trappable,
            default: trappable,
        },
        exports: { default: async },
    });
}

/// A condition of the interface `conditions`, which a guest may export.
#[derive(Clone, Debug, ComponentType, Lift)]
#[component(record)]
pub(crate) struct TriggerCondition {
    pub(crate) watch: String,
    pub(crate) queue: String,
    pub(crate) index: String,
    pub(crate) related: String,
    #[component(name = "related-index")]
    pub(crate) related_index: String,
    #[component(name = "related-value")]
    pub(crate) related_value: String,
    #[component(name = "note-prefix")]
    pub(crate) note_prefix: Option<String>,
}

/// The fields of live reads, of the interface `reads`, which a guest may export.
#[derive(Clone, Debug, ComponentType, Lift)]
#[component(record)]
pub(crate) struct LiveFields {
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) fields: Vec<String>,
}

pub(crate) use generated::davit::controller::{
    cache, decisions, live, log, manifests, mapping, notes, queue, types,
};
pub(crate) use generated::{Controller, ControllerIndices};
