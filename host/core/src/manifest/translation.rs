//! The translation of a manifest from the types that are generated from `wit/`.

/// Defines the module `translation` with `fn manifest(wit::Manifest, conditions, reads) ->
/// Result<Manifest, ManifestError>`, which validates the manifest.
///
/// The arguments are the generated module `manifests` of `wit/`, and the generated types of a
/// trigger's condition and of the fields of live reads. The generator of the host and that of
/// guests make types of their own with the same names and fields, so one text translates both.
#[macro_export]
macro_rules! manifest_translation {
    ($wit:ident, $condition:ty, $live_fields:ty) => {
        mod translation {
            use std::time::Duration;

            use $crate::manifest::{
                IndexFilter, IndexSpec, LiveFields, Manifest, ManifestError, MetricKind,
                MetricSpec, Permission, QueueSpec, Rate, Source, TickSpec, Trigger,
                TriggerCondition, TriggerKey, WatchSpec,
            };
            use $crate::object::ApiResource;
            use $crate::path::FieldPath;

            use super::$wit as wit;

            pub(crate) fn manifest(
                manifest: wit::Manifest,
                conditions: Vec<$condition>,
                reads: Vec<$live_fields>,
            ) -> Result<Manifest, ManifestError> {
                let mut manifest = Manifest {
                    name: manifest.name,
                    version: manifest.version,
                    summary: manifest.summary,
                    watches: all(manifest.watches, watch)?,
                    triggers: manifest.triggers.into_iter().map(trigger).collect(),
                    queues: manifest.queues.into_iter().map(queue).collect(),
                    ticks: manifest.ticks.into_iter().map(tick).collect(),
                    permissions: manifest.permissions.into_iter().map(permission).collect(),
                    metrics: all(manifest.metrics, metric)?,
                    config_schema: manifest.config_schema,
                    live_fields: all(reads, live_fields)?,
                };
                // Each condition is compared with each trigger.
                manifest.check_sizes()?;
                for condition in conditions {
                    let about = TriggerCondition {
                        index: condition.index,
                        related: condition.related,
                        related_index: condition.related_index,
                        related_value: condition.related_value,
                        note_prefix: condition.note_prefix,
                    };
                    manifest.set_condition(&condition.watch, &condition.queue, &about)?;
                }
                manifest.validate()?;
                Ok(manifest)
            }

            fn all<T, U>(
                items: Vec<T>,
                convert: impl Fn(T) -> Result<U, ManifestError>,
            ) -> Result<Vec<U>, ManifestError> {
                items.into_iter().map(convert).collect()
            }

            fn watch(watch: wit::Watch) -> Result<WatchSpec, ManifestError> {
                let path = |text: &String| -> Result<FieldPath, ManifestError> {
                    text.parse().map_err(|source| ManifestError::Path {
                        watch: watch.name.clone(),
                        source,
                    })
                };
                let fields = watch.fields.iter().map(path).collect::<Result<_, _>>()?;
                let indexes = all(watch.indexes, |index| {
                    Ok(IndexSpec {
                        presence: index.presence,
                        unset: index.unset,
                        path: path(&index.path)?,
                        filter: filter(index.filter),
                        order: index.order.as_ref().map(path).transpose()?,
                        name: index.name,
                    })
                })?;
                Ok(WatchSpec {
                    fields,
                    indexes,
                    name: watch.name,
                    source: match watch.source {
                        wit::Source::One(one) => Source::One(resource(one)),
                        wit::Source::EveryDeletable(except) => {
                            Source::EveryDeletable(except.into_iter().map(resource).collect())
                        }
                    },
                    namespace: watch.namespace,
                    label_selector: watch.label_selector,
                    field_selector: watch.field_selector,
                    optional: watch.optional,
                })
            }

            fn resource(resource: wit::ApiResource) -> ApiResource {
                ApiResource {
                    group: resource.group,
                    version: resource.version,
                    plural: resource.plural,
                }
            }

            fn filter(filter: wit::IndexFilter) -> IndexFilter {
                match filter {
                    wit::IndexFilter::All => IndexFilter::All,
                    wit::IndexFilter::Only(values) => {
                        IndexFilter::Only(values.into_iter().collect())
                    }
                    wit::IndexFilter::Except(values) => {
                        IndexFilter::Except(values.into_iter().collect())
                    }
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

            fn tick(tick: wit::Tick) -> TickSpec {
                TickSpec {
                    queue: tick.queue,
                    key: tick.key,
                    period: Duration::from_millis(tick.period),
                }
            }

            fn permission(permission: wit::Permission) -> Permission {
                Permission {
                    verb: permission.verb,
                    group: permission.group,
                    resource: permission.resource,
                }
            }

            fn live_fields(reads: $live_fields) -> Result<LiveFields, ManifestError> {
                let path = |text: String| -> Result<FieldPath, ManifestError> {
                    text.parse().map_err(|source| ManifestError::Path {
                        watch: format!("live reads of {}", reads.resource),
                        source,
                    })
                };
                Ok(LiveFields {
                    fields: all(reads.fields, path)?,
                    group: reads.group,
                    resource: reads.resource,
                })
            }

            fn metric(metric: wit::Metric) -> Result<MetricSpec, ManifestError> {
                let kind = match metric.kind.as_str() {
                    "counter" => MetricKind::Counter,
                    "gauge" => MetricKind::Gauge,
                    "histogram" => MetricKind::Histogram,
                    "sync-errors" => MetricKind::SyncErrors,
                    _ => {
                        return Err(ManifestError::Unknown {
                            item: "the kind",
                            name: metric.name,
                            value: metric.kind,
                            known: "counter, gauge, histogram and sync-errors",
                        });
                    }
                };
                Ok(MetricSpec {
                    name: metric.name,
                    kind,
                    help: metric.help,
                    labels: metric.labels,
                    buckets: metric.buckets,
                })
            }
        }
    };
}
