//! Whether the memory of all instances fits into the container.
//!
//! A container whose processes need more than its limit is killed, with every controller
//! in it. So a revision is not prepared if all instances together could need more.

use crate::revision::CallLimits;

use super::MIB;

/// What is left for the host itself: its cache, its queues and its caches of modules.
const HOST: u64 = 128 * MIB as u64;

/// The instances of a revision do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{instances} instances of {memory_mib} MiB do not fit into the container: the {others} other \
     loaded revisions may need {others_mib} MiB and the host {host_mib} MiB, and the memory limit \
     of the container is {limit_mib} MiB: lower limits.instances or limits.memoryMib of this or \
     another controller, or raise the memory limit of the container"
)]
pub struct MemoryExceeded {
    instances: u32,
    memory_mib: u32,
    others: usize,
    others_mib: u64,
    host_mib: u64,
    limit_mib: u64,
}

/// Whether the instances of one more revision fit into a container with this memory
/// limit, in bytes, beside those of the loaded revisions.
pub fn admit(
    limit: u64,
    loaded: impl IntoIterator<Item = CallLimits>,
    wanted: CallLimits,
) -> Result<(), MemoryExceeded> {
    let bytes = |limits: CallLimits| {
        let mib = u64::from(limits.instances) * u64::from(limits.memory_mib);
        mib * MIB as u64
    };
    let (mut others, mut loaded_bytes) = (0, 0);
    for limits in loaded {
        others += 1;
        loaded_bytes += bytes(limits);
    }
    if HOST + loaded_bytes + bytes(wanted) <= limit {
        return Ok(());
    }
    let mib = |bytes: u64| bytes / MIB as u64;
    Err(MemoryExceeded {
        instances: wanted.instances,
        memory_mib: wanted.memory_mib,
        others,
        others_mib: mib(loaded_bytes),
        host_mib: mib(HOST),
        limit_mib: mib(limit),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1024 * MIB as u64;

    #[test]
    fn all_instances_and_the_host_fit_into_the_container() {
        let limits = CallLimits {
            memory_mib: 64,
            call_millis: 1000,
            instances: 4,
        };
        // 128 MiB for the host, and 256 MiB for each revision.
        assert_eq!(admit(GIB, [limits; 2], limits), Ok(()));
        let exceeded = admit(GIB - 1, [limits; 3], limits).unwrap_err();
        assert_eq!(
            exceeded.to_string(),
            "4 instances of 64 MiB do not fit into the container: the 3 other loaded revisions \
             may need 768 MiB and the host 128 MiB, and the memory limit of the container is \
             1023 MiB: lower limits.instances or limits.memoryMib of this or another controller, \
             or raise the memory limit of the container"
        );
        let exact = 128 * MIB as u64 + 2 * 256 * MIB as u64;
        assert_eq!(admit(exact, [limits], limits), Ok(()));
        assert!(admit(exact - 1, [limits], limits).is_err());
    }
}
