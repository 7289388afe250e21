//! Everything between Davit and a Kubernetes API server: watches and the
//! projection of what they bring, live reads, writes, events and discovery.
//!
//! Kube's client is used as an HTTP service that knows about TLS, credentials
//! and the server's address. What is asked, and what is made of the answers,
//! is decided here.

pub mod api;
pub mod clock;
pub mod connect;
pub mod discovery;
pub mod events;
pub mod live;
pub mod project;
pub mod reflector;
pub mod write;

mod cause;
mod limiter;
mod status;
mod url;

#[cfg(test)]
mod testing;
