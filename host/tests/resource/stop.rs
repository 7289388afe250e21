//! `davit stop` and `davit start`.

use std::time::{Duration, Instant};

use davit::commands::answer::NoAnswer;
use davit::commands::requests;
use davit::commands::stop::{self, Selection};
use davit_sim::fault::{Action, Fault, FaultTiming, Match};
use serde_json::json;

use crate::commands::{NO_WAIT, candidate, controller, error};
use crate::deploy;
use crate::program::Site;

/// A later version of Davit, or an operator, has written the status.
#[tokio::test]
async fn a_controller_is_stopped_and_started_whatever_its_status() {
    let mut candidate = candidate("bbbb", 1);
    candidate["step"] = json!(1_u64 << 40);
    let cluster = controller(json!({"candidate": candidate})).await;
    let client = &cluster.client;
    let other = error(requests::reset(client, "podgc", NO_WAIT).await);
    assert!(other.contains("was not written by Davit"), "{other}");
    let mode = || cluster.get("podgc")["spec"]["mode"].clone();
    let annotations = || cluster.get("podgc")["metadata"]["annotations"].clone();
    for selection in [Selection::Names(vec!["podgc".to_owned()]), Selection::All] {
        let reason = Some("a drill");
        stop::stop(client, &selection, reason, NO_WAIT)
            .await
            .unwrap();
        assert_eq!(mode(), "Disabled", "{selection:?}");
        let stopped = annotations()["davit.dev/stopped"].clone();
        let (at, who) = stopped.as_str().unwrap().split_once(" by ").unwrap();
        assert!(at.parse::<jiff::Timestamp>().is_ok(), "{at}");
        assert_eq!(who, "davit-sim-admin: a drill");
        stop::start(client, &selection, NO_WAIT).await.unwrap();
        assert_eq!(mode(), "DryRun", "{selection:?}");
        assert_eq!(annotations().as_object().map(serde_json::Map::len), None);
    }
    // A host that confirms the stop replaces the status.
    let wait = Duration::from_secs(1);
    let selection = Selection::of(vec!["podgc".to_owned()], false);
    let error = stop::stop(client, &selection, None, wait)
        .await
        .unwrap_err();
    assert!(error.is::<NoAnswer>(), "{error:#}");
    assert_eq!(mode(), "Disabled");
}

/// The API server takes no records of revisions for as long as the host waits for one.
#[test]
fn a_stop_does_not_wait_for_the_record_of_an_earlier_change() {
    let (site, _host) = Site::with_host(&[]);
    let mut second = site.get();
    second["metadata"] = json!({"name": "podgc-2"});
    site.sim.create(second).unwrap();
    let reaches = |expected: &str| {
        let started = Instant::now();
        let summary = || deploy::controller(&site.sim, "podgc-2")["status"]["summary"].clone();
        while started.elapsed() < Duration::from_secs(6) {
            if summary() == expected {
                return true;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    };
    assert!(reaches("DryRun"));
    for verb in ["create", "patch"] {
        site.sim.add_fault(Fault {
            matches: Match::new(verb, "controllerrevisions"),
            when: FaultTiming::Always,
            action: Action::Delay(Duration::from_secs(60)),
        });
    }
    site.change(json!({"spec": {"config": {"terminatedPodThreshold": 2}}}));
    std::thread::sleep(Duration::from_secs(1));
    deploy::change(&site.sim, "podgc-2", json!({"spec": {"mode": "Disabled"}}));
    assert!(reaches("Disabled"), "it waits for the record of podgc");
}

/// One operator starts all controllers, another one stops them at that moment: a stop that was
/// confirmed holds.
#[tokio::test]
async fn a_start_does_not_undo_a_stop_that_comes_after_it() {
    let cluster = controller(json!({})).await;
    let client = &cluster.client;
    let selection = Selection::Names(vec!["podgc".to_owned()]);
    let stop = |reason| stop::stop(client, &selection, Some(reason), NO_WAIT);
    stop("a drill").await.unwrap();
    cluster.sim.add_fault(Fault {
        matches: Match::new("patch", "controllers"),
        when: FaultTiming::First(1),
        action: Action::Delay(Duration::from_secs(1)),
    });
    let start = stop::start(client, &selection, NO_WAIT);
    let again = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        stop("wrong deletions").await
    };
    let (started, stopped) = tokio::join!(start, again);
    stopped.unwrap();
    let refused = format!("{:#}", started.unwrap_err());
    assert!(refused.contains("it was changed meanwhile"), "{refused}");
    let present = cluster.get("podgc");
    assert_eq!(present["spec"]["mode"], "Disabled");
    let annotations = &present["metadata"]["annotations"];
    let stopped = annotations["davit.dev/stopped"].as_str().unwrap();
    assert!(stopped.ends_with(": wrong deletions"), "{stopped}");
    stop::start(client, &selection, NO_WAIT).await.unwrap();
    assert_eq!(cluster.get("podgc")["spec"]["mode"], "DryRun");
}

/// The host writes the status between the read and the write.
#[tokio::test]
async fn a_start_is_repeated_after_a_conflict_with_a_status() {
    let cluster = controller(json!({})).await;
    let (client, selection) = (&cluster.client, Selection::All);
    stop::stop(client, &selection, None, NO_WAIT).await.unwrap();
    cluster.sim.add_fault(Fault {
        matches: Match::new("patch", "controllers"),
        when: FaultTiming::First(1),
        action: Action::Delay(Duration::from_secs(1)),
    });
    let start = stop::start(client, &selection, NO_WAIT);
    let write = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        cluster.change("podgc", json!({"status": {"observedGeneration": 1}}));
    };
    let (started, ()) = tokio::join!(start, write);
    started.unwrap();
    assert_eq!(cluster.get("podgc")["spec"]["mode"], "DryRun");
}

/// A mode that somebody has set since is not the command's to write.
#[tokio::test]
async fn a_start_forgets_a_stop_that_is_over() {
    let cluster = controller(json!({})).await;
    let (client, selection) = (&cluster.client, Selection::All);
    stop::stop(client, &selection, None, NO_WAIT).await.unwrap();
    cluster.change("podgc", json!({"spec": {"mode": "Enforce"}}));
    stop::start(client, &selection, NO_WAIT).await.unwrap();
    let present = cluster.get("podgc");
    assert_eq!(present["spec"]["mode"], "Enforce");
    let annotations = present["metadata"]["annotations"].as_object();
    assert_eq!(annotations.map(serde_json::Map::len), None);
}

#[test]
fn the_reason_of_a_stop_on_the_command_line_is_recorded_on_every_controller() {
    let site = Site::new();
    site.podgc(1, &[]);
    let mut second = site.get();
    second["metadata"] = json!({"name": "podgc-2"});
    site.sim.create(second).unwrap();
    let stopped = |name: &str| {
        let controller = crate::deploy::controller(&site.sim, name);
        assert_eq!(controller["spec"]["mode"], "Disabled", "{name}");
        let stopped = &controller["metadata"]["annotations"]["davit.dev/stopped"];
        stopped.as_str().unwrap().to_owned()
    };
    let reason = "wrong nodes are tainted";
    site.must(&["stop", "--all", "--reason", reason, "--wait=0"]);
    for name in ["podgc", "podgc-2"] {
        let stopped = stopped(name);
        let (at, who) = stopped.split_once(" by ").unwrap();
        assert!(at.parse::<jiff::Timestamp>().is_ok(), "{name}: {at}");
        assert_eq!(who, format!("davit-sim-admin: {reason}"), "{name}");
    }
    // Without a reason, the annotation has the time and the user.
    site.must(&["start", "--all", "--wait=0"]);
    site.must(&["stop", "--all", "--wait=0"]);
    assert!(stopped("podgc").ends_with(" by davit-sim-admin"));
    // A reason alone selects no Controller.
    let output = site.davit(&["stop", "--reason", reason]);
    assert_eq!(output.code, 2, "{output:?}");
}
