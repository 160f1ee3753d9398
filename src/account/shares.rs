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
        }
    }

    /// Gives a word made with zeros its limit of streams. `false`: it has one already.
    pub fn open_streams(&self, streams: u32) -> bool {
        self.rooms.open(STREAMS.units(u64::from(streams)))
    }

    /// Gives the word its limits of connections. `false`: it has them already.
    pub fn open_connections(&self, connections: u32, idle: u32) -> bool {
        self.rooms.open(connection_limits(connections, idle))
    }

    /// Takes one share.
    ///
    /// # Errors
    ///
    /// Its dimension, if there is no room.
    #[inline]
    pub fn reserve(&self, share: Share) -> Result<(), Dimension> {
        let reserved = self.rooms.step(|word| taken::<SharesLayout>(word, share.units()));
        reserved.map(drop).map_err(|_| share.dimension())
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
