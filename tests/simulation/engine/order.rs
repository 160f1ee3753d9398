//! The order of grants: who is next may be any that the rotation allows, and no other.

use super::model::{Model, Oper, PROVIDERS, Phase, TENANTS, Used};

/// The places of the rotation: the tenants, and direct I/O.
const PLACES: usize = TENANTS + 1;
const DIRECT: usize = TENANTS;

/// `[one][other]`: turns that `one` had since `other`, which waited and could have had them all along, had one.
#[derive(Clone, Default, Debug)]
pub(crate) struct Owed {
    places: [[u8; PLACES]; PLACES],
    providers: [[[u8; PROVIDERS]; PROVIDERS]; TENANTS],
    /// The same of the tenants that wait for one provider, whether that had room meanwhile or not.
    at_provider: [[[u8; TENANTS]; TENANTS]; PROVIDERS],
}

/// What was granted in one step.
#[derive(Clone, Default, Debug)]
pub(crate) struct Turns {
    places: [u8; PLACES],
    providers: [[u8; PROVIDERS]; TENANTS],
    /// Places one of whose waiters left the line, perhaps after a turn that was given back at once.
    perhaps: [bool; PLACES],
}

impl Turns {
    pub(crate) fn note_left(&mut self, oper: &Oper) {
        self.perhaps[oper.target.map_or(DIRECT, |_| oper.tenant)] = true;
    }
    pub(crate) fn note(&mut self, oper: &Oper) {
        match oper.target {
            Some(target) => {
                self.places[oper.tenant] += 1;
                self.providers[oper.tenant][target.provider] += 1;
            }
            None => self.places[DIRECT] += 1,
        }
    }
}

impl Model {
    fn waiting(&self) -> impl Iterator<Item = &Oper> {
        self.opers.iter().flatten().filter(|oper| oper.phase == Phase::Queued)
    }

    /// Whether a waiter could be granted: its tenant and its provider have room, whatever the node has.
    fn is_able(&self, oper: &Oper, used: &Used) -> bool {
        oper.target.is_none_or(|target| {
            used.tenant_running[oper.tenant] < self.limits.tenant_running
                && used.provider_running[target.provider] < self.limits.provider_running
        })
    }

    /// No loss: nobody that could be granted is left waiting.
    pub(crate) fn check_no_loss(&self, used: &Used) -> Result<(), String> {
        for oper in self.waiting() {
            let room = used.running < self.limits.running
                && (oper.target.is_none() || used.pool_running < self.limits.pool_running);
            // One that is about to be refused need not be granted.
            let ended = self.now >= oper.deadline.min(oper.queue_until) || self.retired;
            if room && self.is_able(oper, used) && !ended {
                return Err(format!("no loss: there is room and {oper:?} waits, {used:?}"));
            }
        }
        Ok(())
    }

    /// First in, first out in a group: whoever arrived before has gone before.
    pub(crate) fn check_fifo(&self, granted: &Oper) -> Result<(), String> {
        let same = |oper: &Oper| match (oper.target, granted.target) {
            (Some(one), Some(other)) => oper.tenant == granted.tenant && one.provider == other.provider,
            (None, None) => true,
            _ => false,
        };
        match self.waiting().find(|oper| same(oper) && oper.arrived < granted.arrived) {
            Some(before) => Err(format!("fifo: {granted:?} was granted before {before:?}")),
            None => Ok(()),
        }
    }

    /// Rotation: whoever waits and could go, all along, sees no other have two turns.
    pub(crate) fn check_rotation(&mut self, turns: &Turns, used: &Used) -> Result<(), String> {
        let mut able = [false; PLACES];
        let mut able_providers = [[false; PROVIDERS]; TENANTS];
        for oper in self.waiting() {
            if self.is_able(oper, used) {
                match oper.target {
                    Some(target) => {
                        able[oper.tenant] = true;
                        able_providers[oper.tenant][target.provider] = true;
                    }
                    None => able[DIRECT] = true,
                }
            }
        }
        self.check_places_kept(turns, used)?;
        let pool_room = used.pool_running < self.limits.pool_running;
        let mut owed = std::mem::take(&mut self.owed);
        for (other, able) in able.into_iter().enumerate() {
            for one in 0..PLACES {
                // What only the pools' own limit stands against, direct I/O takes nothing away from.
                let apart = one == DIRECT && !pool_room;
                let waited = able && turns.places[other] == 0 && !turns.perhaps[other] && !apart;
                let count = &mut owed.places[one][other];
                *count = if waited { *count + turns.places[one] } else { 0 };
                if one != other && *count > 1 {
                    return Err(format!("rotation: place {one} had {count} turns while {other} waited"));
                }
            }
        }
        for (tenant, able) in able_providers.iter().enumerate() {
            for (other, able) in able.iter().enumerate() {
                for one in 0..PROVIDERS {
                    let waited = *able && turns.providers[tenant][other] == 0 && !turns.perhaps[tenant];
                    let count = &mut owed.providers[tenant][one][other];
                    *count = if waited { *count + turns.providers[tenant][one] } else { 0 };
                    if one != other && *count > 1 {
                        return Err(format!(
                            "rotation: provider {one} of tenant {tenant} had {count} turns while {other} waited"
                        ));
                    }
                }
            }
        }
        self.owed = owed;
        Ok(())
    }

    /// Whoever waits for a provider that is full keeps its place there, whatever others do meanwhile.
    fn check_places_kept(&mut self, turns: &Turns, used: &Used) -> Result<(), String> {
        let mut waits = [[false; TENANTS]; PROVIDERS];
        for oper in self.waiting() {
            if let Some(target) = oper.target
                && used.tenant_running[oper.tenant] < self.limits.tenant_running
            {
                waits[target.provider][oper.tenant] = true;
            }
        }
        for (provider, waits) in waits.iter().enumerate() {
            for (other, waits) in waits.iter().enumerate() {
                let waited = *waits && turns.places[other] == 0 && !turns.perhaps[other];
                for one in (0..TENANTS).filter(|one| *one != other) {
                    let count = &mut self.owed.at_provider[provider][one][other];
                    *count = if waited { *count + turns.providers[one][provider] } else { 0 };
                    if *count > 1 {
                        return Err(format!(
                            "rotation: tenant {one} had {count} turns at provider {provider} while {other} waited"
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}
