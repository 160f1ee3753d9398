//! What happened since the start: numbers that only grow.

use latent_capabilities::PoolFigures;
use serde_json::{Map, Value, json};

use crate::gateway::Gateway;

/// The figures that fit a page: what was never refused is left out, and of the time in line the quantiles are told.
pub(crate) fn figures(gateway: &Gateway) -> Value {
    let figures = gateway.pools.figures();
    let quantile = |per_mille| {
        let time = figures.queue_age.quantile(per_mille);
        time.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
    };
    json!({
        "operations": figures.operations,
        "grants": figures.grants,
        "refusals": figures.all_refusals().map(|(_, count)| count).sum::<u64>(),
        "refusals_by_dimension": refusals(&figures),
        "queued_grants": figures.queue_age.count(),
        "queue_age_p50_micros": quantile(500),
        "queue_age_p99_micros": quantile(990),
        "queue_age_p999_micros": quantile(999),
        "high_water": high_water(&figures),
    })
}

/// The most that was ever used, by dimension, in its own unit.
fn high_water(figures: &PoolFigures) -> Map<String, Value> {
    figures.all_high_water().map(|(dimension, most)| (dimension.name().to_owned(), most.into())).collect()
}

fn refusals(figures: &PoolFigures) -> Map<String, Value> {
    let some = figures.all_refusals().filter(|(_, count)| *count > 0);
    some.map(|(dimension, count)| (dimension.name().to_owned(), count.into())).collect()
}
