//! What stands for a provider's work: it begins, waits until a script says how it ends, and ends so.

use latent_capabilities::broker::pools::PoolCall;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// What every panic of this world says; the test's hook prints none of them.
pub(crate) const OURS: &str = "simulated: foreign code panics";

/// How work ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// With an answer; its call is dropped before.
    Answer,
    /// With an answer that holds the call.
    KeepCall,
    /// With an answer whose destructor panics, if nobody waits for it.
    LoudAnswer,
    /// A close that fails; of other work an answer.
    Fail,
    Panic,
    /// It answers, and its destructor panics.
    PanicInDrop,
}

impl End {
    pub(crate) fn may_panic(self) {
        if matches!(self, End::Panic | End::PanicInDrop) {
            std::panic::panic_any(OURS);
        }
    }
}

#[derive(Default)]
struct State {
    began: bool,
    end: Option<End>,
    waker: Option<Waker>,
}

/// Where a script and a piece of work meet.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn has_begun(&self) -> bool {
        self.state().began
    }
    pub(crate) fn end(&self, end: End) {
        let waker = {
            let mut state = self.state();
            state.end.get_or_insert(end);
            state.waker.take()
        };
        self.changed.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
    /// Wakes it for nothing.
    pub(crate) fn wake(&self) {
        let waker = self.state().waker.clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
    fn poll(&self, cx: &Context<'_>) -> Poll<End> {
        let mut state = self.state();
        state.began = true;
        match state.end {
            Some(end) => Poll::Ready(end),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
    /// For work that blocks its thread.
    pub(crate) fn block(&self) -> End {
        let mut state = self.state();
        state.began = true;
        self.changed.notify_all();
        loop {
            match state.end {
                Some(end) => return end,
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
    /// Until blocking work has begun.
    pub(crate) fn await_begin(&self) {
        let mut state = self.state();
        while !state.began {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The answer of a job.
pub(crate) struct Answer {
    pub(crate) call: Option<PoolCall>,
    pub(crate) loud: bool,
}

impl Answer {
    pub(crate) fn of(end: End, call: Option<PoolCall>) -> Answer {
        let call = if end == End::KeepCall { call } else { None };
        Answer { call, loud: end == End::LoudAnswer }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if self.loud {
            std::panic::panic_any(OURS);
        }
    }
}

/// A provider's work.
pub(crate) struct Work {
    gate: Arc<Gate>,
    call: Option<PoolCall>,
    loud: bool,
}

impl Work {
    pub(crate) fn new(gate: Arc<Gate>, call: PoolCall) -> Work {
        Work { gate, call: Some(call), loud: false }
    }
}

impl Future for Work {
    type Output = Answer;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let Poll::Ready(end) = self.gate.poll(cx) else { return Poll::Pending };
        if end == End::Panic {
            std::panic::panic_any(OURS);
        }
        self.loud = end == End::PanicInDrop;
        Poll::Ready(Answer::of(end, self.call.take()))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if self.loud {
            std::panic::panic_any(OURS);
        }
    }
}

/// The close of a connection.
pub(crate) struct Closing(pub(crate) Arc<Gate>);

impl Future for Closing {
    type Output = bool;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        match self.0.poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(End::Panic | End::PanicInDrop) => std::panic::panic_any(OURS),
            Poll::Ready(end) => Poll::Ready(end != End::Fail),
        }
    }
}
