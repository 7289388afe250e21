//! The journals of a test's hosts. Every decision in them is made again when the test is over.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use davit::config::ControllerConfig;
use davit::health::Health;
use davit::journal::{Journal, JournalSettings};
use davit::metrics::HostMetrics;
use davit_core::api::ModuleSource;
use davit_core::journal::Profile;
use tempfile::TempDir;

/// How long a journal may take to be written after its host has ended.
const PATIENCE: Duration = Duration::from_secs(60);

thread_local! {
    /// The files of the modules that the test has named.
    static MODULES: RefCell<BTreeSet<PathBuf>> = const { RefCell::new(BTreeSet::new()) };
    /// The journals of the test that runs in this thread; none if its hosts record nothing.
    static JOURNALS: RefCell<Option<Vec<TempDir>>> = const { RefCell::new(None) };
}

/// Runs a test whose hosts record, and replays their journals.
pub(super) fn replayed(test: impl FnOnce()) {
    JOURNALS.set(Some(Vec::new()));
    MODULES.take();
    test();
    for journal in JOURNALS.take().into_iter().flatten() {
        replay(journal.path());
    }
}

/// The journal of a new host.
pub(super) fn open(metrics: &HostMetrics, health: &Arc<Health>) -> Option<Journal> {
    JOURNALS.with_borrow_mut(|journals| {
        let journals = journals.as_mut()?;
        let directory = tempfile::tempdir().unwrap();
        let settings = JournalSettings {
            directory: directory.path().to_owned(),
            max_age: Duration::from_hours(168),
            max_bytes: 1 << 30,
            segment_age: Duration::from_hours(6),
            sync: Duration::from_secs(1),
            profile: Profile::default(),
            is_profile_only: false,
        };
        let (metrics, health) = (metrics.journal.clone(), Arc::clone(health));
        let journal = Journal::open(&settings, "test".to_owned(), metrics, health);
        journals.push(directory);
        Some(journal.unwrap())
    })
}

/// Notes the files that the modules of these controllers are in.
pub(super) fn add_modules(controllers: &[ControllerConfig]) {
    let sources = controllers.iter().map(|one| &one.spec.module.source);
    let files = sources.filter_map(|source| match source {
        ModuleSource::File(path) => Some(PathBuf::from(path)),
        _ => None,
    });
    MODULES.with_borrow_mut(|modules| modules.extend(files));
}

fn replay(journal: &Path) {
    wait_for(journal);
    let modules = MODULES.with_borrow(Clone::clone).into_iter();
    let mut davit = Command::new(env!("CARGO_BIN_EXE_davit"));
    davit.arg("replay").arg(journal);
    davit
        .arg("--cache")
        .arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join("modules"))
        // For guests that carry an interpreter.
        .args(["--compile-memory-mib", "4096", "--core-instances", "64"]);
    for module in modules.filter(|module| module.exists()) {
        davit.arg("--module").arg(module);
    }
    let output = davit.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    println!("{text}{error}");
    assert!(output.status.success(), "{text}{error}");
}

/// Waits until the thread of the journal has ended, and nobody holds its lock.
fn wait_for(journal: &Path) {
    let deadline = Instant::now() + PATIENCE;
    let is_free = || {
        let now = jiff::Timestamp::now().as_microsecond();
        davit_journal::Writer::open(journal, davit_journal::Settings::default(), now).is_ok()
    };
    while !is_free() {
        assert!(Instant::now() < deadline, "the journal is still written");
        std::thread::sleep(Duration::from_millis(20));
    }
}
