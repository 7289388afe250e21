//! Davit's guests: compiled once, checked, linked, and called under limits.
//!
//! [`Engine::load`] takes a component and makes a [`Module`] of it, or says what
//! it imports or exports that no guest may. A [`Guest`] is a module with a
//! configuration; [`Guest::reconcile`] asks it for decisions. Whatever a guest
//! does, it costs that guest its call and the instance that it ran in: the
//! errors say what happened, the next call gets a new instance, and other
//! guests do not notice.
//!
//! A guest is given nothing but what `wit/` names: no clock that moves, no
//! randomness, no files, no network, no environment.

mod artifacts;
mod call;
mod convert;
mod engine;
mod error;
mod guest;
mod imports;
mod instance;
pub mod kept;
mod limits;
mod log;
mod module;
mod precompiled;
mod state;
mod wit;
mod world;

pub use artifacts::{ArtifactsError, UnsafeProblem};
pub use call::{Call, LiveReads};
pub use convert::{BodyError, Malformed, Place};
pub use engine::{Engine, EngineConfig, EngineError, LoadError};
pub use error::{CallError, DescribeError, TrapReport};
pub use guest::Guest;
pub use limits::Limits;
pub use module::Module;
pub use world::{WorldError, WorldVersion};
