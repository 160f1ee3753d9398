//! Counts for operators: by tenant, by provider, by epoch, by client.
use super::poll::poll_once;
use super::support::*;
use crate::broker::pools::{ClientCounts, EpochCounts, Listing, ProviderCounts, RequestCounts, TenantCounts};

fn tenants(node: &Node) -> Vec<TenantCounts> {
    let mut list = vec![TenantCounts::default(); 8];
    let listing = node.pools.tenants(&mut list);
    assert!(listing.is_complete(), "{listing:?}");
    list.truncate(listing.written);
    list
}

fn providers(node: &Node) -> Vec<ProviderCounts> {
    let mut list = vec![ProviderCounts::default(); 8];
    let listing = node.pools.providers(&mut list);
    assert!(listing.is_complete(), "{listing:?}");
    list.truncate(listing.written);
    list
}

fn epochs(node: &Node) -> Vec<EpochCounts> {
    let mut list = vec![EpochCounts::default(); 8];
    let listing = node.pools.epochs(&mut list);
    assert!(listing.is_complete(), "{listing:?}");
    list.truncate(listing.written);
    list
}

fn clients(node: &Node) -> Vec<ClientCounts> {
    let mut list = vec![ClientCounts::default(); 8];
    let listing = node.pools.clients(&mut list);
    assert!(listing.is_complete(), "{listing:?}");
    list.truncate(listing.written);
    list
}

const fn requests(pending: u32, running: u32, returned: u32) -> RequestCounts {
    RequestCounts { pending, running, returned }
}

/// pools.42: what each tenant and each provider holds, by name, from the words that admission looks at.
#[tokio::test]
async fn tenants_and_providers_are_counted_by_name() {
    let limits =
        PoolLimits { running: 4, running_per_tenant: 2, running_per_provider: 3, ..PoolLimits::default() };
    let node = Node::new(limits);
    let (orders, stock) = (node.install("orders", 1, 0), node.install("stock", 7, 0));
    let (to_orders, to_stock) = (node.client::<Nothing>(&orders), node.client::<Nothing>(&stock));
    let (plan, second) = (node.plan("alpha", &orders), node.plan("alpha", &stock));
    let other = node.plan("beta", &stock);
    let (alpha, alpha_stock) = (node.session(&plan), node.session(&second));
    let beta = node.session(&other);
    let calls =
        (node.call(&to_orders, &alpha), node.call(&to_stock, &alpha_stock), node.call(&to_stock, &beta));
    let staged = node.pools.admit(&to_stock, &beta).expect("room");
    let mut wait = Box::pin(node.pools.admit(&to_orders, &alpha).expect("room").wait());
    assert!(poll_once(wait.as_mut()).is_pending(), "alpha runs what it may");

    let listed = tenants(&node);
    let named: Vec<&str> = listed.iter().map(|tenant| &*tenant.name).collect();
    assert_eq!(named, ["alpha", "beta"]);
    let expected = [(2, 3, 2, true, None), (1, 2, 1, false, None)];
    for (tenant, expected) in listed.iter().zip(expected) {
        let counts =
            (tenant.plans, tenant.requests, tenant.running_requests, tenant.is_blocked, tenant.bytes);
        assert_eq!(counts, expected, "{tenant:?}");
    }
    assert_eq!(listed[0].number, alpha.tenant());

    let listed = providers(&node);
    let counts = |provider: &ProviderCounts| {
        (provider.installed, provider.epochs, provider.clients, provider.requests, provider.running_requests)
    };
    assert_eq!((&*listed[0].name, counts(&listed[0])), ("orders", (Some(Epoch(1)), 1, 1, 2, 1)));
    assert_eq!((&*listed[1].name, counts(&listed[1])), ("stock", (Some(Epoch(7)), 1, 1, 3, 2)));

    // What does not fit is counted, and what is behind the end stays as it was.
    let mut short = [TenantCounts::default()];
    assert_eq!(node.pools.tenants(&mut short), Listing { written: 1, total: 2 });
    assert_eq!(&*short[0].name, "alpha");
    assert_eq!(node.pools.providers(&mut []), Listing { written: 0, total: 2 });
    assert_eq!(node.pools.epochs(&mut []), Listing { written: 0, total: 2 });
    assert_eq!(node.pools.clients(&mut []), Listing { written: 0, total: 2 });

    drop((wait, staged, calls, alpha, alpha_stock, beta));
    for tenant in tenants(&node) {
        assert_eq!((tenant.requests, tenant.running_requests, tenant.is_blocked), (0, 0, false));
    }
    node.assert_clean_end().await;
    assert_eq!(clients(&node).len(), 0);
}

/// A tenant with a byte limit of its own has its bytes counted.
#[tokio::test]
async fn bytes_of_a_tenant_are_counted_where_it_has_a_limit_of_them() {
    let io = IoLimits { tenant_bytes: 1 << 20, ..IoLimits::default() };
    let node = Node::with(io, PoolLimits::default());
    let orders = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&orders);
    let session = node.session(&node.plan("alpha", &orders));
    let admission = node.pools.admit(&client, &session).expect("room");
    let input = admission.input(4096, 0).expect("room");
    assert_eq!(tenants(&node)[0].bytes, Some(4096));
    drop((admission, input));
    assert_eq!(tenants(&node)[0].bytes, Some(0));
    drop(session);
    node.assert_clean_end().await;
}

/// pools.18: the drain of a replaced epoch can be watched: its requests and connections fall to zero, then it is gone.
#[tokio::test]
async fn the_drain_of_a_replaced_epoch_is_watched_to_its_end() {
    let node = Node::new(PoolLimits { running_per_provider: 2, ..PoolLimits::default() });
    let old = node.install("orders", 1, 0);
    let client = node.client::<Nothing>(&old);
    let plan = node.plan("alpha", &old);
    let session = node.session(&plan);
    node.parked(&client, &session, Nothing);
    let (first, second) = (node.call(&client, &session), node.call(&client, &session));
    let mut wait = Box::pin(node.pools.admit(&client, &session).expect("room").wait());
    assert!(poll_once(wait.as_mut()).is_pending());
    let connection = client.checkout(&first).expect("allowed").expect("one rests");
    let before = &epochs(&node)[..];
    assert_eq!(before.len(), 1);
    assert_eq!(
        (before[0].epoch, before[0].is_current, before[0].requests),
        (Epoch(1), true, requests(1, 2, 0))
    );
    assert_eq!((before[0].clients, before[0].connections, before[0].idle_connections), (1, 1, 0));

    let new = node.install("orders", 2, 1);
    let renewed = node.client::<Nothing>(&new);
    let fresh = node.session(&node.plan("alpha", &new));
    // One running unit for the connection that the new one is to have.
    drop(second);
    node.parked(&renewed, &fresh, Nothing);
    let staged = node.pools.admit(&renewed, &fresh).expect("room");
    let listed = epochs(&node);
    let shown = |epoch: &EpochCounts| (epoch.name.to_string(), epoch.epoch, epoch.is_current, epoch.requests);
    // Who waits for it was refused, and is counted until its owner looks.
    assert_eq!(shown(&listed[0]), ("orders".to_owned(), Epoch(1), false, requests(1, 1, 0)));
    assert_eq!(shown(&listed[1]), ("orders".to_owned(), Epoch(2), true, requests(1, 0, 0)));
    assert_eq!((listed[0].connections, listed[0].idle_connections), (1, 0));
    assert_eq!((listed[1].connections, listed[1].idle_connections), (1, 1));
    let provider = &providers(&node)[0];
    assert_eq!((provider.installed, provider.epochs), (Some(Epoch(2)), 2));
    assert_eq!((provider.connections, provider.idle_connections, provider.clients), (2, 1, 2));
    assert!(!listed[0].is_drained());

    drop((wait, first));
    assert_eq!(epochs(&node)[0].requests, requests(0, 1, 0), "the connection holds its call");
    drop(connection);
    let listed = epochs(&node);
    assert_eq!((listed.len(), listed[0].requests, listed[0].connections), (2, requests(0, 0, 0), 0));
    assert!(listed[0].is_drained(), "handles keep it all the same");
    drop((client, plan, session, old));
    until("nothing keeps it", || epochs(&node).len() == 1).await;
    assert_eq!((epochs(&node)[0].epoch, providers(&node)[0].epochs), (Epoch(2), 1));
    drop((staged, fresh));
    node.pools.retire_provider(&new).expect("current");
    assert_eq!(providers(&node)[0].installed, None);
    assert!(!epochs(&node)[0].is_current);
    drop((renewed, new));
    node.assert_clean_end().await;
}

/// A client's connections, its dial, its pause, and who waits for it.
#[tokio::test]
async fn a_client_tells_its_connections_and_its_pause() {
    let limits = PoolLimits {
        connections_per_client: 2,
        initial_backoff: Duration::from_secs(40),
        maximum_backoff: Duration::from_secs(40),
        ..PoolLimits::default()
    };
    let node = Node::new(limits);
    let orders = node.install("orders", 3, 0);
    let client = node.client::<Nothing>(&orders);
    let other = node.pools.client::<Nothing>(&orders, OriginSlot::new(9)).expect("room");
    let session = node.session(&node.plan("alpha", &orders));
    node.parked(&client, &session, Nothing);
    let call = node.call(&client, &session);
    let dial = client.reserve_connection(&call).expect("room");
    let listed = clients(&node);
    assert_eq!(listed.len(), 2);
    let first = &listed[0];
    assert_eq!((&*first.name, first.epoch, first.origin), ("orders", Epoch(3), OriginSlot::new(0)));
    assert_eq!((first.connections, first.idle_connections, first.is_dialing), (2, 1, true));
    assert_eq!((first.requests, first.is_current, first.number), (requests(0, 1, 0), true, 0));
    assert_eq!((listed[1].origin, listed[1].number, listed[1].connections), (OriginSlot::new(9), 1, 0));
    drop(dial);
    let first = &clients(&node)[0];
    assert_eq!((first.connections, first.is_dialing, first.failures), (1, false, 1));
    let pause = first.retry_after.expect("it pauses");
    assert!(pause > Duration::from_secs(30) && pause <= Duration::from_secs(40), "{pause:?}");

    // The one connection that is left is in use: another call waits for it.
    let connection = client.checkout(&call).expect("allowed").expect("one rests");
    drop(connection);
    assert_eq!(clients(&node)[0].connections, 0);
    let waiting = node.call(&other, &session);
    let dialled = other.reserve_connection(&waiting).expect("room");
    let second = node.call(&other, &session);
    let mut acquire = Box::pin(other.acquire(&second));
    assert!(poll_once(acquire.as_mut()).is_pending(), "a dial is in progress");
    let listed = &clients(&node)[1];
    assert_eq!((listed.requests, listed.acquiring_requests, listed.connections), (requests(0, 2, 0), 1, 1));
    drop(acquire);
    drop((second, dialled, waiting, call, session));
    assert_eq!(clients(&node)[1].requests, requests(0, 0, 0));
    node.assert_clean_end().await;
}
