//! The guest taint-eviction end to end: its cases that need an API server or time, by
//! the ids of the specification; and the host's additions.

mod cluster;
mod conformance;
mod faults;
mod host;
mod scale;
mod speed;
mod starts;
