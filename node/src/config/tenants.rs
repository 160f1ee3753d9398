//! `[[tenants]]`: who may call, with which token, what, and within which limits.

use std::time::Duration;

use latent_capabilities::Dimension;

use super::bounds::within;
use super::node::Ingress;
use super::problem::Problems;
use super::providers::Provider;
use super::reader::Section;
use super::{Limits, Secret, read_file, read_name, units};

/// Who may call.
#[derive(Debug)]
pub(crate) struct Tenant {
    /// Its name in plans, logs and figures.
    pub(crate) name: String,
    /// What its requests carry as `Authorization: Bearer`.
    pub(crate) token: Secret,
    /// For each provider of the configuration, whether it may be called.
    pub(crate) allowed: Vec<bool>,
    /// Longest deadline of its requests, if shorter than the ingress allows.
    pub(crate) deadline: Option<Duration>,
    /// Bytes of one request body, if fewer than the provider allows.
    pub(crate) request_bytes: Option<u64>,
    /// Bytes of one response body, if fewer than the provider allows.
    pub(crate) response_bytes: Option<u64>,
}

/// Bytes of a token: what one header line carries without trouble anywhere.
pub(super) const LONGEST_TOKEN: usize = 1_024;

/// What makes a text no token.
pub(super) fn token_fault(text: &str) -> Option<String> {
    if text.is_empty() {
        Some("empty: a token needs at least one character, better 32 random ones".to_owned())
    } else if text.len() > LONGEST_TOKEN {
        Some(format!("longer than {LONGEST_TOKEN} bytes"))
    } else if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        Some("must be visible ASCII without spaces: it travels in a header".to_owned())
    } else {
        None
    }
}

pub(super) fn read(
    sections: Vec<Section<'_>>,
    providers: &[Provider],
    limits: &Limits,
    ingress: &Ingress,
) -> Vec<Tenant> {
    let ceiling = limits.value(Dimension::BrokerTenants);
    if let Some(first_over) = sections.get(usize::try_from(ceiling).unwrap_or(usize::MAX)) {
        let text = format!("{} tenants are more than limits.broker.tenants {ceiling}", sections.len());
        first_over.wrong("", text);
    }
    let (mut names, mut tokens) = (Vec::new(), Vec::new());
    let read = |section| tenant(section, &mut names, &mut tokens, providers, limits, ingress);
    sections.into_iter().map(read).collect()
}

/// Each provider that a tenant may call takes a plan.
pub(super) fn check_grants(problems: &Problems, tenants: &[Tenant], limits: &Limits) {
    let grants: usize =
        tenants.iter().map(|tenant| tenant.allowed.iter().filter(|allowed| **allowed).count()).sum();
    let most = limits.value(Dimension::BrokerPlans);
    if grants as u64 > most {
        let text = format!(
            "tenants may call providers in {grants} ways together, more than limits.broker.plans {most}"
        );
        problems.add_general("tenants", text);
    }
}

fn tenant(
    section: Section<'_>,
    names: &mut Vec<(String, usize)>,
    tokens: &mut Vec<(Secret, String)>,
    providers: &[Provider],
    limits: &Limits,
    ingress: &Ingress,
) -> Tenant {
    let name = read_name(&section, names);
    let token = token(&section, &name, tokens);
    let allowed = match section.strings("providers") {
        None => vec![true; providers.len()],
        Some(listed) => {
            for found in &listed {
                if !providers.iter().any(|provider| provider.name == found.value) {
                    let known: Vec<&str> = providers.iter().map(|provider| provider.name.as_str()).collect();
                    found.wrong(format!("no such provider; there is {}", known.join(", ")));
                }
            }
            providers.iter().map(|provider| listed.iter().any(|found| found.value == provider.name)).collect()
        }
    };
    let inner = section.section("limits");
    let deadline = inner.duration("deadline").and_then(|found| {
        found.read(|time| match *time {
            time if time.is_zero() => Err("must be longer than 0 ms".to_owned()),
            time if time > ingress.longest_deadline => {
                let longest = units::show(ingress.longest_deadline);
                Err(format!("must be at most ingress.longest_deadline {longest}"))
            }
            time => Ok(time),
        })
    });
    let request_bytes = within(&inner, "request_bytes", limits, Dimension::BrokerStreamInputBytes);
    let response_bytes = within(&inner, "response_bytes", limits, Dimension::BrokerStreamOutputBytes);
    inner.finish();
    section.finish();
    Tenant { name, token, allowed, deadline, request_bytes, response_bytes }
}

fn token(section: &Section<'_>, tenant: &str, others: &mut Vec<(Secret, String)>) -> Secret {
    let empty = || Secret::new(String::new());
    let (found, secret) = match (section.secret("token"), section.string("token_file")) {
        (Some(_), Some(file)) => {
            file.wrong("token is written too: write only one of them");
            return empty();
        }
        (None, None) => {
            if !section.has("token") && !section.has("token_file") {
                section.wrong("token", "missing: write token or token_file");
            }
            return empty();
        }
        (Some(found), None) => {
            let secret = Secret::new(found.value.reveal());
            (found.with(()), secret)
        }
        (None, Some(found)) => {
            let content = found.clone().read(|name| read_file(section.problems(), name, LONGEST_TOKEN + 2));
            let Some(content) = content else { return empty() };
            let Ok(text) = std::str::from_utf8(&content) else {
                found.wrong("the file does not hold text");
                return empty();
            };
            (found.with(()), Secret::new(text.trim_ascii_end()))
        }
    };
    let text = secret.reveal();
    if let Some(fault) = token_fault(text) {
        found.wrong(fault);
    } else if let Some((_, other)) = others.iter().find(|(other, _)| other.reveal() == text) {
        found.wrong(format!("the token of tenant {other}: every tenant needs its own"));
    } else {
        others.push((Secret::new(text), tenant.to_owned()));
    }
    secret
}
