//! The conversion between the types of `wit/` and the core's, once, at the
//! edge.
//!
//! It checks a guest's answer. Its output fits what the core expects, except
//! for what the gate decides (the target's uid, the declared writes).

mod answer_error;
mod body;
mod decision;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod manifest;
mod object;

pub use answer_error::{AnswerError, Place};

pub(crate) use decision::decisions;
pub(crate) use manifest::manifest;
pub(crate) use object::{entry, failure, object, object_ref, resource, work_item};
