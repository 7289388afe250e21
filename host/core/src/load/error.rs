//! Why a revision cannot be loaded, and what follows from that.

use crate::api::{ControllerSpec, SpecError};
use crate::control::{LoadFailure, LoadProblem, SourceVersion};
use crate::digest::ModuleDigest;
use crate::untrusted;

/// Why a revision cannot be loaded. A driver reports it of the step that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", kind.step().part())]
pub struct RevisionLoadError {
    /// What failed.
    pub kind: LoadErrorKind,
    /// The failure with its causes.
    pub message: String,
}

/// The kinds of failures, by step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadErrorKind {
    /// The source cannot be read, so nobody knows its module.
    Unavailable,
    /// The source is in a cluster, and Davit was started without one.
    NoCluster,
    /// The source can be read, and has no module that could be used.
    NoModule,
    /// Davit has no built-in guest of that name. The directory of built-in guests can
    /// always be read: the name is misspelt, or the guest is no longer shipped.
    NoSuchBuiltin,
    /// The module does not have the required signatures.
    NotSigned,
    /// The source holds another module than the pinned one.
    OtherModule(OtherModule),

    /// The module is larger than any guest.
    TooLarge,
    /// The module does not compile.
    NotWasm,
    /// The compiler crashed on the module.
    CompilerCrash,
    /// Compiling the module takes more than a compiler may use.
    CompilerLimit,
    /// The compiler cannot be run.
    NoCompiler,
    /// The module is WebAssembly, but not a guest that this host can run.
    NotAGuest,

    /// The configuration cannot be written as MessagePack.
    Encode,
    /// The instances of all revisions may need more memory than the container has.
    Memory,
    /// The engine has no instances left.
    NoInstances,
    /// The guest exceeded its time. On a busy machine, a call takes longer.
    Deadline,
    /// The guest refuses its configuration.
    Config {
        /// The path of the wrong value, by the guest; empty for the whole configuration.
        field: String,
        /// What is wrong with the value, by the guest.
        reason: String,
    },
    /// The configuration names a field that objects do not have, as far as the API server says.
    UnknownField {
        /// The path of the wrong value.
        field: String,
        /// What is wrong with the value.
        reason: String,
    },
    /// The guest cannot be called, or returns no valid manifest.
    NoManifest,
}

/// The source holds another module than the pinned one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{origin} is the module sha256:{found}, and digest pins sha256:{wanted}: change digest if the \
     source's module should run"
)]
pub struct OtherModule {
    /// The source.
    pub origin: String,
    /// The digest of its module.
    pub found: ModuleDigest,
    /// The pinned digest.
    pub wanted: ModuleDigest,
}

impl From<OtherModule> for RevisionLoadError {
    fn from(other: OtherModule) -> Self {
        let message = other.to_string();
        Self {
            kind: LoadErrorKind::OtherModule(other),
            message,
        }
    }
}

/// The steps that fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadErrorStep {
    /// The module was not found.
    Find,
    /// The module was found, and does not become a guest.
    Compile,
    /// The guest would be too large for the container.
    Admit,
    /// The guest was not described.
    Describe,
}

impl LoadErrorStep {
    /// The part of the spec that is named first in messages.
    fn part(self) -> &'static str {
        match self {
            Self::Find | Self::Compile => "module",
            Self::Admit => "limits",
            Self::Describe => "config",
        }
    }
}

impl LoadErrorKind {
    /// The step that failed.
    #[must_use]
    pub fn step(&self) -> LoadErrorStep {
        match self {
            Self::Unavailable
            | Self::NoCluster
            | Self::NoModule
            | Self::NoSuchBuiltin
            | Self::NotSigned
            | Self::OtherModule(_) => LoadErrorStep::Find,
            Self::TooLarge
            | Self::NotWasm
            | Self::CompilerCrash
            | Self::CompilerLimit
            | Self::NoCompiler
            | Self::NotAGuest => LoadErrorStep::Compile,
            Self::Memory => LoadErrorStep::Admit,
            Self::Encode
            | Self::NoInstances
            | Self::Deadline
            | Self::Config { .. }
            | Self::UnknownField { .. }
            | Self::NoManifest => LoadErrorStep::Describe,
        }
    }

    /// Whether the content of the source is unknown. Only then may the module cache
    /// replace the source: otherwise a pin would hide that the spec names another one.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable | Self::NoCluster)
    }

    /// What the failure means for the controller.
    #[must_use]
    pub fn failure(&self) -> LoadFailure {
        match self {
            Self::Unavailable | Self::NoCluster | Self::NoModule => LoadFailure::NotFound,
            Self::NoSuchBuiltin => LoadFailure::NoSuchBuiltin,
            Self::NotSigned => LoadFailure::NotSigned,
            Self::OtherModule(_) => LoadFailure::DigestMismatch,
            Self::TooLarge | Self::CompilerLimit => LoadFailure::TooLarge,
            Self::NotWasm | Self::CompilerCrash => LoadFailure::NotWasm,
            Self::NoCompiler => LoadFailure::Unanswered,
            Self::NotAGuest => LoadFailure::NotAGuest,
            Self::Memory => LoadFailure::MemoryLimit,
            Self::NoInstances | Self::Deadline => LoadFailure::Busy,
            Self::UnknownField { .. } => LoadFailure::UnknownField,
            Self::Encode | Self::Config { .. } | Self::NoManifest => LoadFailure::Refused,
        }
    }
}

impl RevisionLoadError {
    /// An error of this kind.
    #[must_use]
    pub fn new(kind: LoadErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// The field of the spec, and the error.
    #[must_use]
    pub fn in_spec(&self) -> SpecError {
        let field = match &self.kind {
            LoadErrorKind::Config { field, reason }
            | LoadErrorKind::UnknownField { field, reason } => {
                // The text of a guest.
                let data = |text: &str| untrusted::line(text, untrusted::MOST_LOGGED);
                let error = SpecError {
                    field: data(field),
                    reason: data(reason),
                };
                return error.below("config");
            }
            LoadErrorKind::NoInstances | LoadErrorKind::Deadline | LoadErrorKind::NoManifest => {
                "module"
            }
            kind => kind.step().part(),
        };
        SpecError {
            field: field.to_owned(),
            reason: self.message.clone(),
        }
    }

    /// Why the revision that a spec describes cannot be loaded, with the version of its
    /// source.
    pub(super) fn problem(&self, version: Option<SourceVersion>) -> LoadProblem {
        LoadProblem {
            version,
            ..LoadProblem::new(self.kind.failure(), &self.to_string())
        }
    }

    /// Why a revision of the record cannot be loaded.
    pub(super) fn problem_of_record(&self, revision: &str, spec: &ControllerSpec) -> LoadProblem {
        let message = match &self.kind {
            // No operator has set a digest: it is the recorded one.
            LoadErrorKind::OtherModule(OtherModule {
                origin,
                found,
                wanted,
            }) => format!(
                "{origin} is the module sha256:{found} by now, and sha256:{wanted} of {revision} \
                 is not in the module cache"
            ),
            // An earlier version of Davit ran it.
            kind if kind.step() == LoadErrorStep::Compile => {
                let digest = spec.module.digest;
                let digest = digest.map_or_else(String::new, |digest| format!("sha256:{digest}"));
                let message = &self.message;
                format!("this Davit cannot run the module of {revision}, {digest}: {message}")
            }
            _ => self.to_string(),
        };
        LoadProblem {
            is_builtin: spec.module.source.is_builtin(),
            ..LoadProblem::new(self.kind.failure(), &message)
        }
    }
}
