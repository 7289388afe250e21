//! Every call of a story's guests, made again from the journals of its hosts.

use std::fmt;
use std::time::{Duration, Instant};

use davit_simulation::{Recording, Simulation};

/// How many problems of one journal are reported.
const MOST_PROBLEMS: usize = 3;

/// What was made again, and how long it took.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replays {
    /// How long the stories took.
    pub(super) stories: Duration,
    /// How long the replays from the start of each journal took.
    from_the_start: Duration,
    entries: usize,
    bytes: usize,
    /// The calls that were made again from the start of each journal, and those of them with
    /// live reads.
    calls: usize,
    with_reads: usize,
    /// The calls that were made again from a keyframe in the middle of the story.
    calls_from_the_middle: usize,
    /// The recorded calls that had failed.
    failed: usize,
    /// The calls that started before the keyframe in the middle.
    skipped: usize,
}

impl Replays {
    /// Makes the calls again, from the start and from the middle. Returns what went
    /// differently.
    pub(super) fn replay(&mut self, simulation: &Simulation) -> Vec<String> {
        let hosts = simulation.indexes();
        let recordings = hosts.filter_map(|host| simulation.host(host).recording());
        recordings
            .flat_map(|recording| self.replay_one(recording))
            .collect()
    }

    fn replay_one(&mut self, recording: &Recording) -> Vec<String> {
        self.entries += recording.len();
        self.bytes += recording.bytes();
        let started = Instant::now();
        let mut whole = recording.replay(0);
        self.from_the_start += started.elapsed();
        self.calls += whole.calls;
        self.with_reads += whole.with_reads;
        self.failed += whole.failed;
        let skipped = whole.skipped.drain(..);
        let skipped = skipped.map(|(call, why)| format!("{call:?} was not made again: {why}"));
        let mut problems: Vec<String> = skipped.chain(whole.problems).collect();
        for middle in recording.later_keyframes() {
            let rest = recording.replay(middle);
            self.calls_from_the_middle += rest.calls;
            self.skipped += rest.skipped.len();
            let rest = rest.problems.into_iter();
            problems.extend(rest.map(|problem| format!("from the middle: {problem}")));
        }
        problems.truncate(MOST_PROBLEMS);
        problems
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.stories += other.stories;
        self.from_the_start += other.from_the_start;
        self.entries += other.entries;
        self.bytes += other.bytes;
        self.calls += other.calls;
        self.with_reads += other.with_reads;
        self.calls_from_the_middle += other.calls_from_the_middle;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Replays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stories, replays) = (
            self.stories.as_secs_f64(),
            self.from_the_start.as_secs_f64(),
        );
        write!(
            f,
            "{} calls made again in {replays:.1} s of {stories:.1} s that the stories took \
             ({} with live reads; {} calls had failed); {} again from the middle ({} started \
             before); journals of {} entries and {} bytes",
            self.calls,
            self.with_reads,
            self.failed,
            self.calls_from_the_middle,
            self.skipped,
            self.entries,
            self.bytes,
        )
    }
}
