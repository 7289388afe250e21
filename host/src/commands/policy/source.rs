//! The rules of a file: controllers of the guest policy, or a configuration.

use std::path::Path;

use anyhow::{Result, anyhow, bail};
use davit_core::api::{ControllerSpec, encode_config};
use policy::explain::Explainer;

use super::controllers::{self, Form, WrittenController};
use crate::commands::print::text_at;

/// The name of the guest that ships with Davit.
const GUEST: &str = "policy";

/// Rules that the guest accepts.
pub(super) struct PolicySource {
    /// The Controller's name; empty for a spec or a configuration alone.
    pub(super) name: String,
    /// The configuration, in MessagePack.
    pub(super) config: Vec<u8>,
    pub(super) explainer: Explainer,
}

/// The rules of a file. A mistake is refused with the words of the guest.
pub(super) fn read(path: &Path) -> Result<Vec<PolicySource>> {
    let mut sources = Vec::new();
    for written in controllers::in_file(path)? {
        let source = of_controller(written);
        let source = source.map_err(|error| anyhow!("{}: {error:#}", path.display()))?;
        sources.extend(source);
    }
    if sources.is_empty() {
        bail!(
            "{} has no Controller of the guest {GUEST}, and no rules",
            path.display()
        );
    }
    Ok(sources)
}

/// The rules of a controller; none if it is another object, such as the ServiceAccount beside a
/// Controller, or a controller of another guest in a host's file.
fn of_controller(written: WrittenController) -> Result<Option<PolicySource>> {
    let name = &written.name;
    let label = match written.form {
        Form::Resource | Form::Listed => format!("the Controller {name}"),
        Form::Spec => "the spec".to_owned(),
        Form::Other => String::new(),
    };
    if written.form == Form::Other {
        let document = written.config();
        if !document.is_object() || !text_at(document, "/kind").is_empty() {
            return Ok(None);
        }
    } else {
        ControllerSpec::read(&written.spec).map_err(|error| anyhow!("{label}: {error}"))?;
        match written.form {
            _ if written.builtin() == GUEST => {}
            Form::Listed => return Ok(None),
            _ => bail!("{label} does not run the guest {GUEST} that ships with Davit"),
        }
    }
    let config = encode_config(written.config())?;
    let explainer = Explainer::new(&config).map_err(|error| {
        let of = match written.form {
            Form::Resource | Form::Listed => format!("{label}: "),
            Form::Spec | Form::Other => String::new(),
        };
        anyhow!("{of}{}: {}", error.field, error.message)
    })?;
    Ok(Some(PolicySource {
        name: written.name,
        config,
        explainer,
    }))
}
