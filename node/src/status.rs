//! What the node tells of itself: counts, never names or contents.

use std::sync::atomic::Ordering;

use serde_json::{Map, Value, json};

use crate::admin::lists;
use crate::gateway::Gateway;
use crate::ingress::front::Desk;

/// The status page. It reads `/snapshot` and `/figures` every two seconds while somebody looks at it.
pub(crate) const PAGE: &str = include_str!("status.html");
/// What that page may do: run its own script and ask this node.
pub(crate) const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'";

/// Everything that is counted, at about one moment.
pub(crate) fn snapshot(desk: &Desk) -> Value {
    let mut all = library(&desk.gateway);
    let node = json!({
        "connections": desk.connections(),
        "requests": desk.requests.load(Ordering::Relaxed),
    });
    all.insert("node".to_owned(), node);
    all.insert("draining".to_owned(), lists::draining(&desk.gateway));
    Value::Object(all)
}

/// A JSON object of these fields of a snapshot.
macro_rules! counts {
    ($snapshot:expr => $($field:ident),+ $(,)?) => {{
        let snapshot = $snapshot;
        json!({ $(stringify!($field): snapshot.$field),+ })
    }};
}

/// What the library holds.
pub(crate) fn library(gateway: &Gateway) -> Map<String, Value> {
    let broker = counts!(gateway.broker.snapshot() =>
        providers, plans, tenants, sessions, metadata_bytes, closed, broken);
    let io = counts!(gateway.io.snapshot() =>
        owners, running, queued, staged_bytes, result_bytes, buffers, streams, metadata_bytes, closed);
    let pools = counts!(gateway.pools.snapshot() =>
        configurations, retained_configurations, clients, connections, active_connections, idle_connections,
        connecting_connections, retired_connections, pending_requests, running_requests, workers, cleanup_jobs,
        failed_cleanup, metadata_bytes, contained_panics, control_owners, control_failed, closed, retired);
    [("broker", broker), ("io", io), ("pools", pools)]
        .map(|(name, counts)| (name.to_owned(), counts))
        .into_iter()
        .collect()
}

/// What is set up once and stays, whatever is carried.
const SETUP: [&str; 7] = [
    "providers",
    "plans",
    "tenants",
    "clients",
    "configurations",
    "retained_configurations",
    "metadata_bytes",
];

/// What a snapshot says is held for requests, in one line.
pub(crate) fn remaining(all: &Map<String, Value>) -> String {
    let held = all.iter().flat_map(|(group, counts)| {
        let counts =
            counts.as_object().into_iter().flatten().filter(|(name, _)| !SETUP.contains(&name.as_str()));
        counts
            .filter(|(_, count)| count.as_u64().is_some_and(|count| count > 0))
            .map(move |(name, count)| format!("{group}.{name} {count}"))
    });
    let held: Vec<String> = held.collect();
    if held.is_empty() { "nothing".to_owned() } else { held.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_remains_is_what_is_not_zero() {
        let all = json!({"io": {"owners": 2, "running": 0, "closed": true}, "pools": {"connections": 1, "clients": 3}});
        let all = all.as_object().expect("an object");
        assert_eq!(remaining(all), "io.owners 2, pools.connections 1");
        assert_eq!(remaining(&Map::new()), "nothing");
    }

    #[test]
    fn the_page_polls_gently() {
        assert!(PAGE.contains("setTimeout(look, 2000)") && PAGE.contains("document.hidden"));
    }
}
