//! The pass over all nodes: which nodes are down, how much of each zone is
//! down, and which nodes to evict.

use std::collections::BTreeMap;

use davit_guest::{Command, Context, Decision, Enqueue, Gauge, Instant, Level, Object};

use crate::health::{self, Health, Renewals};
use crate::view::{NODES, Node};
use crate::zone::{self, Tally, Zones};
use crate::{Config, EVICTED, QUEUED};

/// The key of the note with the names of all nodes that have a record.
const RECORDED: &str = "nodes";

/// Checks all nodes.
pub(crate) fn reconcile(config: &Config, cx: &Context<'_>) -> Decision {
    let mut pass = Pass {
        recorded: cx.note(RECORDED).unwrap_or_default(),
        kept: Vec::new(),
        tallies: BTreeMap::new(),
        down: Vec::new(),
        commands: Vec::new(),
    };
    let mut renewals = Renewals::scan(cx);
    for node in cx.watch(NODES).scan() {
        let renewed = renewals.of(&node.reference.name);
        pass.look_at(config, cx, &node, renewed);
    }
    pass.forget();
    let former: Zones = cx.note(zone::NOTE).unwrap_or_default();
    let zones = Zones::of(config, &pass.tallies);
    let have_resumed = zones.have_resumed_after(&former);
    if have_resumed {
        // Before the note, without which the next page of a long decision would not know it.
        pass.commands.extend(zone::resume(cx.now()));
    }
    pass.publish_zones(config, cx, &former, &zones);
    if !have_resumed {
        pass.queue(config, cx, &zones);
    }
    Decision::done().commands(pass.commands)
}

/// A node that is not ready.
struct UnreadyNode {
    name: String,
    zone: String,
    health: Health,
    /// Whether taint-based eviction handles it.
    is_left: bool,
}

struct Pass {
    /// The nodes that had a record when the pass started, in byte order.
    recorded: Vec<String>,
    /// The nodes that have one now.
    kept: Vec<String>,
    tallies: BTreeMap<String, Tally>,
    down: Vec<UnreadyNode>,
    commands: Vec<Command>,
}

impl Pass {
    fn look_at(
        &mut self,
        config: &Config,
        cx: &Context<'_>,
        node: &Object<Node>,
        renewed: Option<Instant>,
    ) {
        let name = &node.reference.name;
        let former = if has(&self.recorded, name) {
            health::recall(cx, name)
        } else {
            None
        };
        let health = health::judge(config, cx, node, former.as_ref(), renewed);
        let labels = &node.view.labels;
        let zone = zone::name(labels);
        let tally = self.tallies.entry(zone.clone()).or_default();
        if labels.exclude_disruption.is_none() {
            tally.count(health.is_ready);
        }
        if let Some(memory) = &health.memory {
            self.commands.extend(memory.keep(cx, name, former.as_ref()));
            self.kept.push(name.clone());
        }
        if !health.is_ready {
            self.down.push(UnreadyNode {
                name: name.clone(),
                zone,
                health,
                is_left: crate::is_left_to_taints(config, node),
            });
        }
    }

    /// Deletes the records of nodes that are healthy again, or gone.
    fn forget(&mut self) {
        self.kept.sort_unstable();
        for name in self.recorded.iter().filter(|name| !has(&self.kept, name)) {
            self.commands.extend(health::forget(name));
            self.commands.extend([
                Command::cancel(QUEUED, name),
                Command::cancel(EVICTED, name),
            ]);
        }
        if self.recorded != self.kept {
            let kept = Some(&self.kept);
            self.commands.push(Command::set_note(RECORDED, kept));
        }
    }

    /// Records the zones' states, sets their rates and updates their metrics.
    fn publish_zones(&mut self, config: &Config, cx: &Context<'_>, former: &Zones, zones: &Zones) {
        log_changes(cx, former, zones);
        if former != zones {
            let zones = Some(zones);
            self.commands.push(Command::set_note(zone::NOTE, zones));
        }
        for zone in former.disruptions.keys() {
            // A zone without nodes is empty and healthy.
            self.tallies.entry(zone.clone()).or_default();
        }
        for (zone, tally) in &self.tallies {
            let rate = zones.rate(config, zone, *tally);
            let set = |metric: Gauge<1>, number| Command::Measure(metric.set([zone], number));
            self.commands.extend([
                Command::set_rate(QUEUED, zone, rate, 1),
                set(zone::SIZE, tally.size().into()),
                set(zone::UNHEALTHY, tally.not_ready().into()),
                set(zone::HEALTH, tally.health()),
            ]);
        }
    }

    /// Enqueues the nodes whose timeout is over, and cancels those whose
    /// timeout was extended.
    fn queue(&mut self, config: &Config, cx: &Context<'_>, zones: &Zones) {
        for down in std::mem::take(&mut self.down) {
            let waits = |queue| cx.pending(queue, &down.name).is_some();
            if is_due(config, cx, &down, zones) {
                if !waits(QUEUED) && !waits(EVICTED) {
                    self.commands.push(queue(&down.name, &down.zone));
                }
            } else if waits(QUEUED) {
                self.commands.push(Command::cancel(QUEUED, &down.name));
            }
        }
    }
}

/// Whether a list in byte order has a name.
fn has(names: &[String], name: &str) -> bool {
    let place = names.binary_search_by(|known| known.as_str().cmp(name));
    place.is_ok()
}

/// Enqueues a node for its turn in its zone.
pub(crate) fn queue(node: &str, zone: &str) -> Command {
    Enqueue::new(QUEUED, node).group(zone).into()
}

fn is_due(config: &Config, cx: &Context<'_>, down: &UnreadyNode, zones: &Zones) -> bool {
    let timeout = config.pod_eviction_timeout;
    let resumed = zone::resumed_at(cx);
    !zones.is_stopped && !down.is_left && down.health.exceeds(timeout, resumed, cx)
}

fn log_changes(cx: &Context<'_>, former: &Zones, zones: &Zones) {
    for (zone, disruption) in &zones.disruptions {
        if former.disruptions.get(zone) != Some(disruption) {
            let fields = [("zone", zone.as_str()), ("state", disruption.as_str())];
            cx.log(Level::Info, "zone state changed", &fields);
        }
    }
    // Before the first node exists, and after the last one is gone, nothing is
    // down.
    let known = |zones: &Zones| !zones.disruptions.is_empty();
    match (former.is_stopped, zones.is_stopped) {
        (false, true) if known(zones) => cx.log(
            Level::Warn,
            "all zones are fully down: no pod is evicted until one zone is back",
            &[],
        ),
        (true, false) if known(former) => cx.log(
            Level::Info,
            "a zone is back: every timeout starts again",
            &[],
        ),
        _ => {}
    }
}
