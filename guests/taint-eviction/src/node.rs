//! The `NoExecute` taints of one node.

use davit_guest::toleration::{NO_EXECUTE, Taint};
use davit_guest::{Object, Time};

use crate::view::Node;

/// The `NoExecute` taints of a node; none if the node does not exist. The pod
/// garbage collector deletes the pods of a node that is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeTaints {
    pub(crate) uid: String,
    pub(crate) created: Option<Time>,
    pub(crate) no_execute: Vec<Taint>,
}

impl NodeTaints {
    pub(crate) fn of(node: Object<Node>) -> Self {
        let taints = node.view.taints.into_iter();
        Self {
            uid: node.reference.uid,
            created: node.view.creation_timestamp,
            no_execute: taints.filter(|it| it.effect == NO_EXECUTE).collect(),
        }
    }
}
