//! A revision of a guest: its identity, and what is needed to run it.

use std::fmt;
use std::sync::Arc;

use crate::digest::ModuleDigest;
use crate::manifest::Manifest;

/// The resources that a revision's calls may use. They are part of its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// Memory of one instance, in MiB.
    pub memory_mib: u32,
    /// Time that a call may compute, in milliseconds.
    pub call_millis: u64,
    /// The number of concurrent calls.
    pub instances: u32,
}

/// The identity of a revision: a module, its configuration and its limits. Two
/// revisions of the same identity behave the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevisionIdentity {
    module: ModuleDigest,
    config: Arc<[u8]>,
    limits: CallLimits,
    /// Derived from the others, and stored because it is read far more often than
    /// created.
    name: Arc<str>,
    config_hash: Arc<str>,
}

impl RevisionIdentity {
    /// The identity of a module with the operator's configuration, encoded as the
    /// guest receives it, and limits.
    pub fn new(module: ModuleDigest, config: Arc<[u8]>, limits: impl Into<CallLimits>) -> Self {
        let limits = limits.into();
        let CallLimits {
            memory_mib,
            call_millis,
            instances,
        } = limits;
        let text = format!("{memory_mib} {call_millis} {instances} ");
        let all = [&module.0, text.as_bytes(), &config].concat();
        Self {
            name: hex(&all, 10).into(),
            config_hash: config_hash(&config).into(),
            module,
            config,
            limits,
        }
    }

    /// The revision's name: ten hexadecimal digits.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The module.
    #[must_use]
    pub fn digest(&self) -> ModuleDigest {
        self.module
    }

    /// The configuration, encoded as the guest receives it.
    #[must_use]
    pub fn config(&self) -> &Arc<[u8]> {
        &self.config
    }

    /// Twelve hexadecimal digits that identify the configuration.
    #[must_use]
    pub fn config_hash(&self) -> &str {
        &self.config_hash
    }

    /// The resources that a call may use.
    #[must_use]
    pub fn limits(&self) -> CallLimits {
        self.limits
    }
}

impl fmt::Display for RevisionIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Twelve hexadecimal digits that identify a configuration, encoded as the guest receives it.
pub(crate) fn config_hash(config: &[u8]) -> String {
    hex(config, 12)
}

/// The first hexadecimal digits of a SHA-256.
fn hex(bytes: &[u8], digits: usize) -> String {
    let mut text = ModuleDigest::of(bytes).to_string();
    text.truncate(digits);
    text
}

/// A revision that is ready to run. `G` is the guest, which only the driver can
/// call.
#[derive(Clone, Debug)]
pub struct LoadedRevision<G> {
    /// The guest, described and with its instances reserved.
    pub guest: G,
    /// The guest's manifest.
    pub manifest: Arc<Manifest>,
    /// The identity of the revision.
    pub identity: RevisionIdentity,
    /// Why its module was loaded from the module cache, if the source cannot be
    /// read.
    pub away: Option<String>,
    /// Whether its module ships with Davit: without permissions in its spec, it may read
    /// and write what it declares.
    pub is_shipped: bool,
}

impl<G> LoadedRevision<G> {
    /// A revision whose module ships with Davit.
    #[must_use]
    pub fn shipped(guest: G, manifest: Arc<Manifest>, identity: RevisionIdentity) -> Self {
        Self {
            guest,
            manifest,
            identity,
            away: None,
            is_shipped: true,
        }
    }
}

/// Revisions are the same if their identities are.
impl<G> PartialEq for LoadedRevision<G> {
    fn eq(&self, other: &Self) -> bool {
        self.identity == other.identity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_differs_with_module_config_and_limits() {
        let limits = CallLimits {
            memory_mib: 64,
            call_millis: 1000,
            instances: 4,
        };
        let one = RevisionIdentity::new(ModuleDigest([1; 32]), [0x80].into(), limits);
        let others = [
            RevisionIdentity::new(ModuleDigest([2; 32]), [0x80].into(), limits),
            RevisionIdentity::new(ModuleDigest([1; 32]), [0x81].into(), limits),
            RevisionIdentity::new(
                ModuleDigest([1; 32]),
                [0x80].into(),
                CallLimits {
                    instances: 5,
                    ..limits
                },
            ),
        ];
        assert_eq!(one.to_string().len(), 10);
        for other in others {
            assert_ne!(one.to_string(), other.to_string());
        }
    }
}
