//! `davit policy convert`: policies of Kyverno, rules of kube-janitor and the times to live of
//! objects as Controllers.
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
mod shape;
#[cfg(test)]
mod tests;
mod ttl;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

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
        self.controllers.extend(controller.divided());
    }

    /// Adds what a file has become, with the file in each place.
    fn append(&mut self, file: &Path, of_file: Self) {
        let in_file = |place: &str| format!("{}: {place}", file.display());
        self.controllers.extend(of_file.controllers);
        let problems = of_file.problems.into_iter();
        self.problems
            .extend(problems.map(|it| Problem::new(in_file(&it.place), it.message)));
        for lives in of_file.lives {
            ttl::add(&mut self.lives, lives.at(in_file));
        }
    }
}

/// `davit policy convert`
pub(super) fn convert(arguments: &PolicyConvertArguments) -> Result<()> {
    let conversion = of_files(&arguments.files, &Kinds::new())?;
    let problems = &conversion.problems;
    for problem in problems {
        let line = format!("{}: {}", problem.place, problem.message);
        eprintln!("{}", untrusted::line(&line, usize::MAX));
    }
    let texts = conversion.controllers.iter().map(ControllerDraft::yaml);
    let texts = texts.collect::<Result<Vec<String>>>()?;
    if !texts.is_empty() {
        print::out(texts.join("---\n").trim_end())?;
    }
    if !problems.is_empty() {
        bail!(Shortfall(format!(
            "parts without a translation: {}; they are left out",
            problems.len()
        )));
    }
    Ok(())
}

/// What files have become together. No two Controllers have the same name.
fn of_files(files: &[PathBuf], kinds: &Kinds) -> Result<Conversion> {
    let mut conversion = Conversion::default();
    for file in files {
        conversion.append(file, of_file(file, kinds)?);
    }
    for controller in ttl::controllers(&conversion.lives) {
        conversion.add(controller);
    }
    let mut taken = BTreeSet::new();
    for controller in &mut conversion.controllers {
        controller.name = draft::apart(&controller.name, &mut taken);
    }
    Ok(conversion)
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
        ("apps.projectsveltos.io", "Cleaner") => {
            let place = format!("{kind} {}", text_at(document, "/metadata/name"));
            let message = "a Cleaner selects by scripts in Lua, which have no translation: give \
                           the objects with the annotations cleaner/ttl and cleaner/expires instead";
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
