//! Waiting for the host's answer to a request: a command writes the request, and
//! only a running host acts on it.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use kube::core::DynamicObject;
use tokio::time::{Instant, sleep};

use super::{ControllerObject, status_of};
use crate::resource::describe;
use davit_core::api::HumanDuration;
use davit_core::api::{ConditionStatus, ControllerStatus, RequestResult};
use davit_core::control::RequestKind;
use davit_core::control::requests::subject;

/// How often the Controller is read. The host evaluates its rollouts every second.
const PERIOD: Duration = Duration::from_millis(250);

/// The request stays in force, and no host has answered it.
#[derive(Debug, thiserror::Error)]
#[error("{controller}: {action}: {reason}; davit get {controller} shows the answer")]
pub struct NoAnswer {
    /// The Controller.
    pub controller: String,
    /// The requested action: `pause the rollout`.
    pub action: String,
    /// Why there is no answer.
    pub reason: String,
}

/// A wait for the answer about a Controller.
pub(super) struct Wait<'a> {
    found: &'a ControllerObject,
    name: &'a str,
    action: &'a str,
    patience: Duration,
    deadline: Instant,
}

/// The state of an answer.
enum Answer<T> {
    Given(T),
    /// There is no answer yet, for this reason; none if no host gave one.
    Pending(Option<String>),
    /// There will be no answer.
    Impossible(String),
}

impl<'a> Wait<'a> {
    pub(super) fn new(
        found: &'a ControllerObject,
        name: &'a str,
        action: &'a str,
        patience: Duration,
    ) -> Self {
        Self {
            found,
            name,
            action,
            patience,
            deadline: Instant::now() + patience,
        }
    }

    /// Waits until the host has answered this request, and returns its message.
    /// A refusal is an error.
    pub(super) async fn for_request(&self, kind: RequestKind, value: String) -> Result<String> {
        let mut value = value;
        let (result, message) = self
            .until(|object, status| {
                if let Some(answer) = status.answer(kind.name(), &value) {
                    let message = answer.message.clone();
                    return match answer.result {
                        RequestResult::Pending => Answer::Pending(Some(message)),
                        result => Answer::Given((result, message)),
                    };
                }
                let annotations = object.metadata.annotations.as_ref();
                match annotations.and_then(|all| all.get(kind.annotation())) {
                    Some(present) if *present == value => Answer::Pending(None),
                    // Another operator made the same request: one answer is for both.
                    Some(present) if subject(present) == subject(&value) => {
                        value.clone_from(present);
                        Answer::Pending(None)
                    }
                    Some(present) => Answer::Impossible(format!(
                        "somebody else replaced the request before the host answered: the \
                         annotation {} is now {present}",
                        kind.annotation()
                    )),
                    None => Answer::Impossible(format!(
                        "somebody else removed the annotation {} before the host answered",
                        kind.annotation()
                    )),
                }
            })
            .await?;
        if result == RequestResult::Refused {
            let (name, action) = (self.name, self.action);
            bail!(
                "{name}: the host refused to {action}: {message}; davit get {name} shows the rollout"
            );
        }
        Ok(message)
    }

    /// Waits until the host has read the spec of this generation. A spec that
    /// the host does not accept is an error.
    pub(super) async fn for_spec(&self, generation: Option<i64>) -> Result<ControllerStatus> {
        let status = self
            .until(|_, status| {
                if status.observed_generation >= generation {
                    Answer::Given(status.clone())
                } else {
                    Answer::Pending(None)
                }
            })
            .await?;
        if let Some(ConditionStatus { message, .. }) = invalid_spec(&status) {
            let (name, action) = (self.name, self.action);
            bail!("{name}: the host cannot {action}: it does not accept the spec: {message}");
        }
        Ok(status)
    }

    async fn until<T>(
        &self,
        mut check: impl FnMut(&DynamicObject, &ControllerStatus) -> Answer<T>,
    ) -> Result<T> {
        let name = self.name;
        loop {
            let missing = match self.found.api.get(name).await {
                Ok(object) => {
                    if object.metadata.uid != self.found.object.metadata.uid {
                        return Err(self.deleted());
                    }
                    match status_of(name, &object).map(|status| check(&object, &status)) {
                        Ok(Answer::Given(answer)) => return Ok(answer),
                        Ok(Answer::Pending(reason)) => reason,
                        Ok(Answer::Impossible(reason)) => return Err(self.not_answered(reason)),
                        // A host that answers writes another one.
                        Err(error) => Some(error.to_string()),
                    }
                }
                Err(kube::Error::Api(status)) if status.is_not_found() => {
                    return Err(self.deleted());
                }
                // The API server may answer again.
                Err(error) => Some(describe(&error)),
            };
            if Instant::now() >= self.deadline {
                return Err(self.timed_out(missing));
            }
            sleep(PERIOD.min(self.patience)).await;
        }
    }

    fn deleted(&self) -> anyhow::Error {
        let (name, action) = (self.name, self.action);
        anyhow!("{name}: {action}: the Controller was deleted before the host answered")
    }

    fn timed_out(&self, missing: Option<String>) -> anyhow::Error {
        let patience = HumanDuration(self.patience);
        self.not_answered(match missing {
            None => format!(
                "requested, no host has answered within {patience}: a host that starts later \
                 still acts on the request; check that Davit runs and may write the \
                 Controller's status"
            ),
            Some(reason) => format!("requested, not done within {patience}: {reason}"),
        })
    }

    fn not_answered(&self, reason: String) -> anyhow::Error {
        NoAnswer {
            controller: self.name.to_owned(),
            action: self.action.to_owned(),
            reason,
        }
        .into()
    }
}

/// The condition that rejects the spec, if there is one.
fn invalid_spec(status: &ControllerStatus) -> Option<&ConditionStatus> {
    let mut conditions = status.conditions.iter();
    conditions.find(|condition| condition.status == "False" && condition.reason == "InvalidSpec")
}
