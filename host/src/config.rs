//! The file of `davit run --config`: the controllers, and the client of the API server.
//!
//! An error names the path of an unknown field or invalid value, before anything is
//! started or changed.

mod file;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::loader::ControllerLoadError;
use crate::yaml;
use davit_core::api::{ControllerSpec, HumanDuration, SpecError, is_dns_label, strict};
use davit_core::manifest::Rate;
use davit_core::startup::{ControllerOrigin, FileChange, StartSettings};
use davit_core::trust::{TrustPolicy, UnsignedPolicy};

pub use file::ConfigFile;

/// The sizes that a journal may have, in MiB.
pub const JOURNAL_MIB: RangeInclusive<u64> = 8..=1 << 30;

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// The controllers, each with a unique name; those of the cluster's custom
    /// resources if absent.
    pub controllers: Option<Vec<ControllerConfig>>,
    /// The client of the API server.
    pub client: ClientConfig,
    /// Which modules may run and write.
    pub trust: TrustConfig,
    /// The journal; what a flag of `davit run` says wins.
    pub journal: JournalConfig,
}

/// The journal: each field has the flag of the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct JournalConfig {
    /// The directory; nothing is recorded without one.
    pub directory: Option<PathBuf>,
    /// After this time an entry may be removed.
    pub max_age: Option<HumanDuration>,
    /// The largest size of the directory, in MiB.
    pub max_mib: Option<u64>,
    /// How often a keyframe is written at least.
    pub segment_age: Option<HumanDuration>,
    /// How long what was written may wait until the disk has it.
    pub sync: Option<HumanDuration>,
    /// The file of the profile.
    pub profile: Option<PathBuf>,
}

/// Which modules may run and write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct TrustConfig {
    /// What the host does with modules that are neither built in, nor pinned by their
    /// digest, nor signed.
    pub unsigned: UnsignedPolicy,
}

impl Config {
    /// Which modules the host trusts. The owner of a file with controllers names the
    /// files of their modules as well.
    #[must_use]
    pub fn trust(&self) -> TrustPolicy {
        TrustPolicy {
            unsigned: self.trust.unsigned,
            files: self.controllers.is_some(),
        }
    }

    /// The settings that take effect when a host starts.
    #[must_use]
    pub fn start_settings(&self) -> StartSettings {
        StartSettings {
            origin: match &self.controllers {
                Some(_) => ControllerOrigin::File,
                None => ControllerOrigin::Cluster,
            },
            rate: self.client.rate(),
            unsigned: self.trust.unsigned,
        }
    }

    /// What a host that was started with this file does with its next content.
    #[must_use]
    pub fn change(&self, next: &Self) -> FileChange {
        let mut change = self.start_settings().change(&next.start_settings());
        if self.journal != next.journal {
            change.deferred.push("journal");
        }
        change
    }
}

/// One controller.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerConfig {
    /// Its name in logs and metrics and as field manager: a DNS label.
    pub name: String,
    /// The other fields, as in the custom resource.
    pub spec: ControllerSpec,
}

/// The client of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct ClientConfig {
    /// Requests a second, without watches.
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

impl ClientConfig {
    /// The rate of requests.
    #[must_use]
    pub fn rate(&self) -> Rate {
        Rate {
            per_second: self.qps,
            burst: self.burst,
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
        /// The error.
        source: std::io::Error,
    },
    /// The file is not YAML.
    #[error("{path}: is not YAML: {reason}", path = path.display())]
    NotYaml {
        /// The file.
        path: PathBuf,
        /// The place and the error.
        reason: String,
    },
    /// A value is invalid.
    #[error("{path}: {error}", path = path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The field, such as `controllers[0].mode`, and the error.
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
    // As kubectl reads it: an unquoted Off is a boolean.
    let value: Value = yaml::one(text).map_err(|error| ConfigError::NotYaml {
        path: path.to_owned(),
        reason: error.to_string(),
    })?;
    read_config(&value).map_err(|error| ConfigError::Field {
        path: path.to_owned(),
        error,
    })
}

/// The error for a file whose controllers cannot run as configured.
#[must_use]
pub fn refused(
    path: &Path,
    controllers: &[ControllerConfig],
    error: &ControllerLoadError,
) -> ConfigError {
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
        let what = "a map (controllers, client, journal, trust)";
        return Err(wrong("", strict::expected(what, value)));
    };
    let mut config = Config::default();
    for (name, value) in fields {
        match (name.as_str(), value) {
            // A list without entries (all of them may be commented out) is an empty
            // list.
            ("controllers", Value::Null) => config.controllers = Some(Vec::new()),
            ("controllers", Value::Array(controllers)) => {
                config.controllers = Some(read_controllers(controllers)?);
            }
            ("controllers", other) => {
                return Err(wrong("controllers", strict::expected("a list", other)));
            }
            ("client" | "journal" | "trust", Value::Null) => {}
            ("journal", value) => {
                config.journal = read_journal(value).map_err(|error| error.below("journal"))?;
            }
            ("trust", value) => {
                config.trust = strict::read(value).map_err(|error| error.below("trust"))?;
            }
            ("client", value) => {
                config.client = read_client(value).map_err(|error| error.below("client"))?;
            }
            (other, _) => {
                let reason = "unknown field, expected one of controllers, client, journal, trust";
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
    let spec = ControllerSpec::read(&Value::Object(fields))?;
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

fn read_journal(value: &Value) -> Result<JournalConfig, SpecError> {
    let journal: JournalConfig = strict::read(value)?;
    let wrong = |field: &str, reason: String| SpecError {
        field: field.to_owned(),
        reason,
    };
    if let Some(mib) = journal.max_mib
        && !JOURNAL_MIB.contains(&mib)
    {
        let (least, most) = (JOURNAL_MIB.start(), JOURNAL_MIB.end());
        return Err(wrong(
            "maxMib",
            format!("expected a number from {least} to {most}, found {mib}"),
        ));
    }
    for (field, path) in [
        ("directory", &journal.directory),
        ("profile", &journal.profile),
    ] {
        if path
            .as_ref()
            .is_some_and(|path| path.as_os_str().is_empty())
        {
            return Err(wrong(
                field,
                "expected a path, found an empty text".to_owned(),
            ));
        }
    }
    Ok(journal)
}

#[cfg(test)]
mod tests;
