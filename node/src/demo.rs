//! The node without a configuration: two tenants, one provider, an origin of its own, and lines to try.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;

use zeroize::Zeroizing;

use crate::config::{Config, Refused};

/// The tenants of the demo.
const TENANTS: [&str; 2] = ["alice", "bob"];

/// A configuration with fresh tokens, calling the origin at this address.
#[derive(Debug)]
pub(crate) struct Demo {
    pub(crate) config: Config,
    tokens: [String; 2],
    origin: SocketAddr,
}

impl Demo {
    /// Makes the tokens and reads the embedded configuration as if it were a file.
    ///
    /// # Errors
    ///
    /// The system gives no randomness, as text.
    pub(crate) fn new(listen: SocketAddr, origin: SocketAddr) -> Result<Self, String> {
        let token =
            |tenant| fresh_token(tenant).map_err(|error| format!("no randomness from the system: {error}"));
        let tokens = [token(TENANTS[0])?, token(TENANTS[1])?];
        let mut text = Zeroizing::new(String::with_capacity(1_024));
        // Writing to a String cannot fail.
        let _ = write!(text, "listen = \"{listen}\"\n\n");
        let _ = write!(text, "[[providers]]\nname = \"demo\"\n\n[[providers.origins]]\n");
        let _ = write!(text, "url = \"http://{origin}\"\nallow_loopback = true\n\n");
        for (tenant, token) in TENANTS.iter().zip(&tokens) {
            let _ = write!(text, "[[tenants]]\nname = \"{tenant}\"\ntoken = \"{token}\"\n\n");
        }
        let config =
            Config::parse(Path::new("(demo)"), &text).map_err(|refused: Refused| refused.to_string())?;
        Ok(Self { config, tokens, origin })
    }

    /// What a person at the terminal needs: where it listens, the tokens, lines to paste.
    pub(crate) fn welcome(&self, listen: SocketAddr) -> String {
        let [alice, bob] = &self.tokens;
        let at = format!("http://{listen}");
        format!(
            "latent-node {version}: demo

  listening on           {at}
  status page            {at}/
  counts                 {at}/snapshot
  embedded origin on     http://{origin} (reached as {at}/http/demo/)

  tenant alice           token {alice}
  tenant bob             token {bob}

Try, in another terminal:

curl -sS -H 'Authorization: Bearer {alice}' {at}/http/demo/
curl -sS -H 'Authorization: Bearer {bob}' -d 'hello from bob' {at}/http/demo/echo
curl -sS -H 'Authorization: Bearer {alice}' -o /dev/null -w '%{{size_download}} bytes\\n' {at}/http/demo/bytes/10000000
curl -sS -H 'Authorization: Bearer {bob}' {at}/http/demo/slow/500
curl -sS -H 'Authorization: Bearer {bob}' -H 'X-Deadline-Ms: 100' {at}/http/demo/slow/500
curl -sS {at}/http/demo/
curl -sS {at}/healthz
curl -sS {at}/snapshot

The fifth ends at its deadline (504), the sixth has no token (401). Stop with Ctrl-C.
For real use: latent-node serve --config FILE; examples/node.toml shows one.
",
            version = env!("CARGO_PKG_VERSION"),
            origin = self.origin,
        )
    }
}

/// 128 random bits, behind the name they belong to.
fn fresh_token(tenant: &str) -> Result<String, getrandom::Error> {
    let mut random = Zeroizing::new([0_u8; 16]);
    getrandom::fill(&mut *random)?;
    let hex: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{tenant}-{hex}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_reads_its_own_configuration() {
        let origin: SocketAddr = "127.0.0.1:4000".parse().expect("an address");
        let demo = Demo::new("127.0.0.1:0".parse().expect("an address"), origin)
            .expect("the embedded configuration is right");
        assert_eq!(demo.config.tenants.len(), 2);
        assert_ne!(demo.tokens[0], demo.tokens[1]);
        let welcome = demo.welcome("127.0.0.1:8080".parse().expect("an address"));
        let lines: Vec<&str> = welcome.lines().filter(|line| line.starts_with("curl ")).collect();
        assert_eq!(lines.len(), 8);
        assert!(lines.iter().all(|line| line.contains("http://127.0.0.1:8080/")));
        assert!(welcome.contains("listening on           http://127.0.0.1:8080"));
    }
}
