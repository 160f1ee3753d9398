//! A provider's next epoch.
//!
//! Nothing of it comes with the request. The node reads its configuration file and the files that it names again, as it
//! did at the start, and takes the one provider's section out of it: an operator changes the credential's file, or the
//! section, and asks for a rotation. Everything else in the file waits for a restart.

use std::path::Path;
use std::sync::Arc;

use http::{Response, StatusCode};
use serde_json::json;

use super::Admin;
use crate::config::{Config, Provider};
use crate::door::{RotateError, Rotated, Rotating};
use crate::ingress::front::Desk;
use crate::ingress::reply::{self, Reply};
use crate::refusal::Refusal;

/// Replaces the provider of this name. One at a time; who comes second is refused. Who was
/// admitted again by the one before gets a turn first. Once it has begun it goes on to its end even if the operator goes away.
pub(super) async fn rotate(desk: &Arc<Desk>, admin: &Admin, name: &str) -> Result<Response<Reply>, Refusal> {
    let Some(door) = desk.gateway.door(name) else {
        return Err(Refusal::of_node(StatusCode::NOT_FOUND, "unknown-provider", "no provider of this name"));
    };
    let Ok(only) = admin.rotating.clone().try_lock_owned() else {
        let text = "another rotation is under way";
        return Err(Refusal::of_node(StatusCode::CONFLICT, "rotation-under-way", text));
    };
    let (file, wanted) = (admin.file.clone(), name.to_owned());
    // A disk that does not answer keeps the one place: who asks again must not take another thread for it.
    let (provider, only) = apart(move || Ok((read(&file, &wanted)?, only))).await?;
    let rotating = door.begin(desk.gateway.pools.limits().queue_age).await;
    let desk = desk.clone();
    apart(move || {
        let _only = only;
        replace(&desk, &provider, rotating)
    })
    .await
}

/// Reads files, or destroys idle connections: not for a thread that serves.
async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        tracing::error!(%error, "a rotation broke");
        let text = "the rotation broke; the log says where";
        Err(Refusal::of_node(StatusCode::INTERNAL_SERVER_ERROR, "rotation-broken", text))
    })
}

/// The provider of this name, as the configuration has it now.
fn read(file: &Path, name: &str) -> Result<Provider, Refusal> {
    let config = Config::load(file).map_err(|refused| unusable(refused.to_string()))?;
    let provider = config.providers.into_iter().find(|provider| provider.name == name);
    provider
        .ok_or_else(|| unusable(format!("{}: there is no provider {name} in it any more", file.display())))
}

fn replace(desk: &Desk, provider: &Provider, rotating: Rotating) -> Result<Response<Reply>, Refusal> {
    let name = provider.name.as_str();
    let door = desk.gateway.door(name).ok_or_else(|| unusable("no provider of this name".to_owned()))?;
    match desk.gateway.rotate(door, provider, rotating) {
        Ok(Rotated { old, new }) => {
            tracing::info!(provider = name, old, new, "rotated");
            let body = json!({ "provider": name, "old_epoch": old, "new_epoch": new });
            Ok(reply::json(format!("{body}\n")))
        }
        Err(error) => {
            tracing::warn!(provider = name, %error, "not rotated");
            Err(refused(error))
        }
    }
}

/// The configuration cannot be used as it is now; the node goes on with what it has.
fn unusable(message: String) -> Refusal {
    Refusal::of_node(StatusCode::UNPROCESSABLE_ENTITY, "configuration-unusable", message)
}

fn refused(error: RotateError) -> Refusal {
    let message = error.to_string();
    let (status, code, known) = match error {
        RotateError::Plans(error) => (StatusCode::CONFLICT, error.code(), Some(Refusal::of_library(error))),
        RotateError::Install(error) => (StatusCode::CONFLICT, error.code(), Some(Refusal::of_call(&error))),
        RotateError::Sealing(error) => {
            (StatusCode::SERVICE_UNAVAILABLE, error.code(), Some(Refusal::of_library(error)))
        }
        RotateError::LastEpoch => (StatusCode::CONFLICT, "last-epoch", None),
    };
    let (dimension, scope) = known.map_or((None, None), |known| (known.dimension, known.scope));
    Refusal { dimension, scope, ..Refusal::of_node(status, code, message) }
}
