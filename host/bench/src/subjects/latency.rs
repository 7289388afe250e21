//! How long the host takes from an event of a watch to its write, at rest and while revisions are
//! swapped. The API server in memory notes when it gets each write.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use davit_sim::fault::Match;
use davit_sim::{Server, Sim, kubeconfig};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{interval, sleep};

use crate::figure::Figure;
use crate::process::{Host, UNLIMITED, configure, guest};
use crate::server;

const PODS: usize = 500;
const CHANGES: usize = 1_000;
/// Between two changes of an idle host.
const IDLE: Duration = Duration::from_millis(10);
const SWAPS: usize = 20;
/// Between two changes while revisions are swapped.
const BUSY: Duration = Duration::from_millis(2);
/// For longer than two seconds: the host reads its file each second, and two readings have to agree.
const CHANGES_OF_A_SWAP: usize = 1_200;
/// The changes next to a swap, among which the longest delay counts.
const WINDOW: usize = 10;

/// Swaps of an hour, one after the other with so many changes in between, for longer than two seconds
/// together.
const LASTING_SWAPS: usize = 1_500;
const CHANGES_BETWEEN: usize = 220;
/// As many are compared with all others: what the first ones leave behind is not yet growth.
const FIRST_SWAPS: usize = 60;

/// The write that answered a change.
#[derive(Clone, Copy)]
struct Answer {
    delay: Duration,
    revision: usize,
}

pub(crate) async fn run() -> Result<()> {
    let bench = Bench::start().await?;
    idle(&bench.sim, "").await?;
    swaps(&bench.sim, bench.directory.path()).await?;
    drop(bench);
    let bench = Bench::start_tls().await?;
    idle(&bench.sim, " over TLS, with HTTP/2 for watches").await
}

/// A host that has answered the first change.
struct Bench {
    sim: Sim,
    _server: Server,
    directory: TempDir,
    host: Host,
}

impl Bench {
    async fn start() -> Result<Self> {
        let sim = davit::sim::start()?;
        let server = Server::start("127.0.0.1:0".parse()?, sim.clone()).await?;
        let text = kubeconfig(&server.url());
        Self::beside(sim, server, &text).await
    }

    /// The same as in a cluster.
    async fn start_tls() -> Result<Self> {
        let sim = davit::sim::start()?;
        let (server, text) = server::start_tls(&sim).await?;
        Self::beside(sim, server, &text).await
    }

    async fn beside(sim: Sim, server: Server, kubeconfig: &str) -> Result<Self> {
        for number in 0..PODS {
            sim.apply(pod(number, ""))?;
        }
        let directory = tempfile::tempdir()?;
        let host = Host::start(kubeconfig, directory.path(), &config(0)?, None)?;
        until_answered(&sim, change(&sim, 0, 1, IDLE).await?).await?;
        Ok(Self {
            sim,
            _server: server,
            directory,
            host,
        })
    }
}

/// A controller that is swapped as often as its file is read under load: every change is answered, and memory does
/// not grow with the number of swaps.
pub(crate) async fn lasting() -> Result<()> {
    let Bench {
        sim,
        _server,
        directory,
        host,
    } = Bench::start().await?;
    let (mut revisions, mut first, mut early) = (BTreeSet::new(), 1, 0.0);
    for revision in 1..=LASTING_SWAPS {
        configure(directory.path(), &config(revision)?)?;
        let changed = change(&sim, first, CHANGES_BETWEEN, IDLE).await?;
        first += CHANGES_BETWEEN;
        let answers = until_answered(&sim, changed).await?;
        revisions.extend(answers.values().map(|answer| answer.revision));
        if revision == FIRST_SWAPS {
            early = host.resident()?;
        }
    }
    let grown = host.resident()? - early;
    ensure!(
        revisions.len() > LASTING_SWAPS * 9 / 10,
        "only {} revisions have decided",
        revisions.len()
    );
    let name = |what: &str| format!("swaps: {LASTING_SWAPS} in an hour under load, {what}");
    Figure::new(name("resident after the first 60"), early, "MB").report()?;
    Figure::new(name("grown since then"), grown, "MB")
        .aim(5.0)
        .report()
}

async fn idle(sim: &Sim, how: &str) -> Result<()> {
    let changed = change(sim, 1, CHANGES, IDLE).await?;
    let answers = until_answered(sim, changed).await?;
    let mut delays: Vec<Duration> = answers.values().map(|answer| answer.delay).collect();
    delays.sort_unstable();
    for (percent, aim) in [(50, 1.0), (99, 5.0)] {
        let delay = delays.get(delays.len() * percent / 100);
        let delay = delay.context("no change")?.as_secs_f64() * 1e3;
        let name = format!("latency: event to write{how}, {percent} % of them");
        Figure::new(name, delay, "ms").aim(aim).report()?;
    }
    Ok(())
}

/// Pods change all the time; each swap is compared with the same number of changes before it.
async fn swaps(sim: &Sim, directory: &Path) -> Result<()> {
    let mut pauses = Vec::new();
    let mut first = CHANGES + 1;
    for revision in 1..=SWAPS {
        configure(directory, &config(revision)?)?;
        let changed = change(sim, first, CHANGES_OF_A_SWAP, BUSY).await?;
        first += CHANGES_OF_A_SWAP;
        let answers: Vec<Answer> = until_answered(sim, changed).await?.into_values().collect();
        let Some(swap) = answers
            .windows(2)
            .position(|pair| matches!(pair, [one, other] if one.revision != other.revision))
        else {
            continue;
        };
        let longest = |from: usize, to: usize| {
            let part = answers.get(from..to.min(answers.len())).unwrap_or_default();
            part.iter()
                .map(|answer| answer.delay)
                .max()
                .unwrap_or_default()
        };
        let (from, to) = (swap.saturating_sub(WINDOW / 2), swap + WINDOW / 2);
        let Some(before) = from.checked_sub(WINDOW) else {
            continue;
        };
        let ordinary = longest(before, from).as_secs_f64();
        pauses.push(1e3 * (longest(from, to).as_secs_f64() - ordinary).max(0.0));
    }
    ensure!(
        pauses.len() * 2 > SWAPS,
        "only {} swaps were seen",
        pauses.len()
    );
    pauses.sort_unstable_by(f64::total_cmp);
    let pause = pauses.get(pauses.len() / 2).context("no swap")?;
    Figure::new(
        "swap: longest delay beyond the ordinary, median",
        *pause,
        "ms",
    )
    .aim(1.0)
    .report()?;
    let most = pauses.last().context("no swap")?;
    Figure::new(
        "swap: longest delay beyond the ordinary, longest",
        *most,
        "ms",
    )
    .report()
}

/// Changes pods one after the other, from a number on; returns when each was changed.
async fn change(
    sim: &Sim,
    from: usize,
    count: usize,
    every: Duration,
) -> Result<BTreeMap<usize, Duration>> {
    let mut ticks = interval(every);
    let mut changed = BTreeMap::new();
    for number in from..from + count {
        ticks.tick().await;
        changed.insert(number, sim.uptime());
        sim.apply(pod(number % PODS, &number.to_string()))?;
    }
    Ok(changed)
}

/// Waits until each change is answered.
async fn until_answered(
    sim: &Sim,
    changed: BTreeMap<usize, Duration>,
) -> Result<BTreeMap<usize, Answer>> {
    let patches = Match::new("patch", "pods");
    for _ in 0..600 {
        if sim.count(&patches) >= changed.len() {
            break;
        }
        sleep(Duration::from_millis(100)).await;
    }
    let mut answers = BTreeMap::new();
    for request in sim.log() {
        if !patches.matches(&request.work) {
            continue;
        }
        let body: Value = serde_json::from_slice(&request.body)?;
        let seen = body.pointer("/metadata/annotations/seen");
        let seen = seen.and_then(Value::as_str).context("another patch")?;
        let (number, revision) = seen.split_once('/').context("another mark")?;
        let (number, revision) = (number.parse()?, revision.parse()?);
        let at = changed.get(&number).context("an early change")?;
        let delay = request.uptime.saturating_sub(*at);
        answers.insert(number, Answer { delay, revision });
    }
    ensure!(answers.len() == changed.len(), "a change has no answer");
    sim.clear_log();
    Ok(answers)
}

fn pod(number: usize, change: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("pod-{number:03}"), "namespace": "default", "labels": {"seq": change},
        },
        "spec": {"containers": [{"name": "main", "image": "example.com/main"}]},
    })
}

fn config(revision: usize) -> Result<String> {
    let module = guest("fixture_marks")?;
    Ok(format!(
        "{UNLIMITED}controllers:\n- name: marks\n  module: {{file: {}}}\n  mode: Enforce\n  \
         config: {{mark: \"{revision}\"}}\n",
        module.display()
    ))
}
