//! What the machine says of its state once a second: the controllers' circuits, queues and
//! limits, and the cache.

use davit_core::budget::GuardrailUse;
use davit_core::machine::{BoundUse, ControllerState, State};
use davit_core::queue::QueueStats;

use super::collected::{Collected, Family, Kind, Samples};
use super::registration::{MetricError, Registrar, flag, number, total};
use super::{CONTROLLER, RESOURCE, ROLE};

/// The labels of a queue, client-go's first.
const QUEUE: &[&str] = &["name", CONTROLLER];

const FAMILIES: &[Family<State>] = &[
    Family {
        name: "davit_guest_circuit_open",
        help: "1 while the host does not call a guest because its calls failed.",
        kind: Kind::Gauge,
        labels: &[CONTROLLER],
        samples: |state, samples| {
            for one in &state.controllers {
                samples.add(&[&one.name], flag(one.circuit_open));
            }
        },
    },
    Family {
        name: "davit_guardrail_left_ratio",
        help: "The share of a guardrail that is left of the last 60 seconds.",
        kind: Kind::Gauge,
        labels: &[CONTROLLER, "guardrail"],
        samples: |state, samples| {
            for one in &state.controllers {
                left(one, samples);
            }
        },
    },
    Family {
        name: "davit_limit_used_ratio",
        help: "The share of a limit that is used by what the host keeps for a revision.",
        kind: Kind::Gauge,
        labels: &[CONTROLLER, ROLE, "limit"],
        samples: |state, samples| {
            for one in &state.controllers {
                used(one, samples);
            }
        },
    },
    Family {
        name: "workqueue_depth",
        help: "Current depth of the work queue.",
        kind: Kind::Gauge,
        labels: QUEUE,
        samples: |state, samples| queues(state, samples, |queue| number(queue.depth)),
    },
    Family {
        name: "workqueue_adds_total",
        help: "Adds handled by the work queue.",
        kind: Kind::Counter,
        labels: QUEUE,
        samples: |state, samples| queues(state, samples, |queue| total(queue.adds)),
    },
    Family {
        name: "workqueue_retries_total",
        help: "Retries handled by the work queue.",
        kind: Kind::Counter,
        labels: QUEUE,
        samples: |state, samples| queues(state, samples, |queue| total(queue.retries)),
    },
    Family {
        name: "workqueue_unfinished_work_seconds",
        help: "The time that the unfinished reconciles have taken so far, added up.",
        kind: Kind::Gauge,
        labels: QUEUE,
        samples: |state, samples| {
            queues(state, samples, |queue| queue.unfinished_work.as_secs_f64());
        },
    },
    Family {
        name: "workqueue_longest_running_processor_seconds",
        help: "The longest time that an unfinished reconcile has taken so far.",
        kind: Kind::Gauge,
        labels: QUEUE,
        samples: |state, samples| {
            queues(state, samples, |queue| queue.longest_running.as_secs_f64());
        },
    },
    Family {
        name: "davit_cache_objects",
        help: "Objects in the cache, by resource.",
        kind: Kind::Gauge,
        labels: &[RESOURCE],
        samples: |state, samples| {
            for (resource, count) in &state.objects {
                samples.add(&[resource], number(*count));
            }
        },
    },
    Family {
        name: "davit_watch_synced",
        help: "1 while the cache holds a complete list of the resource and follows its changes.",
        kind: Kind::Gauge,
        labels: &[RESOURCE],
        samples: |state, samples| {
            for (resource, is_synced) in &state.synced {
                samples.add(&[resource], flag(*is_synced));
            }
        },
    },
    Family {
        name: "davit_cache_bytes",
        help: "Bytes of all objects in the cache, compressed, without the indexes.",
        kind: Kind::Gauge,
        labels: &[],
        samples: |state, samples| samples.add(&[], number(state.bytes)),
    },
];

/// The metrics of the machine's last state.
#[derive(Debug)]
pub struct MachineMetrics(Collected<State>);

impl MachineMetrics {
    pub(super) fn new(registrar: &Registrar<'_>) -> Result<Self, MetricError> {
        Collected::register(registrar, FAMILIES).map(Self)
    }

    /// Sets the state.
    pub fn set(&self, mut state: State) {
        self.0.change(|last| {
            keep_totals(&mut state, last);
            *last = state.into();
        });
    }
}

/// The totals of a queue never decrease while its controller runs: a candidate that is promoted
/// has counted for itself.
fn keep_totals(state: &mut State, last: &State) {
    for controller in &mut state.controllers {
        let name = &controller.name;
        let former = last.controllers.binary_search_by(|one| one.name.cmp(name));
        let former = former.ok().and_then(|place| last.controllers.get(place));
        for queue in &mut controller.queues {
            let mut queues = former.into_iter().flat_map(|former| &former.queues);
            if let Some(former) = queues.find(|former| former.queue == queue.queue) {
                queue.adds = queue.adds.max(former.adds);
                queue.retries = queue.retries.max(former.retries);
            }
        }
    }
}

fn left(controller: &ControllerState, samples: &mut Samples) {
    for GuardrailUse {
        guardrail,
        used,
        limit,
    } in &controller.guardrails
    {
        let left = limit.saturating_sub(*used);
        samples.add(&[&controller.name, guardrail.field()], ratio(left, *limit));
    }
}

fn used(controller: &ControllerState, samples: &mut Samples) {
    for BoundUse {
        role,
        bound,
        used,
        most,
    } in &controller.bound_uses
    {
        let labels = [controller.name.as_str(), role.as_str(), bound.field()];
        samples.add(&labels, ratio(*used, *most));
    }
}

fn queues(state: &State, samples: &mut Samples, value: impl Fn(&QueueStats) -> f64) {
    for controller in &state.controllers {
        for queue in &controller.queues {
            samples.add(&[&queue.queue, &controller.name], value(queue));
        }
    }
}

/// A share; that of a limit of zero is zero.
fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    number(part) / number(whole)
}
