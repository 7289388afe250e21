//! Journals of former versions of Davit, as they recorded them: this version reads them, and makes
//! their decisions again with the guests of that time. `tests/data/journals/README.md` has the
//! story.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::bench::process::{Process, get, send, until};
use crate::bench::text;
use crate::program::{davit, server, sim};

/// The pods that each controller deletes.
const DELETED: [(&str, &[&str]); 2] = [
    ("podgc", &["job-1", "job-2", "job-3", "orphan"]),
    ("taint-eviction", &["web-1", "web-2"]),
];
/// What a replay prints without the names of controllers and the numbers of calls.
const NOTHING_DIFFERENT: &str = " 0 different, 0 skipped";

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/journals")
}

/// A copy of a recorded journal: what is stored stays as it is.
pub(crate) struct StoredJournal(TempDir);

impl StoredJournal {
    pub(crate) fn open(version: &str) -> Self {
        let copy = tempfile::tempdir().unwrap();
        for part in ["", "modules"] {
            let (from, to) = (data().join(version).join(part), copy.path().join("journal"));
            fs::create_dir_all(to.join(part)).unwrap();
            for file in from.read_dir().unwrap().map(Result::unwrap) {
                if file.file_type().unwrap().is_file() {
                    fs::copy(file.path(), to.join(part).join(file.file_name())).unwrap();
                }
            }
        }
        Self(copy)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("journal")
    }

    pub(crate) fn directory(&self) -> &Path {
        self.0.path()
    }

    /// Runs a command on the journal, on a machine that has no guests of that version.
    pub(crate) fn davit(&self, command: &[&str], arguments: &[&str]) -> Output {
        let none = self.0.path().join("none");
        let mut davit = davit();
        davit.args(command).arg(self.path()).args(arguments);
        davit.current_dir(self.0.path());
        let compiled = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stored-journals");
        davit.env("DAVIT_CACHE", compiled).env("DAVIT_GUESTS", none);
        davit.output().unwrap()
    }

    /// What a command prints that succeeds.
    pub(crate) fn printed(&self, command: &[&str], arguments: &[&str]) -> String {
        let output = self.davit(command, arguments);
        assert_eq!(output.status.code(), Some(0), "{command:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, command: &[&str], arguments: &[&str]) -> Value {
        let arguments = [arguments, &["--output", "json"]].concat();
        serde_json::from_str(&self.printed(command, &arguments)).unwrap()
    }

    /// The decisions about a pod.
    fn why(&self, pod: &str) -> Value {
        let command = ["why", "pod", &format!("default/{pod}"), "--journal"];
        self.json(&command, &[])["objects"][0].take()
    }
}

#[test]
fn a_journal_of_version_0_1_0_is_whole_and_its_decisions_are_made_again() {
    let journal = StoredJournal::open("0.1.0");
    let verified = journal.printed(&["journal", "verify"], &[]);
    assert!(verified.contains(" 0 damaged parts"), "{verified}");
    let replayed = journal.printed(&["replay"], &[]);
    for (controller, _) in DELETED {
        assert!(
            replayed.contains(&format!("\n  {controller}: ")),
            "{replayed}"
        );
    }
    let summary = replayed.lines().next().unwrap();
    assert!(summary.ends_with(NOTHING_DIFFERENT), "{replayed}");

    // Without its guests, the error says which are missing and where they are looked for.
    fs::remove_dir_all(journal.path().join("modules")).unwrap();
    let output = journal.davit(&["replay"], &[]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    for (controller, _) in DELETED {
        assert!(error.contains(&format!(" of {controller}")), "{error}");
    }
    assert!(error.contains("name their files with --module"), "{error}");
    let one = ["--controller", "podgc", "--module"];
    let modules = data().join("0.1.0/modules");
    let modules = modules.read_dir().unwrap().map(|file| file.unwrap().path());
    let modules: Vec<PathBuf> = modules.collect();
    let replayed: Vec<i32> = modules
        .iter()
        .map(|module| {
            let arguments = [&one[..], &[module.to_str().unwrap()]].concat();
            let output = journal.davit(&["replay"], &arguments);
            output.status.code().unwrap()
        })
        .collect();
    let expected = replayed.iter().filter(|code| **code == 0).count();
    assert_eq!(
        expected, 1,
        "one of its modules is that of podgc: {replayed:?}"
    );
    // A module that the journal does not name proves nothing, and is named.
    let others = modules
        .iter()
        .map(|module| ["--module", module.to_str().unwrap()]);
    let all: Vec<&str> = others.flatten().chain(["--controller", "podgc"]).collect();
    let output = journal.davit(&["replay"], &all);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let last = text.lines().last().unwrap();
    assert!(
        last.starts_with("--module: no call of this span was made by "),
        "{text}"
    );
    assert_eq!(last.matches("sha256:").count(), modules.len() - 1, "{text}");
}

#[test]
fn the_policies_of_a_journal_of_version_0_1_0_are_tested_again() {
    let journal = StoredJournal::open("0.1.0");
    let config = journal.directory().join("config.yaml");
    let lowered = "{terminatedPodThreshold: 2, period: 1s, quarantine: 500ms}";
    fs::write(&config, lowered).unwrap();
    let lowered = ["--config", config.to_str().unwrap()];
    // Without another policy, the one that ran at the start is tested: PodGC's threshold was 4.
    for (controller, policy, agree, only_recorded) in [
        ("podgc", &[][..], 2, 2),
        ("podgc", &lowered, 4, 0),
        ("taint-eviction", &[], 2, 0),
    ] {
        let arguments = [&["--controller", controller], policy].concat();
        let report = journal.json(&["backtest"], &arguments);
        let agreement = &report["agreement"];
        let counts = ["agree", "onlyRecorded", "onlyCandidate"].map(|it| &agreement[it]);
        assert_eq!(
            counts,
            [agree, only_recorded, 0],
            "{controller} {policy:?}: {report:#}"
        );
    }
}

/// The recorded `PodGC` deleted an orphaned pod after half a second; this one waits for three.
#[test]
fn the_options_decide_what_stays_for_a_policy_that_is_late() {
    let journal = StoredJournal::open("0.1.0");
    let config = journal.directory().join("config.yaml");
    fs::write(
        &config,
        "{terminatedPodThreshold: 2, period: 1s, quarantine: 3s}",
    )
    .unwrap();
    for (options, agree, later, is_closed) in [
        (&[][..], 4, 1, true),
        (&["--keep"], 4, 1, true),
        (&["--tolerance", "1s"], 3, 0, true),
        (&["--tolerance", "0s"], 3, 0, true),
        (&["--open-loop"], 4, 1, false),
        (&["--open-loop", "--tolerance", "0s"], 3, 0, false),
    ] {
        let first = [
            "--controller",
            "podgc",
            "--config",
            config.to_str().unwrap(),
        ];
        let report = journal.json(&["backtest"], &[&first[..], options].concat());
        let agreement = &report["agreement"];
        assert_eq!(agreement["agree"], agree, "{options:?}: {report:#}");
        assert_eq!(agreement["onlyRecorded"], 4 - agree, "{options:?}");
        assert_eq!(agreement["later"]["count"], later, "{options:?}");
        let policy = &report["policy"];
        assert_eq!(policy["closedLoop"], is_closed, "{options:?}");
        assert_eq!(policy["keep"], options.contains(&"--keep"), "{options:?}");
        let executed = if is_closed { agree } else { 0 };
        assert_eq!(report["activity"]["executedPlans"], executed, "{options:?}");
    }
}

/// The journal's hosts have never run a controller of that name. What was deleted Davit has
/// deleted.
#[test]
fn a_policy_that_never_ran_is_compared_with_the_cluster_beside_davit() {
    let journal = StoredJournal::open("0.1.0");
    let info = journal.printed(&["journal", "info"], &["--output", "json"]);
    let total: Value = serde_json::from_str(info.lines().last().unwrap()).unwrap();
    let module = text(&total, "/controllers/podgc/0").replace("sha256:", "");
    let guests = journal.directory().join("guests");
    fs::create_dir(&guests).unwrap();
    let copy = journal.path().join(format!("modules/{module}.wasm"));
    fs::copy(copy, guests.join("podgc.wasm")).unwrap();
    let spec = "apiVersion: davit.dev/v1alpha1\nkind: Controller\nmetadata: {name: cleanup}\n\
        spec:\n  module: {builtin: podgc}\n  mode: DryRun\n  compareWith: Cluster\n  \
        config: {terminatedPodThreshold: 2, period: 1s, quarantine: 500ms}\n";
    let manifest = journal.directory().join("controller.yaml");
    fs::write(&manifest, spec).unwrap();
    // A cache of its own: other tests expect that the shared one does not have the module.
    let cache = journal.directory().join("cache");
    let [manifest, guests, cache] = [&manifest, &guests, &cache].map(|path| path.to_str().unwrap());
    let arguments = |against| {
        let files = ["--spec", manifest, "--guests", guests, "--cache", cache];
        let controller = ["--controller", "cleanup", "--against", against];
        [&files[..], &controller].concat()
    };
    let report = journal.json(&["backtest"], &arguments("cluster"));
    let agreement = &report["agreement"];
    let counts = ["agree", "onlyCluster", "onlyCandidate"].map(|it| &agreement[it]);
    assert_eq!(counts, [0, 0, 0], "{report:#}");
    let by_others = agreement["byOthers"].as_u64().unwrap();
    assert!((1..=4).contains(&by_others), "{report:#}");

    let output = journal.davit(&["backtest"], &arguments("recorded"));
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("has no controller cleanup"), "{error}");
    assert!(error.contains("none with --against cluster"), "{error}");
}

#[test]
fn the_decisions_of_a_journal_of_version_0_1_0_are_explained_and_undone() {
    let journal = StoredJournal::open("0.1.0");
    for (controller, pods) in DELETED {
        for pod in pods {
            let story = journal.why(pod);
            assert!(story["leftCache"].is_string(), "{story:#}");
            let decisions = story["decisions"].as_array().unwrap();
            let executed = |it: &&Value| it.pointer("/plans/0/execution/result").is_some();
            let decision = decisions.iter().find(executed).unwrap();
            assert_eq!(decision["controller"], *controller);
            assert_eq!(decision["plans"][0]["ruling"]["ruling"], "admitted");
            let execution = &decision["plans"][0]["execution"];
            assert_eq!(execution["result"], "ok", "{execution:#}");
            let requests = execution["requests"].as_array().unwrap();
            assert!(!requests.is_empty());
            assert!(
                requests.iter().all(|it| it["answer"] == "ok"),
                "{execution:#}"
            );
        }
    }
    // The threshold was 4 and is 2 from then on.
    let command = ["why", "pod", "default/job-3", "--journal"];
    let said = journal.printed(&command, &[]);
    let config =
        "config: {\"period\":\"1s\",\"quarantine\":\"500ms\",\"terminatedPodThreshold\":2}";
    assert!(said.contains(config), "{said}");

    for pod in DELETED[0].1 {
        let command = [
            "restore",
            "pod",
            &format!("default/{pod}"),
            "--kubeconfig",
            "/nowhere",
            "--journal",
        ];
        let report = journal.json(&command, &[]);
        assert_eq!(text(&report, "/copy/object/name"), *pod, "{report:#}");
        assert_eq!(report["result"], "not-asked", "{report:#}");
    }
}

/// Records a journal with this version of Davit.
#[test]
#[ignore = "writes into the source tree"]
fn record_a_journal() {
    let place = data().join(env!("CARGO_PKG_VERSION"));
    assert!(!place.exists(), "a recorded journal stays as it is");
    let crds =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds/controllers.davit.dev.yaml");
    let (sim, kubeconfig) = sim(&[&crds, &data().join("cluster.yaml")]);
    let server = server(&kubeconfig);
    let pods = || -> BTreeSet<String> {
        let (_, body) = get(&format!("{server}/api/v1/pods")).unwrap();
        let list: Value = serde_json::from_str(&body).unwrap();
        let pods = list["items"].as_array().unwrap();
        pods.iter().map(|pod| text(pod, "/metadata/name")).collect()
    };
    let mut host = davit();
    host.arg("run").arg("--kubeconfig").arg(&kubeconfig);
    host.args(["--replica-id", "recorder", "--journal"])
        .arg(&place);
    let host = Process(host.stderr(Stdio::null()).spawn().unwrap());
    let left = |wanted: &[&str]| pods() == wanted.iter().map(|pod| (*pod).to_owned()).collect();
    until("both controllers have deleted", || {
        left(&["job-2", "job-3", "job-4", "job-5", "web-3"])
    });
    send(
        "PATCH",
        &format!("{server}/apis/davit.dev/v1alpha1/controllers/podgc"),
        "application/merge-patch+json",
        r#"{"spec": {"config": {"terminatedPodThreshold": 2}}}"#,
    );
    until("the lower threshold is in force", || {
        left(&["job-4", "job-5", "web-3"])
    });
    // The cache has seen the deletions.
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(host.terminate(), 0);
    assert_eq!(sim.terminate(), 0);
    fs::remove_file(place.join("lock")).unwrap();
}
