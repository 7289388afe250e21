//! The revisions of rollouts: loaded, with the spec that describes them.

use crate::api::{ControllerSpec, ModuleConfig, RevisionStatus, encode_config};
use crate::digest::ModuleDigest;
use crate::revision::{LoadedRevision, RevisionIdentity};

/// A loaded revision, and the spec that it was loaded for.
#[derive(Clone, Debug)]
pub(super) struct Revision<G> {
    pub(super) loaded: LoadedRevision<G>,
    /// With the digest of its module pinned.
    pub(super) spec: ControllerSpec,
    /// The source of its module, for people.
    pub(super) origin: String,
    /// Whether the present spec describes it. Only a declaration and a load change that,
    /// and every reconcile asks for it.
    pub(super) is_described: bool,
    /// Whether its module is what was last read from the source: not if another replica may have
    /// read the source since. Such a revision is not described until the source is read again.
    pub(super) is_confirmed: bool,
}

impl<G> Revision<G> {
    pub(super) fn new(loaded: LoadedRevision<G>, spec: &ControllerSpec) -> Self {
        let origin = spec.module.source.to_string();
        let module = ModuleConfig {
            digest: Some(loaded.identity.digest()),
            ..spec.module.clone()
        };
        let spec = ControllerSpec {
            module,
            ..spec.clone()
        };
        Self {
            loaded,
            spec,
            origin,
            is_described: false,
            is_confirmed: true,
        }
    }

    /// The same as the stable revision, which a record confirms.
    pub(super) fn to_stable(&self) -> Self
    where
        G: Clone,
    {
        Self {
            is_confirmed: true,
            ..self.clone()
        }
    }

    pub(super) fn identity(&self) -> &RevisionIdentity {
        &self.loaded.identity
    }

    pub(super) fn name(&self) -> &str {
        self.identity().name()
    }

    pub(super) fn digest(&self) -> ModuleDigest {
        self.identity().digest()
    }

    /// Whether a spec describes this revision, as far as the spec determines it.
    pub(super) fn is_described_by(&self, spec: &ControllerSpec) -> bool {
        let (own, module) = (&self.spec, &spec.module);
        module.source == own.module.source
            && module
                .digest
                .is_none_or(|pinned| own.module.digest == Some(pinned))
            // Other signatures are verified before the revision continues.
            && module.verify == own.module.verify
            && spec.config == own.config
            && spec.limits.is_same_revision(own.limits)
    }

    /// Whether a record is of this revision. A name alone is too short to trust: somebody
    /// can make a module whose revision has the same one.
    pub(super) fn is_recorded_as(&self, recorded: &RevisionStatus) -> bool {
        self.name() == recorded.revision && recorded.digest.parse() == Ok(self.digest())
    }

    /// The revision in a status.
    pub(super) fn status(&self, since: String, unsigned: bool) -> RevisionStatus {
        let identity = self.identity();
        RevisionStatus {
            revision: identity.to_string(),
            digest: format!("sha256:{}", identity.digest()),
            config_hash: identity.config_hash().to_owned(),
            since,
            unsigned,
        }
    }
}

/// Whether two specs describe the same revision, as far as they determine it.
#[must_use]
pub fn is_same_revision(one: &ControllerSpec, other: &ControllerSpec) -> bool {
    one.module == other.module
        && one.config == other.config
        && one.limits.is_same_revision(other.limits)
}

/// Whether a spec differs from a former revision only by an update of Davit: the same
/// built-in guest, configuration and limits. Then the update is the only change.
pub(super) fn is_update_of(spec: &ControllerSpec, former: &RevisionStatus) -> bool {
    let is_builtin = spec.module.source.is_builtin();
    is_builtin && spec.module.digest.is_none() && differs_in_module_alone(spec, former)
}

/// Whether a spec with the module of a recorded revision describes that revision.
pub(super) fn differs_in_module_alone(spec: &ControllerSpec, former: &RevisionStatus) -> bool {
    let digest = former.digest.parse();
    let config = encode_config(&spec.config);
    digest.is_ok_and(|digest| {
        config.is_ok_and(|config| {
            RevisionIdentity::new(digest, config.into(), spec.limits).to_string() == former.revision
        })
    })
}
