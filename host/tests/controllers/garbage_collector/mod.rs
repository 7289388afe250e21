//! The garbage collector end to end: the component in the host against the API server
//! in memory, on virtual time.
//!
//! The names start with the ids of the specification's cases. If a case checks the
//! inside of kube-controller-manager (a queue's length, a virtual node, the graph), the
//! test checks the outcome instead.

mod cascade;
mod cluster;
mod conflicting;
mod conformance;
mod discovery;
mod faults;
mod foreground;
mod index;
mod orphan;
mod progress;
mod unserved;
