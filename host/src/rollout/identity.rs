//! Which host writes a status.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};

use jiff::Timestamp;

use super::managed::time;
use davit_core::api::HostStatus;

/// Where the kernel has the name of a machine; of a pod, in a pod.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// One host, told from any other, and from a former one in the same place.
pub(super) struct Identity {
    id: String,
    name: String,
}

impl Identity {
    /// One that nobody had before.
    pub(super) fn new() -> Self {
        // The seed of every RandomState is another one.
        let id = RandomState::new().build_hasher().finish();
        let name = std::fs::read_to_string(HOST_NAME).unwrap_or_default();
        let name = name.trim();
        Self {
            id: format!("{id:016x}"),
            name: if name.is_empty() { "unknown" } else { name }.to_owned(),
        }
    }

    /// What a status says of the host that writes it.
    pub(super) fn status(&self) -> HostStatus {
        HostStatus {
            id: self.id.clone(),
            name: self.name.clone(),
            renewed_at: time(Timestamp::now()),
        }
    }
}
