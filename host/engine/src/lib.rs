//! Davit's guests: compiled once, checked, linked, and called under limits.
//!
//! [`Engine::load`] makes a [`Module`] from a component, or reports the imports
//! or exports that a guest must not have. A [`Compiler`] compiles it, in the host in
//! a child process with limits. A [`Guest`] is a module with a
//! configuration; [`Guest::reconcile`] asks it for decisions. Whatever a guest
//! does costs only that guest its call and the instance: the error has the
//! cause, the next call gets a new instance, and other guests do not notice.
//!
//! A guest gets only what `wit/` names: no moving clock, no randomness, no
//! files, no network, no environment.

mod artifacts;
pub mod cache_files;
mod call;
mod child;
mod compiler;
mod convert;
mod cpu;
mod engine;
mod error;
mod guest;
mod imports;
mod instance;
mod limits;
mod log;
mod module;
mod pool;
mod precompiled;
mod program;
pub mod seal;
mod state;
mod ticker;
mod usage;
mod wit;
mod world;

pub use artifacts::{ArtifactsError, UnsafeProblem};
pub use call::{Call, LazyDecision, LiveReads, LoggedDecision};
pub use child::run_child;
pub use compiler::{ChildCompiler, CompileError, CompileLimits, Compiler};
pub use convert::Encoding;
#[cfg(fuzzing)]
pub use convert::fuzz::answers as fuzz_answers;
pub use engine::{Engine, EngineConfig, EngineError, LoadError};
pub use error::{CallError, DescribeError, TrapReport};
pub use guest::Guest;
pub use limits::Limits;
pub use module::Module;
pub use usage::InstanceUsage;
pub use world::{WorldError, WorldVersion};
