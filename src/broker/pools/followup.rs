//! Following up: the next request of the same activation, within what is left of the last one's time.
use super::admission::{PoolAdmission, PoolCall};
use super::client::{ProviderClient, Resource};
use super::pools::ProviderPools;
use crate::broker::error::{Denied, Error};
use crate::broker::io::{IoAdmission, check_operation};

impl ProviderPools {
    /// Admits the request that follows from `previous`, such as the next hop of a redirect: of the same session, with the
    /// deadline that `previous` has now, narrowed by its policy's wall time; so a chain ends where its first call would have
    /// ended. The client may be another one of this registry; policy, provider and publication are asked anew at the
    /// dispatch.
    ///
    /// **Drop `previous`, and its connection, before awaiting the turn.** It holds running units until then; where there is
    /// one of them, a chain that keeps it would wait for itself until its deadline.
    ///
    /// # Errors
    /// A client or a call of another registry; `previous` was stopped or its deadline has passed; otherwise as
    /// [`admit`](Self::admit). Nothing is held afterwards. No lock, no allocation.
    pub fn admit_followup<T: Resource>(
        &self,
        client: &ProviderClient<T>,
        previous: &PoolCall,
    ) -> Result<PoolAdmission, Error> {
        let lease = previous.lease();
        if !self.registry_arc().anchor.holds(lease.pin()) {
            return Err(Error::denied(Denied::ForeignClient));
        }
        check_operation(lease)?;
        let until = previous.io().deadline();
        self.ask(client, lease.pin(), Some(until), false)
            .map(|front| PoolAdmission { inner: IoAdmission::new(front) })
    }
}
