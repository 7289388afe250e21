//! Which modules may write: those that are built in, pinned by a digest, or signed.
//!
//! A module from a `ConfigMap` or a tag can change without a change of the spec. Whoever
//! may write there decides what runs, so the host's configuration says what such a
//! module may do.

use serde::{Deserialize, Serialize};

use crate::api::{ModuleConfig, ModuleSource, RevisionStatus};

/// What the host does with unsigned modules: those that are neither built in, nor pinned
/// by a digest, nor signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnsignedPolicy {
    /// It does not run them.
    Deny,
    /// It runs them in a dry run, whatever the mode, and as candidates in the shadow of
    /// the stable revision.
    #[default]
    DryRunOnly,
    /// It runs them as any other module.
    Allow,
}

/// Which modules a host trusts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrustPolicy {
    /// What it does with unsigned modules.
    pub unsigned: UnsignedPolicy,
    /// Whether it trusts modules from files: its controllers are those of a
    /// configuration file, whose owner names the files.
    pub files: bool,
}

impl TrustPolicy {
    /// Whether a module is unsigned. A module with required signatures is loaded only if
    /// it has them.
    #[must_use]
    pub fn is_unsigned(self, module: &ModuleConfig) -> bool {
        if module.digest.is_some() || module.verify.is_some() {
            return false;
        }
        match &module.source {
            ModuleSource::Builtin(_) => false,
            ModuleSource::File(_) => !self.files,
            ModuleSource::ConfigMap(_) => true,
            // A manifest names its module by digest.
            ModuleSource::Oci(oci) => oci.reference.0.digest().is_none(),
        }
    }

    /// Whether the host does not run a module.
    #[must_use]
    pub fn denies(self, module: &ModuleConfig) -> bool {
        self.unsigned == UnsignedPolicy::Deny && self.is_unsigned(module)
    }

    /// Whether the host does not run a recorded revision, whose module may be unsigned.
    #[must_use]
    pub fn denies_recorded(self, revision: &RevisionStatus) -> bool {
        self.unsigned == UnsignedPolicy::Deny && revision.unsigned
    }

    /// Whether a revision with an unsigned module may write.
    #[must_use]
    pub fn admits_unsigned(self) -> bool {
        self.unsigned == UnsignedPolicy::Allow
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_module_is_trusted_that_cannot_change_or_is_signed() {
        const DIGEST: &str =
            "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
        let config_map = json!({"namespace": "a", "name": "b", "key": "c"});
        let tag = json!({"reference": "a/b:1"});
        let cases = [
            (json!({"builtin": "podgc"}), false, false),
            (json!({"file": "/a.wasm"}), true, false),
            (json!({"file": "/a.wasm", "digest": DIGEST}), false, false),
            (json!({"configMap": config_map}), true, true),
            (
                json!({"configMap": config_map, "digest": DIGEST}),
                false,
                false,
            ),
            (json!({"oci": tag}), true, true),
            (json!({"oci": tag, "digest": DIGEST}), false, false),
            (
                json!({"oci": {"reference": format!("a/b@{DIGEST}")}}),
                false,
                false,
            ),
            (
                json!({"oci": tag, "verify": {"allOf": [{"key": {"pem": "a"}}]}}),
                false,
                false,
            ),
        ];
        for (module, in_cluster, in_file) in cases {
            let read =
                |value: &Value| serde_json::from_value::<ModuleConfig>(value.clone()).unwrap();
            for (files, expected) in [(false, in_cluster), (true, in_file)] {
                for unsigned in [
                    UnsignedPolicy::Deny,
                    UnsignedPolicy::DryRunOnly,
                    UnsignedPolicy::Allow,
                ] {
                    let policy = TrustPolicy { unsigned, files };
                    assert_eq!(policy.is_unsigned(&read(&module)), expected, "{module}");
                    let denied = expected && unsigned == UnsignedPolicy::Deny;
                    assert_eq!(policy.denies(&read(&module)), denied, "{module}");
                }
            }
        }
    }
}
