//! The resources of kinds, as far as they are built in.

use davit_core::object::group_of;
use davit_kinds::Kind;

/// Kubernetes' own kinds.
pub(super) struct Kinds(Vec<Kind>);

/// A resource that a rule can be about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resource {
    /// As `match.resource` has it: `pods`, `jobs.batch`, `widgets.v1.example.com`.
    pub(super) name: String,
    pub(super) group: String,
    pub(super) plural: String,
    /// Empty if it is not known.
    pub(super) kind: String,
    /// None if it is not known.
    pub(super) is_namespaced: Option<bool>,
}

impl Resource {
    pub(super) fn is_namespace(&self) -> bool {
        self.group.is_empty() && self.plural == "namespaces"
    }

    /// The resource in words for the name of a rule.
    pub(super) fn word(&self) -> &str {
        &self.plural
    }
}

impl Kinds {
    pub(super) fn new() -> Self {
        Self(davit_kinds::kinds().collect())
    }

    /// The built-in resources with a property, one of each group.
    fn find(&self, has: impl Fn(&Kind) -> bool) -> Vec<Resource> {
        let mut found: Vec<Resource> = Vec::new();
        for it in &self.0 {
            let is_known = found.iter().any(|known| known.group == it.group);
            if has(it) && !is_known {
                found.push(Resource {
                    name: name(it.plural, it.group),
                    group: it.group.to_owned(),
                    plural: it.plural.to_owned(),
                    kind: it.kind.to_owned(),
                    is_namespaced: Some(it.is_namespaced),
                });
            }
        }
        found
    }

    /// The resource of a kind as Kyverno writes it: `Pod`, `apps/v1/Deployment`.
    pub(super) fn of_kind(&self, text: &str) -> Result<Resource, String> {
        if text.contains(['*', '?']) {
            return Err(format!("\"{text}\": a rule names one resource"));
        }
        let parts: Vec<&str> = text.split('/').collect();
        let (group, kind) = match parts.as_slice() {
            [kind] => (None, *kind),
            [version, kind] if is_version(version) => (Some(""), *kind),
            [group, version, kind] if is_version(version) => (Some(*group), *kind),
            _ => return Err(format!("\"{text}\": subresources are not deleted")),
        };
        let found = self.find(|it| it.kind == kind && group.is_none_or(|group| it.group == group));
        one(found, text, "kind")
    }

    /// The resource of an object.
    pub(super) fn of_object(&self, api_version: &str, kind: &str) -> Result<Resource, String> {
        let group = group_of(api_version);
        let found = self.find(|it| it.kind == kind && it.group == group);
        one(found, kind, "kind")
    }

    /// The resource of a plural name, of any group: `deployments`.
    pub(super) fn of_plural(&self, plural: &str) -> Result<Resource, String> {
        one(self.find(|it| it.plural == plural), plural, "resource")
    }

    /// A resource by its group and plural name. One that is not built in has a version.
    pub(super) fn of_group(
        &self,
        group: &str,
        version: &str,
        plural: &str,
    ) -> Result<Resource, String> {
        if [group, plural].iter().any(|it| it.contains('*')) {
            return Err(format!("\"{group}/{plural}\": a rule names one resource"));
        }
        if plural.contains('/') {
            return Err(format!("\"{plural}\": subresources are not deleted"));
        }
        let found = self
            .find(|it| it.plural == plural && it.group == group)
            .into_iter()
            .next();
        if let Some(found) = found {
            return Ok(found);
        }
        if version.contains('*') {
            return Err(format!(
                "\"{plural}.{group}\" is not built in: its version has to be named"
            ));
        }
        Ok(Resource {
            name: format!("{plural}.{version}.{group}"),
            group: group.to_owned(),
            plural: plural.to_owned(),
            kind: String::new(),
            is_namespaced: None,
        })
    }
}

fn one(mut found: Vec<Resource>, text: &str, noun: &str) -> Result<Resource, String> {
    match found.len() {
        0 => Err(format!(
            "the {noun} \"{text}\" is not built in, so its resource is not known"
        )),
        1 => Ok(found.remove(0)),
        _ => {
            let names: Vec<String> = found.into_iter().map(|it| it.name).collect();
            Err(format!(
                "the {noun} \"{text}\" is one of several: {}",
                names.join(", ")
            ))
        }
    }
}

fn is_version(text: &str) -> bool {
    text == "*"
        || text
            .strip_prefix('v')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

fn name(plural: &str, group: &str) -> String {
    if group.is_empty() {
        plural.to_owned()
    } else {
        format!("{plural}.{group}")
    }
}
