//! The conversion between the types of `wit/` and the core's, once, at the
//! edge.
//!
//! It checks nothing itself: core checks a guest's answer ([`davit_core::answer`]) and its
//! manifest.

mod decision;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod manifest;
mod object;
mod payload;

pub(crate) use decision::decisions;
pub(crate) use manifest::manifest;
pub(crate) use object::{entry, failure, object, object_ref, resource, work_item};
pub use payload::Encoding;
