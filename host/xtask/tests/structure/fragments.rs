//! What a guide shows of a guest is what the guest has.

use crate::{read, workspace};

/// The sections of `docs/writing-a-guest.md` that show code, and the sources of the code.
const SHOWN: [(&str, &[&str]); 3] = [
    (
        "Ten minutes",
        &[
            "guests/template/src/lib.rs",
            "guests/template/tests/policy.rs",
        ],
    ),
    ("Objects that change", &["guests/template-event/src/lib.rs"]),
    (
        "A custom resource that owns objects",
        &["guests/examples/website/src/lib.rs"],
    ),
];
/// A line of a fragment that stands for lines which are left out.
const LEFT_OUT: &str = "…";

/// The lines of each block of Rust in a page, without indentation.
fn fragments(page: &str) -> Vec<Vec<&str>> {
    let blocks = page.split("```rust\n").skip(1);
    let blocks = blocks.filter_map(|rest| rest.split_once("```"));
    blocks.map(|(block, _)| lines(block)).collect()
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).collect()
}

/// Whether a source has the lines of a fragment in this order, those between two gaps one after
/// the other. A chain of calls ends where the source ends it.
fn has(source: &[&str], fragment: &[&str]) -> bool {
    let mut rest = source;
    let finds = fragment.split(|line| *line == LEFT_OUT).all(|part| {
        let found = match part.len() {
            0 => Some(0),
            length => rest.windows(length).position(|lines| lines == part),
        };
        rest = found.map_or(&[], |place| &rest[place + part.len()..]);
        found.is_some()
    });
    let is_cut = rest.first().is_some_and(|next| next.starts_with('.'));
    let is_open = fragment.last() == Some(&LEFT_OUT);
    finds && (is_open || !is_cut) && fragment.iter().any(|line| line.len() > 3)
}

#[test]
fn the_guide_shows_what_the_guests_have() {
    let page = read(&workspace().join("docs/writing-a-guest.md"));
    let mut others = Vec::new();
    for section in page.split("\n## ") {
        let fragments = fragments(section);
        assert_eq!(fragments.len(), section.matches("```rust").count());
        let known = SHOWN.iter().find(|(title, _)| section.starts_with(title));
        let sources = known.map_or(&[][..], |(_, sources)| sources).iter();
        let sources: Vec<String> = sources.map(|path| read(&workspace().join(path))).collect();
        assert!(known.is_none() || !fragments.is_empty(), "{section}");
        for fragment in fragments {
            if !sources.iter().any(|source| has(&lines(source), &fragment)) {
                others.push(fragment.join("\n"));
            }
        }
    }
    assert!(others.is_empty(), "{}", others.join("\n\n"));
}

#[test]
fn what_is_left_out_has_a_mark_and_the_order_counts() {
    let source = ["alpha", "beta", ".gamma", "delta", "}"];
    for shown in [
        &["alpha"][..],
        &["beta", ".gamma"],
        &["alpha", "…", ".gamma", "delta"],
        &["…", "delta", "…"],
        &["beta", "…"],
    ] {
        assert!(has(&source, shown), "{shown:?}");
    }
    for other in [
        &["alpha", ".gamma"][..],
        &["delta", "…", "alpha"],
        &["delta", "…", "delta"],
        &["epsilon"],
        &["beta"],
        &["}"],
        &[],
    ] {
        assert!(!has(&source, other), "{other:?}");
    }
}
