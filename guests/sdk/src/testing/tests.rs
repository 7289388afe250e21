mod grants;
mod permissions;

use serde_json::{Value, json};

use super::*;
use crate::{
    Command, Context, Counter, DeleteOptions, FailureClass, Histogram, Identity, Index, IndexName,
    ListRequest, Object, Patch, QueueSpec, Reason, Resource, Retry, Trigger, View, Watch,
    WatchName, When, WorkItem, resources,
};

const WORK: QueueName = QueueName::new("work");
const OWNERS: QueueName = QueueName::new("owners");
const JOB_RESOURCE: Resource = Resource::new("example.com", "v1", "jobs");
const BY_OWNER: IndexName<Job> = IndexName::new("owner");
const ENDS: Counter<1> = Counter::new("ends_total", "Ends.", ["end"]);
const WAITS: Histogram<0> = Histogram::new("wait_seconds", "Waits.", [], &[1.0]);
const JOBS: WatchName<Job> = WatchName::new("jobs");
const PODS: WatchName<Identity> = WatchName::new("pods");
const UNDECLARED: WatchName<Job> = WatchName::new("undeclared");

#[derive(Default, View)]
struct Job {
    #[view(path = "spec.owner")]
    owner: String,
}

#[derive(Default, View)]
struct JobStatus {
    status: String,
}

/// Does what an item's key asks for, for the job `ns/job`.
struct Toy;

impl Controller for Toy {
    type Config = Identity;

    fn new(_: Identity) -> Result<Self, ConfigError> {
        Ok(Self)
    }

    fn manifest(&self) -> Manifest {
        let jobs = Watch::of(JOBS, JOB_RESOURCE).index(Index::new(BY_OWNER, "spec.owner"));
        Manifest::new("toy", "1", "A toy.")
            .watch(jobs)
            .watch(Watch::of(PODS, resources::PODS))
            .trigger(Trigger::by_index(JOBS, BY_OWNER, OWNERS))
            .queue(QueueSpec::new(WORK).retry(Duration::from_secs(1), Duration::from_secs(3)))
            .queue(QueueSpec::new(OWNERS).batch(10).priority(1))
            .tick(WORK, "tick", Duration::from_secs(10))
            .reads_live(JOB_RESOURCE)
            .lists_live(JOB_RESOURCE)
            .deletes(JOB_RESOURCE)
            .creates(resources::CONFIG_MAPS)
            .evicts(resources::PODS)
            .patches(resources::PODS)
            .metric(ENDS)
            .metric(WAITS)
    }

    fn reconcile(&self, cx: &Context<'_>, item: &WorkItem) -> Result<Decision, Retry> {
        let log = |text: String| cx.log(Level::Info, &text, &[]);
        let job = || cx.watch(JOBS).get("ns/job");
        match item.key.as_str() {
            "read" => {
                let owner = job().map(|job| job.view.owner);
                log(format!("{owner:?}"));
            }
            "count" => {
                let attempt = item.attempt;
                let failures = item.failures.len();
                log(format!("attempt {attempt}, {failures} failures"));
                return Err(Retry::new("again"));
            }
            "age" => {
                log(format!("{} ms old", cx.since(item.created_at).as_millis()));
                return Ok(Decision::requeue_after(Duration::from_secs(5)));
            }
            "delete" => {
                return Ok(Decision::done().plans(job().map(|job| delete(job, "delete"))));
            }
            "later" => {
                let later = |seconds| Command::enqueue(WORK, "read", Duration::from_secs(seconds));
                return Ok(Decision::done().commands([later(8), later(3), later(6)]));
            }
            "cancel" => {
                let plans = job().map(|job| delete(job, "cancel").when_cancelled(WORK, "read"));
                return Ok(Decision::done()
                    .plans(plans)
                    .commands([Command::cancel(WORK, "read")]));
            }
            "note" => {
                let seen = cx.note::<u32>("seen").unwrap_or_default();
                log(format!("seen {seen}"));
                return Ok(
                    Decision::done().commands([Command::set_note("seen", Some(&(seen + 1)))])
                );
            }
            "live" => {
                let reference = ObjectRef::named("example.com/v1", "Job", "ns", "job");
                let got = cx.live_get::<Job>(&[reference]).pop().unwrap();
                let listed = cx.live_list::<Job>(ListRequest {
                    resource: JOB_RESOURCE.into(),
                    namespace: "ns".to_owned(),
                    label_selector: String::new(),
                    field_selector: String::new(),
                    fields: Vec::new(),
                });
                let got = got.map(|job| job.view.owner);
                log(format!("{got:?} {}", listed.unwrap().len()));
            }
            "forbidden" => {
                let node = ObjectRef::named("v1", "Node", "", "n");
                let got = cx.live_get::<Identity>(&[node]).pop().unwrap();
                log(format!("{:?}", got.err().map(|failure| failure.class)));
            }
            "observe" => {
                log("observe".to_owned());
                return Ok(Decision::requeue_when_observed());
            }
            "cancel-tick" => {
                return Ok(Decision::done().commands([Command::cancel(WORK, "tick")]));
            }
            "create" => {
                let created = json!({
                    "apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"namespace": "ns", "name": "made"},
                });
                let plan = job().map(|job| {
                    Plan::new(job.reference, Reason::new("create"), "").create(&created)
                });
                return Ok(Decision::done().plans(plan));
            }
            "evict" => {
                let pod = cx.watch(PODS).get("default/pod").map(|pod| {
                    Plan::new(pod.reference, Reason::new("evict"), "").evict(DeleteOptions::new())
                });
                return Ok(Decision::done().plans(pod));
            }
            "immutable" => {
                let body = json!({"spec": {"nodeName": "other"}});
                let pod = cx.watch(PODS).get("default/pod").map(|pod| {
                    Plan::new(pod.reference, Reason::new("patch"), "").patch(Patch::merge(&body))
                });
                return Ok(Decision::done().plans(pod));
            }
            "undeclared-watch" => drop(cx.watch(UNDECLARED).get("x")),
            "undeclared-field" => {
                let sneaky = WatchName::<JobStatus>::new("jobs");
                let job = cx.watch(sneaky).get("ns/job");
                log(format!("status {:?}", job.map(|job| job.view.status)));
            }
            "undeclared-queue" => {
                let lost = Command::enqueue(QueueName::new("lost"), "x", Duration::ZERO);
                return Ok(Decision::done().commands([lost]));
            }
            _ => log(format!("{} {}", item.queue, item.key)),
        }
        Ok(Decision::done())
    }
}

fn delete(job: Object<Job>, end: &'static str) -> Plan {
    let waited = WAITS.seconds_since([], job.changed_at);
    let count = |what| ENDS.add([what], 1.0);
    Plan::new(job.reference, Reason::new(end), "the test wants it")
        .delete(DeleteOptions::new())
        .measure(When::Attempted, count("attempted"))
        .measure(When::Succeeded, count("succeeded"))
        .measure(When::Failed, count("failed"))
        .measure(When::Succeeded, waited)
}

fn job(owner: &str) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Job",
        "metadata": {"namespace": "ns", "name": "job"},
        "spec": {"owner": owner}, "status": "secret",
    })
}

/// A harness after its first tick, with a job that was reconciled.
fn harness() -> Harness<Toy> {
    let mut harness = Harness::new(&json!(null)).unwrap();
    harness.put(job("ann"));
    harness.run();
    harness.driver.get_mut().probe.logged.get_mut().clear();
    harness
}

fn logged(harness: &Harness<Toy>) -> Vec<String> {
    let logged = harness.logged().into_iter();
    let logged = logged.map(|(_, text)| text);
    logged.filter(|text| text != "work tick").collect()
}

fn after(harness: &mut Harness<Toy>, key: &str) -> Vec<String> {
    harness.enqueue(WORK, key);
    harness.run();
    logged(harness)
}

#[test]
fn a_guest_reads_what_it_declares() {
    let mut harness = harness();
    assert_eq!(after(&mut harness, "read"), ["Some(\"ann\")"]);
    harness.hide("Job", "ns/job");
    assert!(after(&mut harness, "read").contains(&"None".to_owned()));
}

#[test]
fn a_guest_does_not_read_what_it_does_not_declare() {
    let mut harness = harness();
    assert_eq!(
        after(&mut harness, "undeclared-field"),
        ["status Some(\"\")"]
    );
}

#[test]
#[should_panic(expected = "the watch undeclared is not declared")]
fn an_undeclared_watch_ends_the_test() {
    after(&mut harness(), "undeclared-watch");
}

#[test]
#[should_panic(expected = "the queue \"lost\" is not declared")]
fn an_undeclared_queue_ends_the_test() {
    after(&mut harness(), "undeclared-queue");
}

#[test]
#[should_panic(expected = "decision 0: the queue \"lost\" is not declared")]
fn a_decision_that_a_host_refuses_ends_the_test() {
    drop(harness().decide(WORK, "undeclared-queue"));
}

#[test]
fn a_live_read_without_a_permission_is_forbidden() {
    assert_eq!(after(&mut harness(), "forbidden"), ["Some(Forbidden)"]);
}

/// The host's back-off for a write that cannot succeed as it is.
#[test]
fn a_write_that_is_refused_as_invalid_is_retried_after_five_minutes() {
    let mut harness = harness();
    harness.put(Pod::new("pod").into());
    after(&mut harness, "immutable");
    let [refused] = harness.executions() else {
        panic!("one plan");
    };
    let (step, failure) = refused.result.clone().unwrap_err();
    assert_eq!((step, failure.class), (0, FailureClass::Invalid));
    let retry = harness.pending(WORK, "immutable").unwrap();
    assert_eq!(retry.due_at, START + Duration::from_secs(300));
}

#[test]
fn to_requeue_when_observed_without_a_write_is_to_be_done() {
    let mut harness = harness();
    assert_eq!(after(&mut harness, "observe"), ["observe"]);
    assert!(harness.pending(WORK, "observe").is_none());
}

#[test]
fn a_cancelled_tick_is_due_again_after_its_period() {
    let mut harness = harness();
    after(&mut harness, "cancel-tick");
    let ticks = |harness: &Harness<Toy>| {
        let logged = harness.logged().into_iter();
        logged.filter(|(_, text)| text == "work tick").count()
    };
    assert_eq!(ticks(&harness), 0);
    harness.advance(Duration::from_secs(25));
    assert_eq!(ticks(&harness), 2);
}

#[test]
fn a_plan_creates_an_object_although_its_target_is_gone() {
    let mut harness = harness();
    harness.remove_from_server("Job", "ns/job");
    after(&mut harness, "create");
    assert_eq!(harness.keys("ConfigMap"), ["ns/made"]);
}

#[test]
fn an_eviction_waits_for_the_disruption_budget() {
    let mut harness = harness();
    harness.put(
        Pod::new("pod")
            .set("/metadata/labels", json!({"app": "a"}))
            .into(),
    );
    harness.put(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"namespace": "default", "name": "budget", "generation": 1},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}},
        "status": {"observedGeneration": 1, "disruptionsAllowed": 0},
    }));
    after(&mut harness, "evict");
    let result = harness.executions()[0].result.clone();
    assert_eq!(result.unwrap_err().1.class, FailureClass::DisruptionBudget);
    assert_eq!(harness.keys("Pod"), ["default/pod"]);
    harness.remove("PodDisruptionBudget", "default/budget");
    harness.advance(Duration::from_secs(60));
    assert_eq!(harness.keys("Pod"), [""; 0]);
}

#[test]
fn a_change_triggers_the_values_before_and_after_it() {
    let mut harness = harness();
    harness.put(job("bob"));
    harness.run();
    assert_eq!(logged(&harness), ["owners ann", "owners bob"]);
}

#[test]
fn an_undeclared_change_triggers_nothing() {
    let mut harness = harness();
    let mut changed = job("ann");
    changed["status"] = json!("other");
    harness.put(changed);
    harness.run();
    assert!(logged(&harness).is_empty());
}

#[test]
fn a_tick_is_due_a_period_after_it_was_done() {
    let mut harness = harness();
    harness.advance(Duration::from_secs(29));
    let ticks = harness.logged().len();
    assert_eq!(ticks, 2);
    let next = harness.pending(WORK, "tick").unwrap();
    assert_eq!(next.due_at, START + Duration::from_secs(30));
}

#[test]
fn a_failed_item_is_requeued_with_a_growing_back_off() {
    let mut harness = harness();
    harness.enqueue(WORK, "count");
    harness.advance(Duration::from_secs(9));
    let attempts = [
        "attempt 0",
        "attempt 1",
        "attempt 2",
        "attempt 3",
        "attempt 4",
    ];
    let attempts = attempts.map(|attempt| format!("{attempt}, 0 failures"));
    assert_eq!(logged(&harness), attempts, "after 0, 1, 3, 6 and 9 s");
}

#[test]
fn a_requeued_item_keeps_its_creation_time() {
    let mut harness = harness();
    harness.enqueue(WORK, "age");
    harness.advance(Duration::from_secs(10));
    assert_eq!(
        logged(&harness),
        ["0 ms old", "5000 ms old", "10000 ms old"]
    );
}

#[test]
fn of_several_times_the_earliest_applies() {
    let mut harness = harness();
    after(&mut harness, "later");
    let waiting = harness.pending(WORK, "read").unwrap();
    assert_eq!(waiting.due_at, START + Duration::from_secs(3));
    assert_eq!(waiting.created_at, START);
}

#[test]
fn a_plan_can_depend_on_a_cancelled_item() {
    let mut harness = harness();
    after(&mut harness, "cancel");
    assert_eq!(harness.keys("Job"), ["ns/job"]);
    after(&mut harness, "later");
    after(&mut harness, "cancel");
    assert_eq!(harness.keys("Job"), [""; 0]);
    assert!(harness.pending(WORK, "read").is_none());
}

#[test]
fn a_plan_is_executed_and_counted() {
    let mut harness = harness();
    harness.advance(Duration::from_secs(4));
    after(&mut harness, "delete");
    assert_eq!(harness.keys("Job"), [""; 0]);
    for (end, count) in [("attempted", 1.0), ("succeeded", 1.0), ("failed", 0.0)] {
        assert!(
            (harness.metric("ends_total", &[end]) - count).abs() < 0.5,
            "{end}"
        );
    }
    let waited = harness.observed("wait_seconds", &[]);
    assert_eq!(waited.len(), 1);
    assert!((waited[0] - 4.0).abs() < 0.01);
}

#[test]
fn a_failed_plan_is_retried_if_that_can_help() {
    for (class, again) in [
        ("server", Some(1)),
        ("forbidden", Some(30)),
        ("invalid", Some(300)),
        ("not-found", None),
    ] {
        let mut harness = harness();
        if class == "not-found" {
            harness.remove_from_server("Job", "ns/job");
        } else {
            harness.fail_writes("Job", "ns/job", class);
        }
        after(&mut harness, "delete");
        assert_eq!(harness.keys("Job").is_empty(), class == "not-found");
        let due = harness.pending(WORK, "delete").map(|it| it.due_at - START);
        assert_eq!(due, again.map(Duration::from_secs), "{class}");
        let failed = harness.metric("ends_total", &["failed"]) > 0.5;
        assert_eq!(failed, class != "not-found", "{class}");
    }
}

#[test]
fn notes_are_kept_between_calls() {
    let mut harness = harness();
    after(&mut harness, "note");
    assert_eq!(after(&mut harness, "note"), ["seen 0", "seen 1"]);
}

#[test]
fn live_reads_return_the_servers_state() {
    let mut harness = harness();
    harness.put_on_server(job("zoe"));
    assert_eq!(after(&mut harness, "live"), ["Ok(\"zoe\") 1"]);
    assert_eq!(harness.live_reads().len(), 1);
    harness.fail_reads("Job", "ns/job", "timeout");
    let logged = after(&mut harness, "live");
    assert!(logged[1].contains("Timeout"), "{logged:?}");
}
