//! Several replicas, each with a clock of its own, and an API server that loses, delays
//! and reorders their requests: there are never two that write, and soon there is one.

use std::time::Duration;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore as _, SeedableRng as _};

use super::{Circumstances, Elector, LeaseTiming, LeaseWrite, LeaseWriteError, StoredLease};
use crate::time::{Instant, Now, Wall};

const SEEDS: u64 = 3000;
const REPLICAS: usize = 3;
const TICK: Duration = Duration::from_millis(50);
/// How often a replica reads the lease.
const READS: Duration = Duration::from_secs(1);
/// The longest way of a request or an answer, beyond which it is lost.
const TRANSPORT: Duration = Duration::from_secs(5);

struct Dice(Xoshiro256PlusPlus);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0.next_u64() % end
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn delay(&mut self) -> Duration {
        let most = if self.chance(10) { 5000 } else { 60 };
        Duration::from_millis(self.below(most))
    }
}

/// What is on its way, to the server or back.
enum Message {
    Read {
        requested: Instant,
    },
    Write {
        number: u64,
        write: LeaseWrite,
    },
    ReadAnswer {
        requested: Instant,
        stored: Option<StoredLease>,
    },
    WriteAnswer {
        number: u64,
        result: Result<StoredLease, LeaseWriteError>,
    },
}

struct Replica {
    elector: Elector,
    starts: u32,
    /// Its clock: the time of the start, and its speed in percent.
    offset: Duration,
    speed: u32,
    /// Until when it does not run, or is cut off from the server.
    paused: Duration,
    cut: Duration,
    read_at: Instant,
    /// When it last read the lease.
    requested: Instant,
    /// The number of the write under way, and when it fails without an answer.
    write: Option<(u64, Instant)>,
    writes: u64,
    /// The end of its last request for the controller, in real time.
    busy_until: Duration,
    gives_up: bool,
}

struct World {
    seed: u64,
    dice: Dice,
    timing: LeaseTiming,
    /// Real time.
    time: Duration,
    stored: Option<StoredLease>,
    versions: u64,
    replicas: Vec<Replica>,
    /// Each with its arrival and the replica.
    messages: Vec<(Duration, usize, Message)>,
    /// Whether anything goes wrong at present.
    storm: bool,
    has_run: bool,
    /// When a replica last could write.
    led: Duration,
    /// When the holder last changed: it may be given to a replica that has just ended.
    changed: Duration,
    /// The last events, for the message of a failure.
    trace: Vec<String>,
}

impl Replica {
    fn now(&self, time: Duration) -> Now {
        let local = self.offset + time * self.speed / 100;
        let nanos = u64::try_from(local.as_nanos()).unwrap();
        Now {
            instant: Instant::from_nanos(nanos),
            wall: Wall(i64::try_from(local.as_millis()).unwrap()),
        }
    }

    fn restart(&mut self, index: usize, timing: LeaseTiming, time: Duration) {
        self.starts += 1;
        let now = self.now(time).instant;
        self.elector = Elector::new(&format!("r{index}.{}", self.starts), timing, now);
        self.read_at = now;
        self.write = None;
        self.gives_up = false;
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let timing = LeaseTiming::default();
        let mut dice = Dice(Xoshiro256PlusPlus::seed_from_u64(seed));
        let mut replicas = Vec::new();
        for index in 0..REPLICAS {
            let mut replica = Replica {
                elector: Elector::new("", timing, Instant::ZERO),
                starts: 0,
                offset: Duration::from_secs(dice.below(100_000)),
                speed: u32::try_from(95 + dice.below(10)).unwrap(),
                paused: Duration::ZERO,
                cut: Duration::ZERO,
                read_at: Instant::ZERO,
                requested: Instant::ZERO,
                write: None,
                writes: 0,
                busy_until: Duration::ZERO,
                gives_up: false,
            };
            replica.restart(index, timing, Duration::ZERO);
            replicas.push(replica);
        }
        Self {
            seed,
            dice,
            timing,
            time: Duration::ZERO,
            stored: None,
            versions: 0,
            replicas,
            messages: Vec::new(),
            storm: true,
            has_run: false,
            led: Duration::ZERO,
            changed: Duration::ZERO,
            trace: Vec::new(),
        }
    }

    fn note(&mut self, what: &str) {
        self.trace.push(format!("{:?} {what}", self.time));
    }

    fn tick(&mut self) {
        self.time += TICK;
        if self.storm {
            self.disturb();
        }
        self.deliver();
        for index in 0..REPLICAS {
            if self.replicas[index].paused <= self.time {
                self.run(index);
            }
        }
    }

    fn disturb(&mut self) {
        let index = usize::try_from(self.dice.below(REPLICAS as u64)).unwrap();
        let length = Duration::from_secs(self.dice.below(30));
        let (time, timing) = (self.time, self.timing);
        let event = self.dice.below(1500);
        if event < 12 {
            self.note(&format!("event {event} of {index}, {length:?}"));
        }
        let replica = &mut self.replicas[index];
        match event {
            0..=2 => replica.paused = time + length,
            3..=5 => replica.cut = time + length,
            // Its requests are on their way: a new process does not start at once.
            6 if replica.busy_until <= time => replica.restart(index, timing, time),
            7..=9 => replica.gives_up = true,
            // A lease that is deleted while its controller runs for the first time has no
            // protection.
            10 if time > 2 * timing.duration => self.stored = None,
            11 => {
                // An operator writes something else into the Lease.
                self.versions += 1;
                let version = self.versions.to_string();
                if let Some(stored) = &mut self.stored {
                    stored.version = version;
                }
            }
            _ => {}
        }
    }

    /// Sends a message, unless it is lost.
    fn send(&mut self, index: usize, message: Message) {
        let is_cut = self.replicas[index].cut > self.time;
        let is_lost = self.storm && self.dice.chance(5);
        let delay = self.dice.delay();
        let delay = if self.storm { delay } else { delay / 100 };
        if !is_cut && !is_lost && delay < TRANSPORT {
            self.messages.push((self.time + delay, index, message));
        }
    }

    fn deliver(&mut self) {
        let time = self.time;
        let mut arrived: Vec<_> = self
            .messages
            .extract_if(.., |(at, ..)| *at <= time)
            .collect();
        arrived.sort_by_key(|(at, ..)| *at);
        for (_, index, message) in arrived {
            match message {
                Message::Read { requested } => {
                    let stored = self.stored.clone();
                    self.send(index, Message::ReadAnswer { requested, stored });
                }
                Message::Write { number, write } => self.serve(index, number, &write),
                answer if self.replicas[index].paused > time => {
                    // It reads the answer when it runs again.
                    self.messages
                        .push((self.replicas[index].paused, index, answer));
                }
                Message::ReadAnswer { requested, stored } => {
                    let replica = &mut self.replicas[index];
                    let now = replica.now(time).instant;
                    replica.elector.observe(stored.as_ref(), requested, now);
                }
                Message::WriteAnswer { number, result } => self.written(index, number, result),
            }
        }
    }

    fn serve(&mut self, index: usize, number: u64, write: &LeaseWrite) {
        let fits = match (write, &self.stored) {
            (LeaseWrite::Create(_), stored) => stored.is_none(),
            (LeaseWrite::Replace { version, .. }, stored) => stored
                .as_ref()
                .is_some_and(|stored| stored.version == *version),
        };
        let result = if fits {
            self.versions += 1;
            let stored = StoredLease {
                lease: write.lease().clone(),
                version: self.versions.to_string(),
            };
            let former = self.stored.replace(stored.clone());
            if former.is_none_or(|former| former.lease.holder != stored.lease.holder) {
                self.changed = self.time;
            }
            Ok(stored)
        } else {
            Err(LeaseWriteError::Conflict)
        };
        self.note(&format!(
            "{index} writes {:?}: {result:?}",
            write.lease().holder
        ));
        self.send(index, Message::WriteAnswer { number, result });
    }

    fn written(&mut self, index: usize, number: u64, result: Result<StoredLease, LeaseWriteError>) {
        let replica = &mut self.replicas[index];
        if replica
            .write
            .take_if(|(under_way, _)| *under_way == number)
            .is_some()
        {
            let now = replica.now(self.time).instant;
            if replica.elector.handle(result, now) {
                replica.read_at = now;
            }
        }
    }

    fn run(&mut self, index: usize) {
        let time = self.time;
        let timing = self.timing;
        let other = (index + 1) % REPLICAS;
        let other_starts = self.replicas[other].starts;
        let replica = &mut self.replicas[index];
        let now = replica.now(time);
        if let Some((number, _)) = replica.write.filter(|(_, end)| *end <= now.instant) {
            let failed = LeaseWriteError::Failed("no answer".into());
            self.written(index, number, Err(failed));
        }
        let replica = &mut self.replicas[index];
        if std::mem::take(&mut replica.gives_up) {
            let other = format!("r{other}.{other_starts}");
            let to = time.as_millis().is_multiple_of(3).then_some(other);
            replica.elector.give_up(to, now.instant);
        }
        let circumstances = Circumstances {
            is_new: !self.has_run,
            is_idle: replica.busy_until <= time,
            acquires: true,
            patience: Duration::ZERO,
        };
        if let Some(write) = replica.elector.poll(now, circumstances) {
            replica.writes += 1;
            replica.write = Some((replica.writes, now.instant.after(timing.patience())));
            let number = replica.writes;
            self.send(index, Message::Write { number, write });
        }
        let replica = &mut self.replicas[index];
        let wanted = replica.elector.next_reading();
        let wanted = wanted.is_some_and(|at| replica.requested < at && at <= now.instant);
        if wanted || replica.read_at <= now.instant {
            replica.read_at = now.instant.after(READS);
            replica.requested = now.instant;
            let requested = now.instant;
            self.send(index, Message::Read { requested });
        }
        self.write(index);
    }

    /// The replica sends a request for the controller, if it may.
    fn write(&mut self, index: usize) {
        let time = self.time;
        let now = self.replicas[index].now(time).instant;
        if self.replicas[index].elector.leads_until(now).is_none() {
            return;
        }
        self.led = time;
        self.has_run = true;
        for (other, replica) in self.replicas.iter().enumerate() {
            assert!(
                other == index || replica.busy_until <= time,
                "seed {}: {index} writes at {time:?}, and a request of {other} ends at {:?}\n{}",
                self.seed,
                replica.busy_until,
                self.trace.join("\n")
            );
        }
        let replica = &mut self.replicas[index];
        let longest = self.timing.grace() * 100 / replica.speed;
        if self.dice.chance(20) && replica.busy_until <= time {
            replica.busy_until =
                time + longest * u32::try_from(self.dice.below(100)).unwrap() / 100;
        }
    }
}

/// Runs one story: a storm, and what happens after it.
fn run_story(seed: u64) {
    let mut world = World::new(seed);
    for _ in 0..4000 {
        world.tick();
    }
    world.storm = false;
    for replica in &mut world.replicas {
        (replica.paused, replica.cut) = (Duration::ZERO, Duration::ZERO);
    }
    let from = world.time;
    for _ in 0..400 {
        world.tick();
        let without = world
            .time
            .saturating_sub(world.led.max(world.changed).max(from));
        let most = world.timing.duration + Duration::from_secs(3);
        assert!(
            without < most,
            "seed {seed}: nobody leads for {without:?}\n{}",
            world.trace.join("\n")
        );
    }
}

#[test]
fn there_are_never_two_replicas_that_write_and_soon_there_is_one() {
    (0..SEEDS).for_each(run_story);
}
