//! `davit grant`: the rules that a controller's revisions lack in `spec.permissions`.
//!
//! The host computes them: it has loaded the module, wherever that comes from.

use std::time::Duration;

use anyhow::{Result, bail};
use davit_core::api::{API_VERSION, ConditionStatus, ControllerSpec, ControllerStatus, KIND};
use davit_core::grant::Permissions;
use kube::Client;
use kube::core::{DynamicObject, ObjectMeta};
use serde::Serialize;
use serde_json::json;

use super::ControllerObject;
use super::answer::Wait;
use super::print::{part, serialized};
use super::requests::requested;
use crate::cli::Format;

/// The rules that a Controller lacks.
pub struct Grant {
    found: ControllerObject,
    name: String,
    /// The present rules and the missing ones.
    permissions: Permissions,
    reason: String,
}

/// The part of a Controller that changes.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Change<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata<'a>,
    spec: Spec<'a>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    name: &'a str,
}

#[derive(Serialize)]
struct Spec<'a> {
    permissions: &'a Permissions,
}

impl Grant {
    /// Reads a Controller and the rules that it lacks. None if it lacks none.
    pub async fn read(client: &Client, name: &str) -> Result<Option<Self>> {
        let found = ControllerObject::read(client, name).await?;
        let condition = granted(&found.status).cloned().unwrap_or_default();
        if found.status.observed_generation != found.object.metadata.generation {
            bail!(
                "{name}: the host has not read the present spec yet: run davit grant {name} again; \
                 check that Davit runs and may write the Controller's status"
            );
        }
        let missing = &found.status.missing_permissions;
        match condition.status.as_str() {
            "True" => return Ok(None),
            "False" if !missing.is_empty() => {}
            "False" => bail!(
                "{name}: the guest declares a rule that is too long for the status of the Controller: \
                 davit inspect prints what its module declares"
            ),
            _ => bail!(
                "{name}: what the guest declares is not known yet: {}; davit get {name} shows why",
                condition.message
            ),
        }
        let spec = ControllerSpec::read(part(&found.object.data, "/spec"))
            .map_err(|error| anyhow::anyhow!("the spec of the Controller {name}: {error}"))?;
        Ok(Some(Self {
            permissions: spec.permissions.unwrap_or_default().with(missing),
            name: name.to_owned(),
            reason: condition.message,
            found,
        }))
    }

    /// The part of the Controller that changes, in YAML for `kubectl apply --server-side`
    /// or an editor.
    pub fn yaml(&self) -> Result<String> {
        let change = Change {
            api_version: API_VERSION,
            kind: KIND,
            metadata: Metadata { name: &self.name },
            spec: Spec {
                permissions: &self.permissions,
            },
        };
        let change = serialized(&change, Format::Yaml)?;
        Ok(format!("# {}\n{change}", self.reason))
    }

    /// Adds the rules, and waits until the host has read them. A Controller that has
    /// changed since it was read is not changed.
    pub async fn apply(self, wait: Duration) -> Result<String> {
        let (name, action) = (&self.name, "add rules to spec.permissions");
        let changed = self.write().await?;
        if wait.is_zero() {
            return Ok(requested(name, action));
        }
        let answer = Wait::new(&self.found, name, action, wait);
        let status = answer.for_spec(changed.metadata.generation).await?;
        let granted = granted(&status).cloned().unwrap_or_default();
        if granted.status == "False" {
            bail!("{name}: rules are missing still: {}", granted.message);
        }
        Ok(format!("{name}: {}", granted.message))
    }

    async fn write(&self) -> Result<DynamicObject> {
        let change = json!({"spec": {"permissions": self.permissions}});
        let generation = self.found.object.metadata.generation;
        let is_same = |present: &ObjectMeta| present.generation == generation;
        if let Some(written) = self.found.change_same(&self.name, change, is_same).await? {
            return Ok(written);
        }
        let name = &self.name;
        bail!(
            "the Controller {name} changed meanwhile, and no rule was added: \
             davit grant {name} shows the rules that it lacks now"
        )
    }
}

fn granted(status: &ControllerStatus) -> Option<&ConditionStatus> {
    let mut conditions = status.conditions.iter();
    conditions.find(|condition| condition.type_ == "Granted")
}
