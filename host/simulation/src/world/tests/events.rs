//! Events of plans and of controllers, on the way to the server.

use davit_core::events::Recorder;
use davit_core::plan::Event;
use davit_core::request::call::Sender;

use super::*;

fn event(message: &str) -> Event {
    Event {
        event_type: "Normal".into(),
        reason: "Tested".into(),
        message: message.into(),
        component: "test".into(),
    }
}

fn calm() -> World {
    let start = Time::from_unix(1_780_000_000);
    let model = Model::new(Config::default(), start).unwrap();
    World::calm(model, start)
}

fn record(world: &mut World, object: &ObjectRef) {
    let mut link = world.link(HostIndex::FIRST);
    link.record(object, event("m"), None);
}

/// The events that the server has: the message, the count and the decision of each.
fn events(world: &World) -> Vec<(String, u64, String)> {
    let all = direct::list(world.model(), "v1", "Event", "").unwrap();
    let text = |event: &Value, at: &str| {
        let text = event.pointer(at).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    all.iter()
        .map(|event| {
            let decision = text(event, "/metadata/annotations/davit.dev~1decision");
            let count = event["count"].as_u64().unwrap();
            (text(event, "/message"), count, decision)
        })
        .collect()
}

/// A plan that records an event before and after it deletes its target.
fn deletion_with_events(target: &ObjectRef) -> Plan {
    let step = |message: &str| Step::Event(event(message));
    Plan {
        steps: vec![
            step("before"),
            Step::Delete(DeleteOptions::default()),
            step("after"),
        ],
        ..(*deletion(target)).clone()
    }
}

fn wait(world: &mut World, time: Duration) {
    let until = world.instant().after(time);
    while world.next(until).is_some() {}
}

#[test]
fn a_series_of_events_is_created_once_and_then_patched() {
    let mut world = calm();
    let object = create(&mut world, "a");
    for _ in 0..3 {
        record(&mut world, &object);
        wait(&mut world, MINUTE);
    }
    assert_eq!(events(&world), [("m".to_owned(), 3, String::new())]);
    let stats = world.event_stats();
    assert_eq!((stats.sent, stats.failed, stats.waiting), (3, 0, 0));
}

#[test]
fn the_events_of_a_plan_name_its_decision() {
    let mut world = calm();
    let target = create(&mut world, "a");
    let started = start_plan(&mut world, deletion_with_events(&target).into());
    assert_eq!(ended(&mut world, started).failed, None);
    wait(&mut world, MINUTE);
    let decision = || "1-0-0".to_owned();
    let mut events = events(&world);
    events.sort();
    let expected = [
        ("after".to_owned(), 1, decision()),
        ("before".to_owned(), 1, decision()),
    ];
    assert_eq!(events, expected);
}

/// A step that failed ends its plan: what follows did not happen.
#[test]
fn after_a_step_that_failed_no_event_is_recorded() {
    let mut world = calm();
    let target = create(&mut world, "a");
    let always = FaultTiming::Chance(1.0);
    let refusal = Action::Refuse(Refusal::InternalError);
    fault(&mut world, "delete", always, refusal);
    let mut plan = deletion_with_events(&target);
    plan.steps.remove(0);
    let started = start_plan(&mut world, plan.into());
    let _ = ended(&mut world, started);
    wait(&mut world, MINUTE);
    assert_eq!(events(&world), []);
}

#[test]
fn a_plan_that_did_not_start_has_no_event() {
    let mut world = calm();
    let target = create(&mut world, "a");
    let instant = world.instant();
    let client = &mut world.clients[0];
    let destination = Sender::new("podgc", None).beginning("").destination;
    let second = Duration::from_secs(1);
    client.traffic.pause(destination.clone(), second, instant);
    let waiting = start_plan(&mut world, deletion_with_events(&target).into());
    assert!(
        world
            .link(HostIndex::FIRST)
            .perform(Effect::<()>::Withdraw(PODGC))
            .is_none()
    );
    let failed = ended(&mut world, waiting).failed.unwrap();
    assert_eq!(failed.1.class, FailureClass::Conflict);
    // The pause is too long for the next one.
    let client = &mut world.clients[0];
    client.traffic.pause(destination, MINUTE, instant);
    let refused = start_plan(&mut world, deletion_with_events(&target).into());
    let failed = ended(&mut world, refused).failed.unwrap();
    assert_eq!(failed.1.class, FailureClass::Throttled);
    wait(&mut world, 2 * MINUTE);
    assert!(exists(&world, &target));
    assert_eq!(events(&world), []);
}

/// The server refuses some events, and loses some requests and some answers: the plans end
/// all the same, and every event is sent, merged or counted as failed.
#[test]
fn a_lost_event_keeps_no_plan_waiting() {
    let mut world = world(1);
    for (action, chance) in [
        (Action::CloseBefore, 0.1),
        (Action::CloseAfter, 0.1),
        (Action::Delay(Duration::from_secs(40)), 0.1),
        (Action::Refuse(Refusal::Forbidden), 0.05),
        (Action::Refuse(Refusal::TooManyRequests(1)), 0.1),
        (Action::Refuse(Refusal::InternalError), 0.05),
    ] {
        world.faults().add(Fault {
            matches: Match {
                resource: "events".into(),
                ..Match::default()
            },
            when: FaultTiming::Chance(chance),
            action,
        });
    }
    for number in 0..100 {
        let object = create(&mut world, &number.to_string());
        for _ in 0..2 {
            record(&mut world, &object);
            wait(&mut world, Duration::from_secs(3));
        }
        let started = start_plan(&mut world, deletion_with_events(&object).into());
        assert_eq!(ended(&mut world, started).failed, None);
    }
    wait(&mut world, 30 * MINUTE);
    world.check_events();
    assert_eq!(world.violations(), &[] as &[String]);
    let stats = world.event_stats();
    assert!(stats.sent > 200 && stats.failed > 10, "{stats:?}");
    assert_eq!((stats.waiting, stats.dropped), (0, 0), "{stats:?}");
}

#[test]
fn a_host_that_creates_a_series_twice_breaks_a_rule() {
    let mut world = calm();
    let object = create(&mut world, "a");
    record(&mut world, &object);
    wait(&mut world, MINUTE);
    // Another recorder does not know the series.
    world.clients[0].events.recorder = Recorder::default();
    record(&mut world, &object);
    assert_eq!(world.violations().len(), 1, "{:?}", world.violations());
}
