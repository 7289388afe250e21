//! A world in memory that Davit's host runs in: an API server, streams, plans, live reads,
//! records and modules, on virtual time, in one thread, from one seed.
//!
//! A [`World`] is everything outside of the host. [`World::perform`] takes an effect of
//! the core's machine; [`World::next`] moves time on to the next [`Notice`]. The seed decides what happens, when, and in which order: the same seed
//! always gives the same story. A [`Host`] is the core's host with a
//! driver in such a world.
//!
//! There is no socket, no async code and no clock here. The server is
//! `davit-sim`'s model. Watches, projection, requests and the meaning of answers
//! are the core's own, the same that the real host uses.

pub mod dice;
pub mod host;
pub mod modules;
pub mod records;
pub mod schedule;
pub mod server;
mod stream;
pub mod trace;
mod watchdog;
mod world;

pub use dice::Dice;
pub use host::{Guest, Host, NativeGuest, Reconciliation};
pub use modules::{DescribeResult, Module, Modules};
pub use records::Records;
pub use world::{Conditions, Notice, World, Write};
