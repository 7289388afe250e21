//! Everything between Davit and a Kubernetes API server: watches, live reads,
//! writes, events and discovery.
//!
//! Kube's client is used as an HTTP service that knows about TLS, credentials
//! and the server's address. What a watch, a live read or a write asks, and what
//! an answer means, is decided in `davit_core`.

pub mod api;
pub mod clock;
pub mod connect;
pub mod discovery;
pub mod events;
pub mod live;
pub mod reflector;
pub mod write;

mod cause;
mod limiter;

#[cfg(test)]
mod testing;
