//! `cargo xtask COMMAND`: builds, tests, measures and demonstrates the project.

mod chart;
mod docs;
mod image;
mod kinds;
mod lint;
mod release;
mod sbom;
mod supply;

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::available_parallelism;

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use serde_json::Value;

const TARGET: &str = "wasm32-wasip2";

/// Mutants of the core. One build runs stories with and without them: an inactive mutant
/// costs next to nothing.
const MUTANTS: &str = "davit-stories/mutants";

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    about = "Builds, tests, measures and demonstrates Davit"
)]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Builds every guest for wasm32-wasip2, into target/wasm32-wasip2/guest.
    Guests,
    /// Builds the guests and the host, and runs `davit demo`.
    Demo {
        /// Arguments of `davit demo`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Checks format and lints, builds the guests and runs every test.
    Test,
    /// Checks format, lints, and the links of the reference.
    Lint,
    /// Builds the reference of the SDK, as rustdoc, into target/doc.
    Docs,
    /// Runs random stories of the five controllers on virtual time, in memory, each
    /// from its seed, and checks how they end.
    Simulate {
        /// Optimises the build further: worth it for thousands of stories.
        #[arg(long)]
        release: bool,
        /// Arguments of `davit-stories`: `--seeds FIRST..END`, `--seed N`, or
        /// `--mutants` to prove that the stories find faults in the core.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Writes the definition of the custom resource to deploy/crds.
    Crds,
    /// Writes the fields of Kubernetes' built-in kinds to guests/kinds.
    Kinds {
        /// What `kubectl get --raw /openapi/v2` prints. The API server should serve every
        /// version: `--runtime-config=api/all=true`.
        #[arg(long)]
        openapi: PathBuf,
    },
    /// Measures an optimised build: prints a table of figures with their aims, and writes it
    /// to target/bench.json.
    Bench {
        /// Measures what `image --profiled` makes. What the bench runs in its own process is not
        /// of that build.
        #[arg(long)]
        profiled: bool,
        /// Arguments of `davit-bench`: what to measure, `--kubeconfig FILE`, `--plots DIR`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Checks the dependencies against deny.toml with cargo-deny.
    Supply {
        /// Fails if the database of advisories cannot be fetched.
        #[arg(long)]
        require_advisories: bool,
    },
    /// Writes the crates that the program is linked from, as CycloneDX, to
    /// target/davit.cdx.json.
    Sbom {
        /// The file.
        #[arg(long)]
        output: Option<PathBuf>,
        /// The target that the program is built for.
        #[arg(long, default_value = "x86_64-unknown-linux-gnu")]
        target: String,
    },
    /// Builds the files of the container image into target/image.
    Image {
        /// Optimises the program for what benches run of it: less time for each event, less
        /// memory. The build takes four times as long.
        #[arg(long)]
        profiled: bool,
    },
    /// Writes a Helm chart of what `kubectl kustomize` renders.
    Chart {
        /// The directory with the kustomization.
        #[arg(default_value = "deploy/base")]
        overlay: PathBuf,
        /// The directory of the chart, which is replaced.
        #[arg(long, default_value = "target/chart/davit")]
        output: PathBuf,
    },
}

fn main() -> Result<()> {
    let workspace = workspace()?;
    match Arguments::parse().command {
        Task::Guests => guests(&workspace),
        Task::Demo { arguments } => demo(&workspace, &arguments),
        Task::Test => {
            lint::check(&workspace)?;
            guests(&workspace)?;
            let test = ["test", "--workspace", "--locked", "--features", MUTANTS];
            cargo_with(&workspace, test, |command| {
                if env::var_os(TEST_THREADS).is_none() {
                    command.env(TEST_THREADS, test_threads().to_string());
                }
            })
        }
        Task::Lint => lint::check(&workspace),
        Task::Docs => {
            docs::build(&workspace)?;
            println!("{}", docs::index(&workspace).display());
            Ok(())
        }
        Task::Simulate { release, arguments } => simulate(&workspace, release, &arguments),
        Task::Crds => crds(&workspace),
        Task::Kinds { openapi } => kinds::write(&workspace, &openapi),
        Task::Bench {
            profiled,
            arguments,
        } => bench(&workspace, profiled, &arguments),
        Task::Supply { require_advisories } => supply::check(&workspace, require_advisories),
        Task::Sbom { output, target } => {
            let path = output.unwrap_or_else(|| sbom::default_path(&workspace));
            sbom::write(&workspace, &target, &path)
        }
        Task::Image { profiled } => image::build(&workspace, profiled),
        Task::Chart { overlay, output } => {
            chart::write(&workspace, &overlay, &workspace.join(output))
        }
    }
}

/// How many tests of a program run at once.
const TEST_THREADS: &str = "RUST_TEST_THREADS";

/// Those with processes and leases wait half of their time.
fn test_threads() -> usize {
    2 * available_parallelism().map_or(1, NonZero::get)
}

/// Functions of guests are inlined up to four times LLVM's size: in wasm, each function and each loop
/// has a check for the time limit of the call. Calls are 4 to 8 % shorter, and guests a fifth larger.
const INLINED: &str = "target.wasm32-wasip2.rustflags=['-Cllvm-args=-inline-threshold=1000']";

fn guests(workspace: &Path) -> Result<()> {
    ensure_target()?;
    let packages = guest_packages(workspace)?;
    ensure!(!packages.is_empty(), "the workspace has no guests");
    let mut arguments = vec![
        "build",
        "--locked",
        "--profile",
        "guest",
        "--target",
        TARGET,
        "--config",
        INLINED,
    ];
    for package in &packages {
        arguments.extend(["-p", package]);
    }
    cargo(workspace, arguments)
}

fn demo(workspace: &Path, arguments: &[String]) -> Result<()> {
    guests(workspace)?;
    let run = ["run", "--quiet", "--locked", "-p", "davit", "--", "demo"];
    let arguments = arguments.iter().map(String::as_str);
    cargo(workspace, run.into_iter().chain(arguments))
}

fn simulate(workspace: &Path, release: bool, arguments: &[String]) -> Result<()> {
    let run = ["run", "--quiet", "--locked", "-p", "davit-stories"];
    let profile = release.then_some(["--profile", "stories"]);
    let run = run.into_iter().chain(profile.into_iter().flatten());
    let features = ["--features", MUTANTS, "--"];
    let arguments = arguments.iter().map(String::as_str);
    cargo(workspace, run.chain(features).chain(arguments))
}

/// The host has the types of the custom resource, so it prints the definition.
fn crds(workspace: &Path) -> Result<()> {
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--locked", "-p", "davit", "--", "crds"])
        .current_dir(workspace)
        .stderr(Stdio::inherit())
        .output()
        .context("running davit crds")?;
    ensure!(
        output.status.success(),
        "davit crds failed: {}",
        output.status
    );
    let path = workspace.join("deploy/crds/controllers.davit.dev.yaml");
    fs::write(&path, output.stdout).with_context(|| format!("writing {}", path.display()))
}

fn bench(workspace: &Path, profiled: bool, arguments: &[String]) -> Result<()> {
    guests(workspace)?;
    let program = profiled.then(|| image::program(workspace, true));
    let program = program.transpose()?;
    // It measures the program beside it, or that of the variable.
    let programs: &[&str] = if profiled {
        &["--bin", "davit-bench"]
    } else {
        &["--bins"]
    };
    let bench = release::bench(workspace, programs)?;
    let mut command = Command::new(&bench);
    command.current_dir(workspace).args(arguments);
    command.envs(program.map(|program| (release::MEASURED, program)));
    run(&mut command, "the bench")
}

/// The packages under `guests/` that compile to a component.
fn guest_packages(workspace: &Path) -> Result<Vec<String>> {
    let metadata = ["metadata", "--no-deps", "--format-version", "1"];
    let metadata: Value = serde_json::from_str(&cargo_output(workspace, metadata)?)?;
    Ok(list(&metadata, "packages")
        .filter(|package| is_guest(package, workspace))
        .filter_map(|package| text(package, "name").map(str::to_owned))
        .collect())
}

fn is_guest(package: &Value, workspace: &Path) -> bool {
    let guests = workspace.join("guests");
    let manifest = text(package, "manifest_path").map(Path::new);
    manifest.is_some_and(|manifest| manifest.starts_with(guests))
        && list(package, "targets")
            .any(|target| list(target, "crate_types").any(|kind| kind == "cdylib"))
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    let list = value.get(field).and_then(Value::as_array);
    list.into_iter().flatten()
}

fn text<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value.get(field).and_then(Value::as_str)
}

/// Installs the guests' target with rustup; fails with advice where rustup is missing.
fn ensure_target() -> Result<()> {
    let is_installed = || {
        let directory = libraries(&["--target", TARGET])?;
        Ok(directory.is_some_and(|directory| directory.is_dir()))
    };
    ensure!(
        install(["target", "add", TARGET], is_installed)?,
        "guests are compiled for {TARGET}, whose standard library is not installed and could \
         not be installed by `rustup target add {TARGET}`: install it for the toolchain that \
         rust-toolchain.toml names, then repeat the command"
    );
    Ok(())
}

/// Lets rustup install what is missing; whether it is there then.
fn install(command: [&str; 3], is_installed: impl Fn() -> Result<bool>) -> Result<bool> {
    if is_installed()? {
        return Ok(true);
    }
    let [kind, _, name] = command;
    println!("installing the {kind} {name}");
    // What went wrong is on the terminal; it may not be there at all.
    let _ = Command::new("rustup").args(command).status();
    is_installed()
}

/// Where rustc has the libraries of a target; none if it does not know the target.
fn libraries(target: &[&str]) -> Result<Option<PathBuf>> {
    let output = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args(["--print", "target-libdir"])
        .args(target)
        .output()
        .context("running rustc")?;
    let directory = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    Ok(output.status.success().then_some(directory))
}

fn cargo<S: AsRef<OsStr>>(workspace: &Path, arguments: impl IntoIterator<Item = S>) -> Result<()> {
    cargo_with(workspace, arguments, |_| {})
}

fn cargo_with<S: AsRef<OsStr>>(
    workspace: &Path,
    arguments: impl IntoIterator<Item = S>,
    prepare: impl FnOnce(&mut Command),
) -> Result<()> {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments).current_dir(workspace);
    let line = format!("{command:?}").replace(env!("CARGO"), "cargo");
    prepare(&mut command);
    run(&mut command, &line)
}

/// Runs a command, which is named so in an error.
fn run(command: &mut Command, name: &str) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("running {name}"))?;
    ensure!(status.success(), "{name} failed: {status}");
    Ok(())
}

/// What cargo prints.
fn cargo_output<'a>(
    workspace: &Path,
    arguments: impl IntoIterator<Item = &'a str>,
) -> Result<String> {
    let arguments: Vec<&str> = arguments.into_iter().collect();
    let output = Command::new(env!("CARGO"))
        .args(&arguments)
        .current_dir(workspace)
        .output()
        .with_context(|| format!("running cargo {}", arguments.join(" ")))?;
    ensure!(
        output.status.success(),
        "cargo {} failed: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}

fn workspace() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.ancestors().nth(2);
    Ok(root.context("xtask lies outside its workspace")?.to_owned())
}
