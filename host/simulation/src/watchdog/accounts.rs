//! What the accounts of controllers may read, and which of them the host may impersonate, as
//! far as the host knows.

use std::collections::BTreeMap;

use davit_core::account::Account;
use davit_core::api::ControllerSpec;
use davit_core::manifest::{Manifest, Source};
use davit_core::request::review::{AccessReview, ReviewAnswer};

use crate::namespace::NAMESPACE;

/// The last answers that the host received.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// By account, verb, group, resource and namespace: the answer in force, after those
    /// that may still have effects.
    all: BTreeMap<(Account, String), Vec<bool>>,
}

/// The account in force, after the accounts that may still have effects.
#[derive(Debug, Default)]
pub(super) struct Accounts(Vec<Option<Account>>);

impl Answers {
    /// The host receives an answer. Without one, the former answer stays in force.
    pub(super) fn receive(&mut self, review: &AccessReview, result: &Result<ReviewAnswer, String>) {
        if let Ok(answer) = result {
            let key = (review.account().clone(), review.to_string());
            let all = self.all.entry(key).or_default();
            all.push(*answer == ReviewAnswer::Allowed);
        }
    }

    /// Only the last answers have effects from now on.
    pub(super) fn settle(&mut self) {
        for answers in self.all.values_mut() {
            let former = answers.len().saturating_sub(1);
            answers.drain(..former);
        }
    }

    fn is_allowed(&self, account: &Account, permission: &str) -> bool {
        let answers = self.all.get(&(account.clone(), permission.to_owned()));
        answers.is_some_and(|answers| answers.contains(&true))
    }
}

impl Accounts {
    /// The host receives this spec.
    pub(super) fn specify(&mut self, spec: &ControllerSpec) {
        let account = spec.service_account_name.as_ref().map(|name| Account {
            namespace: NAMESPACE.to_owned(),
            name: name.clone(),
        });
        if self.0.last() != Some(&account) {
            self.0.push(account);
        }
    }

    /// Only the last account has effects from now on.
    pub(super) fn settle(&mut self) {
        let former = self.0.len().saturating_sub(1);
        self.0.drain(..former);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// What a guest watches and the account may not list or watch, or that the host may not
    /// impersonate the account of a guest that reads live or writes, as far as the API
    /// server has answered.
    pub(super) fn exceeded(&self, manifest: &Manifest, answers: &Answers) -> Option<String> {
        let lacks = |account: &Option<Account>| {
            let account = account.as_ref()?;
            let mut needed = manifest.watches.iter().flat_map(permissions);
            if let Some(lacks) = needed.find(|one| !answers.is_allowed(account, one)) {
                return Some(format!("{account} may not {lacks}"));
            }
            let impersonate = format!("impersonate {account}");
            let lacks = manifest.acts_as_account() && !answers.is_allowed(account, &impersonate);
            lacks.then(|| format!("the host may not {impersonate}"))
        };
        let all: Vec<Option<String>> = self.0.iter().map(lacks).collect();
        let is_allowed = all.iter().any(Option::is_none);
        if is_allowed {
            None
        } else {
            all.into_iter().flatten().next()
        }
    }
}

/// What an account needs for a watch.
fn permissions(watch: &davit_core::manifest::WatchSpec) -> [String; 2] {
    let resource = match &watch.source {
        Source::One(one) if one.group.is_empty() => one.plural.clone(),
        Source::One(one) => format!("{}/{}", one.group, one.plural),
        Source::EveryDeletable(_) => "every resource".to_owned(),
    };
    let place = match watch.namespace.as_str() {
        "" => String::new(),
        namespace => format!(" in {namespace}"),
    };
    ["list", "watch"].map(|verb| format!("{verb} {resource}{place}"))
}
