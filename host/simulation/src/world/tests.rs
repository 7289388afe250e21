use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use davit_core::controller::{CallId, ControllerId, DecisionId, Outcome, PlanId};
use davit_core::expectation::WriteResult;
use davit_core::failure::FailureClass;
use davit_core::machine::{Effect, Execute, Input, ReadAnswer, ReadId, ReadRequest};
use davit_core::mapping::Mapping;
use davit_core::object::{ApiResource, ObjectRef};
use davit_core::path::FieldTree;
use davit_core::plan::{DeleteOptions, GetRequest, Plan, Step};
use davit_core::request::plan::Undo;
use davit_core::stream::{StreamId, StreamSpec, Update};
use davit_core::time::Instant;
use davit_sim::direct;
use davit_sim::fault::{Action, Fault, FaultTiming, Match, Refusal, WatchFault};
use davit_sim::{Config, Model, Time};
use serde_json::{Value, json};

use super::discovery::discovery;
use super::*;

mod events;
mod undo;

const MINUTE: Duration = Duration::from_mins(1);
const PODGC: ControllerId = ControllerId(1);

fn world(seed: u64) -> World {
    let start = Time::from_unix(1_780_000_000);
    let config = Config {
        seed,
        ..Config::default()
    };
    World::new(Model::new(config, start).unwrap(), start, seed, false)
}

fn create(world: &mut World, name: &str) -> ObjectRef {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let created = world.with_model(|model, now| direct::create(model, now, map));
    named(&created.unwrap())
}

fn named(object: &Value) -> ObjectRef {
    let text = |at: &str| object.pointer(at).unwrap().as_str().unwrap().to_owned();
    ObjectRef {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        namespace: text("/metadata/namespace"),
        name: text("/metadata/name"),
        uid: text("/metadata/uid"),
    }
}

fn remove(world: &mut World, name: &str) {
    let kind = ("v1", "ConfigMap");
    let options = davit_sim::model::DeleteOptions::default();
    world
        .with_model(|model, now| direct::delete(model, now, kind, "default", name, &options))
        .unwrap();
}

fn exists(world: &World, object: &ObjectRef) -> bool {
    direct::get(world.model(), "v1", "ConfigMap", "default", &object.name)
        .is_ok_and(|found| found["metadata"]["uid"] == object.uid.as_str())
}

fn maps() -> StreamSpec {
    StreamSpec {
        resource: ApiResource::new("", "v1", "configmaps"),
        namespace: String::new(),
        label_selector: String::new(),
        field_selector: String::new(),
        fields: FieldTree::default(),
    }
}

fn deletion(target: &ObjectRef) -> Arc<Plan> {
    Arc::new(Plan {
        target: target.clone(),
        reason: "test".into(),
        message: String::new(),
        steps: vec![Step::Delete(DeleteOptions::default())],
        measures: Vec::new(),
        when_cancelled: None,
    })
}

fn mapping(world: &mut World) -> Arc<Mapping> {
    let found = world.with_model(|model, now| discovery(model, now, &Conditions::default()));
    Arc::new(found.unwrap().mapping)
}

fn execute(world: &mut World, target: &ObjectRef) -> Outcome {
    let started = start(world, target);
    ended(world, started)
}

/// Starts to execute a plan that deletes this object.
fn start(world: &mut World, target: &ObjectRef) -> PlanId {
    start_plan(world, deletion(target))
}

fn start_plan(world: &mut World, plan: Arc<Plan>) -> PlanId {
    start_keeping(world, plan, None)
}

/// The same, for a controller with these rules.
fn start_keeping(world: &mut World, plan: Arc<Plan>, undo: Option<Undo>) -> PlanId {
    let id = PlanId {
        controller: PODGC,
        number: world.shared.fresh_id(),
    };
    let execute = Execute {
        id,
        controller: "podgc".into(),
        account: None,
        revision: "1".into(),
        decision: DecisionId {
            call: CallId {
                controller: PODGC,
                number: 0,
            },
            position: 0,
        },
        plan,
        records_events: true,
        mapping: mapping(world),
        undo,
    };
    assert!(
        world
            .link(HostIndex::FIRST)
            .perform(Effect::<()>::Execute(execute))
            .is_none()
    );
    id
}

fn ended(world: &mut World, started: PlanId) -> Outcome {
    let until = world.instant().after(MINUTE);
    while let Some(occurrence) = world.next(until) {
        if let Occurrence::Notice(_, Notice::Machine(Input::Executed { plan, outcome, .. })) =
            occurrence
            && plan == started
        {
            return outcome;
        }
    }
    panic!("the plan has not ended");
}

fn fault(world: &mut World, verb: &str, when: FaultTiming, action: Action) {
    world.faults().add(Fault {
        matches: Match::new(verb, "configmaps"),
        when,
        action,
    });
}

/// A cache that takes a stream's updates: the uids of the objects by name.
#[derive(Default)]
struct Cache {
    objects: BTreeMap<String, String>,
    resets: u32,
}

impl Cache {
    fn take(&mut self, updates: Vec<Update>) {
        for update in updates {
            match update {
                Update::Reset { items, .. } => {
                    self.resets += 1;
                    let items = items.into_iter();
                    self.objects = items.map(|it| (it.key(), it.uid.to_string())).collect();
                }
                Update::Apply(it) => {
                    self.objects.insert(it.key(), it.uid.to_string());
                }
                Update::Delete(it) => {
                    self.objects.remove(&it.key());
                }
                Update::Status(_) => {}
            }
        }
    }
}

/// Watches break, starve, expire and fail while objects come and go. In the end the stream
/// has delivered the server's objects. Returns the trace's hash.
fn storm(seed: u64) -> u64 {
    let mut world = world(seed);
    let mut dice = Dice::new(seed);
    world.conditions_mut().starve = 0.2;
    world.conditions_mut().unreachable = 0.05;
    fault(
        &mut world,
        "list",
        FaultTiming::Chance(0.2),
        Action::CloseAfter,
    );
    let refusal = Action::Refuse(Refusal::InternalError);
    fault(&mut world, "watch", FaultTiming::Chance(0.2), refusal);
    let abort = Action::Watch(3, WatchFault::Abort);
    fault(&mut world, "watch", FaultTiming::Chance(0.3), abort);
    world
        .link(HostIndex::FIRST)
        .start_stream(StreamId(1), maps());
    let mut cache = Cache::default();
    let mut names = BTreeSet::new();
    for step in 0..60_u64 {
        let name = format!("map-{}", dice.below(12));
        if names.insert(name.clone()) {
            create(&mut world, &name);
        } else {
            names.remove(&name);
            remove(&mut world, &name);
        }
        if dice.chance(0.2) {
            let faults = [WatchFault::Expire, WatchFault::Silence, WatchFault::End];
            world.disturb("", *dice.pick(&faults).unwrap());
        }
        let until = Instant::from_nanos(step * 2_000_000_000);
        collect(&mut world, &mut cache, until);
    }
    world.faults().clear();
    *world.conditions_mut() = Conditions::default();
    let until = world.instant().after(MINUTE * 10);
    collect(&mut world, &mut cache, until);
    let held = direct::list(world.model(), "v1", "ConfigMap", "").unwrap();
    let held = held.iter().map(named);
    let held: BTreeMap<String, String> = held
        .map(|it| (format!("{}/{}", it.namespace, it.name), it.uid))
        .collect();
    assert_eq!(cache.objects, held, "seed {seed}");
    assert!(cache.resets > 0, "seed {seed}: it was never listed");
    world.trace().hash()
}

fn collect(world: &mut World, cache: &mut Cache, until: Instant) {
    while let Some(occurrence) = world.next(until) {
        if let Occurrence::Notice(_, Notice::Machine(Input::Stream(batch))) = occurrence {
            cache.take(batch.updates);
        }
    }
}

#[test]
fn a_stream_shows_what_the_server_holds_whatever_breaks() {
    for seed in 0..200 {
        storm(seed);
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    assert_eq!(storm(5), storm(5));
    assert_ne!(storm(5), storm(6));
}

#[test]
fn a_plan_deletes_its_target_and_nothing_of_the_same_name() {
    let mut world = world(1);
    let first = create(&mut world, "a");
    remove(&mut world, "a");
    let second = create(&mut world, "a");
    let outcome = execute(&mut world, &first);
    let (_, failure) = outcome.failed.unwrap();
    assert_eq!(failure.class, FailureClass::UidMismatch);
    assert!(exists(&world, &second));
    let outcome = execute(&mut world, &second);
    assert_eq!(outcome.written, Some(WriteResult::Gone));
    assert!(!exists(&world, &second));
}

#[test]
fn a_lost_answer_does_not_show_whether_the_write_was_executed() {
    let mut world = world(2);
    let target = create(&mut world, "a");
    fault(
        &mut world,
        "delete",
        FaultTiming::First(1),
        Action::CloseAfter,
    );
    let (_, failure) = execute(&mut world, &target).failed.unwrap();
    assert_eq!(failure.class, FailureClass::Timeout);
    assert!(!exists(&world, &target));
    // It is not repeated: whoever decided decides again.
    assert_eq!(world.writes().len(), 1);
}

#[test]
fn a_write_is_sent_again_only_if_it_was_not_executed() {
    for (refusal, code, sent) in [
        (Refusal::TooManyRequests(1), 0, 2),
        (Refusal::InternalError, 500, 1),
        (Refusal::Conflict, 409, 1),
    ] {
        let mut world = world(3);
        let target = create(&mut world, "a");
        let refuse = Action::Refuse(refusal);
        fault(&mut world, "delete", FaultTiming::First(1), refuse);
        let outcome = execute(&mut world, &target);
        assert_eq!(outcome.failed.is_some(), code != 0, "{refusal:?}");
        assert_eq!(world.writes().len(), sent, "{refusal:?}");
    }
}

#[test]
fn a_plan_that_is_withdrawn_before_its_turn_sends_nothing() {
    let mut world = world(4);
    let target = create(&mut world, "a");
    let other = create(&mut world, "b");
    // The server asks for a pause, so the second plan waits for its turn.
    let refuse = Action::Refuse(Refusal::TooManyRequests(2));
    fault(&mut world, "delete", FaultTiming::First(1), refuse);
    let first = start(&mut world, &target);
    let until = world.instant().after(Duration::from_secs(1));
    assert!(world.next(until).is_none());
    let second = start(&mut world, &other);
    world
        .link(HostIndex::FIRST)
        .perform(Effect::<()>::Withdraw(PODGC));
    let (_, failure) = ended(&mut world, second).failed.unwrap();
    assert_eq!(failure.class, FailureClass::Conflict);
    // A started execution ends.
    assert!(ended(&mut world, first).is_success());
    assert!(!exists(&world, &target));
    assert!(exists(&world, &other));
}

#[test]
fn a_plan_that_waits_is_withdrawn_when_its_controller_is_led_no_longer() {
    let mut world = world(7);
    let target = create(&mut world, "a");
    let other = create(&mut world, "b");
    // The server asks for a pause, so the second plan waits for its turn.
    let refuse = Action::Refuse(Refusal::TooManyRequests(2));
    fault(&mut world, "delete", FaultTiming::First(1), refuse);
    start(&mut world, &target);
    let until = world.instant().after(Duration::from_secs(1));
    assert!(world.next(until).is_none());
    start(&mut world, &other);
    let mut link = world.link(HostIndex::FIRST);
    link.check_withdrawn();
    link.elect(Some("run1".to_owned()));
    link.set_term("podgc".to_owned(), Some(Instant::FAR_FUTURE));
    link.check_withdrawn();
    assert_eq!(world.violations(), [] as [String; 0]);
    // The first plan has started, and may end.
    let mut link = world.link(HostIndex::FIRST);
    link.set_term("podgc".to_owned(), None);
    link.check_withdrawn();
    let [violation] = world.violations() else {
        panic!("{:?}", world.violations());
    };
    assert!(
        violation.contains("/b (") && violation.contains("waits without leadership"),
        "{violation}"
    );
    world
        .link(HostIndex::FIRST)
        .perform(Effect::<()>::Withdraw(PODGC));
    world.link(HostIndex::FIRST).check_withdrawn();
    assert_eq!(world.violations().len(), 1);
}

#[test]
fn a_sent_request_reaches_the_server_after_a_crash() {
    let mut world = world(5);
    let target = create(&mut world, "a");
    start(&mut world, &target);
    world.link(HostIndex::FIRST).crash();
    let until = world.instant().after(MINUTE);
    assert!(world.next(until).is_none());
    assert!(!exists(&world, &target));
}

#[test]
fn live_reads_answer_in_the_order_of_their_requests() {
    let mut world = world(6);
    let target = create(&mut world, "a");
    let gone = create(&mut world, "b");
    remove(&mut world, "b");
    let unknown = ObjectRef {
        kind: "Gadget".into(),
        ..target.clone()
    };
    let get = |target: &ObjectRef| GetRequest {
        target: target.clone(),
        fields: Vec::new(),
    };
    let read = ReadRequest::Get(vec![get(&gone), get(&unknown), get(&target)]);
    let mapping = mapping(&mut world);
    let asked = ReadId(7);
    world
        .link(HostIndex::FIRST)
        .read(asked, "podgc", None, &mapping, &read, usize::MAX);
    let until = world.instant().after(MINUTE);
    let Some(Occurrence::Notice(
        _,
        Notice::Machine(Input::ReadDone {
            read,
            answer: ReadAnswer::Get(answers),
        }),
    )) = world.next(until)
    else {
        panic!("no answer");
    };
    assert_eq!(read, asked);
    let classes = answers.iter().map(|answer| match answer {
        Ok(_) => None,
        Err(failure) => Some(failure.class),
    });
    let classes: Vec<_> = classes.collect();
    let wanted = [FailureClass::NotFound, FailureClass::Unmappable];
    assert_eq!(classes, [Some(wanted[0]), Some(wanted[1]), None]);
}
