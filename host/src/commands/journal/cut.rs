//! `davit journal cut`

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail};
use davit_journal::Verification;
use serde::Serialize;

use super::{Quantities, RefusedJournal, info, json_line, open, refuse_damage, refused, summary};
use crate::cli::{EntryFormat, JournalCutArguments};
use crate::commands::print;
use crate::modules::{ModuleCopies, Modules, ModulesOptions};

pub(super) fn cut(arguments: &JournalCutArguments) -> Result<()> {
    let (from, to) = arguments.span.micros();
    let reader = open(&arguments.directory).with_context(refused)?;
    let copied = reader.cut(from, to, &arguments.output)?;
    let output = arguments.output.display().to_string();
    if copied.segments == 0 {
        bail!("no segment has entries of this span");
    }
    let modules = CutModules::copy(arguments).with_context(refused)?;
    print::out(&match arguments.format {
        EntryFormat::Text => text(&output, &copied, &modules),
        EntryFormat::Json => json(&output, &copied, &modules)?,
    })?;
    refuse_damage(&copied).with_context(|| RefusedJournal(output))
}

/// The modules that a part of a journal names, as `sha256:…`.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct CutModules {
    #[serde(rename = "modules")]
    copied: BTreeSet<String>,
    #[serde(rename = "missingModules")]
    missing: BTreeSet<String>,
}

impl CutModules {
    /// Copies them from where a replay of the journal finds them.
    fn copy(arguments: &JournalCutArguments) -> Result<Self> {
        let modules = Modules::new(ModulesOptions {
            guests: arguments.guests.clone(),
            cache: arguments.cache.clone(),
            client: None,
        });
        let modules = modules.context("the module cache cannot be opened")?;
        let journal = ModuleCopies::of(&arguments.directory);
        let part = ModuleCopies::of(&arguments.output);
        let mut found = Self::default();
        for digest in info::modules(&open(&arguments.output)?)? {
            let name = format!("sha256:{digest}");
            let wasm = journal.load(digest);
            let Some(wasm) = wasm.or_else(|| modules.read_by_digest(digest)) else {
                found.missing.insert(name);
                continue;
            };
            let written = part.write(digest, &wasm);
            written.with_context(|| format!("the module {name} cannot be copied"))?;
            found.copied.insert(name);
        }
        Ok(found)
    }
}

fn text(output: &str, copied: &Verification, modules: &CutModules) -> String {
    let mut text = format!("{output}: {}", summary(copied));
    let CutModules { copied, missing } = modules;
    let _ = write!(text, ", {} modules", copied.len());
    if !missing.is_empty() {
        let missing: Vec<&str> = missing.iter().map(String::as_str).collect();
        let _ = write!(
            text,
            "\nmodules are missing: {}; davit replay of this part needs their files with --module",
            missing.join(", ")
        );
    }
    text
}

/// What was copied.
#[derive(Debug, Serialize)]
struct CutLine<'a> {
    kind: &'static str,
    directory: &'a str,
    #[serde(flatten)]
    copied: Quantities,
    #[serde(flatten)]
    modules: &'a CutModules,
}

fn json(directory: &str, copied: &Verification, modules: &CutModules) -> Result<String> {
    json_line(&CutLine {
        kind: "cut",
        directory,
        copied: copied.into(),
        modules,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;

    use clap::Parser as _;
    use davit_core::digest::ModuleDigest;
    use davit_core::journal::Entry;
    use serde_json::{Value, json};
    use tempfile::TempDir;

    use super::*;
    use crate::cli::{Arguments, Command, JournalCommand};
    use crate::commands::journal::testing::{journal, podgc};

    /// A journal whose controllers run one of these modules each.
    fn recorded(modules: &[&[u8]]) -> TempDir {
        let controllers = modules.iter().enumerate().map(|(number, wasm)| {
            let mut controller = podgc(BTreeMap::new());
            controller.name = format!("podgc-{number}");
            if let Some(stable) = &mut controller.stable {
                stable.module = ModuleDigest::of(wasm);
            }
            Entry::Controller(Arc::new(controller))
        });
        let start = std::iter::once(Entry::Keyframe { is_start: true });
        let entries = start.chain(controllers).chain([Entry::KeyframeEnd]);
        journal(entries.map(|entry| (1, entry)))
    }

    /// The arguments behind `davit journal cut`.
    fn arguments(directory: &Path, options: &[&str]) -> JournalCutArguments {
        let directory = directory.to_str().unwrap();
        let first = ["davit", "journal", "cut", directory];
        let parsed = Arguments::try_parse_from(first.iter().chain(options));
        match parsed.unwrap().command {
            Command::Journal(tool) => match tool.command {
                JournalCommand::Cut(arguments) => arguments,
                _ => panic!("davit journal cut"),
            },
            _ => panic!("davit journal"),
        }
    }

    fn name(wasm: &[u8]) -> String {
        format!("sha256:{}", ModuleDigest::of(wasm))
    }

    #[test]
    fn a_part_has_the_modules_of_the_copies_the_cache_and_the_guests_and_names_the_missing() {
        let journal = recorded(&[b"copied", b"cached", b"builtin", b"nowhere"]);
        let copies = ModuleCopies::of(journal.path());
        copies
            .write(ModuleDigest::of(b"copied"), b"copied")
            .unwrap();
        let place = |name: &str| journal.path().join(name);
        let (cache, guests, output) = (place("cache"), place("guests"), place("cut"));
        for directory in [&cache, &guests] {
            fs::create_dir(directory).unwrap();
        }
        let cached = format!("{}.wasm", ModuleDigest::of(b"cached"));
        fs::write(cache.join(cached), b"cached").unwrap();
        fs::write(guests.join("podgc.wasm"), b"builtin").unwrap();
        let path = |path: &Path| path.to_str().unwrap().to_owned();
        let (cache, guests, part) = (path(&cache), path(&guests), path(&output));
        let options = ["--output", &part, "--cache", &cache, "--guests", &guests];
        let arguments = arguments(journal.path(), &options);
        cut(&arguments).unwrap();
        let part = ModuleCopies::of(&output);
        for wasm in [b"copied".as_slice(), b"cached", b"builtin"] {
            assert_eq!(part.load(ModuleDigest::of(wasm)).unwrap(), wasm);
        }

        let modules = CutModules::copy(&arguments).unwrap();
        let verified = open(&output).unwrap().verify().unwrap();
        let text = text("part", &verified, &modules);
        let expected = format!(
            ", 3 modules\nmodules are missing: {}; davit replay of this part needs their files \
             with --module",
            name(b"nowhere")
        );
        assert!(text.ends_with(&expected), "{text}");
        let line = super::json("part", &verified, &modules).unwrap();
        let line: Value = serde_json::from_str(&line).unwrap();
        let mut copied = [b"copied".as_slice(), b"cached", b"builtin"].map(name);
        copied.sort();
        assert_eq!(line["modules"], json!(copied));
        assert_eq!(line["missingModules"], json!([name(b"nowhere")]));
    }

    /// A host copies at most 64; a part has all that it names.
    #[test]
    fn a_part_has_more_modules_than_a_host_copies() {
        let all: Vec<[u8; 4]> = (0..70_u32).map(u32::to_le_bytes).collect();
        let modules: Vec<&[u8]> = all.iter().map(<[u8; 4]>::as_slice).collect();
        let journal = recorded(&modules);
        let copies = ModuleCopies::of(journal.path());
        for wasm in &modules {
            copies.write(ModuleDigest::of(wasm), wasm).unwrap();
        }
        let output = journal.path().join("cut");
        let arguments = arguments(journal.path(), &["--output", output.to_str().unwrap()]);
        cut(&arguments).unwrap();
        let part = ModuleCopies::of(&output);
        let mut digests = modules.iter().map(|wasm| ModuleDigest::of(wasm));
        assert!(digests.all(|digest| part.load(digest).is_some()));
    }

    #[test]
    fn what_was_copied_is_a_line_of_json() {
        let journal = recorded(&[]);
        let output = journal.path().join("cut");
        let output = output.to_str().unwrap();
        let options = ["--output", output, "--format", "json"];
        cut(&arguments(journal.path(), &options)).unwrap();
        let copied = open(Path::new(output)).unwrap().verify().unwrap();
        let line = super::json("a\u{202e}b", &copied, &CutModules::default()).unwrap();
        let expected = json!({
            "kind": "cut",
            "directory": "a\u{202e}b",
            "segments": 1,
            "entries": 2,
            "bytes": copied.bytes,
            "unfinishedBytes": 0,
            "damagedParts": 0,
            "modules": [],
            "missingModules": [],
        });
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), expected);
        assert!(line.contains("a\\u202eb"), "{line}");
    }
}
