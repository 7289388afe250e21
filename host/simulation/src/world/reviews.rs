//! Reviews of what accounts may do.

use std::collections::BTreeSet;

use davit_core::account::Account;
use davit_core::control::ReviewId;
use davit_core::request::RequestError;
use davit_core::request::call::Sender;
use davit_core::request::review::AccessReview;
use davit_core::traffic::Urgency;

use super::in_flight::Caller;
use super::{Link, Notice, World};

impl World {
    /// Withdraws every permission of an account, or gives them back.
    pub fn authorize(&mut self, account: &Account, allowed: bool) {
        let what = if allowed { "has" } else { "loses" };
        self.note(format_args!("{account} {what} its permissions"));
        set(&mut self.shared.server.powerless, account, !allowed);
    }

    /// Forbids the host to impersonate an account, or allows it again.
    pub fn allow_impersonation(&mut self, account: &Account, allowed: bool) {
        let what = if allowed { "may" } else { "may not" };
        self.note(format_args!("the host {what} impersonate {account}"));
        set(&mut self.shared.server.unimpersonable, account, !allowed);
    }

    /// Gives every account its permissions back, and the host the right to impersonate it.
    pub fn authorize_all(&mut self) {
        self.shared.server.powerless.clear();
        self.shared.server.unimpersonable.clear();
    }
}

impl Link<'_> {
    /// Asks the server what an account may do. The answer is a [`Notice::Reviewed`].
    pub fn review(&mut self, id: ReviewId, review: AccessReview) {
        let request = review.request();
        self.client.reviews.insert(id, review);
        self.ask(
            Caller::Review(id),
            &Sender::default(),
            Urgency::Read,
            request,
        );
    }

    pub(super) fn review_answered(&mut self, id: ReviewId, result: &Result<Vec<u8>, RequestError>) {
        if let Some(review) = self.client.reviews.remove(&id) {
            let answer = review.answer(result.as_ref().map(Vec::as_slice));
            let result = answer.map_err(|failure| failure.message);
            self.note(format_args!("{}: {review}: {result:?}", review.account()));
            self.client
                .notices
                .push_back(Notice::Reviewed { id, review, result });
        }
    }
}

fn set(users: &mut BTreeSet<String>, account: &Account, contained: bool) {
    if contained {
        users.insert(account.user());
    } else {
        users.remove(&account.user());
    }
}
