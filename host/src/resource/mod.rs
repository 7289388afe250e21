//! The custom resource `controllers.davit.dev` as the API server has it: its
//! definition, and the watch that follows all of them.

pub mod definition;
pub mod watch;

use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};

use crate::spec::Controller;

/// Where Controllers are read and written. What lies there may have been
/// written by another version of Davit, or by hand: whether it makes sense is
/// for the reader to say, object by object.
#[must_use]
pub fn controllers(client: Client) -> Api<DynamicObject> {
    Api::all_with(client, &ApiResource::erase::<Controller>(&()))
}

/// What a request failed with, in a sentence: what the API server says, if it
/// said anything.
#[must_use]
pub fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.message.is_empty() => {
            format!("the API server answered {}", status.code)
        }
        kube::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    }
}
