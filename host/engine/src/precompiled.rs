//! The one place where machine code from a file is trusted.

use wasmtime::component::Component;

/// Loads the output of [`Component::serialize`]. Wasmtime refuses code of
/// another version or for another configuration.
#[allow(
    unsafe_code,
    reason = "loading compiled code is unsafe by nature; it makes a start 100 times as fast"
)]
pub(crate) fn deserialize(engine: &wasmtime::Engine, code: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: the code must be what `Component::serialize` returned, unchanged.
    // The only caller is `CompiledArtifacts::load`. It reads from a directory
    // that only this user can write to, and has verified a SHA-256 over the
    // code that was written together with it, under a header that only
    // `CompiledArtifacts::store` writes.
    unsafe { Component::deserialize(engine, code) }
}
