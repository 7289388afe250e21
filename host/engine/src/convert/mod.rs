//! Between the types of `wit/` and the core's, once, at the edge.
//!
//! What a guest answers is checked here: whatever comes out is as the core
//! expects it, except for what the gate decides (the target's uid, the declared
//! writes).

mod body;
mod decision;
mod malformed;
mod manifest;
mod object;

pub use body::BodyError;
pub use malformed::{Malformed, Place};

pub(crate) use decision::decisions;
pub(crate) use manifest::manifest;
pub(crate) use object::{entry, failure, object, object_ref, resource, work_item};
