//! Kubernetes' own integration, end-to-end and conformance tests, on any API
//! server.

use std::future::Future;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::cluster::{
    blocking, config_map, configuration, held, object, owned, pod, rc, reference, template,
    to_nowhere,
};
use crate::bench::{Bench, RunningHost, on_any_server};
use crate::objects::{SETTLED, is_going};

/// Runs a test if there is a server for it, and stops the collector that it started.
fn test<F: Future<Output = (Bench, RunningHost)>>(test: impl FnOnce(Bench) -> F) {
    on_any_server(|bench| async move {
        let (bench, host) = test(bench).await;
        host.host.stop().await;
        bench
    });
}

async fn collector(bench: &Bench) -> RunningHost {
    bench.host(&configuration("Enforce", "{}")).await
}

async fn pods(bench: &Bench, owner: &Value, number: usize) -> Vec<Value> {
    let mut pods = Vec::new();
    for number in 0..number {
        let pod = owned(pod(&format!("p-{number}")), &[blocking(owner)]);
        pods.push(bench.create(pod).await);
    }
    pods
}

fn all(objects: &[Value]) -> Vec<&Value> {
    objects.iter().collect()
}

async fn assert_orphaned(bench: &Bench, owner: &Value, dependents: &[Value]) {
    bench.until_gone(&[owner]).await;
    bench.stay(&all(dependents)).await;
    for dependent in dependents {
        assert_eq!(bench.owners(dependent).await, [] as [Value; 0]);
    }
}

/// Creates a custom resource of the test; returns a function that builds its objects.
async fn foos(bench: &Bench) -> impl Fn(&str) -> Value + use<> {
    let group = format!("{}.example.com", bench.namespace);
    let mut definition = super::cluster::definition("Foo", &["v1"], "Namespaced");
    definition["metadata"]["name"] = json!(format!("foos.{group}"));
    definition["spec"]["group"] = json!(group);
    bench.create(definition).await;
    move |name: &str| object(&format!("{group}/v1"), "Foo", "default", name)
}

/// `TestCascadingDeletion`: of a pod with two owners, one with the deleted owner and
/// one without any, only the second is deleted.
#[test]
fn gc_61_a_cascading_deletion_deletes_dependents_without_another_owner() {
    test(|bench| async move {
        let doomed = bench.create(rc("doomed")).await;
        let remaining = bench.create(rc("remaining")).await;
        let garbage = owned(pod("garbage"), &[reference(&doomed)]);
        let garbage = bench.create(garbage).await;
        let both = [reference(&doomed), reference(&remaining)];
        let has_other = bench.create(owned(pod("has-other"), &both)).await;
        let independent = bench.create(pod("independent")).await;
        let host = collector(&bench).await;
        bench.delete(&doomed, "Background").await;
        bench.until_gone(&[&doomed, &garbage]).await;
        bench.stay(&[&remaining, &has_other, &independent]).await;
        assert_eq!(bench.owners(&has_other).await, [reference(&remaining)]);
        (bench, host)
    });
}

#[test]
fn gc_62_an_object_created_with_an_owner_that_never_existed_is_deleted() {
    test(|bench| async move {
        let host = collector(&bench).await;
        let reference = to_nowhere("v1", "ReplicationController");
        let garbage = bench.create(owned(pod("garbage"), &[reference])).await;
        bench.until_gone(&[&garbage]).await;
        bench.assert_deletions(&garbage, 1);
        (bench, host)
    });
}

/// `TestOrphaning`
#[test]
fn gc_64_orphaned_dependents_stay_without_the_reference() {
    test(|bench| async move {
        let owner = bench.create(rc("owner")).await;
        let pods = pods(&bench, &owner, 3).await;
        let host = collector(&bench).await;
        bench.delete(&owner, "Orphan").await;
        assert_orphaned(&bench, &owner, &pods).await;
        (bench, host)
    });
}

/// `TestSolidOwnerDoesNotBlockWaitingOwner`: a dependent with another owner loses the
/// reference to the waiting one, which is then released.
#[test]
fn gc_65_a_solid_owner_does_not_block_a_waiting_one() {
    test(|bench| async move {
        let doomed = bench.create(rc("doomed")).await;
        let remaining = bench.create(rc("remaining")).await;
        let both = [blocking(&doomed), reference(&remaining)];
        let pod = bench.create(owned(pod("pod"), &both)).await;
        let host = collector(&bench).await;
        bench.delete(&doomed, "Foreground").await;
        bench.until_gone(&[&doomed]).await;
        bench.stay(&[&remaining, &pod]).await;
        assert_eq!(bench.owners(&pod).await, [reference(&remaining)]);
        (bench, host)
    });
}

/// `TestNonBlockingOwnerRefDoesNotBlock`: the owner is deleted while finalizers keep
/// dependents that do not block it.
#[test]
fn gc_66_dependents_that_do_not_block_are_not_waited_for() {
    test(|bench| async move {
        let owner = bench.create(rc("owner")).await;
        let mut explicit = reference(&owner);
        explicit["blockOwnerDeletion"] = json!(false);
        let explicit = held(owned(pod("explicit"), &[explicit]));
        let explicit = bench.create(explicit).await;
        let unset = held(owned(pod("unset"), &[reference(&owner)]));
        let unset = bench.create(unset).await;
        let host = collector(&bench).await;
        bench.delete(&owner, "Foreground").await;
        bench.until_gone(&[&owner]).await;
        sleep(SETTLED).await;
        for pod in [&explicit, &unset] {
            assert!(is_going(&bench.now(pod).await.unwrap()));
            bench.assert_deletions(pod, 1);
        }
        (bench, host)
    });
}

/// `TestDoubleDeletionWithFinalizer`: deleting a terminating object changes nothing,
/// and an object that a finalizer keeps is not deleted again.
#[test]
fn gc_67_a_second_deletion_changes_nothing() {
    test(|bench| async move {
        let host = collector(&bench).await;
        let pod = bench.create(held(pod("held"))).await;
        bench.delete(&pod, "Background").await;
        sleep(SETTLED).await;
        assert_eq!(bench.finalizers(&pod).await, ["example.com/hold"]);
        bench.delete(&pod, "Foreground").await;
        sleep(SETTLED).await;
        // `foregroundDeletion` is removed.
        assert_eq!(bench.finalizers(&pod).await, ["example.com/hold"]);
        bench.set(&pod, &json!({"finalizers": null})).await;
        bench.until_gone(&[&pod]).await;
        (bench, host)
    });
}

/// `TestBlockingOwnerRefDoesBlock`
#[test]
fn gc_68_a_dependent_that_blocks_is_waited_for() {
    test(|bench| async move {
        let owner = bench.create(rc("owner")).await;
        let pod = held(owned(pod("pod"), &[blocking(&owner)]));
        let pod = bench.create(pod).await;
        let host = collector(&bench).await;
        bench.delete(&owner, "Foreground").await;
        sleep(SETTLED).await;
        assert!(is_going(&bench.now(&pod).await.unwrap()));
        for _ in 0..2 {
            assert_eq!(bench.finalizers(&owner).await, ["foregroundDeletion"]);
            sleep(SETTLED * 2).await;
        }
        bench.set(&pod, &json!({"finalizers": null})).await;
        bench.until_gone(&[&pod, &owner]).await;
        (bench, host)
    });
}

/// `TestCustomResourceCascadingDeletion`, with one more generation.
#[test]
fn gc_69_custom_resources_own_and_are_owned() {
    test(|bench| async move {
        let foo = foos(&bench).await;
        let owner = bench.create(foo("owner")).await;
        let host = collector(&bench).await;
        let dependent = owned(foo("dependent"), &[reference(&owner)]);
        let dependent = bench.create(dependent).await;
        let below = owned(foo("below"), &[reference(&dependent)]);
        let below = bench.create(below).await;
        bench.stay(&[&owner, &dependent, &below]).await;
        bench.delete(&owner, "Background").await;
        bench.until_gone(&[&owner, &dependent, &below]).await;
        (bench, host)
    });
}

/// `TestMixedRelationships`: core and custom resources own each other.
#[test]
fn gc_70_core_and_custom_resources_own_each_other() {
    test(|bench| async move {
        let foo = foos(&bench).await;
        let custom_owner = bench.create(foo("owner")).await;
        let host = collector(&bench).await;
        let core = owned(config_map("core"), &[reference(&custom_owner)]);
        let core = bench.create(core).await;
        let core_owner = bench.create(config_map("owner")).await;
        let custom = owned(foo("custom"), &[reference(&core_owner)]);
        let custom = bench.create(custom).await;
        bench.stay(&[&core, &custom]).await;
        bench.delete(&custom_owner, "Foreground").await;
        bench.delete(&core_owner, "Foreground").await;
        bench
            .until_gone(&[&custom_owner, &core, &core_owner, &custom])
            .await;
        (bench, host)
    });
}

/// [Conformance] "should delete pods created by rc when not orphaning"
#[test]
fn gc_80_pods_go_with_their_controller_in_the_background() {
    test(|bench| async move {
        let owner = bench.create(rc("simpletest.rc")).await;
        let pods = pods(&bench, &owner, 10).await;
        let host = collector(&bench).await;
        bench.delete(&owner, "Background").await;
        assert_eq!(bench.now(&owner).await, None);
        bench.until_gone(&all(&pods)).await;
        (bench, host)
    });
}

/// [Conformance] "should orphan pods created by rc if delete options say so"
#[test]
fn gc_81_pods_stay_if_they_are_orphaned() {
    test(|bench| async move {
        let owner = bench.create(rc("simpletest.rc")).await;
        let pods = pods(&bench, &owner, 100).await;
        let host = collector(&bench).await;
        bench.delete(&owner, "Orphan").await;
        assert_orphaned(&bench, &owner, &pods).await;
        (bench, host)
    });
}

/// "should orphan pods created by rc if deleteOptions.OrphanDependents is nil":
/// in the API's first version, a replication controller's pods stay by default.
#[test]
fn gc_82_pods_of_a_controller_stay_by_default() {
    test(|bench| async move {
        let owner = bench.create(rc("simpletest.rc")).await;
        let pods = pods(&bench, &owner, 2).await;
        let host = collector(&bench).await;
        bench.delete(&owner, "").await;
        assert_orphaned(&bench, &owner, &pods).await;
        (bench, host)
    });
}

fn workload(kind: &str) -> Value {
    let mut workload = object("apps/v1", kind, "default", "deployment");
    workload["spec"] = json!({
        "replicas": 0, "selector": {"matchLabels": {"name": "deployment"}},
        "template": template("deployment"),
    });
    workload
}

async fn deployment_with_replica_set(bench: &Bench) -> (Value, Value) {
    let deployment = bench.create(workload("Deployment")).await;
    let replica_set = owned(workload("ReplicaSet"), &[blocking(&deployment)]);
    let replica_set = bench.create(replica_set).await;
    (deployment, replica_set)
}

/// [Conformance] "should delete RS created by deployment when not orphaning"
#[test]
fn gc_83_a_replica_set_goes_with_its_deployment() {
    test(|bench| async move {
        let (deployment, replica_set) = deployment_with_replica_set(&bench).await;
        let pod = owned(pod("pod"), &[blocking(&replica_set)]);
        let pod = bench.create(pod).await;
        let host = collector(&bench).await;
        bench.delete(&deployment, "Background").await;
        bench.until_gone(&[&deployment, &replica_set, &pod]).await;
        (bench, host)
    });
}

/// [Conformance] "should orphan RS created by deployment when
/// deleteOptions.PropagationPolicy is Orphan"
#[test]
fn gc_84_a_replica_set_stays_if_it_is_orphaned() {
    test(|bench| async move {
        let (deployment, replica_set) = deployment_with_replica_set(&bench).await;
        let host = collector(&bench).await;
        bench.delete(&deployment, "Orphan").await;
        assert_orphaned(&bench, &deployment, &[replica_set]).await;
        (bench, host)
    });
}

/// [Conformance] "should keep the rc around until all its pods are deleted if the
/// deleteOptions says so"
#[test]
fn gc_85_a_controller_stays_until_its_pods_are_gone() {
    test(|bench| async move {
        let owner = bench.create(rc("simpletest.rc")).await;
        let mut last = Vec::new();
        for number in 0..3 {
            let pod = owned(pod(&format!("held-{number}")), &[blocking(&owner)]);
            last.push(bench.create(held(pod)).await);
        }
        let pods = pods(&bench, &owner, 97).await;
        let host = collector(&bench).await;
        bench.delete(&owner, "Foreground").await;
        bench.until_gone(&all(&pods)).await;
        for pod in &last {
            sleep(SETTLED).await;
            assert_eq!(bench.finalizers(&owner).await, ["foregroundDeletion"]);
            bench.set(pod, &json!({"finalizers": null})).await;
        }
        bench.until_gone(&all(&last)).await;
        bench.until_gone(&[&owner]).await;
        (bench, host)
    });
}

/// [Conformance] "should not delete dependents that have both valid owner and
/// owner that's waiting for dependents to be deleted"
#[test]
fn gc_86_dependents_with_a_second_valid_owner_survive() {
    test(|bench| async move {
        let doomed = bench.create(rc("to-be-deleted")).await;
        let stays = bench.create(rc("to-stay")).await;
        let pods = pods(&bench, &doomed, 10).await;
        let (shared, alone) = pods.split_at(5);
        for pod in shared {
            let owners = [blocking(&doomed), reference(&stays)];
            bench.set(pod, &json!({"ownerReferences": owners})).await;
        }
        let host = collector(&bench).await;
        bench.delete(&doomed, "Foreground").await;
        bench.until_gone(&[&doomed]).await;
        bench.until_gone(&all(alone)).await;
        bench.stay(&all(shared)).await;
        for pod in shared {
            assert_eq!(bench.owners(pod).await, [reference(&stays)]);
        }
        (bench, host)
    });
}

/// [Conformance] "should not be blocked by dependency circle"
#[test]
fn gc_87_a_circle_of_dependents_blocks_nothing() {
    for members in [2, 3, 7] {
        test(|bench| async move {
            let mut pods = Vec::new();
            for number in 0..members {
                pods.push(bench.create(pod(&format!("pod-{number}"))).await);
            }
            for (position, pod) in pods.iter().enumerate() {
                let mut owner = blocking(&pods[(position + members - 1) % members]);
                owner["controller"] = json!(true);
                bench.set(pod, &json!({"ownerReferences": [owner]})).await;
            }
            let host = collector(&bench).await;
            bench.stay(&all(&pods)).await;
            bench.delete(&pods[0], "Foreground").await;
            bench.until_gone(&all(&pods)).await;
            (bench, host)
        });
    }
}

/// "should support cascading deletion of custom resources"
#[test]
fn gc_88_a_custom_resource_takes_its_dependent_along() {
    test(|bench| async move {
        let foo = foos(&bench).await;
        let owner = bench.create(foo("owner")).await;
        let dependent = owned(foo("dependent"), &[reference(&owner)]);
        let dependent = bench.create(dependent).await;
        let host = collector(&bench).await;
        bench.delete(&owner, "Background").await;
        bench.until_gone(&[&owner, &dependent]).await;
        (bench, host)
    });
}

/// "should delete jobs and pods created by cronjob"
#[test]
fn gc_90_jobs_and_pods_go_with_their_cron_job() {
    test(|bench| async move {
        let mut template = template("cron");
        template["spec"]["restartPolicy"] = json!("OnFailure");
        let spec = json!({"template": template});
        let mut cron_job = object("batch/v1", "CronJob", "default", "cron");
        cron_job["spec"] = json!({
            "suspend": true, "schedule": "*/1 * * * *", "jobTemplate": {"spec": spec},
        });
        let cron_job = bench.create(cron_job).await;
        let mut job = object("batch/v1", "Job", "default", "job");
        job["spec"] = spec;
        let job = bench.create(owned(job, &[blocking(&cron_job)])).await;
        let pod = bench.create(owned(pod("pod"), &[blocking(&job)])).await;
        let host = collector(&bench).await;
        bench.delete(&cron_job, "Background").await;
        bench.until_gone(&[&cron_job, &job, &pod]).await;
        (bench, host)
    });
}
