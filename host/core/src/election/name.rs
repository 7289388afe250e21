//! The names of leases.

/// What a Lease is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeaseName {
    /// Its holder writes for this controller.
    Controller(String),
    /// Shows that the replica of this identity runs.
    Replica(String),
}
