//! What Kubernetes' own controllers know about nodes. [`views::is_true`](crate::views::is_true)
//! says whether a node is ready.

/// The taint by which an operator declares that a node is off and will not come
/// back as it was.
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
