//! Learns the versions of files, many at once.
//!
//! A thousand controllers check their modules at the same time. A task of the blocking pool for
//! each check would start hundreds of threads; here one thread makes all of them. If a file
//! system hangs, the next check starts another thread, which makes those that wait.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use super::file::{FileError, version};

/// How long a check may take before others do not wait for it.
const PATIENCE: Duration = Duration::from_secs(1);

/// Learns the versions of files. Clones share the thread.
#[derive(Clone, Debug, Default)]
pub(super) struct FileVersions(Arc<Mutex<Checks>>);

#[derive(Debug, Default)]
struct Checks {
    waiting: VecDeque<Check>,
    /// The last thread; none if nothing waits.
    worker: Option<Worker>,
    workers: u64,
}

#[derive(Debug)]
struct Check {
    purpose: &'static str,
    path: PathBuf,
    answer: oneshot::Sender<Result<String, FileError>>,
}

#[derive(Clone, Copy, Debug)]
struct Worker {
    id: u64,
    /// The start of its present check.
    since: Instant,
}

impl FileVersions {
    /// Identifies a file's content without reading it, as [`version`] does; `purpose` names its
    /// purpose in the error.
    pub(super) async fn of(
        &self,
        purpose: &'static str,
        path: PathBuf,
    ) -> Result<String, FileError> {
        let (answer, answered) = oneshot::channel();
        let check = Check {
            purpose,
            path,
            answer,
        };
        if let Some(worker) = self.checks().add(check, Instant::now()) {
            let all = self.clone();
            spawn_blocking(move || all.work(worker));
        }
        match answered.await {
            Ok(version) => version,
            // The program ends.
            Err(_) => std::future::pending().await,
        }
    }

    fn work(&self, worker: u64) {
        loop {
            let next = self.checks().next(worker, Instant::now());
            let Some(check) = next else {
                return;
            };
            // The caller may be gone.
            let _ = check.answer.send(version(check.purpose, &check.path));
        }
    }

    fn checks(&self) -> MutexGuard<'_, Checks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Checks {
    /// Returns the thread to start, if there is none that will make the check.
    fn add(&mut self, check: Check, now: Instant) -> Option<u64> {
        self.waiting.push_back(check);
        let hangs = |worker: Worker| now.saturating_duration_since(worker.since) > PATIENCE;
        if self.worker.is_some_and(|worker| !hangs(worker)) {
            return None;
        }
        self.workers += 1;
        self.worker = Some(Worker {
            id: self.workers,
            since: now,
        });
        Some(self.workers)
    }

    /// The next check of a thread, which ends without one.
    fn next(&mut self, id: u64, now: Instant) -> Option<Check> {
        let check = self.waiting.pop_front();
        if self.worker.is_some_and(|worker| worker.id == id) {
            self.worker = check.is_some().then_some(Worker { id, since: now });
        }
        check
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str) -> Check {
        let path = PathBuf::from(name);
        let (answer, _) = oneshot::channel();
        Check {
            purpose: "the module",
            path,
            answer,
        }
    }

    fn path(check: Option<Check>) -> Option<PathBuf> {
        check.map(|check| check.path)
    }

    #[test]
    fn one_thread_makes_all_checks_and_then_ends() {
        let (mut checks, now) = (Checks::default(), Instant::now());
        assert_eq!(checks.add(check("a"), now), Some(1));
        assert_eq!(checks.add(check("b"), now), None);
        assert_eq!(path(checks.next(1, now)), Some("a".into()));
        assert_eq!(checks.add(check("c"), now), None);
        assert_eq!(path(checks.next(1, now)), Some("b".into()));
        assert_eq!(path(checks.next(1, now)), Some("c".into()));
        assert_eq!(path(checks.next(1, now)), None);
        assert_eq!(checks.add(check("d"), now), Some(2));
    }

    #[test]
    fn a_check_does_not_wait_for_one_that_hangs() {
        let (mut checks, start) = (Checks::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(checks.add(check("hung"), at(0)), Some(1));
        assert_eq!(path(checks.next(1, at(0))), Some("hung".into()));
        assert_eq!(checks.add(check("a"), at(1)), None, "it may still end");
        assert_eq!(checks.add(check("b"), at(2)), Some(2));
        assert_eq!(path(checks.next(2, at(2))), Some("a".into()));
        assert_eq!(path(checks.next(2, at(2))), Some("b".into()));
        // The first one is free again: it ends, and the other is still the last.
        assert_eq!(path(checks.next(1, at(2))), None);
        assert_eq!(checks.add(check("c"), at(2)), None);
        assert_eq!(path(checks.next(2, at(2))), Some("c".into()));
        assert_eq!(path(checks.next(2, at(2))), None);
    }

    #[tokio::test]
    async fn each_file_has_its_own_answer() {
        let directory = tempfile::tempdir().unwrap();
        let file = |number: usize| directory.path().join(number.to_string());
        for number in 0..100 {
            std::fs::write(file(number), number.to_string()).unwrap();
        }
        let versions = FileVersions::default();
        let all = (0..101).map(|number| versions.of("the module", file(number)));
        let all = futures::future::join_all(all).await;
        for (number, found) in all.into_iter().enumerate() {
            match version("the module", &file(number)) {
                Ok(expected) => assert_eq!(found.unwrap(), expected),
                Err(expected) => assert_eq!(found.unwrap_err().to_string(), expected.to_string()),
            }
        }
    }
}
