//! The `NoExecute` taints of nodes: as the cache has them, and as the API server
//! does.
//!
//! What the cache shows is enough to start, move and cancel timers, which ask
//! again when they are due. It is no proof: a watch can be broken, and the taint
//! gone. So an eviction is decided only for a taint that a live read has found,
//! one read for all the pods of a node that a call is about. While many wait for
//! their turn, that holds for some seconds; then one of them has the node read
//! again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use davit_guest::toleration::{NO_EXECUTE, Taint};
use davit_guest::{Command, Context, Object, ObjectRef, Time};

use crate::arrival::Arrivals;
use crate::view::{NODES, Node};
use crate::{DOUBTFUL, PROVEN};

/// For how long it counts for the evictions that wait that a live read has shown
/// a node's taints to be those of the cache.
const PROVEN_FOR: Duration = Duration::from_secs(10);

/// When a node is read again whose taints the cache shows wrongly. When the cache
/// is right again nothing may have changed there, and nothing else would tell
/// that the taints were different in between.
const READ_AGAIN: Duration = Duration::from_secs(5);

/// The `NoExecute` taints of a node, and where they are known from.
pub(crate) struct Taints {
    pub(crate) node: NodeTaints,
    pub(crate) arrivals: Arrivals,
    pub(crate) source: Source,
}

/// The `NoExecute` taints of a node; none if there is no such node. The pods of
/// a node that is gone are the pod garbage collector's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeTaints {
    pub(crate) uid: String,
    pub(crate) created: Option<Time>,
    pub(crate) no_execute: Vec<Taint>,
}

/// Where taints are known from.
pub(crate) enum Source {
    Cache,
    /// The API server has just named them.
    Live,
    /// The cache. The API server was asked, and did not answer.
    Unread(String),
}

/// A decision cannot be made before the taints of this node are read live.
pub(crate) struct Unproven {
    pub(crate) node: String,
}

/// The nodes that were read live in this call.
#[derive(Default)]
pub(crate) struct LiveNodes {
    by_name: BTreeMap<String, Result<NodeTaints, String>>,
}

impl LiveNodes {
    /// Reads these nodes, in parallel. They go by name, as in a pod's spec: if a
    /// node was created again, it is the new one that counts.
    pub(crate) fn read(cx: &Context<'_>, names: BTreeSet<String>) -> Self {
        let target = |name| ObjectRef::named("v1", "Node", "", name);
        let targets: Vec<ObjectRef> = names.iter().map(|name| target(name)).collect();
        let answers = cx.live_get::<Node>(&targets).into_iter();
        let taints = answers.map(|answer| match answer {
            Ok(node) => Ok(taints_of(node)),
            Err(failure) if failure.class == "not-found" => Ok(NodeTaints::default()),
            Err(failure) => Err(format!("{}: {}", failure.class, failure.message)),
        });
        Self {
            by_name: names.into_iter().zip(taints).collect(),
        }
    }

    /// The taints of a node, as well as they are known.
    pub(crate) fn taints(&self, cx: &Context<'_>, name: &str) -> Taints {
        let (node, source) = match self.by_name.get(name) {
            Some(Ok(live)) => (live.clone(), Source::Live),
            Some(Err(why)) => {
                let why = format!("the node {name} could not be read: {why}");
                (cached(cx, name), Source::Unread(why))
            }
            None => (cached(cx, name), Source::Cache),
        };
        Taints {
            arrivals: Arrivals::recall(cx, name, &node),
            node,
            source,
        }
    }

    /// Remembers which nodes the cache shows as they are, and has the others
    /// read again.
    pub(crate) fn learnt(&self, cx: &Context<'_>) -> Vec<Command> {
        let mut commands = Vec::new();
        for (name, live) in &self.by_name {
            match live {
                Ok(live) if *live == cached(cx, name) => {
                    commands.push(Command::enqueue(PROVEN, name, PROVEN_FOR));
                }
                Ok(_) => commands.extend([
                    Command::cancel(PROVEN, name),
                    Command::enqueue(DOUBTFUL, name, READ_AGAIN),
                ]),
                Err(_) => {}
            }
        }
        commands
    }
}

/// Whether a live read has shown lately that the cache is right about a node.
pub(crate) fn is_proven(cx: &Context<'_>, node: &str) -> bool {
    cx.pending(PROVEN, node).is_some()
}

fn cached(cx: &Context<'_>, node: &str) -> NodeTaints {
    let node = cx.watch(NODES).get(node);
    node.map(taints_of).unwrap_or_default()
}

fn taints_of(node: Object<Node>) -> NodeTaints {
    let taints = node.view.spec.taints.into_iter();
    NodeTaints {
        uid: node.reference.uid,
        created: node.view.metadata.creation_timestamp,
        no_execute: taints.filter(|it| it.effect == NO_EXECUTE).collect(),
    }
}
