use super::super::room::small;
use super::*;

const LIMIT: u64 = 2;
const FLAGS: u64 = CLOSED | IO_MARK | POOL_MARK;
const ALL_UNITS: [NodeUnits; 9] = [
    NodeUnits::OWNER,
    NodeUnits::WAIT_IO,
    NodeUnits::WAIT_POOL,
    NodeUnits::RUN_IO,
    NodeUnits::RUN_POOL,
    NodeUnits::STAGED_IO,
    NodeUnits::STAGED_POOL,
    NodeUnits::NOW_IO,
    NodeUnits::NOW_POOL,
];

fn at(word: u64) -> NodeWord {
    NodeWord { rooms: Rooms::at(word, small::limits::<NodeLayout>(LIMIT)), peaks: Peaks::default() }
}

fn counts(units: NodeUnits) -> Vec<u64> {
    small::counts::<NodeLayout>(units.0)
}

/// The law, told without bit tricks: what a reservation of `units` says about a word.
fn verdict(word: u64, units: NodeUnits, heed: Heed) -> Result<Vec<u64>, Blocked> {
    if word & CLOSED != 0 {
        return Err(Blocked::Closed);
    }
    let rooms = small::counts::<NodeLayout>(word);
    let asked = counts(units);
    let mut left = Vec::new();
    for (field, (room, asked)) in NodeLayout::FIELDS.iter().zip(rooms.iter().zip(&asked)) {
        left.push(room.checked_sub(*asked).ok_or(Blocked::Full(field.dimension()))?);
    }
    if heed == Heed::Marks && asked[2] > 0 && word & IO_MARK != 0 {
        return Err(Blocked::Promised(Dimension::IoRunning));
    }
    if heed == Heed::Marks && asked[4] > 0 && word & POOL_MARK != 0 {
        return Err(Blocked::Promised(Dimension::PoolsRunning));
    }
    Ok(left)
}

#[test]
fn the_word_is_full_and_no_fields_overlap() {
    let fields = NodeLayout::FIELDS.iter().fold(0, |mask, field| {
        assert_eq!(mask & field.mask(), 0);
        mask | field.mask()
    });
    assert_eq!(fields & FLAGS, 0);
    assert_eq!(fields | FLAGS, u64::MAX);
    for field in NodeLayout::FIELDS {
        assert!(field.largest() >= 2 * field.dimension().ceiling() - 1, "{}", field.dimension());
    }
}

/// All 3^5 rooms with all 8 flags, every step that newcomers and owners take.
#[test]
fn every_step_of_every_small_word() {
    for word in small::words::<NodeLayout>(LIMIT, FLAGS) {
        for units in ALL_UNITS {
            for heed in [Heed::Marks, Heed::Nothing] {
                let node = at(word);
                let expected = verdict(word, units, heed);
                let planned = node.plan(NodeUnits::NONE, units, heed);
                assert_eq!(planned.map(drop), expected.clone().map(drop));
                assert_eq!(node.rooms.load(), word, "a look writes nothing");
                if let Ok(planned) = planned {
                    let other = at(word);
                    let step = |node: &NodeWord| node.step_planned(planned, NodeUnits::NONE, units, heed);
                    assert_eq!(step(&other).map(drop), Ok(()));
                    assert_eq!(other.rooms.load(), word - units.0);
                    // The word moved on: it is decided anew.
                    let again = verdict(word - units.0, units, heed).map(drop);
                    assert_eq!(step(&other).map(drop), again);
                }
                assert_eq!(node.reserve(units, heed), expected.clone().map(drop));
                let after = node.rooms.load();
                assert_eq!(after & FLAGS, word & FLAGS);
                let left = expected.unwrap_or(small::counts::<NodeLayout>(word));
                assert_eq!(small::counts::<NodeLayout>(after), left);
            }
            let fits =
                small::counts::<NodeLayout>(word).iter().zip(counts(units)).all(|(r, u)| r + u <= LIMIT);
            if fits {
                let node = at(word);
                let given = node.give(units);
                assert_eq!(given.io_marked, word & IO_MARK != 0);
                assert_eq!(given.pool_marked, word & POOL_MARK != 0);
                assert_eq!(node.rooms.load(), word + units.0);
            }
        }
    }
}

/// The turn's step takes or marks, never both; and never neither, unless the node is closed.
#[test]
fn the_turn_takes_or_marks_in_every_small_word() {
    for word in small::words::<NodeLayout>(LIMIT, FLAGS) {
        for units in [NodeUnits::RUN_IO, NodeUnits::RUN_POOL] {
            let (node, looked) = (at(word), at(word));
            let taken = node.take_or_mark(units);
            let after = node.rooms.load();
            assert_eq!(looked.has_or_mark(units).is_ok(), taken);
            assert_eq!(looked.rooms.load(), if taken { word } else { after });
            match verdict(word, units, Heed::Nothing) {
                Ok(left) => {
                    assert!(taken);
                    assert_eq!(small::counts::<NodeLayout>(after), left);
                    assert_eq!(after & FLAGS, word & FLAGS);
                }
                Err(Blocked::Full(dimension)) => {
                    assert!(!taken);
                    let mark = if dimension == Dimension::IoRunning { IO_MARK } else { POOL_MARK };
                    assert_eq!(after, word | mark);
                    // Nobody who could take the unit passes the mark.
                    at(after | small::limits::<NodeLayout>(LIMIT))
                        .reserve(units, Heed::Marks)
                        .unwrap_err();
                }
                Err(_) => assert!(!taken && after == word),
            }
        }
    }
}

#[test]
fn moving_on_is_one_step_in_every_small_word() {
    for word in small::words::<NodeLayout>(LIMIT, FLAGS) {
        for (wait, run) in
            [(NodeUnits::WAIT_IO, NodeUnits::RUN_IO), (NodeUnits::WAIT_POOL, NodeUnits::RUN_POOL)]
        {
            let waits =
                small::counts::<NodeLayout>(word).iter().zip(counts(wait)).all(|(r, u)| r + u <= LIMIT);
            if !waits {
                continue; // Nobody is in line who could move on.
            }
            let node = at(word);
            let moved = node.exchange(wait, run).map(drop);
            assert_eq!(moved, verdict(word, run, Heed::Marks).map(drop));
            let after = if moved.is_ok() { word - run.0 + wait.0 } else { word };
            assert_eq!(node.rooms.load(), after);

            let node = at(word);
            let moved = node.try_or_mark(wait, run).is_ok();
            assert_eq!(moved, verdict(word, run, Heed::Nothing).is_ok());
            if moved {
                assert_eq!(node.rooms.load(), word - run.0 + wait.0);
            } else {
                assert_eq!(node.rooms.load() & !FLAGS, word & !FLAGS);
            }
        }
    }
}

#[test]
fn a_node_at_every_ceiling_counts_to_the_end() {
    let node = NodeWord::default();
    let ceiling = |dimension: Dimension| u32::try_from(dimension.ceiling()).unwrap();
    let (owners, queued, running) =
        (ceiling(Dimension::IoOwners), ceiling(Dimension::IoQueued), ceiling(Dimension::IoRunning));
    assert!(node.open_io(owners, queued, running));
    assert!(node.open_pools(ceiling(Dimension::PoolsPending), ceiling(Dimension::PoolsRunning)));
    assert!(!node.open_io(owners, queued, running) && !node.open_pools(1, 1));
    let both = NodeUnits::STAGED_POOL.and(NodeUnits::RUN_POOL);
    for _ in 0..ceiling(Dimension::PoolsRunning) {
        node.reserve(both, Heed::Marks).unwrap();
    }
    assert_eq!(node.reserve(both, Heed::Marks), Err(Blocked::Full(Dimension::PoolsPending)));
    let io = NodeUnits::STAGED_IO.and(NodeUnits::RUN_IO);
    for _ in ceiling(Dimension::PoolsRunning)..owners {
        node.reserve(io, Heed::Marks).unwrap();
    }
    assert_eq!(node.reserve(io, Heed::Marks), Err(Blocked::Full(Dimension::IoOwners)));
    let used = node.snapshot();
    assert_eq!((used.owners, used.queued, used.running), (owners, queued, running));
    assert_eq!((used.pending, used.pool_running), (1_024, 1_024));
    for _ in 0..ceiling(Dimension::PoolsRunning) {
        node.give(both);
    }
    for _ in ceiling(Dimension::PoolsRunning)..owners {
        node.give(io);
    }
    assert_eq!(node.snapshot(), NodeUse::default());
    assert!(!node.close());
    assert!(node.close() && node.is_closed() && node.snapshot().closed);
    assert_eq!(node.reserve(NodeUnits::OWNER, Heed::Nothing), Err(Blocked::Closed));
}
