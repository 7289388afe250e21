//! The custom resource `controllers.davit.dev`: the spec that operators write, and the
//! status that the host writes.
//!
//! An entry of the configuration file (`davit run --config`) has the same spec.

mod cluster;
mod duration;
mod error;
mod limits;
mod module;
mod name;
mod reference;
mod rollout;
mod spec;
mod status;
pub mod strict;
mod undo;
mod verify;

pub use cluster::{ClusterComparisonStatus, DelayStatus};
pub use duration::HumanDuration;
pub use error::SpecError;
pub use limits::{CooldownConfig, GuardrailConfig, LimitConfig, MOST_INSTANCES};
pub use module::{CaCert, ModuleConfig, ModuleSource, OciReference, OciSource};
pub use name::is_dns_label;
pub use reference::{KeyReference, SecretReference};
pub use rollout::{AnalysisConfig, RolloutConfig, StepConfig};
pub use spec::{CompareWith, ControllerSpec, encode_config};
pub use status::{
    CandidateStatus, ComparisonStatus, ConditionStatus, ControllerStatus, HostStatus, LostStatus,
    RecentWritesStatus, RejectedStatus, RequestResult, RequestStatus, RevisionStatus,
    TrippedStatus,
};
pub use undo::UndoConfig;
pub use verify::{AnyOfConfig, PublicKeyConfig, SignatureConfig, VerifyConfig};

use crate::object::ApiResource;

/// The group and the version of the resource.
pub const API_VERSION: &str = "davit.dev/v1alpha1";
/// The kind of the resource.
pub const KIND: &str = "Controller";

/// The resource.
#[must_use]
pub fn controllers() -> ApiResource {
    ApiResource::new("davit.dev", "v1alpha1", "controllers")
}
