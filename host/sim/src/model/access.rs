//! Authentication and authorization of requests.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;

use super::{Config, Model, WriteOptions};
use crate::access::token::{Claims, Key};
use crate::access::{
    self, Attributes, Decision, GROUP, Mode, Policy, RoleRef, Rule, User, bootstrap,
};
use crate::body::Body;
use crate::object::Object;
use crate::request::Request;
use crate::status::{Result, Status};
use crate::target::Target;
use crate::time::Time;

/// The users of a model, besides the stored roles.
#[derive(Debug)]
pub(super) struct Access {
    pub(super) key: Key,
    /// The stored roles and bindings, read; empty after one changed.
    policy: OnceLock<Policy>,
    /// The mode by which each user last impersonated another.
    modes: BTreeMap<String, Mode>,
}

impl Access {
    pub(super) fn new(config: &Config) -> Self {
        let secret = match &config.rbac {
            Some(rbac) => rbac.administrator_token.clone(),
            None => config.seed.to_string(),
        };
        Access {
            key: Key::new(secret.as_bytes()),
            policy: OnceLock::new(),
            modes: BTreeMap::new(),
        }
    }

    /// A role or a binding has changed.
    pub(super) fn forget_policy(&mut self) {
        self.policy.take();
    }
}

impl Model {
    /// Stores the roles and bindings that every cluster starts with.
    pub(super) fn bootstrap_roles(&mut self, now: Time) -> Result<()> {
        for (plural, object) in bootstrap::objects() {
            let Some(resource) = self.resource(GROUP, "v1", plural) else {
                return Err(Status::internal(format!("no resource {plural}")));
            };
            let target = Target::new(&resource.clone(), "", "");
            self.create(now, &target, Body::Json(object), &WriteOptions::default())?;
        }
        Ok(())
    }

    /// Authenticates and authorizes a request. Fails with 401 for an unknown token, and
    /// with 403 if no role allows the request.
    pub(crate) fn admit(
        &mut self,
        now: Time,
        request: &Request,
        asked: &Attributes,
    ) -> Result<User> {
        let mut user = self.requester(now, request)?;
        if let Some(wanted) = &request.impersonation {
            let last = self.access.modes.get(&user.name).copied();
            let decide = |user: &User, asked: &Attributes| self.decide(user, asked);
            let (other, mode) = access::impersonate(&user, wanted, asked, last, &decide)?;
            self.access.modes.insert(user.name, mode);
            user = other;
        }
        self.permit(&user, asked)?;
        Ok(user)
    }

    /// Without RBAC everybody is the administrator.
    fn requester(&self, now: Time, request: &Request) -> Result<User> {
        if self.config.rbac.is_none() {
            return Ok(User::administrator());
        }
        match request.bearer.as_str() {
            "" => Ok(User::anonymous()),
            token => self
                .authenticate(now, token)
                .map(|(user, _)| user)
                .map_err(|_| Status::unauthorized()),
        }
    }

    /// Whose token that is, and whom it is for. The error is that of a review.
    pub(super) fn authenticate(
        &self,
        now: Time,
        token: &str,
    ) -> std::result::Result<(User, Vec<String>), String> {
        const INVALID: &str = "invalid bearer token";
        if let Some(rbac) = &self.config.rbac
            && rbac.administrator_token == token
        {
            let audiences = vec![access::token::ISSUER.to_owned()];
            return Ok((User::administrator(), audiences));
        }
        let claims = self.access.key.read(token).ok_or(INVALID)?;
        if claims.exp <= now.unix() {
            return Err(format!("[{INVALID}, service account token has expired]"));
        }
        self.account_of(&claims)
            .map(|user| (user, claims.aud))
            .ok_or_else(|| format!("[{INVALID}, service account token has been invalidated]"))
    }

    /// The account that a token was made for, if it is still there.
    fn account_of(&self, claims: &Claims) -> Option<User> {
        let (namespace, account) = (
            &claims.kubernetes.namespace,
            &claims.kubernetes.serviceaccount,
        );
        let resource = self.resource("", "v1", "serviceaccounts")?;
        let target = Target::new(resource, namespace, &account.name);
        let stored = self.stored(&target).ok()?.metadata().ok()?;
        if stored.uid != account.uid {
            return None;
        }
        let mut user = User::service_account(namespace, &account.name, &account.uid);
        let id = format!("JTI={}", claims.jti);
        let key = "authentication.kubernetes.io/credential-id";
        user.extra.insert(key.to_owned(), vec![id]);
        Some(user)
    }

    /// Whether `user` is authorized. Without RBAC everything is allowed.
    pub(super) fn decide(&self, user: &User, asked: &Attributes) -> Decision {
        if self.config.rbac.is_none() {
            return Decision {
                allowed: true,
                reason: String::new(),
            };
        }
        match self.policy() {
            Ok(policy) => policy.decide(user, asked),
            Err(status) => Decision {
                allowed: user.is_privileged(),
                reason: status.message,
            },
        }
    }

    fn permit(&self, user: &User, asked: &Attributes) -> Result<()> {
        let decision = self.decide(user, asked);
        if decision.allowed {
            return Ok(());
        }
        Err(access::denied(user, asked, &decision.reason))
    }

    /// The stored roles and bindings.
    pub(super) fn policy(&self) -> Result<&Policy> {
        if let Some(policy) = self.access.policy.get() {
            return Ok(policy);
        }
        let stored = |plural: &str| {
            let store = format!("{plural}.{GROUP}");
            self.collections
                .get(store.as_str())
                .into_iter()
                .flat_map(|collection| collection.scan(""))
                .map(|(_, stored)| stored.json())
        };
        let both = |cluster: &str, namespaced: &str| -> Result<Vec<Cow<'_, [u8]>>> {
            stored(cluster).chain(stored(namespaced)).collect()
        };
        let roles = both("clusterroles", "roles")?;
        let bindings = both("clusterrolebindings", "rolebindings")?;
        let policy = Policy::read(
            roles.iter().map(|json| &json[..]),
            bindings.iter().map(|json| &json[..]),
        );
        let policy = policy.map_err(|error| Status::internal(format!("stored roles: {error}")))?;
        Ok(self.access.policy.get_or_init(|| policy))
    }

    /// A write that turns out to create needs the permission to create.
    pub(super) fn may_create(&self, target: &Target, options: &WriteOptions) -> Result<()> {
        match &options.writer {
            Some(user) => self.permit(user, &asks("create", target, &target.name)),
            None => Ok(()),
        }
    }

    /// No user can grant more than the user has: a role or a binding may only grant its
    /// writer's permissions, unless a rule allows to `escalate` or to `bind`.
    pub(super) fn check_grants(
        &self,
        target: &Target,
        new: &Object,
        old: Option<&Object>,
        options: &WriteOptions,
    ) -> Result<()> {
        let resource = &target.resource;
        let Some(user) = &options.writer else {
            return Ok(());
        };
        if resource.group != GROUP || resource.custom.is_some() || user.is_privileged() {
            return Ok(());
        }
        if old.is_some_and(|old| only_removes_finalizers(new, old)) {
            return Ok(());
        }
        let granted = if resource.kind.ends_with("Binding") {
            self.bound(target, new, user)?
        } else if self
            .decide(user, &asks("escalate", target, &target.name))
            .allowed
        {
            return Ok(());
        } else {
            declared(new, old)?
        };
        let (own, broken) = self.policy()?.rules_for(user, &target.namespace);
        let missing = access::missing(&own, &granted);
        if missing.is_empty() {
            return Ok(());
        }
        let mut why = format!(
            "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
            user.name,
            access::quoted(&user.groups),
            missing.join("\n")
        );
        if !broken.is_empty() {
            why = format!("{why}; resolution errors: [{}]", broken.join(" "));
        }
        Err(Status::forbidden(
            resource.group_resource(),
            &new.metadata.name,
            why,
        ))
    }

    /// What a binding grants; nothing that counts if its writer may bind the
    /// role.
    fn bound(&self, target: &Target, binding: &Object, user: &User) -> Result<Vec<Rule>> {
        let role: RoleRef = parsed(binding, "roleRef")?;
        let plural = match role.kind.as_str() {
            "Role" => "roles",
            "ClusterRole" => "clusterroles",
            // Validation is to say so.
            _ => return Ok(Vec::new()),
        };
        let Some(resource) = self.resource(GROUP, "v1", plural) else {
            return Err(Status::internal(format!("no resource {plural}")));
        };
        let bind = Attributes {
            namespace: target.namespace.clone(),
            ..asks("bind", &Target::new(resource, "", ""), &role.name)
        };
        if self.decide(user, &bind).allowed {
            return Ok(Vec::new());
        }
        let rules = self.policy()?.rules_of(&role, &target.namespace);
        let rules = rules.map_err(|_| Status::not_found(resource.group_resource(), &role.name))?;
        Ok(rules.to_vec())
    }
}

fn asks(verb: &str, target: &Target, name: &str) -> Attributes {
    Attributes {
        verb: verb.to_owned(),
        group: target.resource.group.clone(),
        resource: target.resource.plural.clone(),
        subresource: target.subresource.clone(),
        namespace: target.namespace.clone(),
        name: name.to_owned(),
        path: None,
    }
}

/// The rules of a role. An aggregated role may later grant everything.
fn declared(role: &Object, old: Option<&Object>) -> Result<Vec<Rule>> {
    let mut rules: Vec<Rule> = parsed(role, "rules")?;
    let aggregation = role.at(&["aggregationRule"]);
    if aggregation.is_some() && aggregation != old.and_then(|old| old.at(&["aggregationRule"])) {
        rules.extend(Rule::everything());
    }
    Ok(rules)
}

fn parsed<T: Default + for<'de> Deserialize<'de>>(object: &Object, field: &str) -> Result<T> {
    let Some(value) = object.at(&[field]).filter(|value| !value.is_null()) else {
        return Ok(T::default());
    };
    T::deserialize(value).map_err(|error| Status::bad_request(error.to_string()))
}

/// Whether an update only removes finalizers and owner references.
fn only_removes_finalizers(new: &Object, old: &Object) -> bool {
    new.body == old.body
        && new.metadata.labels == old.metadata.labels
        && new.metadata.annotations == old.metadata.annotations
}
