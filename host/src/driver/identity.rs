//! The identity of a host in records and in leases.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};

use davit_core::control::HostIdentity;

/// The name of the machine in the kernel; in a pod, the name of the pod.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// A new, unique identity.
pub(super) fn new() -> HostIdentity {
    let name = host_name();
    HostIdentity {
        id: unique(),
        name: if name.is_empty() {
            "unknown".to_owned()
        } else {
            name
        },
    }
}

/// A new, unique identity of a replica, whose Lease can have this name.
pub(crate) fn of_replica(name: Option<&str>) -> String {
    let own = host_name().to_ascii_lowercase();
    let own = own.replace(|one: char| !one.is_ascii_alphanumeric(), "-");
    let name = name.unwrap_or_else(|| own.trim_matches('-'));
    let unique = unique();
    match name {
        "" => unique,
        name => format!("{name}-{unique}"),
    }
}

fn host_name() -> String {
    let name = std::fs::read_to_string(HOST_NAME).unwrap_or_default();
    name.trim().to_owned()
}

/// Sixteen hexadecimal digits.
fn unique() -> String {
    format!("{:016x}", random())
}

/// Random bits of the operating system, with which the standard library seeds its hash maps: every
/// `RandomState` has another seed.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
