//! The interface in `wit/`, as types.
//!
//! They are used by the functions that guests import and by the conversions,
//! and leave this crate nowhere: what grows there must not ripple through the
//! host.

mod generated {
    wasmtime::component::bindgen!({
        path: "../../wit/davit-controller-0.1.0",
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
pub(crate) use generated::{Controller, ControllerPre};
