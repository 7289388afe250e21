//! What `davit inspect` is about: a module, and the configuration of its guest.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use davit_core::api::UndoConfig;
use davit_core::undo::UndoRules;
use serde_json::Value;

use crate::cli::InspectArguments;
use crate::commands::policy::controllers::{self, Form, WrittenController};
use crate::commands::print::{part, text_at};
use crate::modules::BuiltinGuests;

/// A module, and the configuration of its guest.
pub(super) struct Subject {
    pub(super) module: PathBuf,
    /// Null for the guest's defaults.
    pub(super) config: Value,
    /// The name of the controller, if the file has it.
    pub(super) name: Option<String>,
    /// Its account; none for Davit's own.
    pub(super) account: Option<String>,
    /// What it keeps before it is deleted.
    pub(super) undo: UndoRules,
}

impl Subject {
    /// What the arguments name.
    pub(super) fn new(arguments: &InspectArguments) -> Result<Self> {
        let guests = BuiltinGuests::new(arguments.guests.clone());
        let builtin = arguments.module.as_deref().and_then(builtin);
        let controller = match &arguments.config {
            Some(path) => one(path, builtin, arguments.name.as_deref())?,
            None => None,
        };
        let module = match (&arguments.module, builtin, &arguments.config) {
            (_, Some(name), _) => guests.find(name)?,
            (Some(path), None, _) => path.clone(),
            (None, None, path) => match controller.as_ref().map(WrittenController::builtin) {
                Some(name) if !name.is_empty() => guests.find(name)?,
                _ => bail!(
                    "{} names no built-in guest: name the module too, as in davit inspect \
                     MODULE --config FILE",
                    path.as_deref().unwrap_or(Path::new("--config")).display()
                ),
            },
        };
        let controller = controller.unwrap_or(WrittenController {
            name: String::new(),
            spec: Value::Null,
            form: Form::Other,
        });
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let undo = match part(&controller.spec, "/undo") {
            Value::Null => UndoConfig::default(),
            undo => serde_json::from_value(undo.clone()).context("undo")?,
        };
        Ok(Self {
            module,
            config: controller.config().clone(),
            name: text(&controller.name),
            account: text(text_at(&controller.spec, "/serviceAccountName")),
            undo: (&undo).into(),
        })
    }
}

/// The configuration in a file, in JSON or YAML: as it is, or that of the only controller.
pub(crate) fn configuration(path: &Path) -> Result<Value> {
    let controller = one(path, None, None)?;
    Ok(controller.map_or(Value::Null, |it| it.config().clone()))
}

/// The name of a built-in guest, unless there is a file of this name.
fn builtin(module: &Path) -> Option<&str> {
    let name = module.to_str().filter(|_| !module.is_file())?;
    (!name.contains(['.', '/', '\\'])).then_some(name)
}

/// The controller in a file, or a configuration alone. Of several, the one of a built-in guest and
/// with a name, if these are given. None for a file without documents.
fn one(
    path: &Path,
    builtin: Option<&str>,
    name: Option<&str>,
) -> Result<Option<WrittenController>> {
    let mut found = controllers::in_file(path)?;
    // Beside a Controller may be its ServiceAccount.
    if found.iter().any(|it| it.form != Form::Other) {
        found.retain(|it| it.form != Form::Other);
    }
    if found.len() < 2 {
        return Ok(found.pop());
    }
    let path = path.display();
    if let Some(builtin) = builtin
        && found.iter().any(|it| it.form != Form::Other)
    {
        found.retain(|it| it.builtin() == builtin);
        if found.is_empty() {
            bail!("{path} has no controller of the guest {builtin}");
        }
    }
    if found.len() > 1
        && let Some(name) = name
    {
        found.retain(|it| it.name == name);
        if found.is_empty() {
            bail!("{path} has no controller {name}");
        }
    }
    if found.len() < 2 {
        return Ok(found.pop());
    }
    let names: Vec<&str> = found.iter().map(|it| it.name.as_str()).collect();
    if name.is_none() && names.iter().all(|it| !it.is_empty()) {
        bail!(
            "{path} has several controllers: write one of them into a file of its own, or select it \
             with davit inspect --name: {}",
            names.join(", ")
        );
    }
    bail!(
        "{path} has {} configurations: write one of them into a file of its own",
        found.len()
    )
}
