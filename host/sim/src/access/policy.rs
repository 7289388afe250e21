//! Roles and bindings, and the permissions that they give a user.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use super::rule::Rule;
use super::{Attributes, User, service_account_name};
use crate::object::{Metadata, or_default};

/// Every role and binding of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Policy {
    /// By namespace (empty for `ClusterRoles`) and name.
    roles: BTreeMap<(String, String), Vec<Rule>>,
    /// The bindings of the cluster come first.
    bindings: Vec<Binding>,
}

/// Whether a request is allowed, and by what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) allowed: bool,
    pub(crate) reason: String,
}

/// A stored role of either kind.
#[derive(Deserialize)]
struct Role {
    metadata: Metadata,
    #[serde(default, deserialize_with = "or_default")]
    rules: Vec<Rule>,
}

/// A stored binding of either kind.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Binding {
    kind: String,
    metadata: Metadata,
    role_ref: RoleRef,
    #[serde(default, deserialize_with = "or_default")]
    subjects: Vec<Subject>,
}

/// The role that a binding binds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct RoleRef {
    #[serde(deserialize_with = "or_default")]
    pub(crate) kind: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Subject {
    #[serde(deserialize_with = "or_default")]
    kind: String,
    #[serde(deserialize_with = "or_default")]
    name: String,
    #[serde(deserialize_with = "or_default")]
    namespace: String,
}

impl Policy {
    /// Reads stored roles and bindings. Roles come first, of both kinds, then
    /// the bindings of the cluster, then those of namespaces.
    pub(crate) fn read<'a>(
        roles: impl Iterator<Item = &'a [u8]>,
        bindings: impl Iterator<Item = &'a [u8]>,
    ) -> serde_json::Result<Self> {
        let mut policy = Policy::default();
        for role in roles {
            let role: Role = serde_json::from_slice(role)?;
            let key = (role.metadata.namespace, role.metadata.name);
            policy.roles.insert(key, role.rules);
        }
        policy.bindings = bindings
            .map(serde_json::from_slice)
            .collect::<Result<_, _>>()?;
        Ok(policy)
    }

    /// Authorizes a request of `user`.
    pub(crate) fn decide(&self, user: &User, asked: &Attributes) -> Decision {
        if user.is_privileged() {
            return Decision {
                allowed: true,
                reason: String::new(),
            };
        }
        let mut broken: Vec<String> = Vec::new();
        for (binding, subject) in self.bindings_of(user, &asked.namespace) {
            match self.rules_of(&binding.role_ref, &binding.metadata.namespace) {
                Ok(rules) if rules.iter().any(|rule| rule.allows(asked)) => {
                    let grant = Grant { binding, subject };
                    return Decision {
                        allowed: true,
                        reason: format!("RBAC: allowed by {grant}"),
                    };
                }
                Ok(_) => {}
                Err(why) if broken.contains(&why) => {}
                Err(why) => broken.push(why),
            }
        }
        let reason = match broken.as_slice() {
            [] => String::new(),
            [one] => format!("RBAC: {one}"),
            many => format!("RBAC: [{}]", many.join(", ")),
        };
        Decision {
            allowed: false,
            reason,
        }
    }

    /// The rules that apply to `user` in a namespace (none: in the cluster), and why
    /// some may be missing.
    pub(crate) fn rules_for(&self, user: &User, namespace: &str) -> (Vec<Rule>, Vec<String>) {
        let (mut rules, mut broken) = (Vec::new(), Vec::new());
        for (binding, _) in self.bindings_of(user, namespace) {
            match self.rules_of(&binding.role_ref, &binding.metadata.namespace) {
                Ok(some) => rules.extend_from_slice(some),
                Err(why) => broken.push(why),
            }
        }
        (rules, broken)
    }

    /// The rules of the role that a binding in `namespace` refers to; an error if there
    /// is no such role.
    pub(crate) fn rules_of(&self, role: &RoleRef, namespace: &str) -> Result<&[Rule], String> {
        let namespace = match role.kind.as_str() {
            "Role" => namespace,
            "ClusterRole" => "",
            kind => return Err(format!("unsupported role reference kind: {kind:?}")),
        };
        let key = (namespace.to_owned(), role.name.clone());
        self.roles.get(&key).map(Vec::as_slice).ok_or_else(|| {
            format!(
                "{}.{} {:?} not found",
                role.kind.to_lowercase(),
                super::GROUP,
                role.name
            )
        })
    }

    fn bindings_of<'a>(
        &'a self,
        user: &'a User,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a Binding, &'a Subject)> {
        let here = move |binding: &&Binding| {
            let own = binding.metadata.namespace.as_str();
            own.is_empty() || own == namespace
        };
        self.bindings.iter().filter(here).filter_map(|binding| {
            let own = binding.metadata.namespace.as_str();
            let mut subjects = binding.subjects.iter();
            let subject = subjects.find(|subject| subject.is(user, own))?;
            Some((binding, subject))
        })
    }
}

impl Subject {
    fn is(&self, user: &User, namespace: &str) -> bool {
        match self.kind.as_str() {
            "User" => user.name == self.name,
            "Group" => user.is_in(&self.name),
            "ServiceAccount" => {
                let namespace = self.namespace_or(namespace);
                !namespace.is_empty() && user.name == service_account_name(namespace, &self.name)
            }
            _ => false,
        }
    }

    /// A `ServiceAccount` without namespace is in the binding's own.
    fn namespace_or<'a>(&'a self, own: &'a str) -> &'a str {
        if self.namespace.is_empty() {
            own
        } else {
            &self.namespace
        }
    }
}

/// The binding that grants a permission.
struct Grant<'a> {
    binding: &'a Binding,
    subject: &'a Subject,
}

impl fmt::Display for Grant<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Grant { binding, subject } = self;
        let namespace = &binding.metadata.namespace;
        let mut name = binding.metadata.name.clone();
        if !namespace.is_empty() {
            name = format!("{name}/{namespace}");
        }
        let mut to = subject.name.clone();
        if subject.kind == "ServiceAccount" {
            to = format!("{to}/{}", subject.namespace_or(namespace));
        }
        let role = &binding.role_ref;
        write!(
            f,
            "{} {name:?} of {} {:?} to {} {to:?}",
            binding.kind, role.kind, role.name, subject.kind
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn policy(roles: &[Value], bindings: &[Value]) -> Policy {
        let bytes = |list: &[Value]| -> Vec<Vec<u8>> {
            list.iter()
                .map(|one| one.to_string().into_bytes())
                .collect()
        };
        let (roles, bindings) = (bytes(roles), bytes(bindings));
        Policy::read(
            roles.iter().map(Vec::as_slice),
            bindings.iter().map(Vec::as_slice),
        )
        .expect("readable")
    }

    fn role(namespace: &str, name: &str, verb: &str) -> Value {
        json!({
            "metadata": {"namespace": namespace, "name": name},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}],
        })
    }

    fn binding(namespace: &str, name: &str, role: (&str, &str), subject: &Value) -> Value {
        let kind = if namespace.is_empty() {
            "ClusterRoleBinding"
        } else {
            "RoleBinding"
        };
        json!({
            "kind": kind, "metadata": {"namespace": namespace, "name": name},
            "roleRef": {"kind": role.0, "name": role.1}, "subjects": [subject],
        })
    }

    fn ask(policy: &Policy, user: &User, verb: &str, namespace: &str) -> Decision {
        let asked = Attributes {
            verb: verb.to_owned(),
            resource: "pods".to_owned(),
            namespace: namespace.to_owned(),
            ..Attributes::default()
        };
        policy.decide(user, &asked)
    }

    fn bot() -> User {
        User::service_account("n", "bot", "1")
    }

    #[test]
    fn a_cluster_role_holds_where_it_is_bound() {
        let account = json!({"kind": "ServiceAccount", "name": "bot", "namespace": "n"});
        let group = json!({"kind": "Group", "name": "system:serviceaccounts:n"});
        let policy = policy(
            &[role("", "list", "list"), role("", "get", "get")],
            &[
                binding("", "all", ("ClusterRole", "get"), &group),
                binding("n", "own", ("ClusterRole", "list"), &account),
            ],
        );
        assert_eq!(
            ask(&policy, &bot(), "list", "n").reason,
            "RBAC: allowed by RoleBinding \"own/n\" of ClusterRole \"list\" to ServiceAccount \"bot/n\""
        );
        assert!(!ask(&policy, &bot(), "list", "m").allowed);
        assert!(!ask(&policy, &bot(), "list", "").allowed);
        for namespace in ["n", "m", ""] {
            assert_eq!(
                ask(&policy, &bot(), "get", namespace).reason,
                "RBAC: allowed by ClusterRoleBinding \"all\" of ClusterRole \"get\" to Group \"system:serviceaccounts:n\""
            );
        }
        let other = User::service_account("m", "bot", "2");
        assert_eq!(ask(&policy, &other, "get", "n"), Decision::default());
        assert!(ask(&policy, &User::administrator(), "delete", "n").allowed);
    }

    #[test]
    fn a_role_that_is_gone_grants_nothing_and_is_named() {
        let user = json!({"kind": "User", "name": "eve"});
        let policy = policy(
            &[role("m", "r", "get")],
            &[
                binding("", "a", ("ClusterRole", "r"), &user),
                binding("n", "b", ("Role", "r"), &user),
                binding("n", "c", ("Role", "r"), &user),
            ],
        );
        let eve = User {
            name: "eve".to_owned(),
            ..User::default()
        };
        let decision = ask(&policy, &eve, "get", "n");
        assert!(!decision.allowed);
        assert_eq!(
            decision.reason,
            "RBAC: [clusterrole.rbac.authorization.k8s.io \"r\" not found, role.rbac.authorization.k8s.io \"r\" not found]"
        );
    }

    #[test]
    fn an_account_without_namespace_is_in_that_of_the_binding() {
        let account = json!({"kind": "ServiceAccount", "name": "bot"});
        let policy = policy(
            &[role("", "r", "get")],
            &[
                binding("", "a", ("ClusterRole", "r"), &account),
                binding("n", "b", ("ClusterRole", "r"), &account),
            ],
        );
        assert!(!ask(&policy, &bot(), "get", "").allowed);
        assert_eq!(
            ask(&policy, &bot(), "get", "n").reason,
            "RBAC: allowed by RoleBinding \"b/n\" of ClusterRole \"r\" to ServiceAccount \"bot/n\""
        );
    }
}
