//! Hosts in a world, run in turn on one virtual clock.

use davit_core::time::Instant;

use crate::execution::ExecutedPlan;
use crate::host::{Driver, Host};
use crate::modules::{DescribeFunction, Modules};
use crate::world::{HostIndex, Occurrence, World};

/// How often the hosts are polled at one point in time before one counts as spinning.
const MOST_ROUNDS: u32 = 20_000;

/// Hosts in a world.
#[derive(Debug)]
pub struct Simulation {
    /// Everything outside of the hosts.
    pub world: World,
    /// The sources of their modules.
    pub modules: Modules,
    hosts: Vec<Host>,
    /// Every executed plan.
    executed: Vec<ExecutedPlan>,
    /// The number of starts of hosts.
    starts: u64,
    /// Whether the hosts take part in leader election.
    elects: bool,
}

/// Why [`Simulation::run`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The time is over.
    Time,
    /// A reminder of the owner.
    Reminder(u64),
    /// A host crashed.
    Crashed(HostIndex),
}

impl Simulation {
    /// A world with one host that does not run yet.
    #[must_use]
    pub fn new(world: World, describe: DescribeFunction) -> Self {
        Self {
            world,
            modules: Modules::new(describe),
            hosts: vec![Host::new(HostIndex::FIRST)],
            executed: Vec::new(),
            starts: 0,
            elects: false,
        }
    }

    /// All hosts.
    pub fn indexes(&self) -> impl Iterator<Item = HostIndex> + use<> {
        HostIndex::first(self.hosts.len())
    }

    /// A host.
    #[must_use]
    #[expect(
        clippy::indexing_slicing,
        reason = "an index comes from this simulation"
    )]
    pub fn host(&self, host: HostIndex) -> &Host {
        &self.hosts[host.number()]
    }

    /// A host, for changes.
    #[expect(
        clippy::indexing_slicing,
        reason = "an index comes from this simulation"
    )]
    pub fn host_mut(&mut self, host: HostIndex) -> &mut Host {
        &mut self.hosts[host.number()]
    }

    /// The driver of a host.
    #[expect(
        clippy::indexing_slicing,
        reason = "an index comes from this simulation"
    )]
    pub fn driver(&mut self, host: HostIndex) -> Driver<'_> {
        Driver {
            host: &mut self.hosts[host.number()],
            world: &mut self.world,
            modules: &mut self.modules,
            executed: &mut self.executed,
        }
    }

    /// Adds a host whose monotonic clock is too fast by so many parts per million. With
    /// several hosts, all take part in leader election.
    pub fn add_host(&mut self, drift: i32) -> HostIndex {
        self.elect();
        let index = self.world.add_host(drift);
        self.hosts.push(Host::new(index));
        index
    }

    /// The hosts that start from now on take part in leader election, also a single one.
    pub fn elect(&mut self) {
        self.elects = true;
    }

    /// Whether the hosts take part in leader election.
    #[must_use]
    pub const fn elects(&self) -> bool {
        self.elects
    }

    /// Starts a host.
    pub fn start(&mut self, host: HostIndex) {
        self.starts += 1;
        let (run, elects) = (self.starts, self.elects);
        self.driver(host).start(run, elects);
    }

    /// Every plan that a machine admitted, in order.
    #[must_use]
    pub fn executed(&self) -> &[ExecutedPlan] {
        &self.executed
    }

    /// The wall clock of a host jumps.
    pub fn shift_wall_clock(&mut self, host: HostIndex, millis: i64) {
        self.world.shift_wall_clock(host, millis);
        self.host_mut(host).watch_clock_jump();
    }

    /// The module of a source changed: a spec may describe another revision.
    pub fn modules_changed(&mut self) {
        for host in &mut self.hosts {
            host.watch_modules();
        }
    }

    /// Runs the hosts until this time, a reminder of the owner, or a crash.
    pub fn run(&mut self, until: Instant) -> StopReason {
        let (mut rounds, mut moment) = (0, self.world.instant());
        loop {
            if let Some(crashed) = self.pump() {
                return StopReason::Crashed(crashed);
            }
            let now = self.world.instant();
            if now > moment {
                (rounds, moment) = (0, now);
            }
            rounds += 1;
            if rounds > MOST_ROUNDS {
                self.world
                    .violated("a host spins: it never waits for time to pass".to_owned());
                return StopReason::Time;
            }
            let next = self.next_wake().unwrap_or(until).min(until);
            match self.world.next(next) {
                Some(occurrence) => {
                    if let Some(reminder) = self.occurs(occurrence) {
                        return StopReason::Reminder(reminder);
                    }
                    // The host may receive several inputs before the next poll.
                    while self.world.dice().chance(0.3)
                        && let Some(occurrence) = self.world.next(self.world.instant())
                    {
                        if let Some(reminder) = self.occurs(occurrence) {
                            return StopReason::Reminder(reminder);
                        }
                    }
                }
                None if self.world.instant() >= until => return StopReason::Time,
                None => {}
            }
        }
    }

    /// Takes the effects of all hosts. Returns a host that crashed meanwhile.
    fn pump(&mut self) -> Option<HostIndex> {
        for host in self.indexes() {
            if !self.world.is_suspended(host) {
                self.driver(host).pump();
                if self.host_mut(host).take_crash() {
                    return Some(host);
                }
            }
        }
        None
    }

    /// When the next host is due.
    fn next_wake(&mut self) -> Option<Instant> {
        let wakes = self.indexes().filter_map(|host| {
            let until = self.world.suspended_until(host);
            let wake = self.driver(host).next_wake()?;
            Some(wake.max(until))
        });
        wakes.min()
    }

    /// Passes an occurrence to its host. Returns a reminder of the owner.
    fn occurs(&mut self, occurrence: Occurrence) -> Option<u64> {
        match occurrence {
            Occurrence::Notice(host, notice) => self.driver(host).notice(notice),
            Occurrence::Reminder(reminder) => return Some(reminder),
        }
        None
    }
}
