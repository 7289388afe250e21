//! Zones, and the eviction rate of each zone. The more of a zone is down, the
//! more likely the network or the control plane is down and not the nodes.

use std::collections::BTreeMap;

use davit_guest::{Command, Context, Counter, Gauge, Instant};
use serde::{Deserialize, Serialize};

use crate::Config;
use crate::timer;
use crate::view::NodeLabels;

/// The key of the note with the states of all zones.
pub(crate) const NOTE: &str = "zones";
/// The timer that records when the last outage of all zones ended.
const RESUMED: &str = "resumed";

/// The percentage of healthy nodes in each zone. The names of the metrics are
/// kube-controller-manager's.
pub(crate) const HEALTH: Gauge<1> = Gauge::new(
    "node_collector_zone_health",
    "Gauge measuring percentage of healthy nodes per zone.",
    ["zone"],
);
/// The number of nodes in each zone.
pub(crate) const SIZE: Gauge<1> = Gauge::new(
    "node_collector_zone_size",
    "Gauge measuring number of registered Nodes per zones.",
    ["zone"],
);
/// The number of nodes that are not ready in each zone.
pub(crate) const UNHEALTHY: Gauge<1> = Gauge::new(
    "node_collector_unhealthy_nodes_in_zone",
    "Gauge measuring number of not Ready Nodes per zones.",
    ["zone"],
);
/// The number of nodes whose pods were evicted.
pub(crate) const EVICTIONS: Counter<1> = Counter::new(
    "node_collector_evictions_total",
    "Number of Node evictions that happened since current instance of NodeController started.",
    ["zone"],
);

/// The zone of a node in kube-controller-manager's format: region and zone,
/// either of which may be missing; empty without both.
pub(crate) fn name(labels: &NodeLabels) -> String {
    let either = |beta: &str, stable: &str| {
        let label = if beta.is_empty() { stable } else { beta };
        label.to_owned()
    };
    let region = either(&labels.beta_region, &labels.region);
    let zone = either(&labels.beta_zone, &labels.zone);
    if region.is_empty() && zone.is_empty() {
        return String::new();
    }
    format!("{region}:\0:{zone}")
}

/// How much of a zone is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) enum Disruption {
    /// Little of it.
    Normal,
    /// Most of it.
    Partial,
    /// All of it.
    Full,
}

impl Disruption {
    /// kube-controller-manager's name for it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Partial => "PartialDisruption",
            Self::Full => "FullDisruption",
        }
    }
}

/// The nodes of a zone, without those that are excluded from disruption.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    ready: u32,
    not_ready: u32,
}

impl Tally {
    pub(crate) fn count(&mut self, is_ready: bool) {
        if is_ready {
            self.ready += 1;
        } else {
            self.not_ready += 1;
        }
    }

    pub(crate) fn size(self) -> u32 {
        self.ready + self.not_ready
    }

    pub(crate) fn not_ready(self) -> u32 {
        self.not_ready
    }

    /// The percentage of ready nodes; 100 without nodes.
    pub(crate) fn health(self) -> f64 {
        match self.size() {
            0 => 100.0,
            size => 100.0 * f64::from(self.ready) / f64::from(size),
        }
    }

    fn disruption(self, config: &Config) -> Disruption {
        let share = f64::from(self.not_ready) / f64::from(self.size().max(1));
        if self.ready == 0 && self.not_ready > 0 {
            Disruption::Full
        } else if self.not_ready > 2 && share >= config.unhealthy_zone_threshold {
            Disruption::Partial
        } else {
            Disruption::Normal
        }
    }
}

/// The recorded state of all zones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Zones {
    /// The zones that have nodes that count.
    pub(crate) disruptions: BTreeMap<String, Disruption>,
    /// Whether all of them are completely down: then the host itself is more
    /// likely cut off, and nothing is evicted.
    pub(crate) is_stopped: bool,
}

/// When the last outage of all zones ended, if there was one.
pub(crate) fn resumed_at(cx: &Context<'_>) -> Option<Instant> {
    timer::since(cx, RESUMED)
}

/// Records that not all zones are completely down any more.
pub(crate) fn resume(now: Instant) -> [Command; 2] {
    timer::start(RESUMED, now)
}

impl Zones {
    /// The state of the zones with these nodes. Without a node that counts, the
    /// state is unknown, and nothing is evicted.
    pub(crate) fn of(config: &Config, tallies: &BTreeMap<String, Tally>) -> Self {
        // Not collected, which would sort them: the only such code in this component.
        let mut disruptions = BTreeMap::new();
        for (zone, tally) in tallies.iter().filter(|(_, tally)| tally.size() > 0) {
            disruptions.insert(zone.clone(), tally.disruption(config));
        }
        Self {
            is_stopped: disruptions.values().all(|it| *it == Disruption::Full),
            disruptions,
        }
    }

    /// Whether all zones were completely down in the former state, and no
    /// longer are.
    pub(crate) fn have_resumed_after(&self, former: &Self) -> bool {
        former.is_stopped && !self.is_stopped
    }

    /// From how many nodes a second pods are evicted in a zone.
    pub(crate) fn rate(&self, config: &Config, zone: &str, tally: Tally) -> f64 {
        if self.is_stopped {
            return 0.0;
        }
        match self.disruptions.get(zone) {
            Some(Disruption::Partial) if tally.size() > config.large_cluster_size_threshold => {
                config.secondary_node_eviction_rate
            }
            Some(Disruption::Partial) => 0.0,
            Some(Disruption::Full) => config.full_disruption_rate(),
            Some(Disruption::Normal) | None => config.node_eviction_rate,
        }
    }
}
