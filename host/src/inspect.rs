//! `davit inspect`: a guest's manifest and schema, and the roles that it needs.

mod subject;

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use davit_core::grant::Permissions;
use davit_core::manifest::{
    IndexFilter, IndexSpec, Manifest, MetricKind, Source, Trigger, TriggerCondition, TriggerKey,
    WatchSpec,
};
use davit_core::untrusted;
use davit_engine::{Guest, Limits};
use serde_json::{Value, json};

use crate::cli::{Format, InspectArguments};
use crate::commands::{
    self,
    print::{out, serialized},
};
use crate::engine;
use crate::modules::read_whole;
use crate::rbac::{self, Accounts};
use subject::Subject;
pub(crate) use subject::configuration;

/// Prints the description of a module, or what its recorded calls show about it.
pub async fn run(arguments: InspectArguments) -> Result<()> {
    let subject = Subject::new(&arguments)?;
    let (module, config) = (subject.module.clone(), &subject.config);
    if let (Some(runs), Some(journal)) = (arguments.determinism, &arguments.journal) {
        return commands::repeat(&module, journal, runs, arguments.engine).await;
    }
    let name = module.display().to_string();
    let wasm = read_whole(&module);
    let wasm = wasm.with_context(|| format!("the module {name} cannot be read"))?;
    let size = wasm.len();
    let engine = engine::compiling_apart(None, arguments.engine)?;
    let module = engine.load(wasm).await.with_context(|| name.clone())?;
    let config = davit_core::api::encode_config(config)?;
    let limits = Limits {
        instances: 1,
        ..Limits::default()
    };
    let guest = Guest::new(&module, config, limits);
    let guest = guest.await.with_context(|| name.clone())?;
    let manifest = guest.manifest();
    if arguments.rbac {
        return print_roles(manifest, &subject, &arguments);
    }
    let facts = facts(&guest, size);
    match arguments.output.format() {
        Some(format) => out(&serialized(&facts, format)?),
        None => out(&described(&facts, manifest)?),
    }
}

/// The roles that a controller of this guest needs, for `kubectl apply`.
fn print_roles(manifest: &Manifest, subject: &Subject, arguments: &InspectArguments) -> Result<()> {
    let name = arguments.name.as_ref().or(subject.name.as_ref());
    let name = name.unwrap_or(&manifest.name);
    ensure!(
        !rbac::RESERVED.contains(&name.as_str()),
        "the roles of a controller {name} would replace davit-{name}, a role of Davit itself: give the \
         controller another name"
    );
    let account = arguments.service_account.as_ref();
    let accounts = Accounts {
        controller: name,
        namespace: &arguments.namespace.namespace,
        davit: rbac::DAVIT,
        own: account.or(subject.account.as_ref()).map(String::as_str),
    };
    let mut undo = subject.undo.clone();
    if !arguments.undo.is_empty() {
        undo.kinds.clone_from(&arguments.undo);
    }
    let roles = rbac::roles(&rbac::needs_with_undo(manifest, &undo), &accounts);
    let roles = roles.iter().map(|role| serialized(role, Format::Yaml));
    let roles = roles.collect::<Result<Vec<String>>>()?;
    out(&roles.join("\n---\n"))
}

fn facts(guest: &Guest, size: usize) -> Value {
    let (module, manifest) = (guest.module(), guest.manifest());
    json!({
        "name": manifest.name,
        "version": manifest.version,
        "summary": manifest.summary,
        "digest": format!("sha256:{}", module.digest()),
        "bytes": size,
        "world": module.world().to_string(),
        "encoding": guest.encoding().as_str(),
        "imports": module.imports(),
        "watches": manifest.watches.iter().map(watch).collect::<Vec<_>>(),
        "triggers": manifest.triggers.iter().map(|trigger| json!({
            "watch": trigger.watch,
            "queue": trigger.queue,
            "key": trigger_key(&trigger.key),
            "condition": trigger.condition.as_ref().map(trigger_condition),
        })).collect::<Vec<_>>(),
        "queues": manifest.queues.iter().map(|queue| json!({
            "name": queue.name,
            "workers": queue.workers,
            "batch": queue.batch,
            "priority": queue.priority,
        })).collect::<Vec<_>>(),
        "ticks": manifest.ticks.iter().map(|tick| json!({
            "queue": tick.queue,
            "key": tick.key,
            "period": format!("{:?}", tick.period),
        })).collect::<Vec<_>>(),
        "permissions": permissions(manifest),
        "grant": Permissions::declared_by(manifest),
        "metrics": manifest.metrics.iter().map(|metric| json!({
            "name": metric.name,
            "kind": metric_kind(metric.kind),
            "labels": metric.labels,
            "help": metric.help,
        })).collect::<Vec<_>>(),
        "configSchema": serde_json::from_str::<Value>(&manifest.config_schema)
            .unwrap_or_else(|_| Value::String(manifest.config_schema.clone())),
    })
}

fn watch(watch: &WatchSpec) -> Value {
    let fields = watch.fields.iter().map(ToString::to_string);
    let indexes = watch.indexes.iter().map(|index| {
        json!({
            "name": index.name,
            "path": index.path.to_string(),
            "options": index_options(index),
        })
    });
    json!({
        "name": watch.name,
        "source": source(&watch.source),
        "namespace": watch.namespace,
        "labelSelector": watch.label_selector,
        "fieldSelector": watch.field_selector,
        "fields": fields.collect::<Vec<_>>(),
        "indexes": indexes.collect::<Vec<_>>(),
        "optional": watch.optional,
    })
}

/// What an index holds, unless it is every value at its path, in no order.
fn index_options(index: &IndexSpec) -> Vec<String> {
    let quoted = |values: &BTreeSet<String>| {
        let values = values.iter().map(|value| format!("\"{value}\""));
        values.collect::<Vec<_>>().join(", ")
    };
    let presence = index.presence.then(|| "whether there is a value".into());
    let unset = index.unset.then(|| "objects without a value too".into());
    let filter = match &index.filter {
        IndexFilter::All => None,
        IndexFilter::Only(values) => Some(format!("only {}", quoted(values))),
        IndexFilter::Except(values) => Some(format!("except {}", quoted(values))),
    };
    let order = index.order.as_ref().map(|path| format!("by {path}"));
    let all = [presence, unset, filter, order];
    all.into_iter().flatten().collect()
}

fn source(source: &Source) -> String {
    match source {
        Source::One(resource) => resource.to_string(),
        Source::EveryDeletable(except) if except.is_empty() => "every deletable resource".into(),
        Source::EveryDeletable(except) => {
            let except: Vec<String> = except.iter().map(ToString::to_string).collect();
            format!("every deletable resource except {}", except.join(", "))
        }
    }
}

fn trigger_condition(condition: &TriggerCondition) -> String {
    let TriggerCondition {
        index,
        related,
        related_index,
        related_value,
        note_prefix,
    } = condition;
    let note = note_prefix.as_ref().map_or_else(String::new, |prefix| {
        format!(", or there is a note \"{prefix}\" and the key")
    });
    format!(
        "the index \"{index}\" names an object of the watch \"{related}\" that has \
         \"{related_value}\" in the index \"{related_index}\"{note}"
    )
}

fn trigger_key(key: &TriggerKey) -> String {
    match key {
        TriggerKey::OwnKey => "the object's key".into(),
        TriggerKey::OwnUid => "the object's uid".into(),
        TriggerKey::Index(index) => format!("the values of the index \"{index}\""),
        TriggerKey::Constant(key) => format!("\"{key}\""),
    }
}

const fn metric_kind(kind: MetricKind) -> &'static str {
    match kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
        MetricKind::SyncErrors => "sync-errors",
    }
}

/// The permissions that a service account needs for this guest, as `verb resource`: for
/// its watches, its live reads and its writes.
fn permissions(manifest: &Manifest) -> Vec<String> {
    let watches = manifest.watches.iter().map(|watch| match &watch.source {
        Source::One(resource) if resource.group.is_empty() => {
            format!("list, watch {}", resource.plural)
        }
        Source::One(resource) => format!("list, watch {}/{}", resource.group, resource.plural),
        Source::EveryDeletable(_) => "list, watch *".into(),
    });
    let mut all: Vec<String> = watches.collect();
    all.extend(manifest.permissions.iter().map(ToString::to_string));
    all.extend(rbac::reads_before_applies(manifest).map(|one| one.to_string()));
    all.sort();
    all.dedup();
    all
}

/// The description for people.
fn described(facts: &Value, manifest: &Manifest) -> Result<String> {
    let text = |field: &str| facts.get(field).and_then(Value::as_str).unwrap_or_default();
    let bytes = facts
        .get("bytes")
        .and_then(Value::as_u64)
        .unwrap_or_default();
    let mut lines = vec![
        format!(
            "{} {}: {}",
            manifest.name, manifest.version, manifest.summary
        ),
        format!("digest       {}", text("digest")),
        format!("size         {bytes} bytes"),
        format!("interface    {}", text("world")),
        format!("encoding     {}", text("encoding")),
    ];
    let grant = serialized(&Permissions::declared_by(manifest), Format::Yaml)?;
    let metrics = manifest.metrics.iter().map(|metric| metric.name.clone());
    lines.extend(list("imports", strings(facts.get("imports"))));
    lines.extend(list("permissions", permissions(manifest).into_iter()));
    lines.extend(list(
        "spec.permissions that grant them",
        grant.lines().map(str::to_owned),
    ));
    lines.push("watches".to_owned());
    lines.extend(manifest.watches.iter().flat_map(watch_lines));
    lines.push("triggers".to_owned());
    lines.extend(manifest.triggers.iter().map(trigger_line));
    lines.push("queues".to_owned());
    for queue in &manifest.queues {
        lines.push(format!("  {}: {} workers", queue.name, queue.workers));
    }
    for tick in &manifest.ticks {
        lines.push(format!(
            "  {}: \"{}\" every {:?}",
            tick.queue, tick.key, tick.period
        ));
    }
    lines.extend(list("metrics", metrics));
    let schema = manifest.config_schema.trim_end().lines();
    lines.extend(list("configuration schema", schema.map(str::to_owned)));
    // A stranger's module: no text of it may look like a line of this description, or move the
    // cursor to one.
    let lines = lines.iter().map(|line| untrusted::line(line, usize::MAX));
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

/// A watch: its resource, what selects its objects, the fields that are read, and the indexes.
fn watch_lines(watch: &WatchSpec) -> Vec<String> {
    let optional = if watch.optional { ", optional" } else { "" };
    let source = source(&watch.source);
    let mut lines = vec![format!("  {}: {source}{optional}", watch.name)];
    let selections = [
        ("namespace", &watch.namespace),
        ("label selector", &watch.label_selector),
        ("field selector", &watch.field_selector),
    ];
    let selections = selections.iter().filter(|(_, text)| !text.is_empty());
    lines.extend(selections.map(|(title, text)| format!("    {title}: {text}")));
    lines.extend(watch.fields.iter().map(|field| format!("    {field}")));
    lines.extend(watch.indexes.iter().map(index_line));
    lines
}

fn index_line(index: &IndexSpec) -> String {
    let options = index_options(index).into_iter();
    let options = options.map(|option| format!(", {option}"));
    let options = options.collect::<String>();
    format!("    index {}: {}{options}", index.name, index.path)
}

/// What a change in a watch enqueues, and of which objects.
fn trigger_line(trigger: &Trigger) -> String {
    let Trigger {
        watch,
        queue,
        key,
        condition,
    } = trigger;
    let condition = condition.as_ref().map_or_else(String::new, |condition| {
        format!(", if {}", trigger_condition(condition))
    });
    format!("  {watch}: {} to {queue}{condition}", trigger_key(key))
}

fn strings(value: Option<&Value>) -> impl Iterator<Item = String> {
    let values = value.and_then(Value::as_array).into_iter().flatten();
    values.filter_map(|value| value.as_str().map(str::to_owned))
}

fn list(title: &str, items: impl Iterator<Item = String>) -> impl Iterator<Item = String> {
    std::iter::once(title.to_owned()).chain(items.map(|item| format!("  {item}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever reads it decides what the guest may do.
    #[test]
    fn no_text_of_a_guest_looks_like_another_line() {
        let forged = "\u{1b}[2J\u{1b}[H\npermissions\n  none";
        let manifest = Manifest {
            name: "a".into(),
            summary: forged.into(),
            config_schema: forged.into(),
            ..Manifest::default()
        };
        let text = described(&json!({}), &manifest).unwrap();
        assert!(!text.contains('\u{1b}'), "{text}");
        let titles = text.lines().filter(|line| *line == "permissions");
        assert_eq!(titles.count(), 1, "{text}");
    }
}
