//! Every overlay of `deploy/`, as kubectl renders it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use clap::Parser as _;
use davit::cli::{Arguments, Command as DavitCommand, RunArguments};
use davit::config::JournalConfig;
use davit_core::api::ControllerSpec;
use davit_core::gate::Mode;
use serde_json::{Value, json};

use crate::deploy::deploy;

/// The overlays with two replicas.
const REPLICATED: [&str; 5] = [
    "base",
    "overlays/dry-run",
    "overlays/enforce",
    "overlays/cache",
    "overlays/journal",
];
/// The overlays with one.
const SINGLE: [&str; 2] = ["overlays/single", "overlays/file"];
/// Those whose cache is on a claim.
const CACHED: [&str; 2] = ["overlays/cache", "overlays/file"];
/// What a pod may mount under the pod security level `restricted`.
const VOLUMES: [&str; 4] = ["configMap", "emptyDir", "persistentVolumeClaim", "secret"];

/// The objects of an overlay.
struct Rendered(Vec<Value>);

impl Rendered {
    /// None without kubectl.
    fn of(directory: &Path) -> Option<Self> {
        let mut kubectl = Command::new("kubectl");
        let Ok(output) = kubectl.arg("kustomize").arg(directory).output() else {
            println!("kubectl is not installed: the overlays are not rendered");
            return None;
        };
        let place = directory.display();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{place}: {error}");
        // kubectl warns about deprecated fields.
        assert!(error.is_empty(), "{place}: {error}");
        let text = String::from_utf8(output.stdout).unwrap();
        Some(Self(serde_saphyr::from_multiple(&text).unwrap()))
    }

    fn overlay(path: &str) -> Option<Self> {
        Self::of(&deploy(path))
    }

    fn kind(&self, kind: &'static str) -> impl Iterator<Item = &Value> {
        self.0.iter().filter(move |object| object["kind"] == kind)
    }

    fn one(&self, kind: &'static str) -> &Value {
        let all: Vec<_> = self.kind(kind).collect();
        assert_eq!(all.len(), 1, "{kind}: {all:?}");
        all[0]
    }

    fn pod(&self) -> &Value {
        &self.one("Deployment")["spec"]["template"]["spec"]
    }

    /// The arguments of the program, as it reads them.
    fn arguments(&self) -> RunArguments {
        self.arguments_with(&[])
    }

    /// The same with more behind them, as the chart adds them.
    fn arguments_with(&self, more: &[&'static str]) -> RunArguments {
        let container = &self.pod()["containers"][0];
        let arguments = container["args"].as_array().unwrap().iter();
        let arguments = arguments.map(|one| one.as_str().unwrap());
        let more = more.iter().copied();
        let all = ["davit"].into_iter().chain(arguments).chain(more);
        match Arguments::try_parse_from(all).unwrap().command {
            DavitCommand::Run(run) => *run,
            _ => panic!("the container runs another command"),
        }
    }
}

/// The directories that have a kustomization.
fn overlays() -> BTreeSet<String> {
    let overlays = std::fs::read_dir(deploy("overlays")).unwrap();
    let names = overlays.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut found: BTreeSet<String> = names.map(|name| format!("overlays/{name}")).collect();
    found.insert("base".to_owned());
    found
}

#[test]
fn every_overlay_is_checked() {
    let checked = REPLICATED.into_iter().chain(SINGLE);
    assert_eq!(
        checked.map(str::to_owned).collect::<BTreeSet<_>>(),
        overlays()
    );
}

#[test]
fn two_replicas_elect_a_leader_and_an_update_never_stops_the_last_ready_one() {
    for path in REPLICATED {
        let Some(rendered) = Rendered::overlay(path) else {
            return;
        };
        let deployment = &rendered.one("Deployment")["spec"];
        assert_eq!(deployment["replicas"], 2, "{path}");
        let update = json!({
            "type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
        });
        assert_eq!(deployment["strategy"], update, "{path}");
        let leases = rendered.arguments().leases;
        assert!(!leases.single, "{path}");
        // The other replicas read all Leases once in each period.
        let seen = deployment["minReadySeconds"].as_u64().unwrap();
        assert!(seen > leases.leader_elect_retry_period.as_secs(), "{path}");

        let labels = &deployment["selector"]["matchLabels"];
        assert_eq!(&deployment["template"]["metadata"]["labels"], labels);
        let pod = rendered.pod();
        let apart = &pod["affinity"]["podAntiAffinity"];
        // Required, a third replica would find no node in a cluster of two.
        assert!(apart["requiredDuringSchedulingIgnoredDuringExecution"].is_null());
        let apart = &apart["preferredDuringSchedulingIgnoredDuringExecution"][0]["podAffinityTerm"];
        assert_eq!(apart["topologyKey"], "kubernetes.io/hostname");
        assert_eq!(&apart["labelSelector"]["matchLabels"], labels);
        let spread = &pod["topologySpreadConstraints"][0];
        assert_eq!(spread["topologyKey"], "topology.kubernetes.io/zone");
        assert_eq!(spread["whenUnsatisfiable"], "ScheduleAnyway");
        assert_eq!(&spread["labelSelector"]["matchLabels"], labels);

        let budget = &rendered.one("PodDisruptionBudget")["spec"];
        assert_eq!(&budget["selector"]["matchLabels"], labels, "{path}");
        // Not `minAvailable`: a Deployment of one replica could not be drained.
        assert_eq!(budget["maxUnavailable"], 1, "{path}");
        assert!(budget["minAvailable"].is_null(), "{path}");
    }
}

#[test]
fn one_replica_has_no_leases_and_stops_before_the_next_one_starts() {
    for path in SINGLE {
        let Some(rendered) = Rendered::overlay(path) else {
            return;
        };
        let deployment = &rendered.one("Deployment")["spec"];
        assert_eq!(deployment["replicas"], 1, "{path}");
        assert_eq!(deployment["strategy"], json!({"type": "Recreate"}));
        assert!(rendered.arguments().leases.single, "{path}");
        assert_eq!(rendered.kind("PodDisruptionBudget").count(), 0, "{path}");
    }
}

#[test]
fn the_pods_keep_the_rules_of_the_namespace_and_stop_in_time() {
    for path in overlays() {
        let Some(rendered) = Rendered::overlay(&path) else {
            return;
        };
        let enforced = "pod-security.kubernetes.io/enforce";
        let namespace = &rendered.one("Namespace")["metadata"];
        assert_eq!(namespace["labels"][enforced], "restricted");
        let pod = rendered.pod();
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(
            pod["securityContext"]["seccompProfile"]["type"],
            "RuntimeDefault"
        );
        for shared in ["hostNetwork", "hostPID", "hostIPC"] {
            assert!(pod[shared].is_null(), "{path}: {shared}");
        }
        for volume in pod["volumes"].as_array().unwrap() {
            let mut sources = volume.as_object().unwrap().keys();
            let is_allowed = |source: &String| source == "name" || VOLUMES.contains(&&**source);
            assert!(sources.all(is_allowed), "{path}: {volume}");
        }
        let container = &pod["containers"][0];
        let context = &container["securityContext"];
        assert_eq!(context["allowPrivilegeEscalation"], false);
        assert_eq!(context["capabilities"]["drop"], json!(["ALL"]));
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            let get = &container[probe]["httpGet"];
            let file = if probe == "readinessProbe" {
                "/readyz"
            } else {
                "/livez"
            };
            assert_eq!(
                *get,
                json!({"path": file, "port": "probes"}),
                "{path}: {probe}"
            );
        }
        // A request, and the last events: `davit_cluster::api` and `davit::host`.
        let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
        assert!(grace >= 30 + 5, "{path}: {grace}");
        assert_eq!(pod["priorityClassName"], "system-cluster-critical");
    }
}

#[test]
fn every_controller_of_an_overlay_is_valid_and_has_its_account() {
    for path in overlays() {
        let Some(rendered) = Rendered::overlay(&path) else {
            return;
        };
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
        let accounts: BTreeSet<String> = rendered.kind("ServiceAccount").map(name).collect();
        let mut modes = BTreeMap::new();
        for controller in rendered.kind("Controller") {
            let spec = ControllerSpec::read(&controller["spec"]).unwrap();
            let account = spec.service_account_name.unwrap();
            assert!(accounts.contains(&account), "{path}: {account}");
            modes.insert(name(controller), spec.mode);
            let is_limited = spec.guardrails.deletes_per_minute.is_some();
            assert_eq!(is_limited, spec.mode == Mode::Enforce, "{path}");
        }
        let expected: &[&str] = match path.as_str() {
            "overlays/dry-run" => &[
                "garbage-collector",
                "node-eviction",
                "podgc",
                "storage-version-gc",
                "taint-eviction",
            ],
            "overlays/enforce" => &[
                "garbage-collector",
                "podgc",
                "storage-version-gc",
                "taint-eviction",
            ],
            _ => &[],
        };
        let mode = if path == "overlays/enforce" {
            Mode::Enforce
        } else {
            Mode::DryRun
        };
        let expected = expected.iter().map(|name| ((*name).to_owned(), mode));
        assert_eq!(modes, expected.collect(), "{path}");
        for binding in rendered
            .kind("ClusterRoleBinding")
            .chain(rendered.kind("RoleBinding"))
        {
            for subject in binding["subjects"].as_array().unwrap() {
                let account = subject["name"].as_str().unwrap();
                assert!(accounts.contains(account), "{path}: {binding}");
                assert_eq!(subject["namespace"], "davit-system", "{path}");
            }
        }
    }
}

#[test]
fn an_overlay_does_not_move_the_roles_of_other_namespaces() {
    let Some(rendered) = Rendered::overlay("overlays/dry-run") else {
        return;
    };
    let namespaces = rendered.kind("Role").map(|role| {
        let namespace = role["metadata"]["namespace"].as_str();
        namespace.unwrap().to_owned()
    });
    let namespaces: BTreeSet<String> = namespaces.collect();
    let expected = ["davit-system", "kube-node-lease", "kube-system"];
    assert_eq!(namespaces, expected.map(str::to_owned).into());
}

/// The cache has the records of the rollouts of a file: a new pod would run a candidate at once.
#[test]
fn the_cache_is_on_a_volume_for_all_replicas_or_for_the_only_one() {
    for (overlay, mode) in [
        ("overlays/cache", "ReadWriteMany"),
        ("overlays/file", "ReadWriteOnce"),
    ] {
        let Some(rendered) = Rendered::overlay(overlay) else {
            return;
        };
        let claim = rendered.one("PersistentVolumeClaim");
        assert_eq!(claim["spec"]["accessModes"], json!([mode]), "{overlay}");
        let volumes = rendered.pod()["volumes"].as_array().unwrap();
        let cache = volumes.iter().find(|volume| volume["name"] == "cache");
        let source = json!({"claimName": claim["metadata"]["name"]});
        let expected = json!({"name": "cache", "persistentVolumeClaim": source});
        assert_eq!(cache, Some(&expected), "{overlay}");
        let container = &rendered.pod()["containers"][0];
        let arguments = container["args"].as_array().unwrap();
        assert!(arguments.contains(&json!("--cache=/var/cache/davit/modules")));
        let mounts = container["volumeMounts"].as_array().unwrap();
        let mount = json!({"name": "cache", "mountPath": "/var/cache/davit"});
        assert!(mounts.contains(&mount), "{overlay}");
    }
}

#[test]
fn each_replica_records_its_journal_on_a_volume_of_its_own() {
    let Some(rendered) = Rendered::overlay("overlays/journal") else {
        return;
    };
    let journal =
        davit::journal_settings::settings(&rendered.arguments().journal, &JournalConfig::default());
    let journal = journal.unwrap().unwrap();
    let pod = rendered.pod();
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    let mount = mounts.iter().find(|mount| mount["name"] == "journal");
    let place = mount.unwrap()["mountPath"].as_str().unwrap();
    assert!(journal.directory.starts_with(place));
    let volumes = pod["volumes"].as_array().unwrap();
    let volume = volumes.iter().find(|volume| volume["name"] == "journal");
    let limit = &volume.unwrap()["emptyDir"]["sizeLimit"];
    // The segment that is written is never removed, and comes on top.
    assert_eq!((limit, journal.max_bytes), (&json!("2Gi"), 1 << 30));
}

/// The chart has no other way to change an option of the Deployment.
#[test]
fn of_an_option_that_is_there_twice_the_last_counts() {
    let Some(rendered) = Rendered::overlay("overlays/journal") else {
        return;
    };
    let arguments = rendered.arguments_with(&["--journal-max-mib=4096", "--log-format=text"]);
    let journal = davit::journal_settings::settings(&arguments.journal, &JournalConfig::default());
    assert_eq!(journal.unwrap().unwrap().max_bytes, 4 << 30);
}

#[test]
fn the_overlay_without_custom_resources_has_none() {
    let Some(rendered) = Rendered::overlay("overlays/file") else {
        return;
    };
    for kind in ["CustomResourceDefinition", "Controller"] {
        assert_eq!(rendered.kind(kind).count(), 0, "{kind}");
    }
    let file = rendered.one("ConfigMap")["data"]["davit.yaml"].as_str();
    assert!(file.unwrap().contains("mode: DryRun"));
}

/// Operators combine them in a kustomization of their own.
#[test]
fn every_component_fits_every_overlay() {
    let components = std::fs::read_dir(deploy("components")).unwrap();
    let names = components.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut components: Vec<String> = names.map(|name| format!("components/{name}")).collect();
    components.push("dashboards".to_owned());
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("components");
    std::fs::create_dir_all(&place).unwrap();
    // kustomize takes no absolute paths.
    let root = place.canonicalize().unwrap();
    let up = "../".repeat(root.components().count() - 1);
    let deploy = deploy(".").canonicalize().unwrap();
    let deploy = format!("{up}{}", deploy.strip_prefix("/").unwrap().display());
    for overlay in overlays() {
        let mut fitting = components.clone();
        // These are what the overlays themselves consist of.
        fitting.retain(|component| match component.as_str() {
            "components/single-replica" => !SINGLE.contains(&overlay.as_str()),
            "components/cache-volume" => !CACHED.contains(&overlay.as_str()),
            "components/journal" => overlay != "overlays/journal",
            _ => true,
        });
        let fitting = fitting
            .iter()
            .map(|component| format!("{deploy}/{component}"));
        let kustomization = json!({
            "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
            "resources": [format!("{deploy}/{overlay}")],
            "components": fitting.collect::<Vec<_>>(),
        });
        let file = place.join("kustomization.yaml");
        std::fs::write(file, kustomization.to_string()).unwrap();
        let Some(rendered) = Rendered::of(&place) else {
            return;
        };
        let service = rendered.one("Service");
        let monitor = &rendered.one("ServiceMonitor")["spec"];
        let selected = monitor["selector"]["matchLabels"].as_object().unwrap();
        for (label, value) in selected {
            assert_eq!(&service["metadata"]["labels"][label], value, "{overlay}");
        }
        let ports = service["spec"]["ports"].as_array().unwrap().iter();
        let ports: Vec<&Value> = ports.map(|port| &port["name"]).collect();
        assert!(ports.contains(&&monitor["endpoints"][0]["port"]));
        let is_dashboard = |one: &&Value| one["metadata"]["labels"]["grafana_dashboard"] == "1";
        let dashboards: Vec<&Value> = rendered.kind("ConfigMap").filter(is_dashboard).collect();
        assert_eq!(dashboards.len(), 1, "{overlay}");
        let text = dashboards[0]["data"]["davit.json"].as_str().unwrap();
        assert!(serde_json::from_str::<Value>(text).is_ok(), "{overlay}");
        let critical = &rendered.one("ResourceQuota")["spec"]["scopeSelector"];
        assert_eq!(
            critical["matchExpressions"][0]["values"][0],
            rendered.pod()["priorityClassName"]
        );
        for kind in ["PrometheusRule", "NetworkPolicy", "PersistentVolumeClaim"] {
            assert_eq!(rendered.kind(kind).count(), 1, "{overlay}: {kind}");
        }
    }
}
