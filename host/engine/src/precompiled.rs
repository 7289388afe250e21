//! The one place where machine code is trusted.

use wasmtime::component::Component;

/// Loads the output of [`Component::serialize`]. Wasmtime refuses code of
/// another version or for another configuration.
#[allow(
    unsafe_code,
    reason = "loading compiled code is unsafe by nature; it makes a start 100 times as fast"
)]
pub(crate) fn deserialize(engine: &wasmtime::Engine, code: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: the code must be what `Component::serialize` returned, unchanged. There
    // are two callers. `CompiledArtifacts::load` reads it from a file that only this
    // user can write, sealed with the secret key of its directory, under a header that
    // only `CompiledArtifacts::store` writes. `Engine::take` gets it over a pipe from a
    // child process of this program that has compiled the module.
    unsafe { Component::deserialize(engine, code) }
}
