//! The store with 150,000 pods on 5,000 nodes: memory, and time per update and read.

use std::hint::black_box;
use std::time::{Duration, Instant as Clock};

use anyhow::{Context as _, Result, ensure};
use davit::metrics::number;
use davit_core::manifest::IndexSpec;
use davit_core::object::{ApiResource, ProjectedObject, Uid};
use davit_core::path::FieldPath;
use davit_core::store::{SegmentId, SegmentSpec, Store, ViewId, ViewSpec};
use davit_core::time::Instant;
use rmp::encode::{self, ByteBuf};

use crate::figure::Figure;
use crate::usage;

const PODS: u32 = 150_000;
const NODES: u32 = 5_000;
/// How many pods one owner has.
const REPLICAS: u32 = 10;
const ROUNDS: u32 = 100_000;

pub(crate) fn run() -> Result<()> {
    let before = usage::resident("self")?;
    let mut store = Store::default();
    let (_, nodes) = add_nodes(&mut store)?;
    let (pods_view, pods) = add_pods(&mut store)?;
    let nodes_fields = store.segment_fields(nodes).cloned().unwrap_or_default();
    store.replace(
        nodes,
        nodes_fields,
        (0..NODES).map(node),
        at(0),
        &mut Vec::new(),
    )?;
    let without_pods = usage::resident("self")?;
    let begun = Clock::now();
    // The pods are created one by one, because a whole list would count as memory of
    // the store. Nobody reads the changes of the first list here.
    let pods_fields = store.segment_fields(pods).cloned().unwrap_or_default();
    store.replace(
        pods,
        pods_fields.clone(),
        std::iter::empty(),
        at(0),
        &mut Vec::new(),
    )?;
    for number in 0..PODS {
        store.apply(pods, as_loaded(number, 1), at(0), &mut Vec::new());
    }
    micros("store: a new pod", begun, PODS).report()?;
    let after = usage::resident("self")?;
    let each = (after - without_pods) / f64::from(PODS);
    Figure::new("store: resident of each pod", each, "B")
        .aim(500.0)
        .report()?;
    let data = number(store.segment_bytes(pods)) / f64::from(PODS);
    Figure::new("store: data and key of each pod", data, "B").report()?;

    let mut version = u64::from(PODS);
    for (what, there, back) in [
        ("the version only", as_loaded as Edit, as_loaded as Edit),
        ("a field", relabelled, as_loaded),
        ("an indexed field", moved, as_loaded),
    ] {
        let alone = updates(&mut store, pods, &mut version, there, false);
        let held = updates(&mut store, pods, &mut version, back, true);
        let name = format!("store: update of {what} of a pod");
        Figure::new(&name, alone, "µs").report()?;
        Figure::new(name + ", under a snapshot", held, "µs").report()?;
    }

    let begun = Clock::now();
    for _ in 0..ROUNDS {
        black_box(store.snapshot());
    }
    micros("store: a snapshot", begun, ROUNDS).report()?;
    reads(&store, pods_view)?;
    let begun = Clock::now();
    let (candidate, _) = add_pods(&mut store)?;
    let took = begun.elapsed().as_secs_f64() * 1e3;
    Figure::new("store: a second view of all pods", took, "ms").report()?;
    store.remove_view(candidate);

    let begun = Clock::now();
    let listed = (0..PODS).map(|number| as_loaded(number, 0));
    store.replace(pods, pods_fields, listed, at(9), &mut Vec::new())?;
    micros("store: a pod that is listed again", begun, PODS).report()?;
    let end = (usage::resident("self")? - before) / f64::from(PODS);
    Figure::new("store: resident of each pod in the end", end, "B").report()?;
    Ok(())
}

/// Creates a pod by number and version.
type Edit = fn(u32, u64) -> ProjectedObject;

/// Times updates spread over all pods, in µs each; with `held`, a fresh
/// snapshot is held during each.
fn updates(store: &mut Store, pods: SegmentId, version: &mut u64, edit: Edit, held: bool) -> f64 {
    let mut changes = Vec::new();
    let mut spent = Duration::ZERO;
    for round in 0..ROUNDS {
        *version += 1;
        let item = edit(spread(round), *version);
        let begun = Clock::now();
        let snapshot = held.then(|| store.snapshot());
        store.apply(pods, item, at(*version), &mut changes);
        drop(snapshot);
        spent += begun.elapsed();
        changes.clear();
    }
    spent.as_secs_f64() * 1e6 / f64::from(ROUNDS)
}

/// Every pod once, each far from the one before.
fn spread(round: u32) -> u32 {
    round * 7_919 % PODS
}

fn reads(store: &Store, pods: ViewId) -> Result<()> {
    let snapshot = store.snapshot();
    let view = snapshot.view(pods).context("no view")?;
    let keys: Vec<String> = (0..ROUNDS)
        .map(|round| as_loaded(spread(round), 0).key())
        .collect();
    let begun = Clock::now();
    let found = keys.iter().filter(|key| view.get(key).is_some()).count();
    micros("store: a pod by key", begun, ROUNDS).report()?;
    ensure!(found == keys.len(), "{found} pods are found");
    let by_node = view.index("node").context("no index")?;
    let begun = Clock::now();
    let mut found = 0;
    for number in 0..NODES {
        found += by_node.get(&node_name(number), 0, 1_000).items.len();
    }
    micros("store: the 30 pods of a node by index", begun, NODES).report()?;
    ensure!(found == PODS as usize, "{found} pods have nodes");
    Ok(())
}

fn add_pods(store: &mut Store) -> Result<(ViewId, SegmentId)> {
    add(
        store,
        "pods",
        "Pod",
        &[
            "metadata.labels",
            "metadata.ownerReferences",
            "metadata.deletionTimestamp",
            "spec.nodeName",
            "status.phase",
        ],
        vec![
            index("node", "spec.nodeName", true)?,
            index("owner", "metadata.ownerReferences[*].uid", false)?,
            index("phase", "status.phase", false)?,
        ],
    )
}

fn add_nodes(store: &mut Store) -> Result<(ViewId, SegmentId)> {
    let fields = ["metadata.labels", "spec.taints"];
    add(
        store,
        "nodes",
        "Node",
        &fields,
        vec![index("tainted", "spec.taints[*].key", true)?],
    )
}

fn add(
    store: &mut Store,
    plural: &str,
    kind: &str,
    fields: &[&str],
    indexes: Vec<IndexSpec>,
) -> Result<(ViewId, SegmentId)> {
    let fields: Vec<FieldPath> = fields
        .iter()
        .map(|path| path.parse())
        .collect::<Result<_, _>>()?;
    let view = store.add_view(ViewSpec {
        fields: fields.iter().collect(),
        indexes,
        ..ViewSpec::default()
    });
    let spec = SegmentSpec::new(ApiResource::new("", "v1", plural), kind, plural == "pods");
    let segment = store.attach(view, &spec, &mut Vec::new())?;
    Ok((view, segment))
}

fn index(name: &str, path: &str, unset: bool) -> Result<IndexSpec> {
    Ok(IndexSpec {
        unset,
        ..IndexSpec::new(name, path.parse()?)
    })
}

fn as_loaded(number: u32, version: u64) -> ProjectedObject {
    pod(number, version, "stable", number % NODES)
}

fn relabelled(number: u32, version: u64) -> ProjectedObject {
    pod(number, version, "canary", number % NODES)
}

fn moved(number: u32, version: u64) -> ProjectedObject {
    pod(number, version, "stable", (number + 1) % NODES)
}

fn pod(number: u32, version: u64, track: &str, node: u32) -> ProjectedObject {
    let owner = number / REPLICAS;
    let name = format!("web-{owner:08x}-{number:05x}");
    let namespace = format!("team-{}", number % 50);
    let mut data = ByteBuf::new();
    map(&mut data, 3);
    text(&mut data, "metadata");
    map(&mut data, 5);
    entry(&mut data, "name", &name);
    entry(&mut data, "namespace", &namespace);
    entry(&mut data, "uid", &uid(1, number));
    text(&mut data, "labels");
    map(&mut data, 1);
    entry(&mut data, "track", track);
    text(&mut data, "ownerReferences");
    list(&mut data, 1);
    map(&mut data, 2);
    entry(&mut data, "name", &format!("web-{owner:08x}"));
    entry(&mut data, "uid", &uid(2, owner));
    text(&mut data, "spec");
    map(&mut data, 1);
    entry(&mut data, "nodeName", &node_name(node));
    text(&mut data, "status");
    map(&mut data, 1);
    entry(&mut data, "phase", "Running");
    projected(&namespace, &name, &uid(1, number), version, &data)
}

fn node(number: u32) -> ProjectedObject {
    let name = node_name(number);
    let mut data = ByteBuf::new();
    map(&mut data, 1);
    text(&mut data, "metadata");
    map(&mut data, 3);
    entry(&mut data, "name", &name);
    entry(&mut data, "uid", &uid(3, number));
    text(&mut data, "labels");
    map(&mut data, 1);
    entry(&mut data, "kubernetes.io/hostname", &name);
    projected("", &name, &uid(3, number), 1, &data)
}

fn projected(
    namespace: &str,
    name: &str,
    uid: &str,
    version: u64,
    data: &ByteBuf,
) -> ProjectedObject {
    ProjectedObject {
        namespace: namespace.into(),
        name: name.into(),
        uid: Uid::new(uid),
        resource_version: version.to_string().into(),
        data: data.as_slice().into(),
    }
}

fn node_name(number: u32) -> String {
    format!("node-{number:04}.example.internal")
}

fn uid(kind: u32, number: u32) -> String {
    let scattered = number.wrapping_mul(0x9e37_79b9);
    format!("{scattered:08x}-{kind:04x}-4000-8000-{number:012x}")
}

fn map(data: &mut ByteBuf, len: u32) {
    let Ok(_) = encode::write_map_len(data, len);
}

fn list(data: &mut ByteBuf, len: u32) {
    let Ok(_) = encode::write_array_len(data, len);
}

fn text(data: &mut ByteBuf, text: &str) {
    let Ok(()) = encode::write_str(data, text);
}

fn entry(data: &mut ByteBuf, key: &str, value: &str) {
    text(data, key);
    text(data, value);
}

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn micros(name: &str, since: Clock, times: u32) -> Figure {
    let each = since.elapsed().as_secs_f64() / f64::from(times);
    Figure::new(name, each * 1e6, "µs")
}
