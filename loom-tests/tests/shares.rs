//! Models of the words that nobody waits at: what streams and connections take of the node (`account::shares`, S1 to S3), and the
//! bytes of one tenant (`account::bytes`).
#![cfg(loom)]

use latent_capabilities::model::account::bytes::{TenantBytesWord, Units};
use latent_capabilities::model::account::dimension::Dimension;
use latent_capabilities::model::account::scope::NotLowered;
use latent_capabilities::model::account::shares::{Share, SharesWord};
use loom::sync::Arc;
use loom::thread;
use loom_tests::{Bound, check};

const BOUND: Bound = Bound::Complete;

/// S1: one of two gets the last connection; who takes a stream meanwhile is not in their way.
#[test]
fn two_takers_one_connection() {
    check("shares::two_takers_one_connection", Bound::Preemptions(3), || {
        let word = Arc::new(SharesWord::new(1, 1, 1));
        let takers = [Share::Connection, Share::Stream].map(|share| {
            let word = word.clone();
            thread::spawn(move || word.reserve(share))
        });
        let mine = word.reserve(Share::Connection);
        let [other, stream] = takers.map(|taker| taker.join().unwrap());
        assert_eq!(stream, Ok(()), "a stream is no connection");
        let full = Err(Dimension::PoolsConnections);
        assert!((mine, other) == (Ok(()), full) || (mine, other) == (full, Ok(())), "{mine:?} {other:?}");
        let used = word.snapshot();
        assert_eq!((used.connections, used.streams, used.idle_connections), (1, 1, 0));
    });
}

/// S2: a parked connection that is destroyed gives both of its units in one step, so whoever finds room for a connection finds room
/// to park it too.
#[test]
fn a_parked_connection_goes_in_one_step() {
    check("shares::a_parked_connection_goes_in_one_step", BOUND, || {
        let word = Arc::new(SharesWord::new(1, 1, 1));
        assert_eq!((word.reserve(Share::Connection), word.reserve(Share::Idle)), (Ok(()), Ok(())));
        let destroyer = thread::spawn({
            let word = word.clone();
            move || word.give_parked()
        });
        for _ in 0..2 {
            if word.reserve(Share::Connection).is_ok() {
                assert_eq!(word.reserve(Share::Idle), Ok(()), "half of it was given back");
                word.give_parked();
            }
        }
        destroyer.join().unwrap();
        let used = word.snapshot();
        assert_eq!((used.connections, used.idle_connections), (0, 0));
    });
}

/// The limit falls while a stream is taken and given back: use is never above the limit that was stored.
#[test]
fn a_lower_limit_meets_a_stream() {
    check("shares::a_lower_limit_meets_a_stream", BOUND, || {
        let word = Arc::new(SharesWord::new(2, 1, 1));
        assert_eq!(word.reserve(Share::Stream), Ok(()));
        let other = thread::spawn({
            let word = word.clone();
            move || word.reserve(Share::Stream).is_ok()
        });
        let lowered = word.lower(Dimension::IoStreams, 1);
        let taken = other.join().unwrap();
        match lowered {
            Ok(()) => assert!(!taken, "above the limit"),
            Err(NotLowered::InUse { used, .. }) => assert!(taken && used == 2),
            Err(wrong) => panic!("{wrong:?}"),
        }
        word.give(Share::Stream);
        if taken {
            word.give(Share::Stream);
        }
        let room = (0..3).filter(|_| word.reserve(Share::Stream).is_ok()).count();
        assert_eq!(room, if lowered.is_ok() { 1 } else { 2 });
    });
}

/// Two of one tenant, whose bytes are enough for one of the two blocks.
#[test]
fn two_blocks_of_one_tenant() {
    check("shares::two_blocks_of_one_tenant", BOUND, || {
        let word = Arc::new(TenantBytesWord::default());
        assert!(word.open(2048));
        let other = thread::spawn({
            let word = word.clone();
            move || word.reserve(1, Units::of_block(2048))
        });
        let mine = word.reserve(3, Units::of_block(512));
        let other = other.join().unwrap();
        let full = Err(Dimension::IoTenantBytes);
        assert!((mine, other) == (Ok(()), full) || (mine, other) == (full, Ok(())), "{mine:?} {other:?}");
        assert_eq!(word.used(), if mine.is_ok() { 1536 } else { 2048 });
    });
}

/// A tenant's number is free only when nothing of it is in use: whoever takes a block meanwhile keeps it, or is refused.
#[test]
fn a_block_meets_the_end_of_its_tenant() {
    check("shares::a_block_meets_the_end_of_its_tenant", BOUND, || {
        let word = Arc::new(TenantBytesWord::default());
        assert!(word.open(1024));
        let taker = thread::spawn({
            let word = word.clone();
            move || word.reserve(1, Units::of_block(512)).is_ok()
        });
        let retired = word.retire();
        let taken = taker.join().unwrap();
        assert_ne!(retired, taken, "it was given to nobody, or taken from its owner");
        if taken {
            assert!(!word.retire(), "a block is in use");
            word.give(1, Units::of_block(512));
            assert!(word.retire());
        }
    });
}
