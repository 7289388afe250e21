//! Guests, compiled natively.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use davit_core::circuit::CallFailure;
use davit_core::journal::SnapshotReads;
use davit_core::machine::{Call, ReadAnswer, ReadRequest};
use davit_core::manifest::Manifest;
use davit_core::plan::Decision;

/// A guest that runs in the process of the test.
///
/// A component is suspended during a live read. A native guest returns instead, and the
/// driver calls it again with the answers so far: the guest decides from the call and
/// these answers alone. The rest of the host continues in both cases.
pub trait NativeGuest: fmt::Debug {
    /// Decides about the items of a call. `answers` are the answers to the guest's earlier
    /// live reads, in their order. `reads` gets what the guest reads of queues and notes, if
    /// anybody asks.
    fn reconcile(
        &self,
        call: &Call<Guest>,
        answers: &[ReadAnswer],
        reads: Option<&RefCell<SnapshotReads>>,
    ) -> Reconciliation;
}

/// A guest, as the machine holds it.
#[derive(Clone, Debug)]
pub struct Guest {
    /// The name of the revision.
    pub revision: Arc<str>,
    /// The program.
    pub native: Arc<dyn NativeGuest>,
    /// What it declares.
    pub manifest: Arc<Manifest>,
}

/// The result of a call.
#[derive(Debug)]
pub enum Reconciliation {
    /// A decision for each item.
    Decided(Vec<Decision>),
    /// The guest needs a live read first.
    Reads(ReadRequest),
    /// The call failed.
    Failed(CallFailure),
}
