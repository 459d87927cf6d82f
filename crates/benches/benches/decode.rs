//! Decoding alone: requests per second over buffers of 200 pipelined requests.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use larder_protocol::classic::{Decoded, KeyStep, Request, decode, next_key};
use larder_protocol::scan::token_end;
use std::hint::black_box;

/// Walks over every request; returns bytes of keys, so that nothing is optimised away.
fn walk(input: &[u8]) -> usize {
    let (mut at, mut key_bytes) = (0, 0);
    while at < input.len() {
        let Decoded::Request(request, bytes) = decode(&input[at..]) else { panic!("incomplete") };
        at += bytes;
        match request {
            Request::Fetch(_) => loop {
                let KeyStep::Key { key, bytes, last } = next_key(&input[at..]) else { panic!("incomplete") };
                at += bytes;
                key_bytes += key.len();
                if last {
                    break;
                }
            },
            Request::Store(store) => {
                at += store.value_bytes as usize + 2;
                key_bytes += store.key.len();
            }
            Request::Meta(meta) => {
                at += if meta.value_bytes > 0 { meta.value_bytes as usize + 2 } else { 0 };
                key_bytes += meta.key.len();
            }
            other => panic!("{other:?}"),
        }
    }
    key_bytes
}

fn bench(c: &mut Criterion) {
    let value = "v".repeat(32);
    let many = |one: &dyn Fn(usize) -> String| (0..200).map(one).collect::<String>();
    let keys = (0..200).map(|n| format!(" key-{n:010}")).collect::<String>();
    let mut group = c.benchmark_group("decode");
    group.throughput(Throughput::Elements(200));
    for (name, input) in [
        ("get", many(&|n| format!("get key-{n:010}\r\n"))),
        ("set", many(&|n| format!("set key-{n:010} 0 0 32\r\n{value}\r\n"))),
        ("multiget", format!("get{keys}\r\n")),
        ("mg v", many(&|n| format!("mg key-{n:010} v\r\n"))),
        ("ms", many(&|n| format!("ms key-{n:010} 32\r\n{value}\r\n"))),
        ("ms flags", many(&|n| format!("ms key-{n:010} 32 T0 F0 q\r\n{value}\r\n"))),
        ("gets", many(&|n| format!("gets key-{n:010}\r\n"))),
    ] {
        group.bench_function(name, |b| b.iter(|| walk(black_box(input.as_bytes()))));
    }
    group.finish();
    c.bench_function("token_end of 14 bytes", |b| {
        b.iter(|| token_end(black_box(b"key-0123456789\r\nget key-0123")))
    });
}

criterion_group!(benches, bench);
criterion_main!(benches);
