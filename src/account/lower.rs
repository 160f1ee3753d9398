//! Lowering limits of several words together: all of them, or none.
//!
//! * W1. Lowerings are serialised by whoever calls: two at once never meet in a word.
//! * W2. All words are looked at first; if something stands in the way then, nothing was written, and nobody was refused
//!   for an attempt that could not succeed.
//! * W3. The room goes from every word before the limit of any is stored. Until then the units count as used; what
//!   comes in between at one word gives back what was taken from the others.
//! * W4. A unit that is given back after an obstacle is room that a waiter may have missed meanwhile: the caller signals
//!   whoever may wait, whatever came of it.

use super::dimension::Dimension;
use super::room::Lowering;
use super::scope::{NotLowered, Scope};

/// A word whose limits can be lowered, in two halves.
pub trait Lower {
    /// Looks whether the limit could be lowered now. Writes nothing.
    ///
    /// # Errors
    ///
    /// More is in use, the limit is lower already, or it is not counted here.
    fn look_lower(&self, dimension: Dimension, limit: u64) -> Result<(), NotLowered>;

    /// The first half: takes the room away.
    ///
    /// # Errors
    ///
    /// As [`look_lower`](Lower::look_lower).
    fn begin_lower(&self, dimension: Dimension, limit: u64) -> Result<Lowering, NotLowered>;

    /// The second half: stores the limit.
    ///
    /// # Errors
    ///
    /// The limit moved in between, because lowerings were not serialised. Undo it.
    fn finish_lower(&self, lowering: Lowering) -> Result<(), Lowering>;

    /// The other second half: gives the room back.
    fn undo_lower(&self, lowering: Lowering);
}

/// A limit to be lowered.
#[derive(Clone, Copy)]
pub struct Change<'a> {
    /// Where it is counted.
    pub word: &'a dyn Lower,
    /// Whose word that is.
    pub scope: Scope,
    /// What it counts.
    pub dimension: Dimension,
    /// What it is to be.
    pub limit: u64,
}

impl std::fmt::Debug for Change<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} of the {} to {}", self.dimension, self.scope, self.dimension.show(self.limit))
    }
}

/// A change that did not come about, and why.
#[derive(Clone, Copy, Debug)]
pub struct Unchanged<'a> {
    /// The change.
    pub change: Change<'a>,
    /// What stands in its way.
    pub why: NotLowered,
}

/// Looks which of the changes could not be made now. Writes nothing.
pub fn look<'a>(changes: &[Change<'a>]) -> Vec<Unchanged<'a>> {
    let obstacle = |change: &Change<'a>| {
        let why = change.word.look_lower(change.dimension, change.limit).err()?;
        Some(Unchanged { change: *change, why })
    };
    changes.iter().filter_map(obstacle).collect()
}

/// Lowers all of these limits, or changes nothing (W1 to W4).
///
/// # Errors
///
/// Every change that something stood against when its word was asked; never none.
pub fn lower_all<'a>(changes: &[Change<'a>]) -> Result<(), Vec<Unchanged<'a>>> {
    let seen = look(changes);
    if !seen.is_empty() {
        return Err(seen);
    }
    let mut begun = Vec::with_capacity(changes.len());
    let mut obstacles = Vec::new();
    for change in changes {
        // The others are asked too: the refusal names all of them.
        match change.word.begin_lower(change.dimension, change.limit) {
            Ok(lowering) => begun.push((change, lowering)),
            Err(why) => obstacles.push(Unchanged { change: *change, why }),
        }
    }
    if !obstacles.is_empty() {
        begun.into_iter().for_each(|(change, lowering)| change.word.undo_lower(lowering));
        return Err(obstacles);
    }
    for (change, lowering) in begun {
        if change.word.finish_lower(lowering).is_err() {
            crate::broken::accounting("two lowerings met at one word");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::gauge::Gauge;
    use super::super::node::{NodeUnits, NodeWord};
    use super::super::scope::{Heed, RequestUnits};
    use super::super::tenant::TenantWord;
    use super::*;
    use Dimension::{PoolsMetadataBytes, PoolsPending, PoolsRequestsPerTenant, PoolsRunning};

    struct Words {
        node: NodeWord,
        tenant: TenantWord,
        metadata: Gauge,
    }

    impl Words {
        fn new() -> Words {
            let node = NodeWord::new(8, 8, 8);
            let tenant = TenantWord::default();
            assert!(node.open_pools(8, 8) && tenant.open(8, 8));
            Words { node, tenant, metadata: Gauge::new(PoolsMetadataBytes, 100) }
        }
        fn to(&self, limit: u64) -> [Change<'_>; 4] {
            let at = |word, scope, dimension| Change { word, scope, dimension, limit };
            [
                at(&self.node, Scope::Node, PoolsPending),
                at(&self.node, Scope::Node, PoolsRunning),
                at(&self.tenant, Scope::Tenant(3), PoolsRequestsPerTenant),
                at(&self.metadata, Scope::Node, PoolsMetadataBytes),
            ]
        }
        fn used(&self) -> (u32, u32, u32, u64) {
            let node = self.node.snapshot();
            (node.pending, node.pool_running, self.tenant.snapshot().requests, self.metadata.used())
        }
    }

    #[test]
    fn all_of_them_or_none() {
        let words = Words::new();
        words.node.reserve(NodeUnits::NOW_POOL, Heed::Nothing).unwrap();
        words.node.reserve(NodeUnits::NOW_POOL, Heed::Nothing).unwrap();
        words.tenant.reserve(RequestUnits::Requests, Heed::Nothing).unwrap();
        words.tenant.reserve(RequestUnits::Requests, Heed::Nothing).unwrap();
        words.metadata.charge(2).unwrap();
        let held = words.used();

        let refused = lower_all(&words.to(1)).unwrap_err();
        let named: Vec<_> = refused.iter().map(|one| (one.change.scope, one.why)).collect();
        let used = |dimension| NotLowered::InUse { dimension, used: 2 };
        assert_eq!(
            named,
            [
                (Scope::Node, used(PoolsRunning)),
                (Scope::Tenant(3), used(PoolsRequestsPerTenant)),
                (Scope::Node, used(PoolsMetadataBytes)),
            ]
        );
        assert_eq!(words.used(), held);
        assert_eq!(format!("{:?}", refused[1].change), "pools.requests_per_tenant of the tenant to 1");

        lower_all(&words.to(2)).unwrap();
        assert_eq!(words.used(), held);
        assert_eq!(words.metadata.limit(), 2);
        for _ in 0..2 {
            words.node.reserve(NodeUnits::WAIT_POOL, Heed::Nothing).unwrap();
        }
        let full = super::super::scope::Blocked::Full;
        assert_eq!(words.node.reserve(NodeUnits::WAIT_POOL, Heed::Nothing), Err(full(PoolsPending)));
        let refused = lower_all(&words.to(3)).unwrap_err();
        assert_eq!(refused.len(), 4, "none of them can be raised");
    }

    /// What comes between the look and the first half: everything that was begun goes back.
    #[test]
    fn an_obstacle_that_was_not_seen_undoes_the_rest() {
        /// Says yes when it is looked at, and no when it is asked.
        struct Late;
        impl Lower for Late {
            fn look_lower(&self, _: Dimension, _: u64) -> Result<(), NotLowered> {
                Ok(())
            }
            fn begin_lower(&self, dimension: Dimension, _: u64) -> Result<Lowering, NotLowered> {
                Err(NotLowered::InUse { dimension, used: 9 })
            }
            fn finish_lower(&self, lowering: Lowering) -> Result<(), Lowering> {
                Err(lowering)
            }
            fn undo_lower(&self, _: Lowering) {
                panic!("nothing was begun here");
            }
        }
        let words = Words::new();
        let mut changes = words.to(1).to_vec();
        let late = Change { word: &Late, scope: Scope::Client(1), dimension: PoolsRunning, limit: 1 };
        changes.insert(2, late);
        let refused = lower_all(&changes).unwrap_err();
        assert_eq!(refused.len(), 1);
        assert_eq!(refused[0].why, NotLowered::InUse { dimension: PoolsRunning, used: 9 });
        assert_eq!(words.used(), (0, 0, 0, 0), "what was begun was undone");
        assert_eq!(words.metadata.limit(), 100);
        for _ in 0..8 {
            words.node.reserve(NodeUnits::NOW_POOL, Heed::Nothing).unwrap();
        }
    }
}
