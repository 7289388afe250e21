//! Manifests: what a valid one promises, so that later code does not check it again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use davit_core::api::strict;
use davit_core::grant::{Grant, Permissions};
use davit_core::manifest::{
    IndexFilter, IndexSpec, Manifest, MetricKind, MetricSpec, Permission, QueueSpec, Rate, Source,
    TickSpec, Trigger, TriggerCondition, TriggerKey, WatchSpec,
};
use davit_core::object::ApiResource;
use davit_core::path::FieldPath;

use super::bytes::Bytes;

const NAMES: [&str; 4] = ["pods", "nodes", "gc", ""];
const GROUPS: [&str; 5] = ["", "apps", "*", "davit.dev", "rbac.authorization.k8s.io"];
const RESOURCES: [&str; 6] = ["pods", "secrets", "*", "pods/status", "nodes", "secrets/x"];
const PATHS: [&str; 10] = [
    "metadata",
    "metadata.name",
    "metadata.annotations",
    "metadata.labels[\"kubernetes.io/os\"]",
    "metadata.ownerReferences[*].uid",
    "spec.nodeName",
    "status.conditions[*].type",
    "data",
    "data.password",
    "spec",
];

/// A manifest.
pub fn run(data: &[u8]) {
    let manifest = manifest(&mut Bytes::new(data));
    if let Err(error) = manifest.validate() {
        assert!(!error.to_string().is_empty());
        return;
    }
    names_resolve(&manifest);
    numbers_are_in_range(&manifest);
    what_it_declares_can_be_granted(&manifest);
}

fn names_resolve(manifest: &Manifest) {
    assert!(!manifest.name.is_empty());
    let distinct = |names: Vec<&String>| {
        assert!(names.iter().all(|name| !name.is_empty()));
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    };
    distinct(manifest.watches.iter().map(|watch| &watch.name).collect());
    distinct(manifest.queues.iter().map(|queue| &queue.name).collect());
    distinct(manifest.metrics.iter().map(|metric| &metric.name).collect());
    let has_queue = |name: &String| manifest.queues.iter().any(|queue| queue.name == *name);
    assert!(manifest.ticks.iter().all(|tick| has_queue(&tick.queue)));
    for trigger in &manifest.triggers {
        assert!(has_queue(&trigger.queue));
        let watch = manifest.watch(&trigger.watch).expect("a watch");
        if let TriggerKey::Index(name) = &trigger.key {
            assert!(watch.indexes.iter().any(|index| index.name == *name));
        }
        if let Some(condition) = &trigger.condition {
            let related = manifest.watch(&condition.related).expect("a watch");
            let indexes = [
                (watch, &condition.index),
                (related, &condition.related_index),
            ];
            for (watch, name) in indexes {
                assert!(watch.indexes.iter().any(|index| index.name == *name));
            }
        }
    }
    for watch in &manifest.watches {
        distinct(watch.indexes.iter().map(|index| &index.name).collect());
        let text = |path: &FieldPath| path.to_string();
        let fields: Vec<String> = watch.fields.iter().map(text).collect();
        for path in watch.indexes.iter().flat_map(IndexSpec::paths).map(text) {
            let is_within = |field: &String| {
                let rest = path.strip_prefix(field.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
            };
            assert!(fields.iter().any(is_within), "{path} in {fields:?}");
        }
        if matches!(watch.source, Source::EveryDeletable(_)) {
            let is_metadata = |field: &String| {
                let rest = field.strip_prefix("metadata");
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
            };
            assert!(fields.iter().all(is_metadata), "{fields:?}");
        }
    }
}

fn numbers_are_in_range(manifest: &Manifest) {
    for queue in &manifest.queues {
        assert!(queue.workers > 0 && queue.batch > 0);
        assert!(Duration::ZERO < queue.retry_initial && queue.retry_initial <= queue.retry_max);
        if let Some(rate) = queue.rate {
            assert!((0.0..f64::INFINITY).contains(&rate.per_second) && rate.burst > 0);
        }
    }
    assert!(manifest.ticks.iter().all(|tick| !tick.period.is_zero()));
    for metric in &manifest.metrics {
        assert!(metric.buckets.iter().all(|bound| bound.is_finite()));
        assert!(metric.buckets.is_sorted_by(|low, high| low < high));
    }
}

/// `davit grant` prints rules, an operator pastes them, and the guest runs.
fn what_it_declares_can_be_granted(manifest: &Manifest) {
    let declared = Permissions::declared_by(manifest);
    let written = serde_json::to_value(&declared).expect("JSON");
    let rules: Permissions = strict::read(&written).expect("rules as they were written");
    assert_eq!(rules, declared);
    let grant = Grant::Rules {
        rules: Arc::new(rules),
        home: "davit".into(),
    };
    let mut missing = grant.missing(manifest);
    // No rule allows every resource of a group that decides who may do what.
    missing.writes.retain(|rule| rule.resource != "*");
    assert_eq!(missing, Permissions::default(), "beyond {declared:?}");
}

fn manifest(bytes: &mut Bytes<'_>) -> Manifest {
    Manifest {
        name: bytes.text(&["podgc", ""]),
        version: String::new(),
        summary: String::new(),
        watches: bytes.list(3, watch),
        triggers: bytes.list(3, trigger),
        queues: bytes.list(2, queue),
        ticks: bytes.list(2, |bytes| TickSpec {
            queue: bytes.text(&NAMES),
            key: bytes.text(&NAMES),
            period: Duration::from_millis(bytes.number()),
        }),
        permissions: bytes.list(4, |bytes| Permission {
            verb: bytes.text(&["get", "list", "create", "patch", "delete", "*"]),
            group: bytes.text(&GROUPS),
            resource: bytes.text(&RESOURCES),
        }),
        metrics: bytes.list(2, metric),
        config_schema: String::new(),
        live_fields: Vec::new(),
    }
}

fn watch(bytes: &mut Bytes<'_>) -> WatchSpec {
    let name = bytes.text(&NAMES);
    let source = if bytes.yes() {
        Source::EveryDeletable(bytes.list(2, resource))
    } else {
        Source::One(resource(bytes))
    };
    WatchSpec {
        name,
        source,
        namespace: bytes.text(&["", "davit", "default"]),
        label_selector: String::new(),
        field_selector: String::new(),
        fields: bytes.list(4, path),
        indexes: bytes.list(2, index),
        optional: bytes.yes(),
    }
}

fn resource(bytes: &mut Bytes<'_>) -> ApiResource {
    ApiResource {
        group: bytes.text(&GROUPS),
        version: "v1".to_owned(),
        plural: bytes.text(&RESOURCES),
    }
}

fn path(bytes: &mut Bytes<'_>) -> FieldPath {
    let text = bytes.text(&PATHS);
    text.parse()
        .unwrap_or_else(|_| PATHS[0].parse().expect("a path"))
}

fn index(bytes: &mut Bytes<'_>) -> IndexSpec {
    IndexSpec {
        name: bytes.text(&NAMES),
        path: path(bytes),
        presence: bytes.yes(),
        unset: bytes.yes(),
        filter: IndexFilter::All,
        order: bytes.option(path),
    }
}

fn trigger(bytes: &mut Bytes<'_>) -> Trigger {
    Trigger {
        watch: bytes.text(&NAMES),
        queue: bytes.text(&NAMES),
        key: match bytes.byte() % 4 {
            0 => TriggerKey::OwnKey,
            1 => TriggerKey::OwnUid,
            2 => TriggerKey::Index(bytes.text(&NAMES)),
            _ => TriggerKey::Constant(bytes.text(&NAMES)),
        },
        condition: bytes.byte().is_multiple_of(4).then(|| TriggerCondition {
            index: bytes.text(&NAMES),
            related: bytes.text(&NAMES),
            related_index: bytes.text(&NAMES),
            related_value: bytes.text(&NAMES),
            note_prefix: None,
        }),
    }
}

fn queue(bytes: &mut Bytes<'_>) -> QueueSpec {
    QueueSpec {
        name: bytes.text(&NAMES),
        workers: u32::from(bytes.byte()),
        batch: u32::from(bytes.byte()),
        priority: 0,
        retry_initial: Duration::from_millis(bytes.number()),
        retry_max: Duration::from_millis(bytes.number()),
        rate: bytes.option(|bytes| Rate {
            per_second: bytes.float(),
            burst: u32::from(bytes.byte()),
        }),
    }
}

fn metric(bytes: &mut Bytes<'_>) -> MetricSpec {
    let kinds = [
        MetricKind::Counter,
        MetricKind::Gauge,
        MetricKind::Histogram,
        MetricKind::SyncErrors,
    ];
    MetricSpec {
        name: bytes.text(&NAMES),
        kind: kinds[usize::from(bytes.byte()) % kinds.len()],
        help: String::new(),
        labels: bytes.list(2, |bytes| bytes.text(&NAMES)),
        buckets: bytes.list(3, Bytes::float),
    }
}
