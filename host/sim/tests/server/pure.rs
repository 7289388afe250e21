//! The model is pure: without its transport the crate has no async code and no
//! sockets.

use std::process::Command;

#[test]
fn without_the_transport_there_is_no_async_code_and_no_socket() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--edges", "normal"])
        .args(["--prefix", "none", "--format", "{p}"])
        .args(["--package", "davit-sim", "--no-default-features"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let names: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert!(
        output.status.success() && names.contains(&"serde_json"),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for banned in ["tokio", "hyper", "futures", "rcgen", "rustls", "http-body"] {
        assert!(!names.contains(&banned), "{banned} is among {names:?}");
    }
}
