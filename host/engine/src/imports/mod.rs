//! What guests may call.

mod cache;
mod live;
mod lookup;
pub(crate) mod wasi;
