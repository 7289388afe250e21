//! A disk that blocks for as long as it likes.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use davit_core::journal::{Entry, JournalItem, Record, Replay, decode};
use davit_core::machine::Machine;
use davit_core::time::{Now, Wall};
use davit_journal::{Query, Reader};

use super::queue::MOST_WAITING;
use super::*;
use crate::metrics::HostMetrics;

/// The size of each entry.
const ENTRY: usize = 60_000;
/// How long the test waits for the thread at most.
const LONGEST: Duration = Duration::from_secs(60);

/// A disk whose writes wait while it is blocked.
#[derive(Clone, Default)]
struct SlowDisk(Arc<(Mutex<bool>, Condvar)>);

impl SlowDisk {
    fn block(&self, is_blocked: bool) {
        let (blocked, changed) = &*self.0;
        *blocked.lock().unwrap_or_else(PoisonError::into_inner) = is_blocked;
        changed.notify_all();
    }

    fn wait(&self) {
        let (blocked, changed) = &*self.0;
        let blocked = blocked.lock().unwrap_or_else(PoisonError::into_inner);
        let free = changed.wait_while(blocked, |is_blocked| *is_blocked);
        drop(free);
    }
}

impl Storage for SlowDisk {
    type File = File;

    fn create(&mut self, path: &Path) -> io::Result<File> {
        self.wait();
        Files.create(path)
    }

    fn write(&mut self, file: &mut File, bytes: &[u8]) -> io::Result<usize> {
        self.wait();
        Files.write(file, bytes)
    }

    fn sync(&mut self, file: &mut File) -> io::Result<()> {
        self.wait();
        Files.sync(file)
    }

    fn sync_directory(&mut self, path: &Path) -> io::Result<()> {
        self.wait();
        Files.sync_directory(path)
    }

    fn truncate(&mut self, path: &Path, length: u64) -> io::Result<()> {
        Files.truncate(path, length)
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        Files.remove(path)
    }
}

/// The driver's task: a machine, and the queue to the journal's thread.
struct Driver {
    machine: Machine<()>,
    queue: JournalQueue,
    metrics: HostMetrics,
    health: Arc<Health>,
    asked: Receiver<()>,
    now: Now,
    sent: usize,
}

impl Driver {
    fn start(directory: &Path, disk: &SlowDisk) -> Self {
        let metrics = HostMetrics::new().unwrap();
        let health = Arc::new(Health::default());
        let storage = Settings::default();
        // The thread ends a segment by the clock.
        let start = Timestamp::now();
        let micros = start.as_microsecond();
        let (writer, _) = Writer::open_on(disk.clone(), directory, storage, micros).unwrap();
        let journal = Journal {
            writer,
            sync: Duration::from_millis(100),
            profile: Profile::default(),
            origin: SegmentOrigin::of_this_process("test".to_owned()),
            metrics: metrics.journal.clone(),
            health: Arc::clone(&health),
        };
        let (ask, asked) = channel();
        let queue = journal.start(move || {
            // The test may be over.
            let _ = ask.send(());
        });
        let now = Now {
            wall: Wall(start.as_millisecond()),
            ..Now::default()
        };
        let mut machine = Machine::new(now);
        machine.start_journal(now);
        queue.send(machine.take_journal());
        Self {
            machine,
            queue,
            metrics,
            health,
            asked,
            now,
            sent: 0,
        }
    }

    /// A turn of the task adds an entry, which has its number.
    fn turn(&mut self) {
        self.now.wall.0 += 1;
        let spec = format!("{:0width$}", self.sent, width = ENTRY);
        let entry = Entry::Spec {
            controller: "test".to_owned(),
            spec: spec.into(),
        };
        let record = Record {
            now: self.now,
            entry,
        };
        self.queue.send(vec![JournalItem::Record(record)]);
        self.sent += 1;
    }

    fn keyframe(&mut self) {
        self.machine.add_keyframe(self.now);
        self.queue.send(self.machine.take_journal());
    }

    /// The value of a metric.
    fn metric(&self, name: &str) -> f64 {
        let text = self.metrics.render();
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.rsplit(' ').next());
        value.map_or(-1.0, |value| value.parse().unwrap())
    }

    fn is_recording(&self) -> bool {
        self.metric("davit_journal_recording") > 0.5 && !self.health.is_journal_stopped()
    }

    fn wait_until(&self, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + LONGEST;
        while !holds(self) {
            assert!(
                Instant::now() < deadline,
                "the journal's thread is too late"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// What a journal has: the numbers of its entries in each segment, whether the segment says that
/// nothing is missing before it, and the last state.
fn read(directory: &Path) -> (Vec<(bool, Vec<usize>)>, Replay) {
    let reader = Reader::open(directory).unwrap();
    let mut segments: Vec<(bool, Vec<usize>)> = Vec::new();
    let mut replay = Replay::default();
    let mut last = None;
    for entry in reader.entries(&Query::new(i64::MIN, i64::MAX)) {
        let entry = entry.unwrap();
        if last != Some(entry.segment) {
            last = Some(entry.segment);
            let mut infos = reader.segments().iter();
            let info = infos.find(|one| one.sequence == entry.segment).unwrap();
            let continues = SegmentOrigin::read(&info.metadata).continues;
            if !continues {
                replay = Replay::default();
            }
            segments.push((continues, Vec::new()));
        }
        let record = decode(&entry.payload).unwrap();
        if let Entry::Spec { spec, .. } = &record.entry {
            let (_, numbers) = segments.last_mut().unwrap();
            numbers.push(spec.parse().unwrap());
        }
        assert!(replay.handle(record).unwrap().is_none());
    }
    (segments, replay)
}

#[tokio::test]
async fn a_disk_that_blocks_delays_nobody_and_the_journal_records_again_behind_a_known_gap() {
    let directory = tempfile::tempdir().unwrap();
    let disk = SlowDisk::default();
    let mut driver = Driver::start(directory.path(), &disk);
    driver.wait_until(Driver::is_recording);
    driver.turn();
    driver.wait_until(|it| it.queue.state.is_empty());

    disk.block(true);
    let blocked = driver.sent;
    let turns = 4 * MOST_WAITING / ENTRY;
    let mut longest = Duration::ZERO;
    for _ in 0..turns {
        let started = Instant::now();
        driver.turn();
        longest = longest.max(started.elapsed());
        assert!(driver.queue.state.waiting() <= MOST_WAITING);
    }
    // The disk does nothing meanwhile: a turn that waited for it would never end.
    assert!(longest < Duration::from_secs(5), "{longest:?}");
    let dropped = driver.metric("davit_journal_entries_total{result=\"dropped\"}");
    assert!(dropped > 0.0 && !driver.is_recording(), "{dropped}");
    std::thread::sleep(Duration::from_secs(2));
    assert!(!driver.is_recording());

    disk.block(false);
    // The thread asks for a keyframe once it has written what waited.
    driver.asked.recv_timeout(LONGEST).unwrap();
    assert!(driver.queue.state.is_empty());
    driver.turn();
    driver.keyframe();
    driver.wait_until(Driver::is_recording);
    let again = driver.sent;
    for _ in 0..3 {
        driver.turn();
    }
    let last = driver.sent - 1;
    let dropped = driver.metric("davit_journal_entries_total{result=\"dropped\"}");
    driver.queue.close().await;

    let (segments, replay) = read(directory.path());
    let [(false, before), (false, behind)] = &*segments else {
        panic!("two segments, neither of which continues another one: {segments:?}");
    };
    let written = before.len();
    assert!(written > blocked && written < turns, "{written}");
    assert_eq!(*before, (0..written).collect::<Vec<_>>());
    assert_eq!(*behind, (again..=last).collect::<Vec<_>>());
    let missing = u32::try_from(again - written).unwrap();
    assert!((dropped - f64::from(missing)).abs() < 0.5, "{dropped}");
    assert!(replay.is_complete());
    let spec: usize = replay.spec("test").unwrap().parse().unwrap();
    assert_eq!(spec, last);
}
