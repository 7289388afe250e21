//! The interface in `wit/`, as types.
//!
//! Only the imports and the conversions use these types. No other crate does: a
//! change of the interface must not spread through the host.

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

pub(crate) use generated::davit::controller::{
    cache, decisions, live, log, manifests, mapping, notes, queue, types,
};
pub(crate) use generated::{Controller, ControllerIndices};
