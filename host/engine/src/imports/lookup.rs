//! Lookups in the mapping, the queues and the notes. And the log.

use std::borrow::Cow;
use std::sync::PoisonError;

use davit_core::journal::SnapshotReads;
use davit_core::manifest::Manifest;
use wasmtime::Result;

use super::readable;
use crate::error::Mistake;
use crate::state::{CallView, State};
use crate::wit::{decisions, log, manifests, mapping, notes, queue, types};

impl mapping::Host for State {
    fn lookup(
        &mut self,
        api_version: String,
        kind: String,
    ) -> Result<Option<mapping::ResourceMapping>> {
        let served = self.view()?.call.mapping.by_kind(&api_version, &kind);
        Ok(served.map(|served| mapping::ResourceMapping {
            resource: types::ApiResource {
                group: served.resource.group.clone(),
                version: served.resource.version.clone(),
                plural: served.resource.plural.clone(),
            },
            namespaced: served.namespaced,
        }))
    }

    fn unlisted(&mut self, watch: String) -> Result<Vec<mapping::UnlistedResource>> {
        let view = self.view_id(&watch)?;
        let unlisted = self.view()?.call.unlisted.get(&view);
        Ok(unlisted
            .into_iter()
            .flatten()
            .map(|it| mapping::UnlistedResource {
                group: it.group.clone(),
                plural: it.plural.clone(),
                since: self.now.wall_at(it.since).0,
                reason: it.reason.as_str().to_owned(),
            })
            .collect())
    }
}

impl queue::Host for State {
    fn pending(&mut self, queue: String, key: String) -> Result<Option<queue::PendingItem>> {
        let view = self.view()?;
        if !declares_queue(&view.manifest, &queue) {
            return Mistake::trap(format!(
                "it asked for the queue \"{queue}\", which its manifest does not declare"
            ));
        }
        let waiting = view.call.pending.get(&queue, &key);
        view.note(|reads| reads.note_pending(&queue, &key, waiting));
        Ok(waiting.map(|waiting| queue::PendingItem {
            created_at: self.now.wall_at(waiting.created_at).0,
            due_at: self.now.wall_at(waiting.due_at).0,
        }))
    }
}

impl CallView {
    /// Reports a read to the journal, if there is one.
    fn note(&self, note: impl FnOnce(&mut SnapshotReads)) {
        if let Some(reads) = &self.call.reads {
            note(&mut reads.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

fn declares_queue(manifest: &Manifest, name: &str) -> bool {
    manifest.queues.iter().any(|queue| queue.name == name)
}

impl notes::Host for State {
    fn get(&mut self, key: String) -> Result<Option<Vec<u8>>> {
        let view = self.view()?;
        let value = view.call.notes.get(&key);
        view.note(|reads| reads.note_note(&key, value));
        let value = value.map(|value| self.encoding.encode(Cow::Borrowed(value)));
        readable(value.transpose())
    }
}

impl log::Host for State {
    fn emit(
        &mut self,
        level: log::Level,
        message: String,
        fields: Vec<(String, String)>,
    ) -> Result<()> {
        let level = match level {
            log::Level::Error => tracing::Level::ERROR,
            log::Level::Warn => tracing::Level::WARN,
            log::Level::Info => tracing::Level::INFO,
            log::Level::Debug => tracing::Level::DEBUG,
        };
        self.log.emit(level, &message, &fields);
        Ok(())
    }
}

// Interfaces of types only.
impl types::Host for State {}
impl manifests::Host for State {}
impl decisions::Host for State {}
