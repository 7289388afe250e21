//! The pods of `DaemonSet`s: the `DaemonSet` would immediately create them
//! again on the same node.

use std::collections::BTreeMap;

use davit_guest::{Context, LabelSelector, Object};

use crate::view::{BY_NAMESPACE, DAEMON_SETS, Pod};

/// The `DaemonSet`s of the namespaces that were looked up so far.
pub(crate) struct DaemonSets<'a> {
    cx: Context<'a>,
    selectors: BTreeMap<String, Vec<LabelSelector>>,
}

impl<'a> DaemonSets<'a> {
    pub(crate) fn new(cx: Context<'a>) -> Self {
        let selectors = BTreeMap::new();
        Self { cx, selectors }
    }

    /// Whether a `DaemonSet` is the pod's controller, or selects it.
    pub(crate) fn run(&mut self, pod: &Object<Pod>) -> bool {
        let metadata = &pod.view.metadata;
        let mut owners = metadata.owner_references.iter();
        if owners.any(|owner| owner.controller && owner.kind == "DaemonSet") {
            return true;
        }
        if metadata.labels.is_empty() {
            return false;
        }
        let mut selectors = self.selectors_in(&pod.reference.namespace).iter();
        selectors.any(|selector| selector.selects(&metadata.labels))
    }

    fn selectors_in(&mut self, namespace: &str) -> &[LabelSelector] {
        let cx = self.cx;
        self.selectors
            .entry(namespace.to_owned())
            .or_insert_with(|| {
                let sets = cx.watch(DAEMON_SETS);
                let sets = sets.by_index(BY_NAMESPACE, namespace);
                sets.map(|set| set.view.selector).collect()
            })
    }
}
