//! Release builds of `davit`: as cargo makes them, or optimised for what the benches run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::{cargo_with, install, libraries, run};

/// What a build is optimised for: from the start to rest, an event at a time with and without TLS,
/// a journal, many writes. What none of them runs is apart from the rest, and compiled for size.
const SUBJECTS: [&str; 5] = ["host", "heartbeats", "latency", "journal", "writes"];

/// How the program is built.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Build<'a> {
    pub(crate) workspace: &'a Path,
    pub(crate) target: &'a str,
    /// Flags of rustc.
    pub(crate) flags: &'a [&'a str],
    /// Variables of the build.
    pub(crate) environment: &'a [(&'a str, &'a str)],
}

impl Build<'_> {
    /// Builds the program; returns where it is.
    pub(crate) fn plain(&self) -> Result<PathBuf> {
        self.with(&[])
    }

    /// Builds a program that counts what it runs, runs it in benches, and builds the program
    /// with the counts; returns where it is. The counts belong to functions by their names,
    /// which are the same only for the same packages, target and features.
    pub(crate) fn profiled(&self) -> Result<PathBuf> {
        let merger = llvm("llvm-profdata")?;
        let directory = self.workspace.join("target/profile");
        let counts = directory.join("counts");
        if counts.exists() {
            fs::remove_dir_all(&counts)
                .with_context(|| format!("removing {}", counts.display()))?;
        }
        fs::create_dir_all(&counts).with_context(|| format!("creating {}", counts.display()))?;
        let counting = directory.join("davit");
        let built = self.with(&[&format!("-Cprofile-generate={}", counts.display())])?;
        fs::copy(&built, &counting).with_context(|| format!("copying {}", built.display()))?;
        let mut benches = Command::new(bench(self.workspace, &["--bin", "davit-bench"])?);
        benches
            .current_dir(self.workspace)
            .args(["--output", "target/profile/bench.json"])
            .args(SUBJECTS)
            .env(MEASURED, &counting)
            // Counts would go there.
            .env_remove("LLVM_PROFILE_FILE");
        run(&mut benches, "a bench of the counting program")?;
        let profile = directory.join("davit.profdata");
        let mut merge = Command::new(merger);
        merge.arg("merge").arg("-o").arg(&profile).arg(&counts);
        run(&mut merge, "llvm-profdata merge")?;
        let program = self.with(&[
            &format!("-Cprofile-use={}", profile.display()),
            // Cold is what was never run. By default it is also what was run so seldom that all of
            // it together is a millionth of the counts.
            "-Cllvm-args=-profile-summary-cold-count=0",
            // lld puts what is cold beside the rest without this.
            "-Clink-arg=-Wl,-z,keep-text-section-prefix",
        ])?;
        ensure_optimised(&program)?;
        Ok(program)
    }

    fn with(&self, more: &[&str]) -> Result<PathBuf> {
        let build = ["build", "--release", "--locked", "-p", "davit"];
        let arguments = build.into_iter().chain(["--target", self.target]);
        cargo_with(self.workspace, arguments, |command| {
            // Of a target that is named, these are not the flags of build scripts. They replace
            // those of any other variable or file.
            let flags = [self.flags, more].concat().join(FLAG_END);
            command.env("CARGO_ENCODED_RUSTFLAGS", flags);
            command.envs(self.environment.iter().copied());
        })?;
        let target = self.workspace.join("target").join(self.target);
        Ok(target.join("release/davit"))
    }
}

/// Between two flags, which may have spaces.
const FLAG_END: &str = "\x1f";

/// The variable with the program that `davit-bench` measures.
pub(crate) const MEASURED: &str = "DAVIT_BENCH_PROGRAM";

/// Builds these programs of `davit` and `davit-bench`; returns where the second is.
pub(crate) fn bench(workspace: &Path, programs: &[&str]) -> Result<PathBuf> {
    let build = [
        "build",
        "--release",
        "--locked",
        "-p",
        "davit",
        "-p",
        "davit-bench",
    ];
    let arguments = build.into_iter().chain(programs.iter().copied());
    cargo_with(workspace, arguments, |_| {})?;
    Ok(workspace.join("target/release/davit-bench"))
}

/// A program of rustc's own LLVM, because the formats of counts change.
fn llvm(name: &str) -> Result<PathBuf> {
    let libraries = libraries(&[])?.context("rustc does not say where its libraries are")?;
    let program = libraries.with_file_name("bin").join(name);
    ensure!(
        install(["component", "add", "llvm-tools"], || Ok(program.is_file()))?,
        "a profile needs {}, which is not installed and could not be installed by `rustup \
         component add llvm-tools`: install it for the toolchain that rust-toolchain.toml names, \
         or build without --profiled",
        program.display()
    );
    Ok(program)
}

/// Fails if the counts did not belong to the functions of this program, about which the compiler
/// is silent: what was run is a small part of it.
fn ensure_optimised(program: &Path) -> Result<()> {
    let output = Command::new(llvm("llvm-size")?)
        .arg("--format=sysv")
        .arg(program)
        .output()
        .context("running llvm-size")?;
    ensure!(
        output.status.success(),
        "llvm-size failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let sections = String::from_utf8(output.stdout)?;
    let size = |name| size(&sections, name).unwrap_or_default();
    let (cold, rest) = (size(".text.unlikely"), size(".text") + size(".text.hot"));
    // GNU's linker makes one section of all.
    ensure!(
        cold == 0 || cold > rest,
        "{} is not optimised for what its benches run: {cold} bytes of its code count as never run, \
         and {rest} do not. Was it built with other packages, features or another target?",
        program.display()
    );
    Ok(())
}

/// The size of a section, in bytes, in what `llvm-size` prints.
fn size(sections: &str, name: &str) -> Option<u64> {
    let mut fields = sections.lines().map(str::split_whitespace);
    fields
        .find_map(|mut line| (line.next() == Some(name)).then(|| line.next())?)?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_section_is_that_of_its_name() {
        let sections = "davit  :\nsection   size   addr\n.text   7242092   16058496\n\
                        .text.unlikely   21351468   23300624\nTotal   28593560\n";
        assert_eq!(size(sections, ".text"), Some(7_242_092));
        assert_eq!(size(sections, ".text.unlikely"), Some(21_351_468));
        assert_eq!(size(sections, ".text.hot"), None);
    }
}
