//! The arguments of `davit policy`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;

use super::{ClusterArguments, examples};

/// `davit policy`
#[derive(Debug, Args)]
pub struct PolicyArguments {
    /// The command.
    #[command(subcommand)]
    pub command: PolicyCommand,
}

/// The commands of `davit policy`.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Shows what the rules of a file would do with objects, and why or why not.
    #[command(after_long_help = examples::POLICY_TEST)]
    Test(Box<PolicyTestArguments>),
    /// Converts policies of Kyverno, rules of kube-janitor and times to live of objects to
    /// Controllers in dry run.
    #[command(after_long_help = examples::POLICY_CONVERT)]
    Convert(PolicyConvertArguments),
    /// Prints a policy that comes with Davit, or lists them.
    #[command(after_long_help = examples::POLICY_EXAMPLES)]
    Examples(PolicyExamplesArguments),
}

/// `davit policy test`
#[derive(Debug, Args)]
pub struct PolicyTestArguments {
    /// Controllers of the guest policy (YAML), the spec or the configuration of one, or a file of
    /// davit run --config.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Manifests of objects (YAML or JSON): a directory, or one file; may be repeated.
    #[arg(
        long,
        value_name = "DIR",
        required_unless_present = "cluster",
        conflicts_with = "cluster"
    )]
    pub objects: Vec<PathBuf>,
    /// Lists the objects that the rules need in the cluster of the kubeconfig; changes nothing.
    #[arg(long)]
    pub cluster: bool,
    /// The time at which the rules are judged, such as 2026-11-26T12:00:00Z [default: now]
    #[arg(long, value_name = "TIME")]
    pub now: Option<Timestamp>,
    /// Shows only this rule.
    #[arg(long, value_name = "NAME")]
    pub rule: Option<String>,
    /// Shows also objects that no rule matches. By default, they are counted.
    #[arg(long)]
    pub all: bool,
    /// Exit 4 if the rules act on more objects than this, as in acts>0. Operators: > and >=.
    #[arg(long, value_name = "EXPR")]
    pub fail_if: Option<ActsThreshold>,
    /// Output format.
    #[arg(long, short, value_enum, default_value = "text", value_name = "FORMAT")]
    pub output: PolicyFormat,
    #[command(flatten)]
    pub(crate) kubeconfig: ClusterArguments,
}

/// `davit policy convert`
#[derive(Debug, Args)]
pub struct PolicyConvertArguments {
    /// Policies of Kyverno, rules of kube-janitor, or objects with the label of Kyverno or the
    /// annotations of kube-janitor, k8s-ttl-controller or k8s-cleaner (YAML).
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
}

/// `davit policy examples`
#[derive(Debug, Args)]
pub struct PolicyExamplesArguments {
    /// The policy [default: a list of all].
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
}

/// An output format of `davit policy test`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PolicyFormat {
    /// Plain text.
    Text,
    /// JSON.
    Json,
}

/// A bound on the number of objects that rules act on: `acts>0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActsThreshold {
    /// The least number that exceeds it.
    least: usize,
}

impl ActsThreshold {
    /// Whether so many acts exceed it.
    #[must_use]
    pub const fn is_exceeded(self, acts: usize) -> bool {
        acts >= self.least
    }
}

impl FromStr for ActsThreshold {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || format!("\"{text}\" is no threshold: write one such as acts>0");
        let rest = text.trim().strip_prefix("acts").ok_or_else(refused)?.trim();
        let (number, is_inclusive) = match rest.strip_prefix(">=") {
            Some(number) => (number, true),
            None => (rest.strip_prefix('>').ok_or_else(refused)?, false),
        };
        let number: usize = number.trim().parse().map_err(|_| refused())?;
        let least = if is_inclusive {
            number
        } else {
            number.checked_add(1).ok_or_else(refused)?
        };
        Ok(Self { least })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_exceeded_above_its_number() {
        let above = |text: &str, acts| text.parse::<ActsThreshold>().unwrap().is_exceeded(acts);
        assert!(!above("acts>0", 0));
        assert!(above("acts > 0", 1));
        assert!(above("acts>=2", 2));
        assert!(!above("acts>2", 2));
        for text in ["acts", "acts<1", "deletes>0", "acts>-1", "acts>x"] {
            assert!(text.parse::<ActsThreshold>().is_err(), "{text}");
        }
    }
}
