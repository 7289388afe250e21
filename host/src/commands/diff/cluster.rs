//! `davit diff NAME --against cluster`: where the dry run and the cluster disagree.

use std::fmt::Write as _;

use anyhow::Result;
use davit_core::api::ClusterComparisonStatus;
use davit_core::untrusted::{MOST_LOGGED, line};

use super::Server;
use crate::commands::print;
use crate::http::cluster_comparison::{Difference, Page};

/// Requests the comparison of a controller with the cluster from the running host.
pub async fn fetch(server: Server<'_>, name: &str) -> Result<Page> {
    super::read(server, name, "cluster").await
}

/// The counts, and that many of the last differences.
#[must_use]
pub fn in_words(name: &str, page: &Page, most: usize) -> String {
    let Page {
        revision,
        replaces,
        window,
        counts,
        pending,
        last,
    } = page;
    let replaced = replaces.as_deref();
    let replaced =
        replaced.unwrap_or("everybody but Davit: it replaces no controller of Kubernetes");
    let (revision, replaced) = (escaped(revision), escaped(replaced));
    let mut text = format!("{name}: dry run of {revision} against {replaced}\n");
    // Writing to a String does not fail, here and below.
    match counts {
        None => text.push_str("nothing is recorded yet\n"),
        Some(counts) => write_counts(&mut text, counts),
    }
    let _ = writeln!(
        text,
        "{pending} pending: a target waits {} for the other side",
        escaped(window)
    );
    for difference in last.iter().take(most) {
        write_difference(&mut text, difference);
    }
    if last.len() > most {
        let more = last.len() - most;
        let _ = writeln!(text, "\nand {more} more: --last NUMBER shows more");
    }
    text
}

fn write_counts(text: &mut String, counts: &ClusterComparisonStatus) {
    let ClusterComparisonStatus {
        since,
        agree,
        only_davit,
        only_cluster,
        other_actor,
        unknown,
        interrupted,
        unobserved_seconds,
        untimed,
        earlier,
        later,
        median_milliseconds,
        ..
    } = counts;
    let apart = earlier + later + untimed;
    let together = match agree.saturating_sub(apart) {
        0 => String::new(),
        count => format!("{count} at the same time, "),
    };
    let median = median_milliseconds.map(|median| format!(", median {}", delay(median)));
    let _ = writeln!(
        text,
        "{agree} agree ({earlier} earlier, {later} later, {together}{untimed} untimed{}), \
         {only_davit} only-davit, {only_cluster} only-cluster, since {}",
        median.unwrap_or_default(),
        escaped(since)
    );
    let _ = writeln!(
        text,
        "not compared: {other_actor} deleted by others, {unknown} unknown{}",
        gap(*interrupted, *unobserved_seconds)
    );
}

/// What a restart or a takeover leaves out of the counts; nothing without one.
fn gap(interrupted: u64, unobserved_seconds: u64) -> String {
    let mut text = String::new();
    if interrupted > 0 {
        let _ = write!(
            text,
            ", {interrupted} maybe counted before a restart or takeover"
        );
    }
    if unobserved_seconds > 0 {
        let time = print::span(unobserved_seconds);
        let _ = write!(text, "; nobody compared for {time}");
    }
    text
}

/// `0.4s earlier`
fn delay(milliseconds: i64) -> String {
    let size = milliseconds.unsigned_abs();
    let size = match size {
        0..100 => format!("{size}ms"),
        // 59.95 s and more round to a minute.
        100..59_950 => {
            let tenths = (size + 50) / 100;
            format!("{}.{}s", tenths / 10, tenths % 10)
        }
        _ => print::span((size + 500) / 1000),
    };
    match milliseconds {
        0 => "at the same time".to_owned(),
        1.. => format!("{size} later"),
        _ => format!("{size} earlier"),
    }
}

fn write_difference(text: &mut String, difference: &Difference) {
    let Difference {
        at,
        result,
        target,
        reason,
        actor,
        saw,
        gap_seconds,
    } = difference;
    let title = format!("{at}  {result}  {target}");
    let _ = writeln!(text, "\n{}", escaped(&title));
    if let Some(reason) = reason {
        let _ = writeln!(text, "  davit: {}", escaped(reason));
    }
    if let Some(actor) = actor {
        let saw = saw.as_deref().unwrap_or("no trace");
        let _ = writeln!(text, "  {}: {}", escaped(actor), escaped(saw));
    }
    if let Some(seconds) = gap_seconds {
        let _ = writeln!(text, "  or up to {seconds}s earlier: the watch had a gap");
    }
}

/// A text of the cluster as a line: it must not control the terminal.
fn escaped(text: &str) -> String {
    line(text, MOST_LOGGED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::disagreements::Target;

    /// A page whose texts end their lines and clear the screen.
    #[test]
    fn no_text_of_the_cluster_controls_the_terminal() {
        let hostile = || "\u{1b}[2J\n312 agree, 0 only-davit".to_owned();
        let difference = Difference {
            at: hostile(),
            result: hostile(),
            target: Target {
                api_version: "v1".into(),
                kind: "Pod".into(),
                namespace: "shop".into(),
                name: hostile(),
                uid: "u".into(),
            },
            reason: Some(hostile()),
            actor: Some(hostile()),
            saw: Some(hostile()),
            gap_seconds: None,
        };
        let counts = ClusterComparisonStatus {
            since: hostile(),
            ..ClusterComparisonStatus::default()
        };
        let page = Page {
            revision: hostile(),
            replaces: Some(hostile()),
            window: hostile(),
            counts: Some(counts),
            pending: 0,
            last: vec![difference],
        };
        let text = in_words("podgc", &page, 10);
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert_eq!(text.matches("\\u{1b}[2J\\n312 agree").count(), 10);
        assert!(text.lines().all(|line| !line.starts_with("312 ")), "{text}");
    }

    #[test]
    fn a_delay_says_who_was_earlier() {
        for (milliseconds, words) in [
            (-398, "0.4s earlier"),
            (1995, "2.0s later"),
            (59_960, "60s later"),
            (0, "at the same time"),
            (79, "79ms later"),
            (20_000, "20.0s later"),
            (-126_000, "2m6s earlier"),
        ] {
            assert_eq!(delay(milliseconds), words);
        }
    }

    #[test]
    fn the_text_has_the_counts_and_the_last_differences() {
        let counts = ClusterComparisonStatus {
            since: "2026-11-20T10:00:00Z".into(),
            agree: 312,
            earlier: 300,
            later: 10,
            interrupted: 3,
            unobserved_seconds: 120,
            only_davit: 1,
            median_milliseconds: Some(-501),
            ..ClusterComparisonStatus::default()
        };
        let difference = Difference {
            at: "2026-11-20T11:00:00Z".into(),
            result: "only-davit".into(),
            target: Target {
                api_version: "v1".into(),
                kind: "Pod".into(),
                namespace: "shop".into(),
                name: "web-1".into(),
                uid: "u".into(),
            },
            reason: Some("orphaned".into()),
            actor: None,
            saw: None,
            gap_seconds: None,
        };
        let page = Page {
            revision: "0123456789".into(),
            replaces: Some("pod-garbage-collector-controller".into()),
            window: "5m".into(),
            counts: Some(counts),
            pending: 2,
            last: vec![difference],
        };
        assert_eq!(
            in_words("podgc", &page, 10),
            "podgc: dry run of 0123456789 against pod-garbage-collector-controller\n\
             312 agree (300 earlier, 10 later, 2 at the same time, 0 untimed, \
             median 0.5s earlier), 1 only-davit, 0 only-cluster, since 2026-11-20T10:00:00Z\n\
             not compared: 0 deleted by others, 0 unknown, \
             3 maybe counted before a restart or takeover; nobody compared for 2m\n\
             2 pending: a target waits 5m for the other side\n\
             \n2026-11-20T11:00:00Z  only-davit  v1 Pod shop/web-1\n  davit: orphaned\n"
        );
    }
}
