//! The provider: one installed epoch, its origins, and the calls that go through it.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use http_body::Body;
use latent_capabilities::broker::io::{IoBuffer, IoCall, TransferOptions, TransferWait};
use latent_capabilities::broker::pools::{
    Acquired, Epoch, InstalledProvider, OriginSlot, PoolCall, PooledConnection, ProviderClient,
    ProviderPools, ProviderSetup,
};
use latent_capabilities::broker::{Budget, Capability, CapabilitySession, Cost, StreamBudget};

use super::buffered::BufferedResponse;
use super::config::{self, HttpProviderConfig};
use super::connection::{Connection, HttpConnection};
use super::dial::dial;
use super::error::{HttpError, HttpErrorKind, RequestFault};
use super::exchange::{Accepted, exchange};
use super::origin::Origin;
use super::request::{HttpRequest, credential_header, credential_value};
use super::resolve::Resolver;
use super::response::{Hold, HttpResponse, ResponseBody};
use super::scratch::Scratch;
use super::upload::{Source, Upload};

/// The capability that plans bind to an HTTP provider: `send` is a buffered call, `open` a streaming one.
pub static HTTP: Capability = Capability::new("latent:http/client", &["send", "open"]);
const SEND: u8 = 0;
const OPEN: u8 = 1;

/// One installed epoch of an HTTP provider. Clones are the same epoch.
#[derive(Clone)]
pub struct HttpProvider(Arc<Inner>);

struct Inner {
    pools: ProviderPools,
    installed: InstalledProvider,
    origins: Vec<Slot>,
    resolver: Resolver,
    config: Bounds,
    credential: Option<http::HeaderName>,
}

/// The bounds of the configuration, without its origins and secrets.
struct Bounds {
    dial: config::DialLimits,
    head: config::HeadLimits,
    body: config::BodyLimits,
}

struct Slot {
    origin: Origin,
    client: ProviderClient<Connection>,
}

/// What a call waits in before it is dispatched.
struct Ready {
    ready: latent_capabilities::broker::pools::PoolReady,
    input: Option<IoBuffer>,
}

impl HttpProvider {
    /// Installs an epoch in place of `expected` ([`Epoch::NONE`]: the first one). Plans that are bound to the one
    /// before start nothing more on it; accepted calls end on it.
    ///
    /// Checks everything before it installs anything; the epoch and the clients of all origins are installed together or not
    /// at all. Allocates, and reads `/etc/resolv.conf` where no name server
    /// is configured.
    ///
    /// # Errors
    ///
    /// [`HttpErrorKind::Config`] with the key and what would be right; [`HttpErrorKind::Library`] where the pools
    /// refuse.
    pub fn install(
        pools: &ProviderPools,
        config: HttpProviderConfig,
        expected: Epoch,
    ) -> Result<Self, HttpError> {
        config::check(&config)?;
        StreamBudget::new(config.body.request_bytes, config.body.response_bytes).map_err(|_| {
            config::fault(
                None,
                "body",
                "request_bytes and response_bytes must be what a stream budget can be, and not both zero",
            )
        })?;
        let origins = config
            .origins
            .iter()
            .zip(0_u16..)
            .map(|(origin, slot)| Origin::new(origin, slot))
            .collect::<Result<Vec<_>, _>>()?;
        let mut setup = ProviderSetup::new(&config.name, &config.origins[0].url).epoch(config.epoch);
        if let Some(digest) = &config.digest {
            setup = setup.digest(digest.clone());
        }
        if let Some(credential) = &config.credentials {
            setup = setup.credentials(credential.value());
        }
        // At most `MAXIMUM_ORIGINS`: checked above.
        let (installed, clients) =
            pools.install_with_clients::<Connection>(setup, expected, origins.len() as u16)?;
        let each = origins.into_iter().zip(clients);
        let origins = each.map(|(origin, client)| Slot { origin, client }).collect();
        Ok(Self(Arc::new(Inner {
            pools: pools.clone(),
            installed,
            origins,
            resolver: Resolver::new(&config.dns),
            credential: credential_header(config.credentials.as_ref()),
            config: Bounds { dial: config.dial, head: config.head, body: config.body },
        })))
    }

    /// The epoch, for plans and rotation.
    pub fn installed(&self) -> &InstalledProvider {
        &self.0.installed
    }

    /// How many origins there are.
    pub fn origins(&self) -> usize {
        self.0.origins.len()
    }

    /// Closes the idle connections of every origin.
    pub fn close_idle(&self) {
        for slot in &self.0.origins {
            slot.client.close_idle();
        }
    }

    /// Sends a request whose body is streamed, and returns when the response's head is there.
    ///
    /// The body is copied chunk by chunk into the call's window and is asked for more only while the window has a
    /// free place. A length that it knows, or that `Content-Length` declares, is kept; else it is sent in chunks. Its
    /// trailers are dropped. A response that comes before the body's end stops the upload.
    ///
    /// Dropping the future at any point closes the connection and gives back everything.
    ///
    /// # Errors
    ///
    /// See [`HttpErrorKind`]; [`HttpError::effect`] says whether anything may have been sent.
    pub async fn open<B>(
        &self,
        session: &CapabilitySession,
        request: HttpRequest,
        body: B,
    ) -> Result<HttpResponse, HttpError>
    where
        B: Body<Data = Bytes>,
    {
        self.open_taking(session, &mut Some(request), body).await
    }

    /// As [`HttpProvider::open`], but takes the request only once it has a connection. Where it is refused before, it stays,
    /// without the fields that do not travel on, for another attempt on the provider's next epoch.
    ///
    /// # Errors
    ///
    /// As [`HttpProvider::open`].
    ///
    /// # Panics
    ///
    /// If there is no request.
    pub async fn open_taking<B>(
        &self,
        session: &CapabilitySession,
        taken: &mut Option<HttpRequest>,
        body: B,
    ) -> Result<HttpResponse, HttpError>
    where
        B: Body<Data = Bytes>,
    {
        let inner = &*self.0;
        let request = taken.as_mut().expect("the caller has a request to send");
        let limits = &inner.config.body;
        let empty = body.is_end_stream();
        let exact = if empty { Some(0) } else { body.size_hint().exact() };
        let (slot, wait, deadline) = (inner.slot(request.origin)?, request.wait, request.deadline);
        let length = inner.prepare(request, exact)?;
        let input = length.unwrap_or(limits.request_bytes);
        if input > limits.request_bytes {
            return Err(HttpError::unsent(HttpErrorKind::RequestTooLarge));
        }
        let cost = Cost::new()
            .charge(Budget::OutboundRequests, 1)
            .stream(StreamBudget::new(input, limits.response_bytes)?);
        let Ready { ready, .. } = inner.admit(slot, session, wait, deadline, 0).await?;
        let call = ready.dispatch(HTTP.operation(OPEN), cost)?;
        let scratch = inner.scratch(call.io(), slot)?;
        let options =
            TransferOptions { chunk_bytes: limits.chunk_bytes, outstanding: limits.outstanding_chunks };
        let transfer = call.io().transfer(options)?;
        let chunk = limits.chunk_bytes as usize;
        let connection = inner.connect(&call, slot, wait).await?;
        let (upload, feed) = if empty { Upload::whole(None) } else { Upload::fed(length) };
        let credential = inner.credential()?;
        let request = taken.take().expect("it was there before, and nobody else takes it");
        let message = request.for_origin(length, &slot.origin, credential, upload);
        let (body, wait) = (pin!(body), pin!(TransferWait::new()));
        let source = (!empty).then_some(Source { body, transfer: &transfer, wait, chunk, length });
        let (keep_alive, head) = (slot.origin.keep_alive, &inner.config.head);
        let accepted = exchange(call.io(), connection, message, &feed, source, keep_alive, head).await?;
        let Accepted { status, version, headers, download } = accepted;
        let hold = Hold::new(call, transfer, scratch, chunk);
        let body = ResponseBody::new(download, hold, &headers);
        Ok(HttpResponse { status, version, headers, body })
    }

    /// Sends a request with a whole body and returns a whole response.
    ///
    /// The body is staged, and charged, before the call waits. The response is limited by
    /// [`buffered_response_bytes`](config::BodyLimits::buffered_response_bytes).
    ///
    /// # Errors
    ///
    /// As [`HttpProvider::open`]; no part of a response is returned with an error.
    pub async fn send(
        &self,
        session: &CapabilitySession,
        mut request: HttpRequest,
        body: &[u8],
    ) -> Result<BufferedResponse, HttpError> {
        let inner = &*self.0;
        let limits = &inner.config.body;
        let (slot, wait, deadline) = (inner.slot(request.origin)?, request.wait, request.deadline);
        let length = inner.prepare(&mut request, Some(body.len() as u64))?;
        let maximum = limits.buffered_response_bytes;
        let cost = Cost::new()
            .charge(Budget::OutboundRequests, 1)
            .input(body.len() as u64)
            .maximum_output(maximum as u64);
        let Ready { ready, mut input } = inner.admit(slot, session, wait, deadline, body.len()).await?;
        if let Some(input) = &mut input {
            input.spare_mut(body.len())?.copy_from_slice(body);
            input.advance_written(body.len())?;
        }
        let call = ready.dispatch(HTTP.operation(SEND), cost)?;
        let _scratch = inner.scratch(call.io(), slot)?;
        let connection = inner.connect(&call, slot, wait).await?;
        let (upload, feed) = Upload::whole(input.map(Bytes::from_owner));
        let message = request.for_origin(length, &slot.origin, inner.credential()?, upload);
        let (keep_alive, head) = (slot.origin.keep_alive, &inner.config.head);
        let source: Option<Source<'_, Upload>> = None;
        let accepted = exchange(call.io(), connection, message, &feed, source, keep_alive, head).await;
        BufferedResponse::read(call.io(), accepted?, maximum).await
    }
}

impl Inner {
    fn slot(&self, origin: OriginSlot) -> Result<&Slot, HttpError> {
        let refused = HttpError::unsent(HttpErrorKind::Request(RequestFault::Origin));
        self.origins.get(usize::from(origin.number())).ok_or(refused)
    }

    fn prepare(&self, request: &mut HttpRequest, exact: Option<u64>) -> Result<Option<u64>, HttpError> {
        request
            .prepare(&self.config.head, exact)
            .map_err(|fault| HttpError::unsent(HttpErrorKind::Request(fault)))
    }

    /// Waits for a turn, or asks for one at once.
    async fn admit(
        &self,
        slot: &Slot,
        session: &CapabilitySession,
        wait: bool,
        deadline: Option<latent_capabilities::Deadline>,
        input: usize,
    ) -> Result<Ready, HttpError> {
        let stage = |buffer: Result<IoBuffer, latent_capabilities::broker::Error>| {
            buffer.map_err(|error| HttpError::unsent(super::upload::too_large(error)))
        };
        let deadline = deadline.map(|deadline| deadline.narrow(session.deadline()));
        if !wait {
            let ready = match deadline {
                Some(deadline) => self.pools.admit_now_until(&slot.client, session, deadline)?,
                None => self.pools.admit_now(&slot.client, session)?,
            };
            let input = if input == 0 { None } else { Some(stage(ready.input(input, 0))?) };
            return Ok(Ready { ready, input });
        }
        let admission = match deadline {
            Some(deadline) => self.pools.admit_until(&slot.client, session, deadline)?,
            None => self.pools.admit(&slot.client, session)?,
        };
        let input = if input == 0 { None } else { Some(stage(admission.input(input, 0))?) };
        Ok(Ready { ready: admission.wait().await?, input })
    }

    /// An idle connection that is still good, or a dial.
    async fn connect(
        &self,
        call: &PoolCall,
        slot: &Slot,
        wait: bool,
    ) -> Result<PooledConnection<Connection>, HttpError> {
        let reservation = if wait {
            match slot.client.acquire(call).await? {
                Acquired::Idle(connection) => return Ok(connection),
                Acquired::Dial(reservation) => reservation,
            }
        } else {
            match slot.client.checkout(call)? {
                Some(connection) => return Ok(connection),
                None => slot.client.reserve_connection(call)?,
            }
        };
        let dialled = async {
            let socket = dial(&slot.origin, &self.resolver, self.config.dial).await?;
            HttpConnection::open(socket, &self.config.head, &self.config.body).await
        };
        // The call has started, so the library knows no better than uncertain; but no byte of the request exists yet.
        let unsent = |error| HttpError::unsent(HttpErrorKind::Library(error));
        let connection = call.io().wait_for(dialled).await.map_err(unsent)?.map_err(HttpError::unsent)?;
        reservation.connected(connection).map_err(unsent)
    }

    fn credential(&self) -> Result<Option<(&http::HeaderName, HeaderValue)>, HttpError> {
        let Some(header) = &self.credential else { return Ok(None) };
        match self.installed.with_credentials(credential_value) {
            Some(value) => Ok(Some((header, value))),
            None => Err(config::fault(None, "credentials", "must be bytes that a header may hold")),
        }
    }

    /// Charges what the machinery may hold for one call.
    fn scratch(&self, call: &IoCall, slot: &Slot) -> Result<Scratch, HttpError> {
        let (head, body) = (&self.config.head, &self.config.body);
        Ok(Scratch::reserve(call, head, body, slot.origin.tls.is_some())?)
    }
}

impl fmt::Debug for HttpProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpProvider")
            .field("name", &self.0.installed.name())
            .field("epoch", &self.0.installed.epoch())
            .field("origins", &self.0.origins.len())
            .finish_non_exhaustive()
    }
}
