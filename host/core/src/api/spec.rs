//! The spec of a controller: of the custom resource `controllers.davit.dev`, and of an
//! entry of the configuration file.

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
    /// The source of the guest's module.
    pub module: ModuleConfig,
    /// What the host does with the controller's plans. `Enforce`: the host executes
    /// them. `DryRun`: the host logs and counts them, and writes nothing. `Disabled`:
    /// the host does not call the guest.
    #[serde(default)]
    pub mode: ModeConfig,
    /// The configuration of the guest. The guest's schema says which values are valid;
    /// `davit inspect` prints it.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "any_map")]
    pub config: Value,
    /// The permissions that you grant, of those that the guest's manifest asks for. If
    /// absent, all of them are granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub permissions: Option<Vec<PermissionConfig>>,
    /// Limits on the writes of the controller, whatever the guest decides.
    #[serde(default, skip_serializing_if = "is_default")]
    pub guardrails: GuardrailConfig,
    /// The resources that one call of the guest may use.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: LimitConfig,
    /// How a new revision replaces the stable one. If absent, at once.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rollout: RolloutConfig,
    /// The ServiceAccount that the controller writes as, in Davit's own namespace. If
    /// absent, Davit's own ServiceAccount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = SUBDOMAIN))]
    pub service_account_name: Option<String>,
}

/// The verbs of RBAC for resources that a controller may need.
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

/// The pattern of a DNS subdomain, as of the names of most objects.
const SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// What the host does with the plans of a controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ModeConfig {
    /// Plans are executed.
    Enforce,
    /// Plans are logged and counted, not executed.
    #[default]
    DryRun,
    /// The guest is not called.
    Disabled,
}

/// A permission, as in a rule of RBAC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PermissionConfig {
    /// A verb of RBAC, such as `get`, `create`, `patch` or `delete`.
    #[schemars(extend("enum" = VERBS))]
    pub verb: String,
    /// The API group; empty for the core group.
    #[serde(default)]
    pub group: String,
    /// The plural name of the resource, with its subresource, such as `pods/status`.
    pub resource: String,
}

impl ControllerSpec {
    /// The spec of a module, with the default for every other field.
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

    /// Reads and validates a spec. The error names the first invalid field.
    pub fn read(value: &Value) -> Result<Self, SpecError> {
        let spec: Self = strict::read(value)?;
        spec.check()?;
        Ok(spec)
    }

    /// Validates the values. The error names the first invalid field.
    pub fn check(&self) -> Result<(), SpecError> {
        if !matches!(self.config, Value::Null | Value::Object(_)) {
            let reason = strict::expected("a map", &self.config);
            return Err(SpecError::new("config", reason));
        }
        for (position, rule) in self.permissions.iter().flatten().enumerate() {
            if !VERBS.contains(&rule.verb.as_str()) {
                let field = format!("permissions[{position}].verb");
                let reason = format!(
                    "\"{}\" is not a verb of RBAC: use one of {}",
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
                "\"{name}\" is not a valid name of a ServiceAccount: use lower-case letters, \
                 digits, dashes and dots, 253 at most"
            );
            return Err(SpecError::new("serviceAccountName", reason));
        }
        self.limits.check()?;
        self.guardrails.check()?;
        self.rollout.check()
    }

    /// The operator's settings that apply to every revision.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let granted = self.permissions.as_ref();
        Settings {
            mode: self.mode.into(),
            granted: granted.map(|rules| rules.iter().map(Into::into).collect()),
            guardrails: (&self.guardrails).into(),
            ..Settings::default()
        }
    }
}

/// Encodes a configuration as the guest receives it. Null is an empty map.
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
