//! The spec of a controller: of the custom resource `controllers.davit.dev`, and of an
//! entry of the configuration file.

use crate::controller::Settings;
use crate::gate::Mode;
use crate::grant::{Grant, Permissions, WRITE_VERBS};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::{SpecError, is_default};
use super::limits::{GuardrailConfig, LimitConfig};
use super::module::ModuleConfig;
use super::name::is_dns_subdomain;
use super::rollout::RolloutConfig;
use super::strict;
use super::undo::UndoConfig;

/// A controller that Davit runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.compareWith) || self.mode != 'Enforce'",
    "message": "compareWith needs the mode DryRun: remove it to enforce",
}]))]
pub struct ControllerSpec {
    /// The source of the guest's module.
    pub module: ModuleConfig,
    /// What the host does with the controller's plans. `Enforce`: the host executes
    /// them. `DryRun`: the host logs and counts them, and writes nothing. `Disabled`:
    /// the host does not call the guest.
    #[serde(default)]
    pub mode: Mode,
    /// What the plans of a dry run are compared with. `Cluster`: with the deletions and
    /// evictions that really happen; `davit diff --against cluster` shows where both agree.
    /// Only with the mode `DryRun`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compare_with: Option<CompareWith>,
    /// The configuration of the guest. The guest's schema says which values are valid;
    /// `davit inspect` prints it.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "any_map")]
    pub config: Value,
    /// What the guest may read and write. A guest that declares more does not run: the
    /// condition `Granted` names what is missing. If absent, a guest that ships with
    /// Davit may read and write what it declares, and any other guest nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Permissions>,
    /// Limits on the writes of the controller, whatever the guest decides.
    #[serde(default, skip_serializing_if = "is_default")]
    pub guardrails: GuardrailConfig,
    /// The resources that one call of the guest may use, and the most that the host keeps
    /// for the guest.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: LimitConfig,
    /// How a new revision replaces the stable one. If absent, immediately.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rollout: RolloutConfig,
    /// The ServiceAccount that the controller reads and writes as, in Davit's own
    /// namespace. It has to be allowed to list and watch what the guest watches. If absent,
    /// the controller has the permissions of Davit's own ServiceAccount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = SUBDOMAIN))]
    pub service_account_name: Option<String>,
    /// The objects that are kept before the controller deletes them. If absent, none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub undo: UndoConfig,
}

/// The pattern of a DNS subdomain, as of the names of most objects.
const SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// What the plans of a dry run are compared with. `Cluster`: the deletions and evictions
/// that Davit did not make. Not with the mode `Enforce`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CompareWith {
    /// The deletions and evictions that Davit did not make.
    Cluster,
}

impl ControllerSpec {
    /// The spec of a module, with the default for every other field.
    #[must_use]
    pub fn of(module: ModuleConfig) -> Self {
        Self {
            module,
            mode: Mode::default(),
            compare_with: None,
            config: Value::Null,
            permissions: None,
            guardrails: GuardrailConfig::default(),
            limits: LimitConfig::default(),
            rollout: RolloutConfig::default(),
            service_account_name: None,
            undo: UndoConfig::default(),
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
        // `davit stop` disables any controller: then nothing is compared.
        if self.compare_with.is_some() && self.mode == Mode::Enforce {
            let reason = "needs the mode DryRun: what a controller deletes by itself, nobody else \
                          deletes; remove it to enforce";
            return Err(SpecError::new("compareWith", reason));
        }
        if let Some(permissions) = &self.permissions {
            check_permissions(permissions)?;
        }
        if let Some(name) = &self.service_account_name
            && !is_dns_subdomain(name)
        {
            let reason = format!(
                "{} is not a valid name of a ServiceAccount: use lower-case letters, digits, \
                 dashes and dots, 253 at most",
                strict::quoted(name)
            );
            return Err(SpecError::new("serviceAccountName", reason));
        }
        self.undo.check()?;
        self.limits.check()?;
        self.guardrails.check()?;
        self.rollout.check()
    }

    /// The operator's settings that apply to every revision, with what it grants to the
    /// guest.
    #[must_use]
    pub fn settings(&self, grant: Grant) -> Settings {
        Settings {
            mode: self.mode,
            grant,
            guardrails: (&self.guardrails).into(),
            bounds: self.limits.into(),
            undo: Arc::new((&self.undo).into()),
            compares_with_cluster: self.compare_with == Some(CompareWith::Cluster),
            ..Settings::default()
        }
    }

    /// What the operator grants to a guest of this spec. `home` is Davit's own namespace.
    /// Without permissions, a trusted guest may read and write what it declares: one that
    /// ships with Davit, or one of a configuration file.
    #[must_use]
    pub fn grant(&self, is_trusted: bool, home: &str) -> Grant {
        match &self.permissions {
            None if is_trusted => Grant::Declared,
            rules => Grant::Rules {
                rules: Arc::new(rules.clone().unwrap_or_default()),
                home: home.into(),
            },
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

fn check_permissions(permissions: &Permissions) -> Result<(), SpecError> {
    let Permissions { reads, writes } = permissions;
    for (position, rule) in writes.iter().enumerate() {
        if !WRITE_VERBS.contains(&rule.verb.as_str()) {
            let field = format!("permissions.writes[{position}].verb");
            let reason = format!(
                "{} is not a verb of writes: use one of {}",
                strict::quoted(&rule.verb),
                WRITE_VERBS.join(", ")
            );
            return Err(SpecError::new(&field, reason));
        }
    }
    let reads = reads.iter().map(|rule| &rule.resource).enumerate();
    let writes = writes.iter().map(|rule| &rule.resource).enumerate();
    let reads = reads.map(|(position, resource)| ("reads", position, resource));
    let writes = writes.map(|(position, resource)| ("writes", position, resource));
    for (list, position, resource) in reads.chain(writes) {
        if resource.is_empty() {
            let field = format!("permissions.{list}[{position}].resource");
            return Err(SpecError::new(&field, "expected a resource, such as pods"));
        }
    }
    Ok(())
}

fn any_map(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Who deletes by itself leaves nothing to compare with. `davit stop` disables any
    /// controller, whatever else its spec says.
    #[test]
    fn only_a_dry_run_is_compared_with_the_cluster() {
        let read = |mode: &str, with: &str| {
            let module = json!({"builtin": "podgc"});
            let spec = json!({"module": module, "mode": mode, "compareWith": with});
            ControllerSpec::read(&spec)
        };
        for (mode, compares) in [("DryRun", true), ("Disabled", true)] {
            let settings = read(mode, "Cluster").unwrap().settings(Grant::default());
            assert_eq!(settings.compares_with_cluster, compares, "{mode}");
        }
        let error = read("Enforce", "Cluster").unwrap_err().to_string();
        assert!(
            error.starts_with("compareWith: needs the mode DryRun"),
            "{error}"
        );
        let error = read("DryRun", "Users").unwrap_err().to_string();
        assert!(error.starts_with("compareWith: "), "{error}");
    }
}
