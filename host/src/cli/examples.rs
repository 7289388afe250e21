//! The examples of `davit COMMAND --help`.

pub(super) const GET: &str = "\
Examples:
  # All Controllers, in the columns of kubectl get controllers
  davit get

  # The rollout of one Controller, and again after every change
  davit get podgc --watch

  # The resource
  davit get podgc -o yaml";

pub(super) const CHECK: &str = "\
The command changes nothing. It exits 1 if a finding is an error.

Examples:
  # The cluster's Controllers, and the permissions of Davit's account
  davit check

  # A manifest, before kubectl apply
  davit check -f deploy/controllers/podgc/controller.yaml

  # A file of davit run --config, in a pipeline without a cluster
  davit check --config davit.yaml --offline -o json";

pub(super) const PROMOTE: &str = "\
The command waits for the host's answer. It exits 1 if the host refuses, and 3 if
no host answers within --wait; the request stays in force.

Examples:
  # End the current step
  davit promote podgc

  # End the rollout: the candidate becomes the stable revision
  davit promote podgc --full";

pub(super) const DEV: &str = "\
The guest runs as a dry run, on a cluster in memory or with --cluster on that of the
kubeconfig. Each plan is printed once for each build, with its steps. After a build that
fails, the former guest continues to run.

Examples:
  # In the directory of a crate, with objects to decide about
  davit dev --load pods.yaml --config config.yaml

  # On the cluster of the kubeconfig, without changing anything
  davit dev --cluster

  # A controller that waits for what it has written
  davit dev --load crd.yaml site.yaml --enforce

  # A guest in another language
  davit dev --build 'npm run build' --module guest.wasm --watch src";

pub(super) const GRANT: &str = "\
A guest that does not ship with Davit may read and write what spec.permissions grants,
and nothing else. A revision that declares more does not run. Read the rules before you
add them: whoever wrote the module can do all of this.

Examples:
  # The rules, for the file that kubectl apply reads
  davit grant podgc

  # Show the rules, and add them to the Controller
  davit grant podgc --apply";

pub(super) const PAUSE: &str = "\
Examples:
  davit pause podgc";

pub(super) const RESUME: &str = "\
To start the rollout of a rejected revision again, run davit retry.

Examples:
  davit resume podgc";

pub(super) const STOP: &str = "\
The command sets the mode of the Controllers to Disabled, also while no host answers: a
host that starts reads the mode first. It exits 1 if a Controller cannot be changed, and 3
if no host has confirmed a change within --wait. Requests that a host has sent already end.

A tool that applies manifests from a repository restores the former mode: suspend it.

Examples:
  # Everything
  davit stop --all --reason \"wrong nodes are tainted\"

  # One controller
  davit stop podgc";

pub(super) const START: &str = "\
The command restores the mode that each Controller had before davit stop.

Examples:
  davit start --all";

pub(super) const RETRY: &str = "\
The host does not start the rollout of a rejected revision again by itself, as long
as the spec describes that revision. The rollout starts with the first step.

Examples:
  davit retry podgc";

pub(super) const ABORT: &str = "\
The stable revision owns all targets again immediately. The host starts the rollout of
the same revision again only after davit retry, or after the spec described another
revision in between.

Examples:
  davit abort podgc

  # Do not wait for the host's answer
  davit abort podgc --wait=0";

pub(super) const RESET: &str = "\
The guardrails count from zero again, and the timers in the queues start again. The
request does not affect later trips.

Examples:
  davit reset podgc";

pub(super) const ROLLBACK: &str = "\
Examples:
  # To the stable revision, or to the revision that was stable before it
  davit rollback podgc

  # To number 3 of davit history, without the steps of the rollout
  davit rollback podgc --to 3 --now";

pub(super) const HISTORY: &str = "\
Examples:
  davit history podgc

  # The spec with number 3
  davit history podgc --revision 3

  # What changed from number 3 to number 5
  davit history podgc --revision 3 --diff 5";

pub(super) const DIFF: &str = "\
Examples:
  davit diff podgc

  # A host outside the cluster
  davit diff podgc --server http://127.0.0.1:8080

  # The dry run of a Controller with compareWith: Cluster, and what the cluster deleted
  davit diff podgc --against cluster --last 20";

pub(super) const LOG: &str = "\
Examples:
  kubectl --namespace davit-system create token davit-operator > token
  kubectl --namespace davit-system port-forward pod/NAME 8080 &

  # The present filter
  davit log --server http://127.0.0.1:8080 --token-file token

  # What the requests to the API server do
  davit log info,davit_cluster=debug --server http://127.0.0.1:8080 --token-file token";

pub(super) const RECORD: &str = "\
The kubeconfig's user needs list and watch on the resources of the profile, and nothing else.

Examples:
  davit record --profile profile.yaml --journal journal

  # profile.yaml
  resources:
    - apiVersion: v1
      resource: pods
      fields: [spec.nodeName, spec.priority, status.phase, metadata.labels]

  # What a policy would have done meanwhile
  davit backtest journal --controller podgc --spec controller.yaml";

pub(super) const JOURNAL: &str = "\
Examples:
  davit journal info /var/lib/davit/journal

  # The gaps, for a program
  davit journal info /var/lib/davit/journal --output json | jq '.gaps[]?'

  # What happened to an object in the last two hours
  davit journal cat /var/lib/davit/journal --from 2h --uid UID

  # The deletions, for a program
  davit journal cat /var/lib/davit/journal --output json | jq 'select(.kind == \"answer\")'

  # Is everything readable?
  davit journal verify /var/lib/davit/journal

  # Where it is damaged, for a program
  davit journal verify /var/lib/davit/journal --output json | jq 'select(.kind == \"damage\")'

  # The segments of one hour, to send them to somebody
  davit journal cut /var/lib/davit/journal --from 3h --to 2h --output hour

  # The same, and what was copied as JSON
  davit journal cut /var/lib/davit/journal --from 3h --to 2h --output hour --format json

  # The decisions of the last day, for DuckDB and the like
  davit journal export /var/lib/davit/journal --decisions --from 24h --output decisions.parquet";

pub(super) const REPLAY: &str = "\
The command exits 1 if a decision differs, and 2 if no call was made again: then nothing is
proved, and the error says why.

Examples:
  davit replay /var/lib/davit/journal

  # The decisions of one controller in the last hour
  davit replay /var/lib/davit/journal --from 1h --controller podgc

  # A module that the module cache does not have any more
  davit replay /var/lib/davit/journal --module podgc.wasm";

pub(super) const BACKTEST: &str = "\
No cluster is needed: the command reads the journal, and changes nothing. It exits 1 if a
threshold of --fail-if is exceeded, and 2 if the backtest cannot be made, for example because
the guest reads fields that are not recorded, if the journal does not say whether a threshold
is exceeded, or if a part of it cannot be read.

Examples:
  # The recorded revision with another configuration
  davit backtest /var/lib/davit/journal --controller podgc --config config.yaml

  # A manifest in a pipeline: it must delete nothing else, and never 100 objects in a minute,
  # on a week of which the journal has all but an hour
  davit backtest journal --controller podgc --spec controller.yaml --from 168h \\
    --fail-if 'only-candidate>0' --fail-if 'deletes-per-minute>=100' \\
    --fail-if 'missing-seconds>3600'

  # Another module over the last day, for a program
  davit backtest journal --controller podgc --module podgc.wasm --from 24h --output json

  # Instead of the recorded controller, the deletions of the one that the guest replaces
  davit backtest journal --controller podgc --spec controller.yaml --against cluster

  # A page with charts, for a browser
  davit backtest journal --controller podgc --config config.yaml --output html > report.html";

pub(super) const WHY: &str = "\
Examples:
  davit why pod default/web-0 --journal /var/lib/davit/journal

  # One of several objects that had this name
  davit why pod default/web-0 --uid UID --journal /var/lib/davit/journal

  # The last two hours, for a program
  davit why node worker-3 --journal /var/lib/davit/journal --from 2h --output json";

pub(super) const RESTORE: &str = "\
Examples:
  davit restore pod default/web-0 --journal /var/lib/davit/journal

  # Creates it
  davit restore pod default/web-0 --journal /var/lib/davit/journal --apply

  # The copy of two hours ago, for a program
  davit restore pod default/web-0 --journal /var/lib/davit/journal --at 2h --output json";

pub(super) const INSPECT: &str = "\
Examples:
  davit inspect podgc

  # A guest of a file
  davit inspect target/wasm32-wasip2/release/keep_failed.wasm

  # The fields that the rules of a policy read, and its permissions
  davit inspect --config failed-builds.yaml

  # The ServiceAccount and the roles that its controller needs
  davit inspect podgc --rbac --service-account davit-podgc | kubectl apply -f -

  # Does it answer each of its recorded calls the same, five times?
  davit inspect podgc --determinism 5 --journal /var/lib/davit/journal";

pub(super) const COMPLETION: &str = "\
Examples:
  source <(davit completion bash)
  davit completion zsh > \"${fpath[1]}/_davit\"
  davit completion fish > ~/.config/fish/completions/davit.fish";

pub(super) const POLICY_TEST: &str = "\
The guest's own code judges the objects, so a decision here is the one that it would make in
the cluster. Relations hold between the given objects: a rule that reads the node of a pod
needs that node among them. The command exits 1 after a mistake in a file, and 4 if
--fail-if is exceeded.

Examples:
  # What the rules of a Controller would do with the pods of a cluster, now
  davit policy test failed-builds.yaml --cluster

  # With objects of files, in a pipeline
  davit policy test failed-builds.yaml --objects tests/objects --now 2026-11-26T12:00:00Z

  # Fail if a rule deletes what it should leave alone
  davit policy test failed-builds.yaml --objects tests/kept --fail-if 'acts>0'";

pub(super) const POLICY_EXAMPLES: &str = "\
Each is a Controller in DryRun.

Examples:
  davit policy examples
  davit policy examples ended-pods > ended-pods.yaml";

pub(super) const POLICY_CONVERT: &str = "\
The Controllers are on standard output, in DryRun. What has no translation is named on
standard error with its place, and left out; then the command exits 4. Nothing is
approximated. Read each rule, test it with davit policy test, and stop the other tool before
you change the mode to Enforce.

Examples:
  davit policy convert cleanup-policies.yaml > controllers.yaml
  davit policy test controllers.yaml --cluster";

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::Arguments;

    /// The commands of davit among examples, without what follows a pipe.
    fn commands(examples: &str) -> Vec<String> {
        let whole = examples.replace("\\\n", "");
        let lines = whole.lines().map(str::trim);
        let lines = lines.filter(|line| line.starts_with("davit "));
        let ends = [" | ", " > "];
        let command = |line: &str| {
            let end = ends.iter().filter_map(|end| line.find(end)).min();
            line[..end.unwrap_or(line.len())].to_owned()
        };
        lines.map(command).collect()
    }

    /// The words of a command, in which a quoted part is one.
    fn words(command: &str) -> Vec<String> {
        let quotes = |character| ['\'', '"'].contains(&character);
        let parts = command.split(quotes).enumerate();
        let words = parts.flat_map(|(number, part)| match number % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        });
        words.collect()
    }

    #[test]
    fn the_examples_about_journals_and_differences_are_commands() {
        for examples in [DIFF, JOURNAL, BACKTEST, REPLAY, WHY, RESTORE] {
            for command in commands(examples) {
                let parsed = Arguments::try_parse_from(words(&command));
                assert!(parsed.is_ok(), "{command}: {parsed:?}");
            }
        }
    }

    #[test]
    fn each_comparison_and_each_format_for_programs_has_an_example() {
        for (examples, command, option) in [
            (DIFF, "davit diff ", "--against cluster"),
            (BACKTEST, "davit backtest ", "--against cluster"),
            (BACKTEST, "davit backtest ", "--output html"),
            (JOURNAL, "davit journal info ", "--output json"),
            (JOURNAL, "davit journal verify ", "--output json"),
            (JOURNAL, "davit journal cut ", "--format json"),
        ] {
            let mut commands = commands(examples).into_iter();
            let is_shown = commands.any(|one| one.starts_with(command) && one.contains(option));
            assert!(is_shown, "{command} {option}");
        }
    }
}
