//! The namespace that the hosts use.

/// The namespace of the hosts, of their leases and of the accounts of their controllers.
pub const NAMESPACE: &str = "davit";
