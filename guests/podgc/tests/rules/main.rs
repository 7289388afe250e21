//! The rules of PodGC.

mod common;
mod config;
mod orphaned;
mod terminated;
mod terminating;
