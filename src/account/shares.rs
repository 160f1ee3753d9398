//! The shares word: what streams, connections and idle connections take of the node.
//!
//! ```text
//!  63    37 36            26 25        13 12      0
//! │        │ idle connections │ connections │ streams │
//! ```
//!
//! * S1. A connection holds one connection unit from the reservation of its dial to the destruction of its socket.
//! * S2. While it is parked it holds one idle unit as well.
//! * S3. Nobody waits at this word; there are no marks.
//!
//! Rooms: see [`super::room`], R1 to R5.

use super::dimension::Dimension;
use super::peaks::Peaks;
use super::room::{Field, Layout, Lowering, Rooms, lowering, taken};
use super::scope::NotLowered;

const STREAMS: Field = Field::new(0, 13, Dimension::IoStreams);
const CONNECTIONS: Field = Field::new(13, 13, Dimension::PoolsConnections);
const IDLE: Field = Field::new(26, 11, Dimension::PoolsIdleConnections);

#[derive(Debug)]
struct SharesLayout;

impl Layout for SharesLayout {
    const FIELDS: &'static [Field] = &[STREAMS, CONNECTIONS, IDLE];
}

/// One share of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// A stream or a transfer.
    Stream,
    /// A connection.
    Connection,
    /// A parked connection.
    Idle,
}

impl Share {
    const fn units(self) -> u64 {
        match self {
            Share::Stream => STREAMS.units(1),
            Share::Connection => CONNECTIONS.units(1),
            Share::Idle => IDLE.units(1),
        }
    }

    /// What it is counted as.
    pub const fn dimension(self) -> Dimension {
        match self {
            Share::Stream => STREAMS.dimension(),
            Share::Connection => CONNECTIONS.dimension(),
            Share::Idle => IDLE.dimension(),
        }
    }
}

lowering!(SharesWord);

/// The room of the node for streams and connections.
#[cfg_attr(not(loom), derive(bytemuck::Zeroable))]
#[derive(Debug, Default)]
pub struct SharesWord {
    rooms: Rooms<SharesLayout>,
    peaks: Peaks<SharesLayout>,
}

/// What is used of the shares, at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharesUse {
    /// Streams and transfers.
    pub streams: u32,
    /// Connections, dials included.
    pub connections: u32,
    /// Of these: parked.
    pub idle_connections: u32,
}

impl SharesWord {
    /// A word with these limits. Zeros are a node not yet opened.
    pub fn new(streams: u32, connections: u32, idle: u32) -> SharesWord {
        SharesWord {
            rooms: Rooms::new(STREAMS.units(u64::from(streams)) | connection_limits(connections, idle)),
            peaks: Peaks::default(),
        }
    }

    /// Gives a word made with zeros its limit of streams. `false`: it has one already.
    pub fn open_streams(&self, streams: u32) -> bool {
        let opened = self.rooms.open(STREAMS.units(u64::from(streams)));
        self.peaks.limits_rose();
        opened
    }

    /// Gives the word its limits of connections. `false`: it has them already.
    pub fn open_connections(&self, connections: u32, idle: u32) -> bool {
        let opened = self.rooms.open(connection_limits(connections, idle));
        self.peaks.limits_rose();
        opened
    }

    /// Takes one share.
    ///
    /// # Errors
    ///
    /// Its dimension, if there is no room.
    #[inline]
    pub fn reserve(&self, share: Share) -> Result<(), Dimension> {
        refusable!(share.dimension(), share.dimension());
        let reserved = self.rooms.step(|word| taken::<SharesLayout>(word, share.units()));
        reserved.map_err(|_| share.dimension())?;
        self.peaks.see(&self.rooms);
        Ok(())
    }

    /// Gives one share back.
    ///
    /// # Panics
    ///
    /// Broken accounting, if it was not taken.
    #[inline]
    pub fn give(&self, share: Share) {
        self.rooms.give(share.units());
    }

    /// Gives back a parked connection: its idle unit and its connection unit, in one step.
    ///
    /// # Panics
    ///
    /// Broken accounting, if they were not taken.
    #[inline]
    pub fn give_parked(&self) {
        self.rooms.give(IDLE.units(1) | CONNECTIONS.units(1));
    }

    /// A step that changes nothing: whoever gave before it is seen afterwards; whoever gives after it sees what the caller
    /// did before.
    pub fn meet(&self) {
        self.rooms.give(0);
    }

    /// The most that was ever used in each dimension.
    pub fn peaks(&self) -> impl Iterator<Item = (Dimension, u64)> {
        self.peaks.each()
    }

    /// What is used, all of one instant.
    pub fn snapshot(&self) -> SharesUse {
        let (used, _) = self.rooms.used();
        SharesUse {
            streams: STREAMS.count(used),
            connections: CONNECTIONS.count(used),
            idle_connections: IDLE.count(used),
        }
    }
}

const fn connection_limits(connections: u32, idle: u32) -> u64 {
    CONNECTIONS.units(connections as u64) | IDLE.units(idle as u64)
}

#[cfg(test)]
mod tests {
    use super::super::room::small;
    use super::*;

    const LIMIT: u64 = 2;
    const SHARES: [Share; 3] = [Share::Stream, Share::Connection, Share::Idle];

    #[test]
    fn every_step_of_every_small_word() {
        for word in small::words::<SharesLayout>(LIMIT, 0) {
            for (share, field) in SHARES.into_iter().zip(SharesLayout::FIELDS) {
                let shares = SharesWord {
                    rooms: Rooms::at(word, small::limits::<SharesLayout>(LIMIT)),
                    ..SharesWord::default()
                };
                let reserved = shares.reserve(share);
                if field.of(word) > 0 {
                    assert_eq!(reserved, Ok(()));
                    assert_eq!(shares.rooms.load(), word - field.units(1));
                    shares.give(share);
                } else {
                    assert_eq!(reserved, Err(field.dimension()));
                }
                assert_eq!(shares.rooms.load(), word);
            }
        }
    }

    #[test]
    fn a_parked_connection_goes_in_one_step() {
        let shares = SharesWord::default();
        assert!(shares.open_streams(4_096) && shares.open_connections(4_096, 1_024));
        assert!(!shares.open_streams(1) && !shares.open_connections(1, 0));
        for _ in 0..1_024 {
            shares.reserve(Share::Connection).unwrap();
            shares.reserve(Share::Idle).unwrap();
        }
        assert_eq!(shares.reserve(Share::Idle), Err(Dimension::PoolsIdleConnections));
        let used = shares.snapshot();
        assert_eq!((used.streams, used.connections, used.idle_connections), (0, 1_024, 1_024));
        for _ in 0..1_024 {
            shares.give_parked();
        }
        assert_eq!(shares.snapshot(), SharesUse::default());
        assert_eq!(SharesWord::new(1, 2, 1).rooms.limits(), SharesWord::new(1, 2, 1).rooms.load());
    }
}
