//! Models of the stream ring: `mem::ring`, invariants R1 to R7 and W1 to W4. loom sees every access to a cell of the ring
//! and to a waker cell, so two that touch one at the same time fail the model.
#![cfg(loom)]

use std::future::poll_fn;
use std::sync::Arc as Shared;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Poll, Wake, Waker};

use latent_capabilities::model::mem::ring::{Consumer, Pop, Producer, Push, RingSlot, UNCERTAIN};
use latent_capabilities::model::sync::Arc;
use loom::future::block_on;
use loom::thread;
use loom_tests::{Bound, check, check_few};

const BOUND: Bound = Bound::Preemptions(3);
const EOF: u8 = 1;
const STOP: u8 = 5;

/// A box, so that an item that is lost or given out twice is a leak or a double free.
type Item = Box<u32>;
type Slot = Arc<RingSlot<Item, ()>>;

fn ring(capacity: usize) -> (Slot, Producer<Slot>, Consumer<Slot>) {
    let slot = Arc::new(RingSlot::new(()));
    let (producer, consumer) = RingSlot::open(slot.clone(), slot.clone(), capacity);
    (slot, producer, consumer)
}

/// Pushes 0, 1, ... until one is refused for good. Gives how many went in.
fn push_all(producer: &mut Producer<Slot>, count: u32) -> u32 {
    for item in 0..count {
        let mut boxed = Box::new(item);
        loop {
            match producer.try_push(boxed) {
                Ok(()) => break,
                Err(Push::Full(back)) => boxed = back,
                Err(Push::Closed(back) | Push::Terminal(back, _)) => {
                    assert_eq!(*back, item, "a refused item comes back");
                    return item;
                }
            }
            thread::yield_now();
        }
    }
    count
}

/// Pops everything up to the end. Gives how it ended.
fn pop_all(consumer: &mut Consumer<Slot>, items: &mut Vec<u32>) -> u8 {
    loop {
        match consumer.try_pop() {
            Pop::Item(item) => items.push(*item),
            Pop::Empty => thread::yield_now(),
            Pop::End(end) => return end,
        }
    }
}

/// A step of a task. A task that was polled again and finds nothing new yields first: it met its own last wake half way
/// (R5) and an executor would run others before it.
async fn until<R>(mut ready: impl FnMut(&Waker) -> Option<R>) -> R {
    let mut polled = false;
    poll_fn(|cx| {
        if let Some(done) = ready(cx.waker()) {
            return Poll::Ready(done);
        }
        if polled {
            thread::yield_now();
        }
        polled = true;
        Poll::Pending
    })
    .await
}

async fn push(producer: &mut Producer<Slot>, item: u32) -> Result<(), Push<Item>> {
    let mut boxed = Some(Box::new(item));
    until(|waker| {
        loop {
            match producer.try_push(boxed.take().expect("not pushed yet")) {
                Err(Push::Full(back)) => boxed = Some(back),
                done => return Some(done),
            }
            if producer.park(waker) {
                return None;
            }
        }
    })
    .await
}

async fn pop(consumer: &mut Consumer<Slot>) -> Pop<Item> {
    until(|waker| {
        loop {
            match consumer.try_pop() {
                Pop::Empty if consumer.park(waker) => return None,
                Pop::Empty => {}
                done => return Some(done),
            }
        }
    })
    .await
}

#[test]
fn spsc_order() {
    check("ring_spsc_order", BOUND, || {
        let (_slot, mut producer, mut consumer) = ring(2);
        let writer = thread::spawn(move || {
            assert_eq!(push_all(&mut producer, 3), 3);
            producer.finish(EOF);
        });
        let mut items = Vec::new();
        assert_eq!(pop_all(&mut consumer, &mut items), EOF);
        assert_eq!(items, [0, 1, 2]);
        writer.join().unwrap();
    });
}

#[test]
fn spsc_full_drain() {
    check("ring_spsc_full_drain", BOUND, || {
        let (_slot, mut producer, mut consumer) = ring(1);
        let writer =
            thread::spawn(move || (0..2).filter(|&item| producer.try_push(Box::new(item)).is_ok()).collect());
        let mut items = Vec::new();
        for _ in 0..2 {
            if let Pop::Item(item) = consumer.try_pop() {
                items.push(*item);
            }
        }
        let pushed: Vec<u32> = writer.join().unwrap();
        items.extend(consumer.close().map(|item| *item));
        assert_eq!(items, pushed);
        assert_eq!(pushed.first(), Some(&0), "the ring was empty");
    });
}

#[test]
fn writer_drop_midway() {
    check("ring_writer_drop_midway", BOUND, || {
        let (_slot, mut producer, mut consumer) = ring(2);
        let writer = thread::spawn(move || {
            producer.try_push(Box::new(0)).expect("an empty ring has room");
            drop(producer);
        });
        let mut items = Vec::new();
        assert_eq!((pop_all(&mut consumer, &mut items), items), (UNCERTAIN, vec![0]));
        writer.join().unwrap();
    });
}

#[test]
fn reader_close_midway() {
    check("ring_reader_close_midway", BOUND, || {
        let (slot, mut producer, mut consumer) = ring(2);
        let writer = thread::spawn(move || push_all(&mut producer, 3));
        let mut items = Vec::new();
        if let Pop::Item(item) = consumer.try_pop() {
            items.push(*item);
        }
        items.extend(consumer.close().map(|item| *item));
        let pushed = writer.join().unwrap();
        assert_eq!(items, (0..pushed).collect::<Vec<_>>(), "what went in came out, once and in order");
        assert!(slot.view().closed && slot.view().queued == 0);
    });
}

#[test]
fn finish_vs_close() {
    let why = "the ends meet in three steps of one word, and each goes on from the value it lost to";
    check_few("ring_finish_vs_close", why, BOUND, || {
        let (slot, mut producer, mut consumer) = ring(1);
        let writer = thread::spawn(move || {
            let pushed = producer.try_push(Box::new(0)).is_ok();
            assert_eq!(producer.finish(EOF), EOF);
            pushed
        });
        let left = consumer.close().count();
        assert_eq!(
            writer.join().unwrap(),
            left == 1,
            "an item went in exactly if it was queued at the close"
        );
        drop(consumer);
        assert_eq!(slot.view().terminal, Some(EOF));
        // Both ends are gone: the slot can be used again.
        drop(RingSlot::open(slot.clone(), slot.clone(), 1));
    });
}

#[test]
fn terminate_vs_push() {
    check("ring_terminate_vs_push", BOUND, || {
        let (slot, mut producer, mut consumer) = ring(1);
        let writer = thread::spawn(move || {
            let pushed = producer.try_push(Box::new(0)).is_ok();
            let end = producer.finish(EOF);
            (pushed, end)
        });
        let stopper = thread::spawn(move || slot.terminate(STOP));
        let mut items = Vec::new();
        let end = pop_all(&mut consumer, &mut items);
        assert_eq!(consumer.try_pop(), Pop::End(end), "an end that was read stays");
        let lost = consumer.close().count();
        let (pushed, writers_end) = writer.join().unwrap();
        stopper.join().unwrap();
        assert_eq!(items.len() + lost, usize::from(pushed));
        assert!(end == STOP || end == EOF && lost == 0, "an end of data was read over lost data");
        assert!(pushed || writers_end == STOP, "a push is refused by the stop only");
    });
}

#[test]
fn both_sides_park() {
    check("ring_both_sides_park", BOUND, || {
        let (_slot, mut producer, mut consumer) = ring(1);
        let writer = thread::spawn(move || {
            block_on(async {
                for item in 0..2 {
                    push(&mut producer, item).await.expect("the reader stays");
                }
            });
        });
        let items = block_on(async {
            let mut items = Vec::new();
            while let Pop::Item(item) = pop(&mut consumer).await {
                items.push(*item);
            }
            items
        });
        assert_eq!(items, [0, 1]);
        writer.join().unwrap();
    });
}

/// R7: a reader that reads half of a full ring and then stops has woken the writer, or the writer has seen it.
#[test]
fn a_parked_writer_learns_of_half_a_ring() {
    check("ring_parked_writer_half", BOUND, || {
        let (_slot, mut producer, mut consumer) = ring(3);
        assert_eq!(push_all(&mut producer, 3), 3);
        let writer = thread::spawn(move || {
            assert_eq!(block_on(push(&mut producer, 3)), Ok(()));
            producer
        });
        let read = [consumer.try_pop(), consumer.try_pop()];
        assert_eq!(read, [0, 1].map(|item| Pop::Item(Box::new(item))));
        drop(writer.join().unwrap());
        assert_eq!(consumer.close().map(|item| *item).collect::<Vec<_>>(), [2, 3]);
    });
}

/// R4, W1: a push that a stop and a close come before takes its item back, whatever of the ring is used already.
#[test]
fn a_refused_push_keeps_its_item() {
    check("ring_refused_push", BOUND, || {
        let (slot, mut producer, mut consumer) = ring(2);
        producer.try_push(Box::new(0)).expect("an empty ring has room");
        let writer = thread::spawn(move || {
            let pushed = producer.try_push(Box::new(1)).is_ok();
            assert!(pushed || producer.try_push(Box::new(1)).is_err(), "what is refused stays refused");
            pushed
        });
        slot.terminate(STOP);
        let lost: Vec<u32> = consumer.close().map(|item| *item).collect();
        let pushed = writer.join().unwrap();
        assert_eq!(lost.len(), 1 + usize::from(pushed), "an item is the ring's or its writer's");
    });
}

#[test]
fn a_parked_writer_learns_of_a_close() {
    check("ring_parked_writer_close", BOUND, || {
        let (_slot, mut producer, mut consumer) = ring(1);
        producer.try_push(Box::new(0)).expect("an empty ring has room");
        let writer = thread::spawn(move || block_on(push(&mut producer, 1)));
        let items: Vec<u32> = consumer.close().map(|item| *item).collect();
        assert_eq!((items, writer.join().unwrap()), (vec![0], Err(Push::Closed(Box::new(1)))));
    });
}

#[test]
fn a_parked_writer_learns_of_a_stop() {
    check("ring_parked_writer_stop", BOUND, || {
        let (slot, mut producer, consumer) = ring(1);
        producer.try_push(Box::new(0)).expect("an empty ring has room");
        let writer = thread::spawn(move || block_on(push(&mut producer, 1)));
        slot.terminate(STOP);
        assert_eq!(writer.join().unwrap(), Err(Push::Terminal(Box::new(1), STOP)));
        drop(consumer);
    });
}

#[test]
fn a_parked_reader_learns_of_a_stop() {
    check("ring_parked_reader_stop", BOUND, || {
        let (slot, mut producer, mut consumer) = ring(1);
        let reader = thread::spawn(move || {
            let first = block_on(pop(&mut consumer));
            let end = if let Pop::Item(_) = first { block_on(pop(&mut consumer)) } else { first };
            assert_eq!(end, Pop::End(STOP));
            consumer.close().count()
        });
        let pushed = producer.try_push(Box::new(0));
        assert_eq!(pushed, Ok(()));
        slot.terminate(STOP);
        let _lost_by_the_stop = reader.join().unwrap();
    });
}

/// Counts its wakes, outside of the model's eyes.
#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Shared<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

fn counter() -> (Shared<Counter>, Waker) {
    let counter = Shared::new(Counter::default());
    (Shared::clone(&counter), counter.into())
}

/// The reader changes its waker while the writer wakes it: the last one is woken, or the reader sees the item.
#[test]
fn another_waker_vs_push() {
    check("ring_another_waker_vs_push", BOUND, || {
        let (_slot, mut producer, mut consumer) = ring(1);
        let ((first, first_waker), (last, last_waker)) = (counter(), counter());
        assert!(consumer.park(&first_waker), "nothing was pushed yet");
        let writer = thread::spawn(move || {
            producer.try_push(Box::new(0)).expect("an empty ring has room");
            producer
        });
        let parked = consumer.park(&last_waker);
        drop(writer.join().unwrap());
        assert!(!parked || last.0.load(Relaxed) > 0, "the waker that was parked last sleeps");
        drop((first_waker, last_waker, consumer));
        assert_eq!((Shared::strong_count(&first), Shared::strong_count(&last)), (1, 1), "a waker leaked");
    });
}

/// A writer that has gone still moves the reader's waker out, while the slot is opened anew and its new reader parks.
#[test]
fn a_late_wake_vs_the_next_opening() {
    check("ring_late_wake_vs_reopen", BOUND, || {
        let (slot, mut producer, mut consumer) = ring(1);
        let (old, old_waker) = counter();
        assert!(consumer.park(&old_waker), "nothing was pushed yet");
        let writer = thread::spawn(move || {
            producer.finish(EOF);
            producer
        });
        if consumer.try_pop() == Pop::End(EOF) {
            drop(consumer);
            let (new, new_waker) = counter();
            let (mut producer, mut consumer) = RingSlot::open(slot.clone(), slot.clone(), 1);
            assert!(consumer.park(&new_waker), "nothing was pushed yet");
            producer.try_push(Box::new(7)).expect("an empty ring has room");
            assert_eq!(new.0.load(Relaxed), 1, "parked or not, it was woken once");
            assert_eq!(consumer.try_pop(), Pop::Item(Box::new(7)));
        }
        drop(writer.join().unwrap());
        assert_eq!(old.0.load(Relaxed), 1);
    });
}
