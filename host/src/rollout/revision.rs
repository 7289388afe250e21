//! Revisions as rollouts have them: ready to run, or why they cannot be had.

use davit_cluster::api::chain;
use davit_core::revision::RevisionIdentity;
use davit_engine::LoadError;

use super::conditions::Known;
use super::preparation::{COMPILED, CONFIGURED, RESOLVED, VERIFIED};
use super::text::one_line;
use crate::loader::{LoadedRevision, RevisionLoadError};
use crate::modules::ModuleError;
use davit_core::api::ModuleConfig;
use davit_core::api::RevisionStatus;
use davit_core::api::{ControllerSpec, encode_config};

/// A revision that is ready to run, and what it was made of.
#[derive(Clone)]
pub(super) struct Revision {
    pub(super) prepared: LoadedRevision,
    /// With the digest of its module pinned.
    pub(super) spec: ControllerSpec,
    /// Where its module comes from, for people.
    pub(super) origin: String,
}

/// Why a revision cannot be had, and which condition says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) condition: &'static str,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// Why the stable revision cannot be had again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Loss {
    pub(super) reason: String,
    /// Whether it was a built-in guest, and this Davit comes with another.
    pub(super) is_updated: bool,
}

impl Revision {
    pub(super) fn new(prepared: LoadedRevision, spec: &ControllerSpec) -> Self {
        let origin = spec.module.source.to_string();
        let module = ModuleConfig {
            digest: Some(prepared.identity.digest()),
            ..spec.module.clone()
        };
        let spec = ControllerSpec {
            module,
            ..spec.clone()
        };
        Self {
            prepared,
            spec,
            origin,
        }
    }

    pub(super) fn name(&self) -> String {
        self.prepared.identity.to_string()
    }

    /// Whether this is what a spec describes, as far as the spec tells.
    pub(super) fn is_described_by(&self, spec: &ControllerSpec) -> bool {
        let (own, module) = (&self.spec, &spec.module);
        module.source == own.module.source
            && module
                .digest
                .is_none_or(|pinned| own.module.digest == Some(pinned))
            && spec.config == own.config
            && spec.limits == own.limits
    }

    pub(super) fn status(&self, since: String) -> RevisionStatus {
        let identity = &self.prepared.identity;
        RevisionStatus {
            revision: identity.to_string(),
            digest: format!("sha256:{}", identity.digest()),
            config_hash: identity.config_hash(),
            since,
        }
    }
}

impl Problem {
    /// Why a revision could not be prepared.
    pub(super) fn new(error: &RevisionLoadError) -> Self {
        let (condition, reason) = match error {
            RevisionLoadError::Module(ModuleError::OtherDigest { .. }) => (VERIFIED, "OtherDigest"),
            RevisionLoadError::Module(_) => (RESOLVED, "NotFound"),
            RevisionLoadError::Load(LoadError::TooLarge { .. }) => (VERIFIED, "TooLarge"),
            RevisionLoadError::Load(LoadError::Compile(_)) => (COMPILED, "NotWasm"),
            RevisionLoadError::Load(_) => (VERIFIED, "NoGuest"),
            RevisionLoadError::Describe(_) | RevisionLoadError::Encode(_) => {
                (CONFIGURED, "Refused")
            }
        };
        Self {
            condition,
            reason,
            message: one_line(&chain(error)),
        }
    }

    /// Preparing it ended without an answer.
    pub(super) fn unprepared(message: String) -> Self {
        Self {
            condition: RESOLVED,
            reason: "Unprepared",
            message,
        }
    }

    /// What is known of the module after this: whether it was loaded, is the
    /// one wanted and a guest, compiles, and accepts its configuration.
    pub(super) fn known(&self) -> [Known; 4] {
        use Known::{False, True, Unknown};
        match self.reason {
            "Unprepared" => [Unknown; 4],
            "OtherDigest" | "TooLarge" => [True, False, Unknown, Unknown],
            // What does not compile is no guest.
            "NotWasm" => [True, False, False, Unknown],
            "NoGuest" => [True, False, True, Unknown],
            "Refused" => [True, True, True, False],
            _ => [False, Unknown, Unknown, Unknown],
        }
    }
}

/// Whether what a spec describes has the configuration and limits of a revision
/// that was had before.
pub(super) fn differs_in_module_alone(spec: &ControllerSpec, former: &RevisionStatus) -> bool {
    let digest = former.digest.parse();
    let config = encode_config(&spec.config);
    digest.is_ok_and(|digest| {
        config.is_ok_and(|config| {
            RevisionIdentity::new(digest, config.into(), spec.limits).to_string() == former.revision
        })
    })
}
