//! What Kubernetes' own controllers read of a node.

use crate::View;

/// The taint by which an operator declares that a node is off and will not come
/// back as it was.
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// A condition in a node's status.
#[derive(Clone, Debug, Default, PartialEq, Eq, View)]
pub struct NodeCondition {
    /// `Ready`, `MemoryPressure`, …
    pub r#type: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
}

/// Whether a node is ready. The first condition of the type `Ready` decides; a
/// node without one is not ready.
#[must_use]
pub fn is_node_ready(conditions: &[NodeCondition]) -> bool {
    conditions
        .iter()
        .find(|condition| condition.r#type == "Ready")
        .is_some_and(|condition| condition.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(of: &[(&str, &str)]) -> Vec<NodeCondition> {
        of.iter()
            .map(|&(r#type, status)| NodeCondition {
                r#type: r#type.to_owned(),
                status: status.to_owned(),
            })
            .collect()
    }

    #[test]
    fn pgc_34_is_node_ready() {
        for (of, ready) in [
            (&[("Ready", "True")][..], true),
            (&[("Ready", "False")], false),
            (&[("Ready", "Unknown")], false),
            (&[("MemoryPressure", "True")], false),
            (&[], false),
            (&[("Ready", "False"), ("Ready", "True")], false),
            (&[("DiskPressure", "False"), ("Ready", "True")], true),
        ] {
            assert_eq!(is_node_ready(&conditions(of)), ready, "{of:?}");
        }
    }
}
