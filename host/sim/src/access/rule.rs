//! Rules of roles: what they allow, and which of them cover which.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Deserialize;

use super::Attributes;
use crate::object::or_default;

/// `rbac/v1` `PolicyRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Rule {
    #[serde(deserialize_with = "or_default")]
    pub(crate) verbs: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) api_groups: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) resources: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub(crate) resource_names: Vec<String>,
    #[serde(deserialize_with = "or_default", rename = "nonResourceURLs")]
    pub(crate) non_resource_urls: Vec<String>,
}

impl Rule {
    /// The rule that allows everything.
    pub(crate) fn everything() -> [Rule; 2] {
        let all = || vec!["*".to_owned()];
        let resources = Rule {
            verbs: all(),
            api_groups: all(),
            resources: all(),
            ..Rule::default()
        };
        let paths = Rule {
            verbs: all(),
            non_resource_urls: all(),
            ..Rule::default()
        };
        [resources, paths]
    }

    /// Whether the rule allows a request.
    pub(crate) fn allows(&self, asked: &Attributes) -> bool {
        if !names(&self.verbs, &asked.verb) {
            return false;
        }
        if let Some(path) = &asked.path {
            let urls = self.non_resource_urls.iter();
            return urls.into_iter().any(|url| url_covers(url, path));
        }
        names(&self.api_groups, &asked.group)
            && self.names_resource(&asked.full_resource(), &asked.subresource)
            && (self.resource_names.is_empty() || self.resource_names.contains(&asked.name))
    }

    fn names_resource(&self, full: &str, subresource: &str) -> bool {
        let of_any = |resource: &str| {
            let wildcard = resource.strip_prefix("*/");
            !subresource.is_empty() && wildcard == Some(subresource)
        };
        names(&self.resources, full) || self.resources.iter().any(|resource| of_any(resource))
    }

    /// The rule as a list of rules with one verb on one resource.
    fn atoms(&self) -> Vec<Rule> {
        let one = |text: &String| vec![text.clone()];
        // No name is every name.
        let any_name = [Vec::new()];
        let names: Vec<Vec<String>> = self.resource_names.iter().map(one).collect();
        let names = if names.is_empty() {
            &any_name[..]
        } else {
            &names[..]
        };
        let mut atoms = Vec::new();
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    atoms.extend(names.iter().map(|name| Rule {
                        verbs: one(verb),
                        api_groups: one(group),
                        resources: one(resource),
                        resource_names: name.clone(),
                        ..Rule::default()
                    }));
                }
            }
        }
        for url in &self.non_resource_urls {
            atoms.extend(self.verbs.iter().map(|verb| Rule {
                verbs: one(verb),
                non_resource_urls: one(url),
                ..Rule::default()
            }));
        }
        atoms
    }

    /// Whether this rule allows all that `atom` allows.
    fn covers(&self, atom: &Rule) -> bool {
        let all = |own: &[String], wanted: &[String]| wanted.iter().all(|one| names(own, one));
        let resource_covered = |wanted: &String| {
            let subresource = wanted.split_once('/').map_or("", |(_, sub)| sub);
            self.names_resource(wanted, subresource)
        };
        let url_covered = |wanted: &String| {
            let mut own = self.non_resource_urls.iter();
            own.any(|url| url_covers(url, wanted))
        };
        let name_covered = self.resource_names.is_empty()
            || !atom.resource_names.is_empty()
                && atom
                    .resource_names
                    .iter()
                    .all(|name| self.resource_names.contains(name));
        all(&self.verbs, &atom.verbs)
            && all(&self.api_groups, &atom.api_groups)
            && atom.resources.iter().all(resource_covered)
            && atom.non_resource_urls.iter().all(url_covered)
            && name_covered
    }

    fn is_plain(&self) -> bool {
        self.resource_names.is_empty() && self.non_resource_urls.is_empty()
    }
}

/// The form in error messages.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let shown: Vec<String> = fields
            .into_iter()
            .filter(|(_, values)| !values.is_empty())
            .map(|(name, values)| format!("{name}:{}", quoted(values)))
            .collect();
        write!(f, "{{{}}}", shown.join(", "))
    }
}

/// The permissions in `wanted` that `own` lacks, one line for each rule.
pub(crate) fn missing(own: &[Rule], wanted: &[Rule]) -> Vec<String> {
    let atoms = wanted.iter().flat_map(Rule::atoms);
    let uncovered = atoms.filter(|atom| !own.iter().any(|rule| rule.covers(atom)));
    let mut lines = BTreeSet::new();
    // The verbs on one resource are listed together.
    let mut plain: BTreeMap<(Vec<String>, Vec<String>), Rule> = BTreeMap::new();
    for atom in uncovered {
        if !atom.is_plain() {
            lines.insert(atom.to_string());
            continue;
        }
        let key = (atom.api_groups.clone(), atom.resources.clone());
        match plain.get_mut(&key) {
            Some(rule) => rule.verbs.extend(atom.verbs),
            None => drop(plain.insert(key, atom)),
        }
    }
    lines.extend(plain.values().map(Rule::to_string));
    lines.into_iter().collect()
}

/// A list as Go's `%q` prints it.
pub(crate) fn quoted(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", texts.join(" "))
}

fn names(list: &[String], wanted: &str) -> bool {
    list.iter().any(|own| own == "*" || own == wanted)
}

fn url_covers(own: &str, wanted: &str) -> bool {
    own == wanted || own.ends_with('*') && wanted.starts_with(own.trim_end_matches('*'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn rule(value: Value) -> Rule {
        serde_json::from_value(value).expect("a rule")
    }

    fn asks(verb: &str, resource: &str, name: &str) -> Attributes {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        Attributes {
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            name: name.to_owned(),
            ..Attributes::default()
        }
    }

    #[test]
    fn a_rule_allows_what_it_names() {
        let pods = rule(json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}));
        assert!(pods.allows(&asks("get", "pods", "p")));
        assert!(!pods.allows(&asks("get", "pods/status", "p")));
        assert!(!pods.allows(&asks("list", "pods", "")));
        let other_group = Attributes {
            group: "apps".to_owned(),
            ..asks("get", "pods", "p")
        };
        assert!(!pods.allows(&other_group));

        let scales = rule(json!({"apiGroups": [""], "resources": ["*/scale"], "verbs": ["*"]}));
        assert!(scales.allows(&asks("patch", "replicationcontrollers/scale", "r")));
        assert!(!scales.allows(&asks("patch", "replicationcontrollers", "r")));
        assert!(!scales.allows(&asks("patch", "pods/status", "p")));

        let named = rule(
            json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["*"], "resourceNames": ["a"]}),
        );
        assert!(named.allows(&asks("delete", "pods", "a")));
        assert!(!named.allows(&asks("delete", "pods", "b")));
        // Neither a create nor a list of all objects has a name.
        assert!(!named.allows(&asks("create", "pods", "")));

        let path = |path: &str| Attributes {
            verb: "get".to_owned(),
            path: Some(path.to_owned()),
            ..Attributes::default()
        };
        let urls = rule(json!({"nonResourceURLs": ["/healthz", "/api/*"], "verbs": ["get"]}));
        assert!(urls.allows(&path("/healthz")));
        assert!(urls.allows(&path("/api/v1")));
        assert!(!urls.allows(&path("/healthz/etcd")));
        assert!(!pods.allows(&path("/pods")));
        assert!(!urls.allows(&asks("get", "pods", "")));
    }

    #[test]
    fn a_missing_permission_is_named_once() {
        let wanted = [
            rule(
                json!({"apiGroups": ["", "apps"], "resources": ["pods"], "verbs": ["get", "list"]}),
            ),
            rule(
                json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["a", "b"]}),
            ),
            rule(json!({"nonResourceURLs": ["/a/b"], "verbs": ["get"]})),
        ];
        assert_eq!(
            missing(&[], &wanted),
            [
                "{APIGroups:[\"\"], Resources:[\"pods\"], ResourceNames:[\"a\"], Verbs:[\"get\"]}",
                "{APIGroups:[\"\"], Resources:[\"pods\"], ResourceNames:[\"b\"], Verbs:[\"get\"]}",
                "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"get\" \"list\"]}",
                "{APIGroups:[\"apps\"], Resources:[\"pods\"], Verbs:[\"get\" \"list\"]}",
                "{NonResourceURLs:[\"/a/b\"], Verbs:[\"get\"]}",
            ]
        );
        let own = [
            rule(json!({"apiGroups": [""], "resources": ["*"], "verbs": ["get", "list"]})),
            rule(json!({"nonResourceURLs": ["/a/*"], "verbs": ["*"]})),
            // A rule for one name covers no rule for all names.
            rule(
                json!({"apiGroups": ["apps"], "resources": ["pods"], "verbs": ["*"], "resourceNames": ["a"]}),
            ),
        ];
        assert_eq!(
            missing(&own, &wanted),
            ["{APIGroups:[\"apps\"], Resources:[\"pods\"], Verbs:[\"get\" \"list\"]}"]
        );
        assert!(missing(&Rule::everything(), &wanted).is_empty());
    }
}
