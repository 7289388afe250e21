//! The periodic pass over the cluster. Every stage starts at an index, so that
//! the cost of a pass over a healthy cluster depends on the number of nodes and
//! not on the number of pods. Each call of a pass decides about a bounded page
//! of every stage, and its cursor names where each stage continues.

use davit_guest::{Command, Context, Decision, Level, WorkItem};

use crate::plans::Plans;
use crate::view::{BY_NAME, BY_NODE, NODE_NAMES, PODS};
use crate::{Config, ORPHANED, stuck, terminated};

/// How many nodes one call enqueues at most: the host accepts 10,000 commands.
const MAX_COMMANDS: usize = 9_000;

/// Decides which pods to delete now, and which nodes to verify.
pub(crate) fn reconcile(config: &Config, cx: &Context<'_>, item: &WorkItem) -> Decision {
    let rest = Rest::parse(&item.cursor);
    let mut plans = Plans::default();
    let terminated = rest.terminated.zip(config.threshold());
    let terminated = terminated
        .and_then(|(cursor, threshold)| terminated::decide(cx, threshold, &cursor, &mut plans));
    let (missing, others) = rest
        .others
        .map_or_else(Default::default, |cursor| others(cx, &cursor, &mut plans));
    let next = Rest { terminated, others };
    let plans = plans.into_all();
    if !plans.is_empty() {
        let count = plans.len().to_string();
        cx.log(Level::Info, "garbage collecting pods", &[("pods", &count)]);
    }
    let missing = missing.iter();
    next.decision()
        .plans(plans)
        .commands(missing.map(|node| Command::enqueue(ORPHANED, node, config.quarantine)))
        .parallel(config.max_parallel_deletes)
}

/// Enqueues missing nodes, then deletes stuck pods. Returns the missing nodes,
/// and where the next page starts: after a node, or at the place of a pod. Only
/// a place contains a slash.
fn others(cx: &Context<'_>, cursor: &str, plans: &mut Plans) -> (Vec<String>, Option<String>) {
    if cursor.contains('/') {
        return (Vec::new(), stuck::decide(cx, cursor, plans));
    }
    let (missing, last) = missing_nodes(cx, cursor);
    let next = last.or_else(|| stuck::decide(cx, "", plans));
    (missing, next)
}

/// Where a pass continues: the cursors of its two halves; none for a half that
/// has ended. The empty text is the start.
///
/// With the longest names both together have 950 bytes. A cursor may have
/// 1,024.
struct Rest {
    terminated: Option<String>,
    others: Option<String>,
}

/// No name and no time contains it.
const SEPARATOR: char = '\n';

impl Rest {
    fn parse(cursor: &str) -> Self {
        if cursor.is_empty() {
            return Self {
                terminated: Some(String::new()),
                others: Some(String::new()),
            };
        }
        let (terminated, others) = cursor.split_once(SEPARATOR).unwrap_or((cursor, ""));
        let half = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Self {
            terminated: half(terminated),
            others: half(others),
        }
    }

    fn decision(self) -> Decision {
        match (self.terminated, self.others) {
            (None, None) => Decision::done(),
            (Some(terminated), None) => Decision::continue_from(terminated),
            (terminated, Some(others)) => {
                let terminated = terminated.unwrap_or_default();
                Decision::continue_from(format!("{terminated}{SEPARATOR}{others}"))
            }
        }
    }
}

/// The names of the nodes after `after` that pods are bound to and the cache
/// does not have. Also the last of these names, if there are more.
fn missing_nodes(cx: &Context<'_>, after: &str) -> (Vec<String>, Option<String>) {
    // No name sorts before the empty one, which stands for pods without a node.
    let after = Some(after.to_owned());
    let mut missing = cx
        .watch(PODS)
        .values_without(BY_NODE, NODE_NAMES, BY_NAME, after);
    let names: Vec<String> = missing.by_ref().take(MAX_COMMANDS).collect();
    let last = missing.next().and_then(|_| names.last().cloned());
    (names, last)
}
