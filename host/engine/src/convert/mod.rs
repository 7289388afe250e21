//! The conversion between the types of `wit/` and the core's, once, at the
//! edge.
//!
//! It checks nothing itself: core checks a guest's answer ([`davit_core::answer`]) and its
//! manifest.

mod decision;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod object;
mod payload;

use crate::wit::manifests;

davit_core::manifest_translation!(
    manifests,
    crate::wit::TriggerCondition,
    crate::wit::LiveFields
);

pub(crate) use decision::decisions;
pub(crate) use object::{entry, failure, object, object_ref, resource, work_item};
pub use payload::Encoding;
pub(crate) use translation::manifest;
