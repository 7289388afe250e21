//! Who deleted an object: what the API shows of it.
//!
//! No object says who deleted it. Kubernetes' own controllers leave these traces before they
//! delete (`pkg/controller/podgc/gc_controller.go`, `pkg/controller/tainteviction`,
//! `pkg/registry/core/pod/storage/eviction.go`):
//!
//! - PodGC sets the condition `DisruptionTarget` of an orphaned pod, with the reason
//!   `DeletionByPodGC`. It sets no condition for a pod that has ended already, for one that
//!   was never scheduled, and on a node out of service: only their phase, `Failed` or
//!   `Succeeded`, shows that PodGC may have deleted them.
//! - taint-eviction sets the reason `DeletionByTaintManager`, the eviction API
//!   `EvictionByEvictionAPI`, the scheduler `PreemptionByScheduler`.
//! - Until Kubernetes 1.26, the node lifecycle controller set `status.reason` to `NodeLost`.
//! - The garbage collector leaves no trace on the object: its owners are gone.
//!
//! A controller of Davit that replaces one of these sets the same marks. The managers of fields
//! say who has set the reason of the condition; any other field that Davit has written
//! proves nothing about who sets a mark.

use std::collections::BTreeSet;
use std::fmt;

use crate::manifest::{Manifest, Source, WatchSpec};
use crate::msgpack::{self, Value};
use crate::object::Uid;
use crate::path::{FieldPath, Segment};
use crate::store::Object;
use crate::untrusted::line;

/// How the managers of fields start that are controllers of Davit.
const DAVIT: &str = "davit/";
/// The condition that announces a deletion.
const DISRUPTION: &str = "DisruptionTarget";
/// The same in the fields of a manager: the key of an element of a list.
const DISRUPTION_KEY: &str = "k:{\"type\":\"DisruptionTarget\"}";
/// The fields of a manager that has set the reason of that condition.
const SETS_REASON: [&str; 5] = [
    "fieldsV1",
    "f:status",
    "f:conditions",
    DISRUPTION_KEY,
    "f:reason",
];
/// How much is kept of a text that whoever may patch a status chooses, in bytes. No name that means
/// something is longer.
const MOST_TEXT: usize = 256;
/// The phases of a pod that has ended.
const ENDED: [&str; 2] = ["Succeeded", "Failed"];

/// Who deleted an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Actor {
    /// kube-controller-manager's PodGC.
    PodGc,
    /// kube-controller-manager's taint-eviction.
    TaintEviction,
    /// kube-controller-manager's garbage collector.
    GarbageCollector,
    /// kube-controller-manager's node lifecycle controller.
    NodeLifecycle,
    /// kube-controller-manager's garbage collector of `StorageVersions`.
    StorageVersionGc,
    /// A client of the eviction API.
    EvictionApi,
    /// The scheduler.
    Scheduler,
    /// A controller of Davit.
    Davit,
    /// Nobody that Davit knows.
    Unknown,
}

impl Actor {
    /// The actor that a guest replaces, by the name in its manifest; none if it replaces
    /// none of Kubernetes' own.
    #[must_use]
    pub fn replaced_by(guest: &str) -> Option<Self> {
        match guest {
            "podgc" => Some(Self::PodGc),
            "taint-eviction" => Some(Self::TaintEviction),
            "garbage-collector" => Some(Self::GarbageCollector),
            "node-eviction" => Some(Self::NodeLifecycle),
            "storage-version-gc" => Some(Self::StorageVersionGc),
            _ => None,
        }
    }

    /// The word used in answers: the name in `--controllers` of kube-controller-manager, if it
    /// has one.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PodGc => "pod-garbage-collector-controller",
            Self::TaintEviction => "taint-eviction-controller",
            Self::GarbageCollector => "garbage-collector-controller",
            Self::NodeLifecycle => "node-lifecycle-controller",
            Self::StorageVersionGc => "storageversion-garbage-collector-controller",
            Self::EvictionApi => "eviction API",
            Self::Scheduler => "scheduler",
            Self::Davit => "Davit",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The trace that an actor is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// A mark that nobody else sets.
    Mark,
    /// A state that allows the conclusion, and others too.
    State,
    /// Nothing.
    Nothing,
}

/// What the API shows of an object's end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traces {
    /// Whether it has a deletion timestamp.
    pub is_terminating: bool,
    /// The reason of its condition `DisruptionTarget`, if that is true; empty without.
    pub disruption: String,
    /// Its phase; empty without.
    pub phase: String,
    /// The reason of its status; empty without.
    pub reason: String,
    /// Its node; empty without.
    pub node: String,
    /// The uids of its owners.
    pub owners: Vec<Uid>,
    /// Whether a controller of Davit has written it.
    pub is_of_davit: bool,
    /// Whether a controller of Davit has set the reason of its condition `DisruptionTarget`;
    /// none if the managers of its fields do not say who has.
    pub is_marked_by_davit: Option<bool>,
}

/// The fields that a watch has to show for [`Traces`]. `status` says whether its objects may
/// be pods: fields outside of the metadata make the host request whole objects.
fn fields(status: bool) -> Vec<FieldPath> {
    let path = |text: &[&str]| {
        let step = |name: &&str| match *name {
            "*" => Segment::Each,
            name => Segment::Field(name.into()),
        };
        FieldPath::of(text.iter().map(step).collect())
    };
    let metadata = [
        path(&["metadata", "deletionTimestamp"]),
        path(&["metadata", "managedFields", "*", "manager"]),
        path(&["metadata", "ownerReferences", "*", "uid"]),
    ];
    let of_pods = [
        path(&["spec", "nodeName"]),
        path(&["status", "phase"]),
        path(&["status", "reason"]),
        path(&["status", "conditions", "*", "type"]),
        path(&["status", "conditions", "*", "status"]),
        path(&["status", "conditions", "*", "reason"]),
        path(&[&["metadata", "managedFields", "*"][..], &SETS_REASON].concat()),
    ];
    let of_pods = of_pods.into_iter().filter(|_| status);
    metadata.into_iter().chain(of_pods).collect()
}

/// The watches that show how the objects end that a guest may delete.
#[must_use]
pub fn watches(manifest: &Manifest) -> Vec<WatchSpec> {
    let mut seen = BTreeSet::new();
    let watches = manifest.watches.iter().filter_map(|watch| {
        let is_of_pods = match &watch.source {
            Source::One(resource) => {
                let group = &resource.group;
                let evictions = format!("{}/eviction", resource.plural);
                let deletes = manifest.permits("delete", group, &resource.plural)
                    || manifest.permits("create", group, &evictions);
                if !deletes {
                    return None;
                }
                group.is_empty() && resource.plural == "pods"
            }
            Source::EveryDeletable(_) => false,
        };
        let selection = (
            watch.source.clone(),
            watch.namespace.clone(),
            watch.label_selector.clone(),
            watch.field_selector.clone(),
        );
        seen.insert(selection).then(|| WatchSpec {
            fields: fields(is_of_pods),
            indexes: Vec::new(),
            ..watch.clone()
        })
    });
    watches.collect()
}

impl Traces {
    /// The traces that a cached object shows. Its texts become lines of a bounded length: they are
    /// printed for an operator.
    #[must_use]
    pub fn of(object: &Object) -> Self {
        let data = object.data();
        let data = &*data;
        let managers = texts(data, &["metadata", "managedFields"], "manager");
        let is_davits = |one: &str| one.starts_with(DAVIT);
        let mut markers = elements(data, &["metadata", "managedFields"])
            .filter(|one| at(one, &SETS_REASON).is_some())
            .map(|one| is_davits(text(one, &["manager"])))
            .peekable();
        let has_markers = markers.peek().is_some();
        Self {
            is_terminating: !text(data, &["metadata", "deletionTimestamp"]).is_empty(),
            disruption: disruption(data).unwrap_or_default(),
            phase: line(text(data, &["status", "phase"]), MOST_TEXT),
            reason: line(text(data, &["status", "reason"]), MOST_TEXT),
            node: line(text(data, &["spec", "nodeName"]), MOST_TEXT),
            owners: texts(data, &["metadata", "ownerReferences"], "uid")
                .into_iter()
                .map(Uid::new)
                .collect(),
            is_of_davit: managers.iter().any(|one| is_davits(one)),
            is_marked_by_davit: has_markers.then(|| markers.any(|one| one)),
        }
    }

    /// The actor that left these traces on an object of a kind. `is_gone` says of an owner whether
    /// it is known to be gone, or to terminate.
    #[must_use]
    pub fn actor(&self, kind: &str, is_gone: impl Fn(&Uid) -> bool) -> (Actor, Evidence) {
        let marked = self.marked_by();
        let is_of_davit = match (marked, self.is_marked_by_davit) {
            (Some(_), Some(is_its_mark)) => is_its_mark,
            _ => self.is_of_davit,
        };
        if is_of_davit {
            return (Actor::Davit, Evidence::Mark);
        }
        if let Some(actor) = marked {
            return (actor, Evidence::Mark);
        }
        let are_gone = !self.owners.is_empty() && self.owners.iter().all(is_gone);
        match kind {
            _ if are_gone => (Actor::GarbageCollector, Evidence::State),
            "StorageVersion" => (Actor::StorageVersionGc, Evidence::State),
            "Pod" if self.has_ended() => (Actor::PodGc, Evidence::State),
            _ => (Actor::Unknown, Evidence::Nothing),
        }
    }

    /// Who sets marks like its.
    pub(super) fn marked_by(&self) -> Option<Actor> {
        match self.disruption.as_str() {
            "DeletionByPodGC" => Some(Actor::PodGc),
            "DeletionByTaintManager" => Some(Actor::TaintEviction),
            "EvictionByEvictionAPI" => Some(Actor::EvictionApi),
            "PreemptionByScheduler" => Some(Actor::Scheduler),
            _ if self.reason == "NodeLost" => Some(Actor::NodeLifecycle),
            _ => None,
        }
    }

    /// Whether somebody but Davit has announced the object's deletion since it had these other
    /// traces.
    #[must_use]
    pub fn is_marked_since(&self, before: &Self) -> bool {
        let mark = |it: &Self| match it.actor("", |_| false) {
            (actor, Evidence::Mark) => Some(actor),
            _ => None,
        };
        let is_new = mark(self) != mark(before);
        is_new && mark(self).is_some_and(|actor| actor != Actor::Davit)
    }

    /// Whether nothing says that the object is about to go.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !self.is_terminating && self.marked_by().is_none()
    }

    /// Whether it is a pod that has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        ENDED.contains(&self.phase.as_str())
    }

    /// Whether it is a pod that terminates, has ended, and was never on a node: no kubelet has
    /// ended it.
    #[must_use]
    pub fn was_forced(&self) -> bool {
        self.is_terminating && self.has_ended() && self.node.is_empty()
    }
}

/// `phase Failed, reason DeletionByPodGC, node n1, 1 owner`
impl fmt::Display for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [
            ("phase ", &self.phase),
            ("DisruptionTarget ", &self.disruption),
            ("reason ", &self.reason),
            ("node ", &self.node),
        ];
        let words = words.into_iter().filter(|(_, value)| !value.is_empty());
        let mut words: Vec<String> = words
            .map(|(what, value)| format!("{what}{value}"))
            .collect();
        match self.owners.len() {
            0 => {}
            1 => words.push("1 owner".to_owned()),
            count => words.push(format!("{count} owners")),
        }
        if words.is_empty() {
            return f.write_str("no trace");
        }
        f.write_str(&words.join(", "))
    }
}

/// The reason of the condition `DisruptionTarget`, if that is true.
fn disruption(data: &[u8]) -> Option<String> {
    elements(data, &["status", "conditions"]).find_map(|condition| {
        let is_it =
            text(condition, &["type"]) == DISRUPTION && text(condition, &["status"]) == "True";
        is_it.then(|| line(text(condition, &["reason"]), MOST_TEXT))
    })
}

fn at<'a>(mut data: &'a [u8], path: &[&str]) -> Option<&'a [u8]> {
    for name in path {
        data = msgpack::field(data, name).ok()??;
    }
    Some(data)
}

/// The text at a path; empty without.
fn text<'a>(data: &'a [u8], path: &[&str]) -> &'a str {
    match at(data, path).map(Value::read) {
        Some(Ok(Value::Text(text))) => text,
        _ => "",
    }
}

/// The texts of a field in the elements of a list.
fn texts<'a>(data: &'a [u8], list: &[&str], name: &str) -> Vec<&'a str> {
    let elements = elements(data, list);
    elements.map(|element| text(element, &[name])).collect()
}

/// The elements of a list.
fn elements<'a>(data: &'a [u8], list: &[&str]) -> impl Iterator<Item = &'a [u8]> {
    let elements = match at(data, list).map(Value::read) {
        Some(Ok(Value::List(elements))) => Some(elements),
        _ => None,
    };
    elements.into_iter().flatten().filter_map(Result::ok)
}
