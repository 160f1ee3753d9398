//! Who holds what, for operators: every tenant, provider, epoch and client by name.

use latent_capabilities::{
    ClientCounts, EpochCounts, Listing, ProviderCounts, ProviderPools, RequestCounts, TenantCounts,
};
use serde_json::{Map, Value, json};

use crate::gateway::Gateway;

/// Four lists, oldest or lowest number first.
pub(crate) fn lists(gateway: &Gateway) -> Map<String, Value> {
    let pools = &gateway.pools;
    let tenants: Vec<Value> = all(|into| pools.tenants(into)).iter().map(tenant).collect();
    let providers: Vec<Value> = all(|into| pools.providers(into)).iter().map(provider).collect();
    let epochs: Vec<Value> = epochs(pools).iter().map(epoch).collect();
    let clients: Vec<Value> = all(|into| pools.clients(into)).iter().map(client).collect();
    [("tenants", tenants), ("providers", providers), ("epochs", epochs), ("clients", clients)]
        .map(|(name, list)| (name.to_owned(), Value::Array(list)))
        .into_iter()
        .collect()
}

/// What is left of replaced epochs, all together and without names.
pub(crate) fn draining(gateway: &Gateway) -> Value {
    let pools = gateway.pools.snapshot();
    // Nearly always there are none, and then nobody looks at every operation for it.
    let any = pools.retained_configurations > pools.configurations;
    let mut old = if any { epochs(&gateway.pools) } else { Vec::new() };
    old.retain(|epoch| !epoch.is_current);
    json!({
        "epochs": old.len(),
        "requests": old.iter().map(|epoch| u64::from(epoch.requests.total())).sum::<u64>(),
        "connections": old.iter().map(|epoch| epoch.connections).sum::<u64>(),
    })
}

fn epochs(pools: &ProviderPools) -> Vec<EpochCounts> {
    all(|into| pools.epochs(into))
}

/// A whole listing: asked again with more room if it did not fit.
fn all<T: Clone + Default>(list: impl Fn(&mut [T]) -> Listing) -> Vec<T> {
    let mut room = 64;
    loop {
        let mut entries = vec![T::default(); room];
        let listing = list(&mut entries);
        if listing.is_complete() {
            entries.truncate(listing.written);
            return entries;
        }
        // Others may come meanwhile.
        room = listing.total + 16;
    }
}

fn tenant(counts: &TenantCounts) -> Value {
    json!({
        "tenant": &*counts.name,
        "number": counts.number,
        "plans": counts.plans,
        "requests": counts.requests,
        "running_requests": counts.running_requests,
        "is_blocked": counts.is_blocked,
        "bytes": counts.bytes,
    })
}

fn provider(counts: &ProviderCounts) -> Value {
    json!({
        "provider": &*counts.name,
        "number": counts.number,
        "installed_epoch": counts.installed.map(|epoch| epoch.0),
        "epochs": counts.epochs,
        "requests": counts.requests,
        "running_requests": counts.running_requests,
        "is_blocked": counts.is_blocked,
        "clients": counts.clients,
        "connections": counts.connections,
        "idle_connections": counts.idle_connections,
    })
}

fn epoch(counts: &EpochCounts) -> Value {
    let RequestCounts { pending, running, returned } = counts.requests;
    json!({
        "provider": &*counts.name,
        "epoch": counts.epoch.0,
        "is_current": counts.is_current,
        "is_drained": counts.is_drained(),
        "pending_requests": pending,
        "running_requests": running,
        "returned_requests": returned,
        "clients": counts.clients,
        "connections": counts.connections,
        "idle_connections": counts.idle_connections,
    })
}

fn client(counts: &ClientCounts) -> Value {
    let RequestCounts { pending, running, returned } = counts.requests;
    let pause = counts.retry_after.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    json!({
        "provider": &*counts.name,
        "epoch": counts.epoch.0,
        "origin": counts.origin.number(),
        "number": counts.number,
        "is_current": counts.is_current,
        "pending_requests": pending,
        "running_requests": running,
        "returned_requests": returned,
        "acquiring_requests": counts.acquiring_requests,
        "connections": counts.connections,
        "idle_connections": counts.idle_connections,
        "is_dialing": counts.is_dialing,
        "failures": counts.failures,
        "retry_after_ms": pause,
    })
}
