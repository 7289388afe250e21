//! Work: calls into guests, and the plans that were decided.

use std::sync::Arc;

use super::exchange::{Call, Effect};
use super::{Machine, UnlistedByView};
use crate::controller::CallRequest;
use crate::mapping::Mapping;
use crate::rollout::Role;
use crate::store::Snapshot;
use crate::time::{Instant, Now};

/// What calls are made with.
pub(super) struct Shown {
    pub(super) snapshot: Snapshot,
    mapping: Arc<Mapping>,
    unlisted: UnlistedByView,
}

impl<G: Clone> Machine<G> {
    /// Asks every controller what it wants done.
    pub(super) fn work(&mut self, now: Now) {
        let Some(mapping) = self.mapping.clone() else {
            return;
        };
        if !self.outbox.stopping {
            let shown = self.shown(mapping, now);
            self.call_all(now, &shown);
        }
        // After the calls: dequeueing items is an effect, too.
        self.settle(now.instant);
    }

    pub(super) fn shown(&mut self, mapping: Arc<Mapping>, now: Now) -> Shown {
        Shown {
            snapshot: self.store.snapshot(),
            unlisted: self.unlisted(&mapping, now.instant),
            mapping,
        }
    }

    fn call_all(&mut self, now: Now, shown: &Shown) {
        let Self {
            controllers,
            outbox,
            ..
        } = self;
        for (name, hosted) in controllers {
            let Some(controller) = &mut hosted.controller else {
                continue;
            };
            controller.continue_resync(now.instant, &shown.snapshot);
            for role in Role::ALL {
                while let Some(request) = controller.poll_call(now.instant, role, &shown.snapshot) {
                    let call = call(name, request, shown, now);
                    outbox.push(Effect::Call(Box::new(call)));
                }
            }
        }
    }

    /// Takes everything that the controllers want done so far: what a revision
    /// decided is its own work, and not that of the one that replaces it.
    pub(super) fn settle(&mut self, now: Instant) {
        let Some(mapping) = &self.mapping else {
            return;
        };
        for (name, hosted) in &mut self.controllers {
            if let Some(controller) = &mut hosted.controller {
                let user = hosted.user.as_ref();
                self.outbox.take_all(name, user, controller, mapping, now);
            }
        }
    }
}

pub(super) fn call<G>(name: &str, request: CallRequest<G>, shown: &Shown, now: Now) -> Call<G> {
    Call {
        id: request.id,
        controller: name.into(),
        guest: request.guest,
        now,
        items: request.items,
        snapshot: request.snapshot,
        views: request.views,
        pending: request.pending,
        notes: request.notes,
        mapping: Arc::clone(&shown.mapping),
        unlisted: Arc::clone(&shown.unlisted),
    }
}
