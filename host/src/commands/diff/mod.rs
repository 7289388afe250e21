//! `davit diff`: where candidate and stable revision disagree, or the dry run and the cluster.

pub mod cluster;

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use davit_core::untrusted::{MOST_LOGGED, line};
use hyper::Request;
use kube::Client;
use serde::de::DeserializeOwned;

use super::{check_name, server};
use crate::http::address::ServerAddress;
use crate::http::disagreements::{Disagreement, Page, Side};

/// How the running host is reached.
pub enum Server<'a> {
    /// Directly, at this address: `http://127.0.0.1:8080`.
    At(&'a Client, &'a ServerAddress),
    /// Through the API server and the Service `davit` of this namespace.
    Service(&'a Client, &'a str),
}

/// Requests the disagreements of a controller from the running host.
pub async fn fetch(server: Server<'_>, name: &str) -> Result<Page> {
    read(server, name, "disagreements").await
}

/// Requests what the host serves about a controller under the last part of a path.
async fn read<P: DeserializeOwned>(server: Server<'_>, name: &str, what: &str) -> Result<P> {
    check_name(name)?;
    let path = format!("/controllers/{name}/{what}");
    match server {
        Server::At(client, address) => {
            let text = server::text(client, Request::get(path).body(Vec::new())?).await;
            let page = text.and_then(|text| Ok(serde_json::from_str(&text)?));
            page.with_context(|| format!("the host at {address}"))
        }
        Server::Service(client, namespace) => {
            let page = server::through_service(client, namespace, &path).await;
            let page = page.and_then(|text| Ok(serde_json::from_str(&text)?));
            page.with_context(|| {
                format!(
                    "the Service davit of the namespace {namespace}, through the API server \
                     (--namespace names another namespace, --server the host itself)"
                )
            })
        }
    }
}

/// The counts, and that many of the last disagreements.
#[must_use]
pub fn in_words(name: &str, page: &Page, most: usize) -> String {
    let Page {
        stable,
        candidate,
        step,
        counted_since,
        counts,
        pending,
        ..
    } = page;
    let mut text = format!("{name}: stable {stable}, candidate {candidate}\n");
    // Writing to a String does not fail, here and below.
    if let Some(step) = step {
        let _ = writeln!(text, "{step}");
    }
    let _ = writeln!(
        text,
        "{} agree, {} disagree ({} only-stable, {} only-candidate, {} different), {} unknown, \
         {pending} pending, since {counted_since}",
        counts.agree,
        counts.disagree,
        counts.only_stable,
        counts.only_candidate,
        counts.different,
        counts.unknown
    );
    for disagreement in page.disagreements.iter().take(most) {
        write_disagreement(&mut text, disagreement);
    }
    if page.disagreements.len() > most {
        let more = page.disagreements.len() - most;
        let _ = writeln!(text, "\nand {more} more: --last NUMBER shows more");
    }
    text
}

fn write_disagreement(text: &mut String, disagreement: &Disagreement) {
    let Disagreement {
        at,
        result,
        target,
        stable,
        candidate,
    } = disagreement;
    let title = format!("{at}  {result}  {target}");
    let _ = writeln!(text, "\n{}", line(&title, MOST_LOGGED));
    write_side(text, "stable", stable.as_ref());
    write_side(text, "candidate", candidate.as_ref());
}

fn write_side(text: &mut String, role: &str, side: Option<&Side>) {
    let Some(side) = side else {
        let _ = writeln!(text, "  {role}: nothing");
        return;
    };
    let Side {
        reason,
        message,
        queue,
        key,
        ..
    } = side;
    // The host has shortened the guest's reasons and messages, but neither keys nor patches.
    let [reason, message, queue, key] =
        [reason, message, queue, key].map(|text| line(text, 2 * MOST_LOGGED));
    let _ = writeln!(
        text,
        "  {role}: {reason}: {message} (queue {queue}, key {key})"
    );
    for (number, step) in side.steps.iter().enumerate() {
        let step = line(&step.to_string(), usize::MAX);
        let _ = writeln!(text, "    {}. {step}", number + 1);
    }
}
