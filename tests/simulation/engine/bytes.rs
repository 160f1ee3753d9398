//! Steps of buffers and streams, and what the model knows of them.

use super::inbound::has_io;
use super::model::{self, Buffer, Expect, Model, Phase, Stream, Whose, nth, why};
use super::real::{About, Done, Front, Ready, RealStream, Task};
use super::world::{Law, Outcome, World};
use latent_capabilities::broker::io::{IoBuffer, TryWrite};
use latent_capabilities::broker::{Dimension, Error, Kind, Terminal};
use std::collections::VecDeque;
use std::task::Poll;

/// What a look at a stream can give.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// Nothing yet.
    Nothing,
    /// A chunk goes in, or comes out.
    Chunk,
    End(Terminal),
    /// Its operation has to end.
    Stopped,
}

impl Model {
    fn next_read(&self, at: usize) -> Next {
        let stream = self.stream(at);
        match (stream.ended, stream.ring.front(), stream.terminal) {
            (Some(terminal), _, _) => Next::End(terminal),
            _ if self.stops(stream.oper).must != 0 => Next::Stopped,
            (None, Some(_), _) => Next::Chunk,
            (None, None, Some(terminal)) => Next::End(terminal),
            (None, None, None) => Next::Nothing,
        }
    }
    fn next_write(&self, at: usize) -> Next {
        let stream = self.stream(at);
        match stream.terminal {
            _ if self.stops(stream.oper).must != 0 => Next::Stopped,
            _ if stream.closed => Next::End(Terminal::Closed),
            Some(terminal) => Next::End(terminal),
            None if stream.ring.len() < stream.depth => Next::Chunk,
            None => Next::Nothing,
        }
    }
    /// Whether only the clock stands against it: then it is due when the control task has run.
    fn only_late(&self, at: usize) -> bool {
        self.stops(self.stream(at).oper).must == why::DEADLINE
    }
    pub(crate) fn read_goes_on(&self, at: usize, settled: bool) -> bool {
        match self.next_read(at) {
            Next::Nothing => false,
            Next::Stopped => settled || !self.only_late(at),
            Next::Chunk | Next::End(_) => true,
        }
    }
    pub(crate) fn write_goes_on(&self, at: usize, settled: bool) -> bool {
        match self.next_write(at) {
            Next::Nothing => false,
            Next::Stopped => settled || !self.only_late(at),
            Next::Chunk | Next::End(_) => true,
        }
    }
    /// The stream ends, unless it has ended.
    fn end(&mut self, at: usize, terminal: Terminal) {
        let stream = self.stream_mut(at);
        if !stream.closed && stream.terminal.is_none() {
            stream.terminal = Some(terminal);
        }
    }
    /// The writer went: with a word, or without one. `lost`: with a chunk that it was writing.
    pub(crate) fn writer_gone(&mut self, at: usize, word: Option<Terminal>, lost: bool) {
        let stream = self.stream_mut(at);
        stream.writer = false;
        let gap = stream.gap || lost;
        let terminal = match word {
            Some(Terminal::Eof) if !gap => Terminal::Eof,
            Some(Terminal::Eof) | None => Terminal::Uncertain,
            Some(other) => other,
        };
        self.end(at, terminal);
    }
    fn empty_ring(&mut self, at: usize) {
        for buffer in std::mem::take(&mut self.stream_mut(at).ring) {
            self.buffers[buffer] = None;
        }
    }
    pub(crate) fn reader_gone(&mut self, at: usize) {
        let stream = self.stream_mut(at);
        (stream.reader, stream.closed) = (false, true);
        self.empty_ring(at);
    }
    /// What stands against making a result of a buffer.
    fn expect_retain(&self, at: usize) -> Expect {
        let buffer = self.buffer(at);
        if buffer.retained {
            return Expect::default();
        }
        let oper = self.oper(buffer.oper);
        let mut expect = self.stops(buffer.oper);
        expect.when(oper.phase != Phase::Started, why::NOT_STARTED);
        expect.when(buffer.live().len() as u64 > oper.output_left, why::TOO_LARGE);
        let (used, limit) = (self.used().result, self.limits.result_units * 512);
        expect.room(Dimension::IoResultBytes, Whose::Node, used, buffer.block(), limit);
        expect
    }
    fn retained(&mut self, at: usize) {
        let buffer = self.buffer_mut(at);
        if !buffer.retained {
            buffer.retained = true;
            let (oper, length) = (buffer.oper, buffer.live().len() as u64);
            self.oper_mut(oper).output_left -= length;
        }
    }
}

impl World {
    pub(crate) fn take_buffer(&mut self, a: u16, b: u16) -> Outcome {
        // Mostly of an operation that has a stream to be written.
        let streams = || self.streams.iter().zip(&self.m.streams);
        let written: Vec<usize> = streams()
            .filter(|(real, _)| real.writer.is_some())
            .filter_map(|(_, stream)| stream.as_ref().map(|stream| stream.oper))
            .filter(|at| self.opers[*at].as_ref().is_some_and(|real| has_io(&real.front)))
            .collect();
        let at = match usize::from(a).checked_rem(written.len()) {
            Some(wanted) if !b.is_multiple_of(3) => written[wanted],
            _ => match self.nth_io(a) {
                Some(at) => at,
                None => return Ok(false),
            },
        };
        let chunk = self.m.limits.chunk_units * 512;
        let capacity =
            if b.is_multiple_of(16) { u64::from(b / 16 % 3) * chunk } else { 1 + u64::from(b) % chunk };
        let framing = u32::from(b / 3 % 4) * 10;
        let size = capacity as usize;
        let taken = match &self.opers[at].as_ref().expect("found").front {
            Front::Admission(admission) => admission.input(size, framing),
            Front::DirectAdmission(admission) => admission.input(size, framing),
            Front::Ready(Ready::Pool(ready)) => ready.input(size, framing),
            Front::Ready(Ready::Direct(ready)) => ready.input(size, framing),
            Front::Call(call) => call.io().buffer(size, framing),
            _ => unreachable!("it has buffers"),
        };
        let buffer = Buffer {
            oper: at,
            capacity,
            framing: u64::from(framing),
            retained: false,
            bytes: Vec::new(),
            cursor: 0,
            delivered: None,
            away: false,
        };
        let (used, s, tenant) = (self.m.used(), &self.m.limits, self.m.oper(at).tenant);
        let mut expect = self.m.stops(at);
        expect.when(capacity == 0, why::EMPTY);
        expect.when(capacity > chunk, why::TOO_LARGE);
        let size = buffer.block();
        if s.tenant_units > 0 {
            let (mine, limit) = (used.tenant_bytes[tenant], s.tenant_units * 512);
            expect.room(Dimension::IoTenantBytes, Whose::Tenant(tenant), mine, size, limit);
        }
        expect.room(Dimension::IoStagedBytes, Whose::Node, used.staged, size, s.staged_units * 512);
        expect.room(Dimension::IoBuffers, Whose::Node, used.buffers, 1, s.buffers);
        self.judge("buffer", &expect, &taken)?;
        if let Ok(real) = taken {
            let place = model::put(&mut self.m.buffers, buffer);
            self.put_buffer(place, real);
        }
        Ok(true)
    }
    fn put_buffer(&mut self, place: usize, real: IoBuffer) {
        while self.buffers.len() <= place {
            self.buffers.push(None);
        }
        self.buffers[place] = Some(real);
    }
    fn here(&self, a: u16) -> Option<usize> {
        nth(&self.m.buffers, a, |buffer| !buffer.away)
    }

    pub(crate) fn fill(&mut self, a: u16, b: u16) -> Outcome {
        let Some(at) = self.here(a) else { return Ok(false) };
        let buffer = self.m.buffer(at).clone();
        let spare = buffer.capacity as usize - buffer.bytes.len();
        let count = usize::from(b) % (spare + 2);
        let mut expect = self.m.stops(buffer.oper);
        expect.when(buffer.retained, why::SIDE);
        self.stamp = self.stamp.wrapping_add(1);
        let stamp = self.stamp;
        let real = self.buffers[at].as_mut().expect("it is here");
        let exposed = real.spare_mut(count).map(|bytes| {
            bytes.fill(stamp);
            bytes.len()
        });
        let written = exposed.and_then(|_| real.advance_written(count));
        if written.is_ok() || expect.succeeds() {
            expect.when(count > spare, why::PAST);
        }
        self.judge("fill", &expect, &written)?;
        if written.is_ok() {
            self.m.buffer_mut(at).bytes.extend(std::iter::repeat_n(stamp, count));
        }
        self.same_bytes(at)
    }
    fn same_bytes(&self, at: usize) -> Outcome {
        let (real, buffer) = (self.buffers[at].as_ref().expect("it is here"), self.m.buffer(at));
        match real.bytes() == buffer.live() && real.charged_bytes() as u64 == buffer.block() {
            true => Ok(true),
            false => Err(format!("bytes: {:?} are not those of {buffer:?}", real.bytes())),
        }
    }
    pub(crate) fn retain(&mut self, a: u16) -> Outcome {
        let Some(at) = self.here(a) else { return Ok(false) };
        let expect = self.m.expect_retain(at);
        let retained = self.buffers[at].take().expect("it is here").retain();
        self.judge("retain", &expect, &retained)?;
        match retained {
            Ok(real) => {
                self.m.retained(at);
                self.buffers[at] = Some(real);
                self.same_bytes(at)
            }
            Err(_) => {
                self.m.buffers[at] = None;
                Ok(true)
            }
        }
    }
    pub(crate) fn consume(&mut self, a: u16, b: u16) -> Outcome {
        let Some(at) = self.here(a) else { return Ok(false) };
        let live = self.m.buffer(at).live().len();
        let count = usize::from(b) % (live + 2);
        let mut expect = Expect::default();
        expect.when(count > live, why::PAST);
        let consumed = self.buffers[at].as_mut().expect("it is here").consume(count);
        self.judge("consume", &expect, &consumed)?;
        if consumed.is_ok() {
            self.m.buffer_mut(at).cursor += count;
        }
        self.same_bytes(at)
    }
    pub(crate) fn free(&mut self, a: u16) -> Outcome {
        let Some(at) = self.here(a) else { return Ok(false) };
        self.buffers[at] = None;
        self.m.buffers[at] = None;
        Ok(true)
    }

    pub(crate) fn open_stream(&mut self, a: u16, b: u16) -> Outcome {
        let calls = self.calls(false);
        let Some(wanted) = usize::from(a).checked_rem(calls.len()) else { return Ok(false) };
        let at = calls[wanted];
        let depth = usize::from(b) % (self.m.limits.stream_chunks as usize + 2);
        let mut expect = self.m.stops(at);
        expect.when(depth == 0 || depth > self.m.limits.stream_chunks as usize, why::DEPTH);
        expect.room(Dimension::IoStreams, Whose::Node, self.m.used().streams, 1, self.m.limits.streams);
        let opened = self.call(at).io().stream(depth);
        self.judge("stream", &expect, &opened)?;
        if let Ok((writer, reader)) = opened {
            let stream = Stream {
                oper: at,
                depth,
                writer: true,
                reader: true,
                ring: VecDeque::new(),
                terminal: None,
                closed: false,
                ended: None,
                accepted: 0,
                gap: false,
            };
            let place = model::put(&mut self.m.streams, stream);
            while self.streams.len() <= place {
                self.streams.push(RealStream::default());
            }
            self.streams[place] = RealStream { writer: Some(writer), reader: Some(reader) };
        }
        Ok(true)
    }

    /// A stream whose writer is in hand, and a buffer of its operation to write.
    fn to_write(&self, a: u16, b: u16) -> Option<(usize, usize)> {
        let idle: Vec<usize> =
            (0..self.streams.len()).filter(|at| self.streams[*at].writer.is_some()).collect();
        let stream = idle[usize::from(a).checked_rem(idle.len())?];
        let oper = self.m.stream(stream).oper;
        let buffer = nth(&self.m.buffers, b, |buffer| !buffer.away && buffer.oper == oper)?;
        Some((stream, buffer))
    }
    pub(crate) fn write(&mut self, a: u16, b: u16) -> Outcome {
        let Some((stream, buffer)) = self.to_write(a, b) else { return Ok(false) };
        let mut writer = self.streams[stream].writer.take().expect("in hand");
        let chunk = self.buffers[buffer].take().expect("it is here");
        self.m.buffer_mut(buffer).away = true;
        self.tasks.push(Task::new(About::Write { stream, buffer }, async move {
            let result = writer.write(chunk).await;
            Done::Write(writer, result)
        }));
        Ok(true)
    }
    pub(crate) fn try_write(&mut self, a: u16, b: u16) -> Outcome {
        let Some((stream, buffer)) = self.to_write(a, b) else { return Ok(false) };
        let chunk = self.buffers[buffer].take().expect("it is here");
        match self.streams[stream].writer.as_mut().expect("in hand").try_write(chunk) {
            Ok(()) => self.written(stream, buffer, Ok(()))?,
            Err(TryWrite::Error(error)) => self.written(stream, buffer, Err(error))?,
            Err(TryWrite::Full(chunk)) => {
                self.write_pending(stream, buffer)?;
                self.m.buffer_mut(buffer).away = false;
                self.buffers[buffer] = Some(chunk);
                self.same_bytes(buffer)?;
            }
        }
        Ok(true)
    }

    /// What stands against a write, up to the ring.
    fn expect_write(&self, stream: usize, buffer: usize) -> Expect {
        let (of, chunk) = (self.m.stream(stream), self.m.buffer(buffer));
        let length = chunk.live().len() as u64;
        let mut expect = self.m.expect_retain(buffer);
        expect.when(chunk.delivered.is_some(), why::DELIVERED);
        expect.when(length == 0, why::EMPTY);
        expect.when(length > self.m.limits.stream_bytes - of.accepted, why::TOO_LARGE);
        let goes = self.m.next_write(stream);
        expect.when(matches!(goes, Next::Stopped | Next::End(_)), why::ENDED);
        expect
    }
    pub(crate) fn write_pending(&mut self, stream: usize, buffer: usize) -> Law {
        let expect = self.expect_write(stream, buffer);
        if !expect.succeeds() || self.m.next_write(stream) != Next::Nothing {
            return Err(format!(
                "streams: a write waits, in spite of {expect:?} and {:?}",
                self.m.stream(stream)
            ));
        }
        self.m.retained(buffer);
        self.m.buffer_mut(buffer).away = true;
        Ok(())
    }
    pub(crate) fn written(&mut self, stream: usize, buffer: usize, result: Result<(), Error>) -> Law {
        let expect = self.expect_write(stream, buffer);
        self.judge("write", &expect, &result)?;
        let Err(error) = result else {
            if self.m.next_write(stream) != Next::Chunk {
                return Err(format!("streams: a full ring took a chunk, {:?}", self.m.stream(stream)));
            }
            self.m.retained(buffer);
            let chunk = self.m.buffer_mut(buffer);
            chunk.away = true;
            let length = chunk.live().len() as u64;
            let of = self.m.stream_mut(stream);
            of.ring.push_back(buffer);
            of.accepted += length;
            return Ok(());
        };
        // The chunk is destroyed. If it had become a result by then, its output is spent.
        let (chunk, of) = (self.m.buffer(buffer).clone(), self.m.stream(stream).clone());
        let refused_by_retain = !chunk.retained && !self.m.expect_retain(buffer).succeeds();
        match error.kind() {
            Kind::Ended(_) => {
                self.m.retained(buffer);
                if self.m.next_write(stream) == Next::Stopped {
                    self.m.end(stream, Terminal::Cancelled);
                }
            }
            Kind::TooLarge(Dimension::IoStreamBytes) => self.m.end(stream, Terminal::TooLarge),
            Kind::TooLarge(_) => {
                self.m.end(stream, Terminal::TooLarge);
                self.m.stream_mut(stream).gap = true;
            }
            _ if refused_by_retain && chunk.delivered.is_none() && !chunk.live().is_empty() => {
                self.m.stream_mut(stream).gap = true;
            }
            _ => {}
        }
        let real = self.streams[stream].writer.as_ref().expect("in hand");
        let accepted = real.accepted();
        self.m.buffers[buffer] = None;
        match accepted == of.accepted {
            true => Ok(()),
            false => Err(format!("streams: {accepted} bytes were accepted, should be {}", of.accepted)),
        }
    }

    fn to_read(&self, a: u16) -> Option<usize> {
        let idle: Vec<usize> =
            (0..self.streams.len()).filter(|at| self.streams[*at].reader.is_some()).collect();
        Some(idle[usize::from(a).checked_rem(idle.len())?])
    }
    pub(crate) fn read(&mut self, a: u16) -> Outcome {
        let Some(stream) = self.to_read(a) else { return Ok(false) };
        let mut reader = self.streams[stream].reader.take().expect("in hand");
        self.tasks.push(Task::new(About::Read(stream), async move {
            let result = reader.read().await;
            Done::Read(reader, result)
        }));
        Ok(true)
    }
    pub(crate) fn try_read(&mut self, a: u16) -> Outcome {
        let Some(stream) = self.to_read(a) else { return Ok(false) };
        match self.streams[stream].reader.as_mut().expect("in hand").try_read() {
            Poll::Pending => self.read_pending(stream)?,
            Poll::Ready(result) => self.was_read(stream, result)?,
        }
        Ok(true)
    }
    pub(crate) fn read_pending(&mut self, stream: usize) -> Law {
        match self.m.next_read(stream) {
            Next::Nothing => Ok(()),
            next => Err(format!("streams: a read waits, and there is {next:?}")),
        }
    }
    /// Bytes come in order, once; the end comes after all of them, unless the operation was stopped; and it stays.
    pub(crate) fn was_read(&mut self, stream: usize, result: Result<Option<IoBuffer>, Error>) -> Law {
        let next = self.m.next_read(stream);
        let end = match (next, result) {
            (Next::Chunk, Ok(Some(chunk))) => {
                let buffer = self.m.stream_mut(stream).ring.pop_front().expect("there is one");
                let record = self.m.buffer_mut(buffer);
                (record.away, record.delivered) = (false, Some(stream));
                self.put_buffer(buffer, chunk);
                return self.same_bytes(buffer).map(drop);
            }
            (Next::End(Terminal::Eof), Ok(None)) => Terminal::Eof,
            (Next::Stopped, Ok(None)) if self.m.stream(stream).terminal == Some(Terminal::Eof) => {
                Terminal::Eof
            }
            (Next::End(terminal), Err(error)) if error.kind() == Kind::Ended(terminal) => terminal,
            (Next::Stopped | Next::End(Terminal::Cancelled), Err(error)) => match error.kind() {
                Kind::Ended(end @ (Terminal::Cancelled | Terminal::DeadlineExceeded)) => end,
                Kind::Ended(end) if self.m.stream(stream).terminal == Some(end) => end,
                kind => return Err(format!("streams: a stopped stream ended with {kind:?}")),
            },
            (next, result) => return Err(format!("streams: there is {next:?}, and a read gave {result:?}")),
        };
        let record = self.m.stream_mut(stream);
        (record.ended, record.closed) = (Some(end), true);
        self.m.empty_ring(stream);
        Ok(())
    }

    pub(crate) fn finish_nth(&mut self, a: u16, b: u16) -> Outcome {
        let idle: Vec<usize> =
            (0..self.streams.len()).filter(|at| self.streams[*at].writer.is_some()).collect();
        let Some(wanted) = usize::from(a).checked_rem(idle.len()) else { return Ok(false) };
        let word =
            [Some(Terminal::Eof), Some(Terminal::Eof), Some(Terminal::Failed), None][usize::from(b % 4)];
        self.finish(idle[wanted], word).map(|()| true)
    }
    pub(crate) fn finish(&mut self, stream: usize, word: Option<Terminal>) -> Law {
        let writer = self.streams[stream].writer.take().expect("in hand");
        let said = word.map(|word| writer.finish(word));
        self.m.writer_gone(stream, word, false);
        let record = self.m.stream(stream);
        // The first end stays; a stream that its reader left first has no other.
        let expected = if record.closed { record.ended.or(record.terminal) } else { record.terminal };
        let expected = expected.unwrap_or(Terminal::Closed);
        // Whoever looked first at a stopped stream has ended it.
        let halted = expected == Terminal::Cancelled || self.m.stops(record.oper).must != 0;
        let may = |said| halted && matches!(said, Terminal::Cancelled | Terminal::DeadlineExceeded);
        match said {
            // A reader that was stopped before it came to the end has seen another one.
            Some(said) if said != expected && Some(said) != record.terminal && !may(said) => {
                Err(format!("streams: it ended with {said:?}, should be {expected:?}"))
            }
            _ => Ok(()),
        }
    }
    pub(crate) fn shut_nth(&mut self, a: u16) -> Outcome {
        let Some(stream) = self.to_read(a) else { return Ok(false) };
        self.streams[stream].reader = None;
        self.m.reader_gone(stream);
        Ok(true)
    }
}
