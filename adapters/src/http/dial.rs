//! A dial: name, address check, TCP, TLS, in the deadline of the call that it is made for.

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::config::DialLimits;
use super::error::{ConnectFault, HttpErrorKind};
use super::origin::{Origin, Tls};
use super::resolve::Resolver;
use super::scratch::TLS_WRITE_BUFFER;
use super::socket::{Layer, Socket, Tcp, Wire};
use super::tls;

/// Dials one origin. Dropping the future at any point closes whatever was opened.
///
/// The addresses are checked after they are resolved, and the ones that were checked are the ones dialled: one
/// refused address refuses the name, since whoever mixes in a metadata address is not to be trusted with the rest.
pub(crate) async fn dial(
    origin: &Origin,
    resolver: &Resolver,
    limits: DialLimits,
) -> Result<Socket, HttpErrorKind> {
    let addresses = resolver.addresses(origin).await.map_err(HttpErrorKind::Resolve)?;
    if !addresses.iter().all(|address| origin.allow.permits(*address)) {
        return Err(HttpErrorKind::AddressRefused);
    }
    let mut last = HttpErrorKind::Connect(ConnectFault::Unreachable);
    for address in addresses {
        match timeout(limits.attempt, attempt(address, origin)).await {
            Ok(Ok(socket)) => return Ok(socket),
            Ok(Err(kind)) => last = kind,
            Err(_) => last = HttpErrorKind::Connect(ConnectFault::TimedOut),
        }
        // Who answers with a wrong certificate is not a reason to try another address.
        if matches!(last, HttpErrorKind::Tls(_) | HttpErrorKind::LocalPortsExhausted) {
            break;
        }
    }
    Err(last)
}

async fn attempt(address: IpAddr, origin: &Origin) -> Result<Socket, HttpErrorKind> {
    let stream =
        connect(SocketAddr::new(address, origin.port)).await.map_err(|error| connect_fault(&error))?;
    let wire = Wire::new(stream);
    let tcp = Tcp(std::sync::Arc::clone(&wire));
    let layer = match &origin.tls {
        None => Layer::Plain(tcp),
        Some(tls) => Layer::Tls(handshake(tls, tcp).await?),
    };
    Ok(Socket { wire, layer })
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_nodelay(true)?;
    let stream = socket.connect(address).await?;
    // A closed port of this very machine can be met by the dial itself, when the system picks that port for it.
    if stream.peer_addr()? != address || stream.local_addr()? == address {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(stream)
}

async fn handshake(tls: &Tls, tcp: Tcp) -> Result<Box<tokio_rustls::client::TlsStream<Tcp>>, HttpErrorKind> {
    tls.connector
        .connect_with(tls.server_name.clone(), tcp, |session| {
            session.set_buffer_limit(Some(TLS_WRITE_BUFFER));
        })
        .await
        .map(Box::new)
        .map_err(|error| HttpErrorKind::Tls(tls::fault(&error)))
}

fn connect_fault(error: &io::Error) -> HttpErrorKind {
    use io::ErrorKind;
    let fault = match error.kind() {
        ErrorKind::AddrNotAvailable | ErrorKind::AddrInUse => return HttpErrorKind::LocalPortsExhausted,
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => ConnectFault::Refused,
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::NetworkDown => {
            ConnectFault::Unreachable
        }
        ErrorKind::TimedOut => ConnectFault::TimedOut,
        _ => ConnectFault::System,
    };
    HttpErrorKind::Connect(fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s37_exhausted_local_ports_have_a_kind_of_their_own() {
        let kind = connect_fault(&io::ErrorKind::AddrNotAvailable.into());
        assert_eq!(kind, HttpErrorKind::LocalPortsExhausted);
        let kind = connect_fault(&io::ErrorKind::ConnectionRefused.into());
        assert_eq!(kind, HttpErrorKind::Connect(ConnectFault::Refused));
    }
}
