//! Where rollouts are remembered: what a controller's status says, and the
//! specs that were active.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::spec::ControllerSpec;
use crate::status::ControllerStatus;

/// Where rollouts are remembered. Clones are the same place.
#[derive(Clone)]
pub enum Records {
    /// Nowhere beyond this process.
    Memory(MemoryRecords),
}

/// What is remembered of a controller.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Remembered {
    /// What was said of it last.
    pub status: ControllerStatus,
    /// What its stable revision was made of.
    pub stable: Option<ControllerSpec>,
}

/// Why something is not remembered.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {}

/// Everything, by the name of the controller.
#[derive(Clone, Default)]
pub struct MemoryRecords(Arc<Mutex<BTreeMap<String, Memory>>>);

#[derive(Clone, Default)]
struct Memory {
    status: ControllerStatus,
    specs: BTreeMap<String, ControllerSpec>,
}

impl Default for Records {
    fn default() -> Self {
        Self::Memory(MemoryRecords::default())
    }
}

impl Records {
    /// What is remembered of a controller.
    pub async fn load(&self, name: &str) -> Result<Remembered, RecordError> {
        let Self::Memory(memory) = self;
        let memory = memory.of(name, |memory| memory.clone());
        let stable = memory.status.stable.as_ref();
        let stable = stable.and_then(|stable| memory.specs.get(&stable.revision).cloned());
        Ok(Remembered {
            status: memory.status,
            stable,
        })
    }

    /// Writes down how a controller is.
    pub async fn save(&self, name: &str, status: &ControllerStatus) -> Result<(), RecordError> {
        let Self::Memory(memory) = self;
        memory.of(name, |memory| memory.status = status.clone());
        Ok(())
    }

    /// Keeps the spec of a revision that is active from now on.
    pub async fn keep(
        &self,
        name: &str,
        revision: &str,
        spec: &ControllerSpec,
    ) -> Result<(), RecordError> {
        let Self::Memory(memory) = self;
        memory.of(name, |memory| {
            memory.specs.insert(revision.to_owned(), spec.clone());
        });
        Ok(())
    }

    /// The spec of a revision that is kept.
    pub async fn spec(
        &self,
        name: &str,
        revision: &str,
    ) -> Result<Option<ControllerSpec>, RecordError> {
        let Self::Memory(memory) = self;
        Ok(memory.of(name, |memory| memory.specs.get(revision).cloned()))
    }
}

impl MemoryRecords {
    fn of<T>(&self, name: &str, f: impl FnOnce(&mut Memory) -> T) -> T {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        f(all.entry(name.to_owned()).or_default())
    }
}
