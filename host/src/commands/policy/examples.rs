//! `davit policy examples`: the policies that come with Davit.

use std::fmt::Write as _;

use anyhow::{Result, bail};

use crate::cli::PolicyExamplesArguments;

macro_rules! examples {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../../../deploy/policies/", $name, ".yaml")))),*]
    };
}

/// Names and files, in the order of the names.
const EXAMPLES: [(&str, &str); 12] = examples![
    "cronjob-pods",
    "drain-with-budgets",
    "ended-pods",
    "ended-pods-quota",
    "failed-pods-of-owner",
    "fenced-node-pods",
    "finished-jobs",
    "marks",
    "preview-namespaces",
    "released-volumes",
    "unreachable-node-pods",
    "unused-configmaps",
];

pub(super) fn examples(arguments: &PolicyExamplesArguments) -> Result<()> {
    print!("{}", text(arguments.name.as_deref())?);
    Ok(())
}

/// The file of that name, or the names with what the policies do.
fn text(name: Option<&str>) -> Result<String> {
    let Some(name) = name else {
        return Ok(list());
    };
    let found = EXAMPLES.iter().find(|(known, _)| *known == name);
    let Some((_, file)) = found else {
        let names = EXAMPLES.map(|(known, _)| known);
        let nearest = davit_kinds::nearest(name, names.into_iter());
        let hint = nearest.map(|it| format!("; did you mean \"{it}\"?"));
        bail!(
            "there is no example \"{name}\"{}",
            hint.unwrap_or_else(|| format!(": there are {}", names.join(", ")))
        );
    };
    Ok((*file).to_owned())
}

fn list() -> String {
    let longest = EXAMPLES.iter().map(|(name, _)| name.len()).max();
    let width = longest.unwrap_or_default();
    let mut text = String::new();
    for (name, file) in EXAMPLES {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name:width$}  {}", summary(file));
    }
    text
}

/// The first sentence of the comment at the start of a file.
fn summary(file: &str) -> String {
    let comment = file.lines().map_while(|line| line.strip_prefix("# "));
    let comment: Vec<&str> = comment.collect();
    let comment = comment.join(" ");
    let sentence = comment.split_once(". ").map(|(first, _)| first);
    sentence
        .unwrap_or(&comment)
        .trim_end_matches('.')
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_policy_is_an_example_with_a_summary() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/policies");
        let files = std::fs::read_dir(directory).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        let known = EXAMPLES.map(|(name, _)| format!("{name}.yaml"));
        let mut known = known.to_vec();
        known.sort_unstable();
        assert_eq!(known, names);
        for (name, file) in EXAMPLES {
            assert!(summary(file).len() > 20, "{name}");
            assert_eq!(text(Some(name)).unwrap(), file);
        }
        let list = text(None).unwrap();
        assert!(
            list.starts_with("cronjob-pods           Succeeded pods"),
            "{list}"
        );
        assert_eq!(list.lines().count(), EXAMPLES.len());
    }

    #[test]
    fn an_unknown_example_is_refused_with_the_one_that_was_meant() {
        let error = |name| text(Some(name)).unwrap_err().to_string();
        assert_eq!(
            error("finished-job"),
            "there is no example \"finished-job\"; did you mean \"finished-jobs\"?"
        );
        assert!(error("x").starts_with("there is no example \"x\": there are cronjob-pods, "));
    }
}
