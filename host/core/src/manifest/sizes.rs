//! The bounds of a manifest: the host keeps all of it, and looks through it often.

use std::time::Duration;

use super::{
    IndexFilter, IndexSpec, LiveFields, Manifest, ManifestError, MetricSpec, QueueSpec, Source,
    WatchSpec,
};

/// The most watches, queues, ticks or metrics.
const MOST_DECLARED: usize = 64;
/// The most triggers or permissions.
const MOST_RULES: usize = 256;
/// The most fields of a watch, exceptions of a watch of every resource, or values of an
/// index's filter.
const MOST_FIELDS: usize = 256;
/// The most indexes of a watch.
const MOST_INDEXES: usize = 32;
/// The most labels of a metric.
const MOST_LABELS: usize = 16;
/// The most buckets of a metric.
const MOST_BUCKETS: usize = 64;
/// The most workers of a queue, or items of a batch.
const MOST_WORKERS: u32 = 10_000;
/// The longest name, path, key or label, in bytes.
const LONGEST_NAME: usize = 1024;
/// The longest summary, help or selector, in bytes.
const LONGEST_TEXT: usize = 4096;
/// The longest schema of a configuration, in bytes.
const LONGEST_SCHEMA: usize = 256 << 10;
/// The shortest period of a tick.
const SHORTEST_TICK: Duration = Duration::from_millis(100);

/// Checks that a manifest is within the bounds.
pub(super) fn check(manifest: &Manifest) -> Result<(), ManifestError> {
    text("bytes of the name", &manifest.name, LONGEST_NAME)?;
    text("bytes of the version", &manifest.version, LONGEST_NAME)?;
    text("bytes of the summary", &manifest.summary, LONGEST_TEXT)?;
    let schema = manifest.config_schema.len();
    at_most("bytes of the schema", "", schema, LONGEST_SCHEMA)?;
    for (item, found, most) in [
        ("watches", manifest.watches.len(), MOST_DECLARED),
        ("queues", manifest.queues.len(), MOST_DECLARED),
        ("ticks", manifest.ticks.len(), MOST_DECLARED),
        ("metrics", manifest.metrics.len(), MOST_DECLARED),
        ("triggers", manifest.triggers.len(), MOST_RULES),
        ("permissions", manifest.permissions.len(), MOST_RULES),
        ("live fields", manifest.live_fields.len(), MOST_RULES),
    ] {
        at_most(item, "", found, most)?;
    }
    manifest.watches.iter().try_for_each(check_watch)?;
    manifest.queues.iter().try_for_each(check_queue)?;
    manifest.metrics.iter().try_for_each(check_metric)?;
    for trigger in &manifest.triggers {
        if let super::TriggerKey::Constant(key) = &trigger.key {
            text("bytes of the key", key, LONGEST_NAME)?;
        }
        if let Some(condition) = &trigger.condition {
            text("bytes of the value", &condition.related_value, LONGEST_NAME)?;
            let prefix = condition.note_prefix.as_deref().unwrap_or_default();
            text("bytes of the prefix", prefix, LONGEST_NAME)?;
        }
    }
    for tick in &manifest.ticks {
        text("bytes of the key", &tick.key, LONGEST_NAME)?;
        if tick.period < SHORTEST_TICK {
            return Err(ManifestError::OutOfRange {
                item: "period",
                name: tick.key.clone(),
                value: format!("{} ms", tick.period.as_millis()),
                must: "100 ms or more",
            });
        }
    }
    manifest
        .live_fields
        .iter()
        .try_for_each(check_live_fields)?;
    for permission in &manifest.permissions {
        text("bytes of the group", &permission.group, LONGEST_NAME)?;
        text("bytes of the resource", &permission.resource, LONGEST_NAME)?;
    }
    Ok(())
}

fn check_watch(watch: &WatchSpec) -> Result<(), ManifestError> {
    let name = &watch.name;
    text("bytes of the name", name, LONGEST_NAME)?;
    text("bytes of the namespace", &watch.namespace, LONGEST_NAME)?;
    for selector in [&watch.label_selector, &watch.field_selector] {
        at_most("bytes of a selector", name, selector.len(), LONGEST_TEXT)?;
    }
    at_most("fields", name, watch.fields.len(), MOST_FIELDS)?;
    at_most("indexes", name, watch.indexes.len(), MOST_INDEXES)?;
    if let Source::EveryDeletable(except) = &watch.source {
        at_most("exceptions", name, except.len(), MOST_FIELDS)?;
    }
    let orders = watch.indexes.iter().flat_map(IndexSpec::paths);
    for path in watch.fields.iter().chain(orders) {
        let bytes = path.to_string().len();
        at_most("bytes of a path", name, bytes, LONGEST_NAME)?;
    }
    for index in &watch.indexes {
        text("bytes of the name", &index.name, LONGEST_NAME)?;
        if let IndexFilter::Only(values) | IndexFilter::Except(values) = &index.filter {
            at_most("values", &index.name, values.len(), MOST_FIELDS)?;
            for value in values {
                text("bytes of the value", value, LONGEST_NAME)?;
            }
        }
    }
    Ok(())
}

fn check_live_fields(read: &LiveFields) -> Result<(), ManifestError> {
    let name = &read.resource;
    text("bytes of the group", &read.group, LONGEST_NAME)?;
    text("bytes of the resource", name, LONGEST_NAME)?;
    at_most("fields", name, read.fields.len(), MOST_FIELDS)?;
    let mut paths = read.fields.iter();
    paths.try_for_each(|path| {
        at_most(
            "bytes of a path",
            name,
            path.to_string().len(),
            LONGEST_NAME,
        )
    })
}

fn check_queue(queue: &QueueSpec) -> Result<(), ManifestError> {
    text("bytes of the name", &queue.name, LONGEST_NAME)?;
    for (item, found) in [("workers", queue.workers), ("items", queue.batch)] {
        at_most(item, &queue.name, found as usize, MOST_WORKERS as usize)?;
    }
    Ok(())
}

fn check_metric(metric: &MetricSpec) -> Result<(), ManifestError> {
    let name = &metric.name;
    text("bytes of the name", name, LONGEST_NAME)?;
    at_most("bytes of help", name, metric.help.len(), LONGEST_TEXT)?;
    at_most("labels", name, metric.labels.len(), MOST_LABELS)?;
    at_most("buckets", name, metric.buckets.len(), MOST_BUCKETS)?;
    let mut labels = metric.labels.iter();
    labels.try_for_each(|label| text("bytes of the label", label, LONGEST_NAME))
}

fn text(item: &'static str, text: &str, most: usize) -> Result<(), ManifestError> {
    at_most(item, text, text.len(), most)
}

fn at_most(item: &'static str, of: &str, found: usize, most: usize) -> Result<(), ManifestError> {
    if found <= most {
        return Ok(());
    }
    let of = crate::untrusted::line(of, 64);
    Err(ManifestError::TooMany {
        item,
        of: if of.is_empty() {
            of
        } else {
            format!(" of \"{of}\"")
        },
        found,
        most,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{MetricKind, Permission, TickSpec, Trigger, TriggerKey};
    use crate::object::ApiResource;

    fn manifest() -> Manifest {
        Manifest {
            name: "test".into(),
            version: "1".into(),
            watches: vec![watch("pods")],
            queues: vec![queue("work")],
            ticks: vec![TickSpec {
                queue: "work".into(),
                key: "tick".into(),
                period: SHORTEST_TICK,
            }],
            metrics: vec![metric("m")],
            ..Manifest::default()
        }
    }

    fn watch(name: &str) -> WatchSpec {
        WatchSpec {
            fields: vec!["metadata.name".parse().unwrap()],
            ..WatchSpec::new(name, Source::One(ApiResource::new("", "v1", "pods")))
        }
    }

    fn queue(name: &str) -> QueueSpec {
        QueueSpec::new(name)
    }

    fn metric(name: &str) -> MetricSpec {
        MetricSpec {
            name: name.into(),
            kind: MetricKind::Counter,
            help: String::new(),
            labels: vec![],
            buckets: vec![],
        }
    }

    /// The error of a manifest with this change.
    fn refused(change: impl FnOnce(&mut Manifest)) -> String {
        let mut manifest = manifest();
        manifest.validate().unwrap();
        change(&mut manifest);
        manifest.validate().unwrap_err().to_string()
    }

    fn names(most: usize) -> impl Iterator<Item = String> {
        (0..=most).map(|number| format!("n{number}"))
    }

    #[test]
    fn every_list_of_a_manifest_is_bounded() {
        let all = |name: String| (watch(&name), queue(&name), metric(&name));
        let (watches, queues, metrics): (Vec<_>, Vec<_>, Vec<_>) = {
            let mut lists = (vec![], vec![], vec![]);
            for (watch, queue, metric) in names(MOST_DECLARED).map(all) {
                lists.0.push(watch);
                lists.1.push(queue);
                lists.2.push(metric);
            }
            lists
        };
        let trigger = |_| Trigger::new("pods", "work", TriggerKey::OwnKey);
        let permission = |resource| Permission::new("get", "", resource);
        let tick = |key| TickSpec {
            queue: "work".into(),
            key,
            period: SHORTEST_TICK,
        };
        let paths = |most| names(most).map(|name| name.parse().unwrap()).collect();
        let index = |name: String| IndexSpec::new(&name, "metadata.name".parse().unwrap());
        let errors = [
            refused(|it| it.watches = watches),
            refused(|it| it.queues = queues),
            refused(|it| it.metrics = metrics),
            refused(|it| it.ticks = names(MOST_DECLARED).map(tick).collect()),
            refused(|it| it.triggers = names(MOST_RULES).map(trigger).collect()),
            refused(|it| it.permissions = names(MOST_RULES).map(permission).collect()),
            refused(|it| it.watches[0].fields = paths(MOST_FIELDS)),
            refused(|it| it.watches[0].indexes = names(MOST_INDEXES).map(index).collect()),
            refused(|it| it.metrics[0].labels = names(MOST_LABELS).collect()),
            refused(|it| it.queues[0].workers = MOST_WORKERS + 1),
            refused(|it| it.queues[0].batch = MOST_WORKERS + 1),
        ];
        assert_eq!(
            errors,
            [
                "65 watches: the most is 64",
                "65 queues: the most is 64",
                "65 metrics: the most is 64",
                "65 ticks: the most is 64",
                "257 triggers: the most is 256",
                "257 permissions: the most is 256",
                "257 fields of \"pods\": the most is 256",
                "33 indexes of \"pods\": the most is 32",
                "17 labels of \"m\": the most is 16",
                "10001 workers of \"work\": the most is 10000",
                "10001 items of \"work\": the most is 10000",
            ]
        );
    }

    #[test]
    fn every_text_of_a_manifest_is_bounded() {
        let long = || "x".repeat(LONGEST_TEXT + 1);
        for error in [
            refused(|it| it.name = long()),
            refused(|it| it.version = long()),
            refused(|it| it.summary = long()),
            refused(|it| it.config_schema = "x".repeat(LONGEST_SCHEMA + 1)),
            refused(|it| it.watches[0].name = long()),
            refused(|it| it.watches[0].label_selector = long()),
            refused(|it| it.watches[0].fields = vec![long().parse().unwrap()]),
            refused(|it| it.queues[0].name = long()),
            refused(|it| it.ticks[0].key = long()),
            refused(|it| it.metrics[0].help = long()),
        ] {
            assert!(error.contains(" bytes of "), "{error}");
            assert!(error.len() < 300, "{error}");
        }
    }

    #[test]
    fn a_tick_comes_at_most_ten_times_a_second() {
        assert_eq!(
            refused(|it| it.ticks[0].period = Duration::from_millis(99)),
            "period of \"tick\" is 99 ms: it must be 100 ms or more"
        );
    }
}
