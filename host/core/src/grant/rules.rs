//! The rules of an operator, in the form of `spec.permissions`.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SECRETS;
use crate::path::FieldPath;

/// What the guests of a controller may read and write. A guest that declares more does
/// not run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Permissions {
    /// The objects that a guest may watch and read live.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub reads: Vec<ReadRule>,
    /// The objects that a guest may write.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub writes: Vec<WriteRule>,
}

/// Objects that a guest may watch, and get and list live.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ReadRule {
    /// The API group; empty for the core group, `*` for all groups.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The plural name of the resource, such as `pods`; `*` for all resources of the
    /// group.
    #[schemars(length(min = 1))]
    pub resource: String,
    /// The namespaces. If empty, all of them, and cluster-scoped objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub namespaces: Vec<String>,
    /// The fields, each with everything below it, such as `spec.nodeName` or
    /// `status.conditions`. If empty, all fields. The data of Secrets is granted only by
    /// a rule that names the resource `secrets` and the fields; their annotations count
    /// as data, because `kubectl apply` copies the data there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>", extend("x-kubernetes-list-type" = "atomic"))]
    pub fields: Vec<FieldPath>,
}

/// Objects that a guest may write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct WriteRule {
    /// `create`, `patch` or `delete`. An eviction is `create` of `pods/eviction`.
    #[schemars(extend("enum" = WRITE_VERBS))]
    pub verb: String,
    /// The API group; empty for the core group. `*` stands for all groups, except for
    /// those that decide who may do what: `davit.dev`, `apiextensions.k8s.io`,
    /// `rbac.authorization.k8s.io`, `admissionregistration.k8s.io` and
    /// `apiregistration.k8s.io`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The plural name of the resource, with its subresource, such as `pods/status`;
    /// `*` for all resources of the group.
    #[schemars(length(min = 1))]
    pub resource: String,
    /// The namespaces. If empty, all of them except Davit's own, and cluster-scoped
    /// objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub namespaces: Vec<String>,
}

/// The length of rules in a status, in bytes of JSON: the API server takes objects of
/// 1.5 MiB.
const MOST_BYTES: usize = 64 * 1024;

/// The verbs of writes.
pub const WRITE_VERBS: [&str; 3] = ["create", "patch", "delete"];

impl Permissions {
    /// Whether there is no rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty()
    }

    /// These rules and others. Fields of the same objects are in one rule.
    #[must_use]
    pub fn with(&self, others: &Self) -> Self {
        let mut all = self.clone();
        for rule in &others.reads {
            let mut same = all.reads.iter_mut().filter(|one| one.is_like(rule));
            if let Some(one) = same.find(|one| one.fields.is_empty() == rule.fields.is_empty()) {
                one.fields.extend(rule.fields.iter().cloned());
                one.tidy();
            } else {
                all.reads.push(rule.clone());
            }
        }
        let is_new = |rule: &&WriteRule| !self.writes.contains(rule);
        all.writes
            .extend(others.writes.iter().filter(is_new).cloned());
        all
    }

    /// As many of the rules as a status takes.
    #[must_use]
    pub fn shortened(&self) -> Self {
        let mut left = MOST_BYTES;
        let reads = first(&self.reads, &mut left);
        let writes = first(&self.writes, &mut left);
        Self { reads, writes }
    }

    /// Sorts the rules and their fields, and drops repetitions. Fields of the same objects are in
    /// one rule.
    pub(super) fn tidy(&mut self) {
        let (named, whole): (Vec<ReadRule>, Vec<ReadRule>) = std::mem::take(&mut self.reads)
            .into_iter()
            .partition(|rule| !rule.fields.is_empty());
        self.reads = whole;
        let whole = self.reads.len();
        for rule in named {
            let mut same = self.reads.iter_mut().skip(whole);
            match same.find(|one| one.is_like(&rule)) {
                Some(one) => one.fields.extend(rule.fields),
                None => self.reads.push(rule),
            }
        }
        self.reads.iter_mut().for_each(ReadRule::tidy);
        self.reads.sort();
        self.reads.dedup();
        let wide: Vec<ReadRule> = self
            .reads
            .iter()
            .filter(|rule| rule.is_wide())
            .cloned()
            .collect();
        let is_within = |rule: &ReadRule| wide.iter().any(|one| one.is_like(rule));
        self.reads.retain(|rule| rule.is_wide() || !is_within(rule));
        self.writes.sort();
        self.writes.dedup();
    }
}

/// The first rules that are no longer than what is left.
fn first<T: Clone + Serialize>(rules: &[T], left: &mut usize) -> Vec<T> {
    let mut fits = |rule: &&T| {
        let length = serde_json::to_string(rule).map_or(usize::MAX, |text| text.len());
        let rest = left.checked_sub(length);
        *left = rest.unwrap_or(0);
        rest.is_some()
    };
    rules
        .iter()
        .take_while(|rule| fits(rule))
        .cloned()
        .collect()
}

impl ReadRule {
    /// Whether it grants all fields. Only the fields that it names grant the data of
    /// Secrets.
    fn is_wide(&self) -> bool {
        self.fields.is_empty() && self.resource != SECRETS
    }

    /// Whether another rule is for the same objects.
    fn is_like(&self, other: &Self) -> bool {
        self.group == other.group
            && self.resource == other.resource
            && self.namespaces == other.namespaces
    }

    /// Sorts the fields, and drops those that another one covers.
    fn tidy(&mut self) {
        self.fields.sort();
        self.fields.dedup();
        let all = self.fields.clone();
        let covers = |one: &FieldPath, other: &FieldPath| one != other && one.covers(other);
        self.fields
            .retain(|field| !all.iter().any(|one| covers(one, field)));
    }
}

impl fmt::Display for Permissions {
    /// `read pods (spec.nodeName, status.phase); delete pods`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reads = self.reads.iter().map(ToString::to_string);
        let writes = self.writes.iter().map(ToString::to_string);
        let all: Vec<String> = reads.chain(writes).collect();
        f.write_str(&all.join("; "))
    }
}

impl fmt::Display for ReadRule {
    /// `read batch/jobs in default, tools (status.active)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("read ")?;
        write_objects(f, &self.group, &self.resource, &self.namespaces)?;
        if self.fields.is_empty() {
            return Ok(());
        }
        let fields: Vec<String> = self.fields.iter().map(ToString::to_string).collect();
        write!(f, " ({})", fields.join(", "))
    }
}

impl fmt::Display for WriteRule {
    /// `delete pods`, `create batch/jobs in tools`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.verb)?;
        write_objects(f, &self.group, &self.resource, &self.namespaces)
    }
}

fn write_objects(
    f: &mut fmt::Formatter<'_>,
    group: &str,
    resource: &str,
    namespaces: &[String],
) -> fmt::Result {
    if !group.is_empty() {
        write!(f, "{group}/")?;
    }
    f.write_str(resource)?;
    if namespaces.is_empty() {
        return Ok(());
    }
    write!(f, " in {}", namespaces.join(", "))
}
