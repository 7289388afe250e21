//! Simulations of components beside the API server. They run only when started, and
//! their requests are not in the request log.

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
