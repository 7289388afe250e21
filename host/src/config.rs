//! The file of `davit run --config`: which controllers run, and how.
//!
//! An unknown key or a value that makes no sense is refused by its path, before
//! anything is started or changed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::host::PrepareError;
use crate::spec::{ControllerSpec, SpecError, strict};

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// The controllers, each with a name of its own; those of the cluster's
    /// custom resources if none are given.
    pub controllers: Option<Vec<ControllerConfig>>,
    /// How the API server is talked to.
    pub client: ClientConfig,
}

/// One controller.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerConfig {
    /// Its name in logs and metrics and as field manager: a DNS label.
    pub name: String,
    /// Everything else, as the custom resource has it.
    pub spec: ControllerSpec,
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
    #[error("{path}: cannot be read", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no YAML.
    #[error("{path}: is not YAML: {reason}", path = path.display())]
    NotYaml {
        /// The file.
        path: PathBuf,
        /// Where and why.
        reason: String,
    },
    /// A value is wrong.
    #[error("{path}: {error}", path = path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// Which value, `controllers[0].mode`, and what is wrong with it.
        error: SpecError,
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
    let options = serde_saphyr::options! { strict_booleans: true };
    let value: Value = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        ConfigError::NotYaml {
            path: path.to_owned(),
            reason: first_line(&error.to_string()),
        }
    })?;
    read_config(&value).map_err(|error| ConfigError::Field {
        path: path.to_owned(),
        error,
    })
}

/// What a host says of a file whose controllers cannot run as they are
/// configured.
#[must_use]
pub fn refused(path: &Path, controllers: &[ControllerConfig], error: &PrepareError) -> ConfigError {
    let mut names = controllers.iter().map(|controller| &controller.name);
    let position = names.position(|name| *name == error.controller);
    let parent = position.map_or_else(
        || error.controller.clone(),
        |position| format!("controllers[{position}]"),
    );
    ConfigError::Field {
        path: path.to_owned(),
        error: error.reason.in_spec().below(&parent),
    }
}

fn read_config(value: &Value) -> Result<Config, SpecError> {
    let wrong = |field: &str, reason: String| SpecError {
        field: field.to_owned(),
        reason,
    };
    let Value::Object(fields) = value else {
        let what = "a map (controllers, client)";
        return Err(wrong("", strict::expected(what, value)));
    };
    let mut config = Config::default();
    for (name, value) in fields {
        match (name.as_str(), value) {
            // A list that is given, but has no entry (all of them may be
            // commented out), is a list of none.
            ("controllers", Value::Null) => config.controllers = Some(Vec::new()),
            ("controllers", Value::Array(controllers)) => {
                config.controllers = Some(read_controllers(controllers)?);
            }
            ("controllers", other) => {
                return Err(wrong("controllers", strict::expected("a list", other)));
            }
            ("client", Value::Null) => {}
            ("client", value) => {
                config.client = read_client(value).map_err(|error| error.below("client"))?;
            }
            (other, _) => {
                let reason = "there is no such field, only controllers, client";
                return Err(wrong(other, reason.to_owned()));
            }
        }
    }
    Ok(config)
}

fn read_controllers(controllers: &[Value]) -> Result<Vec<ControllerConfig>, SpecError> {
    let mut names = BTreeSet::new();
    let mut read = Vec::new();
    for (position, controller) in controllers.iter().enumerate() {
        let parent = format!("controllers[{position}]");
        let controller = read_controller(controller).map_err(|error| error.below(&parent))?;
        if !names.insert(controller.name.clone()) {
            let reason = format!("a second controller is called \"{}\"", controller.name);
            let field = "name".to_owned();
            return Err(SpecError { field, reason }.below(&parent));
        }
        read.push(controller);
    }
    Ok(read)
}

fn read_controller(value: &Value) -> Result<ControllerConfig, SpecError> {
    let wrong = |field: &str, reason: String| SpecError {
        field: field.to_owned(),
        reason,
    };
    let Value::Object(fields) = value else {
        let what = "a map with a name and a module";
        return Err(wrong("", strict::expected(what, value)));
    };
    let mut fields = fields.clone();
    let name = match fields.remove("name") {
        Some(Value::String(name)) => name,
        None | Some(Value::Null) => return Err(wrong("name", "it must be set".to_owned())),
        Some(other) => return Err(wrong("name", strict::expected("text", &other))),
    };
    if !is_dns_label(&name) {
        let what = "a DNS label (lower-case letters, digits and dashes, 63 at most)";
        return Err(wrong("name", strict::expected_text(what, &name)));
    }
    let spec = ControllerSpec::read(Value::Object(fields))?;
    Ok(ControllerConfig { name, spec })
}

fn read_client(value: &Value) -> Result<ClientConfig, SpecError> {
    let client: ClientConfig = strict::read(value)?;
    let above_none = |field: &str, found: f64| SpecError {
        field: field.to_owned(),
        reason: format!("expected a number above 0, found {found}"),
    };
    if !(client.qps.is_finite() && client.qps > 0.0) {
        return Err(above_none("qps", client.qps));
    }
    if client.burst == 0 {
        return Err(above_none("burst", client.burst.into()));
    }
    Ok(client)
}

/// What the parser says, without its picture of the place, and without its
/// advice to programmers.
fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let line = line.strip_prefix("error: ").unwrap_or(line);
    let advice = line.find(", set DuplicateKeyPolicy");
    line.get(..advice.unwrap_or(line.len()))
        .unwrap_or(line)
        .to_owned()
}

pub(crate) fn is_dns_label(name: &str) -> bool {
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
    use crate::spec::ModeConfig;

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
        let controller = &config.controllers.unwrap()[0];
        assert_eq!(controller.spec.mode, ModeConfig::DryRun);
        let builtin = ModuleSource::Builtin("podgc".into());
        assert_eq!(controller.spec.module, builtin.into());
        assert_eq!(config.client, ClientConfig::default());
    }

    /// What is wrong with an entry of `controllers` that has these fields too.
    fn entry(rest: &str) -> String {
        let error = error(&format!(
            "controllers:\n- name: podgc\n  module: {{builtin: podgc}}\n  {rest}\n"
        ));
        let found = error.strip_prefix("c.yaml: controllers[0].");
        found.unwrap_or(&error).to_owned()
    }

    #[test]
    fn a_file_that_does_not_fit_is_refused_by_the_path_of_the_value() {
        for (text, expected) in [
            ("", "expected a map (controllers, client), found nothing"),
            (
                "# none",
                "expected a map (controllers, client), found nothing",
            ),
            ("- a", "expected a map (controllers, client), found a list"),
            (
                "controler: []",
                "controler: there is no such field, only controllers, client",
            ),
            ("controllers: 5", "controllers: expected a list, found 5"),
            (
                "controllers: [5]",
                "controllers[0]: expected a map with a name and a module, found 5",
            ),
            ("controllers: [{}]", "controllers[0].name: it must be set"),
            (
                "controllers: [{name: 5}]",
                "controllers[0].name: expected text, found 5",
            ),
            (
                "controllers: [{name: A_b}]",
                "controllers[0].name: expected a DNS label (lower-case letters, digits and \
                 dashes, 63 at most), found \"A_b\"",
            ),
            (
                "controllers: [{name: a}]",
                "controllers[0].module: it must be set",
            ),
            (
                "controllers: [{name: a, module: ~}]",
                "controllers[0].module: it must be set",
            ),
            (
                "controllers: [{name: a, module: podgc}]",
                "controllers[0].module: expected a map (builtin, file, configMap, oci, digest), \
                 found \"podgc\"",
            ),
            (
                "controllers: [{name: a, module: {}}]",
                "controllers[0].module: expected one of builtin, file, configMap, oci, found none",
            ),
            (
                "controllers: [{name: a, module: {builtin: b}}, {name: a, module: {builtin: b}}]",
                "controllers[1].name: a second controller is called \"a\"",
            ),
            ("client: 7", "client: expected a map (qps, burst), found 7"),
            (
                "client: {rate: 7}",
                "client.rate: there is no such field, only qps, burst",
            ),
            (
                "client: {qps: fast}",
                "client.qps: expected a number, found \"fast\"",
            ),
            (
                "client: {qps: 0}",
                "client.qps: expected a number above 0, found 0",
            ),
            (
                "client: {qps: -1.5}",
                "client.qps: expected a number above 0, found -1.5",
            ),
            (
                "client: {burst: 1.5}",
                "client.burst: expected a whole number, found 1.5",
            ),
            (
                "client: {burst: -1}",
                "client.burst: expected a whole number from 0 to 4294967295, found -1",
            ),
            (
                "client: {burst: 0}",
                "client.burst: expected a number above 0, found 0",
            ),
            (
                "controllers: [{name: a, name: b}]",
                "is not YAML: line 1 column 25: duplicate mapping key: name",
            ),
        ] {
            assert_eq!(error(text), format!("c.yaml: {expected}"), "{text}");
        }
    }

    #[test]
    fn a_controller_that_does_not_fit_is_refused_in_words_of_its_own() {
        for (text, expected) in [
            (
                "colour: red",
                "colour: there is no such field, only module, mode, config, permissions, \
                 guardrails, limits, rollout, serviceAccountName",
            ),
            (
                "mode: Enforced",
                "mode: expected one of Enforce, DryRun, Disabled, found \"Enforced\"",
            ),
            (
                "mode: On",
                "mode: expected one of Enforce, DryRun, Disabled, found \"On\"",
            ),
            (
                "mode: [1]",
                "mode: expected one of Enforce, DryRun, Disabled, found a list",
            ),
            ("config: 7", "config: expected a map, found 7"),
            ("config: []", "config: expected a map, found a list"),
            (
                "permissions: {verb: get}",
                "permissions: expected a list, found a map",
            ),
            (
                "permissions: [get pods]",
                "permissions[0]: expected a map (verb, group, resource), found \"get pods\"",
            ),
            (
                "permissions: [{verb: get}]",
                "permissions[0].resource: it must be set",
            ),
            (
                "limits: much",
                "limits: expected a map (memoryMib, callMillis, instances), found \"much\"",
            ),
            (
                "limits: {memoryMib: much}",
                "limits.memoryMib: expected a whole number, found \"much\"",
            ),
            (
                "limits: {memoryMib: 64.5}",
                "limits.memoryMib: expected a whole number, found 64.5",
            ),
            (
                "limits: {memoryMib: -1}",
                "limits.memoryMib: expected a whole number from 0 to 4294967295, found -1",
            ),
            (
                "limits: {instances: 0}",
                "limits.instances: expected a number from 1 to 16, found 0",
            ),
            (
                "guardrails: {deletesPercentPerMinute: 300}",
                "guardrails.deletesPercentPerMinute: expected a whole number from 1 to 100, \
                 found 300",
            ),
            (
                "guardrails: {deletesPercentPerMinute: half}",
                "guardrails.deletesPercentPerMinute: expected a whole number, found \"half\"",
            ),
            (
                "guardrails: {cooldown: 30}",
                "guardrails.cooldown: expected a duration such as 30s, 10m or 1h30m, or \"until \
                 released\", found 30",
            ),
            (
                "guardrails: {cooldown: soon}",
                "guardrails.cooldown: expected a duration such as 30s, 10m or 1h30m, or \"until \
                 released\", found \"soon\"",
            ),
            (
                "guardrails: {cooldown: 1s}",
                "guardrails.cooldown: expected 10s or more, or \"until released\", found 1s",
            ),
            (
                "rollout: {steps: shadow 10m}",
                "rollout.steps: expected a list, found \"shadow 10m\"",
            ),
            (
                "rollout: {steps: [shadow 1m, shadow]}",
                "rollout.steps[1]: expected a step such as \"shadow 10m\", \"weight 10 for 10m\" or \
                 \"weight 50 until promoted\", found \"shadow\"",
            ),
            (
                "rollout: {steps: [10]}",
                "rollout.steps[0]: expected a step such as \"shadow 10m\", \"weight 10 for 10m\" or \
                 \"weight 50 until promoted\", found 10",
            ),
            (
                "rollout: {paused: 1}",
                "rollout.paused: expected true or false, found 1",
            ),
            (
                "rollout: {cohort: {by: Pod}}",
                "rollout.cohort.by: expected one of Uid, Namespace, Owner, Node, found \"Pod\"",
            ),
            (
                "rollout: {cohort: {matchLabels: {tier: 1}}}",
                "rollout.cohort.matchLabels.tier: expected text, found 1",
            ),
            (
                "rollout: {analysis: {window: 5}}",
                "rollout.analysis.window: expected a duration such as 30s, 10m or 1h30m, found 5",
            ),
            (
                "rollout: {analysis: {maxDisagreementPercent: 101}}",
                "rollout.analysis.maxDisagreementPercent: expected a whole number from 0 to 100, \
                 found 101",
            ),
            (
                "serviceAccountName: [a]",
                "serviceAccountName: expected text, found a list",
            ),
        ] {
            assert_eq!(entry(text), expected, "{text}");
        }
        // What is found is data: on one line, and not all of it.
        let long = format!("mode: \"a\\nb\\e[31m{}\"", "x".repeat(10_000));
        let found = entry(&long);
        assert!(found.contains(r#"found "a\nb\u{1b}[31mxxx"#), "{found}");
        assert!(found.len() < 300, "{found}");
    }

    #[test]
    fn a_field_without_a_value_is_left_out() {
        let text = "controllers: [{name: a, module: {builtin: b, digest: ~}, mode: ~, limits: ~}]\n\
            client: ~\n";
        let config = parse(Path::new("c.yaml"), text).unwrap();
        assert_eq!(config.client, ClientConfig::default());
        let spec = &config.controllers.unwrap()[0].spec;
        assert_eq!(spec.mode, ModeConfig::DryRun);
        assert_eq!(spec.limits, crate::spec::LimitConfig::default());
    }

    #[test]
    fn a_list_without_entries_is_not_left_out() {
        let controllers = |text| parse(Path::new("c.yaml"), text).unwrap().controllers;
        assert_eq!(controllers("controllers:\n# - name: a\n"), Some(vec![]));
        assert_eq!(controllers("controllers: []\n"), Some(vec![]));
        assert_eq!(controllers("client: {qps: 5}\n"), None);
    }

    /// kubectl reads YAML 1.1, in which `Off`, `On`, `No` and `Yes` are booleans.
    #[test]
    fn no_mode_needs_quotes() {
        let schema = serde_json::to_value(schemars::schema_for!(ModeConfig)).unwrap();
        let modes = schema["oneOf"].as_array().unwrap().iter();
        let modes: Vec<&str> = modes.filter_map(|mode| mode["const"].as_str()).collect();
        assert_eq!(modes.len(), 3, "{schema}");
        for mode in modes {
            let value: Value = serde_saphyr::from_str(mode).unwrap();
            assert_eq!(value, mode);
            let text = format!("controllers: [{{name: a, module: {{builtin: b}}, mode: {mode}}}]");
            parse(Path::new("c.yaml"), &text).unwrap();
        }
        let off: Value = serde_saphyr::from_str("Off").unwrap();
        assert_eq!(off, false, "the test would notice a boolean");
    }

    #[test]
    fn names_are_dns_labels() {
        assert!(is_dns_label("podgc-2"));
        for bad in ["", "-a", "a-", "A", "a.b", &"x".repeat(64)] {
            assert!(!is_dns_label(bad), "{bad}");
        }
    }
}
