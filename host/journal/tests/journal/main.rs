//! What `docs/journal.md` guarantees.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "a test that cannot go on is to fail; its numbers are small"
)]

mod crashes;
mod damage;
mod faults;
mod formats;
mod parts;
mod random;
mod reading;
mod retention;
mod support;
