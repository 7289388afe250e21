//! The cost of the store with 150,000 pods on 5,000 nodes: memory, and time per update
//! and snapshot. Run it in release:
//!
//! `cargo run --release -p davit-core --example store_scale`

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a measurement reads the clock and prints; core itself does neither"
)]

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::time::{Duration, Instant as Clock};

use davit_core::manifest::IndexSpec;
use davit_core::object::{ApiResource, Kind, ProjectedObject, Uid};
use davit_core::path::FieldPath;
use davit_core::store::{SegmentId, SegmentSpec, Store, ViewId, ViewKey, ViewSpec};
use davit_core::time::Instant;
use rmp::encode::{self, ByteBuf};

const PODS: u32 = 150_000;
const NODES: u32 = 5_000;
/// How many pods one owner has.
const REPLICAS: u32 = 10;
const ROUNDS: u32 = 100_000;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let before = resident_bytes()?;
    let mut store = Store::default();
    let (nodes_view, nodes) = add_nodes(&mut store)?;
    let (pods_view, pods) = add_pods(&mut store)?;
    let nodes_fields = store.segment_fields(nodes).cloned().unwrap_or_default();
    store.replace(
        nodes,
        nodes_fields,
        (0..NODES).map(node),
        at(0),
        &mut Vec::new(),
    )?;
    let without_pods = resident_bytes()?;
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
    println!("load: {:.2} µs a pod", micros(begun.elapsed(), PODS));
    let after = resident_bytes()?;
    println!(
        "memory: {} MB in all, {} bytes a pod, of which {} are data and key",
        (after - before) / 1_000_000,
        (after - without_pods) / u64::from(PODS),
        store.segment_bytes(pods) / PODS as usize,
    );
    println!(
        "snapshot: {} pods, {} nodes",
        store.view(pods_view).map_or(0, |view| view.len()),
        store.view(nodes_view).map_or(0, |view| view.len())
    );

    let mut version = u64::from(PODS);
    for (what, there, back) in [
        ("the version only", as_loaded as Edit, as_loaded as Edit),
        ("a field", relabelled, as_loaded),
        ("an indexed field", moved, as_loaded),
    ] {
        let alone = updates(&mut store, pods, &mut version, there, false);
        let held = updates(&mut store, pods, &mut version, back, true);
        println!("update of {what}: {alone:.2} µs; under a snapshot: {held:.2} µs");
    }

    let begun = Clock::now();
    for _ in 0..ROUNDS {
        black_box(store.snapshot());
    }
    println!("snapshot: {:.3} µs", micros(begun.elapsed(), ROUNDS));
    reads(&store, pods_view)?;
    let begun = Clock::now();
    let (candidate, _) = add_pods(&mut store)?;
    println!(
        "a second view of all pods: {} ms",
        begun.elapsed().as_millis()
    );
    store.remove_view(candidate);

    let begun = Clock::now();
    let listed = (0..PODS).map(|number| as_loaded(number, 0));
    store.replace(pods, pods_fields, listed, at(9), &mut Vec::new())?;
    println!("re-list: {:.2} µs a pod", micros(begun.elapsed(), PODS));
    println!(
        "memory at the end: {} MB",
        (resident_bytes()? - before) / 1_000_000
    );
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
    micros(spent, ROUNDS)
}

/// Every pod once, each far from the one before.
fn spread(round: u32) -> u32 {
    round * 7_919 % PODS
}

fn reads(store: &Store, pods: ViewId) -> Outcome<()> {
    let snapshot = store.snapshot();
    let view = snapshot.view(pods).ok_or("no view")?;
    let keys: Vec<String> = (0..ROUNDS)
        .map(|round| as_loaded(spread(round), 0).key())
        .collect();
    let begun = Clock::now();
    let found = keys.iter().filter(|key| view.get(key).is_some()).count();
    println!(
        "get: {:.2} µs ({found} found)",
        micros(begun.elapsed(), ROUNDS)
    );
    let by_node = view.index("node").ok_or("no index")?;
    let begun = Clock::now();
    let mut found = 0;
    for number in 0..NODES {
        found += by_node.get(&node_name(number), 0, 1_000).items.len();
    }
    println!(
        "by-index: {:.2} µs for {} objects",
        micros(begun.elapsed(), NODES),
        found / NODES as usize
    );
    Ok(())
}

fn add_pods(store: &mut Store) -> Outcome<(ViewId, SegmentId)> {
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

fn add_nodes(store: &mut Store) -> Outcome<(ViewId, SegmentId)> {
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
) -> Outcome<(ViewId, SegmentId)> {
    let fields: Vec<FieldPath> = fields
        .iter()
        .map(|path| path.parse())
        .collect::<Result<_, _>>()?;
    let view = store.add_view(ViewSpec {
        fields: fields.iter().collect(),
        hidden: davit_core::path::FieldTree::default(),
        indexes,
        key: ViewKey::Name,
    });
    let spec = SegmentSpec {
        resource: ApiResource::new("", "v1", plural),
        kind: Kind {
            api_version: "v1".into(),
            kind: kind.into(),
        },
        namespaced: plural == "pods",
        namespace: String::new(),
        label_selector: String::new(),
        field_selector: String::new(),
    };
    let segment = store.attach(view, &spec, &mut Vec::new())?;
    Ok((view, segment))
}

fn index(name: &str, path: &str, unset: bool) -> Outcome<IndexSpec> {
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

fn micros(spent: Duration, times: u32) -> f64 {
    spent.as_secs_f64() * 1e6 / f64::from(times)
}

/// The resident memory of the process, from Linux' `/proc`.
fn resident_bytes() -> Outcome<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next());
    Ok(kilobytes
        .ok_or("no VmRSS in /proc/self/status")?
        .parse::<u64>()?
        * 1_024)
}
