//! The custom resource `controllers.davit.dev`: the spec that operators write, and the
//! status that the host writes.
//!
//! An entry of the configuration file (`davit run --config`) has the same spec.

mod duration;
mod error;
mod limits;
mod module;
mod name;
mod rollout;
mod spec;
mod status;
pub mod strict;

pub use duration::HumanDuration;
pub use error::SpecError;
pub use limits::{CooldownConfig, GuardrailConfig, LimitConfig, MOST_INSTANCES};
pub use module::{
    CaCert, KeyReference, ModuleConfig, ModuleSource, OciReference, OciSource, SecretReference,
};
pub use name::is_dns_label;
pub use rollout::{AnalysisConfig, CohortConfig, RolloutConfig, StepConfig, UnitConfig};
pub use spec::{ControllerSpec, ModeConfig, encode_config};
pub use status::{
    CandidateStatus, ComparisonStatus, ConditionStatus, ControllerStatus, HostStatus, LostStatus,
    RejectedStatus, RequestResult, RequestStatus, RevisionStatus, TrippedStatus,
};
