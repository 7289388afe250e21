//! What an operator says of a controller: the spec of the custom resource
//! `controllers.davit.dev`, and an entry of the file of `davit run --config`.

use crate::controller::Settings;
use crate::gate::Mode;
use crate::manifest::Permission;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::{SpecError, is_default};
use super::limits::{GuardrailConfig, LimitConfig};
use super::module::ModuleConfig;
use super::name::is_dns_subdomain;
use super::rollout::RolloutConfig;
use super::strict;

/// A controller that Davit runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ControllerSpec {
    /// Where the guest's module is.
    pub module: ModuleConfig,
    /// What the controller may do to the cluster: carry out its plans
    /// (`Enforce`), show them (`DryRun`), or not run (`Disabled`).
    #[serde(default)]
    pub mode: ModeConfig,
    /// What the guest is configured with, as its schema says.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "any_map")]
    pub config: Value,
    /// The part of what the guest declares that it is granted; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub permissions: Option<Vec<PermissionConfig>>,
    /// Limits that hold whatever the guest decides.
    #[serde(default, skip_serializing_if = "is_default")]
    pub guardrails: GuardrailConfig,
    /// What a call of the guest may use.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: LimitConfig,
    /// How another module or configuration takes over; at once if absent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rollout: RolloutConfig,
    /// The ServiceAccount, in Davit's own namespace, in whose name the
    /// controller writes; Davit's own if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = SUBDOMAIN))]
    pub service_account_name: Option<String>,
}

/// The verbs of RBAC for resources, as far as a controller may need them.
const VERBS: [&str; 8] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];

/// A DNS subdomain, as the names of most objects are.
const SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// What a controller may do to the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ModeConfig {
    /// Plans are carried out.
    Enforce,
    /// Plans are shown.
    #[default]
    DryRun,
    /// The controller does not run.
    Disabled,
}

/// A write that a guest is granted, as a rule of RBAC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PermissionConfig {
    /// A verb of RBAC, such as `get`, `create`, `patch` or `delete`.
    #[schemars(extend("enum" = VERBS))]
    pub verb: String,
    /// Empty for core.
    #[serde(default)]
    pub group: String,
    /// The plural, with its subresource: `pods/status`.
    pub resource: String,
}

impl ControllerSpec {
    /// A module with everything else as it is by default.
    #[must_use]
    pub fn of(module: ModuleConfig) -> Self {
        Self {
            module,
            mode: ModeConfig::default(),
            config: Value::Null,
            permissions: None,
            guardrails: GuardrailConfig::default(),
            limits: LimitConfig::default(),
            rollout: RolloutConfig::default(),
            service_account_name: None,
        }
    }

    /// Reads a spec, and refuses what makes no sense by the path of the field.
    pub fn read(value: &Value) -> Result<Self, SpecError> {
        let spec: Self = strict::read(value)?;
        spec.check()?;
        Ok(spec)
    }

    /// Refuses values that make no sense.
    pub fn check(&self) -> Result<(), SpecError> {
        if !matches!(self.config, Value::Null | Value::Object(_)) {
            let reason = strict::expected("a map", &self.config);
            return Err(SpecError::new("config", reason));
        }
        for (position, rule) in self.permissions.iter().flatten().enumerate() {
            if !VERBS.contains(&rule.verb.as_str()) {
                let field = format!("permissions[{position}].verb");
                let reason = format!(
                    "\"{}\" is no verb of RBAC: give one of {}",
                    rule.verb,
                    VERBS.join(", ")
                );
                return Err(SpecError::new(&field, reason));
            }
        }
        if let Some(name) = &self.service_account_name
            && !is_dns_subdomain(name)
        {
            let reason = format!(
                "\"{name}\" is no name of a ServiceAccount: lower-case letters, digits, dashes and \
                 dots, 253 at most"
            );
            return Err(SpecError::new("serviceAccountName", reason));
        }
        self.limits.check()?;
        self.guardrails.check()?;
        self.rollout.check()
    }

    /// What the core has to know of it.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let granted = self.permissions.as_ref();
        Settings {
            mode: self.mode.into(),
            granted: granted.map(|rules| rules.iter().map(Into::into).collect()),
            guardrails: (&self.guardrails).into(),
        }
    }
}

/// The operator's configuration, encoded as the guest receives it. None is an empty
/// map.
pub fn encode_config(config: &Value) -> Result<Vec<u8>, rmp_serde::encode::Error> {
    match config {
        Value::Null => rmp_serde::to_vec_named(&serde_json::Map::new()),
        config => rmp_serde::to_vec_named(config),
    }
}

impl From<ModeConfig> for Mode {
    fn from(mode: ModeConfig) -> Self {
        match mode {
            ModeConfig::Enforce => Self::Enforce,
            ModeConfig::DryRun => Self::DryRun,
            ModeConfig::Disabled => Self::Disabled,
        }
    }
}

impl From<&PermissionConfig> for Permission {
    fn from(config: &PermissionConfig) -> Self {
        Self {
            verb: config.verb.clone(),
            group: config.group.clone(),
            resource: config.resource.clone(),
        }
    }
}

fn any_map(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
    })
}
