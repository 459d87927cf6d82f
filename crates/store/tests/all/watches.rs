//! Watches of clients: all watches together have a share of the memory, and not a byte more.

use larder_store::{Config, Guard, Store, Touched};

const MEMORY_BYTES: u64 = 4 << 20;
/// The bytes that all watches together may take.
const SHARE: u64 = MEMORY_BYTES / 16;

fn watch(guard: &mut Guard<'_>, name: &[u8], flag: &Touched) -> Option<bool> {
    let key = guard.key(name);
    guard.watch(0, &key, flag)
}

#[test]
fn watches_of_all_clients_have_their_share_and_no_byte_more() {
    // The last key's length decides: each of its bytes counts three times.
    for over in [-1, 0, 1] {
        let config = Config {
            memory_bytes: MEMORY_BYTES,
            memory_bytes_max: MEMORY_BYTES,
            workers_max: 1,
            evict: true,
            seed: 1,
        };
        let store = Store::new(config).expect("a store");
        let mut worker = store.worker().expect("a worker");
        let mut guard = worker.enter(1);
        let flag = Touched::default();
        // A watch is charged with three copies of its key, and a fixed part.
        assert_eq!(watch(&mut guard, &0u64.to_le_bytes(), &flag), Some(false));
        let each = store.watch_bytes();
        let beside = each - 3 * size_of::<u64>() as u64;
        let count = SHARE / each - 1;
        for n in 1..count {
            assert_eq!(watch(&mut guard, &n.to_le_bytes(), &flag), Some(false));
        }
        let left = SHARE - count * each;
        assert_eq!(store.watch_bytes(), SHARE - left);
        let bytes = (left - beside) as i64 / 3 + over;
        let name = vec![b'k'; bytes as usize];
        let expected = if over <= 0 { Some(false) } else { None };
        assert_eq!(watch(&mut guard, &name, &flag), expected, "{over} bytes over");
        if over <= 0 {
            assert_eq!(store.watch_bytes() as i64, (SHARE - left + beside) as i64 + 3 * bytes);
        }
        // A watch that ended leaves its bytes to the next.
        let first = 0u64.to_le_bytes();
        store.unwatch(0, &first, &flag);
        assert_eq!(watch(&mut guard, &first, &flag), Some(false));
    }
}
