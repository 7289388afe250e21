//! Reads the `OpenAPI` document (version 2) that an API server publishes about itself.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value};

use super::{BuiltIn, Kind};

const GROUP_VERSION_KIND: &str = "x-kubernetes-group-version-kind";
const REFERENCE: &str = "#/definitions/";

/// A resource of a path: its group, plural and version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Resource {
    group: String,
    plural: String,
    version: Reverse<Priority>,
}

/// A version in Kubernetes' order: stable versions last, each stage by its numbers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Priority {
    stage: Stage,
    major: u32,
    minor: u32,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Other,
    Alpha,
    Beta,
    Stable,
}

/// The kinds of the document's paths, and the types that are below them.
pub(super) fn kinds(document: &Value) -> Result<BuiltIn> {
    let version = document.pointer("/info/version").and_then(Value::as_str);
    let version = version.context("it has no info.version")?;
    let paths = object(document, "paths")?;
    let definitions = object(document, "definitions")?;
    let roots = roots(definitions);

    let mut found = BTreeMap::new();
    for (path, operations) in paths {
        if let Some((resource, is_namespaced)) = collection(path)
            && let Some(kind) = kind_of(operations, &resource)
        {
            // Of a namespaced resource both paths are collections.
            let (_, scope) = found.entry(resource).or_insert((kind, false));
            *scope |= is_namespaced;
        }
    }
    let mut built_in = BuiltIn {
        version: version.to_owned(),
        ..BuiltIn::default()
    };
    let mut pending = Vec::new();
    for (resource, (kind, is_namespaced)) in found {
        let version = &resource.version.0.text;
        let key = [&resource.group, version, &kind].map(String::as_str);
        let root = roots.get(&key);
        let root = root.with_context(|| format!("no definition is of the kind {key:?}"))?;
        pending.push(*root);
        let root = short(root)?;
        built_in.kinds.push(Kind {
            api_version: match resource.group.as_str() {
                "" => version.clone(),
                group => format!("{group}/{version}"),
            },
            plural: resource.plural,
            name: kind,
            is_namespaced,
            root,
        });
    }
    built_in.types = types(definitions, pending)?;
    Ok(built_in)
}

/// The definition of each kind, by group, version and kind.
fn roots(definitions: &Map<String, Value>) -> BTreeMap<[&str; 3], &str> {
    let mut roots = BTreeMap::new();
    for (name, definition) in definitions {
        let kinds = definition.get(GROUP_VERSION_KIND).and_then(Value::as_array);
        for kind in kinds.into_iter().flatten() {
            roots.insert(group_version_kind(kind), name.as_str());
        }
    }
    roots
}

fn group_version_kind(value: &Value) -> [&str; 3] {
    ["group", "version", "kind"].map(|field| {
        let text = value.get(field).and_then(Value::as_str);
        text.unwrap_or_default()
    })
}

/// The resource of a collection's path, and whether the path is of one namespace; none
/// for the paths of single objects, of subresources and of anything else.
fn collection(path: &str) -> Option<(Resource, bool)> {
    let rest = path.strip_prefix("/api/").map(|rest| ("", rest));
    let in_group = || path.strip_prefix("/apis/")?.split_once('/');
    let (group, rest) = rest.or_else(in_group)?;
    let (version, rest) = rest.split_once('/')?;
    let within = rest.strip_prefix("namespaces/{namespace}/");
    let plural = within.unwrap_or(rest);
    let is_name = !plural.is_empty() && !plural.contains(['/', '{']);
    let resource = Resource {
        group: group.to_owned(),
        plural: plural.to_owned(),
        version: Reverse(Priority::of(version)),
    };
    is_name.then_some((resource, within.is_some()))
}

/// The kind that the operations of a collection list or create.
fn kind_of(operations: &Value, resource: &Resource) -> Option<String> {
    let mut operations = ["get", "post"].iter().filter_map(|verb| {
        let kind = operations.get(verb)?.get(GROUP_VERSION_KIND)?;
        let [group, version, kind] = group_version_kind(kind);
        // As `pods/eviction`, a path may be about a kind of another group.
        let is_own = group == resource.group && version == resource.version.0.text;
        is_own.then(|| kind.to_owned())
    });
    operations.next()
}

/// The fields of these definitions and of all that they refer to.
fn types<'a>(
    definitions: &'a Map<String, Value>,
    mut pending: Vec<&'a str>,
) -> Result<BTreeMap<String, BTreeMap<String, String>>> {
    let mut seen = BTreeSet::new();
    let mut types = BTreeMap::new();
    while let Some(name) = pending.pop() {
        if !seen.insert(name) {
            continue;
        }
        let definition = definition(definitions, name)?;
        let own = short(name)?;
        let package = own.rsplit_once('.').map_or("", |(package, _)| package);
        let mut fields = BTreeMap::new();
        for (field, value) in object(definition, "properties")? {
            let spelling = spelling(definitions, value, package, &mut pending)
                .with_context(|| format!("the field {field} of {name}"))?;
            ensure!(is_word(field), "{name} has a field {field:?}");
            fields.insert(field.clone(), spelling);
        }
        let other = types.insert(own, fields);
        ensure!(other.is_none(), "two types have the short name of {name}");
    }
    Ok(types)
}

/// How a type is spelled in the fields of a package. Adds the object that it names to
/// those that are pending.
fn spelling<'a>(
    definitions: &'a Map<String, Value>,
    value: &'a Value,
    package: &str,
    pending: &mut Vec<&'a str>,
) -> Result<String> {
    if let Some(name) = value.get("$ref").and_then(Value::as_str) {
        let name = name.strip_prefix(REFERENCE);
        let name = name.context("a reference that leads out of the definitions")?;
        let definition = definition(definitions, name)?;
        if definition.get("properties").is_none() {
            return scalar_named(name, definition);
        }
        pending.push(name);
        let short = short(name)?;
        let own = short.strip_prefix(package);
        let own = own.and_then(|rest| rest.strip_prefix('.'));
        return Ok(own.unwrap_or(&short).to_owned());
    }
    let mut inner = |value| spelling(definitions, value, package, pending);
    match value.get("type").and_then(Value::as_str) {
        Some("array") => {
            let items = value.get("items").context("a list without items")?;
            Ok(format!("[]{}", inner(items)?))
        }
        Some("object") => match value.get("additionalProperties") {
            Some(values) if values.is_object() => Ok(format!("{{}}{}", inner(values)?)),
            _ => Ok("any".to_owned()),
        },
        _ => scalar(value),
    }
}

/// The type of a definition without fields.
fn scalar_named(name: &str, definition: &Value) -> Result<String> {
    if name.ends_with(".resource.Quantity") {
        return Ok("quantity".to_owned());
    }
    scalar(definition)
}

fn scalar(value: &Value) -> Result<String> {
    let text = |field| value.get(field).and_then(Value::as_str);
    let scalar = match (text("type"), text("format")) {
        (Some("string"), Some("date-time")) => "time",
        (Some("string"), Some("byte")) => "bytes",
        (Some("string"), Some("int-or-string")) => "int-or-string",
        (Some("string"), None) => "string",
        (Some("integer"), _) => "integer",
        (Some("number"), _) => "number",
        (Some("boolean"), _) => "boolean",
        // Of `RawExtension`, `FieldsV1` and `JSON` the document describes nothing.
        (Some("object") | None, None) => "any",
        (kind, format) => bail!("the type {kind:?} with the format {format:?} is not known"),
    };
    Ok(scalar.to_owned())
}

/// The last three parts of a definition's name: `core.v1.PodSpec`.
fn short(name: &str) -> Result<String> {
    let parts: Vec<&str> = name.rsplitn(4, '.').take(3).collect();
    let [name, version, package] = parts.as_slice() else {
        bail!("the definition {name} has no package");
    };
    // Otherwise the name would be read as a scalar.
    let is_type = name.starts_with(|first: char| first.is_ascii_uppercase()) && is_word(name);
    ensure!(is_type, "a type has the name {name:?}");
    Ok([*package, *version, *name].join("."))
}

/// Whether a name is one word of the file.
fn is_word(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic())
}

fn definition<'a>(definitions: &'a Map<String, Value>, name: &str) -> Result<&'a Value> {
    let definition = definitions.get(name);
    definition.with_context(|| format!("there is no definition {name}"))
}

fn object<'a>(value: &'a Value, field: &str) -> Result<&'a Map<String, Value>> {
    let object = value.get(field).and_then(Value::as_object);
    object.with_context(|| format!("it has no {field}"))
}

impl Priority {
    fn of(version: &str) -> Self {
        let parsed = version.strip_prefix('v').and_then(Self::parse);
        let (major, stage, minor) = parsed.unwrap_or((0, Stage::Other, 0));
        Self {
            stage,
            major,
            minor,
            text: version.to_owned(),
        }
    }

    fn parse(numbers: &str) -> Option<(u32, Stage, u32)> {
        for (word, stage) in [("alpha", Stage::Alpha), ("beta", Stage::Beta)] {
            if let Some((major, minor)) = numbers.split_once(word) {
                return Some((major.parse().ok()?, stage, minor.parse().ok()?));
            }
        }
        Some((numbers.parse().ok()?, Stage::Stable, 0))
    }
}
