//! Deletions in the background: dependents follow their owners.

use std::collections::BTreeSet;
use std::time::Duration;

use davit_sim::fault::{Action, Fault, Match, Refusal, WatchFault, When};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::cluster::{
    SETTLED, blocking, config_map, definition, held, object, owned, pod, rc, reference, template,
    test, to_nowhere, uid,
};

/// What the API server is asked about one dependent: not three requests as in
/// Kubernetes, the object's own read is saved.
#[test]
fn gc_04_a_dependent_costs_one_read_of_its_owner_and_one_deletion() {
    test(|cluster| async move {
        let owner = cluster.create(rc("owner"));
        let dependent = cluster.create(owned(pod("dependent"), &[reference(&owner)]));
        let _host = cluster.collector().await;
        cluster.sim.clear_log();
        cluster.delete(&owner, "Background");
        cluster.until_gone(&[&dependent]).await;
        sleep(SETTLED).await;
        let asked: Vec<String> = cluster
            .requests()
            .iter()
            .map(|it| format!("{} {} {}", it.work.verb, it.work.resource, it.work.name))
            .collect();
        assert_eq!(
            asked,
            ["get replicationcontrollers owner", "delete pods dependent"]
        );
        let requests = cluster.requests();
        let body: Value = serde_json::from_slice(&requests[1].body).unwrap();
        assert_eq!(
            body,
            json!({
                "apiVersion": "v1", "kind": "DeleteOptions",
                "preconditions": {
                    "uid": dependent["metadata"]["uid"],
                    "resourceVersion": dependent["metadata"]["resourceVersion"],
                },
                "propagationPolicy": "Background",
            })
        );
    });
}

/// With 2,000 dependents: a deletion each, and a handful of reads.
#[test]
fn two_thousand_dependents_cost_two_thousand_deletions_and_a_handful_of_reads() {
    const DEPENDENTS: usize = 2_000;
    test(|cluster| async move {
        let owner = cluster.create(config_map("owner"));
        for number in 0..DEPENDENTS {
            let name = format!("dependent-{number}");
            cluster.create(owned(config_map(&name), &[reference(&owner)]));
        }
        let _host = cluster.collector().await;
        sleep(SETTLED).await;
        cluster.sim.clear_log();
        let (began, wall) = (Instant::now(), std::time::Instant::now());
        cluster.delete(&owner, "Background");
        cluster
            .until("all dependents are gone", || {
                cluster.names("v1", "ConfigMap").is_empty()
            })
            .await;
        let took = (began.elapsed(), wall.elapsed());
        sleep(SETTLED).await;
        let count = |verb| cluster.sim.count(&Match::new(verb, "configmaps"));
        let (reads, deletions) = (count("get"), count("delete"));
        println!("virtual and real time {took:?}; {reads} reads, {deletions} deletions");
        assert_eq!(deletions, DEPENDENTS);
        assert!((1..=8).contains(&reads), "{reads}");
        assert_eq!(cluster.requests().len(), reads + deletions);
    });
}

/// `TestCascadingDeletion`: of a pod with two owners, one with the deleted one and
/// one without any, only the second goes.
#[test]
fn gc_61_cascading_deletion() {
    test(|cluster| async move {
        let doomed = cluster.create(rc("doomed"));
        let remaining = cluster.create(rc("remaining"));
        let garbage = cluster.create(owned(pod("garbage"), &[reference(&doomed)]));
        let both = [reference(&doomed), reference(&remaining)];
        let has_other = cluster.create(owned(pod("has-other"), &both));
        let independent = cluster.create(pod("independent"));
        let _host = cluster.collector().await;
        cluster.delete(&doomed, "Background");
        cluster.until_gone(&[&doomed, &garbage]).await;
        cluster.stay(&[&remaining, &has_other, &independent]).await;
        assert_eq!(cluster.owners(&has_other), [reference(&remaining)]);
    });
}

#[test]
fn gc_62_an_object_that_is_created_with_an_owner_that_never_was_goes() {
    test(|cluster| async move {
        let _host = cluster.collector().await;
        let reference = to_nowhere("v1", "ReplicationController");
        let garbage = cluster.create(owned(pod("garbage"), &[reference]));
        cluster.until_gone(&[&garbage]).await;
        assert_eq!(cluster.deletions(&garbage), 1);
    });
}

/// `TestCustomResourceCascadingDeletion`, with a generation more.
#[test]
fn gc_69_custom_resources_own_and_are_owned() {
    test(|cluster| async move {
        cluster.create(definition("Foo", &["v1"], "Namespaced"));
        let foo = |name| object("example.com/v1", "Foo", "default", name);
        let _host = cluster.collector().await;
        let owner = cluster.create(foo("owner"));
        let dependent = cluster.create(owned(foo("dependent"), &[reference(&owner)]));
        let below = cluster.create(owned(foo("below"), &[reference(&dependent)]));
        cluster.stay(&[&owner, &dependent, &below]).await;
        cluster.delete(&owner, "Background");
        cluster.until_gone(&[&owner, &dependent, &below]).await;
    });
}

/// `TestMixedRelationships`: core and custom resources own each other.
#[test]
fn gc_70_mixed_relationships() {
    test(|cluster| async move {
        cluster.create(definition("Foo", &["v1"], "Namespaced"));
        let _host = cluster.collector().await;
        let custom_owner = cluster.create(object("example.com/v1", "Foo", "default", "owner"));
        let core = cluster.create(owned(config_map("core"), &[reference(&custom_owner)]));
        let core_owner = cluster.create(config_map("owner"));
        let custom = cluster.create(owned(
            object("example.com/v1", "Foo", "default", "custom"),
            &[reference(&core_owner)],
        ));
        cluster.stay(&[&core, &custom]).await;
        cluster.delete(&custom_owner, "Foreground");
        cluster.delete(&core_owner, "Foreground");
        cluster
            .until_gone(&[&custom_owner, &core, &core_owner, &custom])
            .await;
    });
}

/// `TestCRDDeletionCascading`, twice with the same definition. The API server
/// deletes a definition's objects before the definition, and both within the
/// time that the dependents take.
#[test]
fn gc_71_a_definition_goes_with_its_objects_and_their_dependents() {
    test(|cluster| async move {
        let _host = cluster.collector().await;
        for round in 0..2 {
            let definition = cluster.create(definition("Foo", &["v1"], "Namespaced"));
            sleep(Duration::from_secs(31)).await;
            let owner = cluster.create(object("example.com/v1", "Foo", "default", "owner"));
            let dependent = cluster.create(owned(config_map("dependent"), &[reference(&owner)]));
            cluster.stay(&[&owner, &dependent]).await;
            // The owner's kind is gone before it could be read.
            let slow = cluster.refuse(Match::new("get", "foos"), Refusal::Unavailable);
            cluster.delete(&owner, "");
            sleep(Duration::from_millis(500)).await;
            assert!(cluster.is_there(&dependent), "round {round}");
            cluster.delete(&definition, "");
            cluster.sim.heal(slow);
            cluster.until_gone(&[&dependent]).await;
            sleep(Duration::from_secs(90)).await;
        }
    });
}

/// `TestClusterScopedOwners`.
#[test]
fn gc_73_cluster_scoped_owners() {
    test(|cluster| async move {
        // The owners' watch tells of them late.
        cluster.sim.add_fault(Fault {
            matches: Match::new("watch", "persistentvolumes"),
            when: When::Always,
            action: Action::Watch(0, WatchFault::Delay(Duration::from_secs(5))),
        });
        let _host = cluster.collector().await;
        let mut volume = object("v1", "PersistentVolume", "", "volume");
        volume["spec"] = json!({
            "storageClassName": "none", "capacity": {"storage": "1Mi"},
            "accessModes": ["ReadWriteMany"], "hostPath": {"path": "/tmp"},
        });
        let volume = cluster.create(volume);
        let valid = cluster.create(owned(config_map("valid"), &[reference(&volume)]));
        let missing = to_nowhere("v1", "PersistentVolume");
        let missing = cluster.create(owned(config_map("missing"), &[missing]));
        let unknown = to_nowhere("unknown/v1", "Unknown");
        let unknown = cluster.create(owned(config_map("unknown"), &[unknown]));
        cluster.until_gone(&[&missing]).await;
        sleep(Duration::from_mins(2)).await;
        cluster.stay(&[&valid, &unknown]).await;
        cluster.delete(&volume, "Background");
        cluster.until_gone(&[&valid]).await;
        cluster.stay(&[&unknown]).await;
    });
}

/// An owner that only a live read has found is asked about until the cache has
/// it: its deletion would go unnoticed. (kubernetes/kubernetes issue 56121)
#[test]
fn an_owner_that_goes_before_its_watch_ever_told_of_it_is_missed() {
    test(|cluster| async move {
        let _host = cluster.collector().await;
        cluster.sim.disturb(
            &Match::new("watch", "replicationcontrollers"),
            WatchFault::Silence,
        );
        let owner = cluster.create(rc("owner"));
        let dependent = cluster.create(owned(pod("dependent"), &[reference(&owner)]));
        sleep(Duration::from_secs(3)).await;
        assert!(cluster.is_there(&dependent));
        cluster.delete(&owner, "Background");
        // Long before the silent watch is given up.
        sleep(Duration::from_secs(20)).await;
        assert!(!cluster.is_there(&dependent));
    });
}

/// "should delete pods created by rc when not orphaning"
#[test]
fn gc_80_pods_go_with_their_controller_in_the_background() {
    test(|cluster| async move {
        let owner = cluster.create(rc("simpletest.rc"));
        let pods: Vec<Value> = (0..10)
            .map(|number| cluster.create(owned(pod(&format!("p-{number}")), &[blocking(&owner)])))
            .collect();
        let _host = cluster.collector().await;
        cluster.delete(&owner, "Background");
        assert!(!cluster.is_there(&owner));
        cluster.until_gone(&pods.iter().collect::<Vec<_>>()).await;
    });
}

fn workload(api_version: &str, kind: &str, name: &str) -> Value {
    let mut workload = object(api_version, kind, "default", name);
    workload["spec"] = json!({
        "replicas": 0, "selector": {"matchLabels": {"name": name}}, "template": template(name),
    });
    workload
}

pub(crate) fn deployment_with_replica_set() -> (Value, impl Fn(&Value) -> Value) {
    let deployment = workload("apps/v1", "Deployment", "deployment");
    let replica_set = |deployment: &Value| {
        owned(
            workload("apps/v1", "ReplicaSet", "deployment"),
            &[blocking(deployment)],
        )
    };
    (deployment, replica_set)
}

/// "should delete RS created by deployment when not orphaning"
#[test]
fn gc_83_a_replica_set_goes_with_its_deployment() {
    test(|cluster| async move {
        let (deployment, replica_set) = deployment_with_replica_set();
        let deployment = cluster.create(deployment);
        let replica_set = cluster.create(replica_set(&deployment));
        let pod = cluster.create(owned(pod("pod"), &[blocking(&replica_set)]));
        let _host = cluster.collector().await;
        cluster.delete(&deployment, "Background");
        cluster.until_gone(&[&deployment, &replica_set, &pod]).await;
    });
}

/// "should support cascading deletion of custom resources"
#[test]
fn gc_88_a_custom_resource_takes_its_dependent_along() {
    test(|cluster| async move {
        cluster.create(definition("Foo", &["v1"], "Namespaced"));
        let foo = |name| object("example.com/v1", "Foo", "default", name);
        let owner = cluster.create(foo("owner"));
        let dependent = cluster.create(owned(foo("dependent"), &[reference(&owner)]));
        let _host = cluster.collector().await;
        cluster.delete(&owner, "Background");
        cluster.until_gone(&[&owner, &dependent]).await;
    });
}

/// "should delete jobs and pods created by cronjob"
#[test]
fn gc_90_jobs_and_pods_go_with_their_cron_job() {
    test(|cluster| async move {
        let mut cron_job = object("batch/v1", "CronJob", "default", "cron");
        let mut template = template("cron");
        template["spec"]["restartPolicy"] = json!("OnFailure");
        let spec = json!({"template": template});
        cron_job["spec"] = json!({
            "schedule": "*/1 * * * *", "jobTemplate": {"spec": spec},
        });
        let cron_job = cluster.create(cron_job);
        let mut job = object("batch/v1", "Job", "default", "job");
        job["spec"] = spec;
        let job = cluster.create(owned(job, &[blocking(&cron_job)]));
        let pod = cluster.create(owned(pod("pod"), &[blocking(&job)]));
        let _host = cluster.collector().await;
        cluster.delete(&cron_job, "Background");
        cluster.until_gone(&[&cron_job, &job, &pod]).await;
    });
}

/// `TestDoubleDeletionWithFinalizer`: a deletion of what is being deleted changes
/// nothing, and what a finalizer of another one holds is not asked to go again.
#[test]
fn gc_67_double_deletion_with_a_finalizer() {
    test(|cluster| async move {
        let _host = cluster.collector().await;
        let pod = cluster.create(held(pod("held")));
        cluster.delete(&pod, "Background");
        sleep(SETTLED).await;
        let marked = cluster.now(&pod).unwrap();
        assert_eq!(
            marked["metadata"]["finalizers"],
            json!(["example.com/hold"])
        );
        cluster.delete(&pod, "Foreground");
        sleep(SETTLED).await;
        let finalizers = cluster.now(&pod).unwrap()["metadata"]["finalizers"].clone();
        assert_eq!(
            finalizers,
            json!(["example.com/hold"]),
            "foregroundDeletion stays"
        );
        cluster.set(&pod, &json!({"finalizers": null}));
        cluster.until_gone(&[&pod]).await;
    });
}

/// Objects that are there when the host starts are judged as well as those that
/// come: nothing was seen to happen.
#[test]
fn what_was_left_behind_while_nobody_looked_is_collected() {
    test(|cluster| async move {
        let owner = cluster.create(rc("owner"));
        let dependent = cluster.create(owned(pod("dependent"), &[reference(&owner)]));
        let held_owner = cluster.create(rc("held"));
        let blocker = cluster.create(owned(pod("blocker"), &[blocking(&held_owner)]));
        let let_go = cluster.create(rc("let-go"));
        let orphan = cluster.create(owned(pod("orphan"), &[blocking(&let_go)]));
        cluster.delete(&owner, "Background");
        cluster.delete(&held_owner, "Foreground");
        cluster.delete(&let_go, "Orphan");
        let _host = cluster.collector().await;
        cluster
            .until_gone(&[&dependent, &blocker, &held_owner, &let_go])
            .await;
        cluster.stay(&[&orphan]).await;
        assert_eq!(cluster.owners(&orphan), [] as [Value; 0]);
    });
}

/// A name that was given again is another owner.
#[test]
fn a_dependent_of_the_former_owner_of_a_name_goes() {
    test(|cluster| async move {
        let former = cluster.create(rc("owner"));
        let dependent = cluster.create(owned(pod("dependent"), &[reference(&former)]));
        cluster.delete(&former, "Background");
        let owner = cluster.create(rc("owner"));
        let its_own = cluster.create(owned(pod("its-own"), &[reference(&owner)]));
        assert_ne!(uid(&former), uid(&owner));
        let _host = cluster.collector().await;
        cluster.until_gone(&[&dependent]).await;
        cluster.stay(&[&owner, &its_own]).await;
    });
}

/// In the mode `DryRun` nothing is written, and nothing is tried over and over.
#[test]
fn a_dry_run_writes_nothing_and_rests() {
    test(|cluster| async move {
        let garbage = cluster.create(owned(pod("garbage"), &[to_nowhere("v1", "Pod")]));
        let let_go = cluster.create(rc("let-go"));
        let orphan = cluster.create(owned(pod("orphan"), &[reference(&let_go)]));
        cluster.delete(&let_go, "Orphan");
        let mut host = cluster.collector_with("DryRun", "{}").await;
        sleep(Duration::from_mins(1)).await;
        assert!(cluster.is_there(&garbage) && cluster.is_there(&let_go));
        assert_eq!(cluster.owners(&orphan), [reference(&let_go)]);
        let shown: Vec<String> = host
            .told()
            .into_iter()
            .filter_map(|report| match report {
                davit::host::Report::Ruled { plan, .. } => Some(plan.target.name.clone()),
                _ => None,
            })
            .collect();
        assert_eq!(BTreeSet::from_iter(&shown).len(), 2);
        assert!(shown.len() < 10, "{shown:?}");
    });
}
