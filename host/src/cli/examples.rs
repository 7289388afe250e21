//! What `davit COMMAND --help` shows as examples.

pub(super) const GET: &str = "\
Examples:
  # All Controllers, in the columns of kubectl get controllers
  davit get

  # The rollout of one of them, and again whenever it changes
  davit get podgc --watch

  # The resource itself
  davit get podgc -o yaml";

pub(super) const CHECK: &str = "\
The command changes nothing. It exits 1 if a finding is an error.

Examples:
  # The cluster's Controllers, and what Davit's account may do
  davit check

  # A manifest before it is applied
  davit check -f deploy/controllers/podgc/controller.yaml

  # The file of davit run --config, in a pipeline without a cluster
  davit check --config davit.yaml --offline -o json";

pub(super) const PROMOTE: &str = "\
The command waits for the host's answer. It exits 1 if the host refuses, and 3 if
no host has answered within --wait; the request stays in force.

Examples:
  # Let the candidate leave its step
  davit promote podgc

  # Let it take over at once
  davit promote podgc --full";

pub(super) const PAUSE: &str = "\
Examples:
  davit pause podgc";

pub(super) const RESUME: &str = "\
To try a rejected revision again, run davit retry.

Examples:
  davit resume podgc";

pub(super) const RETRY: &str = "\
A revision that was rolled back is not tried again by itself, as long as the spec
describes it. It begins with the first step.

Examples:
  davit retry podgc";

pub(super) const ABORT: &str = "\
The stable revision gets the candidate's share at once. The candidate is not tried
again until davit retry, or until the spec describes another revision in between.

Examples:
  davit abort podgc

  # Do not wait for the host
  davit abort podgc --wait=0";

pub(super) const RESET: &str = "\
The guardrails count from zero again. A guardrail that trips later is not affected.

Examples:
  davit reset podgc";

pub(super) const ROLLBACK: &str = "\
Examples:
  # To the stable revision, or else to the one that was stable before it
  davit rollback podgc

  # To number 3 of davit history, without the steps of the rollout
  davit rollback podgc --to 3 --now";

pub(super) const HISTORY: &str = "\
Examples:
  davit history podgc

  # The spec of number 3
  davit history podgc --revision 3

  # What changed from number 3 to number 5
  davit history podgc --revision 3 --diff 5";

pub(super) const DIFF: &str = "\
Examples:
  davit diff podgc

  # A host outside of the cluster
  davit diff podgc --server http://127.0.0.1:8080";

pub(super) const INSPECT: &str = "\
Examples:
  davit inspect podgc.wasm

  # The roles that its controller needs
  davit inspect podgc.wasm --rbac | kubectl apply -f -";

pub(super) const COMPLETION: &str = "\
Examples:
  source <(davit completion bash)
  davit completion zsh > \"${fpath[1]}/_davit\"
  davit completion fish > ~/.config/fish/completions/davit.fish";
