//! What the models search: the library's own types, by the paths that the compiler gives them.

use std::any::{type_name, type_name_of_val};
use std::path::Path;

use latent_capabilities::model::account::{
    budget, bytes, client, gauge, jobs, lower, node, provider, shares, tenant, uses,
};
use latent_capabilities::model::mem::{arena, bitset, blocks, cells, park, ring, turn};
use latent_capabilities::model::queue::{
    acquire, credit, inventory, keeper, line, look, model, operation, spares, watched, window,
};

/// The types that the models of this file search.
///
/// # Panics
///
/// When the file is not known here.
pub(crate) fn searched_in(file: &str) -> String {
    let stem = Path::new(file).file_stem().and_then(|stem| stem.to_str()).unwrap_or(file);
    let types = match stem {
        "account_scopes" => vec![
            type_name::<node::NodeWord>(),
            type_name::<tenant::TenantWord>(),
            type_name::<provider::ProviderWord>(),
            type_name::<client::ClientWord>(),
        ],
        "account_words" => {
            vec![type_name::<node::NodeWord>(), type_name::<bytes::BytesWord>(), type_name::<gauge::Gauge>()]
        }
        "acquire" => vec![type_name::<acquire::AcquireLine>(), type_name::<client::ClientWord>()],
        "arena" => vec![type_name::<arena::Lease<model::Session>>()],
        "bitset" => vec![type_name::<bitset::BitSet>()],
        "blocks" => vec![type_name::<blocks::Blocks<()>>()],
        "budgets" => vec![type_name_of_val(&budget::take_all::<1>), type_name_of_val(&budget::spend)],
        "credits" => vec![type_name::<credit::Credits>(), type_name::<arena::Lease<model::Session>>()],
        "cells" => vec![type_name::<cells::Cells<()>>()],
        "jobs" => vec![type_name::<inventory::Inventory<()>>(), type_name::<jobs::JobsWord>()],
        "keeper" => vec![type_name::<keeper::Keeper>()],
        "line" | "rotation" => {
            vec![type_name::<line::Line>(), type_name::<operation::Operation<arena::Lease<model::Session>>>()]
        }
        "look" => vec![type_name::<look::NextLook>(), type_name::<cells::Cells<()>>()],
        "lowering" => vec![type_name_of_val(&lower::lower_all), type_name::<node::NodeWord>()],
        "park" => vec![type_name::<park::Seat>()],
        "ring" => vec![type_name::<ring::RingSlot<(), ()>>()],
        "shares" => vec![type_name::<shares::SharesWord>(), type_name::<bytes::TenantBytesWord>()],
        "spares" => vec![type_name::<spares::Spares>(), type_name::<bytes::BytesWord>()],
        "turn" => vec![type_name::<turn::Turn<()>>()],
        "uses" => vec![type_name::<uses::UsesWord>()],
        "watched" => vec![type_name::<watched::Watched>()],
        "window" => vec![type_name::<window::Window>()],
        // The harness' own searches, which must fail or be refused.
        "harness" => vec!["loom"],
        other => panic!("say in loom-tests/src/real.rs what the models of `{other}` search"),
    };
    // Without the parameters that a model gives a type.
    let plain = |name: &str| name.split_once('<').map_or(name, |(plain, _)| plain).to_owned();
    types.into_iter().map(plain).collect::<Vec<_>>().join(", ")
}
