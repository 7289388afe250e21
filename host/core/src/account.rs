//! Service accounts: as whom the host reads and writes for a controller.

use std::fmt;

use crate::failure::{Failure, FailureClass};

/// A service account. Displays as `NAMESPACE/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Account {
    /// The user of a request that the account sends or that impersonates it.
    #[must_use]
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    /// The groups of this user. The API server adds them to an impersonated user; a review
    /// has to name them.
    #[must_use]
    pub fn groups(&self) -> [String; 3] {
        [
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{}", self.namespace),
            "system:authenticated".to_owned(),
        ]
    }

    /// Adds to a refusal of the API server what an operator has to do. The server's own
    /// message names the permission.
    #[must_use]
    pub fn explain(&self, failure: Failure) -> Failure {
        if failure.class != FailureClass::Forbidden {
            return failure;
        }
        let remedy = if failure.message.contains("cannot impersonate") {
            format!("let Davit's own account impersonate the ServiceAccount {self}")
        } else {
            format!("grant this to the ServiceAccount {self}, as which the controller acts")
        };
        Failure {
            message: format!("{}; {remedy}", failure.message),
            ..failure
        }
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account() -> Account {
        Account {
            namespace: "davit-system".to_owned(),
            name: "davit-podgc".to_owned(),
        }
    }

    /// As kube-apiserver's authenticator of service accounts names them
    /// (`serviceaccount.UserInfo`).
    #[test]
    fn a_user_has_the_groups_of_its_token() {
        let account = account();
        assert_eq!(
            account.user(),
            "system:serviceaccount:davit-system:davit-podgc"
        );
        assert_eq!(
            account.groups(),
            [
                "system:serviceaccounts",
                "system:serviceaccounts:davit-system",
                "system:authenticated"
            ]
        );
    }

    #[test]
    fn a_refusal_says_to_whom_a_permission_is_missing() {
        let explained =
            |class, message: &str| account().explain(Failure::new(class, message)).message;
        let refused = explained(FailureClass::Forbidden, "get v1 Pod a/b: cannot get pods");
        assert_eq!(
            refused,
            "get v1 Pod a/b: cannot get pods; grant this to the ServiceAccount \
             davit-system/davit-podgc, as which the controller acts"
        );
        let refused = explained(
            FailureClass::Forbidden,
            "cannot impersonate resource \"serviceaccounts\"",
        );
        assert!(refused.ends_with(
            "; let Davit's own account impersonate the ServiceAccount davit-system/davit-podgc"
        ));
        assert_eq!(explained(FailureClass::Server, "away"), "away");
    }
}
