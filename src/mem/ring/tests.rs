//! Tests of the ring with both ends on one thread, and of its soundness where it is used wrongly.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc as Shared;
use std::task::{Wake, Waker};

use super::*;
use crate::sync::atomic::{AtomicBool, AtomicUsize};

#[derive(Default)]
struct Woken {
    times: AtomicUsize,
    panics: AtomicBool,
}

impl Wake for Woken {
    fn wake(self: Shared<Self>) {
        self.times.fetch_add(1, order::COUNT);
        assert!(!self.panics.load(order::COUNT), "told to panic");
    }
}

impl Woken {
    fn new() -> (Shared<Self>, Waker) {
        let woken = Shared::new(Self::default());
        (Shared::clone(&woken), woken.into())
    }

    fn times(&self) -> usize {
        self.times.load(order::COUNT)
    }
}

type Item = Box<u32>;

fn pushed<S: RingHold<Item = Item>>(producer: &mut Producer<S>, items: impl IntoIterator<Item = u32>) {
    for item in items {
        assert_eq!(producer.try_push(Box::new(item)), Ok(()));
    }
}

fn drained<S: RingHold<Item = Item>>(consumer: &mut Consumer<S>) -> Vec<u32> {
    consumer.close().map(|item| *item).collect()
}

#[test]
fn items_come_out_in_order_around_the_end_of_the_cells() {
    let slot = RingSlot::new(());
    for capacity in [1, 3, CELLS] {
        let (mut producer, mut consumer) = RingSlot::open(&slot, &slot, capacity);
        let (mut next_in, mut next_out) = (0, 0);
        while next_out < if cfg!(miri) { 150 } else { 1_000 } {
            while producer.try_push(Box::new(next_in)).is_ok() {
                next_in += 1;
            }
            assert_eq!((next_in - next_out) as usize, capacity);
            assert_eq!(producer.try_push(Box::new(0)), Err(Push::Full(Box::new(0))));
            for _ in 0..capacity.div_ceil(2) {
                assert_eq!(consumer.try_pop(), Pop::Item(Box::new(next_out)));
                next_out += 1;
            }
        }
        assert_eq!(drained(&mut consumer), (next_out..next_in).collect::<Vec<_>>());
    }
}

#[test]
fn what_was_queued_comes_before_the_end_and_the_end_stays() {
    let slot = RingSlot::new(());
    let (mut producer, mut consumer) = RingSlot::open(&slot, &slot, 4);
    assert_eq!(consumer.try_pop(), Pop::Empty);
    pushed(&mut producer, [1, 2]);
    assert_eq!(producer.finish(3), 3);
    assert_eq!(producer.finish(4), 3, "the first end stands");
    assert_eq!(producer.try_push(Box::new(9)), Err(Push::Terminal(Box::new(9), 3)));
    assert_eq!(slot.view(), RingView { queued: 2, terminal: Some(3), stopped: false, closed: false });
    assert_eq!([consumer.try_pop(), consumer.try_pop()], [1, 2].map(|item| Pop::Item(Box::new(item))));
    assert_eq!([consumer.try_pop(), consumer.try_pop()], [Pop::End(3), Pop::End(3)]);
}

#[test]
fn a_producer_that_is_dropped_leaves_an_uncertain_end() {
    let slot = RingSlot::new(());
    let (mut producer, mut consumer) = RingSlot::open(&slot, &slot, 4);
    pushed(&mut producer, [1]);
    drop(producer);
    assert_eq!([consumer.try_pop(), consumer.try_pop()], [Pop::Item(Box::new(1)), Pop::End(UNCERTAIN)]);
}

#[test]
fn a_close_takes_exactly_what_was_queued_and_refuses_the_rest() {
    let slot = RingSlot::new(());
    let (mut producer, mut consumer) = RingSlot::open(&slot, &slot, 4);
    pushed(&mut producer, [1, 2, 3]);
    assert_eq!(consumer.try_pop(), Pop::Item(Box::new(1)));
    let mut drain = consumer.close();
    assert_eq!((drain.len(), drain.next()), (2, Some(Box::new(2))));
    assert_eq!(producer.try_push(Box::new(4)), Err(Push::Closed(Box::new(4))));
    drop(drain);
    assert!(drained(&mut consumer).is_empty());
    assert_eq!((consumer.try_pop(), slot.view().closed), (Pop::End(0), true));
}

#[test]
fn a_stop_ends_delivery_at_once() {
    let slot = RingSlot::new(());
    let (mut producer, mut consumer) = RingSlot::open(&slot, &slot, 4);
    pushed(&mut producer, [1, 2]);
    slot.terminate(5);
    slot.terminate(6);
    assert_eq!(consumer.try_pop(), Pop::End(5));
    assert_eq!(producer.try_push(Box::new(3)), Err(Push::Terminal(Box::new(3), 5)));
    assert_eq!(producer.finish(1), 5);
    assert_eq!(drained(&mut consumer), [1, 2]);
}

#[test]
fn each_end_is_woken_by_the_step_it_waits_for() {
    let slot = RingSlot::new(());
    let (mut producer, mut consumer) = RingSlot::open(&slot, &slot, 1);
    let ((reader, reader_waker), (writer, writer_waker)) = (Woken::new(), Woken::new());
    assert!(!producer.park(&writer_waker), "there is room");
    assert!(consumer.park(&reader_waker) && consumer.park(&reader_waker));
    pushed(&mut producer, [1]);
    assert_eq!(reader.times(), 1);
    assert!(!consumer.park(&reader_waker), "there is an item");
    assert!(producer.park(&writer_waker));
    assert_eq!((consumer.try_pop(), writer.times()), (Pop::Item(Box::new(1)), 1));
    assert!(consumer.park(&reader_waker) && consumer.unpark() && !consumer.unpark());
    pushed(&mut producer, [2]);
    assert_eq!((reader.times(), writer.times()), (1, 1), "who is not parked is not woken");
    assert!(producer.park(&writer_waker));
    slot.terminate(5);
    assert_eq!((reader.times(), writer.times()), (1, 2));
    assert!(!producer.park(&writer_waker) && !consumer.park(&reader_waker));
}

#[test]
fn a_close_wakes_the_writer_and_a_finish_the_reader() {
    let slot = RingSlot::new(());
    let ((reader, reader_waker), (writer, writer_waker)) = (Woken::new(), Woken::new());
    let (mut producer, mut consumer) = RingSlot::open(&slot, &slot, 1);
    pushed(&mut producer, [1]);
    assert!(producer.park(&writer_waker));
    drop(consumer.close());
    assert_eq!(writer.times(), 1);
    drop((producer, consumer));
    let (producer, mut consumer) = RingSlot::open(&slot, &slot, 1);
    assert!(consumer.park(&reader_waker));
    drop(producer);
    assert_eq!(reader.times(), 1);
}

#[test]
fn the_last_waker_counts_and_none_is_leaked() {
    let slot = RingSlot::new(());
    let ((first, first_waker), (last, last_waker)) = (Woken::new(), Woken::new());
    let (mut producer, mut consumer) = RingSlot::<Item, ()>::open(&slot, &slot, 1);
    assert!(consumer.park(&first_waker) && consumer.park(&last_waker));
    assert_eq!((Shared::strong_count(&first), Shared::strong_count(&last)), (2, 3));
    pushed(&mut producer, [1]);
    assert_eq!((first.times(), last.times()), (0, 1));
    assert!(producer.park(&first_waker));
    drop(consumer.try_pop());
    assert!(consumer.park(&last_waker));
    // Ends that go away take their own wakers with them.
    drop(consumer);
    drop(producer);
    drop((first_waker, last_waker));
    assert_eq!((Shared::strong_count(&first), Shared::strong_count(&last)), (1, 1));
}

#[test]
fn a_waker_that_panics_costs_no_item_and_no_end() {
    let slot = RingSlot::new(());
    let (woken, waker) = Woken::new();
    woken.panics.store(true, order::COUNT);
    let (mut producer, mut consumer) = RingSlot::open(&slot, &slot, 1);
    assert!(consumer.park(&waker));
    let panicked = |f: &mut dyn FnMut()| catch_unwind(AssertUnwindSafe(f)).is_err();
    assert!(panicked(&mut || pushed(&mut producer, [1])));
    assert_eq!(consumer.try_pop(), Pop::Item(Box::new(1)));
    assert!(consumer.park(&waker));
    assert!(panicked(&mut || {
        producer.finish(2);
    }));
    assert_eq!((woken.times(), consumer.try_pop()), (2, Pop::End(2)));
    drop((producer, consumer));
    drop(RingSlot::open(&slot, &slot, 1));
}

#[test]
fn a_destructor_that_panics_does_not_keep_the_others_from_running() {
    struct Item(Shared<AtomicUsize>, bool);
    impl Drop for Item {
        fn drop(&mut self) {
            self.0.fetch_add(1, order::COUNT);
            assert!(!self.1, "told to panic");
        }
    }
    let (slot, dropped) = (RingSlot::new(()), Shared::new(AtomicUsize::new(0)));
    let (mut producer, consumer) = RingSlot::open(&slot, &slot, 4);
    for panics in [false, true, true, false] {
        assert!(producer.try_push(Item(Shared::clone(&dropped), panics)).is_ok());
    }
    assert!(catch_unwind(AssertUnwindSafe(|| drop(consumer))).is_err());
    assert_eq!(dropped.load(order::COUNT), 4);
    drop(producer);
    drop(RingSlot::open(&slot, &slot, 4));
}

#[test]
fn a_ring_has_one_end_of_each_kind() {
    let (slot, other) = (Shared::new(RingSlot::<Item, u8>::new(3)), Shared::new(RingSlot::new(4)));
    let open = |first: &Shared<_>, second: &Shared<_>, capacity| {
        catch_unwind(AssertUnwindSafe(|| {
            RingSlot::open(Shared::clone(first), Shared::clone(second), capacity)
        }))
        .ok()
    };
    assert!(open(&slot, &other, 1).is_none(), "two slots");
    assert!(open(&slot, &slot, 0).is_none() && open(&slot, &slot, CELLS + 1).is_none());
    let (producer, mut consumer) = open(&slot, &slot, 1).expect("it was not open");
    assert!(open(&slot, &slot, 1).is_none());
    assert_eq!(*producer.slot().user(), 3);
    drop(producer);
    assert!(open(&slot, &slot, 1).is_none(), "the consumer is still there");
    drop(consumer.close());
    let (mut producer, mut consumer) = open(&slot, &slot, 2).expect("both ends are closed");
    pushed(&mut producer, [1]);
    producer.finish(1);
    let drain = consumer.close();
    assert!(open(&slot, &slot, 1).is_none(), "the drain still reads the cells");
    drop(drain);
    assert!(open(&slot, &slot, 1).is_some());
    assert_eq!(
        Shared::strong_count(&slot),
        1 + 3,
        "the closed ends still hold the slot, the refused ones do not"
    );
    assert_eq!(
        (producer.try_push(Box::new(1)), consumer.try_pop()),
        (Err(Push::Terminal(Box::new(1), 1)), Pop::End(1))
    );
}

#[test]
fn a_slot_is_a_few_bytes_more_than_its_cells() {
    assert_eq!(size_of::<RingSlot<u64, ()>>(), CELLS * 8 + 120 + 176 + 128, "three lines, two wakers");
    assert_eq!(
        (size_of::<Producer<&RingSlot<u64, ()>>>(), size_of::<Consumer<&RingSlot<u64, ()>>>()),
        (16, 16)
    );
}

/// Both ends on threads of their own, parking, until one goes away.
#[test]
fn two_threads_pass_everything_in_order() {
    let rounds: u32 = if cfg!(miri) { 100 } else { 50_000 };
    for capacity in [1, 2, 7] {
        let slot = RingSlot::<Item, ()>::new(());
        let (mut producer, mut consumer) = RingSlot::open(&slot, &slot, capacity);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let waker = thread_waker();
                for item in 0..rounds {
                    let mut item = Box::new(item);
                    while let Err(refused) = producer.try_push(item) {
                        let Push::Full(back) = refused else { panic!("the reader stays: {refused:?}") };
                        item = back;
                        if producer.park(&waker) {
                            std::thread::park();
                        }
                    }
                }
                producer.finish(1);
            });
            let (waker, mut next) = (thread_waker(), 0);
            loop {
                match consumer.try_pop() {
                    Pop::Item(item) => {
                        assert_eq!(*item, next);
                        next += 1;
                    }
                    Pop::Empty => {
                        if consumer.park(&waker) {
                            std::thread::park();
                        }
                    }
                    Pop::End(end) => break assert_eq!((end, next), (1, rounds)),
                }
            }
        });
    }
}

fn thread_waker() -> Waker {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Shared<Self>) {
            self.0.unpark();
        }
    }
    Shared::new(Unpark(std::thread::current())).into()
}

#[test]
fn only_what_is_a_terminal_ends_a_ring() {
    let slot = RingSlot::<Item, ()>::new(());
    let (mut producer, mut consumer) = RingSlot::open(&slot, &slot, 1);
    for wrong in [0, LAST_TERMINAL + 1, u8::MAX] {
        assert!(catch_unwind(AssertUnwindSafe(|| producer.finish(wrong))).is_err());
    }
    pushed(&mut producer, [7]);
    assert_eq!(producer.finish(LAST_TERMINAL), LAST_TERMINAL);
    assert_eq!(drained(&mut consumer), [7]);
}

#[test]
fn an_end_that_takes_its_waker_back_is_not_woken() {
    let slot = RingSlot::new(());
    let (mut producer, mut consumer) = RingSlot::open(&slot, &slot, 1);
    let (woken, waker) = Woken::new();
    pushed(&mut producer, [1]);
    assert!(!producer.unpark(), "nothing is parked");
    assert!(producer.park(&waker));
    assert_eq!(Shared::strong_count(&woken), 3, "here, in `waker` and in the ring");
    assert!(producer.unpark() && !producer.unpark());
    assert_eq!(Shared::strong_count(&woken), 2);
    assert_eq!((consumer.try_pop(), woken.times()), (Pop::Item(Box::new(1)), 0));
    assert!(consumer.park(&waker) && consumer.unpark() && !consumer.unpark());
    assert_eq!(Shared::strong_count(&woken), 2);
    assert_eq!(producer.finish(1), 1);
    assert!(!producer.unpark(), "a closed end has nothing parked");
    assert_eq!((consumer.try_pop(), woken.times()), (Pop::End(1), 0));
}
