//! Steps of the control path: epochs, plans, limits.

use super::world::{Outcome, POOLED, World};
use latent_capabilities::broker::pools::LowerError;

impl World {
    pub(crate) fn rotate(&mut self, a: u16) -> Outcome {
        // Replaced epochs are kept by plans and sessions, so a run has room for so many.
        if self.rotations >= 24 || self.m.closed {
            return Ok(false);
        }
        let provider = usize::from(a) % self.m.limits.providers as usize;
        match self.install(provider) {
            Ok(()) => Ok(true),
            Err(error) => Err(format!("refusal: there is room for an epoch, and {error:?}")),
        }
    }
    pub(crate) fn retire_provider(&mut self, a: u16) -> Outcome {
        let provider = usize::from(a) % self.m.limits.providers as usize;
        if self.m.retired || self.m.installed[provider].is_none() {
            return Ok(false);
        }
        let Some(installed) = self.installed[provider].take() else { return Ok(false) };
        self.m.installed[provider] = None;
        match self.pools.retire_provider(&installed) {
            Ok(()) => Ok(true),
            Err(error) => Err(format!("refusal: the epoch is installed, and {error:?}")),
        }
    }
    pub(crate) fn seal_nth(&mut self, a: u16) -> Outcome {
        if self.m.retired || self.plans.len() > 200 {
            return Ok(false);
        }
        let tenant = usize::from(a) % self.m.limits.tenants as usize;
        match self.seal(tenant) {
            Ok(()) => Ok(true),
            Err(error) => Err(format!("refusal: there is room for a plan, and {error:?}")),
        }
    }
    pub(crate) fn revoke(&mut self, a: u16, b: u16) -> Outcome {
        let plan = self.plan_of[usize::from(a) % self.m.limits.tenants as usize];
        let provider = usize::from(b) % self.m.limits.providers as usize;
        if self.m.plans[plan].epochs[provider].is_none() {
            return Ok(false);
        }
        let revoked = self.plans[plan].revoke(POOLED[provider].operation(0));
        match revoked.map(|first| first == self.m.plans[plan].revoked[provider]) {
            Ok(false) => self.m.plans[plan].revoked[provider] = true,
            answer => return Err(format!("finality: revoke says {answer:?}")),
        }
        Ok(true)
    }
    pub(crate) fn withdraw(&mut self, a: u16) -> Outcome {
        let plan = self.plan_of[usize::from(a) % self.m.limits.tenants as usize];
        if self.plans[plan].withdraw() == self.m.plans[plan].withdrawn {
            return Err("finality: withdraw does not know whether it was the first".to_owned());
        }
        self.m.plans[plan].withdrawn = true;
        Ok(true)
    }

    pub(crate) fn lower(&mut self, a: u16) -> Outcome {
        let (mut s, used) = (self.m.limits.clone(), self.m.used());
        let most = |uses: &[u64]| uses.iter().copied().max().unwrap_or(0);
        let clients = 0..self.m.clients.len();
        let of_client = clients.map(|client| self.m.connections_of(client)).max().unwrap_or(0);
        let (limit, use_now) = match a % 9 {
            0 => (&mut s.pending, used.pending),
            1 => (&mut s.pool_running, used.pool_running),
            2 => (&mut s.tenant_requests, most(&used.tenant_requests)),
            3 => (&mut s.provider_requests, most(&used.provider_requests)),
            4 => (&mut s.tenant_running, most(&used.tenant_running)),
            5 => (&mut s.provider_running, most(&used.provider_running)),
            6 => (&mut s.connections, used.connections),
            7 => (&mut s.client_connections, of_client),
            _ => (&mut s.idle_connections, used.idle),
        };
        if *limit == 1 {
            return Ok(false);
        }
        *limit -= 1;
        let fits = use_now <= *limit;
        let agrees = s.tenant_running <= s.pool_running.min(s.tenant_requests)
            && s.provider_running <= s.pool_running.min(s.provider_requests)
            && s.client_connections.max(s.idle_connections) <= s.connections;
        let asked = latent_capabilities::broker::PoolLimits {
            maximum_lifetime: self.pools.limits().maximum_lifetime,
            ..super::world::pool_limits(&s)
        };
        // A right to dial that the line handed over and nobody has taken yet is in use.
        let handed = self.m.clients.iter().any(|client| !client.line.is_empty());
        match (self.pools.lower_limits(asked), fits && agrees && !self.m.retired) {
            (Ok(()), true) => self.m.limits = s,
            (Err(LowerError::Retired), false) if self.m.retired => {}
            (Err(LowerError::Refused(obstacles)), allowed) if !obstacles.is_empty() => {
                if allowed && !handed {
                    return Err(format!("refusal: {use_now} are used, and {obstacles:?}"));
                }
            }
            (answer, _) => {
                return Err(format!("refusal: lowering to {s:?} gave {answer:?}, used are {used:?}"));
            }
        }
        Ok(true)
    }
}
