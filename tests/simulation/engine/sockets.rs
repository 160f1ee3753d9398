//! What the pools keep in this world: sockets that a script can kill, and that say when they are destroyed.

use super::gates::OURS;
use super::model::{Conn, Life, Link, MS, Model};
use super::real::RealConn;
use super::world::Law;
use latent_capabilities::broker::pools::Resource;
use std::cell::RefCell;

/// What is known of each socket of this run, by number.
#[derive(Clone, Copy, Default, Debug)]
struct Fate {
    dead: bool,
    destroyed: u32,
    loud: bool,
}

// One run at a time on a thread, and everything of it happens there, the control task included.
thread_local! {
    static FATES: RefCell<Vec<Fate>> = const { RefCell::new(Vec::new()) };
    static DESTROYED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Socket(usize);

impl Socket {
    pub(crate) fn new() -> Socket {
        FATES.with_borrow_mut(|fates| {
            fates.push(Fate::default());
            Socket(fates.len() - 1)
        })
    }
    pub(crate) fn number(&self) -> usize {
        self.0
    }
}

impl Resource for Socket {
    fn is_reusable(&mut self) -> bool {
        FATES.with_borrow(|fates| !fates[self.0].dead)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let loud = FATES.with_borrow_mut(|fates| {
            let Some(fate) = fates.get_mut(self.0) else { return false };
            fate.destroyed += 1;
            fate.loud
        });
        DESTROYED.with_borrow_mut(|destroyed| destroyed.push(self.0));
        if loud {
            std::panic::panic_any(OURS);
        }
    }
}

pub(crate) fn forget_all() {
    FATES.with_borrow_mut(Vec::clear);
    DESTROYED.with_borrow_mut(Vec::clear);
}

/// The peer closes it.
pub(crate) fn kill(socket: usize) {
    FATES.with_borrow_mut(|fates| fates[socket].dead = true);
}

/// Its destructor panics, or does not.
pub(crate) fn be_loud(socket: usize, loud: bool) {
    FATES.with_borrow_mut(|fates| fates[socket].loud = loud);
}

/// How many of these were destroyed.
pub(crate) fn destroyed(sockets: &[usize]) -> u64 {
    FATES.with_borrow(|fates| sockets.iter().map(|socket| u64::from(fates[*socket].destroyed)).sum())
}

/// How many were made and not destroyed; an error if one was destroyed twice.
pub(crate) fn alive() -> Result<usize, String> {
    FATES.with_borrow(|fates| match fates.iter().position(|fate| fate.destroyed > 1) {
        Some(twice) => Err(format!("exactly once: socket {twice} was destroyed twice")),
        None => Ok(fates.iter().filter(|fate| fate.destroyed == 0).count()),
    })
}

/// Sockets that were destroyed since the last look: each for a reason. What the step itself has destroyed is not in the
/// model any more.
pub(crate) fn check(m: &mut Model, conns: &mut [Option<RealConn>], settled: bool) -> Law {
    let destroyed = DESTROYED.with_borrow_mut(std::mem::take);
    for socket in destroyed {
        let of_it = |conn: &Option<Conn>| conn.as_ref().is_some_and(|conn| conn.socket == Some(socket));
        let Some(at) = m.conns.iter().position(of_it) else { continue };
        let conn = m.conn(at);
        let justified = match conn.link {
            Link::Idle(since) => {
                let expired = m.now >= since + m.limits.idle_age * 10 * MS || m.life(conn) != Life::Goes;
                let replaced = !m.is_current(conn.client);
                // One client's dial may cost another one's idle connection when the node has no more.
                expired || conn.dead || replaced || m.retired || m.evicting
            }
            Link::Dialing(_) | Link::Active(_) => false,
        };
        if !justified {
            return Err(format!("connections: {conn:?} was destroyed for no reason"));
        }
        m.conns[at] = None;
        conns[at] = None;
    }
    m.evicting = false;
    let late = |conn: &Conn| match conn.link {
        // What was handed over to somebody in line is his to look at.
        Link::Idle(_) if !m.clients[conn.client].line.is_empty() => false,
        Link::Idle(since) => m.now >= since + m.limits.idle_age * 10 * MS || m.life(conn) == Life::Over,
        Link::Dialing(_) | Link::Active(_) => false,
    };
    match m.conns.iter().flatten().find(|conn| settled && late(conn)) {
        Some(conn) => Err(format!("connections: it is {} and {conn:?} rests on", m.now)),
        None => Ok(()),
    }
}
