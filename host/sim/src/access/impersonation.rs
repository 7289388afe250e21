//! Impersonation as of Kubernetes 1.36: by the constrained modes, which allow it for
//! certain requests only, else by the verb `impersonate`.

use std::collections::BTreeMap;

use super::{
    ANONYMOUS, AUTHENTICATED, Attributes, Decision, MASTERS, UNAUTHENTICATED, User, denied,
    service_account, service_account_groups,
};
use crate::name::subdomain;
use crate::status::{Result, Status};

/// The impersonation headers of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Impersonation {
    /// `Impersonate-User`.
    pub user: String,
    /// `Impersonate-Uid`.
    pub uid: String,
    /// Each `Impersonate-Group`.
    pub groups: Vec<String>,
    /// Each `Impersonate-Extra-…`.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The modes of impersonation, in the order of their attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Node,
    ServiceAccount,
    UserInfo,
    Legacy,
}

const MODES: [Mode; 4] = [
    Mode::Node,
    Mode::ServiceAccount,
    Mode::UserInfo,
    Mode::Legacy,
];

/// Impersonates: returns the user for the request `asked`, and the mode that allows it.
/// The attempts start with the mode `last`.
pub(crate) fn impersonate(
    requester: &User,
    wanted: &Impersonation,
    asked: &Attributes,
    last: Option<Mode>,
    decide: &dyn Fn(&User, &Attributes) -> Decision,
) -> Result<(User, Mode)> {
    if wanted.user.is_empty() {
        return Err(Status::bad_request(format!(
            "requested {wanted:?} without impersonating a user name"
        )));
    }
    let attempt = Attempt {
        requester,
        wanted,
        decide,
    };
    let others = MODES.into_iter().filter(|mode| Some(*mode) != last);
    let mut first_refusal = None;
    for mode in last.into_iter().chain(others) {
        if !mode.applies(wanted) {
            continue;
        }
        match attempt.by(mode, asked) {
            Ok(user) => return Ok((user, mode)),
            Err(status) => {
                first_refusal.get_or_insert(status);
            }
        }
    }
    Err(first_refusal.unwrap_or_else(|| Status::internal("all impersonation modes failed")))
}

impl Mode {
    fn applies(self, wanted: &Impersonation) -> bool {
        let only_user =
            wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let (node, account) = (
            node(&wanted.user).is_some(),
            service_account(&wanted.user).is_some(),
        );
        match self {
            Mode::Node => only_user && node,
            Mode::ServiceAccount => only_user && account,
            Mode::UserInfo => !node && !account,
            Mode::Legacy => true,
        }
    }

    /// The name of a constrained mode in verbs.
    fn name(self) -> Option<&'static str> {
        match self {
            Mode::Node => Some("arbitrary-node"),
            Mode::ServiceAccount => Some("serviceaccount"),
            Mode::UserInfo => Some("user-info"),
            Mode::Legacy => None,
        }
    }

    fn verb(self) -> String {
        self.name().map_or_else(
            || "impersonate".to_owned(),
            |name| format!("impersonate:{name}"),
        )
    }
}

struct Attempt<'a> {
    requester: &'a User,
    wanted: &'a Impersonation,
    decide: &'a dyn Fn(&User, &Attributes) -> Decision,
}

impl Attempt<'_> {
    fn by(&self, mode: Mode, asked: &Attributes) -> Result<User> {
        if let Some(name) = mode.name() {
            let on = format!("impersonate-on:{name}:{}", asked.verb);
            self.check(&Attributes {
                verb: on,
                ..asked.clone()
            })?;
        }
        let mut user = self.named(mode)?;
        self.may_set_rest(mode)?;
        if user.name == ANONYMOUS {
            user.join(UNAUTHENTICATED);
        } else if !user.is_in(UNAUTHENTICATED) {
            user.join(AUTHENTICATED);
        }
        Ok(user)
    }

    fn check(&self, asked: &Attributes) -> Result<()> {
        let decision = (self.decide)(self.requester, asked);
        if decision.allowed {
            return Ok(());
        }
        Err(denied(self.requester, asked, &decision.reason))
    }

    /// Checks the permission for the name, and returns the user.
    fn named(&self, mode: Mode) -> Result<User> {
        let wanted = self.wanted;
        let mut user = User {
            name: wanted.user.clone(),
            uid: wanted.uid.clone(),
            groups: wanted.groups.clone(),
            extra: wanted.extra.clone(),
        };
        let mut asked = subject(mode, "users", &wanted.user);
        if mode == Mode::Node {
            asked = subject(mode, "nodes", node(&wanted.user).unwrap_or_default());
            user.groups = vec!["system:nodes".to_owned()];
        } else if let Some((namespace, name)) = service_account(&wanted.user) {
            asked = subject(mode, "serviceaccounts", name);
            namespace.clone_into(&mut asked.namespace);
            if wanted.groups.is_empty() {
                user.groups = service_account_groups(namespace);
            }
        }
        self.check(&asked)?;
        Ok(user)
    }

    /// Checks the permissions for the uid, the groups and the extra fields.
    fn may_set_rest(&self, mode: Mode) -> Result<()> {
        let wanted = self.wanted;
        // These are in a group of their own, whatever the mode.
        let newer = |resource: &str, name: &str| Attributes {
            group: AUTHENTICATION.to_owned(),
            ..subject(mode, resource, name)
        };
        if !wanted.uid.is_empty() {
            self.check(&newer("uids", &wanted.uid))?;
        }
        for group in &wanted.groups {
            let asked = subject(mode, "groups", group);
            let refused = match group.as_str() {
                "" => Some("impersonating the empty string group is not allowed"),
                MASTERS => Some("impersonating the system:masters group is not allowed"),
                _ => None,
            };
            if let (Some(why), true) = (refused, mode != Mode::Legacy) {
                return Err(denied(self.requester, &asked, why));
            }
            self.check(&asked)?;
        }
        for (key, values) in &wanted.extra {
            for value in values {
                self.check(&Attributes {
                    subresource: key.clone(),
                    ..newer("userextras", value)
                })?;
            }
        }
        Ok(())
    }
}

const AUTHENTICATION: &str = "authentication.k8s.io";

/// The permission to impersonate one of `resource`.
fn subject(mode: Mode, resource: &str, name: &str) -> Attributes {
    let group = if mode == Mode::Legacy {
        ""
    } else {
        AUTHENTICATION
    };
    Attributes {
        verb: mode.verb(),
        group: group.to_owned(),
        resource: resource.to_owned(),
        name: name.to_owned(),
        ..Attributes::default()
    }
}

/// The node's name, if that is what the user is.
fn node(user: &str) -> Option<&str> {
    let name = user.strip_prefix("system:node:")?;
    subdomain(name).is_empty().then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bot() -> User {
        User::service_account("n", "bot", "1")
    }

    fn attributes() -> Attributes {
        Attributes {
            verb: "list".to_owned(),
            resource: "pods".to_owned(),
            namespace: "n".to_owned(),
            ..Attributes::default()
        }
    }

    fn wanted(user: &str) -> Impersonation {
        Impersonation {
            user: user.to_owned(),
            ..Impersonation::default()
        }
    }

    /// Allows these; each is `verb resource[/subresource] name`.
    fn allowing(list: &'static [&'static str]) -> impl Fn(&User, &Attributes) -> Decision {
        move |_, asked| {
            let key = format!("{} {} {}", asked.verb, asked.full_resource(), asked.name);
            Decision {
                allowed: list.contains(&key.trim()),
                reason: String::new(),
            }
        }
    }

    fn attempt(
        wanted: &Impersonation,
        last: Option<Mode>,
        list: &'static [&'static str],
    ) -> std::result::Result<(User, Mode), String> {
        impersonate(&bot(), wanted, &attributes(), last, &allowing(list))
            .map_err(|status| status.message.clone())
    }

    #[test]
    fn an_account_by_the_old_verb_or_for_one_request() {
        let worker = wanted("system:serviceaccount:m:worker");
        let mut user = User::service_account("m", "worker", "");
        user.groups = vec![
            "system:serviceaccounts".to_owned(),
            "system:serviceaccounts:m".to_owned(),
            AUTHENTICATED.to_owned(),
        ];
        let old = attempt(&worker, None, &["impersonate serviceaccounts worker"]);
        assert_eq!(old, Ok((user.clone(), Mode::Legacy)));
        let constrained = &[
            "impersonate-on:serviceaccount:list pods",
            "impersonate:serviceaccount serviceaccounts worker",
        ];
        let new = attempt(&worker, None, constrained);
        assert_eq!(new, Ok((user, Mode::ServiceAccount)));
        // Without any permission, the answer is that of the first attempt.
        assert_eq!(
            attempt(&worker, None, &[]).expect_err("nothing is allowed"),
            "pods is forbidden: User \"system:serviceaccount:n:bot\" cannot impersonate-on:serviceaccount:list resource \"pods\" in API group \"\" in the namespace \"n\""
        );
        assert_eq!(
            attempt(&worker, Some(Mode::Legacy), &[]).expect_err("nothing is allowed"),
            "serviceaccounts \"worker\" is forbidden: User \"system:serviceaccount:n:bot\" cannot impersonate resource \"serviceaccounts\" in API group \"\" in the namespace \"m\""
        );
    }

    #[test]
    fn every_part_of_a_user_is_authorized() {
        let mut eve = wanted("eve");
        eve.uid = "7".to_owned();
        eve.groups = vec!["a".to_owned(), "b".to_owned()];
        eve.extra = BTreeMap::from([("scope".to_owned(), vec!["x".to_owned()])]);
        let all = &[
            "impersonate users eve",
            "impersonate uids 7",
            "impersonate groups a",
            "impersonate groups b",
            "impersonate userextras/scope x",
        ];
        let (user, _) = attempt(&eve, None, all).expect("allowed");
        assert_eq!(user.groups, ["a", "b", AUTHENTICATED]);
        assert_eq!((user.uid.as_str(), &user.extra), ("7", &eve.extra));
        for left_out in 0..all.len() {
            let list: Vec<&str> = all
                .iter()
                .enumerate()
                .filter(|(place, _)| *place != left_out)
                .map(|(_, one)| *one)
                .collect();
            let decide = |_: &User, asked: &Attributes| Decision {
                allowed: list.contains(
                    &format!("{} {} {}", asked.verb, asked.full_resource(), asked.name).as_str(),
                ),
                reason: String::new(),
            };
            let refused = impersonate(&bot(), &eve, &attributes(), Some(Mode::Legacy), &decide);
            assert_eq!(refused.expect_err("one is missing").code, 403);
        }
    }

    #[test]
    fn the_new_verbs_make_no_administrator() {
        let mut admin = wanted("eve");
        admin.groups = vec![MASTERS.to_owned()];
        let decide = |_: &User, asked: &Attributes| Decision {
            allowed: asked.verb != "impersonate",
            reason: String::new(),
        };
        let refused =
            impersonate(&bot(), &admin, &attributes(), None, &decide).expect_err("refused");
        assert!(
            refused.message.ends_with(
                "at the cluster scope: impersonating the system:masters group is not allowed"
            ),
            "{}",
            refused.message
        );
        let nobody = impersonate(&bot(), &wanted(""), &attributes(), None, &decide);
        assert_eq!(nobody.expect_err("refused").code, 400);
    }
}
