//! The end of a replay: what was found, and whether that proves anything.

use anyhow::{Result, bail};
use davit_core::untrusted;

use super::Session;
use crate::commands::journal::RefusedJournal;
use crate::commands::journal::{LONGEST, unknown_controller};
use crate::commands::print;

impl Session {
    /// Prints what was found.
    pub(super) fn end(self) -> Result<()> {
        if let Some(missing) = self.guests.missing() {
            bail!(RefusedJournal(missing));
        }
        if let Some(unknown) = self.unknown_controller() {
            bail!(RefusedJournal(unknown));
        }
        print::out(&self.report.text())?;
        if let Some(unused) = self.guests.unused() {
            print::out(&unused)?;
        }
        let different = self.report.difference_count();
        if different > 0 {
            bail!("{different} calls have another decision than the recorded one");
        }
        if self.report.call_count() == 0 {
            bail!(RefusedJournal(self.nothing()));
        }
        if let Some(problem) = self.report.problem() {
            bail!(RefusedJournal(format!(
                "a part of the journal cannot be replayed: {problem}"
            )));
        }
        Ok(())
    }

    /// What is wrong with the name of the controller; none if the journal has it.
    fn unknown_controller(&self) -> Option<String> {
        let wanted = self.controller.as_ref()?;
        if self.controllers.contains(wanted) {
            return None;
        }
        let unknown = unknown_controller(wanted, self.controllers.iter().map(String::as_str));
        let unread = self.unread();
        Some(format!(
            "{unknown}; name one of these with --controller, or another span with --from and \
             --to{unread}"
        ))
    }

    /// Why no call was made again.
    fn nothing(&self) -> String {
        let whose = self.controller.as_ref().map_or_else(String::new, |name| {
            format!(" of {}", untrusted::line(name, LONGEST))
        });
        let skipped = self.skipped.iter();
        let skipped = skipped.map(|(why, count)| format!("{count} skipped: {why}"));
        let why = match skipped.collect::<Vec<_>>().join("; ") {
            none if none.is_empty() => format!("the journal has no call{whose} in this span"),
            skipped => untrusted::line(&skipped, LONGEST),
        };
        let unread = self.unread();
        format!(
            "no call was made again, so nothing is proved: {why}; name another span with --from \
             and --to, davit journal info shows those of the journal{unread}"
        )
    }

    /// What is added to a message if parts of the journal cannot be replayed.
    fn unread(&self) -> String {
        let problem = self.report.problem().map(|problem| {
            let problem = untrusted::line(problem, LONGEST);
            format!("; a part of the journal cannot be replayed: {problem}")
        });
        problem.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use clap::Parser as _;
    use davit_core::journal::Entry;
    use tempfile::TempDir;

    use super::*;
    use crate::cli::{Arguments, Command, ReplayArguments};
    use crate::commands::journal::open;
    use crate::commands::journal::testing::{answer, call, journal, podgc};
    use crate::commands::replay::guests::Guests;
    use crate::commands::replay::replay;

    /// A journal of podgc from second 1 on. Its only call cannot be made again: the journal does not
    /// have what the API server served.
    fn recorded() -> TempDir {
        let controller = podgc(BTreeMap::new());
        journal([
            (1, Entry::Keyframe { is_start: true }),
            (1, Entry::Controller(Arc::new(controller))),
            (1, Entry::KeyframeEnd),
            (2, call(1, "podgc", "pods", "a")),
            (3, answer(1, vec![])),
        ])
    }

    /// The arguments of a replay of this journal.
    fn arguments(journal: &TempDir, rest: &[&str]) -> ReplayArguments {
        let path = journal.path().to_str().unwrap();
        let all = ["davit", "replay", path];
        let parsed = Arguments::try_parse_from(all.iter().chain(rest));
        let Command::Replay(arguments) = parsed.unwrap().command else {
            panic!("a replay");
        };
        arguments
    }

    /// Why a replay proves nothing.
    async fn refusal(journal: &TempDir, rest: &[&str]) -> String {
        let error = replay(arguments(journal, rest)).await.unwrap_err();
        assert!(error.is::<RefusedJournal>(), "it exits 2: {error}");
        error.to_string()
    }

    #[tokio::test]
    async fn an_unknown_controller_is_refused_with_the_names_that_the_journal_has() {
        let journal = recorded();
        let error = refusal(&journal, &["--controller", "podcg"]).await;
        let expected = "the journal has no controller podcg in this span, only: podgc; ";
        assert!(error.starts_with(expected), "{error}");
        let error = refusal(&journal, &["--controller", "podgc"]).await;
        assert!(!error.contains("no controller"), "{error}");
    }

    #[tokio::test]
    async fn a_replay_of_no_call_is_refused_with_the_reason() {
        let journal = recorded();
        let start = "no call was made again, so nothing is proved: ";
        let error = refusal(&journal, &[]).await;
        let skipped = "1 skipped: the journal does not have the revision that was called; ";
        assert!(error.starts_with(&format!("{start}{skipped}")), "{error}");

        let later = ["--from", "2030-01-01T00:00:00Z"];
        let error = refusal(&journal, &later).await;
        let none = "the journal has no call in this span; ";
        assert!(error.starts_with(&format!("{start}{none}")), "{error}");
        let later = [&later[..], &["--controller", "podgc"]].concat();
        let error = refusal(&journal, &later).await;
        let none = "the journal has no call of podgc in this span; ";
        assert!(error.starts_with(&format!("{start}{none}")), "{error}");
    }

    /// The end of a session that skipped a call, and has made so many again with the same decision.
    fn end(identical: u64) -> Result<()> {
        let journal = recorded();
        let reader = open(journal.path()).unwrap();
        let arguments = arguments(&journal, &[]);
        let guests = Guests::new(journal.path(), &[], &arguments.guests).unwrap();
        let mut session = Session::new(&reader, guests, None);
        session.skip("the call failed when it was recorded");
        for _ in 0..identical {
            session.report.same("podgc");
        }
        session.end()
    }

    #[tokio::test]
    async fn a_skipped_call_beside_an_identical_one_is_no_error() {
        assert!(end(1).is_ok());
        let error = end(0).unwrap_err().to_string();
        let why = "1 skipped: the call failed when it was recorded; ";
        assert!(error.contains(why), "{error}");
    }

    #[tokio::test]
    async fn a_replay_of_damage_alone_says_so() {
        let journal = recorded();
        let reader = open(journal.path()).unwrap();
        let path = reader.segments()[0].path.clone();
        let mut bytes = std::fs::read(&path).unwrap();
        let chunk = bytes.windows(4).position(|part| part == b"DJck").unwrap();
        // The last byte of the keyframe.
        bytes[chunk + 44] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let error = refusal(&journal, &[]).await;
        assert!(
            error.contains("a part of the journal cannot be replayed: "),
            "{error}"
        );
    }
}
