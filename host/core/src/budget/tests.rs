use super::*;
use crate::object::ObjectRef;
use crate::plan::{DeleteOptions, Event, Patch, PatchKind};

impl From<RecentWrites> for CountedWrites {
    fn from(recent: RecentWrites) -> Self {
        Self {
            recent,
            may_be_over: false,
        }
    }
}

const STABLE: Requester = Requester {
    role: Role::Stable,
    weight: 0,
    watched: 0,
};

fn plan(step: Step) -> Plan {
    Plan {
        target: ObjectRef {
            kind: "Pod".into(),
            ..ObjectRef::default()
        },
        reason: String::new(),
        message: String::new(),
        steps: vec![step],
        measures: vec![],
        when_cancelled: None,
    }
}

fn delete() -> Plan {
    plan(Step::Delete(DeleteOptions::default()))
}

fn patch() -> Plan {
    plan(Step::Patch(Patch {
        kind: PatchKind::Merge,
        subresource: String::new(),
        body: vec![],
    }))
}

impl Budget {
    /// Spends a plan as a controller does, and trips the guardrail that holds it back.
    fn ask(&mut self, plan: &Plan, requester: Requester, now: Instant) -> Option<Trip> {
        let held_back = self.check(plan, requester, now);
        if let Some(trip) = held_back {
            self.trip(trip, now);
        }
        held_back
    }
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO.after(Duration::from_secs(seconds))
}

fn deletes(limit: u32) -> Guardrails {
    Guardrails {
        deletes_per_minute: Some(limit),
        ..Guardrails::default()
    }
}

/// How many of that many deletions are admitted at that time.
fn admitted(budget: &mut Budget, asker: Requester, seconds: u64, plans: usize) -> usize {
    let wanted = std::iter::repeat_n(delete(), plans);
    let admitted = wanted.filter(|plan| {
        let admitted = budget.ask(plan, asker, at(seconds)).is_none();
        if admitted {
            budget.spend(plan, asker, at(seconds));
        }
        admitted
    });
    admitted.count()
}

#[test]
fn a_guest_within_its_limit_is_never_deferred() {
    let mut budget = Budget::new(deletes(2));
    for seconds in [0, 30, 60, 90, 120] {
        assert_eq!(admitted(&mut budget, STABLE, seconds, 1), 1);
    }
    assert_eq!(budget.tripped(at(120)).count(), 0);
}

#[test]
fn asking_a_guardrail_does_not_trip_it() {
    let mut budget = Budget::new(deletes(2));
    assert_eq!(admitted(&mut budget, STABLE, 0, 2), 2);
    let held_back = budget.check(&delete(), STABLE, at(1));
    assert!(held_back.is_some());
    assert_eq!(budget.tripped(at(1)).count(), 0);
    // The counts expire: a minute later there is room.
    assert_eq!(
        budget.check(&delete(), STABLE, at(59)).unwrap().since,
        Some(at(59))
    );
    assert_eq!(budget.check(&delete(), STABLE, at(60)), None);
    budget.trip(held_back.unwrap(), at(1));
    assert_eq!(budget.check(&delete(), STABLE, at(60)), held_back);
}

#[test]
fn a_guest_that_exceeds_its_limit_waits_for_the_whole_cooldown() {
    let mut budget = Budget::new(deletes(2));
    assert_eq!(admitted(&mut budget, STABLE, 10, 5), 2);
    let spent = *budget.tripped(at(10)).next().unwrap();
    assert_eq!(
        (spent.guardrail, spent.limit, spent.until),
        (Guardrail::Deletes, 2, Some(at(310)))
    );
    assert_eq!(
        spent.to_string(),
        "the guardrail deletesPerMinute has tripped: 2 deletions in 60 seconds"
    );
    assert_eq!(admitted(&mut budget, STABLE, 309, 5), 0);
    assert_eq!(admitted(&mut budget, STABLE, 310, 5), 2);
}

#[test]
fn an_operator_resets_it() {
    let mut budget = Budget::new(Guardrails {
        cooldown: Cooldown::UntilReset,
        ..deletes(1)
    });
    assert_eq!(admitted(&mut budget, STABLE, 0, 2), 1);
    assert_eq!(admitted(&mut budget, STABLE, 1_000_000, 2), 0);
    budget.reset(at(1_000_001));
    assert_eq!(admitted(&mut budget, STABLE, 1_000_001, 2), 1);
}

/// An operator asks for it while nothing runs. By the time of the reset, plans are admitted.
#[test]
fn a_reset_forgets_no_plan_of_a_guardrail_that_has_not_tripped() {
    let mut budget = Budget::new(deletes(2));
    assert_eq!(admitted(&mut budget, STABLE, 0, 2), 2);
    budget.reset(at(1));
    assert_eq!(admitted(&mut budget, STABLE, 1, 1), 0);

    let mut budget = Budget::new(Guardrails {
        writes_per_minute: Some(3),
        ..deletes(1)
    });
    assert_eq!(admitted(&mut budget, STABLE, 0, 2), 1);
    budget.spend(&patch(), STABLE, at(0));
    budget.reset(at(1));
    assert_eq!(budget.recent_writes(at(1)).deletes, [0; 6]);
    assert_eq!(budget.recent_writes(at(1)).writes.iter().sum::<u32>(), 2);
}

#[test]
fn a_reset_of_a_percentage_leaves_the_number_of_all_deletions() {
    let mut budget = Budget::new(Guardrails {
        deletes_percent_per_minute: Some(10),
        ..deletes(3)
    });
    let of_twenty = Requester {
        watched: 20,
        ..STABLE
    };
    let trip = |budget: &Budget, seconds| {
        let trip = budget.check(&delete(), of_twenty, at(seconds));
        trip.map(|trip| trip.guardrail)
    };
    for _ in 0..2 {
        assert_eq!(trip(&budget, 0), None);
        budget.spend(&delete(), of_twenty, at(0));
    }
    let held_back = budget.check(&delete(), of_twenty, at(1)).unwrap();
    assert_eq!(held_back.guardrail, Guardrail::DeletesPercent);
    budget.trip(held_back, at(1));
    budget.reset(at(2));
    assert_eq!(trip(&budget, 2), None);
    budget.spend(&delete(), of_twenty, at(2));
    assert_eq!(trip(&budget, 3), Some(Guardrail::Deletes));
}

/// A trip that has ended is no reason to forget what still counts.
#[test]
fn a_reset_after_the_cooldown_forgets_nothing() {
    let mut budget = Budget::new(Guardrails {
        cooldown: Cooldown::After(Duration::from_secs(10)),
        ..deletes(1)
    });
    assert_eq!(admitted(&mut budget, STABLE, 0, 2), 1);
    budget.reset(at(20));
    assert_eq!(admitted(&mut budget, STABLE, 21, 1), 0);
}

#[test]
fn other_limits_are_judged_again() {
    let mut budget = Budget::new(deletes(1));
    assert_eq!(admitted(&mut budget, STABLE, 0, 2), 1);
    budget.set(deletes(1));
    assert_eq!(admitted(&mut budget, STABLE, 1, 1), 0, "the same limits");
    budget.set(deletes(3));
    assert_eq!(admitted(&mut budget, STABLE, 2, 5), 2, "one is spent");
}

#[test]
fn each_limit_counts_its_own_plans() {
    let mut budget = Budget::new(Guardrails {
        writes_per_minute: Some(1),
        deletes_per_minute: Some(0),
        ..Guardrails::default()
    });
    let event = plan(Step::Event(Event {
        event_type: "Normal".into(),
        reason: String::new(),
        message: String::new(),
        component: String::new(),
    }));
    let mut what = |plan: &Plan| budget.ask(plan, STABLE, at(0)).map(|spent| spent.guardrail);
    assert_eq!(what(&delete()), Some(Guardrail::Deletes));
    assert_eq!(what(&patch()), None);
    budget.spend(&patch(), STABLE, at(0));
    let mut what = |plan: &Plan| budget.ask(plan, STABLE, at(0)).map(|spent| spent.guardrail);
    assert_eq!(what(&patch()), Some(Guardrail::Writes));
    assert_eq!(what(&event), None);
}

/// Otherwise a plan of many creations would count as one.
#[test]
fn each_write_of_a_plan_counts() {
    let mut budget = Budget::new(Guardrails {
        writes_per_minute: Some(5),
        ..deletes(2)
    });
    let mut two = patch();
    two.steps.extend(delete().steps);
    for _ in 0..2 {
        assert_eq!(budget.check(&two, STABLE, at(0)), None);
        budget.spend(&two, STABLE, at(0));
    }
    let held_back = |plan: &Plan| budget.check(plan, STABLE, at(1)).map(|trip| trip.guardrail);
    assert_eq!(held_back(&patch()), None, "the fifth write");
    assert_eq!(held_back(&two), Some(Guardrail::Writes));
    let candidate = Requester {
        role: Role::Candidate,
        weight: 20,
        watched: 0,
    };
    let trip = budget.check(&two, candidate, at(100)).unwrap();
    assert_eq!((trip.role, trip.limit), (Role::Candidate, 1), "its share");
}

#[test]
fn a_percentage_is_of_the_objects_before_the_deletions() {
    let mut budget = Budget::new(Guardrails {
        deletes_percent_per_minute: Some(10),
        ..Guardrails::default()
    });
    let mut deleted = 0;
    for seconds in 0..10 {
        let asker = Requester {
            watched: 45 - deleted,
            ..STABLE
        };
        deleted += admitted(&mut budget, asker, seconds, 1);
    }
    assert_eq!(deleted, 5, "10 % of 45, rounded up");
    // The cache shows none of a burst's deletions yet, and then all of them.
    let mut budget = Budget::new(Guardrails {
        deletes_percent_per_minute: Some(50),
        ..Guardrails::default()
    });
    for (seconds, watched, deleted) in [(0, 20, 10), (1, 20, 0), (2, 10, 0)] {
        let asker = Requester { watched, ..STABLE };
        assert_eq!(admitted(&mut budget, asker, seconds, 20), deleted);
        budget.tripped.clear();
    }
    let mut budget = Budget::new(Guardrails {
        deletes_percent_per_minute: Some(1),
        ..Guardrails::default()
    });
    assert_eq!(
        admitted(&mut budget, STABLE, 0, 3),
        1,
        "one is always allowed"
    );
}

/// Another group may have a kind of the same name.
#[test]
fn a_share_is_of_one_kind_of_one_group() {
    let of = |api_version: &str| {
        let mut plan = delete();
        plan.target.api_version = api_version.into();
        plan.target.kind = "Service".into();
        plan
    };
    let watched = |watched| Requester { watched, ..STABLE };
    let mut budget = Budget::new(Guardrails {
        deletes_percent_per_minute: Some(10),
        ..Guardrails::default()
    });
    budget.spend(&of("v1"), watched(2000), at(0));
    let (other, few) = (of("serving.example.com/v1"), watched(20));
    for _ in 0..2 {
        assert_eq!(budget.ask(&other, few, at(1)), None);
        budget.spend(&other, few, at(1));
    }
    let spent = budget.ask(&other, few, at(1)).unwrap();
    assert_eq!(spent.limit, 2);
    // Another version of the kind is the same kind.
    assert_eq!(
        budget.ask(&of("serving.example.com/v2"), few, at(2)),
        Some(spent)
    );
}

#[test]
fn a_candidate_has_its_part_and_both_together_no_more_than_one() {
    let candidate = Requester {
        role: Role::Candidate,
        weight: 30,
        watched: 0,
    };
    let mut budget = Budget::new(deletes(10));
    assert_eq!(admitted(&mut budget, candidate, 0, 9), 3);
    let spent = *budget.tripped(at(0)).next().unwrap();
    assert_eq!((spent.role, spent.limit), (Role::Candidate, 3));
    assert_eq!(admitted(&mut budget, STABLE, 0, 9), 7, "what is left");
    budget.candidate_ended();
    assert_eq!(admitted(&mut budget, STABLE, 59, 1), 0);
    let mut budget = Budget::new(deletes(10));
    assert_eq!(admitted(&mut budget, STABLE, 0, 20), 10);
    let blamed: Vec<Role> = budget.tripped(at(0)).map(|spent| spent.role).collect();
    assert_eq!(admitted(&mut budget, candidate, 0, 1), 0);
    assert_eq!(blamed, [Role::Stable], "the candidate is not to blame");
}

#[test]
fn a_recorded_trip_holds_both_revisions_back() {
    let spent = Trip {
        guardrail: Guardrail::Deletes,
        limit: 3,
        role: Role::Stable,
        since: None,
        until: Some(at(20)),
    };
    let candidate = Requester {
        role: Role::Candidate,
        weight: 100,
        watched: 0,
    };
    let mut budget = Budget::new(deletes(3));
    budget.resume(spent);
    assert_eq!(budget.tripped(at(0)).collect::<Vec<_>>(), [&spent]);
    for asker in [STABLE, candidate] {
        assert_eq!(admitted(&mut budget, asker, 19, 1), 0);
    }
    assert_eq!(admitted(&mut budget, STABLE, 20, 9), 3);
    // With another limit, or none, the operator has decided again.
    for guardrails in [deletes(4), Guardrails::default()] {
        let mut budget = Budget::new(guardrails);
        budget.resume(spent);
        assert_eq!(admitted(&mut budget, STABLE, 0, 1), 1);
    }
}

#[test]
fn without_guardrails_nothing_is_counted() {
    let mut budget = Budget::default();
    assert_eq!(admitted(&mut budget, STABLE, 0, 100), 100);
    assert!(budget.deletes.is_empty() && budget.writes.is_empty());
}

#[test]
fn what_another_host_admitted_counts_from_now_until_a_minute_is_over() {
    let mut former = Budget::new(deletes(10));
    assert_eq!(admitted(&mut former, STABLE, 100, 4), 4);
    assert_eq!(admitted(&mut former, STABLE, 135, 3), 3);
    let recent = former.recent_writes(at(140));
    assert_eq!(recent.deletes, [3, 0, 0, 0, 4, 0]);
    assert_eq!(recent.writes, [0; 6], "nothing limits them");
    // The clock of the next host starts at zero.
    let mut next = Budget::new(deletes(10));
    next.assume(&recent.into(), at(5));
    assert_eq!(admitted(&mut next, STABLE, 6, 5), 3);
    let mut next = Budget::new(deletes(10));
    next.assume(&recent.into(), at(1005));
    // The four are at least 40 seconds old.
    assert_eq!(admitted(&mut next, STABLE, 1026, 8), 7);
    next.reset(at(1026));
    assert_eq!(next.recent_writes(at(1026)), RecentWrites::default());
}

#[test]
fn a_host_that_leads_again_counts_its_own_plans_once() {
    let mut budget = Budget::new(deletes(10));
    assert_eq!(admitted(&mut budget, STABLE, 100, 4), 4);
    // The other host has counted these four too, and admitted two.
    let recorded = RecentWrites {
        deletes: [2, 4, 0, 0, 0, 0],
        ..RecentWrites::default()
    };
    budget.assume(&recorded.into(), at(115));
    assert_eq!(admitted(&mut budget, STABLE, 116, 10), 4);
}

/// A host has started an hour later, or its clock is ahead. Whatever the cooldown is, no trip
/// lasts longer than the doubt.
#[test]
fn what_another_host_admitted_long_ago_defers_plans_for_a_minute_only() {
    for cooldown in [
        Cooldown::After(Duration::from_hours(1)),
        Cooldown::UntilReset,
    ] {
        let guardrails = Guardrails {
            cooldown,
            ..deletes(10)
        };
        let recent = RecentWrites {
            deletes: [8, 0, 0, 0, 0, 0],
            ..RecentWrites::default()
        };
        let former = CountedWrites {
            recent,
            may_be_over: true,
        };
        let mut budget = Budget::new(guardrails);
        budget.assume(&former, at(100));
        assert!(budget.counted_writes(at(100)).may_be_over);
        assert_eq!(admitted(&mut budget, STABLE, 101, 5), 2);
        assert_eq!(admitted(&mut budget, STABLE, 159, 5), 0);
        assert_eq!(admitted(&mut budget, STABLE, 160, 5), 5);
        assert!(!budget.counted_writes(at(160)).may_be_over);
        // Its own plans are certain. The first two do not count any more.
        assert_eq!(admitted(&mut budget, STABLE, 161, 9), 5);
        let trip = budget.tripped(at(161)).next().unwrap();
        let until = match cooldown {
            Cooldown::After(pause) => Some(at(161).after(pause)),
            Cooldown::UntilReset => None,
        };
        assert_eq!(trip.until, until);
    }
}

/// The kinds of another host's plans are not recorded: each may be of any kind.
#[test]
fn plans_of_another_host_count_for_the_percentage_of_every_kind() {
    let guardrails = Guardrails {
        deletes_percent_per_minute: Some(10),
        ..Guardrails::default()
    };
    let of_hundred = Requester {
        watched: 100,
        ..STABLE
    };
    let mut budget = Budget::new(guardrails);
    let recorded = RecentWrites {
        deletes: [7, 0, 0, 0, 0, 0],
        ..RecentWrites::default()
    };
    budget.assume(&recorded.into(), at(100));
    assert_eq!(admitted(&mut budget, of_hundred, 101, 9), 3);
}

/// It led before, recorded that immediately, and could not reach the API server for a while.
#[test]
fn plans_that_have_become_older_since_they_were_recorded_count_once() {
    let mut budget = Budget::new(deletes(100));
    assert_eq!(admitted(&mut budget, STABLE, 100, 60), 60);
    let recorded = budget.recent_writes(at(101));
    assert_eq!(recorded.deletes, [60, 0, 0, 0, 0, 0]);
    budget.assume(&recorded.into(), at(118));
    assert_eq!(admitted(&mut budget, STABLE, 119, 50), 40);
}

#[test]
fn what_is_left_of_a_guardrail_is_that_of_the_last_minute() {
    let mut budget = Budget::new(Guardrails {
        writes_per_minute: Some(10),
        deletes_percent_per_minute: Some(10),
        ..Guardrails::default()
    });
    let uses = |budget: &Budget, seconds| -> Vec<(Guardrail, usize, usize)> {
        let uses = budget.uses(at(seconds));
        uses.map(|one| (one.guardrail, one.used, one.limit))
            .collect()
    };
    assert_eq!(uses(&budget, 0), [(Guardrail::Writes, 0, 10)]);
    let of_fifty = Requester {
        watched: 50,
        ..STABLE
    };
    assert_eq!(admitted(&mut budget, of_fifty, 0, 2), 2);
    assert_eq!(
        uses(&budget, 59),
        [
            (Guardrail::Writes, 2, 10),
            (Guardrail::DeletesPercent, 2, 5)
        ]
    );
    assert_eq!(uses(&budget, 60), [(Guardrail::Writes, 0, 10)]);
    assert_eq!(uses(&Budget::default(), 0), []);
}
