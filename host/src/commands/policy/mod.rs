//! `davit policy`: tests rules on objects, converts policies of other tools to rules, and prints
//! those that come with Davit. The guest's own code judges, without a component.

mod cache;
mod cluster;
pub(crate) mod controllers;
mod convert;
mod examples;
mod files;
mod objects;
mod report;
mod source;
mod test;
#[cfg(test)]
mod tests;
mod text;

use anyhow::Result;

use crate::cli::{PolicyArguments, PolicyCommand};

/// What a command has found is less than what was asked for: rules act on more objects than
/// `--fail-if` allows, or a part of a policy has no translation. The program exits with another
/// code than after a mistake in a file.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Shortfall(String);

/// `davit policy`
pub async fn policy(arguments: PolicyArguments) -> Result<()> {
    match arguments.command {
        PolicyCommand::Test(arguments) => test::test(*arguments).await,
        PolicyCommand::Convert(arguments) => convert::convert(&arguments),
        PolicyCommand::Examples(arguments) => examples::examples(&arguments),
    }
}
