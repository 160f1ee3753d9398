//! Limits: io.71, io.72, io.75, io.76.
use super::support::*;
use crate::account::dimension::Group;

/// io.75: nothing below the lowest, nothing above the ceiling, for any dimension.
#[tokio::test(start_paused = true)]
async fn zero_and_huge_limits_are_refused_for_each_kind_12() {
    let broker = Broker::with_clock(BrokerLimits::default(), Clock::tokio()).expect("the defaults agree");
    for &dimension in Dimension::ALL.iter().filter(|dimension| dimension.group() == Group::Io) {
        let mut values = vec![dimension.ceiling() + 1];
        // Zero bytes per tenant stand for all of the node's.
        if dimension != Dimension::IoTenantBytes {
            values.push(0);
        }
        for value in values {
            let mut limits = IoLimits::default();
            limits.set(dimension, value).expect("it is one of these limits");
            let error = IoRuntime::new(&broker, limits).expect_err("out of range").to_string();
            assert!(error.contains(dimension.name()), "{} = {value}: {error}", dimension.name());
        }
    }
    IoRuntime::new(&broker, IoLimits::default()).expect("the broker has no runtime yet");
    assert!(IoRuntime::new(&broker, IoLimits::default()).is_err(), "a broker has one runtime");
}

/// io.71, io.72, io.73: the defaults.
#[test]
fn the_defaults_are_the_promised_ones() {
    const KIB: u64 = 1024;
    const MIB: u64 = 1024 * KIB;
    let limits = IoLimits::default();
    assert_eq!((limits.owners, limits.running, limits.queued), (256, 64, 128));
    assert_eq!((limits.staged_bytes, limits.result_bytes, limits.buffers), (8 * MIB, 8 * MIB, 1024));
    assert_eq!((limits.streams, limits.metadata_bytes), (128, 4 * MIB));
    assert_eq!((limits.chunk_bytes, limits.stream_chunks, limits.stream_bytes), (64 * KIB, 8, 64 * MIB));
    assert_eq!(limits.queue_wait, std::time::Duration::from_secs(5));
    assert_eq!(BrokerLimits::default().output_bytes, 64 * KIB);
}

/// io.78: every owner is counted on its own, and everything is given back.
#[tokio::test(start_paused = true)]
async fn a_snapshot_counts_each_owner() {
    let node = Node::new();
    assert_eq!((node.io.limits().chunk_bytes, node.io.limits().stream_chunks), (4096, small().stream_chunks));
    let session = node.session();
    let waiting = node.io.admit(&session).expect("there is room");
    let call = node.bulk_call(&session, 100);
    let staged = call.buffer(600, 0).expect("there is room");
    let result = filled(&call, b"x").retain().expect("there is room");
    let stream = call.stream(2).expect("there is room");
    let transfer =
        call.transfer(TransferOptions { chunk_bytes: 512, outstanding: 2 }).expect("the call has a budget");
    let now = node.io.snapshot();
    assert_eq!((now.owners, now.running, now.queued, now.streams), (2, 1, 1, 2));
    // The window: two input places, two output places of two blocks each.
    assert_eq!((now.staged_bytes, now.result_bytes), (1024 + 4 * BLOCK, BLOCK + 2 * BLOCK));
    assert_eq!(now.buffers, 2 + 6);
    assert!(!now.is_zero());
    drop((waiting, staged, result, stream, transfer, call, session));
    node.assert_zero();
    assert_eq!(node.io.snapshot().metadata_bytes, 0);
}

/// io.78: any one number keeps a snapshot from being zero; that admission is closed does not.
#[test]
fn a_snapshot_is_zero_when_nothing_is_held() {
    let zero = IoSnapshot { closed: true, ..IoSnapshot::default() };
    assert!(zero.is_zero());
    let held = [
        IoSnapshot { owners: 1, ..zero },
        IoSnapshot { running: 1, ..zero },
        IoSnapshot { queued: 1, ..zero },
        IoSnapshot { staged_bytes: 1, ..zero },
        IoSnapshot { result_bytes: 1, ..zero },
        IoSnapshot { buffers: 1, ..zero },
        IoSnapshot { streams: 1, ..zero },
        IoSnapshot { metadata_bytes: 1, ..zero },
    ];
    assert!(held.iter().all(|snapshot| !snapshot.is_zero()));
}

/// io.45, io.71, io.77: the metadata limit holds what all slots are prepaid for and what is declared, together.
#[tokio::test(start_paused = true)]
async fn the_metadata_limit_is_of_all_metadata() {
    let prepaid = small().prepaid(crate::broker::IO_COSTS);
    let node = Node::with(IoLimits { metadata_bytes: prepaid + 1_000, ..small() });
    let session = node.session();
    let call = node.call(&session);
    assert_eq!(full(call.buffer(1, 1_001)), Dimension::IoMetadataBytes);
    let framed = call.buffer(1, 999).expect("there is room");
    assert_eq!(full(call.reserve_scratch(1, 2)), Dimension::IoMetadataBytes);
    let scratch = call.reserve_scratch(1, 1).expect("exactly the rest");
    assert!(node.io.snapshot().metadata_bytes <= prepaid + 1_000);
    drop((framed, scratch, call, session));
    node.assert_zero();
}
