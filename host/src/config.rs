//! The file of `davit run --config`: which controllers run, and how.
//!
//! An unknown key or a value that makes no sense is refused by its path, before
//! anything is started or changed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::spec::{ControllerSpec, SpecError};

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// The controllers, each with a name of its own; those of the cluster's
    /// custom resources if none are given.
    pub controllers: Option<Vec<ControllerConfig>>,
    /// How the API server is talked to.
    pub client: ClientConfig,
}

/// The file as it is written. Each controller is read by itself, so that what
/// is wrong with it is told by its path.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default, deserialize_with = "listed")]
    controllers: Option<Vec<Map<String, Value>>>,
    #[serde(default)]
    client: ClientConfig,
}

/// A list that is given, but has no entry (all of them may be commented out), is
/// a list of none.
fn listed<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<Map<String, Value>>>, D::Error> {
    let given = Option::deserialize(deserializer)?;
    Ok(Some(given.unwrap_or_default()))
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
    let value: Value = serde_saphyr::from_str(text).map_err(|error| ConfigError::NotYaml {
        path: path.to_owned(),
        reason: first_line(&error.to_string()),
    })?;
    let wrong = |field: String, reason: String| ConfigError::Field {
        path: path.to_owned(),
        field,
        reason,
    };
    let written: Written = serde_path_to_error::deserialize(value).map_err(|error| {
        let field = error.path().to_string();
        wrong(field, error.into_inner().to_string())
    })?;
    let controllers = written.controllers.map(|controllers| {
        let numbered = controllers.into_iter().enumerate();
        numbered
            .map(|(position, controller)| {
                read_controller(controller).map_err(|SpecError { field, reason }| {
                    wrong(format!("controllers[{position}].{field}"), reason)
                })
            })
            .collect::<Result<Vec<_>, _>>()
    });
    let config = Config {
        controllers: controllers.transpose()?,
        client: written.client,
    };
    check(&config).map_err(|(field, reason)| wrong(field, reason))?;
    Ok(config)
}

fn read_controller(mut fields: Map<String, Value>) -> Result<ControllerConfig, SpecError> {
    let wrong = |reason: String| SpecError {
        field: "name".to_owned(),
        reason,
    };
    let name = match fields.remove("name") {
        Some(Value::String(name)) => name,
        Some(other) => return Err(wrong(format!("{other} is no text"))),
        None => return Err(wrong("missing field `name`".to_owned())),
    };
    if !is_dns_label(&name) {
        return Err(wrong(format!(
            "\"{name}\" is no DNS label: lower-case letters, digits and dashes, 63 at most"
        )));
    }
    let spec = ControllerSpec::read(Value::Object(fields))?;
    Ok(ControllerConfig { name, spec })
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

fn check(config: &Config) -> Result<(), (String, String)> {
    let mut names = BTreeSet::new();
    for (position, controller) in config.controllers.iter().flatten().enumerate() {
        let name = &controller.name;
        if !names.insert(name) {
            let field = format!("controllers[{position}].name");
            return Err((field, format!("a second controller is called \"{name}\"")));
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
             `Enforce`, `DryRun`, `Disabled`"
        );
        assert!(one("  mode: Of\n").contains("unknown variant `Of`"));
        assert!(one("  colour: red\n").starts_with("c.yaml: controllers[0].colour: unknown field"));
        assert_eq!(
            one("  limits: {instances: 0}\n"),
            "c.yaml: controllers[0].limits.instances: 0 is out of range: 1 to 16"
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
        assert!(error("controllers: [{}]\n").contains("[0].name: missing field `name`"));
        assert!(error("controllers: []\nclient: {qps: 0}\n").starts_with("c.yaml: client.qps: "));
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
