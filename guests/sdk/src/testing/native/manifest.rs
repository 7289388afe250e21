//! A manifest of the SDK as the core's.

use std::time::Duration;

use crate::bindings::davit::controller::manifests as wit;
use davit_core::manifest::{
    IndexFilter, IndexSpec, LiveFields, Manifest, ManifestError, MetricKind, MetricSpec,
    Permission, QueueSpec, Rate, Source, TickSpec, Trigger, TriggerCondition, TriggerKey,
    WatchSpec,
};
use davit_core::path::FieldPath;

use super::host::resource;

pub(super) fn set_condition(
    manifest: &mut Manifest,
    condition: crate::TriggerCondition,
) -> Result<(), ManifestError> {
    let of_core = TriggerCondition {
        index: condition.index,
        related: condition.related,
        related_index: condition.related_index,
        related_value: condition.related_value,
        note_prefix: condition.note_prefix,
    };
    manifest.set_condition(&condition.watch, &condition.queue, &of_core)
}

pub(super) fn manifest(manifest: wit::Manifest) -> Result<Manifest, String> {
    Ok(Manifest {
        name: manifest.name,
        version: manifest.version,
        summary: manifest.summary,
        watches: all(manifest.watches, watch)?,
        triggers: manifest.triggers.into_iter().map(trigger).collect(),
        queues: manifest.queues.into_iter().map(queue).collect(),
        ticks: manifest
            .ticks
            .into_iter()
            .map(|tick| TickSpec {
                queue: tick.queue,
                key: tick.key,
                period: Duration::from_millis(tick.period),
            })
            .collect(),
        permissions: manifest
            .permissions
            .into_iter()
            .map(|permission| Permission {
                verb: permission.verb,
                group: permission.group,
                resource: permission.resource,
            })
            .collect(),
        metrics: all(manifest.metrics, metric)?,
        config_schema: manifest.config_schema,
        live_fields: Vec::new(),
    })
}

pub(super) fn live_fields(fields: crate::LiveFields) -> Result<LiveFields, String> {
    Ok(LiveFields {
        group: fields.group,
        resource: fields.resource,
        fields: all(fields.fields, |text| path(&text))?,
    })
}

fn all<T, U>(items: Vec<T>, convert: impl Fn(T) -> Result<U, String>) -> Result<Vec<U>, String> {
    items.into_iter().map(convert).collect()
}

fn path(text: &str) -> Result<FieldPath, String> {
    text.parse().map_err(|error| format!("{text}: {error}"))
}

fn watch(watch: wit::Watch) -> Result<WatchSpec, String> {
    let fields = watch.fields.iter().map(|text| path(text));
    Ok(WatchSpec {
        fields: fields.collect::<Result<_, _>>()?,
        indexes: all(watch.indexes, |index| {
            Ok(IndexSpec {
                presence: index.presence,
                unset: index.unset,
                path: path(&index.path)?,
                filter: filter(index.filter),
                order: index.order.as_deref().map(path).transpose()?,
                name: index.name,
            })
        })?,
        name: watch.name,
        source: match watch.source {
            wit::Source::One(one) => Source::One(resource(&one)),
            wit::Source::EveryDeletable(except) => {
                Source::EveryDeletable(except.iter().map(resource).collect())
            }
        },
        namespace: watch.namespace,
        label_selector: watch.label_selector,
        field_selector: watch.field_selector,
        optional: watch.optional,
    })
}

fn filter(filter: wit::IndexFilter) -> IndexFilter {
    match filter {
        wit::IndexFilter::All => IndexFilter::All,
        wit::IndexFilter::Only(values) => IndexFilter::Only(values.into_iter().collect()),
        wit::IndexFilter::Except(values) => IndexFilter::Except(values.into_iter().collect()),
    }
}

fn trigger(trigger: wit::Trigger) -> Trigger {
    Trigger {
        watch: trigger.watch,
        queue: trigger.queue,
        key: match trigger.key {
            wit::TriggerKey::OwnKey => TriggerKey::OwnKey,
            wit::TriggerKey::OwnUid => TriggerKey::OwnUid,
            wit::TriggerKey::Index(index) => TriggerKey::Index(index),
            wit::TriggerKey::Constant(key) => TriggerKey::Constant(key),
        },
        condition: None,
    }
}

fn queue(queue: wit::QueueSpec) -> QueueSpec {
    QueueSpec {
        name: queue.name,
        workers: queue.workers,
        batch: queue.batch,
        priority: queue.priority,
        retry_initial: Duration::from_millis(queue.retry_initial),
        retry_max: Duration::from_millis(queue.retry_max),
        rate: queue.rate.map(|rate| Rate {
            per_second: rate.per_second,
            burst: rate.burst,
        }),
    }
}

fn metric(metric: wit::Metric) -> Result<MetricSpec, String> {
    Ok(MetricSpec {
        kind: match metric.kind.as_str() {
            "counter" => MetricKind::Counter,
            "gauge" => MetricKind::Gauge,
            "histogram" => MetricKind::Histogram,
            "sync-errors" => MetricKind::SyncErrors,
            other => return Err(format!("{}: no kind of metric: {other}", metric.name)),
        },
        name: metric.name,
        help: metric.help,
        labels: metric.labels,
        buckets: metric.buckets,
    })
}
