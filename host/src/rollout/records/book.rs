//! All that is remembered of one controller.

use serde::{Deserialize, Serialize};

use super::{Activation, Kept, MOST_KEPT};
use davit_core::api::ControllerSpec;
use davit_core::api::ControllerStatus;

/// All that is remembered of one controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Book {
    /// What was said of it last.
    pub(super) status: ControllerStatus,
    /// Whether an operator has paused its rollout.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) paused: bool,
    /// The specs that were active, the latest last.
    kept: Vec<Kept>,
}

impl Book {
    /// Keeps a spec as the latest, and drops those that are too many.
    pub(super) fn keep(&mut self, revision: &str, spec: &ControllerSpec, as_it: Activation<'_>) {
        let stable_since = as_it.stable_since.map(str::to_owned);
        if let Some(latest) = self.kept.last_mut()
            && latest.revision == revision
        {
            latest.stable_since = stable_since.or(latest.stable_since.take());
            return;
        }
        let number = self.kept.last().map_or(0, |latest| latest.number) + 1;
        let before = self.kept.iter().position(|kept| kept.revision == revision);
        let before = before.map(|position| self.kept.remove(position));
        self.kept.push(Kept {
            number,
            revision: revision.to_owned(),
            at: as_it.at.to_owned(),
            stable_since: stable_since.or(before.and_then(|before| before.stable_since)),
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
    use davit_core::api::ModuleSource;
    use davit_core::api::RevisionStatus;

    fn spec(name: &str) -> ControllerSpec {
        ControllerSpec::of(ModuleSource::Builtin(name.into()).into())
    }

    fn keep(book: &mut Book, revision: &str) {
        keep_as(book, revision, None);
    }

    fn keep_as(book: &mut Book, revision: &str, stable_since: Option<&str>) {
        let activation = Activation {
            at: "2026-11-20T10:00:00Z",
            stable_since,
        };
        book.keep(revision, &spec(revision), activation);
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
    fn what_was_stable_is_known_for_ever() {
        let mut book = Book::default();
        keep_as(&mut book, "a", Some("1"));
        keep(&mut book, "b");
        let since = |book: &Book| {
            let history = book.history().into_iter();
            let since = history.map(|kept| (kept.revision, kept.stable_since));
            since.collect::<Vec<_>>()
        };
        let of =
            |revision: &str, since: Option<&str>| (revision.to_owned(), since.map(str::to_owned));
        assert_eq!(since(&book), [of("b", None), of("a", Some("1"))]);
        // Promoted; and the former one is tried again, in vain.
        keep_as(&mut book, "b", Some("2"));
        keep(&mut book, "a");
        assert_eq!(since(&book), [of("a", Some("1")), of("b", Some("2"))]);
        keep(&mut book, "a");
        assert_eq!(since(&book), [of("a", Some("1")), of("b", Some("2"))]);
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
