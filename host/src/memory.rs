//! The memory limit of the container that the host runs in.

use std::fs;
use std::path::Path;

/// Cgroups of version 2, then of version 1, as a container sees its own.
const FILES: [&str; 2] = [
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
];

/// A limit of version 1 beyond this is none.
const UNLIMITED: u64 = 1 << 60;

/// The limit in bytes; none if there is none, or if it cannot be read.
pub(crate) fn container_limit() -> Option<u64> {
    FILES.iter().find_map(|file| limit_in(Path::new(file)))
}

fn limit_in(file: &Path) -> Option<u64> {
    // Version 2 has the word `max` for no limit.
    let limit = fs::read_to_string(file).ok()?.trim().parse().ok()?;
    (limit < UNLIMITED).then_some(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_number_of_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("memory.max");
        for (text, limit) in [
            ("536870912\n", Some(536_870_912)),
            ("max\n", None),
            ("9223372036854771712\n", None),
            ("", None),
        ] {
            fs::write(&file, text).unwrap();
            assert_eq!(limit_in(&file), limit, "{text:?}");
        }
        assert_eq!(limit_in(&directory.path().join("absent")), None);
    }
}
