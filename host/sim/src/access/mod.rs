//! Users, tokens, RBAC and impersonation: pure functions of the stored roles and
//! bindings.

mod attributes;
pub(crate) mod bootstrap;
mod impersonation;
mod policy;
mod rule;
pub(crate) mod token;

use std::collections::BTreeMap;

use crate::status::{GroupResource, Status};

pub use attributes::Attributes;
pub use impersonation::Impersonation;
pub(crate) use impersonation::{Mode, impersonate};
pub(crate) use policy::{Decision, Policy, RoleRef};
pub(crate) use rule::{Rule, missing, quoted};

/// The API group of roles and bindings.
pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

/// Members of this group are always authorized.
const MASTERS: &str = "system:masters";
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const ANONYMOUS: &str = "system:anonymous";

/// The user of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name, `system:serviceaccount:NAMESPACE:NAME` for a `ServiceAccount`.
    pub name: String,
    /// The uid, if the user has one.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// Additional attributes of the user.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The administrator.
    #[must_use]
    pub fn administrator() -> Self {
        User {
            name: "davit-sim-admin".to_owned(),
            groups: vec![MASTERS.to_owned(), AUTHENTICATED.to_owned()],
            ..User::default()
        }
    }

    /// A client without credentials.
    #[must_use]
    pub(crate) fn anonymous() -> Self {
        User {
            name: ANONYMOUS.to_owned(),
            groups: vec![UNAUTHENTICATED.to_owned()],
            ..User::default()
        }
    }

    /// A `ServiceAccount`.
    #[must_use]
    pub fn service_account(namespace: &str, name: &str, uid: &str) -> Self {
        let mut groups = service_account_groups(namespace);
        groups.push(AUTHENTICATED.to_owned());
        User {
            name: service_account_name(namespace, name),
            uid: uid.to_owned(),
            groups,
            extra: BTreeMap::new(),
        }
    }

    /// Whether the user is authorized without any role.
    pub(crate) fn is_privileged(&self) -> bool {
        self.is_in(MASTERS)
    }

    fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    fn join(&mut self, group: &str) {
        if !self.is_in(group) {
            self.groups.push(group.to_owned());
        }
    }
}

fn service_account_name(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

fn service_account_groups(namespace: &str) -> Vec<String> {
    vec![
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
    ]
}

/// Namespace and name of a `ServiceAccount`, if that is what the user is.
fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user
        .strip_prefix("system:serviceaccount:")?
        .split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

/// The answer to a request that authorization denies.
pub(crate) fn denied(user: &User, asked: &Attributes, reason: &str) -> Box<Status> {
    let mut message = asked.denial(&user.name);
    if !reason.is_empty() {
        message = format!("{message}: {reason}");
    }
    let resource = GroupResource {
        group: &asked.group,
        resource: &asked.resource,
    };
    Status::denied(resource, &asked.name, &message)
}
