//! All that is remembered of one controller.

use serde::{Deserialize, Serialize};

use super::{Kept, MOST_KEPT};
use crate::spec::ControllerSpec;
use crate::status::ControllerStatus;

/// All that is remembered of one controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Book {
    /// What was said of it last.
    pub(super) status: ControllerStatus,
    /// The specs that were active, the latest last.
    kept: Vec<Kept>,
}

impl Book {
    /// Keeps a spec as the latest, and drops those that are too many.
    pub(super) fn keep(&mut self, revision: &str, spec: &ControllerSpec, at: String) {
        let latest = self.kept.last();
        if latest.is_some_and(|latest| latest.revision == revision) {
            return;
        }
        let number = latest.map_or(0, |latest| latest.number) + 1;
        self.kept.retain(|kept| kept.revision != revision);
        self.kept.push(Kept {
            number,
            revision: revision.to_owned(),
            at,
            spec: spec.clone(),
        });
        let revisions = self.kept.iter().map(|kept| kept.revision.as_str());
        let surplus = surplus(revisions, &in_use(&self.status));
        self.kept.retain(|kept| !surplus.contains(&kept.revision));
    }

    /// What a revision was made of.
    pub(super) fn spec(&self, revision: &str) -> Option<ControllerSpec> {
        let found = self.kept.iter().find(|kept| kept.revision == revision);
        found.map(|kept| kept.spec.clone())
    }

    /// The specs, the latest first.
    pub(super) fn history(&self) -> Vec<Kept> {
        self.kept.iter().rev().cloned().collect()
    }
}

/// The revisions that run.
pub(super) fn in_use(status: &ControllerStatus) -> Vec<String> {
    let stable = status.stable.as_ref().map(|stable| &stable.revision);
    let candidate = status.candidate.as_ref();
    let candidate = candidate.map(|candidate| &candidate.revision);
    stable.into_iter().chain(candidate).cloned().collect()
}

/// Which of these revisions, the oldest first, are too many: never one in use.
pub(super) fn surplus<'a>(
    revisions: impl ExactSizeIterator<Item = &'a str>,
    in_use: &[String],
) -> Vec<String> {
    let too_many = revisions.len().saturating_sub(MOST_KEPT);
    let free = revisions.filter(|revision| !in_use.iter().any(|used| used == revision));
    free.take(too_many).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::ModuleSource;
    use crate::status::RevisionStatus;

    fn spec(name: &str) -> ControllerSpec {
        ControllerSpec::of(ModuleSource::Builtin(name.into()).into())
    }

    fn keep(book: &mut Book, revision: &str) {
        book.keep(revision, &spec(revision), "2026-11-20T10:00:00Z".into());
    }

    fn numbered(book: &Book) -> Vec<(i64, String)> {
        let history = book.history().into_iter();
        history.map(|kept| (kept.number, kept.revision)).collect()
    }

    #[test]
    fn the_latest_activation_has_the_highest_number() {
        let mut book = Book::default();
        for revision in ["a", "b", "b", "c", "a"] {
            keep(&mut book, revision);
        }
        let expected = [(4, "a"), (3, "c"), (2, "b")];
        assert_eq!(numbered(&book), expected.map(|(n, r)| (n, r.to_owned())));
        assert_eq!(book.spec("b"), Some(spec("b")));
        assert_eq!(book.spec("d"), None);
    }

    #[test]
    fn what_runs_is_kept_however_old_it_is() {
        let mut book = Book::default();
        keep(&mut book, "stable");
        book.status.stable = Some(RevisionStatus {
            revision: "stable".into(),
            ..RevisionStatus::default()
        });
        for number in 0..20 {
            keep(&mut book, &format!("r{number}"));
        }
        let kept = numbered(&book);
        assert_eq!(kept.len(), MOST_KEPT);
        assert_eq!(kept.first(), Some(&(21, "r19".into())));
        assert_eq!(kept.last(), Some(&(1, "stable".into())));
        assert!(kept.contains(&(13, "r11".into())));
    }
}
