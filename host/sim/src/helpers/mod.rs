//! Stand-ins for what a cluster has beside its API server. All are off unless
//! started, and none of their work is in the request log.

#[cfg(feature = "transport")]
mod kubelet;
#[cfg(feature = "transport")]
mod namespaces;
mod node;

#[cfg(feature = "transport")]
pub use kubelet::{KUBELET_LABEL, Kubelet, KubeletOptions};
#[cfg(feature = "transport")]
pub use namespaces::NamespaceController;
pub use node::{act_on_pod, pod_due, renew_lease, report_ready, says_how_it_is};
