//! The build of a guest.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use tokio::process::Command;

use crate::cli::DevArguments;
use crate::commands::print::text_at;

const CARGO: [&str; 6] = [
    "build",
    "--target",
    "wasm32-wasip2",
    "--release",
    "--message-format",
    "json-render-diagnostics",
];

/// What a crate may be built from, whatever its sources name. Cargo writes `Cargo.lock`.
const PARTS: [&str; 7] = [
    "Cargo.toml",
    "build.rs",
    "src",
    "wit",
    "config.schema.json",
    "rust-toolchain.toml",
    ".cargo/config.toml",
];

/// How a guest is built. What the tools have to say is on standard error.
pub(super) enum Build {
    /// With cargo, which names the component.
    Cargo { directory: PathBuf },
    /// With a command.
    Command {
        directory: PathBuf,
        command: String,
        module: PathBuf,
    },
}

/// What cargo and rustup also read in the directories above that of a crate: the workspace, and
/// settings.
const SETTINGS: [&str; 3] = ["Cargo.toml", "rust-toolchain.toml", ".cargo/config.toml"];

impl Build {
    pub(super) fn new(arguments: &DevArguments) -> Result<Self> {
        let directory = arguments.directory.clone();
        if let (Some(command), Some(module)) = (&arguments.build, &arguments.module) {
            return Ok(Self::Command {
                module: directory.join(module),
                directory,
                command: command.clone(),
            });
        }
        if !directory.join("Cargo.toml").is_file() {
            bail!(
                "{} has no Cargo.toml: name the directory of a crate, such as davit new creates, \
                 or say with --build and --module how the guest is built",
                directory.display()
            );
        }
        Ok(Self::Cargo { directory })
    }

    /// The file that every build writes, if it is known before the first one.
    pub(super) fn module(&self) -> Option<PathBuf> {
        match self {
            Self::Cargo { .. } => None,
            Self::Command { module, .. } => Some(module.clone()),
        }
    }

    /// What the component is built from, as far as it is known before the first build: what there
    /// is, and what may be there, or may be created later. In the directory of a crate, other files
    /// are common, such as objects to try it on.
    pub(super) fn sources(&self) -> (Vec<PathBuf>, Vec<PathBuf>) {
        match self {
            Self::Cargo { directory } => {
                let mut parts: Vec<PathBuf> = PARTS.map(|part| directory.join(part)).into();
                let whole = directory.canonicalize().unwrap_or_default();
                let above = whole.ancestors().skip(1);
                parts.extend(above.flat_map(|above| SETTINGS.map(|part| above.join(part))));
                (Vec::new(), parts)
            }
            Self::Command { directory, .. } => (vec![directory.clone()], Vec::new()),
        }
    }

    /// The files from which this component was built, if the build has named them: also those
    /// that the sources include, and those of crates beside this one, such as the SDK.
    pub(super) fn read_by(&self, component: &Path) -> Vec<PathBuf> {
        match self {
            Self::Cargo { directory } => {
                // Without the list, the parts of the crate are watched.
                let list = fs::read_to_string(component.with_extension("d"));
                let named = list.map_or_else(|_| Vec::new(), |list| prerequisites(&list));
                let files = named.into_iter().filter(|it| !is_built(it, component));
                files.map(|it| within(directory, &it)).collect()
            }
            Self::Command { .. } => Vec::new(),
        }
    }

    /// The command, for a reader.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Cargo { .. } => "cargo build --target wasm32-wasip2 --release".to_owned(),
            Self::Command { command, .. } => command.clone(),
        }
    }

    /// Builds the component. If this future is dropped, the build ends.
    pub(super) async fn run(&self) -> Result<PathBuf> {
        match self {
            Self::Cargo { directory } => {
                let mut cargo = Command::new("cargo");
                cargo.args(CARGO).current_dir(directory);
                let (status, messages) = finished(cargo, Stdio::piped()).await?;
                succeeded(status)?;
                component(&messages)
            }
            Self::Command {
                directory,
                command,
                module,
            } => {
                let mut shell = Command::new("sh");
                shell.args(["-c", command]).current_dir(directory);
                // What it prints is no decision of the guest.
                let (status, _) = finished(shell, Stdio::null()).await?;
                succeeded(status)?;
                Ok(module.clone())
            }
        }
    }
}

/// The files that a rule of a makefile names behind its colon, as cargo writes one: a space in a
/// name has a backslash before it.
fn prerequisites(rule: &str) -> Vec<PathBuf> {
    let Some((_, names)) = rule.lines().next().and_then(|it| it.split_once(": ")) else {
        return Vec::new();
    };
    let names = names.replace("\\ ", "\0");
    let names = names.split_whitespace();
    names.map(|it| it.replace('\0', " ").into()).collect()
}

/// A file as the directory is named. Cargo names the files of a crate by their whole path.
fn within(directory: &Path, file: &Path) -> PathBuf {
    let whole = directory.canonicalize();
    let below = whole
        .ok()
        .and_then(|it| Some(file.strip_prefix(it).ok()?.to_owned()));
    directory.join(below.as_deref().unwrap_or(file))
}

/// Whether a build has written the file: what a build script generates is below the directory of
/// the component.
fn is_built(file: &Path, component: &Path) -> bool {
    let release = component.parent();
    release.is_some_and(|release| file.starts_with(release))
}

async fn finished(mut command: Command, stdout: Stdio) -> Result<(ExitStatus, String)> {
    command.kill_on_drop(true).stdin(Stdio::null());
    let child = command.stdout(stdout).stderr(Stdio::inherit()).spawn();
    let name = command
        .as_std()
        .get_program()
        .to_string_lossy()
        .into_owned();
    let context = || format!("{name} cannot be started");
    let output = child.with_context(context)?.wait_with_output().await;
    let output = output.with_context(context)?;
    let messages = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok((output.status, messages))
}

fn succeeded(status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("the build failed ({status}): the former guest continues to run, if there is one");
    }
    Ok(())
}

/// The component among cargo's messages, one JSON object a line.
fn component(messages: &str) -> Result<PathBuf> {
    let messages = messages
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let files: Vec<PathBuf> = messages.flat_map(|message| components(&message)).collect();
    match files.as_slice() {
        [one] => Ok(one.clone()),
        [] => bail!("cargo built no component: [lib] crate-type in Cargo.toml needs \"cdylib\""),
        several => {
            let names: Vec<_> = several
                .iter()
                .map(|one| one.display().to_string())
                .collect();
            bail!(
                "cargo built several components: name the directory of one crate, not of a \
                 workspace: {}",
                names.join(", ")
            )
        }
    }
}

fn components(message: &Value) -> Vec<PathBuf> {
    if text_at(message, "/reason") != "compiler-artifact" {
        return Vec::new();
    }
    let files = message.pointer("/filenames").and_then(Value::as_array);
    let files = files.into_iter().flatten().filter_map(Value::as_str);
    let files = files.map(Path::new);
    let is_component = |path: &&Path| path.extension().is_some_and(|it| it == "wasm");
    files.filter(is_component).map(Path::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_names_the_component() {
        let artifact = |file: &str| {
            format!("{{\"reason\":\"compiler-artifact\",\"filenames\":[\"{file}\"]}}\n")
        };
        let library = artifact("/t/libserde.rlib");
        let done = "{\"reason\":\"build-finished\",\"success\":true}\n";
        let one = format!("{library}{}{done}", artifact("/t/guest.wasm"));
        assert_eq!(component(&one).unwrap(), Path::new("/t/guest.wasm"));
        let none = component(&library).unwrap_err().to_string();
        assert!(none.contains("cdylib"), "{none}");
        let two = component(&(one + &artifact("/t/other.wasm")));
        let two = two.unwrap_err().to_string();
        assert!(two.ends_with("/t/guest.wasm, /t/other.wasm"), "{two}");
    }

    #[test]
    fn cargo_names_the_files_from_which_a_component_was_built() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().canonicalize().unwrap();
        let release = place.join("target/wasm32-wasip2/release");
        fs::create_dir_all(&release).unwrap();
        let component = release.join("guest.wasm");
        let names = [
            "src/lib.rs",
            "a text.txt",
            "target/wasm32-wasip2/release/build/out.rs",
        ];
        let names = names.map(|it| place.join(it).display().to_string().replace(' ', "\\ "));
        let list = format!("{}: {} /sdk/lib.rs\n", component.display(), names.join(" "));
        fs::write(component.with_extension("d"), list).unwrap();
        let directory = directory.path().to_owned();
        let expected = ["src/lib.rs", "a text.txt", "/sdk/lib.rs"].map(|it| directory.join(it));
        let build = Build::Cargo { directory };
        assert_eq!(build.read_by(&component), expected);
        assert!(build.read_by(Path::new("other.wasm")).is_empty());
    }

    #[tokio::test]
    async fn a_command_builds_in_the_directory() {
        let directory = tempfile::tempdir().unwrap();
        let build = |command: &str| Build::Command {
            directory: directory.path().to_owned(),
            command: command.to_owned(),
            module: directory.path().join("guest.wasm"),
        };
        let module = build("echo built >guest.wasm").run().await.unwrap();
        assert_eq!(std::fs::read_to_string(module).unwrap(), "built\n");
        let error = build("exit 7").run().await.unwrap_err().to_string();
        assert!(
            error.starts_with("the build failed (exit status: 7)"),
            "{error}"
        );
    }
}
