//! Copies the modules of a running host beside its journal.
//!
//! The disk of the journal delays no controller: a thread of its own writes. It ends when nothing
//! waits, and a later module starts another one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use davit_core::digest::ModuleDigest;

use super::MOST_BYTES;
use super::copies::ModuleCopies;
use crate::metrics::JournalMetrics;
use crate::repeat::RepeatedLine;

/// The pause after a failure.
const RETRY: Duration = Duration::from_secs(60);

/// The most bytes of modules that wait for the disk.
const MOST_WAITING: usize = MOST_BYTES;

/// How many of the last copies stay although no controller uses their modules: a module is copied
/// before its controller runs it.
const RECENT: usize = 4;

/// Copies modules beside a journal.
#[derive(Debug)]
pub(super) struct CopyThread(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    copies: ModuleCopies,
    metrics: JournalMetrics,
    retry: Duration,
    jobs: Mutex<Jobs>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Jobs {
    waiting: BTreeMap<ModuleDigest, WaitingCopy>,
    /// The modules that have a copy, of those in use and the recent ones.
    copied: BTreeSet<ModuleDigest>,
    /// The last modules that were copied, the newest last.
    recent: VecDeque<ModuleDigest>,
    /// None until the controllers are known.
    in_use: Option<BTreeSet<ModuleDigest>>,
    /// Those that were in use, and whose copies do not have the time of it yet.
    released: BTreeSet<ModuleDigest>,
    should_prune: bool,
    is_running: bool,
}

/// A module without a copy.
#[derive(Debug)]
struct WaitingCopy {
    wasm: Arc<Vec<u8>>,
    failures: u32,
    /// When the next attempt is due; none for now.
    due: Option<Instant>,
}

impl CopyThread {
    pub(super) fn new(copies: ModuleCopies, metrics: JournalMetrics) -> Self {
        Self::with_pause(copies, metrics, RETRY)
    }

    fn with_pause(copies: ModuleCopies, metrics: JournalMetrics, retry: Duration) -> Self {
        Self(Arc::new(Shared {
            copies,
            metrics,
            retry,
            jobs: Mutex::default(),
            changed: Condvar::new(),
        }))
    }

    /// Copies a module, and does not wait for the disk. A failure is logged and counted, and the
    /// attempt is repeated while the module is in use.
    pub(super) fn add(&self, digest: ModuleDigest, wasm: Arc<Vec<u8>>) {
        let mut jobs = self.0.lock();
        if jobs.copied.contains(&digest) {
            return;
        }
        if let Some(waiting) = jobs.waiting.get_mut(&digest) {
            waiting.due = None;
        } else if jobs.has_room(wasm.len()) {
            let waiting = WaitingCopy {
                wasm,
                failures: 0,
                due: None,
            };
            jobs.waiting.insert(digest, waiting);
        } else {
            drop(jobs);
            self.0.failed(digest, &"too many modules wait for the disk");
            return;
        }
        self.start(jobs);
    }

    /// The modules of the controllers, from now on: the copies of others may be removed.
    pub(super) fn keep(&self, in_use: &BTreeSet<ModuleDigest>) {
        let mut jobs = self.0.lock();
        let before = jobs.in_use.replace(in_use.clone());
        let released = before.into_iter().flatten();
        jobs.released.extend(released);
        jobs.released.retain(|digest| !in_use.contains(digest));
        jobs.should_prune = true;
        self.start(jobs);
    }

    /// Wakes the thread, or starts one.
    fn start(&self, mut jobs: MutexGuard<'_, Jobs>) {
        if jobs.is_running {
            self.0.changed.notify_one();
            return;
        }
        let shared = Arc::clone(&self.0);
        let thread = thread::Builder::new().name("module-copies".to_owned());
        match thread.spawn(move || shared.work()) {
            Ok(_) => jobs.is_running = true,
            // The next module or the next change of the controllers repeats it.
            Err(error) => {
                let waiting: Vec<_> = jobs.waiting.keys().copied().collect();
                drop(jobs);
                for digest in waiting {
                    self.0.failed(digest, &error);
                }
            }
        }
    }
}

impl Shared {
    /// Until nothing waits.
    fn work(&self) {
        let mut jobs = self.lock();
        loop {
            if std::mem::take(&mut jobs.should_prune) {
                let (spared, released) = (jobs.spared(), std::mem::take(&mut jobs.released));
                jobs.copied.retain(|digest| spared.contains(digest));
                drop(jobs);
                for digest in released {
                    self.copies.touch(digest);
                }
                self.copies.prune(&spared);
                jobs = self.lock();
            } else if let Some((digest, wasm)) = jobs.next(Instant::now()) {
                drop(jobs);
                let written = self.copies.write(digest, &wasm);
                self.count(digest, &written);
                jobs = self.lock();
                match written {
                    Ok(()) => jobs.written(digest),
                    Err(_) => jobs.repeat(digest, Instant::now() + self.retry),
                }
            } else if let Some(due) = jobs.due() {
                let pause = due.saturating_duration_since(Instant::now());
                let waited = self.changed.wait_timeout(jobs, pause);
                jobs = waited.unwrap_or_else(PoisonError::into_inner).0;
            } else {
                jobs.is_running = false;
                return;
            }
        }
    }

    fn count(&self, digest: ModuleDigest, written: &io::Result<()>) {
        match written {
            Ok(()) => self.metrics.module_copy(true),
            Err(error) => self.failed(digest, error),
        }
    }

    fn failed(&self, digest: ModuleDigest, error: &dyn std::fmt::Display) {
        static FAILURES: RepeatedLine = RepeatedLine::new();
        self.metrics.module_copy(false);
        let path = self.copies.directory().display();
        if let Some(suppressed) = FAILURES.admit(&format!("{path} {error}")) {
            tracing::warn!(
                %path, module = %digest, %error,
                "the journal has no copy of a module: a later version of Davit needs it to \
                 replay{suppressed}"
            );
        }
    }

    fn lock(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Jobs {
    fn has_room(&self, bytes: usize) -> bool {
        let waiting = self.waiting.values().map(|one| one.wasm.len());
        waiting.sum::<usize>() + bytes <= MOST_WAITING
    }

    /// The modules whose copies stay.
    fn spared(&self) -> BTreeSet<ModuleDigest> {
        match &self.in_use {
            Some(in_use) => in_use.iter().chain(&self.recent).copied().collect(),
            None => self.copied.clone(),
        }
    }

    /// A module whose copy is due.
    fn next(&self, now: Instant) -> Option<(ModuleDigest, Arc<Vec<u8>>)> {
        let mut waiting = self.waiting.iter();
        let (digest, one) = waiting.find(|(_, one)| one.due.is_none_or(|due| due <= now))?;
        Some((*digest, Arc::clone(&one.wasm)))
    }

    /// When the next attempt is due.
    fn due(&self) -> Option<Instant> {
        self.waiting.values().filter_map(|one| one.due).min()
    }

    fn written(&mut self, digest: ModuleDigest) {
        self.waiting.remove(&digest);
        self.copied.insert(digest);
        self.recent.push_back(digest);
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
        self.should_prune = true;
    }

    /// The attempt failed. A module that is not in use after a second one is dropped.
    fn repeat(&mut self, digest: ModuleDigest, due: Instant) {
        let in_use = self.in_use.as_ref();
        let is_needed = in_use.is_none_or(|in_use| in_use.contains(&digest));
        let Some(waiting) = self.waiting.get_mut(&digest) else {
            return;
        };
        waiting.failures += 1;
        waiting.due = Some(due);
        if waiting.failures > 1 && !is_needed {
            self.waiting.remove(&digest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use tempfile::TempDir;

    use super::super::copies::ROOM;
    use super::*;
    use crate::metrics::HostMetrics;

    struct Bench {
        journal: TempDir,
        metrics: HostMetrics,
        thread: CopyThread,
    }

    impl Bench {
        fn new(retry: Duration) -> Self {
            let (journal, metrics) = (tempfile::tempdir().unwrap(), HostMetrics::new().unwrap());
            let copies = ModuleCopies::of(journal.path());
            let thread = CopyThread::with_pause(copies, metrics.journal.clone(), retry);
            Self {
                journal,
                metrics,
                thread,
            }
        }

        fn directory(&self) -> &Path {
            self.thread.0.copies.directory()
        }

        fn add(&self, wasm: Vec<u8>) -> ModuleDigest {
            let digest = ModuleDigest::of(&wasm);
            self.thread.add(digest, Arc::new(wasm));
            digest
        }

        fn has(&self, digest: ModuleDigest) -> bool {
            ModuleCopies::of(self.journal.path()).load(digest).is_some()
        }

        /// Waits until the thread has done everything.
        fn settle(&self) {
            until(|| !self.thread.0.lock().is_running);
        }

        fn bytes(&self) -> u64 {
            let files = fs::read_dir(self.directory()).unwrap();
            files
                .map(|file| file.unwrap().metadata().unwrap().len())
                .sum()
        }

        fn count(&self, result: &str) -> u64 {
            let name = format!("davit_journal_module_copies_total{{result=\"{result}\"}} ");
            let text = self.metrics.render();
            let count = text.lines().find_map(|line| line.strip_prefix(&name));
            count.unwrap().parse().unwrap()
        }
    }

    fn until(done: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !done() {
            assert!(Instant::now() < deadline, "in vain");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// A module of 10 MiB.
    fn large(number: u8) -> Vec<u8> {
        vec![number; 10 << 20]
    }

    #[test]
    fn the_limit_holds_while_a_controller_gets_one_module_after_another() {
        let bench = Bench::new(RETRY);
        let stable = bench.add(large(0));
        bench.settle();
        let mut last = stable;
        for number in 1..12 {
            last = bench.add(large(number));
            bench.settle();
            bench.thread.keep(&BTreeSet::from([stable, last]));
            bench.settle();
            assert!(bench.bytes() <= ROOM.bytes, "{} bytes", bench.bytes());
        }
        assert!(bench.has(stable) && bench.has(last));
        // It was in use until now, so its copy is the newest.
        bench.thread.keep(&BTreeSet::from([last]));
        bench.settle();
        for number in 20..24 {
            bench.add(large(number));
            bench.settle();
        }
        assert!(bench.has(stable) && bench.has(last));
        assert!(bench.bytes() <= ROOM.bytes, "{} bytes", bench.bytes());
    }

    #[test]
    fn a_module_that_no_controller_runs_yet_has_a_copy_although_those_in_use_fill_the_room() {
        let bench = Bench::new(RETRY);
        let copied = (0..7).map(|number| {
            let digest = bench.add(large(number));
            bench.settle();
            digest
        });
        let in_use: BTreeSet<ModuleDigest> = copied.collect();
        bench.thread.keep(&in_use);
        let next = bench.add(large(7));
        bench.thread.keep(&in_use);
        bench.settle();
        assert!(in_use.iter().all(|one| bench.has(*one)));
        assert!(bench.has(next));
    }

    #[test]
    fn a_module_is_copied_again_after_its_copy_was_removed() {
        let bench = Bench::new(RETRY);
        let first = bench.add(large(0));
        bench.settle();
        bench.thread.keep(&BTreeSet::new());
        for number in 1..8 {
            bench.add(large(number));
            bench.settle();
        }
        bench.thread.keep(&BTreeSet::new());
        bench.settle();
        assert!(!bench.has(first), "it was the oldest");
        bench.add(large(0));
        bench.settle();
        assert!(bench.has(first));
    }

    /// The source stays the same, so nobody loads the module again.
    #[test]
    fn a_copy_that_failed_is_written_once_the_disk_works_again() {
        let bench = Bench::new(Duration::from_millis(20));
        // A file is in the place of the directory.
        fs::write(bench.directory(), b"").unwrap();
        let digest = bench.add(b"wasm".to_vec());
        bench.thread.keep(&BTreeSet::from([digest]));
        until(|| bench.count("failed") > 2);
        assert_eq!(bench.count("written"), 0);
        fs::remove_file(bench.directory()).unwrap();
        until(|| bench.has(digest));
        bench.settle();
        assert_eq!(bench.count("written"), 1);
        assert!(bench.thread.0.lock().waiting.is_empty());
    }

    #[test]
    fn a_copy_that_failed_is_dropped_when_no_controller_uses_its_module() {
        let bench = Bench::new(Duration::from_millis(20));
        fs::write(bench.directory(), b"").unwrap();
        let digest = bench.add(b"wasm".to_vec());
        bench.thread.keep(&BTreeSet::from([digest]));
        until(|| bench.count("failed") > 2);
        bench.thread.keep(&BTreeSet::new());
        bench.settle();
        assert!(bench.thread.0.lock().waiting.is_empty());
    }

    #[test]
    fn the_memory_of_modules_that_wait_for_the_disk_is_limited() {
        let bench = Bench::new(RETRY);
        fs::write(bench.directory(), b"").unwrap();
        for number in 0..5 {
            bench.add(large(number));
        }
        until(|| bench.count("failed") == 5);
        assert_eq!(
            bench.thread.0.lock().waiting.len(),
            MOST_WAITING / (10 << 20)
        );
    }
}
