//! Follows the Controllers of a cluster.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use davit_core::object::ObjectRef;
use futures::StreamExt as _;
use kube::Resource as _;
use kube::core::DynamicObject;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::sleep;

use super::{Controller, controllers, describe};
use crate::health::Health;
use crate::repeat::RepeatedLine;
use davit_core::api::ControllerStatus;
use davit_core::api::is_dns_label;
use davit_core::api::{ControllerSpec, SpecError};
use davit_core::control::{Declaration, Requests};

/// The pause before a retry after a failure.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Updates the channel with the declarations of the cluster: all Controllers by name,
/// none until the first complete list. Changes wake receivers, except changes of a
/// status alone. Ends with the last receiver.
///
/// Failures are logged and retried; until then, the last declarations hold. A missing
/// definition is such a failure too. As long as there are no declarations, `health` has
/// the reason.
pub async fn follow(
    client: kube::Client,
    declared: watch::Sender<Option<Vec<Declaration>>>,
    health: Arc<Health>,
    has_leases: bool,
) {
    let mut events = pin!(watcher(controllers(client), watcher::Config::default()));
    let mut known = ControllerList {
        follows_status: has_leases,
        ..ControllerList::default()
    };
    let failures = RepeatedLine::new();
    loop {
        let event = tokio::select! {
            () = declared.closed() => return,
            event = events.next() => event,
        };
        match event {
            None => return,
            Some(Ok(event)) => {
                let changed = known.take(event);
                if known.is_complete {
                    declared.send_if_modified(|all| {
                        *all = Some(known.controllers.values().cloned().collect());
                        changed
                    });
                }
            }
            Some(Err(error)) => {
                let trouble = trouble(&error);
                if let Some(suppressed) = failures.admit(&trouble) {
                    tracing::warn!("{trouble}{suppressed}");
                }
                health.set_undeclared(trouble);
                tokio::select! {
                    () = declared.closed() => return,
                    () = sleep(RETRY_AFTER) => {}
                }
            }
        }
    }
}

fn trouble(error: &watcher::Error) -> String {
    use watcher::Error::{
        InitialListFailed, NoResourceVersion, WatchError, WatchFailed, WatchStartFailed,
    };
    let (code, reason) = match error {
        InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error) => {
            let code = match error {
                kube::Error::Api(status) => status.code,
                _ => 0,
            };
            (code, describe(error))
        }
        WatchError(status) => (status.code, status.message.clone()),
        NoResourceVersion => (0, error.to_string()),
    };
    let advice = match code {
        404 => ": apply deploy/crds/controllers.davit.dev.yaml",
        401 | 403 => {
            ": grant Davit's service account the verbs get, list and watch on \
             controllers.davit.dev"
        }
        _ => "",
    };
    let seconds = RETRY_AFTER.as_secs();
    format!("the Controllers cannot be watched: {reason}{advice}; will retry every {seconds} s")
}

/// The state of the watch.
#[derive(Default)]
struct ControllerList {
    controllers: BTreeMap<String, Declaration>,
    /// The list that is being read.
    listing: BTreeMap<String, Declaration>,
    /// Whether a list was ever complete.
    is_complete: bool,
    /// Whether a status that changes is news: with leases, another replica writes it.
    follows_status: bool,
}

impl ControllerList {
    /// Handles an event. Returns whether anything changed; a status counts only if it is
    /// followed.
    fn take(&mut self, event: Event<DynamicObject>) -> bool {
        match event {
            Event::Init => {
                self.listing.clear();
                false
            }
            Event::InitApply(object) => {
                if !is_going(&object) {
                    let declared = declare(object);
                    self.listing.insert(declared.name.clone(), declared);
                }
                false
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listing);
                let same = self.controllers.len() == listed.len()
                    && self
                        .controllers
                        .values()
                        .zip(listed.values())
                        .all(|pair| self.is_same(pair));
                self.controllers = listed;
                let first = !std::mem::replace(&mut self.is_complete, true);
                first || !same
            }
            Event::Apply(object) if !is_going(&object) => {
                let declared = declare(object);
                let name = declared.name.clone();
                match self.controllers.insert(name.clone(), declared) {
                    None => true,
                    Some(before) => {
                        let now = self.controllers.get(&name);
                        !now.is_some_and(|now| self.is_same((&before, now)))
                    }
                }
            }
            Event::Apply(object) | Event::Delete(object) => {
                let name = object.metadata.name.unwrap_or_default();
                self.controllers.remove(&name).is_some()
            }
        }
    }
}

impl ControllerList {
    fn is_same(&self, (one, other): (&Declaration, &Declaration)) -> bool {
        is_same((one, other)) && (!self.follows_status || one.status == other.status)
    }
}

/// A Controller that is being deleted does not run any more, even if finalizers keep
/// it.
fn is_going(object: &DynamicObject) -> bool {
    object.metadata.deletion_timestamp.is_some()
}

/// Whether two declarations differ at most in their status.
fn is_same((one, other): (&Declaration, &Declaration)) -> bool {
    let Declaration {
        name,
        generation,
        object,
        status: _,
        spec,
        requests,
    } = one;
    *name == other.name
        && *generation == other.generation
        && *object == other.object
        && *spec == other.spec
        && *requests == other.requests
}

fn declare(mut object: DynamicObject) -> Declaration {
    let mut part = |name: &str| object.data.get_mut(name).map(Value::take);
    let (spec, status) = (part("spec").unwrap_or_default(), part("status"));
    let metadata = object.metadata;
    let name = metadata.name.unwrap_or_default();
    Declaration {
        generation: metadata.generation,
        object: Some(ObjectRef {
            api_version: Controller::api_version(&()).into_owned(),
            kind: Controller::kind(&()).into_owned(),
            namespace: String::new(),
            name: name.clone(),
            uid: metadata.uid.unwrap_or_default(),
        }),
        status: status.and_then(|status| read_status(&name, status)),
        spec: read_spec(&name, &spec),
        requests: Requests::read(&metadata.annotations.unwrap_or_default()),
        name,
    }
}

fn read_spec(name: &str, spec: &Value) -> Result<ControllerSpec, SpecError> {
    if !is_dns_label(name) {
        return Err(SpecError {
            field: "metadata.name".to_owned(),
            reason: "it is not a DNS label: 63 characters at most, no dots".to_owned(),
        });
    }
    ControllerSpec::read(spec).map_err(|error| error.below("spec"))
}

fn read_status(name: &str, status: Value) -> Option<ControllerStatus> {
    serde_json::from_value(status)
        .inspect_err(|error| {
            static FOREIGN: RepeatedLine = RepeatedLine::new();
            if let Some(suppressed) = FOREIGN.admit(&format!("{name}: {error}")) {
                tracing::warn!(
                    controller = name,
                    %error,
                    "the status of the Controller was not written by Davit{suppressed}"
                );
            }
        })
        .ok()
}
