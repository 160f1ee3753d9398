//! Steps of connections: checkout, dial, acquire, park, and how they end.

use super::model::{self, Conn, Expect, Life, Link, Model, Whose, nth, why};
use super::real::{About, Call, Done, RealConn, Task};
use super::sockets::{self, Socket};
use super::world::{Law, Outcome, World};
use latent_capabilities::broker::pools::{Acquired, ConnectionReservation, Exchange, PooledConnection};
use latent_capabilities::broker::{Dimension, Error};

impl Model {
    fn client_of(&self, oper: usize) -> usize {
        self.oper(oper).target.expect("a pooled call").client
    }
    fn stands_in_line(&self, client: usize) -> bool {
        !self.clients[client].line.is_empty()
    }
    pub(crate) fn out_of_line(&mut self, oper: usize) {
        let client = self.client_of(oper);
        self.clients[client].line.retain(|at| *at != oper);
    }
    fn has_usable(&self, client: usize) -> bool {
        let usable = |conn: &Conn| self.is_usable(conn) && self.life(conn) == Life::Goes;
        self.conns.iter().flatten().any(|conn| conn.client == client && usable(conn))
    }

    /// What stands against a connection of any kind for a call.
    fn expect_connection(&self, oper: usize) -> Expect {
        let client = self.client_of(oper);
        let mut expect = self.stops(oper);
        expect.when(self.has_connection(oper), why::SECOND);
        expect.when(self.clients[client].line.contains(&oper), why::BUSY);
        expect
    }
    /// What stands against a dial. `heeds`: those in line come first.
    fn expect_dial(&self, oper: usize, heeds: bool) -> Expect {
        self.expect_dial_of(self.client_of(oper), self.expect_connection(oper), heeds)
    }
    /// The same for whoever it is, beside what stands against that.
    pub(crate) fn expect_dial_of(&self, client: usize, mut expect: Expect, heeds: bool) -> Expect {
        let (used, s) = (self.used(), &self.limits);
        expect.when(self.is_dialing(client), why::BUSY);
        expect.when(self.now < self.clients[client].not_before, why::BACKOFF);
        let per_client = (Dimension::PoolsConnectionsPerClient, Whose::Client);
        let of_client = self.connections_of(client);
        expect.room(per_client.0, per_client.1, of_client, 1, s.client_connections);
        let node = (Dimension::PoolsConnections, Whose::Node);
        if used.connections >= s.connections {
            // One that rests makes room; one that was handed over does not.
            let rests = |conn: &Conn| matches!(conn.link, Link::Idle(_));
            let free = |conn: &Conn| rests(conn) && !self.stands_in_line(conn.client);
            if !self.conns.iter().flatten().any(rests) {
                expect.full.push(node);
            } else if !self.conns.iter().flatten().any(free) {
                expect.may_full.push(node);
            }
        }
        if self.stands_in_line(client) && heeds {
            expect.may |= why::BUSY;
            expect.may_full.push(per_client);
            expect.promised = true;
        }
        expect
    }
}

impl World {
    fn nth_call(&self, a: u16) -> Option<usize> {
        let calls = self.calls(true);
        Some(calls[usize::from(a).checked_rem(calls.len())?])
    }
    fn pool_call(&self, at: usize) -> std::rc::Rc<Call> {
        self.call(at)
    }
    pub(crate) fn put_conn(&mut self, conn: Conn, real: RealConn) -> usize {
        let at = model::put(&mut self.m.conns, conn);
        while self.conns.len() <= at {
            self.conns.push(None);
        }
        self.conns[at] = Some(real);
        at
    }
    fn conn_with(&self, a: u16, fits: impl Fn(&RealConn) -> bool) -> Option<usize> {
        nth(&self.conns, a, fits)
    }

    pub(crate) fn checkout(&mut self, a: u16) -> Outcome {
        let Some(at) = self.nth_call(a) else { return Ok(false) };
        let client = self.m.client_of(at);
        let mut expect = self.m.expect_connection(at);
        let waited_for = self.m.stands_in_line(client);
        if waited_for {
            expect.may |= why::BUSY;
        }
        let found = match &*self.pool_call(at) {
            Call::Pool(call) => self.clients[client].checkout(call),
            Call::Ingress(request) => self.clients[client].checkout(request),
            Call::Direct(_) => unreachable!("connections are for pooled calls"),
        };
        self.judge("checkout", &expect, &found)?;
        match found {
            Ok(Some(connection)) => self.took_idle(at, connection)?,
            Ok(None) if self.m.has_usable(client) && !waited_for => {
                return Err(format!("connections: client {client} has an idle one, and checkout gave none"));
            }
            Ok(None) | Err(_) => {}
        }
        Ok(true)
    }
    /// An idle connection was handed out: of this client, usable, and nobody else's.
    fn took_idle(&mut self, oper: usize, mut connection: PooledConnection<Socket>) -> Law {
        let (client, number) = (self.m.client_of(oper), connection.resource().number());
        let of_it = |conn: &Option<Conn>| conn.as_ref().is_some_and(|conn| conn.socket == Some(number));
        let found = self.m.conns.iter().position(of_it);
        let Some(at) = found.filter(|at| {
            let conn = self.m.conn(*at);
            conn.client == client && self.m.is_usable(conn)
        }) else {
            return Err(format!("connections: client {client} handed out {number}, which is {found:?}"));
        };
        self.m.conns[at].as_mut().expect("found").link = Link::Active(oper);
        self.conns[at] = Some(RealConn::Active(connection));
        Ok(())
    }
    fn took_dial(&mut self, oper: usize, reservation: ConnectionReservation<Socket>) {
        let client = self.m.client_of(oper);
        let conn =
            Conn { client, link: Link::Dialing(oper), dead: false, born: 0, failed: false, socket: None };
        self.put_conn(conn, RealConn::Dial(reservation));
    }

    pub(crate) fn reserve(&mut self, a: u16) -> Outcome {
        let Some(at) = self.nth_call(a) else { return Ok(false) };
        let client = self.m.client_of(at);
        let expect = self.m.expect_dial(at, true);
        self.m.evicting = true;
        let reserved = match &*self.pool_call(at) {
            Call::Pool(call) => self.clients[client].reserve_connection(call),
            Call::Ingress(request) => self.clients[client].reserve_connection(request),
            Call::Direct(_) => unreachable!("connections are for pooled calls"),
        };
        self.judge("reserve", &expect, &reserved)?;
        if let Ok(reservation) = reserved {
            self.took_dial(at, reservation);
        }
        Ok(true)
    }

    pub(crate) fn acquire(&mut self, a: u16) -> Outcome {
        let Some(at) = self.nth_call(a) else { return Ok(false) };
        if self.task_of(About::Acquire(at)).is_some() {
            return Ok(false);
        }
        let (call, client) = (self.pool_call(at), self.clients[self.m.client_of(at)].clone());
        self.tasks.push(Task::new(About::Acquire(at), async move {
            Done::Acquire(match &*call {
                Call::Pool(call) => client.acquire(call).await,
                Call::Ingress(request) => client.acquire(request).await,
                Call::Direct(_) => unreachable!("connections are for pooled calls"),
            })
        }));
        Ok(true)
    }
    /// Those in line before this one that nobody has called.
    fn not_called_before(&self, client: usize, oper: usize) -> Vec<usize> {
        let before = self.m.clients[client].line.iter().copied().take_while(|at| *at != oper);
        let called = |at: &usize| {
            let waits = |task: &Task| task.about == About::Acquire(*at) && !task.is_woken();
            !self.tasks.iter().any(waits)
        };
        before.filter(|at| !called(at)).collect()
    }
    /// Remembers of each that was called in this step who stood before it and was not.
    pub(crate) fn note_called(&mut self) {
        for client in 0..self.m.clients.len() {
            for oper in self.m.clients[client].line.clone() {
                let woken = |task: &Task| task.about == About::Acquire(oper) && task.is_woken();
                if self.tasks.iter().any(woken) && !self.called.contains_key(&oper) {
                    let before = self.not_called_before(client, oper);
                    self.called.insert(oper, before);
                }
            }
        }
    }
    pub(crate) fn acquire_pending(&mut self, oper: usize) -> Law {
        self.called.remove(&oper);
        // What was dead or expired on the way is gone.
        sockets::check(&mut self.m, &mut self.conns, false)?;
        let client = self.m.client_of(oper);
        if self.m.stops(oper).must != 0 {
            return Err(format!("connections: a stopped acquire waits, {:?}", self.m.oper(oper)));
        }
        let alone = self.m.clients[client].line.iter().all(|at| *at == oper);
        let full = self.m.connections_of(client) >= self.m.limits.client_connections;
        let blocked = self.m.is_dialing(client) || full;
        if alone && (self.m.has_usable(client) || !blocked) {
            return Err(format!("no loss: an acquire of client {client} waits, and can go on"));
        }
        if !self.m.clients[client].line.contains(&oper) {
            self.m.clients[client].line.push(oper);
        }
        Ok(())
    }
    pub(crate) fn acquired(&mut self, oper: usize, result: Result<Acquired<Socket>, Error>) -> Law {
        sockets::check(&mut self.m, &mut self.conns, false)?;
        let client = self.m.client_of(oper);
        let waited = self.m.clients[client].line.contains(&oper);
        if result.is_ok() {
            // First come, first served: whoever stood before was called before, or with it.
            let ahead = self.called.remove(&oper).unwrap_or_else(|| self.not_called_before(client, oper));
            if let Some(before) = ahead.first() {
                return Err(format!("fifo: {oper} has a connection before {before}"));
            }
        }
        self.called.remove(&oper);
        self.m.out_of_line(oper);
        let mut expect = self.m.expect_dial(oper, waited);
        match result {
            Ok(Acquired::Idle(connection)) => {
                expect.must &= !(why::BUSY | why::BACKOFF);
                expect.full.clear();
                self.judge("acquire", &expect, &Ok::<(), Error>(()))?;
                self.took_idle(oper, connection)
            }
            Ok(Acquired::Dial(reservation)) => {
                self.judge("acquire", &expect, &Ok::<(), Error>(()))?;
                self.took_dial(oper, reservation);
                Ok(())
            }
            Err(error) => {
                // Who waits is not refused for what can be waited for.
                expect.must &= !why::BUSY;
                expect.full.retain(|(dimension, _)| *dimension == Dimension::PoolsConnections);
                expect.may_full.retain(|(dimension, _)| *dimension == Dimension::PoolsConnections);
                self.judge("acquire", &expect, &Err::<(), Error>(error))
            }
        }
    }

    pub(crate) fn dial_ok(&mut self, a: u16) -> Outcome {
        let Some(at) = self.conn_with(a, |conn| matches!(conn, RealConn::Dial(_))) else { return Ok(false) };
        let Conn { client, link, .. } = *self.m.conn(at);
        let Link::Dialing(oper) = link else { unreachable!("it is a dial") };
        let expect = self.m.holder_stops(oper);
        let Some(RealConn::Dial(reservation)) = self.conns[at].take() else { unreachable!("it is a dial") };
        let socket = Socket::new();
        let number = socket.number();
        let made = reservation.connected(socket);
        self.judge("dial", &expect, &made)?;
        match made {
            Ok(connection) => {
                self.m.clients[client].failures = 0;
                self.m.clients[client].not_before = 0;
                let now = self.m.now;
                let conn = self.m.conns[at].as_mut().expect("found");
                (conn.link, conn.socket, conn.born) = (Link::Active(oper), Some(number), now);
                self.conns[at] = Some(RealConn::Active(connection));
            }
            Err(_) => {
                self.m.conns[at] = None;
                self.m.failed_dial(client);
            }
        }
        Ok(true)
    }
    pub(crate) fn dial_fail(&mut self, a: u16) -> Outcome {
        let Some(at) = self.conn_with(a, |conn| matches!(conn, RealConn::Dial(_))) else { return Ok(false) };
        let client = self.m.conn(at).client;
        self.conns[at] = None;
        self.m.conns[at] = None;
        self.m.failed_dial(client);
        let paused = self.clients[client].retry_after();
        let until = self.m.clients[client].not_before;
        match paused.map(|pause| self.m.now + pause.as_nanos() as u64) {
            Some(real) if real == until => Ok(true),
            real => Err(format!("backoff: client {client} pauses until {real:?}, should be {until}")),
        }
    }

    pub(crate) fn park(&mut self, a: u16) -> Outcome {
        let Some(at) = self.conn_with(a, |conn| matches!(conn, RealConn::Active(_))) else {
            return Ok(false);
        };
        let Conn { client, link, .. } = *self.m.conn(at);
        let Link::Active(oper) = link else { unreachable!("it is in use") };
        let mut expect = self.m.holder_stops(oper);
        expect.when(Model::is_permit(oper), why::MAINTENANCE);
        expect.when(!self.m.is_current(client), why::EPOCH);
        let life = self.m.life(self.m.conn(at));
        expect.when(self.m.conn(at).failed || life == Life::Over, why::NOT_REUSABLE);
        if life == Life::PerhapsOver {
            expect.may |= why::NOT_REUSABLE;
        }
        let idle = self.m.used().idle;
        expect.room(Dimension::PoolsIdleConnections, Whose::Node, idle, 1, self.m.limits.idle_connections);
        let Some(RealConn::Active(connection)) = self.conns[at].take() else { unreachable!("it is in use") };
        let parked = connection.park(Exchange::complete());
        self.judge("park", &expect, &parked)?;
        match parked {
            Ok(()) => {
                self.m.conns[at].as_mut().expect("found").link = Link::Idle(self.m.now);
                self.conns[at] = Some(RealConn::Idle);
            }
            Err(_) => self.m.conns[at] = None,
        }
        Ok(true)
    }
    pub(crate) fn destroy(&mut self, a: u16) -> Outcome {
        let Some(at) = self.conn_with(a, |conn| matches!(conn, RealConn::Active(_))) else {
            return Ok(false);
        };
        self.conns[at] = None;
        self.m.conns[at] = None;
        Ok(true)
    }
    pub(crate) fn kill(&mut self, a: u16) -> Outcome {
        let Some(at) = nth(&self.m.conns, a, |conn| conn.socket.is_some()) else { return Ok(false) };
        let conn = self.m.conns[at].as_mut().expect("found");
        conn.dead = true;
        sockets::kill(conn.socket.expect("it is made"));
        Ok(true)
    }
    pub(crate) fn close_idle(&mut self, a: u16) -> Outcome {
        let Some(client) = usize::from(a).checked_rem(self.clients.len()) else { return Ok(false) };
        self.m.evicting = true;
        self.clients[client].close_idle();
        let waited_for = self.m.stands_in_line(client);
        sockets::check(&mut self.m, &mut self.conns, false)?;
        let rests = |conn: &Conn| conn.client == client && matches!(conn.link, Link::Idle(_));
        match self.m.conns.iter().flatten().find(|conn| rests(conn) && !waited_for) {
            Some(conn) => Err(format!("connections: {conn:?} rests on after it was to be closed")),
            None => Ok(true),
        }
    }
}
