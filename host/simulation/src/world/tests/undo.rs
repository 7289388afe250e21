//! Nothing is deleted without a copy, whatever breaks between the copy and the deletion.

use davit_core::undo::{UndoKind, UndoRules};

use super::*;

fn undo(resource: &str) -> Undo {
    let kind = UndoKind {
        group: String::new(),
        resource: resource.to_owned(),
    };
    let rules = UndoRules {
        kinds: vec![kind],
        keep_for: MINUTE,
    };
    Undo {
        rules: Arc::new(rules),
        has_journal: true,
    }
}

fn delete(world: &mut World, target: &ObjectRef) -> PlanId {
    start_keeping(world, deletion(target), Some(undo("configmaps")))
}

#[test]
fn an_object_is_kept_before_it_is_deleted() {
    let mut world = world(1);
    let target = create(&mut world, "a");
    let started = delete(&mut world, &target);
    assert!(ended(&mut world, started).is_success());
    assert!(!exists(&world, &target));
    assert!(world.shared.kept.contains(&target.uid));
}

#[test]
fn an_object_of_another_kind_is_deleted_with_one_request() {
    let mut world = world(1);
    let target = create(&mut world, "a");
    let started = start_keeping(&mut world, deletion(&target), Some(undo("pods")));
    assert!(ended(&mut world, started).is_success());
    assert!(world.shared.kept.is_empty());
}

#[test]
fn an_object_that_no_journal_takes_stays() {
    let mut world = world(1);
    let target = create(&mut world, "a");
    world.conditions_mut().no_copies = 1.0;
    let started = delete(&mut world, &target);
    let (_, failure) = ended(&mut world, started).failed.unwrap();
    assert_eq!(failure.class, FailureClass::NotKept);
    assert!(exists(&world, &target));
    assert!(world.writes().is_empty());
}

/// Answers are lost, objects change and are created again under their names, the journal fails,
/// and the host crashes, each at any moment of an execution.
fn storm(seed: u64) -> usize {
    let mut world = world(seed);
    let mut dice = Dice::new(seed);
    for verb in ["get", "delete"] {
        for action in [
            Action::CloseBefore,
            Action::CloseAfter,
            Action::Refuse(Refusal::Conflict),
            Action::Delay(Duration::from_secs(1)),
        ] {
            fault(&mut world, verb, FaultTiming::Chance(0.1), action);
        }
    }
    let mut objects: BTreeMap<String, ObjectRef> = BTreeMap::new();
    let mut removed = BTreeSet::new();
    let mut all = Vec::new();
    for _ in 0..80_u32 {
        let name = format!("map-{}", dice.below(5));
        match objects
            .get(&name)
            .filter(|one| exists(&world, one))
            .cloned()
        {
            None => {
                let created = create(&mut world, &name);
                all.push(created.clone());
                objects.insert(name, created);
            }
            Some(target) => match dice.below(6) {
                0 => {
                    remove(&mut world, &name);
                    removed.insert(target.uid);
                }
                1 => {
                    let fails = dice.chance(0.5);
                    let conditions = world.conditions_mut();
                    conditions.no_copies = if fails { 1.0 } else { 0.0 };
                    conditions.slow_copies = 0.5;
                }
                2 => world.link(HostIndex::FIRST).crash(),
                _ => {
                    delete(&mut world, &target);
                }
            },
        }
        let until = world
            .instant()
            .after(Duration::from_millis(dice.below(300)));
        while world.next(until).is_some() {}
    }
    let until = world.instant().after(MINUTE);
    while world.next(until).is_some() {}
    assert!(world.violations().is_empty(), "seed {seed}");
    let is_deleted = |one: &&ObjectRef| !exists(&world, one) && !removed.contains(&one.uid);
    let deleted = all.iter().filter(is_deleted);
    let deleted = deleted.inspect(|one| {
        assert!(world.shared.kept.contains(&one.uid), "seed {seed}: {one}");
    });
    deleted.count()
}

#[test]
fn nothing_is_deleted_without_a_copy_whatever_breaks() {
    let deleted: usize = (0..200).map(storm).sum();
    assert!(deleted > 500, "{deleted} objects");
}

/// The read of the target is under way, or the deletion waits for its turn.
#[test]
fn nothing_is_deleted_after_the_withdrawal_of_a_plan_that_keeps_its_target() {
    let mut world = world(1);
    let target = create(&mut world, "a");
    fault(
        &mut world,
        "get",
        FaultTiming::Chance(1.0),
        Action::Delay(Duration::from_secs(1)),
    );
    let started = delete(&mut world, &target);
    world.link(HostIndex::FIRST).withdraw(PODGC);
    let (_, failure) = ended(&mut world, started).failed.unwrap();
    assert_eq!(failure.class, FailureClass::Conflict);
    assert!(exists(&world, &target));
    assert!(world.writes().is_empty() && world.shared.kept.is_empty());
}

/// The copy is on its way to the disk when the host ends, or withdraws the plan.
#[test]
fn nothing_is_deleted_when_the_host_crashes_or_withdraws_the_plan_before_the_disk_has_the_copy() {
    for crashes in [true, false] {
        let mut world = world(1);
        let target = create(&mut world, "a");
        world.conditions_mut().slow_copies = 1.0;
        world.conditions_mut().copying = Duration::from_secs(2)..Duration::from_secs(3);
        delete(&mut world, &target);
        let until = world.instant().after(Duration::from_secs(1));
        while world.next(until).is_some() {}
        let mut link = world.link(HostIndex::FIRST);
        if crashes {
            link.crash();
        } else {
            link.withdraw(PODGC);
        }
        let until = world.instant().after(MINUTE);
        while world.next(until).is_some() {}
        assert!(exists(&world, &target), "{crashes}");
        assert!(world.writes().is_empty(), "{crashes}");
        assert_eq!(world.shared.kept.is_empty(), crashes);
    }
}

/// The host thinks that nothing has to be kept.
#[test]
fn a_deletion_without_the_copy_that_was_declared_is_a_violation() {
    let mut world = world(1);
    let target = create(&mut world, "a");
    let kinds = BTreeSet::from(["ConfigMap".to_owned()]);
    let name = "podgc".to_owned();
    world.expect_copies(BTreeMap::from([(name, kinds)]));
    let started = start_keeping(&mut world, deletion(&target), None);
    assert!(ended(&mut world, started).is_success());
    assert_eq!(world.violations().len(), 1, "{:?}", world.violations());
}
