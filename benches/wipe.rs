//! The wipe of what was exposed for writing, against memset: `cargo bench --bench wipe`.
//!
//! The first also takes and gives back the buffer; "untouched" is that part alone.

#[allow(dead_code, unreachable_pub, reason = "each bench uses a part of what they share")]
#[path = "../perf/src/lib.rs"]
mod perf;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use perf::{Node, must};

fn wipe(criterion: &mut Criterion) {
    let node = Node::warm();
    let call = node.call();
    let mut group = criterion.benchmark_group("wipe");
    for bytes in [512, 4 << 10, 64 << 10, 1 << 20] {
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(BenchmarkId::new("buffer, all exposed", bytes), |bencher| {
            bencher.iter(|| {
                let mut buffer = must(call.io().buffer(bytes, 0));
                black_box(must(buffer.spare_mut(bytes)).as_mut_ptr());
            });
        });
        group.bench_function(BenchmarkId::new("buffer, untouched", bytes), |bencher| {
            bencher.iter(|| drop(black_box(must(call.io().buffer(bytes, 0)))));
        });
        let mut block = vec![0_u8; bytes];
        group.bench_function(BenchmarkId::new("memset", bytes), |bencher| {
            bencher.iter(|| black_box(&mut block[..]).fill(0));
        });
    }
}

criterion_group!(benches, wipe);
criterion_main!(benches);
