//! The permissions that a controller needs in Kubernetes' RBAC, by its guest's
//! manifest.

use std::collections::{BTreeMap, BTreeSet};

use davit_core::manifest::{Manifest, Permission};
use davit_core::undo::UndoRules;
use serde_json::{Value, json};

/// Davit's own ServiceAccount, as `deploy/base` names it.
pub const DAVIT: &str = "davit";

/// The controllers whose roles would have the names of Davit's own, as `deploy/` has them.
pub const RESERVED: [&str; 3] = ["operator", "prometheus", "viewer"];

const VERSION: &str = "rbac.authorization.k8s.io/v1";

/// The order in which verbs are written.
const VERBS: [&str; 6] = ["get", "list", "watch", "create", "patch", "delete"];

/// A needed permission: a verb on a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// The only namespace in which it is needed; none for all of them.
    pub namespace: Option<String>,
    /// Empty for core; `*` for all.
    pub group: String,
    /// The plural, with its subresource; `*` for all.
    pub resource: String,
    /// `get`, `list`, `watch`, `create`, `patch` or `delete`.
    pub verb: String,
}

/// The accounts that get the permissions.
pub struct Accounts<'a> {
    /// The controller's name, for the names of roles.
    pub controller: &'a str,
    /// Davit's namespace.
    pub namespace: &'a str,
    /// Davit's own account: it opens the watches, and does everything for controllers
    /// without an account.
    pub davit: &'a str,
    /// The account of the controller, if it has one.
    pub own: Option<&'a str>,
}

impl Need {
    /// Whether it is a write. A dry run sends no writes.
    #[must_use]
    pub fn is_write(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "patch" | "delete")
    }
}

/// The permissions that a guest needs for its watches, live reads and writes. Davit itself
/// records events: `deploy/base` has the permission.
#[must_use]
pub fn needs(manifest: &Manifest) -> BTreeSet<Need> {
    let reads = manifest.watches.iter().flat_map(|watch| {
        let (group, resource) = watch.rule_resource();
        let verbs = ["list", "watch"].into_iter();
        verbs.flat_map(move |verb| each_namespace(manifest, verb, group, resource))
    });
    let permissions = manifest.permissions.iter().cloned();
    let permissions = permissions.chain(reads_before_applies(manifest));
    let permissions = permissions.filter(|one| *one != Permission::of_events());
    let asked =
        permissions.flat_map(|one| each_namespace(manifest, &one.verb, &one.group, &one.resource));
    reads.chain(asked).collect()
}

/// Before the host applies an object that may not exist, it reads whose it is.
pub fn reads_before_applies(manifest: &Manifest) -> impl Iterator<Item = Permission> + '_ {
    let with_verb = |one: &Permission, verb: &str| Permission {
        verb: verb.to_owned(),
        ..one.clone()
    };
    let applied = manifest.permissions.iter().filter(move |one| {
        one.verb == "patch" && manifest.permissions.contains(&with_verb(one, "create"))
    });
    applied.map(move |one| with_verb(one, "get"))
}

/// The same, with what the host reads to keep objects for undo.
#[must_use]
pub fn needs_with_undo(manifest: &Manifest, undo: &UndoRules) -> BTreeSet<Need> {
    let mut all = needs(manifest);
    let reads = undo.reads(manifest).into_iter();
    all.extend(
        reads.flat_map(|(group, resource)| each_namespace(manifest, "get", &group, &resource)),
    );
    all
}

/// A verb on a resource, in each of its namespaces.
fn each_namespace(manifest: &Manifest, verb: &str, group: &str, resource: &str) -> Vec<Need> {
    let base = resource.split('/').next().unwrap_or_default();
    let namespaces = manifest.namespaces_of(group, base).into_iter();
    let needs = namespaces.map(|namespace| Need {
        namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
        group: group.to_owned(),
        resource: resource.to_owned(),
        verb: verb.to_owned(),
    });
    needs.collect()
}

/// Those of the permissions that watches need. Davit's own account needs them too, because
/// controllers share watches.
#[must_use]
pub fn of_watches(needs: &BTreeSet<Need>) -> BTreeSet<Need> {
    let is_watched = |need: &&Need| {
        let watch = Need {
            verb: "watch".to_owned(),
            ..(*need).clone()
        };
        matches!(need.verb.as_str(), "list" | "watch") && needs.contains(&watch)
    };
    needs.iter().filter(is_watched).cloned().collect()
}

/// The roles that grant the permissions, and their bindings. With an account of its own, the
/// account itself, and the role that lets Davit impersonate it.
#[must_use]
pub fn roles(needs: &BTreeSet<Need>, accounts: &Accounts<'_>) -> Vec<Value> {
    let name = format!("davit-{}", accounts.controller);
    let Accounts {
        namespace: home,
        davit,
        ..
    } = accounts;
    let Some(own) = accounts.own else {
        return roles_of(&name, davit, home, needs);
    };
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": own, "namespace": home},
    });
    let mut all = vec![account];
    all.extend(roles_of(&name, own, home, needs));
    let watches = format!("{name}-watches");
    all.extend(roles_of(&watches, davit, home, &of_watches(needs)));
    let rule = json!({
        "apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": [own],
        "verbs": ["impersonate"],
    });
    let name = format!("{name}-impersonation");
    all.extend(role(&name, Some(home), davit, home, &[rule]));
    all
}

fn roles_of(name: &str, account: &str, home: &str, needs: &BTreeSet<Need>) -> Vec<Value> {
    let mut by_namespace: BTreeMap<Option<&str>, Vec<&Need>> = BTreeMap::new();
    for need in needs {
        let needs = by_namespace.entry(need.namespace.as_deref()).or_default();
        needs.push(need);
    }
    let roles = by_namespace
        .into_iter()
        .flat_map(|(namespace, needs)| role(name, namespace, account, home, &rules(&needs)));
    roles.collect()
}

/// A role in a namespace, or in all of them, and its binding to an account.
fn role(
    name: &str,
    namespace: Option<&str>,
    account: &str,
    home: &str,
    rules: &[Value],
) -> [Value; 2] {
    let (role, binding) = match namespace {
        None => ("ClusterRole", "ClusterRoleBinding"),
        Some(_) => ("Role", "RoleBinding"),
    };
    let metadata = match namespace {
        None => json!({"name": name}),
        Some(namespace) => json!({"name": name, "namespace": namespace}),
    };
    [
        json!({
            "apiVersion": VERSION, "kind": role, "metadata": metadata, "rules": rules,
        }),
        json!({
            "apiVersion": VERSION, "kind": binding, "metadata": metadata,
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": name,
            },
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": home}],
        }),
    ]
}

/// A rule for each resource.
fn rules(needs: &[&Need]) -> Vec<Value> {
    let mut verbs: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for need in needs {
        let resource = (need.group.as_str(), need.resource.as_str());
        verbs.entry(resource).or_default().push(&need.verb);
    }
    let rules = verbs.into_iter().map(|((group, resource), mut verbs)| {
        verbs.sort_by_key(|verb| VERBS.iter().position(|known| known == verb));
        json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
    });
    rules.collect()
}
