//! The journal of a host as an operator has it: recorded, read, and its decisions made again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::bench::process::{Process, get, guests, until};
use crate::bench::{odd_guest, text};
use crate::disk::has_segments;
use crate::program::{davit, server, sim};

/// A cluster with pods of which PodGC deletes some, and the place of a journal.
struct Bench {
    sim: Process,
    kubeconfig: PathBuf,
    directory: tempfile::TempDir,
}

impl Bench {
    fn start() -> Self {
        let data = Path::new(env!("CARGO_MANIFEST_DIR"));
        let pods = data.join("core/tests/data/podlist.json");
        let nodes = data.join("tests/data/nodelist.json");
        let (sim, kubeconfig) = sim(&[&nodes, &pods]);
        Self {
            sim,
            kubeconfig,
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn journal(&self) -> PathBuf {
        self.directory.path().join("journal")
    }

    /// A host that runs this controller, and records its journal.
    fn command(&self, controller: &str) -> std::process::Command {
        let config = self.directory.path().join("davit.yaml");
        let controllers = format!("controllers: [{{mode: Enforce, {controller}}}]\n");
        std::fs::write(&config, controllers).unwrap();
        let mut command = davit();
        command.args(["run", "--config"]).arg(config);
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        command.arg("--journal").arg(self.journal());
        command.stderr(Stdio::null());
        command
    }

    fn run(&self, controller: &str) -> Process {
        Process(self.command(controller).spawn().unwrap())
    }

    /// The uids of the pods.
    fn pods(&self) -> BTreeSet<String> {
        let (_, body) = get(&format!("{}/api/v1/pods", server(&self.kubeconfig))).unwrap();
        let list: Value = serde_json::from_str(&body).unwrap();
        let pods = list["items"].as_array().unwrap();
        pods.iter().map(|pod| text(pod, "/metadata/uid")).collect()
    }

    fn davit(&self, command: &[&str], arguments: &[&str]) -> Output {
        let mut davit = davit();
        davit.args(command).arg(self.journal()).args(arguments);
        davit.output().unwrap()
    }

    /// What a command prints that succeeds.
    fn printed(&self, command: &[&str], arguments: &[&str]) -> String {
        let output = self.davit(command, arguments);
        assert_eq!(output.status.code(), Some(0), "{command:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The entries of a journal.
    fn entries(&self, arguments: &[&str]) -> Vec<Value> {
        let arguments = [&["--output", "json"], arguments].concat();
        let lines = self.printed(&["journal", "cat"], &arguments);
        let entries = lines.lines().map(serde_json::from_str);
        entries.map(Result::unwrap).collect()
    }
}

const PODGC: &str = "name: podgc, module: {builtin: podgc}, \
    config: {terminatedPodThreshold: 0, quarantine: 500ms, period: 1s}";

/// The uids that plans of a kind of entry delete.
fn deleted(entries: &[Value]) -> BTreeSet<String> {
    let answers = entries.iter().filter(|entry| entry["kind"] == "answer");
    let decisions = answers.flat_map(|entry| entry["decisions"].as_array().unwrap());
    let plans = decisions.flat_map(|decision| decision["plans"].as_array().unwrap());
    let deletes = |plan: &&Value| {
        let steps = plan["steps"].as_array().unwrap();
        steps.iter().any(|step| step["step"] == "delete")
    };
    let targets = plans.filter(deletes);
    targets.map(|plan| text(plan, "/target/uid")).collect()
}

/// The number of calls in the summary of a replay.
fn identical(summary: &str) -> u64 {
    let first = summary.lines().next().unwrap();
    assert!(first.contains(" 0 different"), "{summary}");
    let calls = first.split(' ').next().unwrap();
    calls.parse().unwrap()
}

#[test]
fn every_decision_of_a_recorded_host_is_the_same_again() {
    let bench = Bench::start();
    let before = bench.pods();
    let host = bench.run(PODGC);
    until("the orphans are gone", || bench.pods().len() < before.len());

    // A second host may not record there, and says so at its start.
    let other = bench
        .command(PODGC)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(other.status.code(), Some(1));
    let error = String::from_utf8(other.stderr).unwrap();
    let place = format!("davit: --journal {}: ", bench.journal().display());
    let refusal = format!("{place}another process records its journal in");
    assert!(error.lines().last().unwrap().contains(&refusal), "{error}");

    // The journal is read beside the host.
    until("the journal has entries", || !bench.entries(&[]).is_empty());
    assert_eq!(host.terminate(), 0);
    let gone: BTreeSet<String> = before.difference(&bench.pods()).cloned().collect();
    assert!(!gone.is_empty());
    let entries = bench.entries(&[]);
    assert!(deleted(&entries).is_superset(&gone));
    let uid = gone.first().unwrap();
    let about = bench.entries(&["--uid", uid, "--controller", "podgc"]);
    let kinds: BTreeSet<&str> = about
        .iter()
        .map(|it| it["kind"].as_str().unwrap())
        .collect();
    assert!(
        kinds.is_superset(&["ruling", "execution"].into()),
        "{about:#?}"
    );

    why_it_was_deleted(&bench, &about, uid);
    the_decisions_are_exported(&bench, gone.len());
    podgc_answers_the_same_each_time(&bench);

    assert!(
        bench
            .printed(&["journal", "verify"], &[])
            .contains(" 0 damaged")
    );
    let info = bench.printed(&["journal", "info"], &[]);
    assert!(
        info.contains("finished") && info.contains("sha256:"),
        "{info}"
    );
    let first = identical(&bench.printed(&["replay"], &[]));
    assert!(first > 3, "{first} calls");

    // A killed host loses at most what it did not write yet. A new segment loses nothing.
    let mut next = bench.command(PODGC);
    next.args(["--journal-segment-age", "1s"]);
    let mut host = Process(next.spawn().unwrap());
    let count = bench.entries(&[]).len();
    until("the next host records", || {
        bench.entries(&[]).len() > count + 50
    });
    std::thread::sleep(Duration::from_secs(2));
    host.0.kill().unwrap();
    host.0.wait().unwrap();
    assert!(
        bench
            .printed(&["journal", "verify"], &[])
            .contains(" 0 damaged")
    );
    let both = identical(&bench.printed(&["replay"], &[]));
    assert!(both > first, "{both} calls, {first} before");
    let info = bench.printed(&["journal", "info"], &[]);
    let gaps = info.lines().filter(|line| line.starts_with("gap from "));
    assert_eq!(gaps.count(), 1, "between the hosts: {info}");
    let cut = bench.directory.path().join("cut");
    let output = cut.to_str().unwrap();
    bench.printed(&["journal", "cut"], &["--output", output]);
    assert!(cut.read_dir().unwrap().count() >= 2);
    // The part can be replayed without the modules of this machine.
    let none = bench.directory.path().join("none");
    let mut replay = davit();
    replay.arg("replay").arg(&cut);
    let output = replay
        .env("DAVIT_CACHE", &none)
        .env("DAVIT_GUESTS", &none)
        .output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(bench.sim.terminate(), 0);
}

/// A row for each deletion, in a file that ends as Parquet's do.
fn the_decisions_are_exported(bench: &Bench, deletions: usize) {
    let file = bench.directory.path().join("decisions.parquet");
    let output = ["--decisions", "--output", file.to_str().unwrap()];
    let said = bench.printed(&["journal", "export"], &output);
    let rows = said.split(": ").nth(1).unwrap().split(' ').next().unwrap();
    assert!(rows.parse::<usize>().unwrap() >= deletions, "{said}");
    let bytes = std::fs::read(&file).unwrap();
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    let partial = bench.directory.path().join("decisions.parquet.partial");
    assert!(!partial.exists());
    let none = ["--decisions", "--controller", "nobody", "--output"];
    let none = [&none[..], &[file.to_str().unwrap()]].concat();
    let said = bench.printed(&["journal", "export"], &none);
    assert!(said.contains(": 0 rows"), "{said}");
}

fn repeated(bench: &Bench, module: &Path, runs: &str) -> Output {
    let mut davit = davit();
    davit.arg("inspect").arg(module);
    davit.args(["--determinism", runs, "--journal"]);
    davit.arg(bench.journal()).output().unwrap()
}

fn podgc_answers_the_same_each_time(bench: &Bench) {
    let output = repeated(bench, &guests().join("podgc.wasm"), "3");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with("3 runs of each call\n"), "{said}");
    assert!(said.contains(" 0 different"), "{said}");
    // No call of another module is recorded.
    let output = repeated(bench, &odd_guest(), "2");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("modules of the journal: sha256:"), "{error}");
}

/// An object that is gone: what the guest saw of it, the plan, and its outcome.
fn why_it_was_deleted(bench: &Bench, about: &[Value], uid: &str) {
    let execution = about.iter().find(|it| it["kind"] == "execution").unwrap();
    let target = |field| text(execution, &format!("/target/{field}"));
    let name = format!("{}/{}", target("namespace"), target("name"));
    let journal = bench.journal();
    let why = |journal: &Path, arguments: &[&str]| {
        let mut davit = davit();
        davit.args(["why", "pods"]).args(arguments);
        davit.arg("--journal").arg(journal).output().unwrap()
    };
    for arguments in [&[&*name][..], &[&*name, "--uid", uid]] {
        let output = why(&journal, &[arguments, &["--output", "json"]].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let page: Value = serde_json::from_slice(&output.stdout).unwrap();
        let object = &page["objects"][0];
        assert_eq!(object["object"]["uid"], uid, "{page:#}");
        assert!(object["leftCache"].is_string(), "{page:#}");
        let decisions = object["decisions"].as_array().unwrap();
        let deleted = |it: &&Value| it.pointer("/plans/0/execution/result") == Some(&"ok".into());
        let decision = decisions.iter().find(deleted).unwrap();
        assert_eq!(decision["controller"], "podgc");
        assert_eq!(decision["plans"][0]["ruling"]["ruling"], "admitted");
        let saw = decision["saw"]["object"].as_object().unwrap();
        assert!(!saw.is_empty(), "{decision:#}");
        assert!(text(decision, "/revision/configuration").starts_with("sha256:"));
        assert_eq!(decision["revision"]["config"]["quarantine"], "500ms");
        let execution = &decision["plans"][0]["execution"];
        let requests = execution["requests"].as_array().unwrap();
        let last = requests.last().unwrap();
        let (namespace, name) = name.split_once('/').unwrap();
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        assert_eq!(
            (&last["method"], &last["uri"]),
            (&"DELETE".into(), &path.into())
        );
        assert_eq!(last["body"]["preconditions"]["uid"], uid, "{last:#}");
        assert_eq!(last["answer"], "ok");
        let related = decision["saw"]["related"].as_array().unwrap();
        let node = related.iter().find(|it| it["relation"] == "node").unwrap();
        assert_eq!(
            node["name"], saw["pods"]["spec"]["nodeName"],
            "{decision:#}"
        );
        assert_eq!(node["fields"], Value::Null, "an orphan's node is gone");
    }

    let output = why(&journal, &[&name]);
    let said = String::from_utf8(output.stdout).unwrap();
    for part in [
        "left the cache at ",
        "decided: ",
        "ruling: admitted",
        "executed: ok in ",
        "config: {\"period\":\"1s\",\"quarantine\":\"500ms\",\"terminatedPodThreshold\":0}",
        &format!(
            "DELETE /api/v1/namespaces/{}/pods/{}: ok",
            target("namespace"),
            target("name")
        ),
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }

    // A node that no decision is about, and that only the state before the span has.
    let entries = bench.entries(&[]);
    let puts = entries.iter().filter(|it| it["change"] == "put");
    let mut names = puts.map(|it| text(it, "/object"));
    let node = names.find(|name| !name.contains('/')).unwrap();
    let last = text(entries.last().unwrap(), "/time");
    let mut quiet = davit();
    quiet.args(["why", "Node", &node, "--from", &last, "--journal"]);
    let output = quiet.arg(&journal).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("No decision about it is recorded"), "{said}");

    let output = why(&journal, &["default/never-was"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("the journal has no pods default/never-was in this span; it spans 2"));
    let output = why(&journal.join("none"), &[&name]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn a_guest_that_remembers_its_calls_is_found_by_a_replay() {
    let bench = Bench::start();
    let guest = odd_guest();
    let file = guest.display();
    let odd = format!("name: odd, module: {{file: {file}}}, config: {{reconcile: count}}");
    let host = bench.run(&odd);
    let answers = || {
        let entries = bench.entries(&[]);
        let answers = entries.into_iter().filter(|it| it["kind"] == "answer");
        answers.collect::<Vec<_>>()
    };
    until("it is recorded", || {
        has_segments(&bench.journal()) && answers().len() > 20
    });
    assert_eq!(host.terminate(), 0);
    let module = file.to_string();
    // Its count starts at 1 again.
    let from = text(&answers()[10], "/time");
    let arguments = ["--from", &from, "--module", &module];
    let output = bench.davit(&["replay"], &arguments);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let found = String::from_utf8(output.stdout).unwrap();
    assert!(found.contains("first difference: call "), "{found}");
    assert!(found.contains(" differs: recorded "), "{found}");

    // Each run of a call has another count.
    for runs in ["2", "3"] {
        let output = repeated(&bench, &guest, runs);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let found = String::from_utf8(output.stdout).unwrap();
        assert!(found.contains("first difference: call "), "{found}");
        assert!(found.contains(" differs: run 1 "), "{found}");
        assert!(found.contains("\n  run 2:\n"), "{found}");
    }

    // Without the module, nothing is made again.
    std::fs::remove_dir_all(bench.journal().join("modules")).unwrap();
    let empty = bench.directory.path().join("empty");
    let output = davit()
        .arg("replay")
        .arg(bench.journal())
        .env("DAVIT_CACHE", &empty)
        .env("DAVIT_GUESTS", &empty)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("modules are missing: sha256:"), "{error}");
    assert!(
        error.contains(" of odd; name their files with --module"),
        "{error}"
    );
    assert_eq!(bench.sim.terminate(), 0);
}

/// The report of a backtest, and its exit code.
fn tested(bench: &Bench, arguments: &[&str]) -> (Value, Option<i32>) {
    let arguments = [&["--controller", "podgc", "--output", "json"], arguments].concat();
    let output = bench.davit(&["backtest"], &arguments);
    let report = serde_json::from_slice(&output.stdout);
    (
        report.unwrap_or_else(|_| panic!("{output:?}")),
        output.status.code(),
    )
}

#[test]
fn another_policy_is_tested_on_a_recorded_history() {
    let bench = Bench::start();
    let before = bench.pods();
    let host = bench.run(PODGC);
    until("the orphans are gone", || bench.pods().len() < before.len());
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(host.terminate(), 0);
    let gone = before.difference(&bench.pods()).count();

    // The recorded policy itself deletes the same.
    let no_other = [
        "--fail-if",
        "only-candidate>0",
        "--fail-if",
        "only-recorded>0",
    ];
    let (report, code) = tested(&bench, &no_other);
    assert_eq!(code, Some(0), "{report:#}");
    assert_eq!(report["agreement"]["agree"], gone, "{report:#}");
    assert_eq!(
        report["candidate"]["byReason"],
        report["recorded"]["byReason"]
    );
    let text = bench.printed(&["backtest"], &["--controller", "podgc"]);
    assert!(text.contains(&format!("agree {gone} ")), "{text}");
    assert!(text.contains("not modelled:"), "{text}");
    let page = ["--controller", "podgc", "--output", "html"];
    let page = bench.printed(&["backtest"], &page);
    assert!(page.starts_with("<!DOCTYPE html>"), "{page}");
    assert!(page.contains(&format!("<b>{gone}</b> objects")), "{page}");
    assert!(page.contains("<svg") && page.contains("<h2>Not modelled</h2>"));
    // It needs nothing else.
    for other in ["<script", "src=", "href=", "url("] {
        assert!(!page.contains(other), "{page}");
    }

    // Another one waits so long that it deletes nothing in time.
    let config = bench.directory.path().join("config.yaml");
    std::fs::write(&config, "terminatedPodThreshold: 0\nquarantine: 1h\n").unwrap();
    let config = ["--config", config.to_str().unwrap()];
    let (report, code) = tested(&bench, &[&config[..], &no_other].concat());
    assert_eq!(code, Some(1), "{report:#}");
    assert!(
        report["agreement"]["onlyRecorded"].as_u64() > Some(0),
        "{report:#}"
    );

    // The journal has a few seconds of the week that is asked for.
    let week = ["--from", "168h", "--fail-if", "missing-seconds>3600"];
    let (report, code) = tested(&bench, &week);
    assert_eq!(code, Some(1), "{report:#}");
    let missing = report["span"]["missingBeforeSeconds"].as_f64().unwrap();
    assert!((604_000.0..604_801.0).contains(&missing), "{report:#}");

    // Another guest watches what is not recorded.
    let manifest = bench.directory.path().join("controller.yaml");
    let spec = "apiVersion: davit.dev/v1alpha1\nkind: Controller\nmetadata: {name: podgc}\n\
                spec: {module: {builtin: taint-eviction}, mode: Enforce}\n";
    std::fs::write(&manifest, spec).unwrap();
    let spec = [
        "--controller",
        "podgc",
        "--spec",
        manifest.to_str().unwrap(),
    ];
    let output = bench.davit(&["backtest"], &spec);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("that the journal does not have: "),
        "{error}"
    );
    assert!(error.contains("spec.tolerations"), "{error}");
    let output = bench.davit(&["backtest"], &["--controller", "nobody"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("has no controller nobody"), "{error}");
    the_step_of_a_pipeline_runs_as_it_is_documented(&bench);
    assert_eq!(bench.sim.terminate(), 0);
}

/// The journal has no week: of the three thresholds, that one is exceeded.
fn the_step_of_a_pipeline_runs_as_it_is_documented(bench: &Bench) {
    let page = include_str!("../../../docs/operating.md");
    let (_, step) = page.split_once("- name: Backtest\n  run: |\n").unwrap();
    let (step, _) = step.split_once("```").unwrap();
    let place = bench.directory.path();
    std::fs::create_dir(place.join("deploy")).unwrap();
    let spec = "kind: Controller\nmetadata: {name: podgc}\nspec: {module: {builtin: podgc}, \
                mode: Enforce, config: {terminatedPodThreshold: 0, quarantine: 500ms, period: 1s}}";
    std::fs::write(place.join("deploy/podgc.yaml"), spec).unwrap();
    let program = davit();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-e", "-c", step]).current_dir(place);
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let directory = Path::new(program.get_program()).parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    shell.env("PATH", format!("{}:{path}", directory.display()));
    let output = shell.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("exceeded: missing-seconds>3600"), "{error}");
    let report = std::fs::read_to_string(place.join("backtest.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["agreement"]["onlyCandidate"], 0, "{report:#}");
}

/// The place of the data of a segment's first chunk with entries behind the keyframe.
fn entries_of(segment: &[u8]) -> Option<std::ops::Range<usize>> {
    let number = |place: usize| {
        let bytes = segment.get(place..place + 4)?;
        usize::try_from(u32::from_le_bytes(bytes.try_into().unwrap())).ok()
    };
    // The header of the segment, with its metadata and its checksum.
    let mut place = 40 + number(32)?;
    loop {
        if segment.get(place..place + 4)? != b"DJck" {
            return None;
        }
        let (flags, entries, size) = (number(place + 4)?, number(place + 8)?, number(place + 16)?);
        let data = place + 44..place + 44 + size;
        // Neither the keyframe nor the index.
        if flags & (2 | 8) == 0 && entries > 0 {
            return Some(data);
        }
        place = data.end;
    }
}

/// What follows the damage in its segment is lost, and the next keyframe has the state again.
#[test]
fn a_backtest_continues_behind_damage_and_says_so() {
    let bench = Bench::start();
    let mut command = bench.command(PODGC);
    command.args(["--journal-segment-age", "1s"]);
    let host = Process(command.spawn().unwrap());
    let segments = || {
        let files = bench.journal().read_dir().into_iter().flatten();
        let paths = files.map(|file| file.unwrap().path());
        let segments = paths.filter(|path| path.extension().is_some_and(|it| it == "journal"));
        let mut segments: Vec<PathBuf> = segments.collect();
        segments.sort();
        segments
    };
    until("there are segments", || segments().len() >= 6);
    assert_eq!(host.terminate(), 0);
    let (report, code) = tested(&bench, &[]);
    assert_eq!(code, Some(0), "{report:#}");

    let segments = segments();
    let (first, last) = (1, segments.len() - 1);
    let damaged = segments[first..last].iter().find_map(|path| {
        let mut bytes = std::fs::read(path).unwrap();
        let data = entries_of(&bytes)?;
        bytes[data.start + data.len() / 2] ^= 0xff;
        std::fs::write(path, bytes).unwrap();
        Some(path)
    });
    let damaged = damaged.expect("a segment between two others has entries");
    let (report, code) = tested(&bench, &[]);
    assert_eq!(code, Some(2), "{report:#}");
    assert_eq!(report["damagedParts"], 1, "{report:#}");
    let damage = text(&report, "/damage/0");
    assert!(damage.starts_with(&*damaged.to_string_lossy()), "{damage}");
    // Time continues behind it.
    let next = text(&report, "/span/to");
    let (report, code) = tested(&bench, &["--allow-damage"]);
    assert_eq!(code, Some(0), "{report:#}");
    assert_eq!(text(&report, "/span/to"), next);
    let verified = bench.davit(&["journal", "verify"], &[]);
    assert_eq!(verified.status.code(), Some(1), "{verified:?}");
    assert_eq!(bench.sim.terminate(), 0);
}
