//! Leader election: which of several replicas of the host writes for a controller.
//!
//! Each controller has a Lease. Every replica watches, caches and decides for all
//! controllers; only the holder of a controller's lease writes for it.

mod elections;
mod elector;
mod lease;
mod members;
#[cfg(test)]
mod model_tests;
mod name;
mod ready;
#[cfg(test)]
mod slow_tests;
mod strays;
mod term;
#[cfg(test)]
mod tests;

pub use elections::{
    ControllerActivity, ControllerHistory, Elections, LeaseAnswer, LeaseRequest, LeaseRequestId,
};
pub use elector::{Circumstances, Elector};
pub use lease::{Lease, LeaseTiming, LeaseTimingError, LeaseWrite, LeaseWriteError, StoredLease};
pub use name::LeaseName;
pub use ready::ReadyControllers;
pub use term::LeaseTerm;
