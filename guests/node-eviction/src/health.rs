//! Whether a node responds.
//!
//! A node shows that it is alive when its kubelet renews its lease or posts its
//! status. What counts is when the host saw these change, on the host's own
//! clock: the kubelet's times are only compared with each other.
//!
//! Other agents on a node post conditions too, with heartbeats of their own:
//! only the condition `Ready` is the kubelet's. For a node whose lease is
//! silent, the guest records that condition and when it was first seen.

use std::time::Duration;

use davit_guest::{Command, Context, Instant, Object, ObjectRef, Retry, Time, View};
use serde::{Deserialize, Serialize};

use crate::Config;
use crate::timer;
use crate::view::{HEARTBEATS, LEASE_NAMESPACE, LEASES, Node};

/// The record of a node that is not plainly healthy: a note, from the pass that
/// first saw it to the pass that finds the node healthy. Two timers hold its
/// times.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Record {
    /// The node's uid, not only its name.
    uid: String,
    /// The status of the condition `Ready`; empty if there is none.
    ready: String,
    /// The time of the transition to this status, according to the node.
    transition: Option<Time>,
    /// When the kubelet last posted the condition, according to the kubelet.
    heartbeat: Option<Time>,
    /// Whether the node has a lease.
    #[serde(default)]
    is_leased: bool,
}

/// The health of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Health {
    /// Whether the node reports that it is ready, and is not silent.
    pub(crate) is_ready: bool,
    /// If it is not ready, since when as far as eviction is concerned: since it
    /// was last alive, or since it reported that it is not ready.
    pub(crate) since: Instant,
    /// The record to keep; none if the node is plainly healthy.
    pub(crate) memory: Option<Memory>,
}

/// A record with its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) record: Record,
    /// When the host saw the status of `Ready` change to its present value.
    ready_since: Instant,
    /// When the host first saw the kubelet's heartbeat, at the latest.
    heartbeat_at: Instant,
}

impl Health {
    /// Whether the node has been in this state for longer than that. Only the
    /// time after `not_before` counts.
    pub(crate) fn exceeds(
        &self,
        timeout: Duration,
        not_before: Option<Instant>,
        cx: &Context<'_>,
    ) -> bool {
        let since = not_before.map_or(self.since, |it| it.max(self.since));
        !self.is_ready && cx.since(since) > timeout
    }
}

impl Memory {
    /// Replaces the former record.
    pub(crate) fn keep(
        &self,
        cx: &Context<'_>,
        node: &str,
        former: Option<&Record>,
    ) -> Vec<Command> {
        let mut commands = Vec::new();
        if former != Some(&self.record) {
            commands.push(Command::set_note(&note_key(node), Some(&self.record)));
        }
        for (key, at) in [
            (ready_timer(node), self.ready_since),
            (heartbeat_timer(node), self.heartbeat_at),
        ] {
            if timer::since(cx, &key) != Some(at) {
                commands.extend(timer::start(&key, at));
            }
        }
        commands
    }
}

/// Deletes the record of a node.
pub(crate) fn forget(node: &str) -> [Command; 3] {
    let nothing: Option<&Record> = None;
    [
        Command::set_note(&note_key(node), nothing),
        timer::stop(&ready_timer(node)),
        timer::stop(&heartbeat_timer(node)),
    ]
}

/// The record of a node.
pub(crate) fn recall(cx: &Context<'_>, node: &str) -> Option<Record> {
    cx.note(&note_key(node))
}

fn note_key(node: &str) -> String {
    format!("node/{node}")
}

fn ready_timer(node: &str) -> String {
    format!("ready/{node}")
}

fn heartbeat_timer(node: &str) -> String {
    format!("heartbeat/{node}")
}

/// When the cache last saw each lease change, by the name of its node. One scan costs a tenth
/// of thousands of reads, and a sorted list is half the code of a map.
pub(crate) struct Renewals {
    by_node: Vec<(String, Instant)>,
    /// Where the next node is, if nodes are asked about in the order of their names.
    next: usize,
}

impl Renewals {
    /// Those of all leases.
    pub(crate) fn scan(cx: &Context<'_>) -> Self {
        let leases = cx.watch(LEASES).scan();
        let renewals = leases.map(|lease| (lease.reference.name, lease.changed_at));
        let mut by_node: Vec<_> = renewals.collect();
        by_node.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        Self { by_node, next: 0 }
    }

    /// That of a node; none if it has no lease.
    pub(crate) fn of(&mut self, node: &str) -> Option<Instant> {
        let is_next = self
            .by_node
            .get(self.next)
            .is_some_and(|(name, _)| name == node);
        if !is_next {
            let found = self
                .by_node
                .binary_search_by(|(name, _)| name.as_str().cmp(node));
            self.next = found.ok()?;
        }
        let (_, renewed) = self.by_node.get(self.next)?;
        self.next += 1;
        Some(*renewed)
    }
}

/// When the cache last saw a node's lease change; none if it has no lease.
pub(crate) fn renewed_at(cx: &Context<'_>, node: &Object<Node>) -> Option<Instant> {
    let lease = cx.watch(LEASES).get(&lease_key(node));
    lease.map(|lease| lease.changed_at)
}

/// The health of a node, given its record and the last change of its lease.
pub(crate) fn judge(
    config: &Config,
    cx: &Context<'_>,
    node: &Object<Node>,
    former: Option<&Record>,
    renewed: Option<Instant>,
) -> Health {
    let ready = ready_status(node);
    let grace = match ready {
        "" => config.node_startup_grace_period,
        _ => config.node_monitor_grace_period,
    };
    let is_silent = |sign: Instant| cx.since(sign) > grace;
    if let Some(renewed) = renewed
        && ready == "True"
        && !is_silent(renewed)
    {
        return Health {
            is_ready: true,
            since: renewed,
            memory: None,
        };
    }
    let memory = remember(cx, node, former, renewed);
    let sign = renewed.map_or(memory.heartbeat_at, |at| at.max(memory.heartbeat_at));
    let since = match ready {
        "False" if !is_silent(sign) => memory.ready_since,
        _ => sign,
    };
    Health {
        is_ready: ready == "True" && !is_silent(sign),
        since,
        memory: Some(memory),
    }
}

/// Whether the API server has the same state of the node as the cache. If not,
/// the cache lags, and silence proves nothing.
pub(crate) fn is_current(cx: &Context<'_>, node: &Object<Node>) -> Result<bool, Retry> {
    let name = &node.reference.name;
    let lease = ObjectRef::named("coordination.k8s.io/v1", "Lease", LEASE_NAMESPACE, name);
    let targets = [node.reference.clone(), lease];
    let [_, lease] = &targets;
    let mut answers = cx.live_get::<Signs>(&targets).into_iter();
    let (Some(live), Some(renewed)) = (answers.next(), answers.next()) else {
        return Ok(false);
    };
    let live = match live {
        Ok(live) => live.view,
        // The node is gone, so the question is void.
        Err(failure) if failure.is_gone() => return Ok(false),
        Err(failure) => return Err(failure.of_read(&node.reference)),
    };
    let renewed = match renewed {
        Ok(lease) => Some(lease.view.renew_time),
        Err(failure) if failure.is_gone() => None,
        Err(failure) => return Err(failure.of_read(lease)),
    };
    let lease = cx.watch(LEASES).get(&lease_key(node));
    let mut conditions = live.conditions.into_iter();
    let ready = conditions
        .find(|condition| condition.r#type == "Ready")
        .unwrap_or_default();
    Ok(renewed == lease.map(|lease| lease.view.renew_time)
        && ready.last_heartbeat_time == times(cx, node).heartbeat
        && ready.status == ready_status(node))
}

/// The fields of a node or of its lease that show whether it is alive: one view
/// for both, to read them together.
#[derive(Debug, Default, View)]
struct Signs {
    #[view(path = "spec.renewTime")]
    renew_time: String,
    #[view(path = "status.conditions")]
    conditions: Vec<SignInCondition>,
}

#[derive(Debug, Default, View)]
struct SignInCondition {
    r#type: String,
    status: String,
    last_heartbeat_time: Option<Time>,
}

/// The new record of a node. A recorded time stays as long as its cause stays.
///
/// If a lease goes, when it was renewed last is known no more, and the status alone would make the
/// node silent for minutes longer: kubelets post one that is the same every five. Then the time starts
/// now. A healthy node has no record.
fn remember(
    cx: &Context<'_>,
    node: &Object<Node>,
    former: Option<&Record>,
    renewed: Option<Instant>,
) -> Memory {
    let Times {
        heartbeat,
        transition,
        changed_at,
    } = times(cx, node);
    let record = Record {
        uid: node.reference.uid.clone(),
        ready: ready_status(node).to_owned(),
        transition,
        heartbeat,
        is_leased: renewed.is_some(),
    };
    let name = &node.reference.name;
    let former = former.filter(|former| former.uid == record.uid);
    let said_so = |it: &&Record| it.ready == record.ready && it.transition == record.transition;
    let ready_since = former
        .filter(said_so)
        .and_then(|_| timer::since(cx, &ready_timer(name)));
    let has_lost_lease = !record.is_leased && former.is_none_or(|former| former.is_leased);
    let heartbeat_at = former
        .filter(|former| former.heartbeat == record.heartbeat && !has_lost_lease)
        .and_then(|_| timer::since(cx, &heartbeat_timer(name)));
    let first = if has_lost_lease { cx.now() } else { changed_at };
    Memory {
        record,
        ready_since: ready_since.unwrap_or(node.changed_at),
        heartbeat_at: heartbeat_at.unwrap_or(first),
    }
}

/// The times in a node's condition `Ready`.
struct Times {
    heartbeat: Option<Time>,
    transition: Option<Time>,
    /// When the host last saw a time change in any of the node's conditions.
    changed_at: Instant,
}

fn times(cx: &Context<'_>, node: &Object<Node>) -> Times {
    let Some(beats) = cx.watch(HEARTBEATS).get(&node.reference.name) else {
        return Times {
            heartbeat: None,
            transition: None,
            changed_at: node.changed_at,
        };
    };
    let mut conditions = beats.view.conditions.iter();
    let ready = conditions.find(|condition| condition.r#type == "Ready");
    Times {
        heartbeat: ready.and_then(|ready| ready.last_heartbeat_time),
        transition: ready.and_then(|ready| ready.last_transition_time),
        changed_at: beats.changed_at,
    }
}

/// The status of the first condition `Ready`; empty if there is none.
fn ready_status(node: &Object<Node>) -> &str {
    let mut conditions = node.view.conditions.iter();
    let ready = conditions.find(|condition| condition.r#type == "Ready");
    ready.map_or("", |condition| &condition.status)
}

fn lease_key(node: &Object<Node>) -> String {
    format!("{LEASE_NAMESPACE}/{}", node.reference.name)
}
