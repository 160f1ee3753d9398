//! Steps of transfers: windows of chunks that are paid for in advance, in both directions.

use super::model::{self, Expect, Model, Whose, nth, why};
use super::real::{About, Done, RealChunk, Task};
use super::world::{Law, Outcome, World};
use latent_capabilities::broker::io::TransferOptions;
use latent_capabilities::broker::{Dimension, Error};
use std::rc::Rc;

pub(crate) const INPUT: usize = 0;
pub(crate) const OUTPUT: usize = 1;

/// A window, as long as it or a chunk of it lives. The first of a pair is the way to the provider.
#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    pub(crate) oper: usize,
    pub(crate) chunk: u64,
    pub(crate) places: [u64; 2],
    pub(crate) budget: [u64; 2],
    pub(crate) accepted: [u64; 2],
    pub(crate) open: bool,
}

/// A place that is taken.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    pub(crate) transfer: usize,
    pub(crate) way: usize,
    pub(crate) capacity: u64,
    pub(crate) bytes: Vec<u8>,
    /// On its way; before that it is being filled.
    pub(crate) finished: bool,
}

impl Transfer {
    pub(crate) fn place(&self) -> u64 {
        self.chunk.max(512).next_power_of_two()
    }
}

impl Model {
    pub(crate) fn transfer(&self, at: usize) -> &Transfer {
        self.transfers[at].as_ref().expect("a script's transfer exists")
    }
    pub(crate) fn chunks_out(&self, transfer: usize, way: usize) -> u64 {
        let of_it = |chunk: &&Chunk| chunk.transfer == transfer && chunk.way == way;
        self.chunks.iter().flatten().filter(of_it).count() as u64
    }
    /// Places that are paid for: all of an open window, those that are out of a closed one.
    pub(crate) fn paid_places(&self, at: usize, way: usize) -> u64 {
        let transfer = self.transfer(at);
        if transfer.open { transfer.places[way] } else { self.chunks_out(at, way) }
    }
    pub(crate) fn place_goes_on(&self, at: usize, way: usize, settled: bool) -> bool {
        let transfer = self.transfer(at);
        let stops = self.stops(transfer.oper).must;
        let only_late = stops == why::DEADLINE;
        self.chunks_out(at, way) < transfer.places[way] || (stops != 0 && (settled || !only_late))
    }
    /// What stands against one more chunk.
    fn expect_place(&self, at: usize, way: usize, size: u64) -> Expect {
        let transfer = self.transfer(at);
        let mut expect = self.stops(transfer.oper);
        expect.when(size == 0, why::EMPTY);
        expect.when(size > transfer.chunk, why::TOO_LARGE);
        expect.when(transfer.places[way] == 0, why::NO_STREAM);
        let out = self.chunks_out(at, way);
        expect.room(Dimension::IoStreamChunks, Whose::Session, out, 1, transfer.places[way]);
        expect
    }
}

impl World {
    pub(crate) fn make_transfer(&mut self, a: u16, b: u16) -> Outcome {
        let calls = self.calls(false);
        let Some(wanted) = usize::from(a).checked_rem(calls.len()) else { return Ok(false) };
        let at = calls[wanted];
        let s = &self.m.limits;
        let most = s.chunk_units * 512;
        let chunk = u64::from(b) % (most + 2);
        let outstanding = match b % 8 {
            0 => u64::from(b / 8) % (s.stream_chunks + 2),
            _ => 1 + u64::from(b / 8) % s.stream_chunks,
        };
        let budget = self.m.oper(at).stream;
        let places = budget.map(|budget| if budget == 0 { 0 } else { outstanding });
        let transfer = Transfer { oper: at, chunk, places, budget, accepted: [0; 2], open: true };
        let mut expect = self.m.stops(at);
        expect.when(budget == [0, 0], why::NO_STREAM);
        expect.when(chunk == 0, why::EMPTY);
        expect.when(chunk > most, why::TOO_LARGE);
        expect.when(outstanding == 0 || outstanding > s.stream_chunks, why::DEPTH);
        expect.when(budget.iter().any(|budget| *budget > s.stream_bytes), why::TOO_LARGE);
        expect.when(self.m.oper(at).transferred, why::SECOND);
        let (used, tenant, size) = (self.m.used(), self.m.oper(at).tenant, transfer.place());
        let (staged, result) = ((places[INPUT] + places[OUTPUT]) * size, places[OUTPUT] * size);
        expect.room(Dimension::IoStreams, Whose::Node, used.streams, 1, s.streams);
        if s.tenant_units > 0 {
            let (mine, limit) = (used.tenant_bytes[tenant], s.tenant_units * 512);
            expect.room(Dimension::IoTenantBytes, Whose::Tenant(tenant), mine, staged + result, limit);
        }
        expect.room(Dimension::IoStagedBytes, Whose::Node, used.staged, staged, s.staged_units * 512);
        expect.room(Dimension::IoResultBytes, Whose::Node, used.result, result, s.result_units * 512);
        let buffers = places[INPUT] + 2 * places[OUTPUT];
        expect.room(Dimension::IoBuffers, Whose::Node, used.buffers, buffers, s.buffers);
        let options = TransferOptions { chunk_bytes: chunk as u32, outstanding: outstanding as u32 };
        let made = self.call(at).io().transfer(options);
        self.judge("transfer", &expect, &made)?;
        if let Ok(real) = made {
            self.m.oper_mut(at).transferred = true;
            let place = model::put(&mut self.m.transfers, transfer);
            while self.transfers.len() <= place {
                self.transfers.push(None);
            }
            self.transfers[place] = Some(Rc::new(real));
        }
        Ok(true)
    }
    /// The `a`-th open window.
    fn nth_transfer(&self, a: u16) -> Option<usize> {
        nth(&self.transfers, a, |_| true)
    }
    fn put_chunk(&mut self, chunk: Chunk, real: RealChunk) {
        let place = model::put(&mut self.m.chunks, chunk);
        while self.chunks.len() <= place {
            self.chunks.push(None);
        }
        self.chunks[place] = Some(real);
    }

    /// Bytes into the window, or a buffer out of it.
    pub(crate) fn take_place(&mut self, a: u16, b: u16, way: usize) -> Outcome {
        let Some(at) = self.nth_transfer(a) else { return Ok(false) };
        let size = u64::from(b) % (self.m.transfer(at).chunk + 2);
        let mut expect = self.m.expect_place(at, way, size);
        let real = self.transfers[at].as_ref().expect("found").clone();
        let mut chunk =
            Chunk { transfer: at, way, capacity: size, bytes: Vec::new(), finished: way == INPUT };
        let taken = if way == INPUT {
            let transfer = self.m.transfer(at);
            expect.when(transfer.accepted[INPUT] + size > transfer.budget[INPUT], why::TOO_LARGE);
            self.stamp = self.stamp.wrapping_add(1);
            chunk.bytes = vec![self.stamp; size as usize];
            real.input(&chunk.bytes).map(RealChunk::Sent)
        } else {
            real.output_buffer(size as usize).map(RealChunk::Filling)
        };
        self.judge("place", &expect, &taken)?;
        if let Ok(real) = taken {
            if way == INPUT {
                self.m.transfers[at].as_mut().expect("found").accepted[INPUT] += size;
            }
            self.put_chunk(chunk, real);
        }
        self.same_totals(at)
    }
    fn same_totals(&self, at: usize) -> Outcome {
        let (Some(real), Some(transfer)) = (&self.transfers[at], &self.m.transfers[at]) else {
            return Ok(true);
        };
        let accepted = [real.accepted_input_bytes(), real.accepted_output_bytes()];
        let out = [u64::from(real.outstanding_input()), u64::from(real.outstanding_output())];
        let expected = [self.m.chunks_out(at, INPUT), self.m.chunks_out(at, OUTPUT)];
        match accepted == transfer.accepted && out == expected {
            true => Ok(true),
            false => {
                Err(format!("streams: {accepted:?} accepted, {out:?} out, of {transfer:?}, {expected:?}"))
            }
        }
    }
    fn filling(&self, a: u16) -> Option<usize> {
        nth(&self.chunks, a, |chunk| matches!(chunk, RealChunk::Filling(_)))
    }
    pub(crate) fn fill_chunk(&mut self, a: u16, b: u16) -> Outcome {
        let Some(at) = self.filling(a) else { return Ok(false) };
        let chunk = self.m.chunks[at].as_ref().expect("it is here");
        let spare = chunk.capacity as usize - chunk.bytes.len();
        let count = usize::from(b) % (spare + 2);
        let mut expect = self.m.stops(self.m.transfer(chunk.transfer).oper);
        self.stamp = self.stamp.wrapping_add(1);
        let stamp = self.stamp;
        let Some(RealChunk::Filling(real)) = self.chunks[at].as_mut() else { unreachable!("it is filling") };
        let exposed = real.spare_mut(count).map(|bytes| bytes.fill(stamp));
        let written = exposed.and_then(|()| real.advance_written(count));
        if written.is_ok() || expect.succeeds() {
            expect.when(count > spare, why::PAST);
        }
        self.judge("fill", &expect, &written)?;
        if written.is_ok() {
            let chunk = self.m.chunks[at].as_mut().expect("it is here");
            chunk.bytes.extend(std::iter::repeat_n(stamp, count));
        }
        self.same_chunk(at)
    }
    fn same_chunk(&self, at: usize) -> Outcome {
        let chunk = self.m.chunks[at].as_ref().expect("it is here");
        let bytes = match self.chunks[at].as_ref().expect("it is here") {
            RealChunk::Filling(real) => real.bytes(),
            RealChunk::Sent(real) => real.bytes(),
        };
        match bytes == chunk.bytes {
            true => Ok(true),
            false => Err(format!("bytes: {bytes:?} are not those of {chunk:?}")),
        }
    }
    pub(crate) fn finish_chunk(&mut self, a: u16) -> Outcome {
        let Some(at) = self.filling(a) else { return Ok(false) };
        let Some(RealChunk::Filling(real)) = self.chunks[at].take() else { unreachable!("it is filling") };
        let chunk = self.m.chunks[at].as_ref().expect("it is here");
        let (of, size) = (chunk.transfer, chunk.bytes.len() as u64);
        let transfer = self.m.transfer(of);
        let mut expect = self.m.stops(transfer.oper);
        expect.when(!transfer.open, why::CLOSED_TRANSFER);
        expect.when(size == 0, why::EMPTY);
        expect.when(transfer.accepted[OUTPUT] + size > transfer.budget[OUTPUT], why::TOO_LARGE);
        let finished = real.finish();
        self.judge("finish", &expect, &finished)?;
        match finished {
            Ok(real) => {
                self.m.transfers[of].as_mut().expect("it has a chunk").accepted[OUTPUT] += size;
                self.m.chunks[at].as_mut().expect("it is here").finished = true;
                self.chunks[at] = Some(RealChunk::Sent(real));
                self.same_chunk(at)?;
            }
            Err(_) => self.m.chunks[at] = None,
        }
        self.same_totals(of)
    }
    pub(crate) fn free_chunk(&mut self, a: u16) -> Outcome {
        let Some(at) = nth(&self.chunks, a, |_| true) else { return Ok(false) };
        if self.m.chunks[at].as_ref().expect("it is here").finished {
            self.same_chunk(at)?;
        }
        let of = self.m.chunks[at].as_ref().expect("it is here").transfer;
        self.chunks[at] = None;
        self.m.chunks[at] = None;
        self.same_totals(of)
    }
    pub(crate) fn wait_for_place(&mut self, a: u16, b: u16) -> Outcome {
        let Some(transfer) = self.nth_transfer(a) else { return Ok(false) };
        let way = usize::from(b % 2);
        let real = self.transfers[transfer].as_ref().expect("found").clone();
        self.tasks.push(Task::new(About::Place { transfer, way }, async move {
            Done::Place(if way == INPUT { real.input_ready().await } else { real.output_ready().await })
        }));
        Ok(true)
    }
    pub(crate) fn place_pending(&mut self, at: usize, way: usize) -> Law {
        let stops = self.m.stops(self.m.transfer(at).oper).must;
        if stops != 0 || self.m.chunks_out(at, way) < self.m.transfer(at).places[way] {
            return Err(format!("streams: a place of {:?} is waited for, {stops:x}", self.m.transfer(at)));
        }
        Ok(())
    }
    pub(crate) fn placed(&mut self, at: usize, way: usize, result: Result<(), Error>) -> Law {
        let transfer = self.m.transfer(at);
        let mut expect = self.m.stops(transfer.oper);
        expect.when(transfer.places[way] == 0, why::NO_STREAM);
        if self.m.chunks_out(at, way) >= transfer.places[way] && expect.succeeds() {
            let waits = |task: &&Task| task.polled && task.about == About::Place { transfer: at, way };
            if self.tasks.iter().filter(waits).count() < 2 {
                return Err(format!("streams: a place of {transfer:?} was promised, and there is none"));
            }
            expect.must |= why::THIRD;
        }
        self.judge("place", &expect, &result)
    }
    /// Drops a window, and who waits for its places.
    pub(crate) fn drop_transfer(&mut self, a: u16) -> Outcome {
        let Some(at) = self.nth_transfer(a) else { return Ok(false) };
        self.tasks.retain(|task| !matches!(task.about, About::Place { transfer, .. } if transfer == at));
        self.transfers[at] = None;
        self.m.transfers[at].as_mut().expect("found").open = false;
        Ok(true)
    }
    /// What a call that has started may stream.
    pub(crate) fn stream_budget(&self, b: u16) -> [u64; 2] {
        let s = &self.m.limits;
        let fits = [s.stream_in.min(s.stream_bytes), s.stream_out.min(s.stream_bytes)];
        match b % 8 {
            0 => [s.stream_in, s.stream_out],
            1 | 2 => fits,
            3 => [fits[INPUT], 0],
            4 => [0, fits[OUTPUT]],
            _ => [0, 0],
        }
    }
}
