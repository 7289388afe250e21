//! What the account of a controller may read.

use davit_core::account::Account;
use davit_core::request::review::{Access, AccessReview, ReviewAnswer};

use super::*;

fn account() -> Account {
    Account {
        namespace: crate::namespace::NAMESPACE.to_owned(),
        name: "gc".to_owned(),
    }
}

/// A review of a verb on pods, or of the impersonation.
fn review(verb: &'static str) -> AccessReview {
    if verb == "impersonate" {
        return AccessReview::Impersonation(account());
    }
    AccessReview::Access(Access {
        account: account(),
        group: String::new(),
        resource: "pods".to_owned(),
        namespace: String::new(),
        verb,
    })
}

fn denied() -> ReviewAnswer {
    ReviewAnswer::Denied {
        reason: String::new(),
    }
}

fn answer(trace: &mut Trace, verb: &'static str, answer: ReviewAnswer) {
    trace.watchdog.reviewed(&review(verb), &Ok(answer));
}

#[test]
fn an_account_may_read_what_its_guest_watches() {
    let mut trace = Trace::new();
    trace.change(|spec| spec.service_account_name = Some("gc".to_owned()));
    reports(&trace.call(STABLE), "may not list pods");
    answer(&mut trace, "list", ReviewAnswer::Allowed);
    reports(&trace.call(STABLE), "may not watch pods");
    answer(&mut trace, "watch", ReviewAnswer::Allowed);
    reports(&trace.call(STABLE), "the host may not impersonate davit/gc");
    answer(&mut trace, "impersonate", ReviewAnswer::Allowed);
    passes(&trace.call(STABLE));
    passes(&trace.execute(STABLE, delete("a")));

    answer(&mut trace, "watch", denied());
    passes(&trace.call(STABLE));
    trace.watchdog.settle();
    reports(&trace.call(STABLE), "may not watch pods");
    reports(&trace.execute(STABLE, delete("b")), "may not watch pods");
    // Without an answer, nothing changes.
    let lost = Err("no answer".to_owned());
    trace.watchdog.reviewed(&review("watch"), &lost);
    reports(&trace.call(STABLE), "may not watch pods");
    answer(&mut trace, "watch", ReviewAnswer::Allowed);
    passes(&trace.call(STABLE));
    trace.watchdog.reviewed(&review("watch"), &lost);
    trace.watchdog.settle();
    passes(&trace.call(STABLE));
}

#[test]
fn another_account_is_another_question() {
    let mut trace = Trace::new();
    trace.change(|spec| spec.service_account_name = Some("other".to_owned()));
    answer(&mut trace, "list", ReviewAnswer::Allowed);
    answer(&mut trace, "watch", ReviewAnswer::Allowed);
    reports(&trace.call(STABLE), "davit/other may not list pods");
    trace.change(|spec| spec.service_account_name = None);
    passes(&trace.call(STABLE));
}

/// The next host has to ask again.
#[test]
fn a_host_knows_no_answer_of_the_former_one() {
    let mut trace = Trace::new();
    trace.change(|spec| spec.service_account_name = Some("gc".to_owned()));
    answer(&mut trace, "list", ReviewAnswer::Allowed);
    answer(&mut trace, "watch", ReviewAnswer::Allowed);
    answer(&mut trace, "impersonate", ReviewAnswer::Allowed);
    passes(&trace.call(STABLE));
    trace.restart();
    reports(&trace.call(STABLE), "may not list pods");
}
