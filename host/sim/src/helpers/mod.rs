//! Stand-ins for what a cluster has beside its API server. All are off unless
//! started, and none of their work is in the request log.

mod kubelet;
mod namespaces;

pub use kubelet::{KUBELET_LABEL, Kubelet, KubeletOptions};
pub use namespaces::NamespaceController;
