//! The events of a story, as data.

use std::fmt;
use std::time::Duration;

use davit_sim::fault::{self, WatchFault};

use crate::action::Action;
use crate::replica::ReplicaEvent;

pub(crate) const NODES: u64 = 5;
pub(crate) const NAMES: u64 = 14;
/// The group and version of the widgets.
pub(crate) const WIDGETS_VERSION: &str = "example.com/v1";
/// The controllers of a story.
pub(crate) const CONTROLLERS: [&str; 5] = [
    "podgc",
    "garbage-collector",
    "taint-eviction",
    "storage-version-gc",
    "node-eviction",
];

/// What a step does. A step that does not apply (a name that is taken, a node that does
/// not exist) does nothing. A step for an object whose name is free applies to the next
/// object of its kind.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Create(Create),
    Delete(Name, &'static str),
    /// Gives an object another owner, which blocks the owner's deletion or does not.
    Adopt(Name, Name, bool),
    /// Removes an object's first owner reference.
    Disown(Name),
    /// Ends the containers of a pod.
    Finish(u64),
    /// Removes an object and creates another one under its name.
    Replace(Name),
    /// Replaces the target of the next plan, so long after the plan was admitted: before
    /// one of its requests reaches the server.
    Ambush(Duration),
    /// Ends all faults, waits until every cache has caught up, and then deletes the object
    /// with policy `Orphan`: the garbage collector orphans only dependents that it has
    /// observed.
    Orphan(Name),
    /// Breaks the watches, removes objects, and compacts the history before the watches
    /// are opened again.
    Gap(Vec<Name>),
    /// Whether the definition of the widgets serves its version.
    Serve(bool),
    Taint(u64),
    Untaint(u64),
    RemoveNode(u64),
    CreateNode(u64),
    Silence(u64),
    Resume(u64),
    /// An operator says that a node's machine is off.
    TakeOut(u64),
    DropLease(u64),
    Disturb(&'static str, WatchFault),
    Break(&'static str, fault::Action),
    Network {
        starve: f64,
        unreachable: f64,
        hold_up: f64,
        no_discovery: f64,
    },
    /// How likely reads and writes of records, and loads of revisions, fail.
    Records {
        fail: f64,
        lose: f64,
        late: f64,
        unreadable: f64,
        no_loads: f64,
    },
    /// Discovery cannot reach a group version.
    Unreach(&'static str),
    /// Discovery lacks a resource from now on.
    Unlist(&'static str),
    /// Ends all faults.
    Heal,
    /// Ends all faults, limits and rollouts, and waits until every cache has caught up.
    Rest,
    Nothing,
    /// Some calls into guests trap.
    Trap,
    /// The host crashes, and starts again after this time.
    Crash(Duration),
    /// The host crashes after one of its next effects.
    CrashSoon,
    /// The host's wall clock jumps by so many milliseconds.
    WallClock(i64),
    /// Whether the server answers requests for leases: without them, a host leads until its
    /// terms end.
    Leases(bool),
    /// The host crashes, and starts again on a machine that has just started. Says
    /// whether the module cache is still there.
    Reboot(bool),
    /// The account of a controller, an index of [`CONTROLLERS`], has its permissions, or
    /// loses them all.
    Authorize(usize, bool),
    /// The host may impersonate the account of a controller, an index of
    /// [`CONTROLLERS`], or may not.
    AllowImpersonation(usize, bool),
    /// An operator changes a controller: an index of [`CONTROLLERS`].
    Operate(usize, Action),
    /// Something happens to the host of this number.
    Replica(u64, ReplicaEvent),
    /// Something goes wrong that the story has to report.
    #[cfg(test)]
    Bug(Bug),
}

/// A bug of the host.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bug {
    Panic,
    Violation,
}

/// The kinds of objects that a story creates and deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Pod,
    ConfigMap,
    /// A custom resource.
    Widget,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Pod, Self::ConfigMap, Self::Widget];

    pub(crate) const fn api_version(self) -> &'static str {
        match self {
            Self::Pod | Self::ConfigMap => "v1",
            Self::Widget => WIDGETS_VERSION,
        }
    }

    /// As objects carry it.
    pub(crate) const fn kind(self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::ConfigMap => "ConfigMap",
            Self::Widget => "Widget",
        }
    }

    /// As URLs carry it.
    pub(crate) const fn plural(self) -> &'static str {
        match self {
            Self::Pod => "pods",
            Self::ConfigMap => "configmaps",
            Self::Widget => "widgets",
        }
    }
}

/// Names an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) kind: Kind,
    pub(crate) number: u64,
}

impl Name {
    /// The inverse of [`fmt::Display`].
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (prefix, number) = text.split_once('-')?;
        let kind = match prefix {
            "pod" => Kind::Pod,
            "map" => Kind::ConfigMap,
            "widget" => Kind::Widget,
            _ => return None,
        };
        let number = number.parse().ok()?;
        Some(Self { kind, number })
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = match self.kind {
            Kind::Pod => "pod",
            Kind::ConfigMap => "map",
            Kind::Widget => "widget",
        };
        write!(f, "{prefix}-{}", self.number)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(create) => write!(f, "{create}"),
            Self::Delete(name, policy) => write!(f, "delete {name}, propagation {policy}"),
            Self::Adopt(name, owner, blocks) => {
                write!(f, "add the owner {owner} to {name}{}", blocking(*blocks))
            }
            Self::Disown(name) => write!(f, "remove the first owner of {name}"),
            Self::Finish(pod) => write!(f, "end the containers of pod-{pod}"),
            Self::Replace(name) => write!(f, "replace {name} by another object of its name"),
            Self::Ambush(delay) => {
                write!(
                    f,
                    "replace the target of the next plan, {delay:?} after its start"
                )
            }
            Self::Orphan(name) => write!(
                f,
                "end all faults, wait for every cache, and delete {name}, propagation Orphan"
            ),
            Self::Gap(names) => {
                let names: Vec<String> = names.iter().map(ToString::to_string).collect();
                let names = names.join(", ");
                write!(
                    f,
                    "break all watches, remove {names}, and compact the history"
                )
            }
            Self::Serve(true) => f.write_str("serve widgets"),
            Self::Serve(false) => f.write_str("stop serving widgets"),
            Self::Taint(node) => write!(f, "add a NoExecute taint to node-{node}"),
            Self::Untaint(node) => write!(f, "remove the taint of node-{node}"),
            Self::RemoveNode(node) => write!(f, "delete node-{node}"),
            Self::CreateNode(node) => write!(f, "create node-{node}"),
            Self::Silence(node) => write!(f, "stop the kubelet of node-{node}"),
            Self::Resume(node) => write!(f, "start the kubelet of node-{node} again"),
            Self::TakeOut(node) => write!(f, "add the out-of-service taint to node-{node}"),
            Self::DropLease(server) => write!(f, "delete the lease of API server server-{server}"),
            Self::Disturb("", fault) => write!(f, "fault of all watches: {fault:?}"),
            Self::Disturb(plural, fault) => write!(f, "fault of watches of {plural}: {fault:?}"),
            Self::Break(verb, fault) => write!(f, "fault of some {verb} requests: {fault:?}"),
            Self::Network {
                starve,
                unreachable,
                hold_up,
                no_discovery,
            } => shares(
                f,
                "network",
                &[
                    (*starve, "of watch events take seconds"),
                    (*unreachable, "of requests get no connection"),
                    (*hold_up, "of requests arrive after their timeout"),
                    (*no_discovery, "of discoveries fail"),
                ],
            ),
            Self::Records {
                fail,
                lose,
                late,
                unreadable,
                no_loads,
            } => shares(
                f,
                "records and loads",
                &[
                    (*fail, "of record writes fail"),
                    (*lose, "of record writes succeed without an answer"),
                    (*late, "of record requests take seconds"),
                    (*unreadable, "of record reads fail"),
                    (*no_loads, "of loads fail"),
                ],
            ),
            Self::Unreach(version) => write!(f, "discovery cannot reach {version}"),
            Self::Unlist(plural) => write!(f, "discovery lacks {plural}"),
            Self::Heal => f.write_str("end all faults"),
            Self::Rest => {
                f.write_str("end all faults, limits and rollouts, and wait for every cache")
            }
            Self::Nothing => f.write_str("do nothing"),
            Self::Trap => f.write_str("some calls into guests trap"),
            Self::Crash(downtime) => {
                write!(f, "crash the host, and start it again after {downtime:?}")
            }
            Self::CrashSoon => f.write_str("crash the host after one of its next effects"),
            Self::WallClock(millis) => write!(f, "move the host's wall clock by {millis} ms"),
            Self::Leases(true) => f.write_str("answer requests for leases"),
            Self::Leases(false) => f.write_str("answer no requests for leases"),
            Self::Reboot(true) => f.write_str("reboot the host's machine"),
            Self::Reboot(false) => f.write_str("start the host on a machine without modules"),
            Self::Authorize(of, allowed) => f.write_str(&permissions(*of, *allowed)),
            Self::AllowImpersonation(of, allowed) => f.write_str(&impersonation(*of, *allowed)),
            Self::Operate(of, action) => write!(f, "operator of {}: {action}", name_of(*of)),
            Self::Replica(host, event) => write!(f, "host {host} {event}"),
            #[cfg(test)]
            Self::Bug(bug) => write!(f, "bug of the host: {bug:?}"),
        }
    }
}

/// Writes how likely each fault is.
fn shares(f: &mut fmt::Formatter<'_>, of: &str, faults: &[(f64, &str)]) -> fmt::Result {
    let likely = faults.iter().filter(|(share, _)| *share > 0.0);
    let likely = likely.map(|(share, what)| format!("{:.0} % {what}", share * 100.0));
    let likely: Vec<String> = likely.collect();
    if likely.is_empty() {
        return write!(f, "{of}: no faults");
    }
    write!(f, "{of}: {}", likely.join(", "))
}

fn blocking(blocks: bool) -> &'static str {
    if blocks { " (blockOwnerDeletion)" } else { "" }
}

impl fmt::Display for Create {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "create {}", self.name)?;
        if let Some(pod) = self.pod {
            write!(f, " on node-{}, grace period {} s", pod.node, pod.grace)?;
            match pod.toleration {
                Toleration::Never => {}
                Toleration::For(seconds) => write!(f, ", tolerates all taints for {seconds} s")?,
                Toleration::Forever => f.write_str(", tolerates all taints")?,
            }
        }
        for (owner, blocks) in &self.owners {
            write!(f, ", owner {owner}{}", blocking(*blocks))?;
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Create {
    pub(crate) name: Name,
    /// The owners, and whether the object blocks their deletion.
    pub(crate) owners: Vec<(Name, bool)>,
    /// The fields of a pod.
    pub(crate) pod: Option<NewPod>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct NewPod {
    pub(crate) node: u64,
    pub(crate) grace: u64,
    pub(crate) toleration: Toleration,
}

/// Whether a pod tolerates taints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Toleration {
    Never,
    /// So many seconds.
    For(u64),
    Forever,
}

fn permissions(controller: usize, allowed: bool) -> String {
    let what = if allowed { "give back" } else { "withdraw" };
    let name = name_of(controller);
    format!("{what} the permissions of the account of {name}")
}

fn impersonation(controller: usize, allowed: bool) -> String {
    let what = if allowed { "allow" } else { "forbid" };
    let name = name_of(controller);
    format!("{what} the host to impersonate the account of {name}")
}

/// The controller of an index of [`CONTROLLERS`].
fn name_of(controller: usize) -> &'static str {
    CONTROLLERS.get(controller).copied().unwrap_or_default()
}
