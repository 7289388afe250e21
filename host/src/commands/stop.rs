//! `davit stop` and `davit start`: controllers stop writing, and continue.
//!
//! Both change `spec.mode` in the cluster, so that they work while no host answers: a host that
//! starts reads the mode first, and one that does not reach the API server writes nothing.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use futures::future::join_all;
use futures::stream::{self, StreamExt as _};
use hyper::{Request, header};
use jiff::Timestamp;
use kube::api::ListParams;
use kube::core::{DynamicObject, ObjectMeta};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::answer::{NoAnswer, Wait};
use super::requests::requested;
use super::{ControllerObject, check_name, print, status_of};
use crate::resource::{controllers, describe};

/// The annotation with the mode that `davit start` restores.
const FORMER_MODE: &str = "davit.dev/stopped-mode";
/// The annotation that says when, by whom and why a Controller was stopped.
pub(super) const STOPPED: &str = "davit.dev/stopped";
/// The API that names the user of a request (Kubernetes 1.28 or later).
const SELF_REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
/// How many Controllers are changed at the same time.
const AT_ONCE: usize = 20;
const DISABLED: &str = "Disabled";
/// How long `davit stop` waits for the name of its user.
const PATIENCE: Duration = Duration::from_secs(2);

/// The Controllers that a command is about.
#[derive(Clone, Debug)]
pub enum Selection {
    /// All of the cluster.
    All,
    /// These.
    Names(Vec<String>),
}

impl Selection {
    /// The Controllers of these names, or all.
    #[must_use]
    pub fn of(names: Vec<String>, all: bool) -> Self {
        if all { Self::All } else { Self::Names(names) }
    }
}

/// Disables Controllers: their hosts call no guest and execute no plan. All are changed before
/// the command waits for a host. An annotation says who has stopped them, and for which reason.
/// Prints a line for each, and fails with the first error.
pub async fn stop(
    client: &Client,
    selection: &Selection,
    reason: Option<&str>,
    wait: Duration,
) -> Result<()> {
    let found = select(client, selection).await?;
    let user = user(client).await;
    let user = user.as_deref().unwrap_or("an unknown user");
    let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
    let stopped = format!("{:.3} by {user}{reason}", Timestamp::now());
    change_all(&found, &Verb::Stop { stopped }, wait).await
}

/// The name by which the API server knows the user of this client. A server that does not name
/// it must not delay the stop: then there is none.
async fn user(client: &Client) -> Option<String> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let request = Request::post(SELF_REVIEWS)
        .header(header::CONTENT_TYPE, "application/json")
        .body(review.to_string().into_bytes())
        .ok()?;
    let answer = tokio::time::timeout(PATIENCE, client.request::<Value>(request)).await;
    let answer = answer.ok()?.ok()?;
    Some(
        answer
            .pointer("/status/userInfo/username")?
            .as_str()?
            .to_owned(),
    )
}

/// Restores the modes that Controllers had before `davit stop`.
pub async fn start(client: &Client, selection: &Selection, wait: Duration) -> Result<()> {
    let mut found = select(client, selection).await?;
    if matches!(selection, Selection::All) {
        found.retain(|one| one.former_mode().is_some());
    }
    change_all(&found, &Verb::Start, wait).await
}

/// What a command does with each Controller.
enum Verb {
    /// Disables it.
    Stop {
        /// When, by whom and why.
        stopped: String,
    },
    /// Restores its mode.
    Start,
}

impl Verb {
    const fn as_str(&self) -> &'static str {
        match self {
            Self::Stop { .. } => "stop",
            Self::Start => "start",
        }
    }
}

/// The change of one Controller.
struct ModeChange {
    /// What has changed: `Disabled (was Enforce)`.
    text: String,
    generation: Option<i64>,
}

/// Changes the Controllers, a few at a time: the API server limits a user's requests. Then waits
/// for the hosts.
async fn change_all(found: &[ControllerObject], verb: &Verb, wait: Duration) -> Result<()> {
    let changes = found.iter().map(|one| one.set_mode(verb));
    let changed = stream::iter(changes).buffered(AT_ONCE).collect().await;
    report(found, changed, verb, wait).await
}

async fn select(client: &Client, selection: &Selection) -> Result<Vec<ControllerObject>> {
    let api = controllers(client.clone());
    match selection {
        Selection::All => {
            let all = api.list(&ListParams::default()).await;
            let all = all.map_err(|error| {
                anyhow!("the Controllers cannot be listed: {}", describe(&error))
            })?;
            let objects = all.items.into_iter();
            Ok(objects.map(|object| of_any_status(&api, object)).collect())
        }
        Selection::Names(names) => {
            let mut found = Vec::new();
            for name in names {
                // The others wait for all names: the operator sees at once that nothing happened.
                let nothing = || "no controller is changed";
                check_name(name).with_context(nothing)?;
                let object = ControllerObject::object(&api, name).await;
                let object = object.with_context(nothing)?;
                found.push(of_any_status(&api, object));
            }
            Ok(found)
        }
    }
}

/// A status that nobody can read does not keep a Controller from being stopped.
fn of_any_status(api: &Api<DynamicObject>, object: DynamicObject) -> ControllerObject {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    ControllerObject {
        api: api.clone(),
        status: status_of(name, &object).unwrap_or_default(),
        object,
    }
}

async fn report(
    found: &[ControllerObject],
    changed: Vec<Result<ModeChange>>,
    verb: &Verb,
    wait: Duration,
) -> Result<()> {
    let word = verb.as_str();
    if found.is_empty() {
        return print::out(&format!("there is no Controller to {word}"));
    }
    let answers = found.iter().zip(changed).map(async |(one, change)| {
        let ModeChange { text, generation } = change?;
        let (name, action) = (one.name(), format!("{word} the controller"));
        if wait.is_zero() {
            return Ok(requested(name, &action));
        }
        let answer = Wait::new(one, name, &action, wait);
        answer.for_spec(generation).await?;
        Ok::<_, anyhow::Error>(format!("{name}: {text}"))
    });
    let mut failures = Vec::new();
    for answer in join_all(answers).await {
        match answer {
            Ok(line) => print::out(&line)?,
            Err(error) => failures.push(error),
        }
    }
    // The kind of the error decides the exit code: no answer is the lesser failure.
    failures.sort_by_key(anyhow::Error::is::<NoAnswer>);
    let mut failures = failures.into_iter();
    let Some(first) = failures.next() else {
        return Ok(());
    };
    let others: Vec<String> = failures.map(|other| format!("{other:#}; ")).collect();
    let others = others.concat();
    let advice = if matches!(verb, Verb::Stop { .. }) {
        "to end every host, run kubectl --namespace davit-system scale deployment/davit \
         --replicas=0; "
    } else {
        ""
    };
    Err(first.context(format!("{advice}{others}not every controller has answered")))
}

impl ControllerObject {
    fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    /// The mode before `davit stop`.
    fn former_mode(&self) -> Option<&str> {
        let annotations = self.object.metadata.annotations.as_ref()?;
        Some(annotations.get(FORMER_MODE)?.as_str())
    }

    async fn set_mode(&self, verb: &Verb) -> Result<ModeChange> {
        match verb {
            Verb::Stop { stopped } => self.disable(stopped).await,
            Verb::Start => self.restore().await,
        }
    }

    /// Whatever else changes it meanwhile: a stop is not to fail.
    async fn disable(&self, stopped: &str) -> Result<ModeChange> {
        let name = self.name();
        let present = self.spec("/mode").as_str().unwrap_or_default();
        let (text, annotations) = match (present == DISABLED, self.former_mode()) {
            (true, None) => {
                let (text, generation) = (
                    "Disabled already".to_owned(),
                    self.object.metadata.generation,
                );
                return Ok(ModeChange { text, generation });
            }
            // Somebody may be starting it at this moment, and sees that it was stopped again.
            (true, Some(former)) => (
                "Disabled already".to_owned(),
                json!({FORMER_MODE: former, STOPPED: stopped}),
            ),
            (false, _) => (
                format!("Disabled (was {present}); davit start {name} restores it"),
                json!({FORMER_MODE: present, STOPPED: stopped}),
            ),
        };
        let metadata = json!({"annotations": annotations});
        let change = json!({"metadata": metadata, "spec": {"mode": DISABLED}});
        let generation = self.change(name, change).await?.metadata.generation;
        Ok(ModeChange { text, generation })
    }

    /// Restores the mode from before the stop that was read. A later one holds.
    async fn restore(&self) -> Result<ModeChange> {
        let name = self.name();
        let present = self.spec("/mode").as_str().unwrap_or_default();
        let Some(former) = self.former_mode() else {
            bail!("{name}: davit stop has not stopped it: set spec.mode, which is {present}");
        };
        let metadata = json!({"annotations": {FORMER_MODE: null, STOPPED: null}});
        let (text, change) = if present == DISABLED {
            let change = json!({"metadata": metadata, "spec": {"mode": former}});
            (format!("{former} again"), change)
        } else {
            // Somebody has set another mode since.
            (
                format!("{present} as before"),
                json!({"metadata": metadata}),
            )
        };
        let read = &self.object.metadata;
        let is_same = |present: &ObjectMeta| {
            (present.generation, stopped(present)) == (read.generation, stopped(read))
        };
        match self.change_same(name, change, is_same).await? {
            Some(changed) => Ok(ModeChange {
                text,
                generation: changed.metadata.generation,
            }),
            None => bail!(
                "{name}: it was changed meanwhile, and is not started: davit get shows its mode"
            ),
        }
    }
}

/// When, by whom and why a Controller was stopped.
fn stopped(metadata: &ObjectMeta) -> Option<&String> {
    metadata.annotations.as_ref()?.get(STOPPED)
}
