//! Rules over objects on an API server in memory, on virtual time.

#![allow(
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a panic is a failure; objects are written as JSON where they are used"
)]

mod acting;
mod ends;
mod evicting;
mod failing;
mod fresh;
mod holding;
mod ineffective;
mod keeping;
mod loops;
mod mistakes;
mod objects;
mod order;
mod patching;
mod pausing;
mod published;
mod reading;
mod related;
mod repeating;
mod selecting;
mod support;
mod typed;
mod unexpected;
mod writes;
