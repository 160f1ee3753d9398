//! `[admin]`: where operators rotate, lower, retire and look, and the token that they need.

use std::net::SocketAddr;

use super::node::{Node, address};
use super::reader::Section;
use super::tenants::{LONGEST_TOKEN, Tenant, token_fault};
use super::{Secret, read_file};

/// The listener of operators.
#[derive(Debug)]
pub(crate) struct Admin {
    /// A loopback address.
    pub(crate) listen: SocketAddr,
    /// What its requests carry as `Authorization: Bearer`.
    pub(crate) token: Secret,
    /// Where the token was read from, for people.
    pub(crate) source: String,
}

/// `None`: no listener, or one that cannot be; the second has been told.
pub(super) fn read(section: Section<'_>, node: &Node, tenants: &[Tenant]) -> Option<Admin> {
    if !section.is_written() {
        return None;
    }
    let listen = section.string("listen");
    if !section.has("listen") {
        section.wrong("listen", "missing: a loopback address with a port, for example \"127.0.0.1:8082\"");
    }
    let at = listen.clone().and_then(address);
    if let (Some(at), Some(found)) = (at, &listen) {
        if !at.ip().to_canonical().is_loopback() {
            found.wrong(
                "not a loopback address: who can reach this may replace credentials and stop the node; write \
                 \"127.0.0.1:8082\" and reach it through a tunnel",
            );
        } else if at.port() != 0 && (at == node.listen || Some(at) == node.status) {
            found.wrong("the same as listen or status: operators have a listener of their own");
        }
    }
    let token = token(&section, tenants);
    section.finish();
    let (token, source) = token?;
    Some(Admin { listen: at?, token, source })
}

fn token(section: &Section<'_>, tenants: &[Tenant]) -> Option<(Secret, String)> {
    // Asked for only to say what to write instead: the value is not kept.
    if let Some(found) = section.secret("token") {
        found.wrong("this token is not kept in the configuration: write token_file or token_env");
        return None;
    }
    let (found, secret, source) = match (section.string("token_file"), section.string("token_env")) {
        (Some(_), Some(variable)) => {
            variable.wrong("token_file is written too: write only one of them");
            return None;
        }
        (None, None) => {
            if !["token", "token_file", "token_env"].iter().any(|key| section.has(key)) {
                section.wrong("token_file", "missing: write token_file or token_env");
            }
            return None;
        }
        (Some(found), None) => {
            let content =
                found.clone().read(|name| read_file(section.problems(), name, LONGEST_TOKEN + 2))?;
            let text = std::str::from_utf8(&content).map_err(|_| "the file does not hold text");
            let secret = found.clone().read(|_| text)?;
            let source = format!("file {}", found.value);
            (found.with(()), Secret::new(secret.trim_ascii_end()), source)
        }
        (None, Some(found)) => {
            let secret = found.clone().read(|name| match std::env::var(name) {
                Ok(value) => Ok(Secret::new(value)),
                Err(std::env::VarError::NotPresent) => Err("no such variable in the environment"),
                Err(std::env::VarError::NotUnicode(_)) => Err("the variable does not hold text"),
            })?;
            let source = format!("environment variable {}", found.value);
            (found.with(()), secret, source)
        }
    };
    if let Some(fault) = token_fault(secret.reveal()) {
        found.wrong(fault);
        return None;
    }
    if let Some(tenant) = tenants.iter().find(|tenant| tenant.token.reveal() == secret.reveal()) {
        found.wrong(format!("the token of tenant {}: operators need their own", tenant.name));
        return None;
    }
    Some((secret, source))
}
