//! Limits: pools.24 to pools.39, pools.51, pools.63, pools.73.
use super::support::*;
use crate::account::dimension::Group;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
/// Times are in milliseconds.
const SECOND: u64 = 1_000;

/// pools.25 to pools.39: default and absolute ceiling of each resource. pools.51: five seconds, at most a minute. pools.63:
/// 100 ms, capped at 30 s. pools.73: 30 s, at most an hour.
#[test]
fn the_defaults_and_ceilings_are_the_promised_ones() {
    let promised = [
        (Dimension::PoolsConfigurations, 32, 256),
        (Dimension::PoolsClients, 128, 1_024),
        (Dimension::PoolsClientsPerProvider, 8, 128),
        (Dimension::PoolsConnections, 256, 4_096),
        (Dimension::PoolsConnectionsPerClient, 8, 256),
        (Dimension::PoolsIdleConnections, 64, 1_024),
        (Dimension::PoolsPending, 128, 1_024),
        (Dimension::PoolsRunning, 64, 1_024),
        (Dimension::PoolsRequestsPerTenant, 32, 1_024),
        (Dimension::PoolsRequestsPerProvider, 64, 1_024),
        (Dimension::PoolsRunningPerTenant, 16, 1_024),
        (Dimension::PoolsRunningPerProvider, 32, 1_024),
        (Dimension::PoolsWorkers, 16, 128),
        (Dimension::PoolsCleanupJobs, 8, 128),
        (Dimension::PoolsMetadataBytes, 8 * MIB, 64 * MIB),
        (Dimension::PoolsConfigurationBytes, 64 * KIB, MIB),
        (Dimension::PoolsQueueAge, 5 * SECOND, 60 * SECOND),
        (Dimension::PoolsIdleAge, 30 * SECOND, 3_600 * SECOND),
        (Dimension::PoolsInitialBackoff, SECOND / 10, 300 * SECOND),
        (Dimension::PoolsMaximumBackoff, 30 * SECOND, 300 * SECOND),
    ];
    let limits = PoolLimits::default();
    for (dimension, default, ceiling) in promised {
        let name = dimension.name();
        assert_eq!((dimension.default_value(), dimension.ceiling()), (default, ceiling), "{name}");
        assert_eq!(limits.get(dimension), Some(default), "{name}");
    }
}

/// pools.24: nothing below the lowest, nothing above the ceiling, for any dimension; a refusal uses nothing up.
#[tokio::test]
async fn zero_and_huge_limits_are_refused_for_each_kind() {
    let broker = Broker::new(BrokerLimits::default()).expect("the defaults are valid");
    let io = IoRuntime::new(&broker, IoLimits::default()).expect("the defaults are valid");
    let make = |limits| ProviderPools::new(&broker, &io, tokio::runtime::Handle::current(), limits);
    let mut refused = 0;
    for &dimension in Dimension::ALL.iter().filter(|dimension| dimension.group() == Group::Pools) {
        for value in [dimension.lowest().checked_sub(1), dimension.ceiling().checked_add(1)] {
            let Some(value) = value else { continue };
            let mut limits = PoolLimits::default();
            limits.set(dimension, value).expect("it is one of these limits");
            let error = make(limits).expect_err("out of range").to_string();
            assert!(error.contains(dimension.name()), "{} = {value}: {error}", dimension.name());
            refused += 1;
        }
    }
    assert!(refused >= 40, "only {refused}");
    // pools.40: limits that contradict each other are refused by name, too.
    let crossed = PoolLimits { clients: 4, clients_per_provider: 5, ..PoolLimits::default() };
    let error = make(crossed).expect_err("a provider's clients are clients").to_string();
    assert!(error.contains("pools.clients_per_provider") && error.contains("pools.clients"), "{error}");
    let pools = make(PoolLimits::default()).expect("the broker has no registry yet");
    assert_eq!(pools.limits(), PoolLimits::default());
}

/// pools.38, pools.46: the metadata limit holds what all slots are prepaid for and everything else together.
#[tokio::test]
async fn the_metadata_limit_is_of_all_metadata() {
    let prepaid = PoolLimits::default().prepaid(crate::broker::POOL_COSTS);
    let room = 64 * KIB;
    let limits = PoolLimits { metadata_bytes: prepaid + room, configurations: 32, ..PoolLimits::default() };
    let node = Node::new(limits);
    // Whatever an epoch costs beside its private bytes, it is a little.
    let setup =
        |name: &str, bytes: u64| ProviderSetup::new(name, "authority").credentials(vec![7; bytes as usize]);
    let all = node.pools.install(setup("all", room), Epoch::NONE);
    assert_full(all, Dimension::PoolsMetadataBytes, Scope::Node);
    let most = node.pools.install(setup("most", room - 100), Epoch::NONE).expect("there is room");
    assert!(node.counts().metadata_bytes <= room);
    assert_full(
        node.pools.install(setup("one-more", 100), Epoch::NONE),
        Dimension::PoolsMetadataBytes,
        Scope::Node,
    );
    let client = node.pools.client::<Nothing>(&most, OriginSlot::new(0));
    assert_full(client, Dimension::PoolsMetadataBytes, Scope::Node);
    // Fewer slots are prepaid for, so more could be charged; a limit is not raised all the same.
    let fewer = PoolLimits { connections: 64, metadata_bytes: prepaid + room - 1, ..limits };
    node.pools.lower_limits(fewer).expect("it is not in use");
    assert_full(
        node.pools.install(setup("one-more", 100), Epoch::NONE),
        Dimension::PoolsMetadataBytes,
        Scope::Node,
    );
    node.pools.retire_provider(&most).expect("current");
    drop(most);
    until("its metadata comes back", || node.counts().metadata_bytes == 0).await;
    node.assert_clean_end().await;
}
