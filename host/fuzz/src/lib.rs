//! What is fuzzed: each function takes any bytes, and panics only if the project's code
//! is wrong. The tests `corpus` of davit-core and davit-sim, and a unit test of
//! davit-engine, run the functions on the kept corpora, on stable Rust.

mod bytes;
pub mod manifest;
pub mod msgpack;
pub mod project;
pub mod sim;
pub mod spec;

/// The answers of a guest, as the engine converts them.
#[cfg(feature = "engine")]
pub use davit_engine::fuzz_answers as answers;
