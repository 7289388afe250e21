//! Follows the Controllers of a cluster.

use std::pin::pin;
use std::sync::Arc;

use davit_core::control::{
    ControllerEvent, ControllerWatchFailure, Declaration, Declarations, ForeignStatus,
};
use futures::StreamExt as _;
use kube::core::DynamicObject;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::watch;
use tokio::time::sleep;

use super::{controllers, describe};
use crate::health::Health;
use crate::repeat::RepeatedLine;

/// Updates the channel with the declarations of the cluster: all Controllers by name,
/// none until the first complete list. News wakes receivers, as core's [`Declarations`]
/// judge it. Ends with the last receiver.
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
    let mut known = Declarations::new(has_leases);
    let (failures, foreign) = (RepeatedLine::new(), RepeatedLine::new());
    loop {
        let event = tokio::select! {
            () = declared.closed() => return,
            event = events.next() => event,
        };
        let event = match event {
            None => return,
            Some(event) => event.map_err(|error| failure(&error)),
        };
        match event.and_then(input) {
            Ok(event) => {
                let change = known.handle(event);
                if let Some(status) = change.foreign_status {
                    log_foreign(&foreign, &status);
                }
                if let Some(all) = known.all() {
                    declared.send_if_modified(|declared| {
                        *declared = Some(all);
                        change.is_news
                    });
                }
            }
            Err(failure) => {
                if let Some(suppressed) = failures.admit(&failure.message) {
                    tracing::warn!("{}{suppressed}", failure.message);
                }
                health.set_undeclared(failure.message);
                tokio::select! {
                    () = declared.closed() => return,
                    () = sleep(failure.retry_after) => {}
                }
            }
        }
    }
}

/// The event with its object in JSON.
fn input(event: Event<DynamicObject>) -> Result<ControllerEvent, ControllerWatchFailure> {
    let json = |object: DynamicObject| {
        let json = serde_json::to_value(object);
        json.map_err(|error| ControllerWatchFailure::new(None, &error.to_string()))
    };
    Ok(match event {
        Event::Init => ControllerEvent::ListStarted,
        Event::InitApply(object) => ControllerEvent::Listed(json(object)?),
        Event::InitDone => ControllerEvent::ListCompleted,
        Event::Apply(object) => ControllerEvent::Applied(json(object)?),
        Event::Delete(object) => ControllerEvent::Deleted(json(object)?),
    })
}

fn failure(error: &watcher::Error) -> ControllerWatchFailure {
    use watcher::Error::{
        InitialListFailed, NoResourceVersion, WatchError, WatchFailed, WatchStartFailed,
    };
    let (code, reason) = match error {
        InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error) => {
            let code = match error {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            };
            (code, describe(error))
        }
        WatchError(status) => (Some(status.code), status.message.clone()),
        NoResourceVersion => (None, error.to_string()),
    };
    ControllerWatchFailure::new(code, &reason)
}

fn log_foreign(lines: &RepeatedLine, status: &ForeignStatus) {
    let ForeignStatus { controller, error } = status;
    if let Some(suppressed) = lines.admit(&format!("{controller}: {error}")) {
        tracing::warn!(
            controller,
            error,
            "the status of the Controller was not written by Davit{suppressed}"
        );
    }
}
