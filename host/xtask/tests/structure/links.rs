//! The pages that a text names exist: links of the documentation with their sections, and
//! the pages of `docs/` in sources and manifests.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use crate::words::tracked;
use crate::{read, workspace};

#[test]
fn every_page_and_section_that_a_text_names_exists() {
    let mut broken = Vec::new();
    for file in tracked() {
        let path = workspace().join(&file);
        let extension = file.extension().and_then(|extension| extension.to_str());
        let named = match extension {
            Some("md") => links(&prose(&read(&path))),
            Some("rs" | "wit" | "yaml") => pages(&read(&path)),
            _ => Vec::new(),
        };
        let from = match extension {
            Some("md") => file.parent().unwrap().to_owned(),
            _ => PathBuf::new(),
        };
        for link in named {
            if !exists(&file, &from, &link) {
                broken.push(format!("{}: {link}", file.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn a_section_has_the_name_of_its_heading_and_code_has_no_links() {
    let text = "# A `b` of [C's](d.md)\n```\n# comment\n[x](y.md)\n```\n[e](f.md#g), [h](#i)\n";
    let text = prose(text);
    assert_eq!(sections(&text), ["a-b-of-cs".to_owned()].into());
    assert_eq!(links(&text), ["d.md", "f.md#g", "#i"]);
    assert_eq!(
        pages("// see docs/sim.md#faults.\n/docs/examples"),
        ["docs/sim.md#faults"]
    );
}

/// Whether the page of a link, relative to a directory, exists and has the section.
fn exists(file: &Path, from: &Path, link: &str) -> bool {
    if link.contains("://") {
        return true;
    }
    let (page, section) = link.split_once('#').unwrap_or((link, ""));
    let page = match page {
        "" => file.to_owned(),
        page => plain(&from.join(page)),
    };
    let path = workspace().join(&page);
    path.exists() && (section.is_empty() || sections(&prose(&read(&path))).contains(section))
}

/// A path without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => _ = plain.pop(),
            component => plain.push(component),
        }
    }
    plain
}

/// A page without its blocks of code.
fn prose(page: &str) -> String {
    page.split("\n```").step_by(2).collect()
}

/// The targets of the links of a page.
fn links(prose: &str) -> Vec<String> {
    let after = prose.split("](").skip(1);
    let targets = after.filter_map(|rest| rest.split(')').next());
    targets.map(str::to_owned).collect()
}

/// The pages below `docs/` that a source names.
fn pages(text: &str) -> Vec<String> {
    let is_link = |character: char| character.is_ascii_alphanumeric() || "/-.#".contains(character);
    let words = text.split(|character| !is_link(character));
    let words = words.map(|word| word.trim_end_matches('.'));
    let pages = words.filter(|word| word.starts_with("docs/") && word.contains(".md"));
    pages.map(str::to_owned).collect()
}

/// The names that links to the sections of a page use.
fn sections(prose: &str) -> BTreeSet<String> {
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    let headings = headings.map(|line| line.trim_start_matches('#').trim());
    headings.map(name).collect()
}

/// The name of a section, as GitHub makes it of a heading.
fn name(heading: &str) -> String {
    let mut text = String::new();
    for part in heading.split('[') {
        match part.split_once("](") {
            Some((label, rest)) => {
                text.push_str(label);
                text.push_str(rest.split_once(')').map_or("", |(_, rest)| rest));
            }
            None => text.push_str(part),
        }
    }
    let kept = |character: &char| character.is_alphanumeric() || " -_".contains(*character);
    let text: String = text.to_lowercase().chars().filter(kept).collect();
    text.replace(' ', "-")
}
