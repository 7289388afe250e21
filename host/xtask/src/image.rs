//! `cargo xtask image`: the files of the container image.
//!
//! The image has no base image. The program is linked statically, and everything beside
//! it is built from this repository and `Cargo.lock`.

use std::env::consts::ARCH;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};

use crate::release::Build;
use crate::{guests, sbom};

/// The guests that ship with Davit, as files.
const GUESTS: [&str; 6] = [
    "garbage_collector.wasm",
    "node_eviction.wasm",
    "podgc.wasm",
    "policy.wasm",
    "storage_version_gc.wasm",
    "taint_eviction.wasm",
];

/// The program needs no other file. Its 100,000 relocations, all of which are read at the start, are
/// packed: 2.5 MB less of it are in memory.
const FLAGS: [&str; 2] = [
    "-Ctarget-feature=+crt-static",
    "-Clink-arg=-Wl,-z,pack-relative-relocs",
];

/// Where the image has the certificates that authenticate registries of modules.
const CERTIFICATES: &str = "etc/ssl/certs/ca-certificates.crt";

/// Builds everything for this machine's processor, and writes it to `target/image`,
/// which is the context of `deploy/Dockerfile`. The program may be optimised for what it runs.
pub(crate) fn build(workspace: &Path, profiled: bool) -> Result<()> {
    guests(workspace)?;
    let program = program(workspace, profiled)?;
    let image = workspace.join("target/image");
    if image.exists() {
        fs::remove_dir_all(&image).with_context(|| format!("removing {}", image.display()))?;
    }
    copy(&program, &image.join("usr/local/bin/davit"))?;
    let built = workspace.join("target/wasm32-wasip2/guest");
    for guest in GUESTS {
        let installed = image.join("usr/local/share/davit/guests").join(guest);
        copy(&built.join(guest), &installed)?;
    }
    let certificates = image.join(CERTIFICATES);
    create_parent(&certificates)?;
    fs::write(&certificates, certificates_in_pem())
        .with_context(|| format!("writing {}", certificates.display()))?;
    let document = image.join("usr/local/share/davit/davit.cdx.json");
    sbom::write(workspace, &target(), &document)?;
    set_modes(&image)?;
    println!("docker build -f deploy/Dockerfile -t davit target/image");
    Ok(())
}

/// The target of the program.
fn target() -> String {
    format!("{ARCH}-unknown-linux-gnu")
}

/// Builds the program, linked statically.
pub(crate) fn program(workspace: &Path, profiled: bool) -> Result<PathBuf> {
    let commit = commit(workspace);
    let commit = commit.as_deref().map(|commit| ("DAVIT_COMMIT", commit));
    // The kernels of ARM may have pages of up to 64 KiB, as powers of two; jemalloc aborts where
    // they are larger than it was built for.
    let pages = (ARCH == "aarch64").then_some(("JEMALLOC_SYS_WITH_LG_PAGE", "16"));
    let environment: Vec<_> = commit.into_iter().chain(pages).collect();
    let build = Build {
        workspace,
        target: &target(),
        flags: &FLAGS,
        environment: &environment,
    };
    let program = if profiled {
        build.profiled()?
    } else {
        build.plain()?
    };
    let bytes = fs::read(&program).with_context(|| format!("reading {}", program.display()))?;
    ensure!(
        is_static(&bytes),
        "{} needs a dynamic linker, and the image has none",
        program.display()
    );
    // A C library that does not know packed relocations is found out here.
    let status = Command::new(&program).arg("--version").status();
    let status = status.with_context(|| format!("starting {}", program.display()))?;
    ensure!(
        status.success(),
        "{} fails at its start: {status}. The image has to be built where glibc is 2.36 or later",
        program.display()
    );
    Ok(program)
}

/// The commit, marked if files differ from it. None without git.
fn commit(workspace: &Path) -> Option<String> {
    let mut git = Command::new("git");
    git.args(["describe", "--always", "--dirty", "--exclude", "*"]);
    let output = git.current_dir(workspace).output().ok()?;
    let commit = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| commit.trim().to_owned())
}

/// Whether a program of 64-bit ELF, least significant byte first, names no dynamic
/// linker: none of its program headers is `PT_INTERP`.
fn is_static(elf: &[u8]) -> bool {
    const PT_INTERP: u32 = 3;
    if !elf.starts_with(b"\x7fELF\x02\x01") {
        return false;
    }
    let number = |at: usize, len: usize| -> Option<usize> {
        let bytes = elf.get(at..at.checked_add(len)?)?;
        let digits = bytes.iter().rev();
        Some(digits.fold(0, |number, byte| number << 8 | usize::from(*byte)))
    };
    let headers = || Some((number(0x20, 8)?, number(0x36, 2)?, number(0x38, 2)?));
    let Some((offset, size, count)) = headers() else {
        return false;
    };
    (0..count).all(|index| {
        let kind = number(offset.saturating_add(index * size), 4);
        kind.is_some_and(|kind| kind != PT_INTERP as usize)
    })
}

/// The certificates of Mozilla's root program, as a file of OpenSSL.
fn certificates_in_pem() -> String {
    let mut pem = String::new();
    for certificate in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
        pem.push_str("-----BEGIN CERTIFICATE-----\n");
        let mut rest = BASE64_STANDARD.encode(certificate);
        while !rest.is_empty() {
            let more = rest.split_off(rest.len().min(64));
            pem.push_str(&rest);
            pem.push('\n');
            rest = more;
        }
        pem.push_str("-----END CERTIFICATE-----\n");
    }
    pem
}

/// Lets the image's user read everything, and run the program, whatever umask the builder has: COPY
/// keeps the modes, and the files belong to root.
fn set_modes(path: &Path) -> Result<()> {
    let mode = if path.is_dir() || path.parent().is_some_and(|parent| parent.ends_with("bin")) {
        0o755
    } else {
        0o644
    };
    fs::set_permissions(path, Permissions::from_mode(mode))
        .with_context(|| format!("setting the mode of {}", path.display()))?;
    if path.is_dir() {
        let entries = fs::read_dir(path).with_context(|| format!("reading {}", path.display()))?;
        for entry in entries {
            set_modes(&entry?.path())?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    create_parent(to)?;
    fs::copy(from, to)
        .map(|_| ())
        .with_context(|| format!("copying {} to {}", from.display(), to.display()))
}

fn create_parent(path: &Path) -> Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory).with_context(|| format!("creating {}", directory.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn the_user_of_the_image_can_read_everything_and_run_the_program() {
        let image = tempfile::tempdir().unwrap();
        let (program, data) = (
            "usr/local/bin/davit",
            "usr/local/share/davit/davit.cdx.json",
        );
        for file in [program, data] {
            let path = image.path().join(file);
            create_parent(&path).unwrap();
            fs::write(&path, "").unwrap();
            // As with the umask 077.
            fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            fs::set_permissions(path.parent().unwrap(), Permissions::from_mode(0o700)).unwrap();
        }
        set_modes(image.path()).unwrap();
        let mode = |path: &str| {
            let metadata = fs::metadata(image.path().join(path)).unwrap();
            metadata.permissions().mode() & 0o777
        };
        assert_eq!((mode(program), mode(data)), (0o755, 0o644));
        assert_eq!((mode("usr/local/bin"), mode("")), (0o755, 0o755));
    }

    #[test]
    fn a_program_that_needs_a_dynamic_linker_is_found() {
        // This test, on a system with one; a static program has no such header.
        let dynamic = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(!is_static(&dynamic));
        let mut elf = vec![0; 0x40];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        assert!(is_static(&elf));
        // One header after the file's own: PT_LOAD, PT_INTERP, cut off.
        elf[0x20] = 0x40;
        elf[0x36] = 0x38;
        elf[0x38] = 1;
        assert!(!is_static(&elf));
        elf.extend([1, 0, 0, 0]);
        assert!(is_static(&elf));
        elf[0x40] = 3;
        assert!(!is_static(&elf));
        assert!(!is_static(b"#!/bin/sh"));
    }

    #[test]
    fn certificates_are_written_as_they_are() {
        let pem = certificates_in_pem();
        assert!(pem.lines().all(|line| line.len() <= 64));
        let blocks = pem.split("-----END CERTIFICATE-----\n");
        let decoded: Vec<Vec<u8>> = blocks
            .filter_map(|block| block.strip_prefix("-----BEGIN CERTIFICATE-----\n"))
            .map(|block| BASE64_STANDARD.decode(block.replace('\n', "")).unwrap())
            .collect();
        assert!(decoded.len() > 100);
        let shipped = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
        assert!(decoded.iter().eq(shipped.map(AsRef::as_ref)));
    }

    /// What the image lacks, a Controller of `deploy/` cannot load.
    #[test]
    fn every_guest_that_ships_is_in_the_image() {
        let workspace = workspace().unwrap();
        let shipped = fs::read_dir(workspace.join("deploy/controllers")).unwrap();
        let mut shipped: Vec<String> = shipped
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            // The guest of `deploy/policies`.
            .chain(["policy".to_owned()])
            .map(|name| name.replace('-', "_") + ".wasm")
            .collect();
        shipped.sort();
        assert_eq!(shipped, GUESTS);
    }
}
