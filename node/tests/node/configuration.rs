//! `check` and `serve` on files that can be used and files that cannot.

use latent_capabilities::Dimension;

use super::support::node::{Folder, program};

const GOOD: &str = "
[[tenants]]
name = \"alice\"
token = \"secret-of-alice\"
[[providers]]
name = \"local\"
[[providers.origins]]
url = \"http://127.0.0.1:9000\"
allow_loopback = true
";

/// Exit code, standard output, standard error.
fn run(command: &str, content: &str) -> (Option<i32>, String, String) {
    let folder = Folder::new();
    let file = folder.write("node.toml", content);
    let output = program().arg(command).arg("--config").arg(&file).output().expect("the program runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Case S24.
#[test]
fn check_explains_every_limit_with_its_source() {
    let (code, said, log) = run("check", &format!("limits.io.running = 32\n{GOOD}"));
    assert_eq!(code, Some(0), "{log}");
    for dimension in Dimension::ALL {
        let line = said.lines().find(|line| line.starts_with(&format!("{dimension} ")));
        let line = line.unwrap_or_else(|| panic!("{dimension} is missing in\n{said}"));
        let source = if *dimension == Dimension::IoRunning { "config:1" } else { "default" };
        assert!(line.contains(source) && line.contains(dimension.about()), "{line}");
        assert!(line.contains(&dimension.show(dimension.ceiling()).to_string()), "{line}");
    }
    assert!(!said.contains("secret-of-alice") && !log.contains("secret-of-alice"));
}

/// The table of what must be said is beside the code, in `config/tests.rs`; this is the way to the terminal.
#[test]
fn what_cannot_be_used_is_told_with_file_and_line_and_ends_with_2() {
    #[rustfmt::skip]
    let table = [
        ("lisen = \"127.0.0.1:0\"", "node.toml:1: lisen: unknown key; did you mean listen?"),
        ("limits.io.running = 5000", "node.toml:1: limits.io.running = 5000: 5,000 does not go: that is its ceiling; 1 to 4,096 would be right"),
        ("limits.pools.running = 4", "limits.pools.running_per_tenant: (default) 16 does not go: at most pools.running"),
        ("limits.io.metadata_bytes = 1", "limits.io.metadata_bytes"),
        ("grace = 10", "node.toml:1: grace = 10: must be a time with its unit"),
        ("[[tenants]]\nname = \"alice\"\ntoken = \"other\"", "used already in line"),
        ("[[tenants]]\nname = \"bob\"\ntoken = \"\"", "node.toml:3: tenants[0].token: empty"),
        ("[[tenants]]\nname = \"bob\"\ntoken = \"secret-of-alice\"", "the token of tenant bob: every tenant needs its own"),
        ("[[tenants]]\nname = \"bob\"\ntoken_file = \"missing\"", "missing cannot be read"),
        ("[[providers]]\nname = \"p\"\n[[providers.origins]]\nurl = \"ftp://x\"", "neither http nor https"),
        ("this is not TOML", "node.toml:1: not TOML"),
    ];
    for (extra, expected) in table {
        for command in ["check", "serve"] {
            let (code, out, said) = run(command, &format!("{extra}\n{GOOD}"));
            assert_eq!(code, Some(2), "{command} {extra}\n{out}{said}");
            assert!(said.contains(expected), "{command} {extra}\n  said: {said}\n  expected: {expected}");
            assert!(!said.contains("secret-of-alice"), "{said}");
        }
    }
}

#[test]
fn a_missing_file_or_word_is_told() {
    let output =
        program().args(["serve", "--config", "/no/such/file.toml"]).output().expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("/no/such/file.toml: cannot be read"), "{said}");
    let output = program().args(["check", "--config", "/dev/zero"]).output().expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("/dev/zero: endless"), "{said}");
    let output = program().args(["serve"]).output().expect("the program runs");
    assert_eq!(output.status.code(), Some(2));
    let output = program().env("LATENT_LOG", "=,").output().expect("the program runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("LATENT_LOG cannot be used"));
}

#[test]
fn check_into_a_pipe_that_nobody_reads_is_no_panic() {
    let folder = Folder::new();
    let file = folder.write("node.toml", GOOD);
    let mut child = program().arg("check").arg("--config").arg(&file).spawn().expect("the program runs");
    // Gone before anything can have been written: the report fits no pipe that has no reader.
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("panicked"), "{said}");
}
