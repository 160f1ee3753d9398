//! Configurations that must be refused, each with what must be said.

use std::path::Path;

use super::*;

/// The smallest configuration that can be used.
const GOOD: &str = r#"
[[tenants]]
name = "alice"
token = "secret-of-alice"
[[providers]]
name = "local"
[[providers.origins]]
url = "http://127.0.0.1:9000"
allow_loopback = true
"#;

fn parse(content: &str) -> Result<Config, Refused> {
    Config::parse(Path::new("node.toml"), content)
}

/// What is said of `extra` in front of the good configuration.
fn said_of_root(extra: &str) -> String {
    said(&format!("{extra}\n{GOOD}"))
}

fn said(content: &str) -> String {
    parse(content).map_or_else(|refused| refused.to_string(), |_| "can be used".to_owned())
}

#[test]
fn the_smallest_and_the_example_can_be_used() {
    assert_eq!(said(GOOD), "can be used");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/node.toml");
    let config = Config::load(&file).expect("the example is right");
    assert_eq!(config.tenants.len(), 2);
    assert_eq!(config.tenants[0].allowed, [true, false]);
    assert_eq!(config.tenants[1].allowed, [true, true]);
    assert_eq!(config.providers[1].http.origins[0].url, "https://orders.example:8443");
    assert_eq!(config.limits.broker.stream_output_bytes, 32 << 20);
    assert_eq!(config.limits.source(latent_capabilities::Dimension::IoRunning), Source::Default);
}

/// Each line: what is written, and what must be said of it.
#[test]
fn what_cannot_be_used_is_refused_with_key_value_and_remedy() {
    #[rustfmt::skip]
    let table: &[(&str, &str)] = &[
        ("lisen = \"127.0.0.1:1\"", "node.toml:1: lisen: unknown key; did you mean listen?"),
        ("colour = 1", "colour: unknown key; known here: listen, status,"),
        ("listen = \"localhost\"", "node.toml:1: listen = \"localhost\": must be an address with a port"),
        ("listen = 8080", "listen = 8080: must be a string in quotes"),
        ("listen = \"127.0.0.1:1\"\nstatus = \"127.0.0.1:1\"", "node.toml:2: status = \"127.0.0.1:1\": the same as listen"),
        ("grace = 10", "grace = 10: must be a time with its unit, for example"),
        ("grace = \"11 min\"", "grace = \"11 min\": must be 0 ms to 10 min"),
        ("workers = 0", "workers = 0: must be 1 to 1024"),
        ("workers = -1", "workers = -1: must be a whole number, 0 or more"),
        ("[ingress]\nconnections = 0", "node.toml:2: ingress.connections = 0: must be 1 to 65536"),
        ("[ingress]\nhead_bytes = \"1 KiB\"", "ingress.head_bytes = \"1 KiB\": must be 8192 to 262144"),
        ("[ingress]\ndeadline = \"6 min\"", "deadline 6 min must not be longer than longest_deadline 5 min"),
        ("[ingress]\nearly_abort = \"yes\"", "ingress.early_abort = \"yes\": must be true or false"),
        ("[limits.io]\nrunning = 5000", "limits.io.running = 5000: 5,000 does not go: that is its ceiling; 1 to 4,096 would be right"),
        ("limits.io.running = 0", "limits.io.running = 0: 0 does not go: it must not be less"),
        ("limits.io.owners = 10", "limits.io.running: (default) 64 does not go: at most io.owners"),
        ("limits.pools.running = 4", "limits.pools.running_per_tenant: (default) 16 does not go: at most pools.running"),
        ("limits.io.runing = 1", "limits.io.runing: unknown key; did you mean running?"),
        ("limits.ios.running = 1", "limits.ios: unknown key; did you mean io?"),
        ("limits.io.staged_bytes = \"8 MB\"", "must be a number of bytes, for example 65536 or \"64 KiB\""),
        ("limits.pools.queue_age = 5", "limits.pools.queue_age = 5: must be a time with its unit"),
        ("limits.pools.running = 99999999999", "limits.pools.running = 99999999999: pools.running cannot be"),
        ("limits = 3", "limits = 3: must be a table: [limits]"),
        ("listen = ", "node.toml:1: not TOML:"),
    ];
    for (extra, expected) in table {
        let said = said_of_root(extra);
        assert!(said.contains(expected), "{extra}\n  said: {said}\n  expected: {expected}");
    }
}

#[test]
fn the_listener_of_operators_is_checked() {
    let with = |admin: &str| said(&format!("{GOOD}\n[admin]\n{admin}"));
    #[rustfmt::skip]
    let table: &[(&str, &str)] = &[
        ("", "admin.listen: missing"),
        ("listen = \"127.0.0.1:0\"", "admin.token_file: missing: write token_file or token_env"),
        ("listen = \"0.0.0.0:8082\"\ntoken_env = \"PATH\"", "admin.listen = \"0.0.0.0:8082\": not a loopback address"),
        ("listen = \"192.0.2.1:8082\"\ntoken_env = \"PATH\"", "not a loopback address"),
        ("listen = \"[::]:8082\"\ntoken_env = \"PATH\"", "not a loopback address"),
        ("listen = \"127.0.0.1:8080\"\ntoken_env = \"PATH\"", "the same as listen or status"),
        ("listen = \"127.0.0.1:0\"\ntoken = \"hush\"", "admin.token: this token is not kept in the configuration: write token_file or token_env"),
        ("listen = \"127.0.0.1:0\"\ntoken_file = \"a\"\ntoken_env = \"b\"", "token_file is written too: write only one"),
        ("listen = \"127.0.0.1:0\"\ntoken_file = \"no-such-file\"", "admin.token_file = \"no-such-file\": no-such-file cannot be read"),
        ("listen = \"127.0.0.1:0\"\ntoken_env = \"LATENT_NO_SUCH\"", "admin.token_env = \"LATENT_NO_SUCH\": no such variable in the environment"),
        ("listen = \"127.0.0.1:0\"\ntoken_env = \"PATH\"\nlimit = 1", "admin.limit: unknown key"),
        ("listen = \"[::1]:0\"\ntoken_env = \"PATH\"", "can be used"),
    ];
    for (admin, expected) in table {
        let said = with(admin);
        assert!(said.contains(expected), "{admin}\n  said: {said}\n  expected: {expected}");
        assert!(!said.contains("hush"), "a token was shown: {said}");
    }
    assert!(parse(GOOD).expect("it can be used").admin.is_none(), "without [admin] there is no listener");
}

#[test]
fn tenants_are_checked() {
    let good_provider = GOOD.split_once("[[providers]]").expect("a provider").1;
    let with = |tenants: &str| said(&format!("{tenants}\n[[providers]]{good_provider}"));
    #[rustfmt::skip]
    let table: &[(&str, &str)] = &[
        ("", "node.toml: tenants: missing: nobody could call"),
        ("[[tenants]]\ntoken = \"x\"", "node.toml:1: tenants[0].name: missing"),
        ("[[tenants]]\nname = \"a b\"\ntoken = \"x\"", "tenants[0].name = \"a b\": must be 1 to 64 letters"),
        ("[[tenants]]\nname = \"a\"", "node.toml:1: tenants[0].token: missing: write token or token_file"),
        ("[[tenants]]\nname = \"a\"\ntoken = \"\"", "node.toml:3: tenants[0].token: empty"),
        ("[[tenants]]\nname = \"a\"\ntoken = \"x y\"", "tenants[0].token: must be visible ASCII"),
        ("[[tenants]]\nname = \"a\"\ntoken = 7", "tenants[0].token: must be a string in quotes"),
        ("[[tenants]]\nname = \"a\"\ntoken = \"x\"\ntoken_file = \"f\"", "token is written too: write only one"),
        ("[[tenants]]\nname = \"a\"\ntoken_file = \"no-such-file\"", "tenants[0].token_file = \"no-such-file\": no-such-file cannot be read"),
        ("[[tenants]]\nname = \"a\"\ntoken = \"x\"\n[[tenants]]\nname = \"a\"\ntoken = \"y\"", "tenants[1].name = \"a\": used already in line 2"),
        ("[[tenants]]\nname = \"a\"\ntoken = \"x\"\n[[tenants]]\nname = \"b\"\ntoken = \"x\"", "node.toml:6: tenants[1].token: the token of tenant a"),
        ("[[tenants]]\nname = \"a\"\ntoken = \"x\"\nproviders = [\"remote\"]", "tenants[0].providers[0] = \"remote\": no such provider; there is local"),
        ("[[tenants]]\nname = \"a\"\ntoken = \"x\"\nproviders = \"local\"", "must be a list of strings"),
        ("[[tenants]]\nname = \"a\"\ntoken = \"x\"\nlimits.deadline = \"6 min\"", "must be at most ingress.longest_deadline 5 min"),
        ("[[tenants]]\nname = \"a\"\ntoken = \"x\"\nlimits.request_bytes = \"17 MiB\"", "must be at most limits.broker.stream_input_bytes, which is 16 MiB"),
        ("limits.broker.plans = 1\n[[tenants]]\nname = \"a\"\ntoken = \"x\"\n[[tenants]]\nname = \"b\"\ntoken = \"y\"", "in 2 ways together, more than limits.broker.plans 1"),
        ("limits.broker.tenants = 1\n[[tenants]]\nname = \"a\"\ntoken = \"x\"\n[[tenants]]\nname = \"b\"\ntoken = \"y\"", "tenants[1]: 2 tenants are more than limits.broker.tenants 1"),
    ];
    for (tenants, expected) in table {
        let said = with(tenants);
        assert!(said.contains(expected), "{tenants}\n  said: {said}\n  expected: {expected}");
        assert!(!said.contains("x y") && !said.contains("= 7"), "a token was shown: {said}");
    }
}

#[test]
fn providers_are_checked() {
    let tenant = GOOD.split_once("[[providers]]").expect("a provider").0;
    let with = |providers: &str| said(&format!("{tenant}{providers}"));
    let local = "[[providers]]\nname = \"p\"\n[[providers.origins]]\nurl = \"http://127.0.0.1:1\"\nallow_loopback = true\n";
    let origin = |rest: &str| format!("[[providers]]\nname = \"p\"\n[[providers.origins]]\n{rest}");
    #[rustfmt::skip]
    let table: &[(String, &str)] = &[
        (String::new(), "node.toml: providers: missing: nothing could be called"),
        ("[[providers]]\nname = \"p\"".to_owned(), "providers[0].origins: missing"),
        (origin(""), "providers[0].origins[0].url: missing"),
        (origin("url = \"127.0.0.1\""), "providers[0].origins[0].url = \"127.0.0.1\": has no scheme"),
        (origin("url = \"http://127.0.0.1:1\""), "a loopback address: write allow_loopback = true"),
        (origin("url = \"http://10.0.0.1\""), "a private address: write allow_private = true"),
        (origin("url = \"http://169.254.169.254\""), "a special address: write allow_addresses = [\"169.254.169.254\"]"),
        (origin("url = \"http://example.org\"\naddresses = [\"10.0.0.1\"]"), "origins[0].addresses[0] = \"10.0.0.1\": a private address"),
        (origin("url = \"http://example.org\"\naddresses = [\"10.0.0.1:80\"]"), "must be an IP address without a port"),
        (origin("url = \"http://example.org\"\n[providers.origins.tls]\nserver_name = \"a\""), "providers[0].origins[0].tls: the url is http"),
        (origin("url = \"https://example.org\"\ntls.server_name = \"-\""), "tls.server_name = \"-\": must be a host name"),
        (origin("url = \"https://example.org\"\ntls.roots_file = \"none.pem\""), "none.pem cannot be read"),
        (format!("{local}{local}"), "providers[1].name = \"p\": used already in line"),
        (format!("{local}[providers.credential]\nfile = \"none\""), "providers[0].credential.header: missing"),
        (format!("{local}[providers.credential]\nheader = \"a b\"\nfile = \"none\""), "must be the name of a header"),
        (format!("{local}[providers.credential]\nheader = \"authorization\"\nfile = \"none\""), "none cannot be read"),
        (format!("{local}[providers.credential]\nheader = \"authorization\""), "providers[0].credential.file: missing"),
        (format!("{local}[providers.body]\nrequest_bytes = \"64 MiB\""), "must be at most limits.broker.stream_input_bytes"),
        (format!("{local}[providers.body]\nchunk_bytes = \"1 MiB\""), "must be at most limits.io.chunk_bytes, which is 64 KiB"),
        (format!("{local}[providers.body]\noutstanding_chunks = 9"), "must be at most limits.io.stream_chunks, which is 8"),
        (format!("{local}[providers.dial]\nattempt = \"1 ms\""), "providers[0].dial.attempt = \"1 ms\": must be 10 ms to 1 min"),
        (format!("{local}[providers.dns]\nservers = [\"ns.example\"]"), "providers[0].dns.servers[0] = \"ns.example\": must be an IP address"),
        (format!("{local}[providers.head]\nrequest_headers = 0"), "providers[0].head.request_headers = 0: must be 1 to 256"),
        (format!("{local}[providers.policy]\nwall_time = \"0 s\""), "must be longer than 0 ms"),
        (format!("{local}[providers.polcy]\nwall_time = \"1 s\""), "providers[0].polcy: unknown key; did you mean policy?"),
    ];
    for (providers, expected) in table {
        let said = with(providers);
        assert!(said.contains(expected), "{providers}\n  said: {said}\n  expected: {expected}");
    }
}

#[test]
fn all_problems_are_told_at_once() {
    let refused =
        parse("listen = 1\nworkers = 0\nfoo = 1\nlimits.io.running = 0\n").expect_err("many mistakes");
    let lines: Vec<Option<usize>> = refused.problems().iter().map(|problem| problem.line).collect();
    assert_eq!(lines, [Some(1), Some(2), Some(3), Some(4), None, None]);
    assert!(refused.to_string().ends_with("6 problems"));
}

#[test]
fn a_broken_file_does_not_show_its_lines() {
    let said = said("[[tenants]]\nname = \"a\"\ntoken = \"hush\n");
    assert!(said.starts_with("node.toml:3: not TOML:") && !said.contains("hush"), "{said}");
}
