//! Everything between Davit and a Kubernetes API server: watches, live reads, writes,
//! access reviews, events and discovery.
//!
//! Kube's client is used as an HTTP service with TLS, credentials and the server's
//! address. `davit_core` decides what a watch, a live read or a write sends, and what
//! an answer means.

pub mod access;
pub mod api;
pub mod clock;
pub mod connect;
pub mod discovery;
pub mod events;
pub mod journal;
pub mod leases;
pub mod live;
pub mod observe;

pub mod records;
pub mod reflector;
pub mod tasks;
pub mod term;
pub mod write;

mod cause;
mod connections;
mod fence;
mod limiter;
mod paced;
mod watches;

#[cfg(test)]
mod testing;
