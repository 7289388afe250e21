//! What is measured.

pub(crate) mod answers;
pub(crate) mod calls;
pub(crate) mod controllers;
pub(crate) mod extremes;
pub(crate) mod growth;
pub(crate) mod heartbeats;
pub(crate) mod host;
pub(crate) mod journal;
pub(crate) mod latency;
pub(crate) mod passes;
pub(crate) mod policy;
pub(crate) mod projector;
pub(crate) mod resources;
pub(crate) mod simulator;
pub(crate) mod store;
pub(crate) mod writes;
