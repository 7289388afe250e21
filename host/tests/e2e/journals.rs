//! The journals of a test's hosts. Every decision in them is made again when the test is over.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use davit::config::ControllerConfig;
use davit::health::Health;
use davit::journal::{Journal, JournalSettings};
use davit::metrics::HostMetrics;
use davit_core::api::ModuleSource;
use davit_core::journal::Profile;
use serde_json::Value;
use tempfile::TempDir;

use super::process::davit;

/// How long a journal may take to be written after its host has ended.
const PATIENCE: Duration = Duration::from_secs(60);

thread_local! {
    /// The files of the modules that the test has named.
    static MODULES: RefCell<BTreeSet<PathBuf>> = const { RefCell::new(BTreeSet::new()) };
    /// The journals of the test that runs in this thread; none if its hosts record nothing.
    static JOURNALS: RefCell<Option<Vec<TempDir>>> = const { RefCell::new(None) };
    /// Why calls may be skipped in the story of the test.
    static EXPLAINED: RefCell<BTreeSet<&'static str>> = const { RefCell::new(BTreeSet::new()) };
    /// Whether nothing is decided in the story of the test.
    static DECIDES_NOTHING: Cell<bool> = const { Cell::new(false) };
}

/// The guest failed in a call.
pub(crate) const FAILED_CALL: &str = "the call failed when it was recorded";
/// The guest read more of its queues and notes than a journal has of one call.
pub(crate) const MANY_READS: &str =
    "the guest read more than 100000 keys of its queues and notes, and the journal has no more";
/// The journal has the end of a call and not its start.
pub(crate) const LOST_START: &str =
    "the call started before the keyframe that the replay starts with";

/// What a replay prints.
#[derive(Debug)]
pub(crate) struct Replayed {
    pub(crate) identical: u64,
    /// How many calls were not made again, by the reason.
    pub(crate) skipped: BTreeMap<String, u64>,
}

impl Replayed {
    /// Reads `3 calls: 2 identical, 1 different, 4 skipped` and the reasons below it.
    pub(crate) fn read(text: &str) -> Self {
        let first = text.lines().next().unwrap_or_default();
        let number = |word: &str| {
            let mut parts = first.split([':', ',']).map(str::trim);
            let part = parts.find_map(|part| part.strip_suffix(word));
            let number = part.and_then(|number| number.trim().parse::<u64>().ok());
            number.unwrap_or_else(|| panic!("no number of {word} calls: {text}"))
        };
        let skipped = text.lines().filter_map(|line| {
            let (count, why) = line.strip_prefix("  skipped ")?.split_once(": ")?;
            Some((why.to_owned(), count.parse().unwrap()))
        });
        let skipped: BTreeMap<String, u64> = skipped.collect();
        assert_eq!(skipped.values().sum::<u64>(), number("skipped"), "{text}");
        Self {
            identical: number("identical"),
            skipped,
        }
    }

    /// Fails if a call was skipped for another reason.
    pub(crate) fn is_explained_by(&self, explained: &BTreeSet<&str>) {
        let mut reasons = self.skipped.keys();
        let other = reasons.find(|why| !explained.contains(why.as_str()));
        assert_eq!(other, None, "the story explains only {explained:?}");
    }
}

/// The story of this test, or of the next one of this thread, explains why calls are skipped
/// for this reason.
pub(crate) fn explain_skips(why: &'static str) {
    EXPLAINED.with_borrow_mut(|explained| explained.insert(why));
}

/// In the story of this test, or of the next one of this thread, no guest is called.
pub(crate) fn expect_no_calls() {
    DECIDES_NOTHING.set(true);
}

/// Runs a test whose hosts record, and replays their journals: calls were made, and each of them
/// is made again whose story does not explain otherwise.
pub(super) fn replayed(test: impl FnOnce()) {
    JOURNALS.set(Some(Vec::new()));
    MODULES.take();
    test();
    let journals = JOURNALS.take().unwrap_or_default();
    let explained = EXPLAINED.take();
    let mut identical = 0;
    for journal in &journals {
        let replayed = replay(journal.path());
        replayed.is_explained_by(&explained);
        identical += replayed.identical;
    }
    let decides_nothing = DECIDES_NOTHING.take();
    assert!(
        journals.is_empty() || (identical > 0) != decides_nothing,
        "{identical} calls of the test are made again"
    );
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

fn replay(journal: &Path) -> Replayed {
    wait_for(journal);
    let modules = MODULES.with_borrow(Clone::clone).into_iter();
    let mut davit = davit();
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
    let replayed = Replayed::read(&text);
    if replayed.identical > 0 {
        assert!(output.status.success(), "{text}{error}");
    } else {
        // A host that leads nothing, or ends early, makes no call.
        assert_eq!(output.status.code(), Some(2), "{text}{error}");
        assert!(error.contains("the journal has no call in this span"));
        assert_eq!(answers(journal), 0, "{text}{error}");
    }
    replayed
}

/// How many answers of guests a journal has.
fn answers(journal: &Path) -> usize {
    let mut davit = davit();
    davit.args(["journal", "cat", "--output", "json"]);
    let output = davit.arg(journal).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let entries = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    entries.filter(|entry| entry["kind"] == "answer").count()
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
