//! The journal of a real process when the process is killed, and when the disk is full.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::Value;

use crate::bench::journals::{LOST_START, Replayed};
use crate::bench::process::{Process, free_port, get, post, send, until};
use crate::bench::text;
use crate::program::{davit, server, sim};

/// How much a killed host loses at most: `docs/journal.md`.
const LOST: Duration = Duration::from_secs(1);
/// How much later a loaded machine may flush: the journal's thread waits for a processor.
const DELAY: Duration = Duration::from_millis(700);
/// The pause between two changes.
const PERIOD: Duration = Duration::from_millis(20);
/// The kills, each at another time since the last flush.
const KILLS: u64 = 4;

/// What `davit` prints about a journal, and its exit code.
fn read(command: &[&str], journal: &Path) -> (String, Option<i32>) {
    let mut davit = davit();
    let output = davit.args(command).arg(journal).output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    (String::from_utf8(printed).unwrap(), output.status.code())
}

/// Makes the calls of a journal again. They have the same decisions, and are skipped for these
/// reasons alone.
fn replays(journal: &Path, explained: &BTreeSet<&str>) {
    let (text, code) = read(&["replay"], journal);
    assert_eq!(code, Some(0), "{text}");
    let replayed = Replayed::read(&text);
    assert!(replayed.identical > 0, "{text}");
    replayed.is_explained_by(explained);
}

/// Whether a host has started to record there.
pub(crate) fn has_segments(journal: &Path) -> bool {
    let files = journal.read_dir().into_iter().flatten();
    let mut paths = files.map(|file| file.unwrap().path());
    paths.any(|path| path.extension().is_some_and(|it| it == "journal"))
}

/// When a journal has each pod first.
fn recorded_pods(journal: &Path) -> BTreeMap<String, Timestamp> {
    let mut davit = davit();
    davit
        .args(["journal", "cat", "--output", "json"])
        .arg(journal);
    let output = davit.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let mut pods = BTreeMap::new();
    for line in lines.lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        let name = entry["object"].as_str().and_then(|key| key.split_once('/'));
        if let Some((_, name)) = name {
            let time = text(&entry, "/time").parse().unwrap();
            pods.entry(name.to_owned()).or_insert(time);
        }
    }
    pods
}

fn create_pod(server: &str, name: &str) {
    let pod = format!(
        "{{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {{\"name\": \"{name}\", \
         \"namespace\": \"default\"}}, \"spec\": {{\"containers\": [{{\"name\": \"a\", \
         \"image\": \"b\"}}]}}}}"
    );
    let answer = post(&format!("{server}/api/v1/namespaces/default/pods"), &pod);
    assert!(answer.contains(name), "{answer}");
}

/// The end of the process, not of the machine: what was written is in the files.
#[test]
fn a_killed_host_loses_the_last_second_of_a_stream_of_changes_at_most() {
    let (sim, kubeconfig) = sim(&[]);
    let server = server(&kubeconfig);
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("davit.yaml");
    let controller = "controllers: [{name: podgc, mode: Enforce, module: {builtin: podgc}}]\n";
    fs::write(&config, controller).unwrap();
    for kill in 0..KILLS {
        let journal = directory.path().join(kill.to_string());
        let mut host = davit();
        host.args(["run", "--config"]).arg(&config);
        host.arg("--kubeconfig").arg(&kubeconfig);
        host.arg("--journal").arg(&journal);
        let mut host = Process(host.stderr(Stdio::null()).spawn().unwrap());
        let first = format!("first-{kill}");
        create_pod(&server, &first);
        until("it records", || {
            has_segments(&journal) && recorded_pods(&journal).contains_key(&first)
        });
        let end = Instant::now() + Duration::from_secs(2) + LOST * u32::try_from(kill).unwrap() / 4;
        let mut created: Vec<(String, Timestamp)> = Vec::new();
        while Instant::now() < end {
            let name = format!("pod-{kill}-{}", created.len());
            create_pod(&server, &name);
            created.push((name, Timestamp::now()));
            std::thread::sleep(PERIOD);
        }
        let killed = Timestamp::now();
        host.0.kill().unwrap();
        host.0.wait().unwrap();

        let (verified, code) = read(&["journal", "verify"], &journal);
        assert!(
            code == Some(0) && verified.contains(" 0 damaged"),
            "{verified}"
        );
        let recorded = recorded_pods(&journal);
        let has = |(name, _): &&(String, Timestamp)| recorded.contains_key(name);
        let count = created.iter().take_while(has).count();
        let rest = created.iter().skip(count).filter(has).count();
        assert_eq!(
            rest, 0,
            "nothing before the last recorded change is missing"
        );
        // The first change that is missing.
        let lost = created.get(count).map(|(_, at)| killed.duration_since(*at));
        let lost = lost.map_or(Duration::ZERO, |lost| lost.try_into().unwrap());
        println!(
            "kill {kill}: {count} of {} changes, {lost:?} lost",
            created.len()
        );
        assert!(count > 20, "{count} changes are recorded");
        assert!(lost <= LOST + DELAY, "{lost:?} lost");
        replays(&journal, &BTreeSet::new());
    }
    assert_eq!(sim.terminate(), 0);
}

/// A host whose journal is on a file system of 4 MiB, which only it sees.
struct SmallDisk {
    host: Process,
    /// The mount point, as this process sees it.
    place: PathBuf,
    port: u16,
}

impl SmallDisk {
    /// None, and a line about it, if no file system can be mounted.
    fn start(kubeconfig: &Path, mount: &Path) -> Option<Self> {
        let script = "mount -t tmpfs -o size=4m tmpfs \"$1\" || exit 99; shift; exec \"$@\"";
        let unshare = |arguments: &[&str]| {
            let mut command = Command::new("unshare");
            command.args(["--map-root-user", "--mount", "sh", "-c", script, "sh"]);
            command.arg(mount).args(arguments);
            command
        };
        let attempt = unshare(&["true"]).stderr(Stdio::null()).status();
        if !attempt.is_ok_and(|status| status.success()) {
            println!("skipped: unshare cannot mount a tmpfs");
            return None;
        }
        let port = free_port();
        let program = davit();
        let mut command = unshare(&[program.get_program().to_str().unwrap()]);
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.args(["run", "--insecure-http", "--http"]);
        command.arg(format!("127.0.0.1:{port}"));
        command.arg("--kubeconfig").arg(kubeconfig);
        command.arg("--journal").arg(mount.join("journal"));
        let host = Process(command.stderr(Stdio::null()).spawn().unwrap());
        let root = PathBuf::from(format!("/proc/{}/root", host.0.id()));
        let place = root.join(mount.strip_prefix("/").unwrap());
        Some(Self { host, place, port })
    }

    fn journal(&self) -> PathBuf {
        self.place.join("journal")
    }

    fn page(&self, path: &str) -> Option<(u16, String)> {
        get(&format!("http://127.0.0.1:{}/{path}", self.port))
    }

    /// The value of a metric without labels, or with these.
    fn metric(&self, name: &str) -> Option<f64> {
        let (_, page) = self.page("metrics")?;
        let line = page.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    }

    fn is_recording(&self) -> bool {
        self.metric("davit_journal_recording")
            .is_some_and(|it| it > 0.5)
    }

    /// Fills the disk, and returns the file that does.
    fn fill(&self) -> PathBuf {
        let path = self.place.join("filler");
        let mut file = File::create(&path).unwrap();
        for size in [1 << 16, 1 << 10, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
        path
    }
}

/// The condition `Recording` of a controller, with its reason.
fn recording(server: &str, controller: &str) -> String {
    let url = format!("{server}/apis/davit.dev/v1alpha1/controllers/{controller}");
    let (_, body) = get(&url).unwrap();
    let controller: Value = serde_json::from_str(&body).unwrap();
    let conditions = controller.pointer("/status/conditions");
    let conditions = conditions.and_then(Value::as_array);
    let found = conditions
        .into_iter()
        .flatten()
        .find(|it| it["type"] == "Recording");
    found.map_or_else(String::new, |it| {
        format!("{} {}", text(it, "/status"), text(it, "/reason"))
    })
}

/// Waits longer than the pause of ten seconds after a failure.
fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_full_disk_stops_the_journal_with_a_condition_and_a_metric_and_no_controller() {
    let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds");
    let directory = tempfile::tempdir().unwrap();
    let objects = directory.path().join("objects.yaml");
    let cluster = "apiVersion: v1\nkind: Namespace\nmetadata: {name: davit-system}\n---\n\
         apiVersion: davit.dev/v1alpha1\nkind: Controller\nmetadata: {name: podgc}\n\
         spec: {module: {builtin: podgc}, mode: Enforce, \
         config: {terminatedPodThreshold: 1, period: 1s}}\n";
    fs::write(&objects, cluster).unwrap();
    let definition = crds.join("controllers.davit.dev.yaml");
    let (sim, kubeconfig) = sim(&[&definition, &objects]);
    let server = server(&kubeconfig);
    let mount = directory.path().join("disk");
    fs::create_dir(&mount).unwrap();
    let Some(disk) = SmallDisk::start(&kubeconfig, &mount) else {
        return;
    };
    eventually("it records", || {
        recording(&server, "podgc").starts_with("True ") && disk.is_recording()
    });
    let dropped = || {
        disk.metric("davit_journal_entries_total{result=\"dropped\"}")
            .unwrap_or_default()
    };
    assert!(dropped() < 0.5);

    let filler = disk.fill();
    let mut number = 0;
    // Pods that have ended: PodGC deletes all but one.
    let mut churn = || {
        for _ in 0..10 {
            number += 1;
            let name = format!("ended-{number}");
            create_pod(&server, &name);
            let status = format!("{server}/api/v1/namespaces/default/pods/{name}/status");
            send(
                "PATCH",
                &status,
                "application/merge-patch+json",
                r#"{"status": {"phase": "Failed"}}"#,
            );
        }
    };
    let pods = || {
        let (_, body) = get(&format!("{server}/api/v1/pods")).unwrap();
        let list: Value = serde_json::from_str(&body).unwrap();
        list["items"].as_array().unwrap().len()
    };
    eventually("the journal stops", || {
        churn();
        !disk.is_recording()
    });
    eventually("the status says so", || {
        recording(&server, "podgc") == "False JournalStopped"
    });
    // The controller deletes what has ended meanwhile.
    churn();
    eventually("all but one are deleted", || pods() == 1);
    let ready = disk.page("readyz").unwrap();
    assert_eq!(ready.0, 200, "{ready:?}");
    assert!(ready.1.contains("journal"), "{ready:?}");
    assert!(dropped() > 0.0, "entries are dropped and counted");

    fs::remove_file(filler).unwrap();
    eventually("it records again", || disk.is_recording());
    eventually("the status says so", || {
        recording(&server, "podgc").starts_with("True ")
    });
    churn();
    eventually("all but one are deleted again", || pods() == 1);
    std::thread::sleep(Duration::from_secs(2));
    let (verified, code) = read(&["journal", "verify"], &disk.journal());
    assert!(
        code == Some(0) && verified.contains(" 0 damaged"),
        "{verified}"
    );
    let (info, _) = read(&["journal", "info"], &disk.journal());
    assert_eq!(info.matches("gap from ").count(), 1, "{info}");
    // A call may last while the journal starts again.
    replays(&disk.journal(), &[LOST_START].into());
    assert_eq!(disk.host.terminate(), 0);
    assert_eq!(sim.terminate(), 0);
}
