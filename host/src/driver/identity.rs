//! The identity of a host in records.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};

use davit_core::control::HostIdentity;

/// The name of the machine in the kernel; in a pod, the name of the pod.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// A new, unique identity.
pub(super) fn new() -> HostIdentity {
    // Every RandomState has another seed.
    let id = RandomState::new().build_hasher().finish();
    let name = std::fs::read_to_string(HOST_NAME).unwrap_or_default();
    let name = name.trim();
    HostIdentity {
        id: format!("{id:016x}"),
        name: if name.is_empty() { "unknown" } else { name }.to_owned(),
    }
}
