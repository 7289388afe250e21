//! The objects that rules are tested on, as an API server would list them for the watches of the
//! rules.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use davit_core::mapping::{Mapping, ServedResource};
use davit_core::object::ApiResource;
use davit_sim::custom;
use davit_sim::model::ListOptions;
use davit_sim::target::Target;
use davit_sim::{Config, Model, Time};
use jiff::Timestamp;
use policy::RuleMatch;
use policy::explain::contract::manifests::{Source, Watch};
use serde_json::{Value, json};

use super::files;
use crate::commands::print::text_at;

/// The objects for one policy.
pub(super) struct Objects {
    /// What each watch lists.
    pub(super) lists: BTreeMap<String, Vec<Value>>,
    /// The resources that are served.
    pub(super) served: Mapping,
    /// Whether every kind counts as served: files have no list of what a cluster serves.
    pub(super) has_every_kind: bool,
    /// Objects of a rule's resource that its `match` does not select, by the rule's name: what
    /// does not fit.
    pub(super) misses: BTreeMap<String, Vec<(Coordinates, String)>>,
    /// All objects, if more are known than those that the watches list.
    pub(super) all: BTreeSet<Coordinates>,
}

/// An object by its `apiVersion`, `kind`, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Coordinates {
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) api_version: String,
}

impl Coordinates {
    pub(super) fn of(object: &Value) -> Self {
        let text = |pointer| text_at(object, pointer).to_owned();
        Self {
            kind: text("/kind"),
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
            api_version: text("/apiVersion"),
        }
    }
}

/// The resource of a watch. The rules have no watch over several.
pub(super) fn resource_of(watch: &Watch) -> Option<ApiResource> {
    match &watch.source {
        Source::One(it) => Some(ApiResource::new(&it.group, &it.version, &it.plural)),
        Source::EveryDeletable(_) => None,
    }
}

/// Objects of files, on an API server in memory.
pub(super) struct Store {
    model: Model,
    now: Time,
    given: BTreeSet<Coordinates>,
}

impl Store {
    /// Loads the objects of files and directories. What the API server would set is set: an
    /// object without a creation time is as old as `now`. Resources of the rules that are not
    /// built in are served.
    pub(super) fn load(paths: &[PathBuf], now: Timestamp, rules: &[ApiResource]) -> Result<Self> {
        let now = Time::from(now);
        let model = Model::new(Config::default(), now).map_err(|status| anyhow!(status.message))?;
        let given = BTreeSet::new();
        let mut store = Self { model, now, given };
        let mut documents = Vec::new();
        for path in paths {
            let files = files::below(path)?;
            if files.is_empty() {
                bail!(
                    "{} has no file with the end .yaml, .yml or .json",
                    path.display()
                );
            }
            for file in files {
                let of_file = files::documents(&file)?.into_iter();
                documents.extend(of_file.map(|document| (file.clone(), document)));
            }
        }
        // Definitions first: they say how their kinds are called.
        documents
            .sort_by_key(|(_, document)| text_at(document, "/kind") != "CustomResourceDefinition");
        for (file, document) in documents {
            store.add(&file, document, rules)?;
        }
        store.forget_namespaces()?;
        for resource in rules {
            store.serve(resource)?;
        }
        Ok(store)
    }

    fn add(&mut self, file: &Path, document: Value, rules: &[ApiResource]) -> Result<()> {
        let Coordinates {
            kind,
            name,
            api_version,
            namespace,
        } = Coordinates::of(&document);
        let refused = |why: String| anyhow!("{}: {kind} {name:?}: {why}", file.display());
        if kind.is_empty() || api_version.is_empty() {
            return Err(refused("an object has apiVersion and kind".to_owned()));
        }
        if self.model.resource_of_kind(&api_version, &kind).is_none() {
            let resource = resource_like(&api_version, &kind, rules);
            self.define(&resource, &kind, !namespace.is_empty())
                .map_err(refused)?;
        }
        let stored = self.import(document).map_err(refused)?;
        self.given.insert(Coordinates::of(&stored));
        Ok(())
    }

    /// Serves a resource of the rules that no object has.
    fn serve(&mut self, resource: &ApiResource) -> Result<()> {
        let ApiResource {
            group,
            version,
            plural,
        } = resource;
        if self.model.resource(group, version, plural).is_none() {
            let kind = kind_like(plural);
            let refused = |why| anyhow!("{resource}: {why}");
            self.define(resource, &kind, true).map_err(refused)?;
        }
        Ok(())
    }

    /// Serves a custom resource.
    fn define(
        &mut self,
        resource: &ApiResource,
        kind: &str,
        is_namespaced: bool,
    ) -> Result<Value, String> {
        let ApiResource {
            group,
            version,
            plural,
        } = resource;
        self.import(custom::definition(
            group,
            version,
            plural,
            kind,
            is_namespaced,
        ))
    }

    /// Stores an object; returns it as the API server has it.
    fn import(&mut self, object: Value) -> Result<Value, String> {
        let [api_version, kind] =
            ["/apiVersion", "/kind"].map(|it| text_at(&object, it).to_owned());
        let stored = self.model.import(self.now, object);
        let stored = stored.map_err(|status| status.message)?;
        let stored = stored.json().map_err(|status| status.message)?;
        let stored = serde_json::from_slice(&stored).map_err(|error| error.to_string())?;
        Ok(typed(stored, &api_version, &kind))
    }

    /// The server has namespaces of its own, and those of its objects. Only those of the files
    /// count.
    fn forget_namespaces(&mut self) -> Result<()> {
        let Some(resource) = self.model.resource_of_kind("v1", "Namespace").cloned() else {
            return Ok(());
        };
        for namespace in self.list(&ApiResource::new("", "v1", "namespaces"), "", "", "")? {
            if !self.given.contains(&Coordinates::of(&namespace)) {
                let name = text_at(&namespace, "/metadata/name");
                let target = Target::new(&resource, "", name);
                let removed = self.model.expel(self.now, &target);
                removed.map_err(|status| anyhow!(status.message))?;
            }
        }
        Ok(())
    }

    /// The objects of a resource that selectors select.
    fn list(
        &self,
        resource: &ApiResource,
        namespace: &str,
        label_selector: &str,
        field_selector: &str,
    ) -> Result<Vec<Value>> {
        let ApiResource {
            group,
            version,
            plural,
        } = resource;
        let Some(served) = self.model.resource(group, version, plural) else {
            return Ok(Vec::new());
        };
        let options = ListOptions {
            label_selector: label_selector.to_owned(),
            field_selector: field_selector.to_owned(),
            ..ListOptions::default()
        };
        let page = self
            .model
            .list(&Target::new(served, namespace, ""), &options);
        let page = page.map_err(|status| anyhow!("{resource}: {}", status.message))?;
        let mut objects = Vec::new();
        for item in page.items {
            let json = item.json().map_err(|status| anyhow!(status.message))?;
            let object = serde_json::from_slice(&json)?;
            objects.push(typed(object, &served.api_version(), &served.kind));
        }
        Ok(objects)
    }

    /// The objects as the watches of some rules list them.
    pub(super) fn objects(&self, watches: &[Watch], rules: &[RuleMatch]) -> Result<Objects> {
        let mut lists = BTreeMap::new();
        for watch in watches {
            let Some(resource) = resource_of(watch) else {
                continue;
            };
            let (labels, fields) = (&watch.label_selector, &watch.field_selector);
            let listed = self.list(&resource, &watch.namespace, labels, fields)?;
            lists.insert(watch.name.clone(), listed);
        }
        let served = self.model.resources().iter().map(|it| ServedResource {
            resource: ApiResource::new(&it.group, &it.version, &it.plural),
            kind: it.kind.clone(),
            namespaced: it.namespaced,
            verbs: ["get", "list", "watch"].map(str::to_owned).into(),
            preferred: true,
        });
        let mut misses = BTreeMap::new();
        for rule in rules {
            misses.insert(rule.rule.clone(), self.misses(rule, &lists)?);
        }
        Ok(Objects {
            served: Mapping::new(served),
            has_every_kind: true,
            misses,
            all: self.given.clone(),
            lists,
        })
    }

    /// The objects of a rule's resource that its watch does not list, each with the part of
    /// `match` that does not fit.
    fn misses(
        &self,
        rule: &RuleMatch,
        lists: &BTreeMap<String, Vec<Value>>,
    ) -> Result<Vec<(Coordinates, String)>> {
        let it = &rule.resource;
        let resource = ApiResource::new(&it.group, &it.version, &it.plural);
        let coordinates = |objects: &[Value]| -> BTreeSet<Coordinates> {
            objects.iter().map(Coordinates::of).collect()
        };
        let listed = lists
            .get(&rule.watch)
            .map(|it| coordinates(it))
            .unwrap_or_default();
        let labelled = coordinates(&self.list(&resource, "", &rule.label_selector, "")?);
        let all = coordinates(&self.list(&resource, "", "", "")?);
        let others = all.into_iter().filter(|it| !listed.contains(it));
        let misses = others.map(|it| {
            let is_elsewhere =
                !rule.namespaces.is_empty() && !rule.namespaces.contains(&it.namespace);
            let why = if is_elsewhere {
                format!("match.namespaces does not have {}", it.namespace)
            } else if labelled.contains(&it) {
                format!(
                    "match.fieldSelector does not select it: {}",
                    rule.field_selector
                )
            } else {
                format!(
                    "match.labelSelector does not select it: {}",
                    rule.label_selector
                )
            };
            (it, why)
        });
        Ok(misses.collect())
    }
}

/// The resource of a kind that is not built in: that of a rule whose name fits, or what
/// Kubernetes would usually call it.
fn resource_like(api_version: &str, kind: &str, rules: &[ApiResource]) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let plural = custom::plural(kind);
    let of_rule = rules.iter().find(|it| {
        it.group == group
            && it.version == version
            && kind_like(&it.plural).eq_ignore_ascii_case(kind)
    });
    of_rule
        .cloned()
        .unwrap_or_else(|| ApiResource::new(group, version, &plural))
}

/// A kind whose plural this is.
fn kind_like(plural: &str) -> String {
    let of = |stem: &str, end: &str| format!("{stem}{end}");
    let candidates = [
        plural.strip_suffix("ies").map(|it| of(it, "y")),
        plural.strip_suffix("es").map(str::to_owned),
        plural.strip_suffix('s').map(str::to_owned),
    ];
    let fits = |kind: &String| custom::plural(kind) == plural;
    candidates
        .into_iter()
        .flatten()
        .find(fits)
        .unwrap_or_else(|| plural.to_owned())
}

/// An object with its kind, which lists leave out.
pub(super) fn typed(mut object: Value, api_version: &str, kind: &str) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".to_owned(), json!(api_version));
        fields.insert("kind".to_owned(), json!(kind));
    }
    object
}
