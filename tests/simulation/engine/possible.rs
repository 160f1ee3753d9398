//! Which steps would find something to do now. Only the writer of scripts asks: a step that finds nothing does nothing.

use super::inbound::has_io;
use super::real::{Call, Front, RealChunk, RealConn};
use super::script::Kind;
use super::world::World;

impl World {
    pub(crate) fn can(&self, kind: Kind) -> bool {
        let front = |fits: fn(&Front) -> bool| self.opers.iter().flatten().any(|oper| fits(&oper.front));
        let session = || self.m.sessions.iter().flatten().any(|session| session.open);
        let writer = || self.streams.iter().any(|stream| stream.writer.is_some());
        let buffer = || self.m.buffers.iter().flatten().any(|buffer| !buffer.away);
        match kind {
            Kind::Close | Kind::StopSession | Kind::Admit | Kind::AdmitNow => session(),
            Kind::Wait => front(|front| {
                matches!(front, Front::Admission(_) | Front::DirectAdmission(_) | Front::IngressAdmission(_))
            }),
            Kind::BeginOperation => {
                front(|front| matches!(front, Front::Call(call) if matches!(**call, Call::Ingress(_))))
            }
            Kind::FollowUp => self.calls(true).into_iter().any(|at| !self.m.is_inbound(at)),
            Kind::Poll | Kind::Cancel | Kind::SwapWaker => !self.tasks.is_empty(),
            Kind::Run => self.tasks.iter().any(|task| task.is_woken()),
            Kind::Stop => self.opers.iter().flatten().any(|real| real.stop.is_some()),
            Kind::Leave | Kind::LoudWake => {
                front(|front| !matches!(front, Front::Waiting | Front::Job | Front::Gone))
            }
            Kind::Spawn | Kind::SpawnBlocking => !self.own_calls().is_empty(),
            Kind::EndJob => self.m.jobs.iter().flatten().any(|job| job.has_place() && job.end.is_none()),
            Kind::WakeJob => self.gates.iter().any(Option::is_some),
            Kind::Dispatch => front(|front| matches!(front, Front::Ready(_))),
            Kind::Buffer => front(has_io),
            Kind::Fill | Kind::Retain | Kind::Consume | Kind::Free => buffer(),
            Kind::Stream => !self.calls(false).is_empty(),
            Kind::Write | Kind::TryWrite => writer() && self.can_write(),
            Kind::Finish => writer(),
            Kind::Read | Kind::TryRead | Kind::Shut => {
                self.streams.iter().any(|stream| stream.reader.is_some())
            }
            Kind::Transfer => !self.calls(false).is_empty(),
            Kind::Send | Kind::Receive | Kind::AwaitPlace | Kind::DropTransfer => {
                self.transfers.iter().any(Option::is_some)
            }
            Kind::FillChunk | Kind::FinishChunk => {
                self.chunks.iter().flatten().any(|chunk| matches!(chunk, RealChunk::Filling(_)))
            }
            Kind::FreeChunk => self.chunks.iter().any(Option::is_some),
            Kind::Checkout | Kind::Reserve | Kind::Acquire => !self.calls(true).is_empty(),
            Kind::DialOk | Kind::DialFail => self.has_conn(|conn| matches!(conn, RealConn::Dial(_))),
            Kind::Park | Kind::Destroy | Kind::LoudDestroy | Kind::CleanUp => {
                self.has_conn(|conn| matches!(conn, RealConn::Active(_)))
            }
            Kind::Kill => self.m.conns.iter().flatten().any(|conn| conn.socket.is_some()),
            Kind::Forget => self.m.limits.leaks > 0 && buffer(),
            Kind::BeginRequest | Kind::EndMaintenance => self.m.permits.iter().any(Option::is_some),
            Kind::MaintenanceDial => self.permits.iter().any(|permit| permit.asks()),
            Kind::Exact => self.next_instant().is_some(),
            Kind::LoudExpiry => self.has_conn(|conn| matches!(conn, RealConn::Idle)),
            _ => true,
        }
    }
    fn has_conn(&self, fits: fn(&RealConn) -> bool) -> bool {
        self.conns.iter().flatten().any(fits)
    }
    fn can_write(&self) -> bool {
        let fits = |at: usize| {
            let oper = self.m.stream(at).oper;
            self.m.buffers.iter().flatten().any(|buffer| !buffer.away && buffer.oper == oper)
        };
        (0..self.streams.len()).any(|at| self.streams[at].writer.is_some() && fits(at))
    }
}
