//! Replaces values that differ between two runs by their rank or their order of
//! appearance, and drops values that are not part of the contract. The recording was
//! normalised in the same way.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

const POD_SPEC: [&str; 3] = ["nodeName", "terminationGracePeriodSeconds", "tolerations"];
const POD_STATUS: [&str; 6] = [
    "phase",
    "reason",
    "message",
    "conditions",
    "observedGeneration",
    "podIP",
];
const EVENT_DROP: [&str; 4] = [
    "reportingComponent",
    "reportingInstance",
    "deprecatedSource",
    "eventTime",
];
const GENERATED: &str = "bcdfghjklmnpqrstvwxz2456789";

pub(crate) fn normalise(results: Vec<Value>, namespace: &str) -> Value {
    let mut results = Value::Array(results);
    for result in results.as_array_mut().expect("a list") {
        for part in ["body", "events"] {
            if let Some(value) = result.get_mut(part) {
                strip(value);
            }
        }
    }
    let mut names = Names {
        namespace,
        versions: BTreeMap::new(),
        uids: Vec::new(),
    };
    let mut versions = BTreeSet::new();
    collect_versions(&results, &mut versions);
    names.versions = versions
        .into_iter()
        .enumerate()
        .map(|(rank, version)| (version.to_string(), format!("rv:{}", rank + 1)))
        .collect();
    collect_uids(&results, &mut names.uids);
    names.replace(&results, "")
}

fn strip(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(strip),
        Value::Object(fields) => {
            strip_fields(fields);
            fields.values_mut().for_each(strip);
        }
        _ => {}
    }
}

fn strip_fields(fields: &mut Map<String, Value>) {
    fields.remove("managedFields");
    fields.remove("selfLink");
    let kind = fields
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let has = |fields: &Map<String, Value>, section: &str, name: &str| {
        fields
            .get(section)
            .is_some_and(|section| section.get(name).is_some())
    };
    if has(fields, "spec", "containers") {
        keep(fields, "spec", &POD_SPEC);
        drop_default_tolerations(fields);
        keep(fields, "status", &POD_STATUS);
    }
    if kind == "Event" || fields.contains_key("involvedObject") {
        for name in EVENT_DROP {
            fields.remove(name);
        }
    }
    if ["ReplicaSet", "Deployment", "DaemonSet"].contains(&kind.as_str())
        || has(fields, "spec", "template")
    {
        fields.entry("spec").or_insert_with(|| Map::new().into());
        keep(fields, "spec", &["replicas", "selector"]);
        fields.remove("status");
    }
    if kind == "Node" || has(fields, "spec", "podCIDRs") || has(fields, "status", "nodeInfo") {
        keep(fields, "status", &["conditions"]);
        if fields
            .get("status")
            .and_then(Value::as_object)
            .is_some_and(Map::is_empty)
        {
            fields.remove("status");
        }
    }
}

fn keep(fields: &mut Map<String, Value>, section: &str, names: &[&str]) {
    if let Some(Value::Object(section)) = fields.get_mut(section) {
        section.retain(|name, _| names.contains(&name.as_str()));
    }
}

fn drop_default_tolerations(fields: &mut Map<String, Value>) {
    let Some(Value::Object(spec)) = fields.get_mut("spec") else {
        return;
    };
    if let Some(Value::Array(tolerations)) = spec.get_mut("tolerations") {
        tolerations.retain(|toleration| {
            let key = toleration
                .get("key")
                .and_then(Value::as_str)
                .unwrap_or_default();
            !key.starts_with("node.kubernetes.io/")
        });
        if tolerations.is_empty() {
            spec.remove("tolerations");
        }
    }
}

fn collect_versions(value: &Value, versions: &mut BTreeSet<u64>) {
    match value {
        Value::Array(items) => items
            .iter()
            .for_each(|item| collect_versions(item, versions)),
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str().map(str::parse) {
                    Some(Ok(version)) if name == "resourceVersion" && version != 0 => {
                        versions.insert(version);
                    }
                    _ => collect_versions(value, versions),
                }
            }
        }
        _ => {}
    }
}

fn collect_uids(value: &Value, uids: &mut Vec<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect_uids(item, uids)),
        Value::Object(fields) => fields.values().for_each(|value| collect_uids(value, uids)),
        Value::String(text) => {
            replace_spans(text, uid_at, |uid| {
                if !uids.iter().any(|known| known == uid) {
                    uids.push(uid.to_owned());
                }
                String::new()
            });
        }
        _ => {}
    }
}

struct Names<'a> {
    namespace: &'a str,
    versions: BTreeMap<String, String>,
    uids: Vec<String>,
}

impl Names<'_> {
    fn replace(&self, value: &Value, key: &str) -> Value {
        match value {
            Value::Array(items) => items.iter().map(|item| self.replace(item, "")).collect(),
            Value::Object(fields) => fields
                .iter()
                .map(|(name, value)| (self.text(name, ""), self.replace(value, name)))
                .collect(),
            Value::String(text) => self.text(text, key).into(),
            other => other.clone(),
        }
    }

    fn text(&self, text: &str, key: &str) -> String {
        if key == "resourceVersion" {
            return self
                .versions
                .get(text)
                .cloned()
                .unwrap_or_else(|| text.to_owned());
        }
        if key == "continue" && !text.is_empty() {
            return "continue-token".to_owned();
        }
        let text = replace_spans(text, token_at, |_| "TOKEN".to_owned());
        let text = replace_spans(&text, uid_at, |uid| {
            let rank = self.uids.iter().position(|known| known == uid);
            rank.map_or_else(|| "uid:?".to_owned(), |rank| format!("uid:{}", rank + 1))
        });
        let text = replace_spans(&text, time_at, |_| "TIME".to_owned());
        let text = replace_spans(&text, generated_at, |_| "gen-XXXXX".to_owned());
        let text = text.replace(self.namespace, "NS");
        if key == "message" {
            replace_spans(&text, version_at, |_| "(RV)".to_owned())
        } else {
            text
        }
    }
}

/// Replaces every span that `find` matches.
fn replace_spans(
    text: &str,
    find: fn(&str) -> Option<usize>,
    mut replacement: impl FnMut(&str) -> String,
) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let found = find(rest);
        let (span, after) = rest.split_at(found.unwrap_or(first.len_utf8()));
        if found.is_some() {
            result.push_str(&replacement(span));
        } else {
            result.push_str(span);
        }
        rest = after;
    }
    result
}

/// `pattern` has one letter for each character: `h` hex, `d` digit, others stand for
/// themselves.
fn fits(text: &str, pattern: &str) -> bool {
    text.len() >= pattern.len()
        && text
            .bytes()
            .zip(pattern.bytes())
            .all(|(c, wanted)| match wanted {
                b'h' => c.is_ascii_digit() || (b'a'..=b'f').contains(&c),
                b'd' => c.is_ascii_digit(),
                other => c == other,
            })
}

fn uid_at(text: &str) -> Option<usize> {
    const PATTERN: &str = "hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh";
    fits(text, PATTERN).then_some(PATTERN.len())
}

fn time_at(text: &str) -> Option<usize> {
    const SECONDS: &str = "dddd-dd-ddTdd:dd:dd";
    if !fits(text, SECONDS) {
        return None;
    }
    let rest = &text[SECONDS.len()..];
    let fraction = rest.strip_prefix('.').map_or(0, |digits| {
        1 + digits.bytes().take_while(u8::is_ascii_digit).count()
    });
    rest[fraction..]
        .starts_with('Z')
        .then_some(SECONDS.len() + fraction + 1)
}

fn generated_at(text: &str) -> Option<usize> {
    let suffix = text.strip_prefix("gen-")?.get(..5)?;
    suffix.chars().all(|c| GENERATED.contains(c)).then_some(9)
}

/// `eyJ….….…`: a JSON Web Token.
fn token_at(text: &str) -> Option<usize> {
    text.strip_prefix("eyJ")?;
    let part = |c: char| c.is_alphanumeric() || "_-".contains(c);
    let mut length = 0;
    for place in 0..3 {
        let rest = &text[length..];
        let rest = if place == 0 {
            rest
        } else {
            rest.strip_prefix('.')?
        };
        let after = rest.trim_start_matches(part);
        if after.len() == rest.len() {
            return None;
        }
        length = text.len() - after.len();
    }
    Some(length)
}

fn version_at(text: &str) -> Option<usize> {
    let digits = text
        .strip_prefix('(')?
        .bytes()
        .take_while(u8::is_ascii_digit)
        .count();
    (digits > 0 && text[1 + digits..].starts_with(')')).then_some(digits + 2)
}
