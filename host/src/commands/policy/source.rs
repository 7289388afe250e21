//! The rules of a file: Controllers of the guest policy, or a configuration.

use std::path::Path;

use anyhow::{Result, anyhow, bail};
use davit_core::api::{ControllerSpec, encode_config};
use policy::explain::Explainer;
use serde_json::Value;

use super::files;
use crate::commands::print::{part, text_at};

/// The name of the guest that ships with Davit.
const GUEST: &str = "policy";

/// Rules that the guest accepts.
pub(super) struct PolicySource {
    /// The Controller's name; empty for a configuration alone.
    pub(super) name: String,
    /// The configuration, in MessagePack.
    pub(super) config: Vec<u8>,
    pub(super) explainer: Explainer,
}

/// The rules of a file. A mistake is refused with the words of the guest.
pub(super) fn read(path: &Path) -> Result<Vec<PolicySource>> {
    let mut sources = Vec::new();
    for document in files::documents(path)? {
        let source = of_document(&document);
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

/// The rules of a document; none if it is another object, such as the ServiceAccount beside a
/// Controller.
fn of_document(document: &Value) -> Result<Option<PolicySource>> {
    let name = text_at(document, "/metadata/name").to_owned();
    let config = match text_at(document, "/kind") {
        "" if document.is_object() => document,
        "Controller" => {
            let spec = part(document, "/spec");
            ControllerSpec::read(spec)
                .map_err(|error| anyhow!("the Controller {name}: {error}"))?;
            if text_at(spec, "/module/builtin") != GUEST {
                bail!("the Controller {name} does not run the guest {GUEST} that ships with Davit");
            }
            part(spec, "/config")
        }
        _ => return Ok(None),
    };
    let config = encode_config(config)?;
    let explainer = Explainer::new(&config).map_err(|error| {
        let of = if name.is_empty() {
            String::new()
        } else {
            format!("the Controller {name}: ")
        };
        anyhow!("{of}{}: {}", error.field, error.message)
    })?;
    Ok(Some(PolicySource {
        name,
        config,
        explainer,
    }))
}
