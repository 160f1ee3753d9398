//! From an origin to its addresses: fixed ones at once, names by asking name servers over sockets of the call itself.
//!
//! No thread is used for it, however many calls wait and however silent the servers are.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::config::{MAXIMUM_ADDRESSES, ResolverConfig};
use super::dns::{self, Answer, Lookup};
use super::error::ResolveFault;
use super::origin::{Host, Origin, Resolved};

const RESOLV_CONF: &str = "/etc/resolv.conf";
/// Name servers taken from the system's configuration, as the system itself does.
const SYSTEM_SERVERS: usize = 3;
/// The longest pause between two askings.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(8);

/// Asks name servers.
#[derive(Debug)]
pub(crate) struct Resolver {
    servers: Vec<SocketAddr>,
    attempt: Duration,
    maximum_ttl: Duration,
}

impl Resolver {
    /// Reads the system's configuration where none is given.
    pub(crate) fn new(config: &ResolverConfig) -> Self {
        let servers = if config.servers.is_empty() {
            // A file that is missing or unreadable is a system without name servers, which is said when one is needed.
            servers_of(&std::fs::read_to_string(RESOLV_CONF).unwrap_or_default())
        } else {
            config.servers.clone()
        };
        Self { servers, attempt: config.attempt, maximum_ttl: config.maximum_ttl }
    }

    /// The addresses of an origin, at most [`MAXIMUM_ADDRESSES`], unchecked. Ends by the deadline around it: servers
    /// that say nothing are asked again and again, at growing intervals.
    pub(crate) async fn addresses(&self, origin: &Origin) -> Result<Vec<IpAddr>, ResolveFault> {
        let name = match &origin.host {
            Host::Fixed(addresses) => {
                // What the configuration does not allow is left out here, so that `localhost` works with one family.
                let allowed = addresses.iter().copied().filter(|address| origin.allow.permits(*address));
                return Ok(allowed.collect());
            }
            Host::Name(name) => name,
        };
        if let Some(addresses) = origin.remembered(Instant::now()) {
            return Ok(addresses);
        }
        let answer = self.ask(name).await?;
        let ttl = Duration::from_secs(answer.ttl.into()).min(self.maximum_ttl);
        let mut addresses = answer.addresses;
        addresses.truncate(MAXIMUM_ADDRESSES);
        if !ttl.is_zero() {
            origin.remember(Resolved { addresses: addresses.clone(), until: Instant::now() + ttl });
        }
        Ok(addresses)
    }

    async fn ask(&self, name: &str) -> Result<Answer, ResolveFault> {
        if self.servers.is_empty() {
            return Err(ResolveFault::NoServer);
        }
        let mut pause = self.attempt;
        loop {
            let mut fault = ResolveFault::ServerFailed;
            let mut silent = 0;
            for server in &self.servers {
                let lookup = dns::lookup(*server, name, pause);
                // The time limit is a second one: the lookup itself gives up waiting for datagrams in time.
                match timeout(pause * 2, lookup).await {
                    Ok(Lookup::Answer(answer)) if answer.addresses.is_empty() => {
                        return Err(ResolveFault::NoAddress);
                    }
                    Ok(Lookup::Answer(answer)) => return Ok(answer),
                    Ok(Lookup::Failed(failed)) => fault = failed,
                    Ok(Lookup::Silent) | Err(_) => silent += 1,
                }
            }
            if silent == 0 {
                return Err(fault);
            }
            pause = (pause * 2).min(LONGEST_ATTEMPT);
        }
    }
}

/// The `nameserver` lines of a resolver configuration.
fn servers_of(text: &str) -> Vec<SocketAddr> {
    let address = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next()).flatten()?.parse::<IpAddr>().ok()
    };
    text.lines()
        .filter_map(address)
        .map(|address| if address.is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { address })
        .map(|address| SocketAddr::new(address, 53))
        .take(SYSTEM_SERVERS)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_come_from_the_systems_configuration() {
        let text = "# nameserver 9.9.9.9\nsearch example.org\nnameserver 10.0.0.2\n nameserver\t::1 # local\n\
                    nameserver fe80::1%eth0\nnameserver 0.0.0.0\nnameserver 10.0.0.3\n";
        let servers: Vec<_> = servers_of(text).iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["10.0.0.2:53", "[::1]:53", "127.0.0.1:53"]);
        assert!(servers_of("").is_empty());
    }
}
