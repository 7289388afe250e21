//! The file of `davit run --config`: which controllers run, and how.
//!
//! An unknown key or a value that makes no sense is refused by its path, before
//! anything is started or changed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use davit_core::budget::Guardrails;
use davit_core::gate::Mode;
use davit_core::manifest::Permission;
use serde::Deserialize;
use serde_json::Value;

use crate::modules::ModuleConfig;

/// The whole file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The controllers, each with a name of its own.
    pub controllers: Vec<ControllerConfig>,
    /// How the API server is talked to.
    #[serde(default)]
    pub client: ClientConfig,
}

/// One controller.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ControllerConfig {
    /// Its name in logs and metrics and as field manager: a DNS label.
    pub name: String,
    /// Where its guest is.
    pub module: ModuleConfig,
    /// What it may do to the cluster.
    #[serde(default)]
    pub mode: ModeConfig,
    /// What the guest is configured with, as its schema says.
    #[serde(default)]
    pub config: Value,
    /// The part of what the guest declares that it is granted; all if absent.
    pub permissions: Option<Vec<PermissionConfig>>,
    /// Limits that hold whatever the guest decides.
    #[serde(default)]
    pub guardrails: GuardrailConfig,
    /// What a call of the guest may use.
    #[serde(default)]
    pub limits: LimitConfig,
}

/// What a controller may do to the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum ModeConfig {
    /// Plans are carried out.
    Enforce,
    /// Plans are shown.
    #[default]
    DryRun,
    /// The controller does not run.
    Off,
}

impl From<ModeConfig> for Mode {
    fn from(mode: ModeConfig) -> Self {
        match mode {
            ModeConfig::Enforce => Self::Enforce,
            ModeConfig::DryRun => Self::DryRun,
            ModeConfig::Off => Self::Off,
        }
    }
}

/// A write that a guest is granted, as a rule of RBAC.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PermissionConfig {
    /// `get`, `list`, `create`, `patch` or `delete`.
    pub verb: String,
    /// Empty for core.
    #[serde(default)]
    pub group: String,
    /// The plural, with its subresource: `pods/status`.
    pub resource: String,
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

/// Limits on what is written, in any 60 seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct GuardrailConfig {
    /// Plans that write anything.
    pub writes_per_minute: Option<u32>,
    /// Plans that delete or evict.
    pub deletes_per_minute: Option<u32>,
}

impl From<GuardrailConfig> for Guardrails {
    fn from(config: GuardrailConfig) -> Self {
        Self {
            writes_per_minute: config.writes_per_minute,
            deletes_per_minute: config.deletes_per_minute,
        }
    }
}

/// What a call of a guest may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct LimitConfig {
    /// Memory of one instance, in MiB (1 to 1024).
    pub memory_mib: u32,
    /// Time that a call may compute, in milliseconds (10 to 60,000).
    pub call_millis: u64,
    /// How many calls run at once (1 to 64).
    pub instances: u32,
}

impl Default for LimitConfig {
    fn default() -> Self {
        Self {
            memory_mib: 64,
            call_millis: 1000,
            instances: 4,
        }
    }
}

/// How the API server is talked to.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct ClientConfig {
    /// Requests a second, watches left out.
    pub qps: f64,
    /// Requests at once after a pause.
    pub burst: u32,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            qps: 1000.0,
            burst: 2000,
        }
    }
}

/// Why a configuration file is not used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{path}: cannot be read: {source}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no YAML.
    #[error("{path}: is no YAML: {reason}", path = path.display())]
    NotYaml {
        /// The file.
        path: PathBuf,
        /// Where and why.
        reason: String,
    },
    /// A value is wrong.
    #[error("{path}: {field}: {reason}", path = path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The path of the value: `controllers[0].mode`.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// Reads a configuration file.
pub fn read(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable {
        path: path.to_owned(),
        source,
    })
}

/// Checks the text of a configuration file; `path` is for errors.
pub fn parse(path: &Path, text: &str) -> Result<Config, ConfigError> {
    // `mode: Off` is a word, not a boolean.
    let options = serde_saphyr::options! { strict_booleans: true };
    let value: Value = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        ConfigError::NotYaml {
            path: path.to_owned(),
            reason: first_line(&error.to_string()),
        }
    })?;
    let wrong = |field: String, reason: String| ConfigError::Field {
        path: path.to_owned(),
        field,
        reason,
    };
    let config: Config = serde_path_to_error::deserialize(value).map_err(|error| {
        let field = error.path().to_string();
        wrong(field, error.into_inner().to_string())
    })?;
    check(&config).map_err(|(field, reason)| wrong(field, reason))?;
    Ok(config)
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

fn check(config: &Config) -> Result<(), (String, String)> {
    let mut names = BTreeSet::new();
    for (position, controller) in config.controllers.iter().enumerate() {
        let wrong =
            |field: &str, reason: String| Err((format!("controllers[{position}].{field}"), reason));
        let name = &controller.name;
        if !is_dns_label(name) {
            return wrong(
                "name",
                format!(
                    "\"{name}\" is no DNS label: lower-case letters, digits and dashes, 63 at most"
                ),
            );
        }
        if !names.insert(name) {
            return wrong("name", format!("a second controller is called \"{name}\""));
        }
        if !matches!(controller.config, Value::Null | Value::Object(_)) {
            return wrong("config", "it must be a map".to_owned());
        }
        let limits = controller.limits;
        if !(1..=1024).contains(&limits.memory_mib) {
            return wrong("limits.memoryMib", out_of_range(limits.memory_mib, 1, 1024));
        }
        if !(10..=60_000).contains(&limits.call_millis) {
            return wrong(
                "limits.callMillis",
                out_of_range(limits.call_millis, 10, 60_000),
            );
        }
        if !(1..=64).contains(&limits.instances) {
            return wrong("limits.instances", out_of_range(limits.instances, 1, 64));
        }
    }
    let client = config.client;
    if !(client.qps.is_finite() && client.qps > 0.0) {
        let reason = format!("{} is not a number above 0", client.qps);
        return Err(("client.qps".to_owned(), reason));
    }
    if client.burst == 0 {
        return Err((
            "client.burst".to_owned(),
            "0 lets nothing through".to_owned(),
        ));
    }
    Ok(())
}

fn out_of_range<T: std::fmt::Display>(value: T, low: T, high: T) -> String {
    format!("{value} is out of range: {low} to {high}")
}

fn is_dns_label(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len())
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::ModuleSource;

    fn error(text: &str) -> String {
        parse(Path::new("c.yaml"), text).unwrap_err().to_string()
    }

    #[test]
    fn a_small_file_is_enough() {
        let config = parse(
            Path::new("c.yaml"),
            "controllers:\n- name: podgc\n  module: {builtin: podgc}\n",
        )
        .unwrap();
        let controller = &config.controllers[0];
        assert_eq!(controller.mode, ModeConfig::DryRun);
        let builtin = ModuleSource::Builtin("podgc".into());
        assert_eq!(controller.module, builtin.into());
        assert_eq!(config.client, ClientConfig::default());
    }

    #[test]
    fn errors_name_file_field_and_reason() {
        let one = |rest: &str| {
            error(&format!(
                "controllers:\n- name: podgc\n  module: {{builtin: podgc}}\n{rest}"
            ))
        };
        assert_eq!(
            one("  mode: Enforced\n"),
            "c.yaml: controllers[0].mode: unknown variant `Enforced`, expected one of \
             `Enforce`, `DryRun`, `Off`"
        );
        assert!(one("  mode: On\n").contains("unknown variant `On`"));
        assert!(one("  colour: red\n").starts_with("c.yaml: controllers[0].colour: unknown field"));
        assert_eq!(
            one("  limits: {instances: 0}\n"),
            "c.yaml: controllers[0].limits.instances: 0 is out of range: 1 to 64"
        );
        assert_eq!(
            one("- name: podgc\n  module: {file: /tmp/a.wasm}\n"),
            "c.yaml: controllers[1].name: a second controller is called \"podgc\""
        );
        assert_eq!(
            one("  config: 7\n"),
            "c.yaml: controllers[0].config: it must be a map"
        );
        assert!(error("controllers: [\n").starts_with("c.yaml: is no YAML: "));
        assert!(error("{}").contains("missing field `controllers`"));
        assert!(error("controllers: []\nclient: {qps: 0}\n").starts_with("c.yaml: client.qps: "));
    }

    #[test]
    fn off_needs_no_quotes() {
        let text = "controllers: [{name: a, module: {builtin: b}, mode: Off}]";
        let config = parse(Path::new("c.yaml"), text).unwrap();
        assert_eq!(config.controllers[0].mode, ModeConfig::Off);
    }

    #[test]
    fn names_are_dns_labels() {
        assert!(is_dns_label("podgc-2"));
        for bad in ["", "-a", "a-", "A", "a.b", &"x".repeat(64)] {
            assert!(!is_dns_label(bad), "{bad}");
        }
    }
}
