//! The hosts of a story: how they start and end, and what keeps them from working.

use std::time::Duration;

use davit_core::time::Instant;
use davit_simulation::{Cut, HostIndex};

use super::Story;
use crate::event::{CONTROLLERS, Event};
use crate::replica::ReplicaEvent;

/// How long a declaration takes at most to reach a host.
const STARVED: Duration = Duration::from_secs(20);
/// The reminder that the first host receives the declarations. Those of the other hosts
/// follow, then those that the partition of each host ends.
const DECLARATIONS: u64 = 2;
/// The most hosts of a story.
const MOST_HOSTS: u64 = 8;
/// How often the story tries to reach a host that is suspended or without a network.
const AGAIN: Duration = Duration::from_secs(2);
/// How long a host takes at most to stop.
const STOPPED: Duration = Duration::from_secs(45);
/// After all faults, each controller has a leader within the lease duration and a second,
/// and declarations may arrive late.
const ELECTED: Duration = Duration::from_secs(36);

impl Story {
    /// The hosts, the first one included.
    pub(super) fn hosts(&self) -> Vec<HostIndex> {
        self.simulation.indexes().collect()
    }

    /// Records the journals of all hosts.
    pub(super) fn record(&mut self) {
        for host in self.hosts() {
            self.simulation.host_mut(host).record();
        }
    }

    /// Adds keyframes to the journals, if they are recorded.
    pub(super) fn add_keyframes(&mut self) {
        for host in self.hosts() {
            self.simulation.driver(host).add_keyframe();
        }
    }

    /// Whether there are several hosts.
    pub(super) fn has_replicas(&self) -> bool {
        self.simulation.indexes().count() > 1
    }

    /// The reminders that hosts should receive the declarations.
    pub(super) fn declaration_reminders(&self) -> Vec<u64> {
        let count = self.simulation.indexes().count();
        (DECLARATIONS..).take(count).collect()
    }

    /// A host to which something happens.
    fn some_host(&mut self) -> HostIndex {
        let hosts = self.hosts();
        match hosts.as_slice() {
            [only] => *only,
            _ => self
                .choices
                .pick(&hosts)
                .copied()
                .unwrap_or(HostIndex::FIRST),
        }
    }

    /// Starts a host. It receives the declarations a moment later.
    pub(super) fn start(&mut self, host: HostIndex) {
        self.operators.restarted();
        self.simulation.start(host);
        self.declare_to(host);
    }

    /// The hosts will receive the present declarations.
    pub(super) fn declare(&mut self) {
        for host in self.hosts() {
            self.declare_to(host);
        }
    }

    fn declare_to(&mut self, host: HostIndex) {
        let longest = if self.world().dice().chance(0.05) {
            STARVED
        } else {
            Duration::from_millis(50)
        };
        let range = Duration::from_millis(1)..longest;
        let lag = self.world().dice().duration(&range);
        self.remind(self.now().after(lag), DECLARATIONS, host);
    }

    fn remind(&mut self, at: Instant, first: u64, host: HostIndex) {
        let what = first + u64::try_from(host.number()).unwrap_or(0);
        self.world().remind_owner(at, what);
    }

    /// A reminder about a host. Returns whether it was one.
    pub(super) fn reminded(&mut self, what: u64) -> bool {
        let about = |first: u64| {
            let number = usize::try_from(what.checked_sub(first)?).ok()?;
            self.simulation.indexes().nth(number)
        };
        if let Some(host) = about(DECLARATIONS) {
            let world = &self.simulation.world;
            if world.is_cut(host) || world.is_suspended(host) {
                self.remind(self.now().after(AGAIN), DECLARATIONS, host);
            } else {
                self.operators.deliver(host, &mut self.simulation);
            }
        } else if let Some(host) = about(DECLARATIONS + MOST_HOSTS) {
            self.world().cut(host, Cut::default());
        } else {
            return false;
        }
        true
    }

    /// A step happens to one of the hosts. Other steps do nothing here.
    pub(super) fn happens_to_host(&mut self, event: &Event) {
        match event {
            Event::Trap => {
                let host = self.some_host();
                self.simulation.host_mut(host).trap = 0.2;
            }
            Event::Crash(downtime) => {
                let host = self.some_host();
                self.crash(host, *downtime);
            }
            Event::CrashSoon => {
                let host = self.some_host();
                self.simulation.host_mut(host).crash = 0.05;
            }
            Event::Reboot(keeps_modules) => {
                let host = self.some_host();
                self.reboot(host, *keeps_modules);
            }
            Event::WallClock(millis) => {
                let host = self.some_host();
                self.simulation.shift_wall_clock(host, *millis);
            }
            Event::Replica(host, event) => self.happens(*host, *event),
            _ => {}
        }
    }

    /// Something happens to the host of this number.
    fn happens(&mut self, number: u64, event: ReplicaEvent) {
        let number = usize::try_from(number).unwrap_or(0);
        let Some(host) = self.simulation.indexes().nth(number) else {
            return;
        };
        match event {
            ReplicaEvent::Crash(downtime) => self.crash(host, downtime),
            ReplicaEvent::Restart => self.restart(host),
            ReplicaEvent::Suspend(time) => self.world().suspend(host, time),
            ReplicaEvent::Cut(cut, time) => {
                self.world().cut(host, cut);
                let end = self.now().after(time);
                self.remind(end, DECLARATIONS + MOST_HOSTS, host);
            }
        }
    }

    fn crash(&mut self, host: HostIndex, downtime: Duration) {
        self.forgot = true;
        self.simulation.driver(host).crash();
        self.pass(downtime);
        self.start(host);
    }

    fn reboot(&mut self, host: HostIndex, keeps_modules: bool) {
        self.forgot = true;
        self.simulation.driver(host).crash();
        self.pass(Duration::from_secs(5));
        self.world().reboot(host);
        if !keeps_modules {
            self.simulation.host_mut(host).forget_modules();
        }
        self.start(host);
    }

    /// A host stops as it does in a rolling update, and starts again.
    fn restart(&mut self, host: HostIndex) {
        self.simulation.driver(host).stop();
        let deadline = self.now().after(STOPPED);
        while !self.simulation.host(host).has_stopped() && self.now() < deadline {
            self.pass(Duration::from_millis(100));
        }
        self.simulation.driver(host).crash();
        self.start(host);
    }

    /// Ends what keeps the hosts from working.
    pub(super) fn connect(&mut self) {
        for host in self.hosts() {
            let world = &mut self.simulation.world;
            if world.is_cut(host) {
                world.cut(host, Cut::default());
            }
            if world.is_suspended(host) {
                world.suspend(host, Duration::ZERO);
            }
        }
    }

    /// Waits until leaders are elected. Returns the controllers without one.
    pub(super) fn elect(&mut self) -> Vec<String> {
        if !self.simulation.elects() {
            return Vec::new();
        }
        self.pass(ELECTED);
        self.leaderless()
    }

    /// The controllers that nobody leads.
    pub(super) fn leaderless(&self) -> Vec<String> {
        let world = &self.simulation.world;
        let is_left = |name: &&str| self.simulation.elects() && world.leader(name).is_none();
        let names = CONTROLLERS.into_iter().filter(is_left);
        names
            .map(|name| format!("no host leads {name} although all are healthy"))
            .collect()
    }
}
