//! `davit policy convert`: policies of Kyverno and rules of kube-janitor as Controllers.
//!
//! A rule is converted as a whole or not at all. Whether the guest accepts it is the guest's own
//! check.

mod cel;
mod draft;
mod janitor;
mod jmespath;
mod kinds;
mod kyverno;
mod labels;
#[cfg(test)]
mod tests;
mod ttl;

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use davit_core::untrusted;
use serde_json::Value;

use super::{Shortfall, files};
use crate::cli::PolicyConvertArguments;
use crate::commands::print;
use crate::commands::print::text_at;
use draft::ControllerDraft;
use kinds::Kinds;

/// What has no translation: where it is, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// `CleanupPolicy clean spec.context`.
    place: String,
    message: String,
}

impl Problem {
    fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        let (place, message) = (place.into(), message.into());
        Self { place, message }
    }
}

/// The outcome of a part of a policy.
type Converted<T> = Result<T, Problem>;

/// What a document has become.
#[derive(Debug, Default)]
struct Conversion {
    controllers: Vec<ControllerDraft>,
    problems: Vec<Problem>,
    /// Objects with a time to live.
    lives: Vec<ttl::Lives>,
    /// How many documents are about deletions.
    known: usize,
}

impl Conversion {
    /// Adds a Controller with the rules that the guest accepts.
    fn add(&mut self, mut controller: ControllerDraft) {
        self.problems.append(&mut controller.check());
        if !controller.rules.is_empty() {
            self.controllers.push(controller);
        }
    }
}

/// `davit policy convert`
pub(super) fn convert(arguments: &PolicyConvertArguments) -> Result<()> {
    let kinds = Kinds::new()?;
    let mut texts = Vec::new();
    let mut problems = 0;
    for file in &arguments.files {
        let conversion = of_file(file, &kinds)?;
        for problem in &conversion.problems {
            let line = format!("{}: {}: {}", file.display(), problem.place, problem.message);
            eprintln!("{}", untrusted::line(&line, usize::MAX));
        }
        problems += conversion.problems.len();
        for controller in &conversion.controllers {
            texts.push(controller.yaml()?);
        }
    }
    if !texts.is_empty() {
        print::out(texts.join("---\n").trim_end())?;
    }
    if problems > 0 {
        bail!(Shortfall(format!(
            "parts without a translation: {problems}; they are left out"
        )));
    }
    Ok(())
}

fn of_file(path: &Path, kinds: &Kinds) -> Result<Conversion> {
    let mut conversion = Conversion::default();
    let documents = files::documents(path)?;
    if documents.is_empty() {
        bail!("{} has no documents", path.display());
    }
    for document in documents {
        of_document(&document, kinds, &mut conversion)
            .with_context(|| format!("{} cannot be converted", path.display()))?;
    }
    if conversion.known == 0 {
        bail!(
            "{} has no policy of Kyverno, no rules of kube-janitor, and no object with a time to live",
            path.display()
        );
    }
    for controller in ttl::controllers(&conversion.lives) {
        conversion.add(controller);
    }
    Ok(conversion)
}

fn of_document(document: &Value, kinds: &Kinds, conversion: &mut Conversion) -> Result<()> {
    let kind = text_at(document, "/kind");
    let group = text_at(document, "/apiVersion")
        .split_once('/')
        .map_or("", |(group, _)| group);
    let is_known = match (group, kind) {
        ("kyverno.io", "CleanupPolicy" | "ClusterCleanupPolicy") => {
            kyverno::cleanup(document, kinds, conversion);
            true
        }
        ("policies.kyverno.io", "DeletingPolicy" | "NamespacedDeletingPolicy") => {
            kyverno::deleting(document, kinds, conversion);
            true
        }
        ("kyverno.io" | "policies.kyverno.io", _) => {
            let place = format!("{kind} {}", text_at(document, "/metadata/name"));
            let message = "a policy of this kind deletes nothing by itself";
            conversion.problems.push(Problem::new(place, message));
            true
        }
        ("", "") if document.get("rules").is_some() => {
            janitor::rules("kube-janitor", document, kinds, conversion);
            true
        }
        ("", "ConfigMap") if janitor::has_rules(document) => {
            janitor::config_map(document, kinds, conversion)?;
            true
        }
        _ => ttl::note(document, kinds, conversion),
    };
    conversion.known += usize::from(is_known);
    Ok(())
}
