//! A world in memory that Davit's host runs in: an API server, streams, plans, live reads,
//! records and modules, on virtual time, in one thread, from one seed.
//!
//! A [`World`] is everything outside of the hosts. [`Link::perform`] takes an effect of
//! the core's machine; [`World::next`] advances time to the next [`Occurrence`]. The seed
//! decides what happens, when, and in which order: the same seed always gives the same
//! story. A [`Simulation`] runs the core's hosts, each with a driver, in such a world.
//!
//! There is no socket, no async code and no clock here. The server is
//! `davit-sim`'s model. Watches, projection, requests and the meaning of answers
//! are the core's own, the same that the real host uses.

pub mod dice;
pub mod execution;
pub mod fault;
pub mod guest;
pub mod host;
pub mod modules;
pub mod namespace;
mod record_server;
pub mod recording;
pub mod records;
pub mod schedule;
pub mod server;
pub mod simulation;
mod stream;
pub mod trace;
mod watchdog;
mod world;

pub use dice::Dice;
pub use execution::ExecutedPlan;
pub use fault::FaultKind;
pub use guest::{Guest, NativeGuest, Reconciliation};
pub use host::{Driver, Host};
pub use modules::{DescribeResult, Module, Modules};
pub use namespace::NAMESPACE;
pub use recording::{Recording, ReplayResult};
pub use records::Records;
pub use simulation::{Simulation, StopReason};
pub use world::{
    Conditions, Cut, HostIndex, Link, Notice, Occurrence, RecordWorkId, UndoneKinds, World, Write,
};
