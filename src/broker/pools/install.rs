//! Installing, replacing and retiring configurations, and looking up what is installed.
use super::client::{AnyClient, ClientCore, ProviderClient, Resource, client_cost};
use super::epoch::{
    Charge, Epoch, EpochCore, EpochData, InstalledProvider, OriginSlot, ProviderSetup, Tally,
};
use super::registry::{Books, Installations, Listed, Membership, Registry};
use crate::account::dimension::Dimension;
use crate::account::scope::Scope;
use crate::broker::control::{Kind, stop_waiters};
use crate::broker::error::{Denied, Error, Kind as ErrorKind, What};
use crate::broker::plan::ProviderRef;
use crate::foreign::Panics;
use crate::sync::order;
use std::any::Any;
use std::sync::Arc;

impl Registry {
    /// See [`ProviderPools::install`](super::ProviderPools::install).
    pub(super) fn install(&self, setup: ProviderSetup, expected: Epoch) -> Result<InstalledProvider, Error> {
        self.install_with(setup, expected, |_, _| Ok(())).map(|(installed, ())| installed)
    }

    /// See [`ProviderPools::install_with_clients`](super::ProviderPools::install_with_clients).
    pub(super) fn install_with_clients<T: Resource>(
        self: &Arc<Self>,
        setup: ProviderSetup,
        expected: Epoch,
        origins: u16,
    ) -> Result<(InstalledProvider, Vec<ProviderClient<T>>), Error> {
        self.install_with(setup, expected, |books, core| {
            (0..origins).map(|slot| self.make(books, core, OriginSlot::new(slot))).collect()
        })
    }

    /// Installs an epoch with what `make` makes for it. Whatever can be refused comes before the step that puts the new
    /// epoch in the place of the old one.
    fn install_with<C>(
        &self,
        setup: ProviderSetup,
        expected: Epoch,
        make: impl FnOnce(&mut Books, &Arc<EpochCore>) -> Result<C, Error>,
    ) -> Result<(InstalledProvider, C), Error> {
        self.sweep();
        // What was made in vain goes once the books are let go.
        let _in_vain;
        let (installed, made, replaced) = {
            let mut books = self.books();
            self.check_control()?;
            let table = self.installed.load_full();
            let old = table.get(&setup.name).cloned();
            let found = old.as_ref().map_or(Epoch::NONE, InstalledProvider::epoch);
            if found != expected || setup.epoch <= found {
                return Err(Error::denied(Denied::StaleEpoch));
            }
            let installed = self.lay(&books, setup)?;
            let listed = books.clients.len();
            let made = match make(&mut books, &installed.core) {
                Ok(made) => made,
                Err(error) => {
                    _in_vain = (books.clients.split_off(listed), installed);
                    return Err(error);
                }
            };
            let core = &installed.core;
            let word = &self.ground().floor.providers[usize::from(core.logical.number())];
            if word.swap_tag(old.as_ref().map_or(0, |old| old.core.tag), core.tag).is_err() {
                // The name is of this kind, so nobody but this registry gives it tags.
                crate::broken::accounting("a logical provider has another tag than its installation");
            }
            // From here on nothing starts on the old one; now it can no longer be looked up either.
            let mut next = Installations::clone(&table);
            next.insert(core.logical.name().to_owned(), installed.clone());
            self.installed.store(Arc::new(next));
            books.epochs.push(core.clone());
            books.tallies.push(core.data.tally.clone());
            self.publish(&books);
            let replaced = old.map(|old| (books.close_clients(Some(old.core.tag), false), old));
            (installed, made, replaced)
        };
        if let Some((clients, old)) = replaced {
            self.drain_epoch(&old.core, clients);
        }
        Ok((installed, made))
    }

    /// Makes an epoch of the setup, with its number, its tag and its charge, if there is room for it.
    fn lay(&self, books: &Books, setup: ProviderSetup) -> Result<InstalledProvider, Error> {
        let limits = self.limits.load();
        if setup.credentials.len() as u64 > limits.configuration_bytes {
            return Err(Error::too_large(Dimension::PoolsConfigurationBytes));
        }
        refusable!(Dimension::PoolsConfigurations, Error::full(Dimension::PoolsConfigurations, Scope::Node));
        if books.epochs.len() >= limits.configurations as usize {
            return Err(Error::full(Dimension::PoolsConfigurations, Scope::Node));
        }
        let (logical, tag) = {
            let ground = self.ground();
            let mut control = ground.control();
            (control.logical(ground, &setup.name, Kind::Pooled)?, control.next_tag()?)
        };
        let charge = Charge::new(&self.anchor, epoch_cost(&setup))?;
        let data = Arc::new(EpochData {
            number: setup.epoch,
            authority: setup.authority,
            digest: setup.digest,
            credentials: setup.credentials,
            tally: Arc::new(Tally::new(&logical, tag, setup.epoch)),
        });
        let reference = ProviderRef::new(logical.clone(), tag, setup.epoch.0, Some(data.clone()));
        let core = Arc::new(EpochCore::new(logical, tag, data, charge));
        Ok(InstalledProvider { core, reference })
    }

    /// See [`ProviderPools::retire_provider`](super::ProviderPools::retire_provider).
    pub(super) fn retire_provider(&self, provider: &InstalledProvider) -> Result<(), Error> {
        let core = &provider.core;
        self.check_own(core)?;
        let clients = {
            let books = self.books();
            if !core.take_out() {
                return Err(Error::retired(What::Epoch));
            }
            let mut next = Installations::clone(&self.installed.load_full());
            next.remove(core.logical.name());
            self.installed.store(Arc::new(next));
            books.close_clients(Some(core.tag), false)
        };
        self.drain_epoch(core, clients);
        Ok(())
    }

    /// After an epoch's tag was swapped and its clients closed: ends the waits on it, and destroys what is idle.
    fn drain_epoch(&self, old: &EpochCore, clients: Vec<Arc<dyn AnyClient>>) {
        let mut panics = Panics::none();
        panics.run(|| stop_waiters(self.ground(), old.logical.number(), old.tag));
        for client in clients {
            panics.add(client.drain());
        }
        self.contain(panics);
        self.events.look_soon();
    }

    fn check_own(&self, core: &EpochCore) -> Result<(), Error> {
        if std::ptr::eq(self.ground(), core.ground()) {
            Ok(())
        } else {
            Err(Error::denied(Denied::ForeignProvider))
        }
    }

    /// See [`ProviderPools::client`](super::ProviderPools::client).
    pub(super) fn client<T: Resource>(
        self: &Arc<Self>,
        provider: &InstalledProvider,
        origin: OriginSlot,
    ) -> Result<ProviderClient<T>, Error> {
        self.check_own(&provider.core)?;
        match self.find_or_make(provider, origin) {
            // Something that nobody keeps any more may stand in the way.
            Err(error) if matches!(error.kind(), ErrorKind::Full(_)) => {
                self.sweep();
                self.find_or_make(provider, origin)
            }
            answer => answer,
        }
    }

    fn find_or_make<T: Resource>(
        self: &Arc<Self>,
        provider: &InstalledProvider,
        origin: OriginSlot,
    ) -> Result<ProviderClient<T>, Error> {
        let core = &provider.core;
        let mut books = self.books();
        self.check_control()?;
        if !core.is_current() {
            return Err(Error::retired(What::Epoch));
        }
        let found = books.clients.iter().find(|listed| listed.tag == core.tag && listed.origin == origin);
        if let Some(listed) = found {
            let any: Arc<dyn Any + Send + Sync> = listed.client.clone().into_any();
            let typed = any.downcast::<ClientCore<T>>();
            return typed.map(|core| ProviderClient { core }).map_err(|_| Error::denied(Denied::OtherType));
        }
        self.make(&mut books, core, origin)
    }

    /// A client of an epoch, which is current or about to be, if there is room for it.
    fn make<T: Resource>(
        self: &Arc<Self>,
        books: &mut Books,
        core: &Arc<EpochCore>,
        origin: OriginSlot,
    ) -> Result<ProviderClient<T>, Error> {
        let number = core.logical.number();
        let limits = self.limits.load();
        refusable!(Dimension::PoolsClients, Error::full(Dimension::PoolsClients, Scope::Node));
        if self.clients.load(order::OBSERVE) >= limits.clients {
            return Err(Error::full(Dimension::PoolsClients, Scope::Node));
        }
        let of_provider = books.clients.iter().filter(|listed| listed.provider == number).count();
        if of_provider >= limits.clients_per_provider as usize {
            return Err(Error::full(Dimension::PoolsClientsPerProvider, Scope::Provider(number)));
        }
        let name = self.next_client()?;
        let charged = client_cost::<T>(limits.connections_per_client);
        self.ground().pool_metadata.charge(charged)?;
        let member = Membership::new(self.clone(), charged);
        let slot = books.free_slot();
        let client = Arc::new(ClientCore::<T>::new(
            member,
            core.clone(),
            origin,
            (name, slot),
            limits.connections_per_client,
        ));
        books.list(Listed { tag: core.tag, provider: number, origin, slot, client: client.clone() });
        Ok(ProviderClient { core: client })
    }

    /// A number that no client of this registry ever had: what a request remembers of its client.
    fn next_client(&self) -> Result<u32, Error> {
        let next = |last: u32| last.checked_add(1);
        match self.clients_made.fetch_update(order::STEP, order::OBSERVE, next) {
            Ok(last) => Ok(last + 1),
            Err(_) => Err(Error::denied(Denied::TagsExhausted)),
        }
    }
}

/// What an epoch is charged beyond the prepaid cost: its private bytes and its public texts.
fn epoch_cost(setup: &ProviderSetup) -> u64 {
    (setup.credentials.len() + setup.authority.len() + setup.digest.len() + 2 * setup.name.len()) as u64
}
