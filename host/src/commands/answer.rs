//! Waiting for the host: what is asked for with a command is done by a running
//! host, or by none.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use kube::core::DynamicObject;
use tokio::time::{Instant, sleep};

use super::{Found, status_of};
use crate::resource::describe;
use crate::rollout::declared::{RequestKind, subject};
use davit_core::api::HumanDuration;
use davit_core::api::{ConditionStatus, ControllerStatus, RequestResult};

/// How often the Controller is looked at. The host looks at its rollouts every
/// second.
const PERIOD: Duration = Duration::from_millis(250);

/// What was asked for stands, and nobody knows yet what comes of it.
#[derive(Debug, thiserror::Error)]
#[error("{controller}: {what}: {reason}; davit get {controller} shows the answer")]
pub struct NotAnswered {
    /// The Controller.
    pub controller: String,
    /// What was asked for: `pause the rollout`.
    pub what: String,
    /// Why there is no answer.
    pub reason: String,
}

/// A Controller whose answer is waited for, and for how long.
pub(super) struct Wait<'a> {
    found: &'a Found,
    name: &'a str,
    what: &'a str,
    patience: Duration,
    deadline: Instant,
}

/// What a look at the Controller shows.
enum Look<T> {
    Answered(T),
    /// Not yet, for this reason; none if no host has said anything.
    NotYet(Option<String>),
    /// There will be no answer.
    Never(String),
}

impl<'a> Wait<'a> {
    pub(super) fn new(found: &'a Found, name: &'a str, what: &'a str, patience: Duration) -> Self {
        Self {
            found,
            name,
            what,
            patience,
            deadline: Instant::now() + patience,
        }
    }

    /// Waits until the host has answered this request; returns its message. A
    /// request that the host refuses is an error.
    pub(super) async fn for_request(&self, kind: RequestKind, value: String) -> Result<String> {
        let mut value = value;
        let (result, message) = self
            .until(|object, status| {
                if let Some(answer) = status.answer(kind.name(), &value) {
                    let message = answer.message.clone();
                    return match answer.result {
                        RequestResult::Pending => Look::NotYet(Some(message)),
                        result => Look::Answered((result, message)),
                    };
                }
                let annotations = object.metadata.annotations.as_ref();
                match annotations.and_then(|all| all.get(kind.annotation())) {
                    Some(present) if *present == value => Look::NotYet(None),
                    // Somebody else asks for the same: one answer is for both.
                    Some(present) if subject(present) == subject(&value) => {
                        value.clone_from(present);
                        Look::NotYet(None)
                    }
                    Some(present) => Look::Never(format!(
                        "somebody else replaced the request before its answer was seen: the \
                         annotation {} is now {present}",
                        kind.annotation()
                    )),
                    None => Look::Never(format!(
                        "somebody else removed the annotation {} before its answer was seen",
                        kind.annotation()
                    )),
                }
            })
            .await?;
        if result == RequestResult::Refused {
            let (name, what) = (self.name, self.what);
            bail!(
                "{name}: the host refused to {what}: {message}; davit get {name} shows the rollout"
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
                    Look::Answered(status.clone())
                } else {
                    Look::NotYet(None)
                }
            })
            .await?;
        if let Some(ConditionStatus { message, .. }) = bad_spec(&status) {
            let (name, what) = (self.name, self.what);
            bail!("{name}: the host cannot {what}: it does not accept the spec: {message}");
        }
        Ok(status)
    }

    async fn until<T>(
        &self,
        mut look: impl FnMut(&DynamicObject, &ControllerStatus) -> Look<T>,
    ) -> Result<T> {
        let name = self.name;
        loop {
            let missing = match self.found.api.get(name).await {
                Ok(object) => {
                    if object.metadata.uid != self.found.object.metadata.uid {
                        return Err(self.deleted());
                    }
                    match look(&object, &status_of(name, &object)?) {
                        Look::Answered(answer) => return Ok(answer),
                        Look::NotYet(reason) => reason,
                        Look::Never(reason) => return Err(self.not_answered(reason)),
                    }
                }
                Err(kube::Error::Api(status)) if status.is_not_found() => {
                    return Err(self.deleted());
                }
                // It may come back.
                Err(error) => Some(describe(&error)),
            };
            if Instant::now() >= self.deadline {
                return Err(self.timed_out(missing));
            }
            sleep(PERIOD.min(self.patience)).await;
        }
    }

    fn deleted(&self) -> anyhow::Error {
        let (name, what) = (self.name, self.what);
        anyhow!("{name}: {what}: the Controller was deleted before the host answered")
    }

    fn timed_out(&self, missing: Option<String>) -> anyhow::Error {
        let patience = HumanDuration(self.patience);
        self.not_answered(match missing {
            None => format!(
                "requested, no host has answered within {patience}: a host that starts later \
                 still acts on it; check that Davit runs and may write the Controller's status"
            ),
            Some(reason) => format!("requested, not done within {patience}: {reason}"),
        })
    }

    fn not_answered(&self, reason: String) -> anyhow::Error {
        NotAnswered {
            controller: self.name.to_owned(),
            what: self.what.to_owned(),
            reason,
        }
        .into()
    }
}

/// The condition that says that the spec makes no sense.
fn bad_spec(status: &ControllerStatus) -> Option<&ConditionStatus> {
    let mut conditions = status.conditions.iter();
    conditions.find(|condition| condition.status == "False" && condition.reason == "BadSpec")
}
