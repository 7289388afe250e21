//! A guest of the SDK, compiled natively, as a simulated host calls it.

mod decision;
mod host;
mod manifest;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::Controller;
use crate::component::Instance;
use davit_core::circuit::{CallFailure, CallFailureKind};
use davit_core::machine::{Call, ReadAnswer, ReadRequest};
use davit_core::manifest::Manifest;
use davit_simulation::{Guest, NativeGuest, Reconciliation};

use host::CallHost;

/// A controller with its configuration, as a guest of `davit_simulation::Host`.
pub struct Native<C> {
    instance: Instance<C>,
    manifest: Manifest,
}

/// How a guest stops at a live read that is not answered yet.
struct Suspended(ReadRequest);

impl<C: Controller> Native<C> {
    /// Describes the controller with an operator's configuration (MessagePack).
    pub fn describe(config: &[u8]) -> Result<Self, String> {
        let instance = Instance::new();
        let described = instance.describe(config);
        let described = described.map_err(|error| format!("{}: {}", error.field, error.message))?;
        let manifest = manifest::manifest(described)?;
        manifest.validate().map_err(|error| error.to_string())?;
        Ok(Self { instance, manifest })
    }

    /// What the controller needs, as the host reads it.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }
}

impl<C> fmt::Debug for Native<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.manifest.name)
    }
}

impl<C: Controller> NativeGuest for Native<C> {
    fn reconcile(&self, call: &Call<Guest>, answers: &[ReadAnswer]) -> Reconciliation {
        let host = CallHost::new(call, &self.manifest, answers);
        let items: Vec<_> = call
            .items
            .iter()
            .map(|item| host::work_item(item, call.now))
            .collect();
        let decided = catch_unwind(AssertUnwindSafe(|| {
            self.instance.reconcile(&host, call.now.wall.0, &items)
        }));
        match decided {
            Ok(decisions) => decision::decisions(decisions, call.now),
            Err(payload) => match payload.downcast::<Suspended>() {
                Ok(suspended) => Reconciliation::Reads(suspended.0),
                Err(payload) => {
                    let text = payload
                        .downcast_ref::<String>()
                        .map(String::as_str)
                        .or_else(|| payload.downcast_ref::<&str>().copied());
                    let reason = format!("the guest panics: {}", text.unwrap_or_default());
                    Reconciliation::Failed(CallFailure::new(CallFailureKind::Trap, reason))
                }
            },
        }
    }
}
