//! What a journal costs at 150,000 pods, 5,000 nodes and 20 changes of pods a second:
//!
//! ```text
//! cargo run --release -p davit-journal --example journal_scale -- HOURS LEVEL BLOCK_KIB
//! ```
//!
//! It records a keyframe and some hours of changes, flushed once a second of the journal's time,
//! without waiting for that time to pass. Nothing but the writer keeps state: a record follows
//! from its number, so the peak memory is the writer's.

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "figures for people; an example that cannot go on is to fail"
)]

use std::time::Duration;

use davit_journal::{Query, Reader, Settings, Writer};
use rmp::encode::{write_array_len, write_bool, write_map_len, write_str, write_uint};

const PODS: u64 = 150_000;
const NODES: u64 = 5_000;
/// Changes of pods.
const A_SECOND: u64 = 20;
/// Created, scheduled, started, ready; later terminating, gone.
const LIFE: u64 = 6;
const SECOND: i64 = 1_000_000;
const START: i64 = 1_780_000_000 * SECOND;

fn main() {
    let arguments: Vec<usize> = std::env::args()
        .skip(1)
        .map(|text| text.parse().unwrap())
        .collect();
    let hours = arguments.first().copied().unwrap_or(4) as u64;
    let mut settings = Settings::default();
    settings.level = arguments
        .get(1)
        .map_or(settings.level, |level| *level as i32);
    settings.block_bytes = arguments
        .get(2)
        .map_or(settings.block_bytes, |size| size << 10);
    settings.total_bytes = u64::MAX;
    settings.segment_bytes = u64::MAX;
    println!(
        "level {}, blocks of {} KiB, {hours} h",
        settings.level,
        settings.block_bytes >> 10
    );

    let directory = tempfile::tempdir().unwrap();
    let idle_memory = peak_memory();
    let (mut writer, _) = Writer::open(directory.path(), settings.clone(), START).unwrap();
    let (raw_keyframe, keyframe_cpu) = measured(|| keyframe(&mut writer));
    let keyframe_bytes = writer.totals().written_bytes;
    let (raw, cpu) = measured(|| changes(&mut writer, hours * 3600));
    let change_bytes = writer.totals().written_bytes - keyframe_bytes;
    let memory = peak_memory() - idle_memory;
    writer.close().unwrap();
    let reader = Reader::open(directory.path()).unwrap();
    let file = reader.segments()[0].bytes;
    let index = file - keyframe_bytes - change_bytes;

    let count = hours * 3600 * A_SECOND;
    let seconds = hours as f64 * 3600.0;
    let week = 7.0 * 24.0 * 3600.0;
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    println!(
        "keyframe: {:.1} MiB of {:.1}, {:.2} s of a core",
        mib(keyframe_bytes as f64),
        mib(raw_keyframe as f64),
        keyframe_cpu.as_secs_f64()
    );
    println!(
        "changes: {:.1} bytes of {:.0} each, {:.4} % of a core",
        change_bytes as f64 / count as f64,
        raw as f64 / count as f64,
        100.0 * cpu.as_secs_f64() / seconds
    );
    println!("index: {:.2} MiB", mib(index as f64));
    println!(
        "a week with a keyframe every {hours} h: {:.0} MiB",
        mib(file as f64 * week / seconds)
    );
    println!(
        "a core, with keyframes: {:.3} %",
        100.0 * (cpu + keyframe_cpu).as_secs_f64() / seconds
    );
    println!(
        "memory of the writer, at most: {:.1} MiB",
        mib(memory as f64)
    );
    read(&reader, hours as i64);
    let memory = peak_memory() - idle_memory;
    println!(
        "memory of writer and reader, at most: {:.1} MiB",
        mib(memory as f64)
    );
}

fn read(reader: &Reader, hours: i64) {
    let end = START + hours * 3600 * SECOND;
    let (count, cpu) = measured(|| {
        reader
            .entries(&Query::new(START, end))
            .map(Result::unwrap)
            .count()
    });
    println!("read: {count} entries in {:.2} s", cpu.as_secs_f64());
    let uid = Pod::of(PODS + 1000).uid;
    let query = Query::new(START, end).about(&uid);
    let (count, cpu) = measured(|| reader.entries(&query).map(Result::unwrap).count());
    println!(
        "about one pod: {count} entries in {:.1} ms",
        1000.0 * cpu.as_secs_f64()
    );
    let (verification, cpu) = measured(|| reader.verify().unwrap());
    println!(
        "verified: {} entries, {} damages in {:.2} s",
        verification.entries,
        verification.damages,
        cpu.as_secs_f64()
    );
}

/// What an operation returns, and the time of the process in it.
fn measured<T>(operation: impl FnOnce() -> T) -> (T, Duration) {
    let now = || rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let duration =
        |time: rustix::time::Timespec| Duration::new(time.tv_sec as u64, time.tv_nsec as u32);
    let before = now();
    let result = operation();

    (result, duration(now()).saturating_sub(duration(before)))
}

fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

/// The state at the start. Returns the size of its payloads.
fn keyframe(writer: &mut Writer) -> usize {
    let mut raw = 0;
    writer.start_segment(START, b"journal-scale").unwrap();
    for number in 0..NODES {
        let mut payload = Vec::new();
        write_node(&mut payload, number);
        raw += payload.len();
        writer
            .append(START, &[&uid_of(1 << 40 | number)], &payload)
            .unwrap();
    }
    for number in 0..PODS {
        let pod = Pod::of(number);
        let payload = pod.record(3, START);
        raw += payload.len();
        writer.append(START, &[&pod.uid], &payload).unwrap();
    }
    writer.end_keyframe().unwrap();
    raw
}

/// Each pod changes four times in its first seconds, and twice at its end. The oldest pods end
/// first. Returns the size of the payloads.
fn changes(writer: &mut Writer, seconds: u64) -> usize {
    let mut raw = 0;
    for change in 0..seconds * A_SECOND {
        let (round, phase) = (change / LIFE, change % LIFE);
        // The changes of several pods interleave.
        let (number, phase) = match phase {
            4 | 5 => (round, phase),
            phase => (PODS + 40 + round - 7 * phase, phase),
        };
        let pod = Pod::of(number);
        let time = START + (change * 1_000_000 / A_SECOND) as i64 + (mix(change) % 40_000) as i64;
        let payload = pod.record(phase, time);
        raw += payload.len();
        writer.append(time, &[&pod.uid], &payload).unwrap();
        if change % A_SECOND == A_SECOND - 1 {
            writer.flush(false).unwrap();
        }
    }
    raw
}

/// Numbers without a pattern.
fn mix(number: u64) -> u64 {
    let mut mixed = number
        .wrapping_add(0x9e37_79b9_7f4a_7c15)
        .wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn uid_of(number: u64) -> String {
    let (high, low) = (mix(number), mix(number ^ 0x5555_5555));
    let (a, b, c) = (high >> 32, high >> 16 & 0xffff, high & 0xfff);
    format!(
        "{a:08x}-{b:04x}-4{c:03x}-{:04x}-{:012x}",
        low >> 48 & 0x3fff | 0x8000,
        low & 0xffff_ffff_ffff
    )
}

/// The letters that Kubernetes uses for the random parts of names.
fn suffix(mut number: u64, length: usize) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let letter = || {
        let letter = LETTERS[(number % 27) as usize];
        number /= 27;
        char::from(letter)
    };
    std::iter::repeat_with(letter).take(length).collect()
}

struct Pod {
    number: u64,
    uid: String,
}

impl Pod {
    fn of(number: u64) -> Self {
        Self {
            number,
            uid: uid_of(number),
        }
    }

    /// The pod after its change number `phase`, as the fields that guests declare.
    fn record(&self, phase: u64, time: i64) -> Vec<u8> {
        let number = self.number;
        // Deployments have from one to hundreds of pods.
        let workload = mix(mix(number) % 97 * (mix(number) % 41));
        let app = format!(
            "{}-{}",
            ["api", "worker", "web", "cache", "batch", "ingest"][(workload % 6) as usize],
            suffix(workload, 4)
        );
        let replica_set = format!("{app}-{}", suffix(mix(workload), 10));
        let mut into = Vec::with_capacity(600);
        write_map_len(&mut into, 3).unwrap();
        text(&mut into, "metadata");
        write_map_len(&mut into, if phase >= 4 { 8 } else { 7 }).unwrap();
        pair(
            &mut into,
            "name",
            &format!("{replica_set}-{}", suffix(mix(number ^ 0x77), 5)),
        );
        pair(&mut into, "namespace", &format!("team-{}", workload % 120));
        pair(&mut into, "uid", &self.uid);
        pair(
            &mut into,
            "resourceVersion",
            &(4_000_000_000 + (time - START) as u64 / 7919 + number % 5).to_string(),
        );
        pair(
            &mut into,
            "creationTimestamp",
            &timestamp(START + (number as i64 - PODS as i64) * 300_000),
        );
        if phase >= 4 {
            pair(
                &mut into,
                "deletionTimestamp",
                &timestamp(time + 30 * SECOND),
            );
        }
        text(&mut into, "labels");
        write_map_len(&mut into, 2).unwrap();
        pair(&mut into, "app", &app);
        pair(&mut into, "pod-template-hash", &suffix(mix(workload), 10));
        text(&mut into, "ownerReferences");
        write_array_len(&mut into, 1).unwrap();
        write_map_len(&mut into, 5).unwrap();
        pair(&mut into, "apiVersion", "apps/v1");
        pair(&mut into, "kind", "ReplicaSet");
        pair(&mut into, "name", &replica_set);
        pair(&mut into, "uid", &uid_of(workload ^ 0xaaaa));
        text(&mut into, "controller");
        write_bool(&mut into, true).unwrap();
        text(&mut into, "spec");
        write_map_len(&mut into, u32::from(phase > 0)).unwrap();
        if phase > 0 {
            pair(
                &mut into,
                "nodeName",
                &node_name(mix(number ^ 0x99) % NODES),
            );
        }
        text(&mut into, "status");
        self.status(&mut into, phase, time);
        into
    }

    fn status(&self, into: &mut Vec<u8>, phase: u64, time: i64) {
        write_map_len(into, if phase >= 2 { 3 } else { 1 }).unwrap();
        let name = match phase {
            0 | 1 => "Pending",
            5 => "Succeeded",
            _ => "Running",
        };
        pair(into, "phase", name);
        if phase >= 2 {
            let ip = mix(self.number ^ 5);
            pair(
                into,
                "podIP",
                &format!("10.{}.{}.{}", ip % 64, ip >> 8 & 255, ip >> 16 & 255),
            );
            text(into, "conditions");
            write_array_len(into, 2).unwrap();
            for (kind, status) in [("Ready", phase == 3), ("PodScheduled", true)] {
                write_map_len(into, 3).unwrap();
                pair(into, "type", kind);
                pair(into, "status", if status { "True" } else { "False" });
                pair(into, "lastTransitionTime", &timestamp(time));
            }
        }
    }
}

fn write_node(into: &mut Vec<u8>, number: u64) {
    write_map_len(into, 3).unwrap();
    pair(into, "name", &node_name(number));
    pair(into, "uid", &uid_of(1 << 40 | number));
    text(into, "generation");
    write_uint(into, mix(number) % 9).unwrap();
}

fn node_name(number: u64) -> String {
    let address = mix(number ^ 0x00de);
    format!(
        "ip-10-{}-{}-{}.eu-west-1.compute.internal",
        number % 200,
        address & 255,
        address >> 8 & 255
    )
}

fn text(into: &mut Vec<u8>, text: &str) {
    write_str(into, text).unwrap();
}

fn pair(into: &mut Vec<u8>, key: &str, value: &str) {
    text(into, key);
    text(into, value);
}

/// As Kubernetes writes a time, to the second.
fn timestamp(time: i64) -> String {
    let seconds = time / SECOND;
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    // Months have 28 days here: only the number of digits that change counts.
    format!(
        "2026-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        day / 28 % 12 + 1,
        day % 28 + 1,
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}
