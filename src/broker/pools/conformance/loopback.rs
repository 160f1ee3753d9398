//! Real sockets on loopback: reuse, end of stream, stray bytes.
use super::support::*;
use rustix::net::RecvFlags;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A TCP connection that looks at the descriptor itself: what is cached elsewhere misses a fresh end of the stream.
#[derive(Debug)]
struct Tcp(TcpStream);

impl Resource for Tcp {
    fn is_reusable(&mut self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        rustix::net::recv(&self.0, &mut [0_u8; 1], flags) == Err(rustix::io::Errno::WOULDBLOCK)
    }
}

/// An origin that answers each byte with the same byte. `q` makes it close, `s` makes it send one more.
async fn origin() -> (SocketAddr, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let address = listener.local_addr().expect("bound");
    let (accepted, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (accepted.clone(), ended.clone());
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            accepted.fetch_add(1, SeqCst);
            let ended = ended.clone();
            tokio::spawn(async move {
                let mut byte = [0];
                while socket.read(&mut byte).await.is_ok_and(|read| read == 1) {
                    let answer: &[u8] = if byte[0] == b's' { b"s!" } else { &byte };
                    if socket.write_all(answer).await.is_err() || byte[0] == b'q' {
                        break;
                    }
                }
                ended.fetch_add(1, SeqCst);
            });
        }
    });
    (address, counts.0, counts.1)
}

/// One exchange of a request of its own, as an adapter does it.
async fn exchange(
    node: &Node,
    client: &ProviderClient<Tcp>,
    plan: &Plan,
    address: SocketAddr,
    byte: u8,
) -> SocketAddr {
    let session = node.session(plan);
    let ready = node.pools.admit(client, &session).expect("room").wait().await.expect("its turn");
    let call = ready.dispatch(SEND, Cost::new()).expect("allowed");
    let mut connection = match client.acquire(&call).await.expect("room") {
        Acquired::Idle(connection) => connection,
        Acquired::Dial(reservation) => {
            let socket =
                call.io().wait_for(TcpStream::connect(address)).await.expect("in time").expect("it listens");
            reservation.connected(Tcp(socket)).expect("in time")
        }
    };
    let socket = &mut connection.resource().0;
    let local = socket.local_addr().expect("connected");
    let mut answer = [0];
    call.io().wait_for(socket.write_all(&[byte])).await.expect("in time").expect("connected");
    call.io().wait_for(socket.read_exact(&mut answer)).await.expect("in time").expect("answered");
    assert_eq!(answer[0], byte);
    connection.park(Exchange::complete()).expect("room");
    local
}

/// pools.21, pools.70, pools.72: one socket serves one activation after another, each quiescent before the next; the origin
/// sees its end when the pool lets go of it.
#[tokio::test]
async fn a_socket_is_reused_and_ends_when_it_is_let_go_21() {
    let node = Node::new(PoolLimits::default());
    let (address, accepted, ended) = origin().await;
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Tcp>(&orders);
    let plans = ["alpha", "beta", "gamma"].map(|tenant| node.plan(tenant, &orders));
    let first = exchange(&node, &client, &plans[0], address, b'a').await;
    node.assert_idle();
    for plan in &plans {
        assert_eq!(exchange(&node, &client, plan, address, b'b').await, first);
        node.assert_idle();
    }
    assert_eq!((accepted.load(SeqCst), ended.load(SeqCst)), (1, 0));
    assert_eq!(node.counts().idle_connections, 1);
    client.close_idle();
    until("the origin sees the end", || ended.load(SeqCst) == 1).await;
    // And the same when the epoch is replaced, and when the registry goes.
    exchange(&node, &client, &plans[0], address, b'c').await;
    let replaced = node.install("orders", 2, 1);
    until("the origin sees the end", || ended.load(SeqCst) == 2).await;
    let client = node.client::<Tcp>(&replaced);
    exchange(&node, &client, &node.plan("alpha", &replaced), address, b'd').await;
    assert_eq!((accepted.load(SeqCst), ended.load(SeqCst)), (3, 2));
    node.assert_clean_end().await;
    until("the origin sees the end", || ended.load(SeqCst) == 3).await;
}

/// pools.70, pools.74: a socket that the origin has ended, or on which something came that nobody asked for, is not handed
/// out; the request dials anew.
#[tokio::test]
async fn an_ended_socket_and_stray_bytes_are_not_handed_out() {
    let node = Node::new(PoolLimits::default());
    let (address, accepted, _) = origin().await;
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Tcp>(&orders);
    let plan = node.plan("alpha", &orders);
    let mut dials = 0;
    for byte in [b'q', b's', b'q', b's'] {
        exchange(&node, &client, &plan, address, byte).await;
        dials += 1;
        assert_eq!(accepted.load(SeqCst), dials);
        // The end, or the stray byte, is on its way; it is in the socket before the origin's task goes on.
        tokio::time::sleep(ms(20)).await;
        assert_eq!(node.counts().idle_connections, 1);
    }
    client.close_idle();
    node.assert_clean_end().await;
}

/// pools.29, pools.30: under load no more sockets exist than the limits allow, counted at the origin.
/// Cases S06, S26: as many dials as there are sockets, and no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sockets_never_exceed_the_limit_under_load() {
    let limits = PoolLimits { connections_per_client: 3, ..PoolLimits::default() };
    let node = Arc::new(Node::new(limits));
    let (address, accepted, ended) = origin().await;
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Tcp>(&orders);
    let plan = node.plan("alpha", &orders);
    let tasks = (0..12).map(|_| {
        let (node, client, plan) = (node.clone(), client.clone(), plan.clone());
        let (accepted, ended) = (accepted.clone(), ended.clone());
        tokio::spawn(async move {
            for _ in 0..40 {
                exchange(&node, &client, &plan, address, b'x').await;
                // What has ended is read last: sockets that exist now are at most the difference.
                let alive = accepted.load(SeqCst) - ended.load(SeqCst);
                assert!(alive <= 3, "{alive} sockets");
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("no panic");
    }
    assert_eq!(accepted.load(SeqCst), node.counts().idle_connections as usize, "every socket was kept");
    node.assert_idle();
    node.assert_clean_end().await;
}
