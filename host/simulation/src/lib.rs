//! A world in memory that Davit's machine runs in: an API server, streams,
//! executions and reads, on virtual time, in one thread, from one seed.
//!
//! A [`World`] is everything outside of the machine. Its owner starts and stops
//! streams, executes plans and reads; [`World::next`] moves time on to the next
//! [`Notice`]. What happens, when, and in which order is drawn from the seed, so
//! that the same seed always tells the same story.
//!
//! There is no socket, no async code and no clock here. The server is
//! `davit-sim`'s model. Watches, projection, requests and the meaning of answers
//! are the core's own, the same that the real host uses.

pub mod dice;
pub mod host;
pub mod schedule;
pub mod server;
mod stream;
pub mod trace;
mod watchdog;
mod world;

pub use dice::Dice;
pub use host::{Guest, Host, NativeGuest, Reconciliation};
pub use world::{Conditions, ExecutionId, Notice, World, Write};
