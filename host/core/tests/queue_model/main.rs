//! Random operations at random times on the queues and on a model of them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    reason = "a test that cannot go on is to fail; its numbers are small and exact"
)]

mod model;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use davit_core::manifest::{QueueSpec, Rate, TickSpec};
use davit_core::plan::{Enqueue, QueueKey};
use davit_core::queue::{Finish, Origin, PendingItem, PendingSnapshot, Queues};
use davit_core::time::Instant;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use model::Model;

const QUEUES: [&str; 4] = ["plain", "limited", "urgent", "undeclared"];
const KEYS: [&str; 5] = ["a", "b", "c", "d", "e"];
const NANO: Duration = Duration::from_nanos(1);

#[derive(Clone, Debug)]
enum Step {
    Add(&'static str, &'static str, Origin),
    /// A flood of items, so that the shares of the lanes are visible.
    Flood(&'static str, Origin, u8),
    Enqueue(Enqueue),
    Cancel(&'static str, &'static str),
    SetRate(&'static str, &'static str, Rate),
    Dequeue,
    /// The item with this index among those being reconciled, if it exists.
    Finish(usize, Finish),
    Reconfigure(usize),
    Snapshot,
    Advance(Duration),
    /// To the next due time, and a nanosecond less.
    AlmostThere,
    AdvanceToNext,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let queue = || prop::sample::select(&QUEUES[..]);
    let key = || prop::sample::select(&KEYS[..]);
    let group = || prop::sample::select(&["", "x", "y"][..]);
    let origin = || prop::sample::select(&[Origin::Fresh, Origin::Relist][..]);
    let enqueue = (queue(), key(), pause(), prop::option::of(0..5_u64), group()).prop_map(
        |(queue, key, after, created_at, group)| Enqueue {
            item: QueueKey {
                queue: queue.to_owned(),
                key: key.to_owned(),
            },
            after,
            created_at: created_at.map(Instant::from_nanos),
            group: group.to_owned(),
        },
    );
    let step = prop_oneof![
        8 => (queue(), key(), origin()).prop_map(|(q, k, o)| Step::Add(q, k, o)),
        1 => (queue(), origin(), 1..30_u8).prop_map(|(q, o, n)| Step::Flood(q, o, n)),
        6 => enqueue.prop_map(Step::Enqueue),
        2 => (queue(), key()).prop_map(|(q, k)| Step::Cancel(q, k)),
        2 => (queue(), group(), rate()).prop_map(|(q, g, r)| Step::SetRate(q, g, r)),
        10 => Just(Step::Dequeue),
        10 => (0..6_usize, finish()).prop_map(|(n, f)| Step::Finish(n, f)),
        1 => (0..4_usize).prop_map(Step::Reconfigure),
        1 => Just(Step::Snapshot),
        4 => pause().prop_map(Step::Advance),
        2 => Just(Step::AlmostThere),
        4 => Just(Step::AdvanceToNext),
    ];
    prop::collection::vec(step, 1..120)
}

/// Coarse, so that times coincide, and sometimes slightly off.
fn pause() -> impl Strategy<Value = Duration> {
    prop_oneof![
        4 => (0..20_u64).prop_map(|tenths| Duration::from_millis(tenths * 100)),
        1 => (0..3_000_000_000_u64).prop_map(Duration::from_nanos),
        1 => Just(NANO),
    ]
}

fn rate() -> impl Strategy<Value = Rate> {
    let rates = [(0.0, 1), (1.0, 1), (0.5, 3), (10.0, 1), (3.0, 2), (7.0, 5)];
    let rate = |(per_second, burst)| Rate { per_second, burst };
    prop::sample::select(rates.map(rate).to_vec())
}

fn finish() -> impl Strategy<Value = Finish> {
    let retry = |retry_after| Finish::Retry {
        failures: Vec::new(),
        retry_after,
    };
    prop_oneof![
        6 => Just(Finish::Done),
        3 => prop::option::of(pause()).prop_map(retry),
        2 => pause().prop_map(Finish::RequeueAfter),
        2 => pause().prop_map(Finish::Left),
        1 => Just(Finish::PutBack),
        1 => Just(Finish::PutBackAlone),
    ]
}

/// The declarations of successive revisions of a guest.
fn revision(number: usize) -> (Vec<QueueSpec>, Vec<TickSpec>) {
    let spec = |name: &str, workers, batch, priority, rate| QueueSpec {
        name: name.to_owned(),
        workers,
        batch,
        priority,
        retry_initial: Duration::from_millis(100),
        retry_max: Duration::from_millis(1500),
        rate,
    };
    let rate = |per_second, burst| Some(Rate { per_second, burst });
    let tick = |queue: &str, key: &str, millis| TickSpec {
        queue: queue.to_owned(),
        key: key.to_owned(),
        period: Duration::from_millis(millis),
    };
    let plain = |workers, batch| spec("plain", workers, batch, 0, None);
    let limited = |rate| spec("limited", 3, 5, 0, rate);
    let urgent = || spec("urgent", 1, 1, 5, None);
    let tick_a = |millis| tick("plain", "a", millis);
    let tick_b = || tick("limited", "b", 500);
    match number {
        0 => (
            vec![plain(40, 30), limited(rate(2.0, 2)), urgent()],
            vec![tick_a(1000), tick_b()],
        ),
        1 => (
            vec![plain(2, 2), limited(rate(4.0, 1)), urgent()],
            vec![tick_a(300)],
        ),
        2 => (
            vec![plain(3, 40), limited(None)],
            vec![tick_a(3000), tick_b()],
        ),
        _ => (vec![plain(40, 3), limited(rate(0.0, 1)), urgent()], vec![]),
    }
}

/// The items that must be pending, by queue and key.
type ExpectedItems = BTreeMap<(String, String), PendingItem>;

/// The queues, their model, and the items that must not be lost.
struct Drive {
    queues: Queues,
    model: Model,
    /// Items that were enqueued and neither dequeued nor cancelled.
    wanted: BTreeSet<(String, String)>,
    /// Items that were dequeued, and whether they were enqueued (and are not
    /// just ticks).
    work: Vec<(String, String, bool)>,
    snapshots: Vec<(PendingSnapshot, ExpectedItems)>,
}

impl Drive {
    fn new() -> Self {
        let (specs, ticks) = revision(0);
        let now = Instant::from_nanos(1_000_000_000);
        Self {
            queues: Queues::new(now, &specs, &ticks),
            model: Model::new(now, &specs, &ticks),
            wanted: BTreeSet::new(),
            work: Vec::new(),
            snapshots: Vec::new(),
        }
    }

    fn now(&self) -> Instant {
        self.model.now
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Add(queue, key, origin) => self.add(queue, key, origin),
            Step::Flood(queue, origin, size) => {
                for number in 0..size {
                    self.add(queue, &format!("flood-{number}"), origin);
                }
            }
            Step::Enqueue(command) => {
                let done = self.queues.enqueue(self.now(), &command).is_ok();
                assert_eq!(done, self.model.enqueue(&command));
                if done {
                    self.wanted.insert((command.item.queue, command.item.key));
                }
            }
            Step::Cancel(queue, key) => {
                let waited = self.queues.cancel(self.now(), queue, key);
                assert_eq!(waited, self.model.cancel(queue, key), "cancel");
                self.wanted.remove(&(queue.to_owned(), key.to_owned()));
            }
            Step::SetRate(queue, group, rate) => self.set_rate(queue, group, rate),
            Step::Dequeue => self.dequeue(),
            Step::Finish(number, finish) => self.finish(number, &finish),
            Step::Reconfigure(number) => {
                let (specs, ticks) = revision(number);
                self.reconfigure(&specs, &ticks);
            }
            Step::Snapshot => {
                let expected = self.expected();
                self.snapshots.push((self.queues.pending(), expected));
            }
            Step::Advance(by) => self.model.advance(by),
            Step::AlmostThere => self.advance_to_next(NANO),
            Step::AdvanceToNext => self.advance_to_next(Duration::ZERO),
        }
        self.check();
    }

    fn add(&mut self, queue: &str, key: &str, origin: Origin) {
        let done = self.queues.add(self.now(), queue, key, origin).is_ok();
        assert_eq!(done, self.model.add(queue, key, origin));
        if done {
            self.wanted.insert((queue.to_owned(), key.to_owned()));
        }
    }

    fn set_rate(&mut self, queue: &str, group: &str, rate: Rate) {
        let done = self.queues.set_rate(self.now(), queue, group, rate).is_ok();
        assert_eq!(done, self.model.set_rate(queue, group, rate));
    }

    fn dequeue(&mut self) {
        let Some(batch) = self.queues.dequeue(self.now()) else {
            let next = self.model.next_due();
            assert!(next.is_none_or(|next| next > self.now()), "nothing taken");
            return;
        };
        self.model.check_taken(&batch);
        for item in batch.items {
            let key = (item.queue, item.key);
            let mut work = self.work.iter();
            let twice = work.any(|(queue, item, _)| *queue == key.0 && *item == key.1);
            assert!(!twice, "{key:?} twice at once");
            let was_wanted = self.wanted.remove(&key);
            self.work.push((key.0, key.1, was_wanted));
        }
    }

    fn finish(&mut self, number: usize, finish: &Finish) {
        if number >= self.work.len() {
            return;
        }
        let (queue, key, was_wanted) = self.work.remove(number);
        let finished = self.queues.done(self.now(), &queue, &key, finish.clone());
        let expected = self.model.done(&queue, &key, finish);
        assert_eq!(finished.unwrap().due_at, expected, "{key}");
        if was_wanted && *finish != Finish::Done {
            self.wanted.insert((queue, key));
        }
    }

    fn reconfigure(&mut self, specs: &[QueueSpec], ticks: &[TickSpec]) {
        let before = self.model.queues.clone();
        let gone = self.queues.reconfigure(self.now(), specs, ticks);
        self.model.reconfigure(specs, ticks);
        let names = &self.model.queues;
        let mut expected = BTreeSet::new();
        for (name, queue) in before.iter().filter(|(name, _)| !names.contains_key(*name)) {
            let items = queue.waiting.iter().chain(&queue.work);
            expected.extend(items.map(|item| (name.clone(), item.key.clone())));
        }
        let gone: BTreeSet<_> = gone
            .into_iter()
            .map(|gone| (gone.queue, gone.key))
            .collect();
        assert_eq!(gone, expected);
        self.wanted.retain(|key| !gone.contains(key));
        self.work
            .retain(|(queue, key, _)| !gone.contains(&(queue.clone(), key.clone())));
    }

    fn advance_to_next(&mut self, less: Duration) {
        if let Some(next) = self.queues.next_due(self.now()) {
            let by = next.since(self.now()).saturating_sub(less);
            self.model.advance(by);
        }
    }

    fn expected(&self) -> ExpectedItems {
        let mut expected = BTreeMap::new();
        for (name, queue) in &self.model.queues {
            for item in &queue.waiting {
                let waiting = PendingItem {
                    created_at: item.created,
                    due_at: item.due,
                };
                expected.insert((name.clone(), item.key.clone()), waiting);
            }
        }
        expected
    }

    fn check(&mut self) {
        self.model.note_groups();
        let expected = self.expected();
        check_snapshot(&self.queues.pending(), &expected);
        self.check_next();
        let now = self.now();
        for stats in self.queues.stats(now) {
            let queue = &self.model.queues[&stats.queue];
            let scheduled = queue.waiting.iter();
            let scheduled = scheduled.filter(|item| !queue.works_on(&item.key));
            let (due, delayed): (Vec<_>, Vec<_>) = scheduled.partition(|item| item.due <= now);
            let numbers = (stats.depth, stats.delayed, stats.processing);
            assert_eq!(numbers, (due.len(), delayed.len(), queue.work.len()));
        }
        self.check_usage();
        for wanted in &self.wanted {
            let waits = expected.contains_key(wanted);
            assert!(waits, "{wanted:?} is lost");
        }
    }

    /// What is counted with each change is what a scan would count.
    fn check_usage(&self) {
        let (usage, queues) = (self.queues.usage(), self.model.queues.values());
        let items = queues
            .clone()
            .flat_map(|it| it.waiting.iter().chain(&it.work));
        let bytes = items.clone().map(|item| item.key.len() + item.group.len());
        assert_eq!(
            (usage.items, usage.bytes),
            (items.clone().count(), bytes.sum())
        );
        // The queue forgets a group as soon as it has no information.
        let groups = queues.flat_map(model::Queue::group_names);
        assert!(usage.groups <= groups.clone().count());
        assert!(usage.group_bytes <= groups.map(String::len).sum::<usize>());
    }

    /// The contract of `next_due`: an item at that time, and none before.
    fn check_next(&self) {
        let now = self.now();
        let next = self.queues.next_due(now);
        assert_eq!(next, self.model.next_due());
        if let Some(next) = next {
            assert!(
                self.queues.clone().dequeue(next).is_some(),
                "nothing at {next:?}"
            );
            if next > now {
                let before = Instant::from_nanos(next.as_nanos() - 1);
                assert_eq!(self.queues.clone().dequeue(before), None);
            }
        } else {
            let far = now.after(Duration::from_secs(1_000_000));
            assert_eq!(self.queues.clone().dequeue(far), None);
        }
    }

    /// Without ticks and with every rate open, every item is dequeued in the end.
    fn drain(mut self) {
        let (specs, _) = revision(0);
        self.reconfigure(&specs, &[]);
        for queue in ["plain", "limited", "urgent"] {
            for group in ["", "x", "y"] {
                let rate = Rate {
                    per_second: 100.0,
                    burst: 10,
                };
                self.set_rate(queue, group, rate);
            }
        }
        for _ in 0..1000 {
            while !self.work.is_empty() {
                self.finish(0, &Finish::Done);
            }
            if self.queues.next_due(self.now()).is_none() {
                break;
            }
            self.advance_to_next(Duration::ZERO);
            self.dequeue();
        }
        assert_eq!(self.wanted, BTreeSet::new(), "never handed out");
        assert_eq!(self.expected(), BTreeMap::new(), "still waiting");
        self.check();
        for (snapshot, expected) in &self.snapshots {
            check_snapshot(snapshot, expected);
        }
    }
}

fn check_snapshot(snapshot: &PendingSnapshot, expected: &ExpectedItems) {
    let floods: Vec<String> = (0..30).map(|number| format!("flood-{number}")).collect();
    for queue in QUEUES {
        for key in KEYS.into_iter().chain(floods.iter().map(String::as_str)) {
            let id = (queue.to_owned(), key.to_owned());
            let waiting = snapshot.get(queue, key);
            assert_eq!(waiting, expected.get(&id).copied(), "{id:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            "tests/queue_model/proptest-regressions.txt",
        ))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_queues_behave_like_their_model(steps in steps()) {
        let mut drive = Drive::new();
        for step in steps {
            drive.step(step);
        }
        drive.drain();
    }
}
