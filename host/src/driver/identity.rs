//! Which host writes a record.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};

use davit_core::control::HostIdentity;

/// Where the kernel has the name of a machine; of a pod, in a pod.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// An identity that no host had before.
pub(super) fn new() -> HostIdentity {
    // The seed of every RandomState is another one.
    let id = RandomState::new().build_hasher().finish();
    let name = std::fs::read_to_string(HOST_NAME).unwrap_or_default();
    let name = name.trim();
    HostIdentity {
        id: format!("{id:016x}"),
        name: if name.is_empty() { "unknown" } else { name }.to_owned(),
    }
}
