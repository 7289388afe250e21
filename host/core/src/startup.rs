//! What follows from where the controllers of a host are declared, and which changes of a
//! configuration file wait for the next start.

use crate::manifest::Rate;
use crate::trust::UnsignedPolicy;

/// Where the controllers of a host are declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerOrigin {
    /// As resources of the cluster.
    Cluster,
    /// In the configuration file.
    File,
}

/// Where a host stores the records of its controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordPlace {
    /// In the cluster, with the Controllers.
    Cluster,
    /// In a directory.
    Directory,
    /// In memory: a restart drops them.
    Memory,
}

/// A replica that controllers of a file cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the controllers of a configuration file have no Leases; run one replica, or define \
     Controllers in the cluster"
)]
pub struct ReplicaOfFile;

impl ControllerOrigin {
    /// Whether the host takes part in leader election. No other replica reads the records
    /// of a file's controllers, so that a second one would decide without them.
    pub fn has_leases(self, is_single: bool, names_replica: bool) -> Result<bool, ReplicaOfFile> {
        match self {
            Self::File if names_replica => Err(ReplicaOfFile),
            Self::File => Ok(false),
            Self::Cluster => Ok(!is_single),
        }
    }

    /// Where the records are stored, with or without a directory for files.
    #[must_use]
    pub const fn record_place(self, has_directory: bool) -> RecordPlace {
        match (self, has_directory) {
            (Self::Cluster, _) => RecordPlace::Cluster,
            (Self::File, true) => RecordPlace::Directory,
            (Self::File, false) => RecordPlace::Memory,
        }
    }
}

/// The settings of a configuration file that take effect when the host starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StartSettings {
    /// Where the controllers are declared.
    pub origin: ControllerOrigin,
    /// The client-side rate of requests.
    pub rate: Rate,
    /// What the host does with unsigned modules.
    pub unsigned: UnsignedPolicy,
}

/// What a host does with a file that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// The parts of the file whose change takes effect at the next start.
    pub deferred: Vec<&'static str>,
    /// What happens to the controllers.
    pub controllers: ControllersChange,
}

/// What happens to the controllers after a change of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllersChange {
    /// Those of the file are applied.
    Apply,
    /// None: they are those of the cluster.
    None,
    /// They would be declared in another place. A host has the records, the requests and
    /// the leases of one place: its present controllers continue to run.
    OtherOrigin,
}

impl StartSettings {
    /// What a host that was started with these settings does with a file that has the
    /// settings `next` now.
    #[must_use]
    pub fn change(&self, next: &Self) -> FileChange {
        let parts = [
            ("client", self.rate != next.rate),
            ("trust", self.unsigned != next.unsigned),
        ];
        let deferred = parts.into_iter().filter(|(_, has_changed)| *has_changed);
        FileChange {
            deferred: deferred.map(|(part, _)| part).collect(),
            controllers: match (self.origin, next.origin) {
                (ControllerOrigin::File, ControllerOrigin::File) => ControllersChange::Apply,
                (ControllerOrigin::Cluster, ControllerOrigin::Cluster) => ControllersChange::None,
                _ => ControllersChange::OtherOrigin,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: StartSettings = StartSettings {
        origin: ControllerOrigin::Cluster,
        rate: Rate {
            per_second: 10.0,
            burst: 20,
        },
        unsigned: UnsignedPolicy::Deny,
    };
    const FILE: StartSettings = StartSettings {
        origin: ControllerOrigin::File,
        ..CLUSTER
    };

    #[test]
    fn only_the_controllers_of_a_file_are_applied_while_the_host_runs() {
        for (before, after, controllers) in [
            (FILE, FILE, ControllersChange::Apply),
            (CLUSTER, CLUSTER, ControllersChange::None),
            (FILE, CLUSTER, ControllersChange::OtherOrigin),
            (CLUSTER, FILE, ControllersChange::OtherOrigin),
        ] {
            let change = before.change(&after);
            assert_eq!(change.controllers, controllers);
            assert!(change.deferred.is_empty());
        }
    }

    #[test]
    fn other_settings_wait_for_the_next_start_and_delay_no_controller() {
        let faster = Rate {
            per_second: 11.0,
            ..FILE.rate
        };
        let rate = StartSettings {
            rate: faster,
            ..FILE
        };
        let unsigned = StartSettings {
            unsigned: UnsignedPolicy::Allow,
            ..FILE
        };
        let both = StartSettings {
            unsigned: UnsignedPolicy::Allow,
            ..rate
        };
        for (next, deferred) in [
            (rate, vec!["client"]),
            (unsigned, vec!["trust"]),
            (both, vec!["client", "trust"]),
        ] {
            let change = FILE.change(&next);
            assert_eq!(change.deferred, deferred);
            assert_eq!(change.controllers, ControllersChange::Apply);
        }
    }

    #[test]
    fn a_file_has_one_replica_without_leases() {
        use ControllerOrigin::{Cluster, File};
        for is_single in [false, true] {
            assert_eq!(File.has_leases(is_single, false), Ok(false));
            assert_eq!(File.has_leases(is_single, true), Err(ReplicaOfFile));
            for names_replica in [false, true] {
                let expected = Ok(!is_single);
                assert_eq!(Cluster.has_leases(is_single, names_replica), expected);
            }
        }
        assert_eq!(File.record_place(true), RecordPlace::Directory);
        assert_eq!(File.record_place(false), RecordPlace::Memory);
        for has_directory in [false, true] {
            assert_eq!(Cluster.record_place(has_directory), RecordPlace::Cluster);
        }
    }
}
