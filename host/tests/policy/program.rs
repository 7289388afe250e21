//! The command, and the files that it reads.

use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;

use crate::server::process::{CommandOutput, davit, guests};

/// When the rules are judged.
pub(crate) const NOW: &str = "2026-11-26T12:00:00Z";

/// Files of a test.
pub(crate) struct Files(TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file, and the directory in which it is.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    /// `davit policy`. A word `@NAME` is the path of a file of the test.
    pub(crate) fn policy(&self, words: &str, others: &[&str]) -> CommandOutput {
        self.davit(&format!("policy {words}"), others)
    }

    pub(crate) fn davit(&self, words: &str, others: &[&str]) -> CommandOutput {
        let mut command = davit();
        for word in words.split_whitespace() {
            match word.strip_prefix('@') {
                Some(name) => command.arg(self.path(name)),
                None => command.arg(word),
            };
        }
        command.args(others).output().unwrap().into()
    }
}

impl CommandOutput {
    /// The output of a command that succeeds.
    #[track_caller]
    pub(crate) fn success(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (0, ""), "{self:?}");
        self.out
    }

    /// The only line of an error, without what every error has, and without the directory of the
    /// files.
    #[track_caller]
    pub(crate) fn failure(self, files: &Files, code: i32) -> String {
        assert_eq!(self.code, code, "{self:?}");
        let directory = format!("{}/", files.0.path().display());
        let lines: Vec<&str> = self.err.lines().collect();
        let [line] = lines.as_slice() else {
            panic!("{self:?}");
        };
        let line = line.strip_prefix("davit: ").expect("an error of davit");
        line.replace(&directory, "")
    }
}

/// The text has each of these lines.
#[track_caller]
pub(crate) fn has_lines(text: &str, lines: &[&str]) {
    for line in lines {
        let is_there = text.lines().any(|it| it == *line);
        assert!(is_there, "no \"{line}\" in\n{text}");
    }
}

/// A report in JSON: its only Controller.
#[track_caller]
pub(crate) fn report(text: &str) -> Value {
    let mut reports: Vec<Value> = serde_json::from_str(text).unwrap();
    assert_eq!(reports.len(), 1, "{text}");
    reports.remove(0)
}

/// The rule, the verdict and the reason for an object of a report.
#[track_caller]
pub(crate) fn outcomes(report: &Value, kind: &str, name: &str) -> Vec<[String; 3]> {
    let mut objects = report["explained"].as_array().unwrap().iter();
    let object = objects.find(|it| it["kind"] == kind && it["name"] == name);
    let object = object.unwrap_or_else(|| panic!("no {kind} {name} in {report:#}"));
    let rules = object["rules"].as_array().unwrap().iter();
    let texts = rules.map(|it| {
        ["rule", "verdict", "reason"].map(|key| it[key].as_str().unwrap_or_default().to_owned())
    });
    texts.collect()
}

/// `davit inspect` accepts the configuration in a file.
#[track_caller]
pub(crate) fn inspect(files: &Files, config: &str) -> CommandOutput {
    let guest = guests().join("policy.wasm");
    files.davit(
        &format!("--log off inspect {} --config @{config}", guest.display()),
        &[],
    )
}
