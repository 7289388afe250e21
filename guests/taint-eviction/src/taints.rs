//! The `NoExecute` taints of nodes: according to the cache, and according to
//! the API server.
//!
//! The cache is enough to start, move and cancel timers, because a due timer
//! decides again. It is no proof: a watch may be interrupted, and the taint
//! gone. So an eviction needs a taint that a live read has found. One live read
//! per node covers all pods of a call. While many evictions wait for their
//! turn, a confirmation holds for some seconds; then one of them reads the node
//! again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use davit_guest::{Command, Context, ObjectRef};

use crate::arrival::Arrivals;
use crate::node::NodeTaints;
use crate::view::{NODES, Node};
use crate::{DOUBTFUL, PROVEN};

/// How long a live read confirms the cached taints of a node for pending
/// evictions.
const PROVEN_FOR: Duration = Duration::from_secs(10);

/// When to read a node again whose taints the cache shows wrongly. When the
/// cache is right again, nothing may have changed in it, and no trigger would
/// show that the taints differed in between.
const REREAD_AFTER: Duration = Duration::from_secs(5);

/// The `NoExecute` taints of a node, and their source.
pub(crate) struct Taints {
    pub(crate) node: NodeTaints,
    pub(crate) arrivals: Arrivals,
    pub(crate) source: Source,
}

/// Where taints were read.
pub(crate) enum Source {
    Cache,
    /// The API server, in this call.
    Live,
    /// The cache, because the live read failed.
    Unread(String),
}

/// A decision needs a live read of this node.
pub(crate) struct UnprovenNode {
    pub(crate) node: String,
}

/// The nodes that this call has read live.
#[derive(Default)]
pub(crate) struct LiveNodes {
    by_name: BTreeMap<String, Result<NodeTaints, String>>,
}

impl LiveNodes {
    /// Reads these nodes in parallel. It uses names, as a pod's spec does: if a
    /// node was created again, the new one counts.
    pub(crate) fn read(cx: &Context<'_>, names: BTreeSet<String>) -> Self {
        let target = |name| ObjectRef::named("v1", "Node", "", name);
        let targets: Vec<ObjectRef> = names.iter().map(|name| target(name)).collect();
        let answers = cx.live_get::<Node>(&targets).into_iter();
        let taints = answers.map(|answer| match answer {
            Ok(node) => Ok(NodeTaints::of(node)),
            Err(failure) if failure.is_gone() => Ok(NodeTaints::default()),
            Err(failure) => Err(failure.to_string()),
        });
        Self {
            by_name: names.into_iter().zip(taints).collect(),
        }
    }

    /// The best known taints of a node.
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

    /// Records which nodes the cache shows rightly, and enqueues the others for
    /// another read.
    pub(crate) fn record_reads(&self, cx: &Context<'_>) -> Vec<Command> {
        let mut commands = Vec::new();
        for (name, live) in &self.by_name {
            match live {
                Ok(live) if *live == cached(cx, name) => {
                    commands.push(Command::enqueue(PROVEN, name, PROVEN_FOR));
                }
                Ok(_) => commands.extend([
                    Command::cancel(PROVEN, name),
                    Command::enqueue(DOUBTFUL, name, REREAD_AFTER),
                ]),
                Err(_) => {}
            }
        }
        commands
    }
}

/// Whether a recent live read has confirmed the cached taints of a node.
pub(crate) fn is_proven(cx: &Context<'_>, node: &str) -> bool {
    cx.pending(PROVEN, node).is_some()
}

fn cached(cx: &Context<'_>, node: &str) -> NodeTaints {
    let node = cx.watch(NODES).get(node);
    node.map(NodeTaints::of).unwrap_or_default()
}
