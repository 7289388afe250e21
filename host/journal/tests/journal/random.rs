//! Random journals against a model: what was recorded, as lists.

use std::time::Duration;

use davit_journal::{Entry, Part, Query, Reader, Settings};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use crate::support::{Record, START, Writer, directory, reopen, uid, verify};

#[derive(Clone, Debug)]
enum Step {
    /// Time passes, also backwards, and a few entries are recorded.
    Append(i64, Vec<usize>, Vec<u8>),
    Flush(bool),
    /// Another segment, with a keyframe of so many entries.
    Start(usize),
    /// The process is killed, and another one opens the directory.
    Kill,
    /// It ends, and another one opens the directory.
    Close,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let payload = prop_oneof![
        3 => prop::collection::vec(0..4_u8, 0..60),
        1 => prop::collection::vec(any::<u8>(), 0..400),
    ];
    let objects = prop::collection::vec(0..9_usize, 0..4);
    let time = prop_oneof![10 => 0..50_i64, 1 => -300..0_i64, 1 => 0..1_000_000_000_i64];
    let step = prop_oneof![
        20 => (time, objects, payload).prop_map(|(t, o, p)| Step::Append(t, o, p)),
        4 => any::<bool>().prop_map(Step::Flush),
        2 => (0..20_usize).prop_map(Step::Start),
        1 => Just(Step::Kill),
        1 => Just(Step::Close),
    ];
    prop::collection::vec(step, 1..150)
}

/// A segment, as it was recorded.
#[derive(Clone, Debug, Default)]
struct Segment {
    sequence: u64,
    start: i64,
    keyframe: Vec<Record>,
    entries: Vec<Record>,
    /// How many entries have to be in the file.
    flushed: usize,
}

struct Run {
    now: i64,
    segments: Vec<Segment>,
    writer: Writer,
    settings: Settings,
    directory: tempfile::TempDir,
}

impl Run {
    fn new(block_bytes: usize) -> Self {
        let settings = Settings {
            block_bytes,
            segment_age: Duration::from_secs(3600),
            ..Settings::default()
        };
        let directory = directory();
        let (writer, _) = reopen(directory.path(), settings.clone(), START).unwrap();
        Self {
            now: START,
            segments: Vec::new(),
            writer,
            settings,
            directory,
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Append(pause, objects, payload) => {
                self.now += pause;
                if self.writer.needs_segment(self.now) {
                    self.start(2);
                }
                let objects = objects.into_iter().map(uid).collect();
                let record = Record {
                    time: self.now,
                    objects,
                    payload,
                };
                record.append(&mut self.writer);
                self.segments.last_mut().unwrap().entries.push(record);
            }
            Step::Flush(sync) if !self.writer.needs_segment(self.now) => {
                self.writer.flush(sync).unwrap();
                self.all_flushed();
            }
            Step::Flush(_) => {}
            Step::Start(keyframe) => self.start(keyframe),
            Step::Kill => self.reopen(false),
            Step::Close => self.reopen(true),
        }
    }

    fn start(&mut self, keyframe: usize) {
        let sequence = self.segments.len() as u64 + 1;
        self.all_flushed();
        self.writer.start_segment(self.now, b"").unwrap();
        let keyframe: Vec<Record> = (0..keyframe)
            .map(|number| Record::numbered(number * 31))
            .collect();
        for record in &keyframe {
            record.append(&mut self.writer);
        }
        self.writer.end_keyframe().unwrap();
        self.segments.push(Segment {
            sequence,
            start: self.now,
            keyframe,
            ..Segment::default()
        });
    }

    fn all_flushed(&mut self) {
        if let Some(last) = self.segments.last_mut() {
            last.flushed = last.entries.len();
        }
    }

    fn reopen(&mut self, is_closed: bool) {
        // The directory has to be unlocked before it is opened again.
        let placeholder = directory();
        let (other, _) = reopen(placeholder.path(), self.settings.clone(), START).unwrap();
        let writer = std::mem::replace(&mut self.writer, other);
        if is_closed {
            writer.close().unwrap();
            self.all_flushed();
        } else {
            drop(writer);
            self.lose();
        }
        let opened = reopen(self.directory.path(), self.settings.clone(), self.now);
        self.writer = opened.unwrap().0;
    }

    /// What was not flushed may be lost, but only from the end.
    fn lose(&mut self) {
        let Some(last) = self.segments.last_mut() else {
            return;
        };
        let reader = Reader::open(self.directory.path()).unwrap();
        let kept = reader.segments().last().unwrap().entries as usize;
        assert!((last.flushed..=last.entries.len()).contains(&kept));
        last.entries.truncate(kept);
        last.flushed = kept;
    }

    /// What a query should find: of each segment its keyframe and its entries before `to`, from
    /// the last segment on that the state at `from` needs.
    fn expected(&self, from: i64, to: i64, object: Option<&str>) -> Vec<(Part, u64, Record)> {
        let reach = |segment: &Segment| {
            segment.entries.iter().any(|entry| entry.time >= from) || segment.start >= from
        };
        let reaching = self.segments.iter().position(reach).unwrap_or(usize::MAX);
        let started = self
            .segments
            .iter()
            .rposition(|segment| segment.start <= from);
        let first = reaching.min(started.unwrap_or(usize::MAX));
        let first = if first == usize::MAX { 0 } else { first };
        let mut expected = Vec::new();
        for segment in self.segments.iter().skip(first) {
            let times = segment.entries.iter().map(|entry| entry.time);
            if times.chain([segment.start]).all(|time| time >= to) {
                continue;
            }
            let keyframe = segment
                .keyframe
                .iter()
                .map(|record| (Part::Keyframe, record));
            let entries = segment.entries.iter().filter(|entry| entry.time < to);
            let part = |record: &Record| {
                if record.time < from {
                    Part::LeadIn
                } else {
                    Part::Span
                }
            };
            let entries = entries.map(|record| (part(record), record));
            let all = keyframe.chain(entries);
            let about = all.filter(|(_, record)| {
                object.is_none_or(|object| record.objects.iter().any(|one| one == object))
            });
            expected.extend(about.map(|(part, record)| (part, segment.sequence, record.clone())));
        }
        expected
    }

    fn check(&self, query: &Query, expected: &[(Part, u64, Record)]) -> Result<(), TestCaseError> {
        let reader = Reader::open(self.directory.path()).unwrap();
        let found = reader.entries(query).map(|entry| {
            let entry: Entry = entry.unwrap();
            (entry.part, entry.segment, Record::from(entry))
        });
        let found: Vec<_> = found.collect();
        let place = found
            .iter()
            .zip(expected)
            .take_while(|(one, other)| one == other)
            .count();
        prop_assert_eq!(found.get(place), expected.get(place), "after {}", place);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            "tests/journal/proptest-regressions.txt",
        ))),
        cases: 128,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_journal_holds_what_was_recorded(
        steps in steps(),
        block_bytes in prop::sample::select(&[1_usize, 100, 1000, 1 << 20][..]),
        spans in prop::collection::vec((0..2000_i64, 0..2000_i64, prop::option::of(0..9_usize)), 5),
    ) {
        let mut run = Run::new(block_bytes);
        for step in steps {
            run.step(step);
        }
        // As a reader beside the writer sees it, without what is not flushed.
        if !run.writer.needs_segment(run.now) {
            run.writer.flush(false).unwrap();
        }
        let verification = verify(run.directory.path());
        prop_assert_eq!((verification.damages, verification.tails), (0, 0));
        let times: Vec<i64> = run.segments.iter().flat_map(|segment| {
            segment.entries.iter().map(|entry| entry.time).chain([segment.start])
        }).collect();
        for (from, to, object) in spans {
            // Around the times at which something happened.
            let pick = |number: i64| times.get(number as usize % times.len().max(1)).copied().unwrap_or(START) + number % 3 - 1;
            let (from, to) = (pick(from).min(pick(to)), pick(from).max(pick(to)));
            let object = object.map(uid);
            let mut query = Query::new(from, to);
            if let Some(object) = &object {
                query = query.about(object);
            }
            let expected = run.expected(from, to, object.as_deref());
            run.check(&query, &expected)?;
            let span = expected.into_iter().filter(|(part, ..)| *part == Part::Span);
            run.check(&query.without_lead_in(), &span.collect::<Vec<_>>())?;
        }
    }
}
