//! Commands that change many elements of a tree: no node is made twice for one command, and all is as it would be if each element
//! came by itself.

use super::tests::{NOW, store};
use crate::collection::Type;
use crate::worker::Guard;
use crate::{Key, Store};

/// Leaves and inner nodes of the tree of a key.
fn nodes(store: &Store, guard: &mut Guard<'_>, key: &Key<'_>) -> [usize; 2] {
    let item = guard.peek(key).hit().expect("it is there");
    let mut nodes = [0; 2];
    store.each_node(item.raw, &mut |_, level| nodes[usize::from(level > 0)] += 1);
    nodes
}

/// Leaves and inner nodes that `f` makes, but for those of members trees.
fn makes(guard: &mut Guard<'_>, f: impl FnOnce(&mut Guard<'_>)) -> [usize; 2] {
    let before = guard.local.edit.made;
    f(guard);
    let after = guard.local.edit.made;
    [after[0] - before[0], after[1] - before[1]]
}

/// The nth field. All are equally long, so that no leaf that is cut leaves a short one.
fn field(n: u32) -> Vec<u8> {
    format!("field {n:04}").into_bytes()
}

/// Sets so many fields, each by a command of its own.
fn set_one_by_one(guard: &mut Guard<'_>, key: &Key<'_>, fields: u32) {
    for n in 0..fields {
        assert_eq!(guard.hash_set(key, [(&field(n)[..], &b"some 000"[..])].into_iter()), Ok(1));
    }
}

/// An inner node that was made for one field of a command names the leaves of the others where it lies.
#[test]
fn inner_nodes_are_made_once_for_all_fields_of_a_command() {
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    set_one_by_one(&mut guard, &key, 280);
    let there = nodes(&store, &mut guard, &key);
    assert!(there[1] > 12, "{there:?}");
    // Every field, and every seventh.
    for step in [1, 7] {
        let fields: Vec<Vec<u8>> = (0..280).step_by(step).map(field).collect();
        let made = makes(&mut guard, |guard| {
            let pairs = fields.iter().map(|name| (&name[..], &b"more 000"[..]));
            assert_eq!(guard.hash_set(&key, pairs), Ok(0));
        });
        assert!(made[1] <= there[1], "{made:?} of {there:?}");
        assert!(step > 1 || made[1] == there[1], "{made:?} of {there:?}");
    }
    assert_eq!(nodes(&store, &mut guard, &key), there);
    let hash = guard.collection(&key, Type::Hash).unwrap().unwrap();
    assert!((0..280).all(|n| hash.has(&field(n))));
    drop(guard);
    drop(worker);
    store.check();
}
