//! What operators declare: controllers, and what they ask of a rollout.

use davit_core::object::ObjectRef;

use crate::spec::{ControllerSpec, SpecError};
use crate::status::ControllerStatus;

/// A controller as it is declared.
#[derive(Clone, Debug, PartialEq)]
pub struct Declared {
    /// Its name.
    pub name: String,
    /// The generation of its spec; none outside the cluster.
    pub generation: Option<i64>,
    /// The resource, for events about it; none outside the cluster.
    pub object: Option<ObjectRef>,
    /// What its status says.
    pub status: Option<ControllerStatus>,
    /// What is wanted.
    pub spec: Result<ControllerSpec, SpecError>,
    /// What is asked of its rollout.
    pub requests: Requests,
}

/// What is asked of a rollout: the annotations of the resource. Each names what
/// it is about, so that it says nothing any more once that is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// `davit.dev/promote`: `REVISION@STEP`, the candidate of that name may
    /// leave that step (counted from 1); `REVISION@all`, it may take over.
    pub promote: Option<String>,
    /// `davit.dev/abort`: `REVISION`, the candidate of that name is taken back.
    pub abort: Option<String>,
    /// `davit.dev/retry`: `REVISION@TIME`, the revision that was taken back at
    /// that time is tried again.
    pub retry: Option<String>,
    /// `davit.dev/release`: the time at which the guardrail tripped that lets
    /// plans through again.
    pub release: Option<String>,
}
