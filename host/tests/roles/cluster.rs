//! An API server with RBAC, the objects of `deploy/`, and the program.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use davit_sim::{RequestRecord, Server, Sim, kubeconfig_with_token};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

pub(crate) use crate::deploy::NAMESPACE;
use crate::deploy::{self, ADMINISTRATOR, deploy, documents};

const PATIENCE: Duration = Duration::from_secs(40);
const RBAC: &str = "rbac.authorization.k8s.io/v1";

pub(crate) struct Cluster {
    pub(crate) sim: Sim,
    /// Serves requests as long as it lives.
    _runtime: Runtime,
    server: Server,
    directory: TempDir,
}

/// A verb on a resource: `patch pods/status`, `list leases.coordination.k8s.io`.
pub(crate) type Permission = String;

impl Cluster {
    /// A cluster with the objects in `deploy/base`, except the Deployment, whose
    /// program a test starts itself.
    pub(crate) fn new() -> Self {
        let runtime = Runtime::new().unwrap();
        let (sim, server) = runtime.block_on(async {
            let sim = deploy::empty(jiff::Timestamp::now());
            let anywhere = "127.0.0.1:0".parse().unwrap();
            let server = Server::start(anywhere, sim.clone()).await.unwrap();
            (sim, server)
        });
        let cluster = Cluster {
            sim,
            _runtime: runtime,
            server,
            directory: tempfile::tempdir().unwrap(),
        };
        deploy::install_base(&cluster.sim);
        cluster
    }

    /// Adds the objects in `deploy/controllers/NAME`, in the mode Enforce and with
    /// another configuration.
    pub(crate) fn add(&self, name: &str, config: &Value) {
        deploy::install_roles(&self.sim, name);
        self.sim.create(controller(name, config)).unwrap();
    }

    /// Creates a `ClusterRole` with these verbs on all resources of these groups.
    pub(crate) fn allow(&self, name: &str, verbs: &[&str], groups: &[&str]) {
        let rule = json!({"apiGroups": groups, "resources": ["*"], "verbs": verbs});
        let role = json!({
            "apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": name},
            "rules": [rule],
        });
        self.sim.create(role).unwrap();
    }

    /// Binds a `ClusterRole` to a `ServiceAccount` in Davit's namespace.
    pub(crate) fn bind(&self, role: &str, account: &str) {
        let binding = json!({
            "apiVersion": RBAC, "kind": "ClusterRoleBinding",
            "metadata": {"name": format!("{role}-to-{account}")},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role,
            },
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}],
        });
        self.sim.create(binding).unwrap();
    }

    /// The condition of a Controller.
    pub(crate) fn condition(&self, controller: &str, type_: &str) -> Value {
        let controller = self
            .sim
            .get("davit.dev/v1alpha1", "Controller", "", controller);
        let status = controller.unwrap()["status"].clone();
        let mut all = status["conditions"].as_array().into_iter().flatten();
        let found = all.find(|one| one["type"] == type_);
        found.cloned().unwrap_or_default()
    }

    /// The permissions that the roles of a controller grant to its account.
    pub(crate) fn granted(name: &str) -> BTreeSet<Permission> {
        let roles = documents(&format!("controllers/{name}/rbac.yaml"));
        let is_own = |role: &&Value| role["metadata"]["name"] == format!("davit-{name}");
        let rules = roles
            .iter()
            .filter(is_own)
            .flat_map(|role| role["rules"].as_array().into_iter().flatten());
        rules.flat_map(permissions).collect()
    }

    /// Removes a permission from a role of a controller: that of its account
    /// (`davit-NAME`), or one of Davit's own (`davit-NAME-watches`).
    pub(crate) fn revoke(&self, name: &str, role_name: &str, permission: &str) {
        let mut revoked = false;
        for mut role in documents(&format!("controllers/{name}/rbac.yaml")) {
            if role["metadata"]["name"] != role_name {
                continue;
            }
            let Some(rules) = role["rules"].as_array_mut() else {
                continue;
            };
            for rule in rules {
                if permissions(rule).contains(permission) {
                    let verb = permission.split(' ').next();
                    let verbs = rule["verbs"].as_array_mut().unwrap();
                    verbs.retain(|one| one.as_str() != verb);
                    revoked = true;
                }
            }
            let rules = role["rules"].as_array_mut().unwrap();
            rules.retain(|rule| rule["verbs"] != json!([]));
            role["apiVersion"] = json!(RBAC);
            self.sim.update(role).unwrap();
        }
        assert!(revoked, "{role_name} grants no {permission}");
    }

    /// Starts `davit run` with the token of its `ServiceAccount`.
    pub(crate) fn run(&self) -> Process {
        self.run_with(&["--http", "127.0.0.1:0"])
    }

    /// The same, with these ports.
    pub(crate) fn run_with(&self, ports: &[&str]) -> Process {
        self.run_config(&deploy("base/davit.yaml"), ports)
    }

    /// The same, with no controllers in its file.
    pub(crate) fn run_file(&self, ports: &[&str]) -> Process {
        let path = self.directory.path().join("davit.yaml");
        std::fs::write(&path, "controllers: []\n").unwrap();
        self.run_config(&path, ports)
    }

    fn run_config(&self, config: &Path, ports: &[&str]) -> Process {
        let token = self.token("davit");
        let kubeconfig = kubeconfig_with_token(&self.server.url(), None, &token);
        let context = "    user: davit-sim\n";
        let namespaced = format!("{context}    namespace: {NAMESPACE}\n");
        let kubeconfig = kubeconfig.replacen(context, &namespaced, 1);
        let path = self.directory.path().join("kubeconfig");
        std::fs::write(&path, kubeconfig).unwrap();
        self.sim.clear_log();
        let program = Path::new(env!("CARGO_BIN_EXE_davit"));
        let guests = program.ancestors().nth(2).unwrap();
        let log = std::fs::File::create(self.directory.path().join("log")).unwrap();
        let child = Command::new(program)
            .env_remove("RUST_LOG")
            .arg("run")
            .args(ports)
            .arg("--config")
            .arg(config)
            .arg("--kubeconfig")
            .arg(path)
            .arg("--guests")
            .arg(guests.join("wasm32-wasip2/guest"))
            .arg("--cache")
            .arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join("modules"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        Process(child.unwrap())
    }

    /// Runs a command of an administrator; returns whether it succeeded, and its output.
    pub(crate) fn command(&self, arguments: &[&str]) -> (bool, String) {
        let kubeconfig = kubeconfig_with_token(&self.server.url(), None, ADMINISTRATOR);
        let path = self.directory.path().join("administrator");
        std::fs::write(&path, kubeconfig).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_davit"));
        command.args(arguments).arg("--kubeconfig").arg(path);
        let output = command.env_remove("RUST_LOG").output().unwrap();
        let all = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(all).unwrap())
    }

    /// A token of a `ServiceAccount` in Davit's namespace.
    pub(crate) fn token(&self, account: &str) -> String {
        deploy::token(&self.sim, account)
    }

    /// Waits until the cluster has this property.
    pub(crate) fn until(&self, what: &str, mut done: impl FnMut(&Sim) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done(&self.sim) {
            if Instant::now() > deadline {
                let log = std::fs::read_to_string(self.directory.path().join("log"));
                let denied = self.denied();
                panic!("in vain: {what}; denied: {denied:#?}\n{}", log.unwrap());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The program's requests that no role allows.
    pub(crate) fn denied(&self) -> BTreeSet<String> {
        deploy::denied(&self.sim)
    }

    /// The permissions that the program has used.
    pub(crate) fn used(&self) -> BTreeSet<Permission> {
        let log = self.sim.log();
        let resources = log.iter().filter(|served| !served.work.resource.is_empty());
        resources.flat_map(used).collect()
    }
}

/// The object in `deploy/controllers/NAME/controller.yaml`, in the mode Enforce, with
/// another configuration.
fn controller(name: &str, config: &Value) -> Value {
    let file = format!("controllers/{name}/controller.yaml");
    let [mut controller] = <[Value; 1]>::try_from(documents(&file)).unwrap();
    controller["spec"]["mode"] = json!("Enforce");
    controller["spec"]["config"] = config.clone();
    controller
}

/// The permissions that a request needs.
fn used(served: &RequestRecord) -> Vec<Permission> {
    let work = &served.work;
    let mut path = served.path.split('/');
    let group = match path.nth(1) {
        Some("apis") => path.next().unwrap_or_default(),
        _ => "",
    };
    let needs = |verb: &str| permission(verb, group, &work.resource, &work.subresource);
    if served.path.contains("sendInitialEvents=true") {
        // If a server cannot stream a list, the program lists.
        return vec![needs("list"), needs("watch")];
    }
    vec![needs(&work.verb)]
}

fn permission(verb: &str, group: &str, resource: &str, subresource: &str) -> Permission {
    let mut name = resource.to_owned();
    if !group.is_empty() {
        name = format!("{name}.{group}");
    }
    if !subresource.is_empty() {
        name = format!("{name}/{subresource}");
    }
    format!("{verb} {name}")
}

/// The permissions of a rule.
fn permissions(rule: &Value) -> BTreeSet<Permission> {
    let list = |name: &str| -> Vec<&str> {
        let items = rule[name].as_array().unwrap().iter();
        items.map(|item| item.as_str().unwrap()).collect()
    };
    let mut found = BTreeSet::new();
    for verb in list("verbs") {
        for group in list("apiGroups") {
            for resource in list("resources") {
                let (resource, sub) = resource.split_once('/').unwrap_or((resource, ""));
                found.insert(permission(verb, group, resource, sub));
            }
        }
    }
    found
}

/// A process that ends with the test.
pub(crate) struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
