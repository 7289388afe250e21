//! The custom resource `controllers.davit.dev` in the API server: its definition, and
//! the watch of all Controllers.

pub mod definition;
pub mod watch;

use std::error::Error;

use davit_core::api::{ControllerSpec, ControllerStatus};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, CustomResource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

// The resource is derived from a wrapper, because core does not know kube. The
// comment is the description of `spec` in the definition.
/// A controller that Davit runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "davit.dev",
    version = "v1alpha1",
    kind = "Controller",
    plural = "controllers",
    shortname = "davit",
    status = "ControllerStatus",
    doc = "A controller whose decisions a WebAssembly guest makes.",
    printcolumn = r#"{"name":"Mode","type":"string","jsonPath":".spec.mode"}"#,
    printcolumn = r#"{"name":"Stable","type":"string","jsonPath":".status.stable.revision","description":"The revision that runs"}"#,
    printcolumn = r#"{"name":"Candidate","type":"string","jsonPath":".status.candidate.revision","description":"The revision that is being rolled out"}"#,
    printcolumn = r#"{"name":"Step","type":"string","jsonPath":".status.candidate.stepText"}"#,
    printcolumn = r#"{"name":"Agree","type":"integer","jsonPath":".status.candidate.comparison.agree"}"#,
    printcolumn = r#"{"name":"Disagree","type":"integer","jsonPath":".status.candidate.comparison.disagree"}"#,
    printcolumn = r#"{"name":"Status","type":"string","jsonPath":".status.summary"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Elapsed","type":"string","jsonPath":".status.candidate.elapsed","priority":1,"description":"How long the step has been under way"}"#,
    printcolumn = r#"{"name":"Remaining","type":"string","jsonPath":".status.candidate.remaining","priority":1,"description":"How much of the step is left"}"#
)]
#[serde(transparent)]
pub struct Spec(pub ControllerSpec);

/// The Controllers in the API server. Another version of Davit or an operator may have
/// written them: the reader validates each object.
#[must_use]
pub fn controllers(client: Client) -> Api<DynamicObject> {
    Api::all_with(client, &ApiResource::erase::<Controller>(&()))
}

/// The failure of a request, in a sentence: the API server's message, if there is one,
/// otherwise the error with its causes.
#[must_use]
pub fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.message.is_empty() => {
            format!("the API server answered {}", status.code)
        }
        kube::Error::Api(status) => status.message.clone(),
        // The text of this error itself is the name of its type.
        kube::Error::Service(error) => with_causes(error.as_ref()),
        error => with_causes(error),
    }
}

/// Some of the errors in the chain include their cause.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}
