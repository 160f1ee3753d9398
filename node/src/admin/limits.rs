//! Limits of the pools, lowered while the node serves.
//!
//! The names are those of the configuration file below `[limits.pools]`, the values as there: numbers, or text with a unit.
//! All of them are lowered or none; one that is named twice is refused, because nobody can say which was meant. What was configured at the start comes back with a restart.

use std::fmt;
use std::sync::PoisonError;
use std::time::Duration;

use http::{Response, StatusCode};
use latent_capabilities::{Dimension, Group, LowerError, Obstacle, PoolLimits, Standing, Unit};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Value, json};

use super::Admin;
use crate::config::units;
use crate::ingress::front::Desk;
use crate::ingress::reply::{self, Reply};
use crate::refusal::{Refusal, scope_name};

/// The limits in force.
pub(super) fn show(desk: &Desk) -> Response<Reply> {
    reply::json(format!("{:#}\n", in_force(&desk.gateway.pools.limits())))
}

/// Lowers what the body asks for. 200 with the limits in force, or 409 with everything that stands in the way.
pub(super) fn lower(desk: &Desk, admin: &Admin, body: &[u8]) -> Result<Response<Reply>, Refusal> {
    let Asked(asked) = serde_json::from_slice(body).map_err(|error| {
        invalid(format!("the body must be a JSON object of limits, for example {{\"running\": 32}}: {error}"))
    })?;
    let pools = &desk.gateway.pools;
    // One at a time: what another lowers in between would look as if this one raised it.
    let _only = admin.lowering.lock().unwrap_or_else(PoisonError::into_inner);
    let mut next = pools.limits();
    read(&asked, &mut next)?;
    match pools.lower_limits(next) {
        Ok(()) => {
            let names: Vec<&str> = asked.iter().map(|(name, _)| name.as_str()).collect();
            tracing::info!(limits = names.join(" "), "lowered");
            Ok(show(desk))
        }
        Err(error) => {
            tracing::warn!(%error, "limits not lowered");
            Ok(refused(&error))
        }
    }
}

/// The members of a JSON object as they were written, a name that comes twice included.
struct Asked(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Asked {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Asked;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Asked, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Asked(members))
            }
        }
        from.deserialize_map(Members)
    }
}

fn read(asked: &[(String, Value)], into: &mut PoolLimits) -> Result<(), Refusal> {
    let mut wrong = Vec::new();
    let mut seen = Vec::new();
    for (name, value) in asked {
        let Some(dimension) = dimension(name) else {
            wrong.push(format!("{name}: no such limit of the pools; GET this path for all of them"));
            continue;
        };
        if seen.contains(&dimension) {
            wrong.push(format!("{name}: named twice"));
            continue;
        }
        seen.push(dimension);
        let set = match amount(dimension.unit(), value) {
            None => Err(right(dimension.unit()).to_owned()),
            Some(amount) => into.set(dimension, amount).map_err(|error| error.to_string()),
        };
        if let Err(text) = set {
            wrong.push(format!("{name}: {text}"));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(invalid(wrong.join("; "))) }
}

/// A limit of the pools by its name in the section, or by its whole name.
fn dimension(name: &str) -> Option<Dimension> {
    let field = name.strip_prefix("pools.").unwrap_or(name);
    pools().find(|dimension| short(*dimension) == field)
}

fn pools() -> impl Iterator<Item = Dimension> {
    Dimension::ALL.iter().copied().filter(|dimension| dimension.group() == Group::Pools)
}

fn short(dimension: Dimension) -> &'static str {
    dimension.name().split_once('.').map_or(dimension.name(), |(_, field)| field)
}

/// A value in the unit of the limit, written as in the configuration file.
fn amount(unit: Unit, value: &Value) -> Option<u64> {
    match unit {
        Unit::Count => value.as_u64(),
        Unit::Bytes => value.as_u64().or_else(|| units::bytes(value.as_str()?)),
        Unit::Millis => units::millis(value.as_str()?),
    }
}

fn right(unit: Unit) -> &'static str {
    match unit {
        Unit::Count => "must be a whole number, 0 or more",
        Unit::Bytes => "must be a number of bytes, for example 65536 or \"64 KiB\"",
        Unit::Millis => "must be a time with its unit, for example \"250 ms\" or \"5 s\"",
    }
}

/// Every limit of the pools, as it can be written in the configuration.
fn in_force(limits: &PoolLimits) -> Value {
    let each = pools().map(|dimension| {
        let value = limits.get(dimension).expect("a dimension of the pools is one of their limits");
        (short(dimension).to_owned(), written(dimension, value))
    });
    Value::Object(each.collect())
}

fn written(dimension: Dimension, value: u64) -> Value {
    match dimension.unit() {
        Unit::Count | Unit::Bytes => value.into(),
        Unit::Millis => units::show(Duration::from_millis(value)).into(),
    }
}

fn refused(error: &LowerError) -> Response<Reply> {
    let (code, message) = match error {
        LowerError::Retired => ("pools-retired", "the node is stopping".to_owned()),
        LowerError::Refused(_) => {
            ("limits-in-the-way", format!("nothing was lowered: {}", error.to_string().replace('\n', "; ")))
        }
    };
    let obstacles: Vec<Value> = error.obstacles().iter().map(obstacle).collect();
    let body = json!({ "error": code, "obstacles": obstacles, "message": message });
    let mut response = reply::json(format!("{body:#}\n"));
    *response.status_mut() = StatusCode::CONFLICT;
    response
}

fn obstacle(obstacle: &Obstacle) -> Value {
    let why = match obstacle.why {
        Standing::InUse => "in-use",
        Standing::Raised => "raised",
        Standing::Fixed => "fixed",
        Standing::Contradiction(_) => "contradiction",
        _ => "other",
    };
    json!({
        "dimension": obstacle.dimension.name(),
        "scope": scope_name(obstacle.scope),
        "asked": written(obstacle.dimension, obstacle.asked),
        "found": written(obstacle.dimension, obstacle.found),
        "why": why,
        "message": obstacle.to_string(),
    })
}

fn invalid(message: String) -> Refusal {
    Refusal::of_node(StatusCode::BAD_REQUEST, "invalid-limits", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(body: &str) -> Vec<(String, Value)> {
        let Asked(members) = serde_json::from_str(body).expect("an object");
        members
    }

    #[test]
    fn a_limit_that_is_named_twice_is_refused() {
        for body in [
            r#"{"running": 3, "running": 4}"#,
            r#"{"running": 3, "running": 3}"#,
            r#"{"pools.running": 3, "pending": 9, "running": 4}"#,
        ] {
            let mut limits = PoolLimits::default();
            let refusal = read(&members(body), &mut limits).expect_err(body);
            assert_eq!(refusal.message, "running: named twice");
        }
    }

    #[test]
    fn limits_are_read_as_the_configuration_writes_them() {
        let read_all = |body: Value| {
            let mut limits = PoolLimits::default();
            read(&members(&body.to_string()), &mut limits).map(|()| limits).map_err(|refusal| refusal.message)
        };
        let body = json!({"running": 3, "pools.pending": 4, "metadata_bytes": "4 MiB", "idle_age": "5 s"});
        let limits = read_all(body).expect("right");
        assert_eq!((limits.running, limits.pending, limits.metadata_bytes), (3, 4, 4 << 20));
        assert_eq!(limits.idle_age, Duration::from_secs(5));
        let wrong =
            json!({"runing": 3, "pending": "4", "idle_age": 5, "metadata_bytes": -1, "io.running": 2});
        let said = read_all(wrong).expect_err("all wrong");
        for text in [
            "runing: no such limit",
            "pending: must be a whole number",
            "idle_age: must be a time with its unit",
            "metadata_bytes: must be a number of bytes",
            "io.running: no such limit of the pools",
        ] {
            assert!(said.contains(text), "{text} is missing in {said}");
        }
    }

    #[test]
    fn what_is_shown_can_be_asked_for() {
        let shown = in_force(&PoolLimits::default());
        let mut read_back = PoolLimits { running: 1, ..PoolLimits::default() };
        read(&members(&shown.to_string()), &mut read_back).expect("as shown");
        assert_eq!(read_back, PoolLimits::default());
    }
}
