//! An API server with RBAC, the objects of `deploy/`, and the program as a process.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use davit_sim::{RequestRecord, Server, Sim, kubeconfig_with_token};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

#[allow(dead_code, reason = "it serves the tests of every program")]
#[path = "../support/process.rs"]
pub(crate) mod process;

pub(crate) use crate::deploy::NAMESPACE;
use crate::deploy::{self, ADMINISTRATOR, Permission, deploy, documents, permission, permissions};
use process::{Process, davit, guests};

/// A busy machine compiles the largest guest for half a minute.
const PATIENCE: Duration = Duration::from_secs(90);
const RBAC: &str = "rbac.authorization.k8s.io/v1";

pub(crate) struct Cluster {
    pub(crate) sim: Sim,
    /// Serves requests as long as it lives.
    runtime: Runtime,
    server: Server,
    pub(crate) directory: TempDir,
}

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
            runtime,
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

    /// A Controller.
    pub(crate) fn get(&self, controller: &str) -> Value {
        deploy::controller(&self.sim, controller)
    }

    pub(crate) fn status(&self, controller: &str) -> Value {
        self.get(controller)["status"].clone()
    }

    /// Changes a Controller as a merge patch does, status included.
    pub(crate) fn change(&self, controller: &str, change: Value) {
        deploy::change(&self.sim, controller, change);
    }

    /// The condition of a Controller.
    pub(crate) fn condition(&self, controller: &str, type_: &str) -> Value {
        let status = self.status(controller);
        let mut all = status["conditions"].as_array().into_iter().flatten();
        let found = all.find(|one| one["type"] == type_);
        found.cloned().unwrap_or_default()
    }

    /// Whether a condition of a Controller has this status.
    pub(crate) fn is(&self, controller: &str, type_: &str, status: &str) -> bool {
        self.condition(controller, type_)["status"] == status
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
    pub(crate) fn revoke(&self, name: &str, role: &str, permission: &str) {
        let file = format!("controllers/{name}/rbac.yaml");
        deploy::revoke(&self.sim, &file, role, permission);
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
        self.sim.clear_log();
        self.spawn(config, &[ports, &["--single"]].concat())
    }

    /// Starts a replica that takes part in leader election, with a third of the default
    /// times.
    pub(crate) fn run_replica(&self, name: &str) -> Process {
        self.run_replica_with(name, &[])
    }

    /// The same, with these ports.
    pub(crate) fn run_replica_with(&self, name: &str, ports: &[&str]) -> Process {
        let arguments = [&election(name), ports].concat();
        self.spawn(&deploy("base/davit.yaml"), &arguments)
    }

    /// The same, which reaches the API server at this URL.
    pub(crate) fn run_replica_at(&self, name: &str, url: &str) -> Process {
        let kubeconfig = format!("kubeconfig-{name}");
        let command = self.program_at(&kubeconfig, url, &deploy("base/davit.yaml"));
        self.spawn_command(command, &election(name))
    }

    fn spawn(&self, config: &Path, arguments: &[&str]) -> Process {
        self.spawn_command(self.program(config), arguments)
    }

    fn spawn_command(&self, mut command: Command, arguments: &[&str]) -> Process {
        let mut log = std::fs::OpenOptions::new();
        let log = log.create(true).append(true);
        let log = log.open(self.directory.path().join("log")).unwrap();
        command
            .args(arguments)
            .arg("--guests")
            .arg(guests())
            .arg("--cache")
            .arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join("modules"))
            .stdout(Stdio::null())
            .stderr(log);
        Process(command.spawn().unwrap())
    }

    /// `davit run` with a configuration and the token of its `ServiceAccount`.
    pub(crate) fn program(&self, config: &Path) -> Command {
        self.program_at("kubeconfig", &self.server.url(), config)
    }

    fn program_at(&self, file: &str, url: &str, config: &Path) -> Command {
        let kubeconfig = kubeconfig_with_token(url, None, &self.token("davit"));
        let context = "    user: davit-sim\n";
        let namespaced = format!("{context}    namespace: {NAMESPACE}\n");
        let path = self.directory.path().join(file);
        std::fs::write(&path, kubeconfig.replacen(context, &namespaced, 1)).unwrap();
        let mut command = davit();
        command.arg("run").arg("--config").arg(config);
        command.arg("--kubeconfig").arg(path);
        command
    }

    /// Where the API server listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Runs something on the threads that serve requests.
    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// A command of an administrator.
    pub(crate) fn administrators(&self, arguments: &[&str]) -> Command {
        let kubeconfig = kubeconfig_with_token(&self.server.url(), None, ADMINISTRATOR);
        let path = self.directory.path().join("administrator");
        std::fs::write(&path, kubeconfig).unwrap();
        let mut command = davit();
        command.args(arguments).arg("--kubeconfig").arg(path);
        command
    }

    /// Runs a command of an administrator; returns whether it succeeded, and its output.
    pub(crate) fn command(&self, arguments: &[&str]) -> (bool, String) {
        let output = self.administrators(arguments).output().unwrap();
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
                let log = log.unwrap_or_default();
                panic!("in vain: {what}; denied: {denied:#?}\n{log}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The program's requests that no role allows.
    pub(crate) fn denied(&self) -> BTreeSet<String> {
        deploy::denied(&self.sim)
    }

    /// The permissions that the program has used. The requests that a test makes itself come from
    /// no address.
    pub(crate) fn used(&self) -> BTreeSet<Permission> {
        let log = self.sim.log();
        let of_programs = log.iter().filter(|served| served.peer.is_some());
        let resources = of_programs.filter(|served| !served.work.resource.is_empty());
        resources.flat_map(used).collect()
    }
}

/// The arguments of a replica that takes part in leader election.
fn election(name: &str) -> [&str; 8] {
    [
        "--replica-id",
        name,
        "--leader-elect-lease-duration",
        "4s",
        "--leader-elect-renew-deadline",
        "3s",
        "--leader-elect-retry-period",
        "1s",
    ]
}

/// A guest of the workspace.
pub(crate) fn module(file: &str) -> ByteString {
    ByteString(std::fs::read(guests().join(file)).unwrap())
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
