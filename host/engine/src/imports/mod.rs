//! The functions that guests import.

mod cache;
mod live;
mod lookup;
pub(crate) mod wasi;
