//! The functions that guests import.

mod cache;
mod live;
mod lookup;
pub(crate) mod wasi;

use davit_core::msgpack::JsonError;

use crate::error::Mistake;

/// A value of the host that the guest's encoding must be able to express. The values come from
/// the API server's JSON, from the operator's, or from notes that were checked.
fn readable<T>(value: Result<T, JsonError>) -> wasmtime::Result<T> {
    match value {
        Ok(value) => Ok(value),
        Err(error) => Mistake::trap(format!("it read a value that has no JSON: {error}")),
    }
}
